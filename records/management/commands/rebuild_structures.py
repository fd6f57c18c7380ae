from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand
from django.utils import timezone

from records import formats
from records.models import AudioRecord
from records.operations.control import By
from records.operations.rebuild import rebuild
from records.states import Origin


class Command(BaseCommand):
    help = "Make texts and structures anew from the saved answers of the providers. Calls nobody and costs nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--record", type=UUID, action="append", metavar="ID", help="This record (may be given several times).")
        parser.add_argument("--owner", metavar="NAME")
        parser.add_argument("--provider", metavar="NAME")
        parser.add_argument("--outdated", action="store_true", help=f"Only structures older than version {formats.VERSION}.")
        parser.add_argument("--dry-run", action="store_true", help="Parse, and change nothing.")

    def handle(
        self, *, record: list[UUID] | None, owner: str | None, provider: str | None, outdated: bool, dry_run: bool, **options: Any
    ) -> None:
        records = AudioRecord.objects.filter(recognition__isnull=False)
        if record:
            records = records.filter(pk__in=record)
        if owner:
            records = records.filter(owner__username=owner)
        if provider:
            records = records.filter(recognition__provider=provider)
        if outdated:
            records = records.filter(structure__version__lt=formats.VERSION)
        report = rebuild(records, by=By(Origin.COMMAND), clock=timezone.now, dry_run=dry_run)
        self.stdout.write(f"{'would be rebuilt' if dry_run else 'rebuilt'}: {report.changed}")
        for reason, count in report.passed_over.items():
            self.stdout.write(f"passed over, {reason}: {count}")
