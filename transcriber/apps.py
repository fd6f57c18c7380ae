from pathlib import Path

from django.apps import AppConfig
from django.conf import settings


class TranscriberConfig(AppConfig):
    name = "transcriber"

    def ready(self) -> None:
        from transcriber import checks  # noqa: F401 - registers them

        # whitenoise looks for it and warns, though static files are served from the apps.
        Path(settings.STATIC_ROOT).mkdir(exist_ok=True)
