from __future__ import annotations

from typing import Any

from django.utils import timezone

from records.management.acting import BY, ActingCommand
from records.models import AudioRecord
from records.operations import control, selection


class Command(ActingCommand):
    help = "Make unfinished records stand still until they are resumed; whoever works on one loses it."
    done = "halted"
    all_of = "Every unfinished record"

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        now = timezone.now()
        records = self.chosen(options, selection.unfinished(AudioRecord.objects.all()), now=now)
        self.run(records, lambda chosen, at: control.halt(chosen, by=BY, now=at), dry_run=dry_run, now=now)
