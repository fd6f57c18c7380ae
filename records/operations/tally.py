"""Counting the journal, so that the counts never fall: not when a record is removed, and not when old rows are.

What has settled is added up in the tallies, little by little, by the housekeeping; what came since is counted when somebody asks. The rows of a
record that is removed are added before they go. So every process on every machine tells the same, and to ask costs the same after a year.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import BigIntegerField, Case, Count, F, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from records import history
from records.models import AudioRecord, JournalQuarter, RecordEvent, Tally, TallyMark
from records.models.journal_quarter import quarter_of

SETTLED_AFTER = timedelta(minutes=10)
"""Rows of the journal older than that are all committed, as far as the clocks of the machines agree to within it."""

BOUNDS_MS = (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)
"""How long a run lasted is kept as the smallest of these that it did not exceed."""
LONGER = -1

THE_ONE = uuid.UUID(int=1)
NEVER = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Counted:
    step: str
    outcome: str
    origin: str
    up_to_ms: int
    """One of BOUNDS_MS, or LONGER."""
    runs: int
    duration_ms: int
    """Of all runs together."""


def counted() -> list[Counted]:
    """All that was ever written into the journal, by kind; a kind may come twice. In one statement, so that nothing is missed or doubled."""
    mark = TallyMark.objects.filter(pk=THE_ONE).values("until")
    known: datetime = next((row["until"] for row in mark), NEVER)
    # The moment that was just read lets the database see that few rows are asked for; the mark itself may have moved on since.
    fresh = RecordEvent.objects.filter(created__gte=known).filter(created__gte=Coalesce(Subquery(mark), Value(NEVER)))
    return [Counted(*row) for row in Tally.objects.order_by().values_list(*FIELDS).union(_kinds(fresh), all=True)]


def settle(*, now: datetime) -> None:
    """Add what has settled to the tallies. Meant to be called every minute or so; now and then there is something to do."""
    until = now - SETTLED_AFTER
    if TallyMark.objects.filter(pk=THE_ONE, until__gt=until - SETTLED_AFTER).exists():
        return
    with transaction.atomic():
        mark = hold_mark()
        if mark.until >= until:
            return
        settled = RecordEvent.objects.filter(created__gte=mark.until, created__lt=until)
        _add(_kinds(settled), now=now)
        _add_by_quarter(settled, now=now)
        JournalQuarter.objects.filter(quarter__lt=quarter_of(now - history.KEPT)).delete()
        TallyMark.objects.filter(pk=mark.pk).update(until=until, updated=now)


def hold_mark() -> TallyMark:
    """Let nobody else add to the tallies until the transaction ends. To be taken before any row of a record."""
    held = TallyMark.objects.select_for_update().filter(pk=THE_ONE)
    mark = held.first()
    if mark is None:
        TallyMark.objects.bulk_create([TallyMark(pk=THE_ONE, until=NEVER)], ignore_conflicts=True)
        mark = held.get()
    return mark


def count_in(record: AudioRecord, mark: TallyMark, *, now: datetime) -> None:
    """Add the rows of a record that is about to be removed, as far as they are not counted yet."""
    fresh = RecordEvent.objects.filter(record=record, created__gte=mark.until)
    _add(_kinds(fresh), now=now)
    _add_by_quarter(fresh, now=now)


FIELDS = ("step", "outcome", "origin", "up_to_ms", "runs", "duration_ms")

_UP_TO = Case(
    *(When(duration_ms__lte=bound, then=Value(bound)) for bound in BOUNDS_MS),
    When(duration_ms__isnull=True, then=Value(BOUNDS_MS[0])),  # the act of a person, which lasts no time
    default=Value(LONGER),
    output_field=BigIntegerField(),
)


def _kinds(events: QuerySet[RecordEvent]) -> QuerySet[RecordEvent, tuple[str, str, str, int, int, int]]:
    return (
        events.order_by()
        .annotate(up_to_ms=_UP_TO)
        .values("step", "outcome", "origin", "up_to_ms")
        .annotate(runs=Count("pk"), lasted_ms=Coalesce(Sum("duration_ms"), Value(0), output_field=BigIntegerField()))
        .values_list("step", "outcome", "origin", "up_to_ms", "runs", "lasted_ms")
    )


def _add(kinds: Iterable[tuple[str, str, str, int, int, int]], *, now: datetime) -> None:
    for step, outcome, origin, up_to_ms, runs, duration_ms in kinds:
        kind = {"step": step, "outcome": outcome, "origin": origin, "up_to_ms": up_to_ms}
        more = {"runs": F("runs") + runs, "duration_ms": F("duration_ms") + duration_ms, "updated": now}
        if not Tally.objects.filter(**kind).update(**more):
            Tally.objects.create(**kind, runs=runs, duration_ms=duration_ms, created=now, updated=now)


def _add_by_quarter(events: QuerySet[RecordEvent], *, now: datetime) -> None:
    recent = events.filter(created__gte=now - history.KEPT)
    for quarter, step, outcome, up_to_ms, runs, recorded_ms in history.quarters(recent):
        kind = {"quarter": quarter, "step": step, "outcome": outcome, "up_to_ms": up_to_ms}
        more = {"runs": F("runs") + runs, "recorded_ms": F("recorded_ms") + recorded_ms, "updated": now}
        if not JournalQuarter.objects.filter(**kind).update(**more):
            JournalQuarter.objects.create(**kind, runs=runs, recorded_ms=recorded_ms, created=now, updated=now)
