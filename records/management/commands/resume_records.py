from __future__ import annotations

from typing import Any

from django.utils import timezone

from records.management.acting import BY, ActingCommand
from records.models import AudioRecord
from records.operations import control, selection


class Command(ActingCommand):
    help = (
        "Let halted records go on from where they stood. Records whose paid submission is unconfirmed are passed over: "
        "they need an answer (confirm_submission)."
    )
    done = "resumed"
    all_of = "Every halted record"

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        now = timezone.now()
        records = self.chosen(options, selection.halted(AudioRecord.objects.all()), now=now)
        self.run(records, lambda chosen, at: control.resume(chosen, by=BY, now=at), dry_run=dry_run, now=now)
