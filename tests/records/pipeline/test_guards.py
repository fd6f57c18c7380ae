"""Two guards with two duties: failures bound retries, time in a state bounds being stuck."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recognition.contract import Busy, Misconfigured, OutcomeUnknown, Refused, Transient
from records.audio import AudioFailed, AudioRejected
from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.pipeline.acquire import acquire
from records.pipeline.dispatch import Worker
from records.pipeline.outcomes import Halt, Postpone
from records.pipeline.stage import Work
from records.pipeline.transitions import FIRST_PAUSE, Rules
from records.states import FINAL, HaltReason, Origin, State
from tests.factories import make_record

pytestmark = pytest.mark.django_db

UNFINISHED = [state for state in State if state != FINAL]
BY = By(Origin.COMMAND)


def limit_of(state: State, table, rules: Rules) -> timedelta:
    return rules.limits[table[state].work]


@pytest.mark.parametrize("state", UNFINISHED)
def test_a_hundred_postponements_move_neither_the_moment_of_entry_nor_the_limit(state, engine: Worker, table, clock, rules):
    record = make_record(state, now=clock.now)
    entered = clock.now
    table.script(state, Postpone(timedelta(seconds=5)))
    span = limit_of(state, table, rules) / 101

    for _ in range(100):
        assert engine.work_once()
        record.refresh_from_db()
        assert (record.state, record.state_entered_at, record.work_started_at) == (state, entered, entered)
        assert (record.attempts, record.halted_at, record.acquisition_id) == (0, None, None)
        assert record.delay_time == clock.now + timedelta(seconds=5)
        clock.step(seconds=span.total_seconds())
    assert record.events.count() == 0

    clock.step(seconds=span.total_seconds())
    clock.step(seconds=1)
    assert engine.work_once()
    record.refresh_from_db()
    assert (record.halt_reason, record.state, record.state_entered_at) == (HaltReason.STUCK, state, entered)
    assert [event.outcome for event in record.events.all()] == ["halted"]


@pytest.mark.parametrize("state", UNFINISHED)
def test_the_first_failure_past_the_limit_halts_and_resuming_restarts_the_clock(state, engine: Worker, table, clock, rules):
    record = make_record(state, now=clock.now)
    table.script(state, Transient("boom", "It broke."))
    engine.work_once()
    record.refresh_from_db()
    assert record.halted_at is None

    clock.step(seconds=limit_of(state, table, rules).total_seconds() + 1)
    engine.work_once()
    record.refresh_from_db()
    assert (record.halt_reason, record.error_code, record.attempts) == (HaltReason.STUCK, "boom", 2)

    clock.step(days=3)
    assert control.resume(AudioRecord.objects.all(), by=BY, now=clock.now).changed == 1
    engine.work_once()
    record.refresh_from_db()
    assert (record.halted_at, record.attempts, record.work_started_at) == (None, 1, clock.now)


@pytest.mark.parametrize("state", UNFINISHED)
def test_hours_without_workers_halt_nothing_not_even_what_then_fails(state, engine: Worker, table, clock):
    record = make_record(state, now=clock.now)
    clock.step(days=3)
    table.script(state, Transient("boom", "It broke."))

    engine.work_once()

    record.refresh_from_db()
    assert (record.halted_at, record.attempts) == (None, 1)


def test_hours_without_workers_do_not_count_for_a_record_whose_worker_was_killed_either(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    acquire(table, now=clock.now)
    clock.step(hours=3)
    table.script(State.UPLOADED, Transient("boom", "It broke."))

    engine.work_once()

    record.refresh_from_db()
    assert (record.halted_at, record.attempts) == (None, 2)


def test_a_night_after_a_clean_stop_does_not_count(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    stopping = Worker(table=table, clock=clock, rules=engine.rules, stop=lambda: True)
    table.script(State.UPLOADED, lambda heartbeat, **_: heartbeat.beat())
    stopping.work_once()
    clock.step(hours=12)
    table.script(State.UPLOADED, Transient("boom", "It broke."))

    engine.work_once()

    record.refresh_from_db()
    assert (record.halted_at, record.attempts) == (None, 1)


@pytest.mark.parametrize("state", UNFINISHED)
def test_failures_count_and_back_off_and_the_fifth_exhausts(state, engine: Worker, table, clock):
    record = make_record(state, now=clock.now)
    step = table.script(state, Transient("boom", "It broke."))

    for failures in range(1, 5):
        assert engine.work_once()
        record.refresh_from_db()
        pause = FIRST_PAUSE * 2 ** (failures - 1)
        assert (record.attempts, record.halted_at, record.delay_time) == (failures, None, clock.now + pause)
        assert (record.error_code, record.error_text) == ("boom", "It broke.")
        clock.step(seconds=pause.total_seconds() - 1)
        assert not engine.work_once()
        clock.step(seconds=1)
    engine.work_once()

    record.refresh_from_db()
    assert (record.halt_reason, record.attempts, record.error_code) == (HaltReason.EXHAUSTED, 5, "boom")
    assert record.error_text == "It broke. Tried 5 times."
    assert step.runs == 5
    assert [event.outcome for event in record.events.order_by("id")] == ["failed"] * 4 + ["halted"]


def test_jitter_stays_within_a_fifth_and_the_pauses_within_the_longest():
    rules = Rules(max_attempts=5, limits={})
    for attempts in range(1, 5):
        pauses = [rules.pause(attempts) / (FIRST_PAUSE * 2 ** (attempts - 1)) for _ in range(200)]
        assert 0.8 <= min(pauses) < 0.9 < 1.1 < max(pauses) <= 1.2
    assert rules.longest_pauses() == FIRST_PAUSE * 15 * 1.2


def test_postponing_resets_the_count(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    table.script(
        State.UPLOADED, Transient("boom", "It broke."), Transient("boom", "It broke."), Postpone(timedelta(0)), Transient("b", "Again.")
    )
    for _ in range(2):
        engine.work_once()
        clock.step(minutes=1)
    record.refresh_from_db()
    assert record.attempts == 2

    engine.work_once()
    record.refresh_from_db()
    assert (record.attempts, record.error_code) == (0, "")

    engine.work_once()
    record.refresh_from_db()
    assert record.attempts == 1


def test_advancing_resets_the_count_and_the_clock(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    table.script(State.UPLOADED, Transient("boom", "It broke."), table.steps[State.UPLOADED].success_later())
    engine.work_once()
    clock.step(minutes=1)

    engine.work_once()

    record.refresh_from_db()
    assert (record.state, record.attempts, record.work_started_at, record.state_entered_at) == (State.NORMALIZED, 0, None, clock.now)
    assert (record.error_code, record.error_text) == ("", "")


def test_a_recording_that_kills_its_worker_ends_exhausted(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    step = table.steps[State.UPLOADED]
    for _ in range(5):
        assert acquire(table, now=clock.now) is not None  # and its worker dies
        clock.step(minutes=2)

    engine.work_once()

    record.refresh_from_db()
    assert (record.halt_reason, record.attempts, record.error_code) == (HaltReason.EXHAUSTED, 5, "worker_lost")
    assert step.runs == 0


def test_a_lease_taken_over_stands_in_the_journal_as_a_failure(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    acquire(table, now=clock.now)
    clock.step(minutes=2)

    engine.work_once()

    record.refresh_from_db()
    assert record.state == State.NORMALIZED
    assert [(event.outcome, event.step) for event in record.events.order_by("id")] == [("failed", "normalize"), ("advanced", "normalize")]


def test_waiting_for_the_provider_counts_by_the_foreign_limit_whatever_the_stage(engine: Worker, table, clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    table.script(State.NORMALIZED, Busy("busy", "The provider is busy.", retry_after=30))
    engine.work_once()
    clock.step(hours=23)
    engine.work_once()
    record.refresh_from_db()
    assert (record.halted_at, record.error_code, record.delay_time) == (None, "busy", clock.now + timedelta(seconds=30))

    clock.step(hours=2)
    engine.work_once()

    record.refresh_from_db()
    assert record.halt_reason == HaltReason.STUCK


def test_our_own_pacing_is_never_a_reason_to_be_stuck(engine: Worker, table, clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    table.script(State.NORMALIZED, Postpone(timedelta(seconds=10), paced=True))
    for _ in range(3):
        engine.work_once()
        clock.step(days=2)

    record.refresh_from_db()
    assert record.halted_at is None


def test_time_in_our_own_queue_does_not_count_for_a_failure_that_follows(engine: Worker, table, clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    table.script(State.NORMALIZED, Postpone(timedelta(hours=2), paced=True), Transient("boom", "It broke."))
    engine.work_once()
    clock.step(hours=2)

    engine.work_once()

    record.refresh_from_db()
    assert (record.halted_at, record.attempts) == (None, 1)


def test_our_own_pacing_takes_no_failure_back(engine: Worker, table, clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    table.script(State.NORMALIZED, *[Transient("boom", "It broke."), Postpone(timedelta(0), paced=True)] * 5)
    while engine.work_once():
        clock.step(hours=1)

    record.refresh_from_db()
    assert (record.halt_reason, record.attempts) == (HaltReason.EXHAUSTED, 5)


def test_a_first_pass_has_the_time_of_the_longest_recording(engine: Worker, table, clock, settings):
    record = make_record(now=clock.now)
    type(record.original_file).objects.update(duration_ms=None)
    table.script(
        State.UPLOADED, lambda heartbeat, **_: [clock.step(hours=5), heartbeat.tick(), heartbeat.beat()] and Postpone(timedelta(0))
    )

    engine.work_once()

    record.refresh_from_db()
    assert (record.attempts, record.error_code) != (1, "deadline")


def test_a_result_that_is_ready_is_taken_however_late(engine: Worker, table, clock):
    record = make_record(State.SUBMITTED, now=clock.now)
    table.script(State.SUBMITTED, Postpone(timedelta(seconds=5)), table.steps[State.SUBMITTED].success_later())
    engine.work_once()
    clock.step(days=10)

    engine.work_once()

    record.refresh_from_db()
    assert record.state == State.TRANSCRIBED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AudioRejected("no_audio"), ("rejected", "no_audio", 0)),
        (Refused("too_long", "Too long for the provider."), ("rejected", "too_long", 0)),
        (Halt(HaltReason.UNCONFIRMED, "submission_unconfirmed", "Who knows."), ("unconfirmed", "submission_unconfirmed", 0)),
        (Misconfigured("unauthorized", "The key is not accepted."), ("", "unauthorized", 0)),
        (Busy("busy", "Later."), ("", "busy", 0)),
        (Transient("timeout", "No answer."), ("", "timeout", 1)),
        (OutcomeUnknown("reset", "No answer."), ("", "reset", 1)),
        (AudioFailed("crashed"), ("", "crashed", 1)),
        (FileNotFoundError("/secret/name.mp3"), ("", "file_missing", 1)),
        (OSError(28, "No space left on device"), ("", "disk_full", 1)),
        (ValueError("what was said in confidence"), ("", "internal_error", 1)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else value[1],
)
def test_what_each_error_comes_to(error, expected, engine: Worker, table, clock, caplog):
    record = make_record(State.NORMALIZED, now=clock.now)
    table.script(State.NORMALIZED, error)

    engine.work_once()

    record.refresh_from_db()
    assert (record.halt_reason, record.error_code, record.attempts) == expected
    assert record.error_text
    assert record.acquisition_id is None
    for hidden in ("secret", "confidence"):
        assert hidden not in record.error_text + caplog.text + "".join(record.events.values_list("outcome_text", flat=True))


def test_a_busy_provider_is_asked_again_when_it_said(engine: Worker, table, clock):
    record = make_record(State.SUBMITTED, now=clock.now)
    table.script(State.SUBMITTED, Busy("busy", "Later.", retry_after=77))

    engine.work_once()

    record.refresh_from_db()
    assert record.delay_time == clock.now + timedelta(seconds=77)
    assert record.events.count() == 0


def test_each_work_has_a_limit(rules: Rules):
    assert set(rules.limits) == set(Work)
