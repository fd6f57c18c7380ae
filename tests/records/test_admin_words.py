"""How a record's standing is put into words."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from records.admin import words
from records.models import AudioRecord
from records.operations.control import Report
from records.states import HaltReason, State

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def record(state: State = State.UPLOADED, **more: Any) -> AudioRecord:
    return AudioRecord(**{"state": state, "state_entered_at": NOW - timedelta(minutes=3), "delay_time": NOW, **more})


def said(what: AudioRecord, *, has_external_id: bool = False) -> str:
    standing = words.standing(what, [], has_external_id=has_external_id, now=NOW)
    return f"{standing.text} {standing.advice}".strip()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0, "0 s"), (59.4, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (3600, "1 h"), (3605, "1 h"), (270_000, "3 d 3 h")],
)
def test_span(seconds: float, text: str) -> None:
    assert words.span(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("milliseconds", "text"), [(0, "0:00"), (4_999, "0:04"), (3_723_000, "1:02:03")])
def test_clock(milliseconds: int, text: str) -> None:
    assert words.clock(milliseconds) == text


def test_done() -> None:
    assert said(record(State.DONE)) == "Done for 3 min."


def test_at_work_and_after_the_lease_ran_out() -> None:
    held: dict[str, Any] = {"acquisition_id": uuid.uuid4(), "progress": 0.4}
    assert said(record(**held, acquire_expires_at=NOW + timedelta(seconds=43))).startswith(
        "A worker is at normalize, 40% done. Its lease holds for 43 s"
    )
    assert "no sign of life; its lease ran out 7 s ago" in said(record(**held, acquire_expires_at=NOW - timedelta(seconds=7)))


def test_waiting_for_the_provider_after_a_failure_and_for_its_key() -> None:
    later = NOW + timedelta(seconds=4)
    assert said(record(State.SUBMITTED, delay_time=later)) == "Waiting for the provider: next status check in 4 s."
    failed = record(State.NORMALIZED, delay_time=later, attempts=2, error_code="x", error_text="The line was cut.")
    assert said(failed) == "submit failed twice: The line was cut. It is tried again in 4 s."
    paused = record(State.NORMALIZED, delay_time=later, error_code="misconfigured", error_text="The key is refused.")
    assert said(paused) == "Waiting: The key is refused. submit runs again in 4 s."


def test_due_with_and_without_workers(settings: Any) -> None:
    from dataclasses import replace

    waiting = record(delay_time=NOW - timedelta(minutes=5))
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, pipeline=replace(settings.TRANSCRIBER.pipeline, workers=2))
    assert said(waiting) == "Due for 5 min: normalize runs as soon as a worker is free."
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, pipeline=replace(settings.TRANSCRIBER.pipeline, workers=0))
    assert "workers = 0" in said(waiting)


@pytest.mark.parametrize("reason", HaltReason)
def test_every_halt_says_why_and_what_to_do(reason: HaltReason) -> None:
    halted = record(State.NORMALIZED, halted_at=NOW - timedelta(minutes=1), halt_reason=reason, error_text="Because of this.")
    standing = words.standing(halted, [], has_external_id=False, now=NOW)
    assert standing.text.startswith("Halted 1 min ago")
    assert ("Because of this." in standing.text) == (reason != HaltReason.STOPPED)
    assert ("Resume lets it go on with submit." in standing.advice) == (reason != HaltReason.UNCONFIRMED)
    assert "Resume lets it go on" in said(halted, has_external_id=True)


def test_report() -> None:
    assert words.outcome_of("Halted", Report(1)) == "Halted 1 record."
    assert (
        words.outcome_of("Halted", Report(0, {"done": 2, "new_reason": 1}))
        == "Halted 0 records. Passed over 3: 2 done already, 1 new_reason."
    )
