from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transcriber import cluster
from transcriber.cluster import Main, Patience
from transcriber.seats import Counter, Seats

ROOT = Path(__file__).resolve().parent.parent.parent


def test_patience_ends_with_a_counter_that_stands_still() -> None:
    counter = Counter()
    patience = Patience(3, counter)

    assert [patience.is_over() for _ in range(5)] == [False, False, False, True, True]
    counter.count()
    assert [patience.is_over() for _ in range(5)] == [False, False, False, False, True]


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter]:
    """The counters of a cluster with one seat, which is free."""
    made = {name: Counter() for name in ("guard_rounds", "housekeeping_begun", "housekeeping_ended")}
    for name, counter in made.items():
        monkeypatch.setattr(cluster, name, counter)
    monkeypatch.setattr(cluster, "seats", Seats(1))
    return made


@pytest.mark.parametrize(
    ("counted", "is_free", "fault", "looks"),
    [
        (("guard_rounds", "housekeeping_begun", "housekeeping_ended"), True, "a free seat is not filled", 21),
        (("housekeeping_begun", "housekeeping_ended"), False, "the sentinel does not go its rounds", 61),
        (("guard_rounds",), False, "housekeeping is not done: nobody takes a task from the pipe", 181),
    ],
)
def test_what_stands_still_is_found(
    counters: dict[str, Counter], monkeypatch: pytest.MonkeyPatch, counted: tuple[str, ...], is_free: bool, fault: str, looks: int
) -> None:
    if not is_free:
        monkeypatch.setattr(Seats, "free", lambda seats: [])
    watch = Main()._look()
    seen: list[str] = []
    while not seen or not seen[-1]:
        seen.append(next(watch))
        for name in counted:
            counters[name].count()

    assert (seen[-1], len(seen)) == (fault, looks)


def test_long_housekeeping_is_no_fault(counters: dict[str, Counter], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seats, "free", lambda seats: [])
    watch = Main()._look()
    counters["housekeeping_begun"].count()

    for _ in range(500):
        assert next(watch) == ""
        counters["guard_rounds"].count()


def test_the_main_process_loads_no_model_before_it_forks() -> None:
    program = """
import sys, django
django.setup()
import transcriber.cluster
print([name for name in ("faster_whisper", "ctranslate2", "onnxruntime", "av", "torch") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "transcriber.settings", **_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
