"""An answer that was kept, and whose file is gone from the storage."""

from __future__ import annotations

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from recognition import operations as recognitions
from recognition.contract import Refused
from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.pipeline.dispatch import Worker
from records.states import HaltReason, Origin, State
from tests.conftest import Clock
from tests.factories import make_record
from tests.fakes.provider import HELLO, ScriptedProvider, payload_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def record(clock: Clock) -> AudioRecord:
    record = make_record(State.SUBMITTED, now=clock.now)
    assert record.recognition is not None
    record.recognition.payload.save("", ContentFile(payload_of(HELLO)))
    default_storage.delete(record.recognition.payload.name)
    return record


def test_it_is_fetched_again_where_the_provider_still_has_it(record: AudioRecord, worker: Worker, scripted: ScriptedProvider):
    while worker.work_once(record.pk):
        pass

    record.refresh_from_db()
    assert (record.state, record.attempts) == (State.DONE, 0)
    assert recognitions.read_payload(record.recognition) == payload_of(HELLO)
    assert scripted.calls[:1] == ["poll"]
    assert "submit" not in scripted.calls


def test_else_the_record_says_what_helps(record: AudioRecord, worker: Worker, scripted: ScriptedProvider):
    scripted.answers = [Refused("result_expired", "It is gone: restart the record from `normalized`, which is a new paid recognition.")]

    worker.work_once(record.pk)

    record.refresh_from_db()
    assert (record.halt_reason, record.error_code) == (HaltReason.REJECTED, "result_expired")
    assert "restart" in record.error_text


def test_a_storage_that_was_only_away_loses_nothing(record: AudioRecord, worker: Worker, scripted: ScriptedProvider, clock: Clock):
    """The name is not forgotten: when the file is there again, resuming takes it."""
    scripted.answers = [Refused("answer_missing", "Nothing is kept.")]
    worker.work_once(record.pk)
    default_storage.save(record.recognition.payload.name, ContentFile(payload_of(HELLO)))
    control.resume(AudioRecord.objects.all(), by=By(Origin.COMMAND), now=clock.now)

    while worker.work_once(record.pk):
        pass

    record.refresh_from_db()
    assert record.state == State.DONE
    assert scripted.calls.count("poll") == 1
