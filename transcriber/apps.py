from django.apps import AppConfig


class TranscriberConfig(AppConfig):
    name = "transcriber"
