"""Texts and structures made anew from the saved answers, with no call to any provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from recognition import operations as recognitions
from recognition import registry
from recognition.contract import ProviderError
from records.models import AudioRecord, RecordEvent, Structure, Text
from records.operations.control import By
from records.pipeline.steps.poll import rows_of
from records.states import EventOutcome, State

REACHED = (State.TRANSCRIBED, State.DONE)


@dataclass
class Rebuilt:
    """How many records were rebuilt, and how many were passed over, by reason."""

    changed: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)

    def pass_over(self, reason: str) -> None:
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1


def rebuild(records: QuerySet[AudioRecord], *, by: By, clock: Callable[[], datetime], dry_run: bool = False) -> Rebuilt:
    """Parse the saved answer of each record again. Each record is a transaction of its own: an archive is not held up by one of them.

    Passes over records without a transcript (`not_transcribed`), without a saved answer (`no_payload`), and answers that can't be parsed
    (`unreadable`); those keep what they have. The clock is asked for each record: an archive takes hours, and what is journaled as of long ago is
    not counted (records.operations.tally).
    """
    report = Rebuilt()
    for pk in list(records.order_by("pk").values_list("pk", flat=True)):
        record = AudioRecord.objects.select_related("recognition").filter(pk=pk).first()
        if record is None or record.state not in REACHED or record.recognition is None:
            report.pass_over("not_transcribed")
            continue
        try:
            raw = recognitions.read_payload(record.recognition)
            if raw is None:
                report.pass_over("no_payload")
                continue
            rows = rows_of(registry.get(record.recognition.provider).parse(raw, record.recognition.options))
        except FileNotFoundError:
            report.pass_over("no_payload")
            continue
        except ProviderError:
            report.pass_over("unreadable")
            continue
        if dry_run or _replace(record, rows, by=by, clock=clock):
            report.changed += 1
        else:
            report.pass_over("changed_meanwhile")
    return report


def _replace(record: AudioRecord, rows: dict[str, Structure | Text], *, by: By, clock: Callable[[], datetime]) -> bool:
    """Move the links to the new rows, if the record is still as it was read; the old rows go."""
    assert record.recognition_id is not None
    assert record.structure_id is not None
    unchanged = AudioRecord.objects.filter(
        pk=record.pk, state=record.state, recognition_id=record.recognition_id, structure_id=record.structure_id
    )
    with transaction.atomic():
        if not unchanged.update(updated=clock(), **{f"{link}_id": row.pk for link, row in rows.items()}):
            return False
        now = clock()  # only now is the record ours: it may have been waited for
        for row in rows.values():
            row.save(force_insert=True)
        Structure.objects.filter(pk__in=[record.structure_id]).delete()
        Text.objects.filter(pk__in=[record.transcript_text_id]).delete()
        RecordEvent.objects.create(
            record=record,
            origin=by.origin,
            actor=by.actor,
            outcome=EventOutcome.REBUILT,
            outcome_text=f"at {record.state}",
            created=now,
            updated=now,
        )
    return True
