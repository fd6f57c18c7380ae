from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from recognition.models import Recognition
from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.pipeline.dispatch import Worker
from records.states import HaltReason, Origin, State
from tests.factories import make_record, make_user
from tests.fakes.provider import ScriptedProvider

pytestmark = pytest.mark.django_db


@pytest.fixture
def unconfirmed(now) -> AudioRecord:
    record = make_record(State.NORMALIZED, now=now, halted_at=now, halt_reason=HaltReason.UNCONFIRMED, error_code="submission_unconfirmed")
    record.recognition = Recognition.objects.create(record=record, provider="scripted", source_uri="scripted:x", submit_started_at=now)
    record.save()
    return record


def test_the_operation_s_id_is_polled_and_nothing_is_paid_again(unconfirmed, worker: Worker, scripted: ScriptedProvider):
    call_command("confirm_submission", str(unconfirmed.pk), "--external-id", "f8d-found")
    AudioRecord.objects.update(delay_time=worker.clock())

    while worker.work_once():
        pass

    unconfirmed.refresh_from_db()
    assert unconfirmed.state == State.DONE
    assert "submit" not in scripted.calls
    assert Recognition.objects.get().external_id == "f8d-found"
    assert unconfirmed.events.filter(outcome="resumed", origin="command", outcome_text="The operation's id was entered.").count() == 1


def test_submitting_again_makes_a_new_attempt_and_keeps_the_old_one(unconfirmed, worker: Worker, scripted: ScriptedProvider, now):
    person = make_user("olga")
    control.confirm_submission(unconfirmed, external_id=None, by=By(Origin.ADMIN, person), now=now)

    while worker.work_once():
        pass

    unconfirmed.refresh_from_db()
    assert unconfirmed.state == State.DONE
    assert scripted.submitted == 1
    old, new = Recognition.objects.order_by("id")
    assert (old.external_id, unconfirmed.recognition) == ("", new)
    assert unconfirmed.events.get(outcome="resumed").actor == person


@pytest.mark.parametrize(
    "arguments", [["--external-id", "x" * 51], ["--external-id", "  "], ["--external-id", "f8d", "--submit-again"], []]
)
def test_an_answer_that_is_none_changes_nothing(arguments, unconfirmed):
    with pytest.raises(CommandError):
        call_command("confirm_submission", str(unconfirmed.pk), *arguments)
    unconfirmed.refresh_from_db()
    assert unconfirmed.halt_reason == HaltReason.UNCONFIRMED


@pytest.mark.parametrize("reason", ["", HaltReason.STOPPED])
def test_only_what_stands_as_unconfirmed_can_be_confirmed(reason, now):
    record = make_record(State.NORMALIZED, now=now, halted_at=now if reason else None, halt_reason=reason)
    with pytest.raises(control.NotUnconfirmed):
        control.confirm_submission(record, external_id="f8d", by=By(Origin.ADMIN), now=now)


def test_an_operation_belongs_to_one_recognition(unconfirmed, now):
    other = make_record(State.SUBMITTED, now=now)
    with pytest.raises(control.IdKnownElsewhere):
        control.confirm_submission(unconfirmed, external_id=other.recognition.external_id, by=By(Origin.ADMIN), now=now)
    unconfirmed.refresh_from_db()
    assert unconfirmed.halt_reason == HaltReason.UNCONFIRMED


@pytest.mark.parametrize("known", [{"external_id": "f8d-late"}, {"payload": "payloads/x.raw"}])
def test_what_is_known_by_now_is_not_paid_again(known, unconfirmed, now):
    Recognition.objects.update(**known)
    with pytest.raises(control.AnswerKnown):
        control.confirm_submission(unconfirmed, external_id=None, by=By(Origin.ADMIN), now=now)
    assert control.resume(AudioRecord.objects.all(), by=By(Origin.ADMIN), now=now).changed == 1
