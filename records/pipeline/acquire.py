"""Taking the next record: one statement, one index, the same predicate everywhere."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from records.models import AudioRecord
from records.pipeline.stage import StageTable
from records.states import FINAL

# Word for word the predicate of the index audio_records_due: SQLite uses a partial index only if it is.
WAITING = f"NOT (state = '{FINAL.value}') AND halted_at IS NULL"
DUE = f"SELECT id FROM audio_records WHERE {WAITING} AND delay_time <= %s ORDER BY delay_time, id LIMIT 1"  # noqa: S608 - constants alone


@dataclass(frozen=True)
class Acquisition:
    """The proof of holding a record. Every result is written on the condition that the row still carries exactly this `id`."""

    record_id: uuid.UUID
    id: uuid.UUID
    taken_over: bool = False
    """The lease of another worker had run out; that counted as a failure."""


def is_ready(*, now: datetime) -> bool:
    """Whether there is anything to acquire. Reads one entry of the index and locks nothing, unlike an acquisition that finds nothing."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, [_moment(now)])
        return cursor.fetchone() is not None


def acquire(table: StageTable, *, now: datetime, record_id: uuid.UUID | None = None) -> Acquisition | None:
    """Take the record that has been due longest, or the given one if it is due; None if there is none.

    Sets a fresh `acquisition_id` and the lease of the record's stage, and `work_started_at` where it is empty. Where another's lease had run
    out, that is a failure, and the clock of the state starts again: the time for which nobody was there to renew it may not count.
    """
    fresh, instead = uuid.uuid4(), uuid.uuid4()
    due = DUE if record_id is None else DUE.replace("delay_time <=", "id = %s AND delay_time <=")
    find = ([] if record_id is None else [_uuid(record_id)]) + [_moment(now)]
    case, ends = _lease_ends(table, now)
    # Which of two fresh values was set tells whether somebody held the row before: RETURNING shows new values alone.
    change = f"""
        acquisition_id = CASE WHEN acquisition_id IS NULL THEN {_cast("%s")} ELSE {_cast("%s")} END,
        attempts = CASE WHEN acquisition_id IS NULL THEN attempts ELSE attempts + 1 END,
        work_started_at = CASE WHEN work_started_at IS NULL OR acquisition_id IS NOT NULL THEN {_cast_moment("%s")} ELSE work_started_at END,
        progress = 0,
        acquire_expires_at = {case},
        delay_time = {case},
        updated = %s
    """
    values = [_uuid(fresh), _uuid(instead), _moment(now), *ends, *ends, _moment(now)]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"WITH due AS MATERIALIZED ({due} FOR NO KEY UPDATE SKIP LOCKED) "  # noqa: S608 - no value is formatted in
                f"UPDATE audio_records AS r SET {change} FROM due WHERE r.id = due.id RETURNING r.id, r.acquisition_id",
                find + values,
            )
            rows = cursor.fetchall()
        else:
            with transaction.atomic():
                cursor.execute(f"UPDATE audio_records SET {change} WHERE id = ({due}) RETURNING id, acquisition_id", values + find)  # noqa: S608
                rows = cursor.fetchall()  # all of it: a RETURNING left half-read keeps the write lock
    if not rows:
        return None
    row_id, acquisition_id = (_as_uuid(value) for value in rows[0])
    return Acquisition(record_id=row_id, id=acquisition_id, taken_over=acquisition_id == instead)


def _lease_ends(table: StageTable, now: datetime) -> tuple[str, list[Any]]:
    values: list[Any] = []
    branches = []
    for stage in table:
        branches.append(f"WHEN state = %s THEN {_cast_moment('%s')}")
        values += [stage.state.value, _moment(now + stage.lease)]
    return f"CASE {' '.join(branches)} END", values


def _moment(value: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(value)


def _uuid(value: uuid.UUID) -> Any:
    return AudioRecord._meta.pk.get_db_prep_value(value, connection)


def _as_uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def _cast(placeholder: str) -> str:
    """PostgreSQL takes an untyped value in a CASE for text."""
    return f"{placeholder}::uuid" if connection.vendor == "postgresql" else placeholder


def _cast_moment(placeholder: str) -> str:
    return f"{placeholder}::timestamptz" if connection.vendor == "postgresql" else placeholder
