"""Who sits in the seats of this cluster, told to the database every few seconds, so that all machines together can be counted anywhere."""

from __future__ import annotations

import logging
import socket
import threading
import time
from datetime import datetime, timedelta

from django.db import Error, connections
from django.utils import timezone

from records.models.seated_worker import REPORTED_EVERY, SeatedWorker
from transcriber.seats import cluster, seats, stop

logger = logging.getLogger(__name__)

FORGOTTEN_AFTER = timedelta(days=1)
LOOK_EVERY_S = 1.0
"""For somebody new, who is reported at once."""


def begin() -> None:
    """Report from here on, in a thread of its own: a database that lets us wait must hold nobody up. For a process that never forks."""
    threading.Thread(target=_report_on_and_on, name="attendance", daemon=True).start()


def _report_on_and_on() -> None:
    reported: set[int] = set()
    due = 0.0
    while not stop.is_set():
        present = {sitter.pid for sitter in seats.sitting().values()}
        if present != reported or time.monotonic() >= due:
            reported, due = present, time.monotonic() + REPORTED_EVERY.total_seconds()
            try:
                report(now=timezone.now())
            except Error as error:
                logger.warning("the workers could not be reported (%s)", type(error).__name__)
            finally:
                connections.close_all()
        stop.wait(LOOK_EVERY_S)


def report(*, now: datetime) -> None:
    """Write down who sits where, and forget whom nobody has seen for a day."""
    sitting = [
        SeatedWorker(
            created=now,
            updated=now,
            cluster=cluster,
            seat=seat,
            host=socket.gethostname()[:255],
            pid=sitter.pid,
            started_at=sitter.since,
            seen_at=now,
            record_id=sitter.record_id,
        )
        for seat, sitter in seats.sitting().items()
    ]
    changing = ["updated", "host", "pid", "started_at", "seen_at", "record_id"]
    SeatedWorker.objects.bulk_create(sitting, update_conflicts=True, unique_fields=["cluster", "seat"], update_fields=changing)
    forgotten = SeatedWorker.objects.filter(seen_at__lt=now - FORGOTTEN_AFTER)
    if forgotten.exists():  # to ask takes no write lock
        forgotten.delete()
