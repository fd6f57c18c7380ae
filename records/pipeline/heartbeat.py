"""Holding a record while a step works on it: renewing the lease, carrying progress, and saying when to stop; and the checkpoint beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DatabaseProblem
from django.db import close_old_connections, connection, transaction

from recognition.models import Recognition
from records.models import AudioRecord
from records.pipeline.acquire import Acquisition

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]


def check_connection() -> None:
    """After work that may have lasted for hours: have the connection looked at before its next use, as it may have died meanwhile."""
    connection.health_check_done = False  # type: ignore[attr-defined]


class Interrupted(BaseException):
    """The step must stop. Not an `Exception`, so that no library's `except Exception` on the way takes it for a fault of its own."""


class LeaseLost(Interrupted):
    """Somebody else holds the record now, or a person halted or resumed it: nothing may be written."""


class Stopping(Interrupted):
    """The process was told to end."""


class DeadlinePassed(Interrupted):
    """The step took longer than its stage allows."""


class Heartbeat:
    """Renews the lease of an acquisition while its step runs. A context: the beat ends before the step's result is written.

    The step calls :meth:`beat`. Where it can't (C code at work), `last_resort` is called once `GRACE` after the reason to stop was seen; it is
    expected not to return.
    """

    TICK = 0.2
    PROGRESS_EVERY = timedelta(seconds=2)
    GRACE = timedelta(seconds=3)
    LONGEST_GRACE = timedelta(seconds=6)

    def __init__(
        self,
        acquisition: Acquisition,
        *,
        lease: timedelta,
        deadline: timedelta,
        clock: Clock,
        stop: Callable[[], bool] = lambda: False,
        last_resort: Callable[[Interrupted], None] | None = None,
    ) -> None:
        self.acquisition = acquisition
        self.lease = lease
        self.clock = clock
        self._stop = stop
        self._last_resort = last_resort
        now = clock()
        self._ends_at = now + deadline
        self._renewed_at = now
        self._progress = self._shown = 0.0
        self._unhurried = False
        self._reason: Interrupted | None = None
        self._reason_since: datetime | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- what the step sees -------------------------------------------------------------------------------------------------------------

    def beat(self, progress: float | None = None) -> None:
        """Say that the work goes on, and how far it is (0..1). Raises LeaseLost, Stopping or DeadlinePassed when it must end."""
        if progress is not None:
            self._progress = min(max(progress, 0.0), 1.0)
        if self._stop():
            self._interrupt(Stopping())
        if self._reason is not None and not self._is_spared():
            raise self._reason

    def _is_spared(self) -> bool:
        return self._unhurried and isinstance(self._reason, LeaseLost)

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Around a call that is paid for, and the keeping of what it brought.

        It is waited for as far as a stop within seconds allows. A record that is lost meanwhile does not break it off: what was paid for is kept
        whoever holds the record by then.
        """
        self._unhurried = True
        try:
            yield
        finally:
            self._unhurried = False

    # ---- the thread ---------------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Heartbeat:
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        check_connection()

    def _run(self) -> None:
        try:
            while not self._ended.wait(self.TICK):
                self.tick()
        finally:
            connection.close()  # this thread's own

    def tick(self) -> None:
        """Look once: is there a reason to stop, is it time to renew?"""
        now = self.clock()
        if self._stop():
            self._interrupt(Stopping())
        elif now >= self._ends_at:
            self._interrupt(DeadlinePassed())
        if self._reason is None or isinstance(self._reason, Stopping):
            since = now - self._renewed_at
            if since >= self.lease / 3 or (abs(self._progress - self._shown) >= 0.01 and since >= self.PROGRESS_EVERY):
                self._renew(now)
        if self._reason is None or self._reason_since is None or self._last_resort is None or self._is_spared():
            return
        grace = self.LONGEST_GRACE if self._unhurried else self.GRACE
        if now - self._reason_since >= grace and not self._ended.is_set():
            self._last_resort(self._reason)

    def _interrupt(self, reason: Interrupted) -> None:
        if self._reason is None or (isinstance(reason, LeaseLost) and not isinstance(self._reason, LeaseLost)):
            self._reason = reason
            self._reason_since = self._reason_since or self.clock()

    def _renew(self, now: datetime) -> None:
        progress = self._progress
        try:
            held = AudioRecord.objects.filter(pk=self.acquisition.record_id, acquisition_id=self.acquisition.id).update(
                delay_time=now + self.lease, acquire_expires_at=now + self.lease, progress=progress
            )
        except DatabaseProblem:
            logger.warning("the lease of record %s could not be renewed", self.acquisition.record_id)
            close_old_connections()
            if now >= self._renewed_at + self.lease:
                self._interrupt(LeaseLost())
            return
        if held:
            self._renewed_at, self._shown = now, progress
        else:
            self._interrupt(LeaseLost())


class Checkpoint:
    """Writes what must be kept before a step ends, each in a transaction of its own, and only while the acquisition holds (else LeaseLost)."""

    def __init__(self, acquisition: Acquisition, *, clock: Clock) -> None:
        self.acquisition = acquisition
        self.clock = clock

    def begin_recognition(self, recognition: Recognition) -> None:
        """Make the row of a new attempt the record's own, before the first call to the provider."""
        with transaction.atomic():
            self._hold(recognition_id=recognition.pk)
            recognition.save(force_insert=True)

    def write(self, recognition: Recognition, **facts: Any) -> None:
        """Keep facts of the attempt."""
        with transaction.atomic():
            self._hold()
            Recognition.objects.filter(pk=recognition.pk).update(**facts, updated=self.clock())
        for name, value in facts.items():
            setattr(recognition, name, value)

    def check(self) -> None:
        """Raise LeaseLost where there would be nothing to write, and the record may be somebody else's by now."""
        if not AudioRecord.objects.filter(pk=self.acquisition.record_id, acquisition_id=self.acquisition.id).exists():
            raise LeaseLost

    def mark_submission(self, recognition: Recognition) -> bool:
        """Set the mark before a paid call. False if it was set already: somebody may have paid."""
        now = self.clock()
        with transaction.atomic():
            self._hold()
            marked = Recognition.objects.filter(pk=recognition.pk, submit_started_at__isnull=True, external_id="").update(
                submit_started_at=now, updated=now
            )
        if marked:
            recognition.submit_started_at = now
        return bool(marked)

    def _hold(self, **facts: Any) -> None:
        """Lock the record's row while it is ours."""
        held = AudioRecord.objects.filter(pk=self.acquisition.record_id, acquisition_id=self.acquisition.id)
        if not held.update(updated=self.clock(), **facts):
            raise LeaseLost
