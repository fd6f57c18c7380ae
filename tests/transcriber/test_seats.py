from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from django_q.signing import SignedPackage

from records.pipeline.dispatch import Worker
from transcriber import seats as module
from transcriber.seats import Flag, Seats

fork = multiprocessing.get_context("fork")
Sit = Callable[[Seats, int], tuple[BaseProcess, bool]]


@pytest.fixture
def sit() -> Iterator[Sit]:
    """Take a seat in a process of its own, which then stays there; says whether it got the seat."""
    processes = []

    def start(seats: Seats, seat: int) -> tuple[BaseProcess, bool]:
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_sit, args=(seats, seat, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        assert ours.poll(10)
        return process, ours.recv()

    yield start
    for process in processes:
        process.kill()
        process.join()


def _sit(seats: Seats, seat: int, answer: Any) -> None:
    answer.send(seats.take(seat))
    signal.pause()


def test_a_seat_is_for_one(sit: Sit) -> None:
    seats = Seats(2)

    assert sit(seats, 1)[1]
    assert not sit(seats, 1)[1]
    assert seats.free() == [0]
    assert sit(seats, 0)[1]
    assert seats.free() == []


def test_a_seat_becomes_free_when_its_process_is_killed_and_is_remembered_as_its(sit: Sit) -> None:
    seats = Seats(1)
    process, _ = sit(seats, 0)
    assert process.pid is not None

    os.kill(process.pid, signal.SIGKILL)
    process.join()

    assert seats.free() == [0]
    assert seats.was_seated(process.pid)
    assert not seats.was_seated(os.getpid())
    assert sit(seats, 0)[1]
    assert seats.was_seated(process.pid)  # also once somebody else sits there: that may be faster than whoever asks


def test_a_free_seat_is_offered_once_in_a_while_and_at_once_when_it_was_left(sit: Sit) -> None:
    seats = Seats(2)

    assert list(seats.offers()) == [0, 1]
    assert list(seats.offers()) == []

    assert seats.take(0)
    seats.leave(0)
    assert list(seats.offers()) == [0]
    sit(seats, 0)
    seats._offered_at[0] = seats._offered_at[1] = 1.0  # long ago
    assert list(seats.offers()) == [1]


def test_no_seats_no_offers() -> None:
    assert list(Seats(0).offers()) == []


def test_a_flag_is_seen_by_processes_forked_before() -> None:
    flag = Flag()
    ours, theirs = fork.Pipe()
    process = fork.Process(target=lambda: theirs.send(flag.wait(10)), daemon=True)
    process.start()

    flag.set()

    assert ours.poll(10)
    assert ours.recv() is True
    process.join()


def test_tokens_name_seats_and_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "seats", Seats(2))
    monkeypatch.setattr(module, "stop", Flag())
    monkeypatch.setattr(module._housekeeping_offered_at, "value", 0.0)

    tasks = [SignedPackage.loads(token) for token in module.tokens()]

    assert [(task["func"], task["args"], task.get("timeout")) for task in tasks] == [
        ("transcriber.seats.sit", (0,), -1),
        ("transcriber.seats.sit", (1,), -1),
        ("transcriber.seats.keep_house", (), None),
    ]
    assert not any(task["save"] for task in tasks)
    assert module.tokens() == []


def test_nothing_is_handed_out_once_the_cluster_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "seats", Seats(2))
    stopping = Flag()
    monkeypatch.setattr(module, "stop", stopping)

    stopping.set()

    assert module.tokens() == []


def test_a_token_for_a_taken_seat_is_passed_over(sit: Sit, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Seats(1)
    sit(taken, 0)
    monkeypatch.setattr(module, "seats", taken)
    monkeypatch.setattr(module, "_work", lambda parent: pytest.fail("there is somebody at work in this seat"))

    module.sit(0)


def counted() -> tuple[Iterator[int], list[int]]:
    """Numbers from 1 on, and the list of those that were taken."""
    seen: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count(1):
            seen.append(number)
            yield number

    return numbers(), seen


@pytest.mark.parametrize("error", [OSError("away"), RuntimeError("what")])
def test_a_worker_outlives_whatever_is_raised_and_does_not_spin(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping, tried, waited = Flag(), [], []

    def work_once(worker: object) -> bool:
        tried.append(1)
        if len(tried) == 3:
            stopping.set()
        raise error

    monkeypatch.setattr(module, "stop", stopping)
    monkeypatch.setattr(Worker, "work_once", work_once)

    def wait(flag: Flag, seconds: float) -> bool:
        waited.append(seconds)
        return flag.is_set()

    monkeypatch.setattr(Flag, "wait", wait)

    with caplog.at_level("ERROR", "transcriber.seats"):
        module._work(os.getppid())

    assert waited == [module.ERROR_PAUSE_S] * 3
    assert str(error) not in caplog.text


def test_a_worker_makes_room_for_a_fresh_one_after_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, seen = counted()
    monkeypatch.setattr(module, "stop", Flag())
    monkeypatch.setattr(Worker, "work_once", lambda worker: bool(next(steps)))

    module._work(os.getppid())

    assert len(seen) == module.RECYCLE_AFTER_STEPS


def test_a_worker_makes_room_for_a_fresh_one_when_its_memory_grows_beyond_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (steps, seen) = 4 * 2**30, counted()
    monkeypatch.setattr(module, "stop", Flag())
    monkeypatch.setattr(Worker, "work_once", lambda worker: bool(next(steps)))
    leak = 2**26
    monkeypatch.setattr(module, "resident_memory", lambda: 2**28 if len(seen) < 3 else model + leak * len(seen))

    module._work(os.getppid())

    assert len(seen) == module.SETTLING_STEPS + module.GROWTH // leak + 1


def test_a_worker_whose_parent_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stop", Flag())
    monkeypatch.setattr(Worker, "work_once", lambda worker: pytest.fail("it works for nobody"))

    module._work(os.getppid() + 1)


def test_memory_is_measured() -> None:
    # In a process of its own: one that has run other tests may hold free memory already, and then it does not grow.
    script = """
import django
django.setup()
from transcriber.seats import resident_memory
before = resident_memory()
block = bytearray(b"x") * (64 * 2**20)  # written to: pages that were not are not there
print(before, resident_memory())
"""
    printed = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ).stdout
    before, after = map(int, printed.split())
    assert 2**20 < before < after - 32 * 2**20


@pytest.mark.django_db
def test_housekeeping_that_fails_is_logged_without_its_words(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    words = "what somebody said"

    def sweep(**_: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr("records.operations.housekeeping.sweep", sweep)
    monkeypatch.setattr("transcriber.seats.connections.close_all", lambda: None)
    begun, ended = module.housekeeping_begun.value, module.housekeeping_ended.value

    module.keep_house()

    assert "RuntimeError" in caplog.text
    assert words not in caplog.text
    assert (module.housekeeping_begun.value, module.housekeeping_ended.value) == (begun + 1, ended + 1)
