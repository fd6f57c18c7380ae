"""The processes behind `manage.py qcluster`: django-q2's sentinel with its workers, pusher and monitor, and the main process that watches them.

django-q2 starts a process again when it dies. That does not help where the dead one held the lock of a pipe: a worker that waited for a task,
or the monitor. The cluster would stand still for ever and not even stop. So whatever can't be mended ends the whole cluster, after the
running steps have been given back, with a status of its own (`processes.RESTART`), for whoever supervises it to start it again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from django.db import connections
from django_q import cluster as django_q_cluster
from django_q.scheduler import scheduler

from transcriber import attendance, processes, watch
from transcriber.seats import Counter, Flag, barred, housekeeping_begun, housekeeping_ended, seats, stop

logger = logging.getLogger(__name__)

STOP_WITHIN_S = 6.5
"""For running steps. One that can't be reached ends its process after 3 s (`Heartbeat.GRACE`)."""
TIDY_WITHIN_S = 1.0
"""For the other processes, which hold nothing that could be lost."""
GUARD_EVERY_S = 0.2
SCHEDULES_EVERY_S = 30.0
LOOK_EVERY_S = 1.0
SAME_SIGNAL_S = 1.0

guard_rounds = Counter()
frozen = Flag()


class Sentinel(django_q_cluster.Sentinel):  # type: ignore[misc]
    """Starts the processes and looks after them. A death that would freeze the cluster is reported by `frozen`."""

    pusher: BaseProcess

    def __init__(self, started: Flag) -> None:
        super().__init__(stop, started, uuid.uuid4(), start=False)
        self.event_out = Flag()
        # Children inherit this: a SIGTERM to the whole group must not kill a step, the main process tells everybody in good order.
        signal.signal(signal.SIGTERM, _do_nothing)
        self.start()

    def spawn_process(self, target: Any, *arguments: Any) -> Any:
        with processes.naming_forks(f"q-{target.__name__}"):
            return super().spawn_process(target, *arguments)

    def spawn_pusher(self) -> Any:
        return self.spawn_process(pusher, self.task_queue, self.event_out, self.broker)

    def guard(self) -> None:
        self.start_event.set()
        schedules_at = time.monotonic()
        while not self.stop_event.wait(GUARD_EVERY_S):
            guard_rounds.count()
            for process in [*self.pool, self.monitor, self.pusher]:
                self._look_after(process)
            if time.monotonic() >= schedules_at:
                scheduler(broker=self.broker)
                schedules_at = time.monotonic() + SCHEDULES_EVERY_S
        if not frozen.is_set():
            self.stop()

    def _look_after(self, process: Any) -> None:
        overdue = False
        if process in self.pool:
            with process.timer.get_lock():
                overdue = process.timer.value == 0
                if process.timer.value > 0:
                    process.timer.value = max(process.timer.value - GUARD_EVERY_S, 0)
        if overdue or not process.is_alive():
            self.reincarnate(process)

    def reincarnate(self, process: Any) -> None:
        """Start a process again, where that helps."""
        connections.close_all()
        if process is self.monitor:
            self._give_up("the monitor", process)
        elif process is self.pusher:
            logger.warning("the pusher (%d) ended; starting another", process.pid)
            self.pusher = self.spawn_pusher()
        else:
            recycled, overdue = process.timer.value == -2, process.timer.value == 0
            if overdue:
                logger.error("worker %d took too long over a task; it is killed", process.pid)
                process.kill()
            elif not recycled and not seats.was_seated(process.pid):
                self._give_up("a worker that waited for a task", process)
                return
            elif not recycled:
                logger.warning("worker %d died (%s); starting another", process.pid, process.exitcode)
            self.pool.remove(process)
            self.spawn_worker()

    def _give_up(self, what: str, process: BaseProcess) -> None:
        logger.error("%s (%d) died", what, process.pid)
        frozen.set()
        self.stop_event.set()


def pusher(*arguments: Any) -> None:
    """django-q2's, which hands out the seats; beside that it reports who sits in them."""
    attendance.begin()
    watch.begin(lambda problem: barred.set() if problem else barred.clear())
    django_q_cluster.pusher(*arguments)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


