from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.base import BaseCommand
from django.db import connections

from transcriber import processes
from transcriber.database import prepare
from transcriber.service import CannotListen, Supervisor, open_listener

WELCOME = """\
Transcriber is starting at {url}
  Admin       {url}/admin/
  API         {url}/api/v1/docs/
  New user    .venv/bin/python manage.py createsuperuser
  New token   .venv/bin/python manage.py create_token NAME
Ctrl-C stops it.
"""


class Command(BaseCommand):
    help = "Runs the whole service: web server and workers. PORT of the environment is the port (8000)."

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = settings.TRANSCRIBER.web.listen, os.environ.get("PORT") or "8000"
        if not port.isdecimal() or int(port) > 65535:
            raise CommandError("PORT must be a number from 0 (any that is free) to 65535.")
        try:
            listener = open_listener(host, int(port))
        except CannotListen as error:
            raise CommandError(str(error)) from error
        supervisor = Supervisor(listener)
        supervisor.listen_to_signals()
        prepare()
        connections.close_all()
        self.stdout.write(WELCOME.format(url=f"http://{self.shown(host)}:{listener.getsockname()[1]}"))
        processes.leave(supervisor.run())

    @staticmethod
    def shown(host: str) -> str:
        """The host as a browser on this machine would name it."""
        if host in ("0.0.0.0", "::", "[::]", ""):  # noqa: S104
            return "127.0.0.1"
        return f"[{host}]" if ":" in host and not host.startswith("[") else host
