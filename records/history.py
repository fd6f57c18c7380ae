"""What was done over time: of what the housekeeping has added up by quarters of an hour, and of the journal's rows that came since.

A month of it costs the same whether ten records were done in it or a million.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import BigIntegerField, Case, F, Func, IntegerField, QuerySet, Subquery, Sum, Value, When
from django.db.models.aggregates import Count
from django.db.models.functions import Coalesce

from records.models import JournalQuarter, RecordEvent, TallyMark
from records.models.journal_quarter import QUARTER_S, quarter_of
from records.pipeline.stages import STAGES
from records.states import FINAL, EventOutcome, Origin

NEVER = datetime(2000, 1, 1, tzinfo=UTC)
KEPT = timedelta(days=40)
"""For so long quarters are kept."""

BOUNDS_MS = tuple(sorted({round(2 ** (n / 4)) for n in range(28 * 4 + 1)}))
"""How long a run lasted is kept as the smallest of these that it did not exceed; each is a fifth larger than the one before, the last is three days."""
NO_TIME = 0

LAST_STEPS = tuple(stage.name for stage in STAGES if stage.leads_to == FINAL)


# ---- adding up ----------------------------------------------------------------------------------------------------------------------


class Quarter(Func):
    """In SQL what `quarter_of` is in Python."""

    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=f"(CAST(strftime('%%%%s', %(expressions)s) AS INTEGER) / {QUARTER_S})", **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(
            compiler, connection, template=f"CAST(floor(EXTRACT(EPOCH FROM %(expressions)s) / {QUARTER_S}) AS integer)", **context
        )


class _Bound(Func):
    _branches = " ".join(f"WHEN %(expressions)s <= {bound} THEN {bound}" for bound in BOUNDS_MS)
    template = f"CASE {_branches} ELSE {BOUNDS_MS[-1]} END"
    output_field = BigIntegerField()


UP_TO = Case(When(outcome=EventOutcome.ADVANCED, duration_ms__isnull=False, then=_Bound(F("duration_ms"))), default=Value(NO_TIME))
RECORDED = Coalesce(
    Sum(Case(When(step__in=LAST_STEPS, outcome=EventOutcome.ADVANCED, then=F("record__original_file__duration_ms")))),
    Value(0),
    output_field=BigIntegerField(),
)


def quarters(events: QuerySet[RecordEvent]) -> QuerySet[RecordEvent, tuple[int, str, str, int, int, int]]:
    """Rows of the journal added up: quarter, step, outcome, bound, runs and length of the recordings that were done."""
    return (
        events.filter(origin=Origin.WORKER)
        .order_by()
        .annotate(quarter=Quarter("created"), up_to_ms=UP_TO)
        .values("quarter", "step", "outcome", "up_to_ms")
        .annotate(runs=Count("pk"), recorded=RECORDED)
        .values_list("quarter", "step", "outcome", "up_to_ms", "runs", "recorded")
    )


# ---- reading ------------------------------------------------------------------------------------------------------------------------


@dataclass
class Runs:
    """Of one step."""

    outcomes: Counter[str] = field(default_factory=Counter)
    times: Counter[int] = field(default_factory=Counter)
    """How many of those that succeeded lasted up to a bound (of BOUNDS_MS)."""

    def percentile_ms(self, part: float) -> float | None:
        """So long did that part of the runs last at most, to within a tenth; None where none succeeded."""
        rank, seen = part * self.times.total(), 0
        for bound in sorted(self.times):
            seen += self.times[bound]
            if seen >= rank:
                return _middle(bound)
        return None

    def __add__(self, other: Runs) -> Runs:
        return Runs(self.outcomes + other.outcomes, self.times + other.times)


@dataclass
class Span:
    """What was done from `begins` to `ends`."""

    begins: datetime
    ends: datetime
    done: int = 0
    recorded_ms: int = 0
    steps: dict[str, Runs] = field(default_factory=lambda: {stage.name: Runs() for stage in STAGES})


def spans(edges: Sequence[datetime]) -> list[Span]:
    """From each edge to the next; edges lie on quarters of an hour. Two queries, and the second is one statement: nothing is missed or doubled
    while the housekeeping adds up."""
    found = [Span(begins, ends) for begins, ends in pairwise(edges)]
    mark = TallyMark.objects.values("until")
    known: datetime = next((row["until"] for row in mark), NEVER)
    # The moment that was just read lets the database see that few rows are asked for; the mark itself may have moved on since.
    fresh = RecordEvent.objects.filter(created__gte=max(known, edges[0]), created__lt=edges[-1], origin=Origin.WORKER)
    fresh = fresh.filter(created__gte=Coalesce(Subquery(mark), Value(NEVER)))
    settled = JournalQuarter.objects.filter(quarter__gte=quarter_of(edges[0]), quarter__lt=quarter_of(edges[-1]))
    rows = _by_span(settled, "quarter", [quarter_of(edge) for edge in edges[1:]], Sum("runs"), Sum("recorded_ms")).union(
        _by_span(fresh.annotate(up_to_ms=UP_TO), "created", edges[1:], Count("pk"), RECORDED), all=True
    )
    for number, step, outcome, up_to_ms, runs, recorded_ms in rows:
        span = found[number]
        of_step = span.steps.setdefault(step, Runs())
        of_step.outcomes[outcome] += runs
        if up_to_ms != NO_TIME:
            of_step.times[up_to_ms] += runs
        if outcome == EventOutcome.ADVANCED and step in LAST_STEPS:
            span.done += runs
            span.recorded_ms += int(recorded_ms)
    return found


def total(of: Iterable[Span], step: str) -> Runs:
    return sum((span.steps[step] for span in of), Runs())


def _by_span(rows: QuerySet[Any], column: str, ends: Sequence[Any], runs: Any, recorded: Any) -> QuerySet[Any, Any]:
    number = Case(
        *(When(**{f"{column}__lt": end}, then=Value(index)) for index, end in enumerate(ends)),
        output_field=IntegerField(),
        default=Value(0),
    )
    grouped = rows.order_by().annotate(number=number).values("number", "step", "outcome", "up_to_ms")
    found: QuerySet[Any, Any] = grouped.annotate(total=runs, recorded=recorded)
    return found.values_list("number", "step", "outcome", "up_to_ms", "total", "recorded")


def _middle(bound: int) -> float:
    """Of the lengths that are kept as this bound, in the sense of a product."""
    index = BOUNDS_MS.index(bound)
    return math.sqrt((BOUNDS_MS[index - 1] + 1) * bound) if index else bound
