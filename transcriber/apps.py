from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created


class TranscriberConfig(AppConfig):
    name = "transcriber"

    def ready(self) -> None:
        from transcriber import checks  # noqa: F401 - registers them
        from transcriber.database import keep_wal

        connection_created.connect(keep_wal)
        # whitenoise looks for it and warns, though static files are served from the apps.
        Path(settings.STATIC_ROOT).mkdir(exist_ok=True)
