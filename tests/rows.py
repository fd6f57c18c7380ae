"""Rows by the hundred thousand, where only the queue matters."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import connection


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
