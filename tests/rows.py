"""Rows by the hundred thousand, where only the queue matters."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import connection

from records import history
from records.models import TallyMark
from records.models.journal_quarter import quarter_of
from records.pipeline.stages import STAGES
from records.states import HaltReason, State


def fill(now: datetime, *, done: int, waiting: int) -> User:
    """Rows as fast as the database can make them, in place of all there were: `done` finished, `waiting` due."""
    owner = User.objects.get_or_create(username="filler")[0]
    if connection.vendor == "postgresql":
        new_id, numbers = "gen_random_uuid()", f"(SELECT generate_series(1, {done + waiting}) AS n)"
    else:
        new_id = "lower(hex(randomblob(16)))"
        numbers = f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {done + waiting}) SELECT n FROM c)"
    moment = connection.ops.adapt_datetimefield_value(now)
    due = connection.ops.adapt_datetimefield_value(now - timedelta(minutes=1))
    with connection.cursor() as cursor:
        for table in ("record_events", "audio_records", "files"):
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute(
            "INSERT INTO files (id, created, updated, location, size, format, channels) "
            f"SELECT {new_id}, %s, %s, 'x/' || n, 1, '', 1 FROM {numbers} AS numbers",
            [moment, moment],
        )
        cursor.execute(
            "INSERT INTO audio_records (id, created, updated, owner_id, title, brief, language, notes, state, state_entered_at, halt_reason, "
            "error_code, error_text, delay_time, attempts, progress, original_file_id) "
            f"SELECT {new_id}, %s, %s, %s, 'A talk', '', '', '[]', CASE WHEN row_number() OVER () <= {done} THEN 'done' ELSE 'uploaded' END, "
            "%s, '', '', '', %s, 0, 0, id FROM files",
            [moment, moment, owner.pk, moment, due],
        )
        cursor.execute("ANALYZE")
    return owner


def mix(now: datetime) -> None:
    """Spread what `fill` left waiting over the states; every other one is halted, some have been worked on, five are at work."""
    moment = connection.ops.adapt_datetimefield_value
    by_chance = "floor(random() * {})" if connection.vendor == "postgresql" else "(abs(random()) % {})"
    lease = f"{uuid.uuid4()}" if connection.vendor == "postgresql" else uuid.uuid4().hex

    def one_of(values: list[str]) -> str:
        branches = " ".join(f"WHEN {number} THEN '{value}'" for number, value in enumerate(values))
        return f"(CASE CAST({by_chance.format(len(values))} AS integer) {branches} END)"

    going = "SELECT id FROM audio_records WHERE NOT (state = 'done') AND halted_at IS NULL"
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE audio_records SET state = {one_of(State.values[:-1])} WHERE NOT (state = 'done')")
        cursor.execute(
            f"UPDATE audio_records SET halted_at = %s, halt_reason = {one_of(HaltReason.values)} "
            f"WHERE NOT (state = 'done') AND {by_chance.format(2)} = 0",
            [moment(now)],
        )
        cursor.execute(
            f"UPDATE audio_records SET work_started_at = %s, error_code = 'provider_unavailable' WHERE id IN ({going}) AND {by_chance.format(4)} = 0",
            [moment(now - timedelta(minutes=5))],
        )
        cursor.execute(
            "UPDATE audio_records SET acquisition_id = %s, acquire_expires_at = %s, delay_time = %s, work_started_at = %s "
            f"WHERE id IN ({going} LIMIT 5)",
            [lease, *[moment(now + timedelta(seconds=50))] * 2, moment(now)],
        )
        cursor.execute("ANALYZE")


def write_journal(now: datetime, *, old: int, fresh: int) -> None:
    """Rows of workers in the journal: `old` ones over the last thirty days, added up by quarters of an hour as a busy service leaves them, and
    `fresh` ones of the last ten minutes, which nobody has added up yet."""
    if connection.vendor == "postgresql":
        new_id, then = "gen_random_uuid()", "CAST(%s AS timestamptz) - make_interval(secs => n * {})"
        numbers = "generate_series(1, {}) AS numbers(n)"
    else:
        new_id, then = "lower(hex(randomblob(16)))", "strftime('%%Y-%%m-%%d %%H:%%M:%%f', %s, '-' || (n * {}) || ' seconds')"
        numbers = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {}) SELECT n FROM c) AS numbers"
    moment = connection.ops.adapt_datetimefield_value
    settled = now - timedelta(minutes=10)
    step = "(CASE n % 4 WHEN 0 THEN 'normalize' WHEN 1 THEN 'submit' WHEN 2 THEN 'poll' ELSE 'finish' END)".replace("%", "%%")
    kind = "(CASE WHEN n %% 20 = 7 THEN 'failed' ELSE 'advanced' END)"
    record = "(SELECT id FROM audio_records LIMIT 1)"
    with connection.cursor() as cursor:
        for table in ("record_events", "journal_quarters", "journal_tallies", "journal_tally_mark"):
            cursor.execute(f"DELETE FROM {table}")
        for number, end, seconds in ((old, settled, 30 * 86_400 / max(old, 1)), (fresh, now, 600 / max(fresh, 1))):
            cursor.execute(
                "INSERT INTO record_events (id, created, updated, record_id, origin, step, outcome, duration_ms, outcome_text) "
                f"SELECT {new_id}, {then.format(seconds)}, %s, {record}, 'worker', {step}, {kind}, 100 + n %% 60000, '' "
                f"FROM {numbers.format(number)} WHERE n <= {number}",
                [moment(end), moment(now)],
            )
    TallyMark.objects.create(pk=uuid.UUID(int=1), until=settled)
    last = quarter_of(settled)
    steps, bounds = (
        " UNION ALL ".join(f"SELECT {value} AS {name}" for value in values)
        for name, values in (
            ("step", [f"'{stage.name}'" for stage in STAGES]),
            ("up_to_ms", history.BOUNDS_MS[30:44]),
        )
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO journal_quarters (id, created, updated, quarter, step, outcome, up_to_ms, runs, recorded_ms) "
            f"SELECT {new_id}, %s, %s, {last} - n, step, 'advanced', up_to_ms, 25, 1000000 "
            f"FROM {numbers.format(30 * 96)} CROSS JOIN ({steps}) AS steps CROSS JOIN ({bounds}) AS bounds WHERE n <= {30 * 96}",
            [moment(now), moment(now)],
        )
        cursor.execute("ANALYZE")
