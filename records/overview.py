"""How the service stands at this moment: what waits, is at work or halted, how old it is, who works, and where it hurts.

Every look goes into an index that holds what is unfinished alone, and goes no further than a bound: the archive costs nothing, and a backlog of
a million costs no more than one of ten thousand of each kind.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection
from django.utils.formats import number_format

from recognition.models import ProviderGate
from records.models import AudioRecord, SeatedWorker
from records.pipeline.acquire import WAITING
from records.pipeline.stage import MAX_LEASE, Work
from records.pipeline.stages import STAGES
from records.states import FINAL, HaltReason

CAP = 10_000
"""Records of one state and reason are counted up to that, as in the list."""
LOOKED_AT = 10_000
"""Of so many records that wait, those first that wait longest, it is asked what they wait for."""
NEAR = 0.75
"""That part of its limit is near it."""
WORKERS_SHOWN = 100


# ---- records ------------------------------------------------------------------------------------------------------------------------


class AtLeast(int):
    """A count that was given up at its value; says so where it is read."""

    def __str__(self) -> str:
        return f"{number_format(int(self), force_grouping=True)}+"


@dataclass(frozen=True)
class Oldest:
    record_id: uuid.UUID
    since: datetime


@dataclass(frozen=True)
class Standing:
    """The records of one state that is not final."""

    state: str
    step: str
    limit: timedelta
    waiting: int
    running: int
    halted: dict[str, int]
    """By reason; those that are none do not appear."""
    entered: Oldest | None
    """Which of those that are not halted came first into the state."""
    working: Oldest | None
    """Which of them was first worked on longest ago. From then on the limit counts: time in which nobody came to it is none."""

    def share_of_limit(self, now: datetime) -> float:
        """1 where the limit is reached: the next failure or postponement halts."""
        return 0.0 if self.working is None else max(0.0, (now - self.working.since) / self.limit)


def standings(*, now: datetime) -> list[Standing]:
    """In the order of the pipeline. Three queries."""
    config = settings.TRANSCRIBER.pipeline
    limits = {Work.OWN: config.own_work_limit, Work.FOREIGN: config.foreign_work_limit}
    counts = _counts()
    oldest = _oldest()
    running = _running(now)
    found = []
    for stage in STAGES:
        state = stage.state.value
        going, at_work = counts[state, ""], running[state]
        working, limit = _nearest(
            (oldest.get((state, "working")), limits[stage.work]),
            (oldest.get((state, "provider")), limits[Work.FOREIGN]),
            now=now,
        )
        found.append(
            Standing(
                state=state,
                step=stage.name,
                limit=limit,
                waiting=going if isinstance(going, AtLeast) else max(0, going - at_work),
                running=at_work,
                halted={reason: counts[state, reason] for reason in HaltReason.values if counts[state, reason]},
                entered=oldest.get((state, "entered")),
                working=working,
            )
        )
    return found


def _nearest(*looks: tuple[Oldest | None, timedelta], now: datetime) -> tuple[Oldest | None, timedelta]:
    """Which is nearest to its limit; the first where there is none."""
    return max(looks, key=lambda look: (now - look[0].since) / look[1] if look[0] else -1.0)


def added(numbers: Sequence[int]) -> int:
    total = sum(numbers)
    return AtLeast(total) if any(isinstance(number, AtLeast) for number in numbers) else total


def first_due_at() -> datetime | None:
    """When the record that is acquired next became due, or will be; None if none waits. One query."""
    found = _rows(f"SELECT min(delay_time) FROM audio_records WHERE {WAITING}")  # noqa: S608 - words of ours
    return _as_moment(found[0][0]) if found[0][0] else None


# The predicates of the indexes stand word for word: SQLite uses them for nothing less.
UNFINISHED = f"NOT (state = '{FINAL.value}')"


def _counts() -> dict[tuple[str, str], int]:
    """By state and reason (empty: not halted), each by itself in the index audio_records_standing and no further than CAP."""
    kinds = [(stage.state.value, reason) for stage in STAGES for reason in ("", *HaltReason.values)]
    each = [
        f"SELECT '{state}' AS state, '{reason}' AS reason, (SELECT count(*) FROM (SELECT 1 FROM audio_records "  # noqa: S608 - words of ours
        f"WHERE {UNFINISHED} AND state = '{state}' AND halt_reason = '{reason}' LIMIT {CAP + 1}) AS counted) AS number"
        for state, reason in kinds
    ]
    return {(state, reason): AtLeast(CAP) if number > CAP else number for state, reason, number in _rows(" UNION ALL ".join(each))}


def _oldest() -> dict[tuple[str, str], Oldest]:
    """By state: which came first into it (`entered`), and which was first worked on longest ago, apart from those that wait for their provider
    (`working`) and among these (`provider`), which have the limit of foreign work whatever their stage."""
    waits = "(error_code <> '' AND attempts = 0 AND acquisition_id IS NULL)"  # as records.admin.listing.limit_of has it
    looks = []
    for stage in STAGES:
        state = stage.state.value
        looks.append(
            f"SELECT '{state}' AS state, 'entered' AS what, found.id, found.since FROM (SELECT id, state_entered_at AS since "  # noqa: S608
            f"FROM audio_records WHERE state = '{state}' AND {UNFINISHED} AND halt_reason = '' ORDER BY state_entered_at LIMIT 1) AS found"
        )
        for what, which in (("working", f"NOT {waits}"), ("provider", waits)):
            looks.append(
                f"SELECT '{state}' AS state, '{what}' AS what, found.id, found.since FROM (SELECT id, since FROM (SELECT id, "  # noqa: S608
                f"work_started_at AS since, error_code, attempts, acquisition_id FROM audio_records WHERE state = '{state}' "
                f"AND work_started_at IS NOT NULL AND halted_at IS NULL ORDER BY work_started_at LIMIT {LOOKED_AT}) AS first_ones "
                f"WHERE {which} ORDER BY since LIMIT 1) AS found"
            )
    return {(state, what): Oldest(_as_uuid(pk), _as_moment(since)) for state, what, pk, since in _rows(" UNION ALL ".join(looks))}


def _running(now: datetime) -> Counter[str]:
    """By state. Who holds a record has put its `delay_time` to the end of the lease, so few entries of the index are looked at."""
    statement = (
        f"SELECT state, count(*) FROM audio_records WHERE {WAITING} AND delay_time > %s AND delay_time <= %s "  # noqa: S608
        "AND acquisition_id IS NOT NULL GROUP BY state"
    )
    ends = [connection.ops.adapt_datetimefield_value(moment) for moment in (now, now + MAX_LEASE * 2)]
    return Counter(dict(_rows(statement, ends)))


@dataclass(frozen=True)
class Reasons:
    """What records wait for that are not halted, as their last failure or postponement said."""

    by_code: Counter[str]
    is_whole: bool
    """Else more wait than were looked at, and each number is at least that."""


def reasons_of_waiting() -> Reasons:
    """From the one that waits longest on. One query."""
    statement = (
        "SELECT error_code, count(*) FROM (SELECT error_code FROM audio_records "  # noqa: S608
        f"WHERE {WAITING} ORDER BY delay_time DESC, id DESC LIMIT {LOOKED_AT}) AS looked_at GROUP BY error_code"
    )
    found = Counter(dict(_rows(statement)))
    return Reasons(Counter({code: number for code, number in found.items() if code}), found.total() < LOOKED_AT)


# ---- workers ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtSeat:
    """A worker, and the record that it works on (None: it waits for one)."""

    worker: SeatedWorker
    record: AudioRecord | None

    @property
    def step(self) -> str:
        return STAGES[self.record.state].name if self.record else ""


@dataclass(frozen=True)
class Workers:
    alive: int
    shown: list[AtSeat]


def workers(*, now: datetime) -> Workers:
    """Those alive on all machines. At most three queries."""
    alive = SeatedWorker.objects.alive(now=now).order_by("host", "cluster", "seat")
    seated = list(alive[: WORKERS_SHOWN + 1])
    number = len(seated) if len(seated) <= WORKERS_SHOWN else alive.count()
    columns = ("title", "state", "progress", "work_started_at")
    held = AudioRecord.objects.only(*columns).filter(pk__in=[worker.record_id for worker in seated if worker.record_id])
    records = {record.pk: record for record in held.filter(acquisition_id__isnull=False, halted_at__isnull=True, delay_time__gt=now)}
    # Who has gone on since it was last reported counts as waiting: in a few seconds more is known.
    return Workers(
        number, [AtSeat(worker, records.get(worker.record_id) if worker.record_id else None) for worker in seated[:WORKERS_SHOWN]]
    )


# ---- providers ----------------------------------------------------------------------------------------------------------------------


def paused_providers() -> list[ProviderGate]:
    """Those that do not work for us. One query."""
    return list(ProviderGate.objects.filter(kind="", paused_until__isnull=False).order_by("provider")[:20])


# ---- disk ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """Of the data folder. Recordings lie there as well unless they are in an object storage."""

    total: int
    free: int
    bucket: str
    """Name of the bucket where recordings lie; empty: on this disk."""
    reserve: int
    """Bytes of the largest recording that is accepted."""

    @property
    def used(self) -> float:
        return 1 - self.free / self.total if self.total else 0.0

    @property
    def is_full(self) -> bool:
        return self.free < self.reserve

    @property
    def is_nearly_full(self) -> bool:
        return self.used > 0.9 or self.free < self.reserve * 3


def disk() -> Disk | None:
    """None where it can't be told."""
    config = settings.TRANSCRIBER
    try:
        Path(default_storage.path(""))
        bucket = ""
    except NotImplementedError:
        bucket = config.storage.name
    try:
        usage = shutil.disk_usage(settings.DATA_DIR)
    except OSError:
        return None
    return Disk(usage.total, usage.free, bucket, config.intake.max_size)


# ---- rows ---------------------------------------------------------------------------------------------------------------------------


def is_empty() -> bool:
    """Whether nobody has sent a recording yet."""
    return not AudioRecord.objects.exists()


def _rows(statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _as_uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def _as_moment(value: Any) -> datetime:
    """SQLite keeps moments as text in UTC, and tells some as moments without a zone."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
