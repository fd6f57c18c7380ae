"""The time of the database, so that workers on many machines agree on it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.db import Error as DatabaseProblem
from django.db import connection
from django.utils import timezone

ASK_EVERY_S = 60.0


class DatabaseClock:
    """This machine's clock, set by PostgreSQL's once a minute. With SQLite there is one machine, and nothing to set."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._asked_at: float | None = None

    def __call__(self) -> datetime:
        if connection.vendor == "postgresql" and (self._asked_at is None or time.monotonic() - self._asked_at > ASK_EVERY_S):
            self._set()
        return timezone.now() + self._ahead

    def _set(self) -> None:
        """Where the database is away, what it said last goes on being true."""
        before = timezone.now()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT clock_timestamp()")
                told: datetime = cursor.fetchone()[0]
        except DatabaseProblem:
            return
        after = timezone.now()
        self._ahead = told - (before + (after - before) / 2)
        self._asked_at = time.monotonic()