# ---- the main process -----------------------------------------------------------------------------------------------------------------------


class Main:
    """Starts the sentinel, watches, and ends everything. `run()` gives the exit status."""

    def __init__(self, *, is_over: Callable[[], bool] = lambda: False) -> None:
        self._is_over = is_over
        self._signals = 0
        self._signal_at = float("-inf")

    def run(self) -> int:
        # django-q2 takes the default way of starting processes, which need not be fork; the seats rely on what is shared before one.
        multiprocessing.set_start_method("fork", force=True)
        processes.forks_die_with_us()
        connections.close_all()
        started = Flag()
        self.sentinel = multiprocessing.Process(target=Sentinel, args=(started,), name="sentinel")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        processes.name_process("q-main")
        with processes.naming_forks("q-sentinel"):
            self.sentinel.start()
        fault = self._watch()
        if fault:
            logger.error("the cluster must be started again: %s", fault)
            stop.set()
        else:
            logger.info("stopping")
        self._wait(lambda: len(seats.free()) == seats.number, STOP_WITHIN_S)
        if not fault:
            self._wait(lambda: not self.sentinel.is_alive(), TIDY_WITHIN_S)
        if left := seats.number - len(seats.free()):
            logger.warning("steps that could not be ended in time: %d; their workers are killed", left)
        processes.kill_descendants()
        logger.info("stopped")
        return processes.RESTART if fault else os.EX_OK

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._signal_at > SAME_SIGNAL_S:  # one wish to stop may come twice at once
            self._signals += 1
            self._signal_at = time.monotonic()
        stop.set()

    def _wait(self, is_done: Callable[[], bool], seconds: float) -> None:
        """For the end of what is under way, unless it takes too long or somebody is in a hurry."""
        deadline = time.monotonic() + seconds
        while not is_done() and time.monotonic() < deadline and self._signals < 2:
            time.sleep(0.05)

    def _watch(self) -> str:
        """Until the cluster is to stop ("") or can't go on (why)."""
        watch = self._look()
        look_at = time.monotonic()
        while not stop.wait(0.1):
            if not self.sentinel.is_alive():
                return f"the sentinel died ({self.sentinel.exitcode})"
            if time.monotonic() >= look_at:
                fault = next(watch)
                if fault:
                    return fault
                look_at = time.monotonic() + LOOK_EVERY_S
                if self._is_over():
                    stop.set()
        return "a process died that others wait for" if frozen.is_set() else ""

    def _look(self) -> Iterator[str]:
        """One look a second. Looks are counted, not time: while this process is held up, so may be the others."""
        unfilled = [0] * seats.number
        guard, sweeps = Patience(60, guard_rounds), Patience(180, housekeeping_begun)
        is_ready = False
        while True:
            free = seats.free()
            unfilled = [unfilled[seat] + 1 if seat in free else 0 for seat in range(seats.number)]
            # Once a task was taken as well, everything has been seen at work.
            if not is_ready and not free and housekeeping_begun.value:
                is_ready = True
                logger.info(_ready(seats.number))
            at_it = housekeeping_begun.value > housekeeping_ended.value
            if max(unfilled, default=0) > 20:
                yield "a free seat is not filled"
            elif guard.is_over():
                yield "the sentinel does not go its rounds"
            elif sweeps.is_over() and not at_it:
                yield "housekeeping is not done: nobody takes a task from the pipe"
            else:
                yield ""


class Patience:
    """With a counter that is expected to move: how many looks may pass without."""

    def __init__(self, looks: int, counter: Counter) -> None:
        self._looks = looks
        self._counter = counter
        self._seen = counter.value
        self._still = 0

    def is_over(self) -> bool:
        moved = self._counter.value != self._seen
        self._seen = self._counter.value
        self._still = 0 if moved else self._still + 1
        return self._still > self._looks


def _ready(workers: int) -> str:
    if not workers:
        return "ready; with no workers ([pipeline] workers = 0) recordings are accepted and stand still"
    return f"{workers} worker{'s' if workers > 1 else ''} ready"
