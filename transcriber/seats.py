"""Seats: a worker's place in the loop that takes records through their steps. django-q2's processes sit in them.

A token names a seat and carries no record. Whoever gets one stays in the loop until the cluster stops or the process is due to be replaced by
a fresh one. What the processes of a cluster must know of each other lies in memory that they share since before they were forked; it is
written without locks, because a process may be killed at any moment, and a lock that died with its holder would stop all others.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import connections
from django.utils import timezone
from django_q.signing import SignedPackage

from records.pipeline.clock import DatabaseClock
from records.pipeline.dispatch import Worker
from transcriber import processes
from transcriber.database import leave_replaced

logger = logging.getLogger(__name__)

_fork = multiprocessing.get_context("fork")

OFFER_AGAIN_S = 5.0
IDLE_S = 0.1
ERROR_PAUSE_S = 2.0
RECYCLE_AFTER_STEPS = 2000
SETTLING_STEPS = 50
GROWTH = 2**30
HOUSEKEEPING_EVERY_S = 60.0
_NOTHING = bytes(16)


class Flag:
    """A bit in shared memory, with the calls of `multiprocessing.Event` that django-q2 makes, and without its locks."""

    def __init__(self) -> None:
        self._raw = _fork.RawValue(ctypes.c_byte, 0)

    def set(self) -> None:
        self._raw.value = 1

    def clear(self) -> None:
        self._raw.value = 0

    def is_set(self) -> bool:
        return bool(self._raw.value)

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, at most so many seconds. Says whether it is."""
        deadline = time.monotonic() + timeout
        while not self.is_set() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        return self.is_set()


class Counter:
    """A number in shared memory that a single process at a time counts up."""

    def __init__(self) -> None:
        self._raw = _fork.RawValue(ctypes.c_ulong, 0)

    def count(self) -> None:
        self._raw.value += 1

    @property
    def value(self) -> int:
        return int(self._raw.value)


@dataclass(frozen=True)
class Sitter:
    pid: int
    since: datetime
    record_id: uuid.UUID | None
    """What is worked on."""


class Seats:
    """The seats of one cluster.

    A seat is taken by locking its byte of a nameless file: the kernel lets one process have it, and lets go when that process dies, however
    it does.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())  # open as long as the process lives
        self._offered_at = _fork.RawArray(ctypes.c_double, max(number, 1))
        self._pids = _fork.RawArray(ctypes.c_long, max(number, 1))
        # Who sat there before: a seat is taken again at once when its worker is killed, and only then is the dead one asked after.
        self._former = _fork.RawArray(ctypes.c_long, max(number, 1))
        self._since = _fork.RawArray(ctypes.c_double, max(number, 1))
        self._records = _fork.RawArray(ctypes.c_char * 16, max(number, 1))

    def free(self) -> list[int]:
        """The seats that nobody sits in."""
        return [seat for seat in range(self.number) if self._is_free(seat)]

    def offers(self) -> Iterator[int]:
        """The free seats that a token is due for: at once where one has become free, else every few seconds."""
        now = time.monotonic()
        for seat in self.free():
            if not self._offered_at[seat] or now - self._offered_at[seat] > OFFER_AGAIN_S:
                self._offered_at[seat] = now
                yield seat

    def take(self, seat: int) -> bool:
        """Sit down. False if somebody sits there: a token that is slow to be taken is offered twice."""
        if not self._lock(seat):
            return False
        self._records[seat].raw = _NOTHING
        self._since[seat] = time.time()
        self._former[seat] = self._pids[seat]
        self._pids[seat] = os.getpid()
        return True

    def hold(self, seat: int, record_id: uuid.UUID | None) -> None:
        """Say what is worked on in that seat."""
        self._records[seat].raw = record_id.bytes if record_id else _NOTHING

    def sitting(self) -> dict[int, Sitter]:
        """Who sits where."""
        free = self.free()
        found = {}
        for seat in range(self.number):
            pid, record = self._pids[seat], self._records[seat].raw
            if seat not in free and pid:
                since = datetime.fromtimestamp(self._since[seat], tz=UTC)
                found[seat] = Sitter(pid, since, None if record == _NOTHING else uuid.UUID(bytes=record))
        return found

    def leave(self, seat: int) -> None:
        self._pids[seat] = 0
        self._offered_at[seat] = 0
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, seat)

    def was_seated(self, pid: int) -> bool:
        """Whether that process sits in a seat, or died in one."""
        return pid in self._pids[:] or pid in self._former[:]

    def _is_free(self, seat: int) -> bool:
        # Trying is the portable way to ask. Whoever wants to sit down in this very instant is refused, and gets the next token.
        if not self._lock(seat):
            return False
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, seat)
        return True

    def _lock(self, seat: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, seat)
        except OSError:
            return False
        return True


# ---- what the processes of this cluster share: made when the main process imports this module, before it forks ----------------------------

seats = Seats(settings.TRANSCRIBER.pipeline.workers)
stop = Flag()
barred = Flag()
"""The database can't be worked with: nobody takes anything."""
cluster = uuid.uuid4()
housekeeping_begun = Counter()
housekeeping_ended = Counter()
_housekeeping_offered_at = _fork.RawValue(ctypes.c_double, 0)


