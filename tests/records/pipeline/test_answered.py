"""A paid submission that is answered with the result itself: the answer is kept at once, whoever holds the record, and never paid for again."""

from __future__ import annotations

from typing import Any

import pytest

from recognition import operations as recognitions
from recognition.contract import Answered, Attempt, Busy, Heartbeat, OutcomeUnknown
from recognition.models import Recognition
from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.pipeline.dispatch import Worker
from records.states import HaltReason, Origin, State
from tests.conftest import Clock
from tests.factories import make_record
from tests.fakes.provider import HELLO, ScriptedProvider, payload_of

pytestmark = pytest.mark.django_db

ANSWER = payload_of(HELLO)


@pytest.fixture
def paid(scripted: ScriptedProvider) -> ScriptedProvider:
    """Answers each submission at once; has nothing to be polled for."""
    scripted.costs_money = True
    scripted.submissions = [Answered("answered-1", ANSWER)]
    scripted.answers = [AssertionError("polled")]
    return scripted


@pytest.fixture
def record(clock: Clock) -> AudioRecord:
    return make_record(State.NORMALIZED, now=clock.now)


def finish(worker: Worker, record: AudioRecord) -> None:
    while worker.work_once(record.pk):
        pass
    record.refresh_from_db()
    assert record.state == State.DONE
    assert record.transcript_text is not None
    assert record.transcript_text.contents == HELLO.text


def test_the_answer_is_kept_with_the_id_and_not_asked_for_again(worker: Worker, paid: ScriptedProvider, record: AudioRecord) -> None:
    worker.work_once(record.pk)

    recognition = Recognition.objects.get()
    assert (recognition.external_id, recognitions.read_payload(recognition)) == ("answered-1", ANSWER)
    assert recognition.submit_started_at
    finish(worker, record)
    assert paid.calls == ["upload", "submit"]


def test_an_answer_whose_id_was_not_kept_is_not_paid_for_again(
    worker: Worker, paid: ScriptedProvider, record: AudioRecord, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the two writes; the lease runs out."""

    def dies(*_: Any, **__: Any) -> None:
        raise GeneratorExit

    with monkeypatch.context() as patch:
        patch.setattr(recognitions, "keep_external_id", dies)
        with pytest.raises(GeneratorExit):
            worker.work_once(record.pk)
    assert Recognition.objects.get().external_id == ""

    clock.step(minutes=5)
    finish(worker, record)
    assert paid.submitted == 1


def test_an_answer_is_kept_though_the_record_was_lost_meanwhile(
    worker: Worker, paid: ScriptedProvider, record: AudioRecord, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_at_once = paid.submit

    def submit(attempt: Attempt, heartbeat: Heartbeat) -> str | Answered:
        control.halt(AudioRecord.objects.filter(pk=record.pk), by=By(Origin.ADMIN), now=clock())
        return answer_at_once(attempt, heartbeat)

    monkeypatch.setattr(paid, "submit", submit)
    worker.work_once(record.pk)
    record.refresh_from_db()
    assert (record.state, record.halt_reason) == (State.NORMALIZED, HaltReason.STOPPED)

    control.resume(AudioRecord.objects.filter(pk=record.pk), by=By(Origin.ADMIN), now=clock())
    finish(worker, record)
    assert paid.submitted == 1


def test_an_answer_that_was_lost_is_never_asked_for_by_itself(
    worker: Worker, paid: ScriptedProvider, record: AudioRecord, clock: Clock
) -> None:
    paid.submissions = [OutcomeUnknown("submission_unconfirmed", "Nobody knows."), Answered("answered-2", ANSWER)]
    worker.work_once(record.pk)
    record.refresh_from_db()
    assert record.halt_reason == HaltReason.UNCONFIRMED
    assert paid.calls.count("submit") == 1

    control.confirm_submission(record, external_id=None, by=By(Origin.ADMIN), now=clock())
    finish(worker, record)
    assert (paid.calls.count("submit"), Recognition.objects.count()) == (2, 2)


def test_a_refusal_takes_the_mark_off(worker: Worker, paid: ScriptedProvider, record: AudioRecord, clock: Clock) -> None:
    paid.submissions = [Busy("provider_busy", "Later.", retry_after=30), Answered("answered-1", ANSWER)]
    worker.work_once(record.pk)
    assert Recognition.objects.get().submit_started_at is None
    clock.step(seconds=31)
    finish(worker, record)


def test_the_provider_learns_what_was_frozen_and_how_long_the_recording_is(
    worker: Worker, paid: ScriptedProvider, record: AudioRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Attempt] = []

    def submit(attempt: Attempt, heartbeat: Heartbeat) -> str:
        asked.append(attempt)
        return "operation-1"

    monkeypatch.setattr(paid, "submit", submit)
    worker.work_once(record.pk)
    (attempt,) = asked
    assert (attempt.model, attempt.options, attempt.duration_ms) == ("parrot", {"language": "", "channels": 1}, 2000)
    assert attempt.source_uri.startswith("scripted:")
    assert attempt.submitted_at is not None
