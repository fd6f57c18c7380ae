from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.core.signals import request_started
from django.db.backends.signals import connection_created


class TranscriberConfig(AppConfig):
    name = "transcriber"

    def ready(self) -> None:
        from transcriber import checks  # noqa: F401 - registers them
        from transcriber.database import keep_wal, leave_replaced, remember_file

        connection_created.connect(keep_wal)
        connection_created.connect(remember_file)
        request_started.connect(leave_replaced)
        # whitenoise looks for it and warns, though static files are served from the apps.
        Path(settings.STATIC_ROOT).mkdir(exist_ok=True)
