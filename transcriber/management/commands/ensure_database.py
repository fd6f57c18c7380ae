from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from transcriber.database import prepare


class Command(BaseCommand):
    help = "Apply the migrations that are missing, if any. Several may run it at once."

    def handle(self, **options: Any) -> None:
        prepare()
