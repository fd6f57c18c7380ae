"""Which records are meant (by the admin's filters and by the commands' alike), how many of each kind they are, and what an act on them costs."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.db import connection
from django.db.models import BooleanField, Count, Q, QuerySet
from django.db.models.expressions import RawSQL

from recognition import registry
from recognition.contract import Misconfigured
from records.models import AudioRecord
from records.pipeline.stages import STAGES
from records.states import FINAL, HaltReason, State


class Work(StrEnum):
    """What becomes of an unfinished record that is not halted."""

    WAITING = "waiting"  # nobody has it, or whoever had it gave no sign of life
    RUNNING = "running"  # a worker has it, and its lease holds


@dataclass(frozen=True)
class Selection:
    """Filters that must all hold; an empty one holds for every record. Within one, any of its values."""

    records: tuple[uuid.UUID, ...] = ()
    states: tuple[State, ...] = ()
    unfinished: bool = False
    halted: bool | None = None
    reasons: tuple[HaltReason, ...] = ()
    steps: tuple[str, ...] = ()
    """Unfinished, and that step comes next."""
    work: Work | None = None
    owner: str = ""
    owner_id: int | None = None
    older_than: timedelta | None = None
    """In the state, as people see it (`state_entered_at`)."""
    created_from: datetime | None = None
    created_before: datetime | None = None
    error_code: str = ""
    error: str = ""
    """A part of the error's text, or its whole code."""
    provider: str = ""
    """Of the current recognition."""

    def __bool__(self) -> bool:
        return self != Selection()

    @property
    def is_bounded(self) -> bool:
        """Whether it leaves no more than what is unfinished: few enough to be put in any order."""
        narrowed = self.unfinished or self.halted or self.reasons or self.steps or self.work or self.error
        return bool(narrowed) or (bool(self.states) and FINAL not in self.states)

    def among(self, records: QuerySet[AudioRecord], *, now: datetime) -> QuerySet[AudioRecord]:
        if self.records:
            records = records.filter(pk__in=self.records)
        if self.states:
            records = (records if FINAL in self.states else unfinished(records)).filter(state__in=self.states)
        if self.unfinished:
            records = unfinished(records)
        if self.steps:
            records = unfinished(records).filter(state__in=[stage.state for stage in STAGES if stage.name in self.steps])
        if self.halted is not None:
            records = halted(records) if self.halted else records.filter(halted_at__isnull=True)
        if self.reasons:
            records = records.filter(halted_at__isnull=False, halt_reason__in=self.reasons)
        if self.work:
            records = unfinished(records).filter(halted_at__isnull=True)
            # Acquiring moves the due time to the end of the lease, and that is the column of the index.
            if self.work is Work.RUNNING:
                records = records.filter(acquisition_id__isnull=False, delay_time__gt=now)
            else:
                records = records.filter(Q(acquisition_id__isnull=True) | Q(delay_time__lte=now))
        if self.owner:
            records = records.filter(owner__username=self.owner)
        if self.owner_id is not None:
            records = records.filter(owner=self.owner_id)
        if self.older_than is not None:
            records = records.filter(state_entered_at__lte=now - self.older_than)
        # Ids are in order of time, and theirs is the index. The day is for clocks that were set.
        if self.created_from is not None:
            records = records.filter(pk__gte=_first_id(self.created_from - timedelta(days=1)), created__gte=self.created_from)
        if self.created_before is not None:
            records = records.filter(pk__lt=_first_id(self.created_before + timedelta(days=1)), created__lt=self.created_before)
        if self.error_code:
            records = records.filter(error_code=self.error_code)
        if self.error:
            # What is done has no error any more: the archive need not be read.
            records = unfinished(records).filter(contains("error_text", self.error) | Q(error_code=self.error.lower()))
        if self.provider:
            records = records.filter(recognition__provider=self.provider)
        return records


def unfinished(records: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
    """By the index audio_records_unfinished: SQLite uses it only where its predicate stands word for word. The column bears no table's name,
    since that is another one once the query stands within a query."""
    return records.filter(RawSQL(f"NOT (state = '{FINAL.value}')", [], output_field=BooleanField()))  # noqa: S611 - a constant


def halted(records: QuerySet[AudioRecord]) -> QuerySet[AudioRecord]:
    """By the index audio_records_halted, which is searched by the reasons."""
    return records.filter(halted_at__isnull=False, halt_reason__in=HaltReason.values)


def contains(column: str, term: str) -> Q:
    """That the term stands in the column, in any case of letters."""
    # SQLite's LIKE knows upper and lower case of ASCII alone; PostgreSQL goes by the locale of the database.
    if connection.vendor == "sqlite" and not term.isascii():
        return Q(**{f"{column}__iregex": re.escape(term)})
    return Q(**{f"{column}__icontains": term})


def kinds(records: QuerySet[AudioRecord]) -> list[tuple[str, str, int]]:
    """State, halt reason (empty: not halted) and number, in the order of the pipeline."""
    order = State.values
    found = records.order_by().values_list("state", "halt_reason").annotate(number=Count("pk"))
    return sorted(found, key=lambda kind: (order.index(kind[0]), kind[1]))


def reached(state: State) -> list[str]:
    """The state and those after it."""
    order = State.values
    return order[order.index(state) :]


def new_paid_attempts(records: QuerySet[AudioRecord], state: State) -> int:
    """How many recognitions a restart from `state` would have paid for: one for each record that moves, where it is submitted anew to a
    provider that costs money. A provider that can't be asked (it is misconfigured) is taken for one that does.
    """
    if not STAGES.is_before(state, State.SUBMITTED) or not costs_money(settings.TRANSCRIBER.recognition.provider):
        return 0
    return records.order_by().filter(state__in=reached(state)).count()


def paid_submissions(records: QuerySet[AudioRecord]) -> dict[str, int]:
    """How many of these records still have a paid submission before them as they go on, by provider: that of the attempt that is prepared
    already, else the one that new recordings go to.
    """
    ahead = records.order_by().filter(state__in=[stage.state for stage in STAGES if STAGES.is_before(stage.state, State.SUBMITTED)])
    ahead = ahead.filter(Q(recognition__isnull=True) | Q(recognition__external_id="", recognition__payload=""))
    numbers: Counter[str] = Counter()
    for name, number in ahead.values_list("recognition__provider").annotate(number=Count("pk")):
        numbers[name or settings.TRANSCRIBER.recognition.provider] += number
    return {name: number for name, number in sorted(numbers.items()) if costs_money(name)}


def costs_money(provider: str) -> bool:
    """Whether a submission to it is paid for; one that can't be asked is taken for one that is."""
    try:
        return (registry.default() if provider == settings.TRANSCRIBER.recognition.provider else registry.get(provider)).costs_money
    except Misconfigured:
        return True


def _first_id(moment: datetime) -> uuid.UUID:
    """Ids made from then on are greater."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)
