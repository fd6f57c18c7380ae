from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from transcriber.database import migrating, missing_migrations


class Command(BaseCommand):
    help = "Apply the migrations that are missing, if any. Several may run it at once."

    def handle(self, **options: Any) -> None:
        if not missing_migrations():
            return
        with migrating():
            if missing_migrations():
                call_command("migrate", verbosity=0, interactive=False)