# ---- tokens (the pusher) --------------------------------------------------------------------------------------------------------------------


def tokens() -> list[str]:
    """What is to be handed out now: signed tasks of django-q2, none of which is saved anywhere."""
    if stop.is_set():
        return []
    found = [_token(sit, seat, timeout=-1) for seat in seats.offers()]
    now = time.monotonic()
    if not _housekeeping_offered_at.value or now - _housekeeping_offered_at.value >= HOUSEKEEPING_EVERY_S:
        _housekeeping_offered_at.value = now
        found.append(_token(keep_house))
    return found


def _token(function: object, *arguments: object, **options: object) -> str:
    name = getattr(function, "__name__", "")
    return str(
        SignedPackage.dumps(
            {
                "id": uuid.uuid4().hex,
                "name": name,
                "func": f"{__name__}.{name}",
                "args": arguments,
                "kwargs": {},
                "started": timezone.now(),
                "save": False,
                **options,
            }
        )
    )


# ---- what the workers do --------------------------------------------------------------------------------------------------------------------


def keep_house() -> None:
    """Tidy up, about once a minute. Runs in the one worker without a seat, so that it never waits behind an hour of recognition.

    What fails keeps nothing else from being done, and what takes long comes last.
    """
    from records.operations import housekeeping, tally
    from transcriber.signin import leftovers

    housekeeping_begun.count()
    try:
        for chore in () if barred.is_set() else (tally.settle, leftovers.clear, housekeeping.sweep):
            try:
                chore(now=timezone.now())
            except Exception as error:
                logger.error("housekeeping failed (%s); it is tried again in a minute\n%s", type(error).__name__, _place(error))
                connections.close_all()
    finally:
        housekeeping_ended.count()


def sit(seat: int) -> None:
    """Work on records until the cluster stops or this process is due to be replaced. Returns at once if the seat is taken."""
    if not seats.take(seat):
        return
    processes.name_process(f"q-seat-{seat}")
    try:
        _work(os.getppid(), holding=partial(seats.hold, seat))
    finally:
        seats.leave(seat)


def _work(parent: int, *, holding: Callable[[uuid.UUID | None], None] = lambda record_id: None) -> None:
    worker = Worker(clock=DatabaseClock(), stop=stop.is_set, end_process=_end_process, holding=holding)
    steps = 0
    settled = 0
    while not stop.is_set() and os.getppid() == parent:
        if barred.is_set():
            stop.wait(IDLE_S)
            continue
        leave_replaced()
        try:
            worked = worker.work_once()
        except Exception as error:
            # The database is away, most likely. The record that was held, if any, comes back when its lease has run out.
            logger.error("no step could be taken (%s); trying again in %g s\n%s", type(error).__name__, ERROR_PAUSE_S, _place(error))
            connections.close_all()
            stop.wait(ERROR_PAUSE_S)
            continue
        if not worked:
            stop.wait(IDLE_S)
            continue
        steps += 1
        memory = resident_memory()
        # The first steps load the model, whatever its size; what is added later is a leak.
        settled = max(settled, memory) if steps <= SETTLING_STEPS else settled
        if steps >= RECYCLE_AFTER_STEPS or memory > settled + GROWTH:
            logger.info("worker %d is replaced by a fresh one after %d steps (%d MiB)", os.getpid(), steps, memory >> 20)
            return


def _end_process() -> None:
    """The hard end of a worker whose step can't be reached. Its ffmpeg is tied to it and dies with it."""
    logger.info("worker %d ends itself: its step could not be interrupted otherwise", os.getpid())
    os._exit(0)


def resident_memory() -> int:
    """Bytes of memory that this process occupies; at its peak, where the system does not tell of now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _place(error: Exception) -> str:
    """Where an unforeseen error came from, without its message, which may hold anything."""
    return "".join(traceback.format_tb(error.__traceback__))
