"""Which records an act is for, how many of each kind they are, and what a restart of them would cost."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import BooleanField, Count, QuerySet
from django.db.models.expressions import RawSQL

from recognition import registry
from recognition.contract import Misconfigured
from records.models import AudioRecord
from records.pipeline.stages import STAGES
from records.states import FINAL, HaltReason, State


@dataclass(frozen=True)
class Selection:
    """Filters that must all hold; an empty one holds for every record. Within one, any of its values."""

    records: tuple[uuid.UUID, ...] = ()
    states: tuple[State, ...] = ()
    reasons: tuple[HaltReason, ...] = ()
    owner: str = ""
    older_than: timedelta | None = None
    """In the state, as people see it (`state_entered_at`)."""
    error_code: str = ""
    provider: str = ""
    """Of the current recognition."""

    def __bool__(self) -> bool:
        return self != Selection()

    def among(self, records: QuerySet[AudioRecord], *, now: datetime) -> QuerySet[AudioRecord]:
        if self.records:
            records = records.filter(pk__in=self.records)
        if self.states:
            records = (records if FINAL in self.states else unfinished(records)).filter(state__in=self.states)
        if self.reasons:
            records = records.filter(halted_at__isnull=False, halt_reason__in=self.reasons)
        if self.owner:
            records = records.filter(owner__username=self.owner)
        if self.older_than is not None:
            records = records.filter(state_entered_at__lte=now - self.older_than)
        if self.error_code:
            records = records.filter(error_code=self.error_code)
        if self.provider:
            records = records.filter(recognition__provider=self.provider)
        return records


def unfinished(records: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
    """By the index audio_records_unfinished: SQLite uses it only where its predicate stands word for word."""
    return records.filter(RawSQL(f"NOT (state = '{FINAL.value}')", [], output_field=BooleanField()))  # noqa: S611 - a constant


def halted(records: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
    """By the index audio_records_halted, which is searched by the reasons."""
    return records.filter(halted_at__isnull=False, halt_reason__in=HaltReason.values)


def kinds(records: QuerySet[AudioRecord]) -> list[tuple[str, str, int]]:
    """State, halt reason (empty: not halted) and number, in the order of the pipeline."""
    order = State.values
    found = records.order_by().values_list("state", "halt_reason").annotate(number=Count("pk"))
    return sorted(found, key=lambda kind: (order.index(kind[0]), kind[1]))


def new_paid_attempts(records: QuerySet[AudioRecord], state: State) -> int:
    """How many recognitions a restart from `state` would have paid for: one for each record that moves, where it is submitted anew to a
    provider that costs money. A provider that can't be asked (it is misconfigured) is taken for one that does.
    """
    if not STAGES.is_before(state, State.SUBMITTED):
        return 0
    try:
        if not registry.default().costs_money:
            return 0
    except Misconfigured:
        pass
    order = list(State)
    return records.order_by().filter(state__in=order[order.index(state) :]).count()
