from __future__ import annotations

import pytest

from records.models import AudioRecord
from records.pipeline.dispatch import Worker
from records.states import State
from tests.factories import make_record, wav_bytes

pytestmark = pytest.mark.django_db


def test_a_recording_goes_through_the_whole_pipeline(worker: Worker, scripted, clock, tmp_path, delivered):
    record = make_record(now=clock.now, contents=wav_bytes(tmp_path))

    while worker.work_once():
        pass

    record = AudioRecord.objects.select_related("transcript_text", "structure").get()
    assert record.state == State.DONE
    assert record.transcript_text.contents == "Hello there.\nGoodbye."
    assert [(e.step, e.outcome, e.outcome_text) for e in record.events.order_by("id")] == [
        ("normalize", "advanced", "uploaded → normalized"),
        ("submit", "advanced", "normalized → submitted"),
        ("poll", "advanced", "submitted → transcribed"),
        ("finish", "advanced", "transcribed → done"),
    ]
    assert [finished.record_id for finished in delivered] == [record.pk]
