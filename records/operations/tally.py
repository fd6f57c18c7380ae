"""Counting the journal, so that the counts never fall: not when a record is removed, and not when old rows are.

What has settled is added up in the tallies, little by little, by the housekeeping; what came since is counted when somebody asks. The rows of a
record that is removed are added before they go. So every process on every machine tells the same, and to ask costs the same after a year.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import BigIntegerField, Case, Count, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from records import history
from records.history import NEVER
from records.models import AudioRecord, JournalQuarter, RecordEvent, Tally, TallyMark
from records.models.base import new_id
from records.models.journal_quarter import quarter_of

SETTLED_AFTER = timedelta(minutes=10)
"""Rows of the journal older than that are all committed, as far as the clocks of the machines agree to within it, and as far as nobody writes a row
whose `created` he read so long before he commits. What is committed later still is in no count: on PostgreSQL an act of a person that waits so long
for the rows it is to change (records.operations.control)."""

SLICE = 10_000
"""So many rows are added in one transaction: nobody else can write into SQLite meanwhile, and no record be removed."""
PAUSE_S = 0.15
"""Between two of them: who waits for the lock of SQLite asks for it every tenth of a second."""

BOUNDS_MS = (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)
"""How long a run lasted is kept as the smallest of these that it did not exceed."""
LONGER = -1

THE_ONE = uuid.UUID(int=1)


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


def settle(*, now: datetime, patience_s: float = 5.0) -> None:
    """Add what has settled to the tallies, and go on with it at the next call where that takes longer than `patience_s`. Meant to be called every
    minute or so; now and then there is something to do."""
    until = now - SETTLED_AFTER
    if TallyMark.objects.filter(pk=THE_ONE, until__gt=until - SETTLED_AFTER).exists():
        return
    stop_at = time.monotonic() + patience_s
    while _settle_slice(until, now=now) and time.monotonic() < stop_at:
        time.sleep(PAUSE_S)
    JournalQuarter.objects.filter(quarter__lt=quarter_of(now - history.KEPT)).delete()


@transaction.atomic
def _settle_slice(until: datetime, *, now: datetime) -> bool:
    """Move the mark over the next SLICE rows (and any that were written in the same instant as the first of them); says whether there are more."""
    mark = hold_mark()
    if mark.until >= until:
        return False
    settled = RecordEvent.objects.filter(created__gte=mark.until, created__lt=until)
    following = settled.order_by("created").values_list("created", flat=True)[SLICE : SLICE + 1].first()
    end = until if following is None else max(following, mark.until + timedelta.resolution)
    _add_up(settled.filter(created__lt=end), now=now)
    TallyMark.objects.filter(pk=mark.pk).update(until=end, updated=now)
    return end < until


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
    _add_up(RecordEvent.objects.filter(record=record, created__gte=mark.until), now=now)


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


def _add_up(events: QuerySet[RecordEvent], *, now: datetime) -> None:
    _add(Tally, ("step", "outcome", "origin", "up_to_ms"), ("runs", "duration_ms"), _kinds(events), now=now)
    recent = history.quarters(events.filter(created__gte=now - history.KEPT))
    _add(JournalQuarter, ("quarter", "step", "outcome", "up_to_ms"), ("runs", "recorded_ms"), recent, now=now)


def _add(
    model: type[Tally | JournalQuarter], kind: Sequence[str], sums: Sequence[str], rows: Iterable[tuple[Any, ...]], *, now: datetime
) -> None:
    """Add to the sums of each kind, or begin them. What Django's `bulk_create` would do on a conflict is to replace them."""
    table, columns = model._meta.db_table, ("id", "created", "updated", *kind, *sums)
    more = (f"{name} = {table}.{name} + excluded.{name}" for name in sums)
    sql = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))}) "  # noqa: S608 - names alone
        f"ON CONFLICT ({', '.join(kind)}) DO UPDATE SET updated = excluded.updated, {', '.join(more)}"
    )
    of = {field.name: field for field in model._meta.concrete_fields}
    values = [
        [of[name].get_db_prep_save(value, connection) for name, value in zip(columns, (new_id(), now, now, *row), strict=True)]
        for row in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(sql, values)
