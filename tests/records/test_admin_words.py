"""How a record's standing is put into words."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import translation

from records.admin import words
from records.models import AudioRecord
from records.pipeline.stages import STAGES
from records.states import EventOutcome, HaltReason, State

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def record(state: State = State.UPLOADED, **more: Any) -> AudioRecord:
    return AudioRecord(**{"state": state, "state_entered_at": NOW - timedelta(minutes=3), "delay_time": NOW, **more})


def said(what: AudioRecord, *, halted_by: str = "", has_external_id: bool = False, is_dead: bool = False) -> str:
    standing = words.standing(what, halted_by=halted_by, has_external_id=has_external_id, is_dead=is_dead, now=NOW)
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


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "0.00 s"), (1.5, "1.50 s"), (9.994, "9.99 s"), (10, "10 s"), (75, "1 min 15 s")])
def test_took(seconds: float, text: str) -> None:
    assert words.took(timedelta(seconds=seconds)) == text


def test_a_step_has_a_name_for_people_and_every_step_has_one() -> None:
    assert {stage.name for stage in STAGES} == set(words.STEPS)
    assert words.step_name("a step of long ago") == "a step of long ago"
    with translation.override("ru"):
        assert all(words.step_name(stage.name) for stage in STAGES)


def test_done() -> None:
    done = record(State.DONE, created=NOW - timedelta(hours=2))
    assert said(done) == "Done 3 min ago, 1 h 57 min after it came in."


def test_at_work_and_after_the_lease_ran_out() -> None:
    held: dict[str, Any] = {"acquisition_id": uuid.uuid4(), "progress": 0.4}
    assert said(record(**held, acquire_expires_at=NOW + timedelta(seconds=43))) == (
        "A worker is at the step “normalize”, 40% done. Its lease holds for 43 s and is renewed while the step runs."
    )
    assert "no sign of life; its lease ran out 7 s ago" in said(record(**held, acquire_expires_at=NOW - timedelta(seconds=7)))


def test_waiting_for_the_provider_after_a_failure_and_for_its_key() -> None:
    later = NOW + timedelta(seconds=4)
    assert said(record(State.SUBMITTED, delay_time=later)) == "Waiting for the provider: next status check in 4 s."
    assert said(record(State.NORMALIZED, delay_time=later)) == "The step “submit” runs in 4 s."
    failed = record(State.NORMALIZED, delay_time=later, attempts=2, error_code="x", error_text="The line was cut.")
    assert said(failed) == "The step “submit” failed 2 times: The line was cut. It is tried again in 4 s."
    once = record(State.NORMALIZED, delay_time=later, attempts=1, error_code="x", error_text="The line was cut.")
    assert said(once) == "The step “submit” failed once: The line was cut. It is tried again in 4 s."
    paused = record(State.NORMALIZED, delay_time=later, error_code="misconfigured", error_text="The key is refused.")
    assert said(paused) == "Waiting: The key is refused. The step “submit” runs again in 4 s."


def test_due_with_and_without_workers(settings: Any) -> None:
    waiting = record(delay_time=NOW - timedelta(minutes=5))
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, pipeline=replace(settings.TRANSCRIBER.pipeline, workers=2))
    assert said(waiting) == "Due for 5 min: the step “normalize” runs as soon as a worker is free."
    settings.TRANSCRIBER = replace(settings.TRANSCRIBER, pipeline=replace(settings.TRANSCRIBER.pipeline, workers=0))
    assert "workers = 0" in said(waiting)


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"delay_time": NOW}, "due"),
        ({"delay_time": NOW + timedelta(hours=3)}, "in 3 h"),
        ({"acquisition_id": uuid.uuid4(), "delay_time": NOW + timedelta(minutes=1)}, "at work"),
        ({"acquisition_id": uuid.uuid4(), "delay_time": NOW}, "lease ran out"),
        ({"halted_at": NOW}, "—"),
        ({"state": State.DONE}, "—"),
    ],
)
def test_next_try(about: dict[str, Any], text: str) -> None:
    assert words.next_try(record(**about), now=NOW) == text


@pytest.mark.parametrize("reason", HaltReason)
def test_every_halt_says_why_and_what_to_do(reason: HaltReason) -> None:
    halted = record(State.NORMALIZED, halted_at=NOW - timedelta(minutes=1), halt_reason=reason, error_text="100% because of this.")
    standing = words.standing(halted, has_external_id=False, now=NOW)
    assert standing.text.startswith("Halted 1 min ago")
    assert ("100% because of this." in standing.text) == (reason != HaltReason.STOPPED)
    assert ("“submit”" in standing.advice) == (reason != HaltReason.UNCONFIRMED)
    assert "esume" in said(halted, has_external_id=True)


def test_who_halted_is_named() -> None:
    halted = record(halted_at=NOW - timedelta(minutes=1), halt_reason=HaltReason.STOPPED)
    assert words.standing(halted, halted_by="olga", has_external_id=False, now=NOW).text == "Halted 1 min ago by olga."


@pytest.mark.parametrize("reason", [HaltReason.REJECTED, HaltReason.EXHAUSTED])
def test_a_dead_operation_is_to_be_restarted(reason: HaltReason) -> None:
    halted = record(State.SUBMITTED, halted_at=NOW, halt_reason=reason, error_text="Its result has expired.")
    told = said(halted, has_external_id=True, is_dead=True)
    assert "Its result has expired." in told
    assert "Restart from “Normalized” for a new recognition, which may have to be paid for." in told


@pytest.mark.parametrize(
    ("outcome", "written", "text"),
    [
        (EventOutcome.ADVANCED, "uploaded → normalized", "Uploaded → Normalized"),
        (EventOutcome.RESTARTED, "done → submitted", "Done → Submitted"),
        (EventOutcome.RESUMED, "at normalized", "at “Normalized”"),
        (EventOutcome.FAILED, "internal_error: a → b", "internal_error: a → b"),
        (EventOutcome.HALTED, "", ""),
    ],
)
def test_rows_of_the_journal_name_states_as_people_do(outcome: EventOutcome, written: str, text: str) -> None:
    assert words.journal_text(outcome, written) == text
