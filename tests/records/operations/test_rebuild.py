from __future__ import annotations

import io
import json

import pytest
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.db import connection
from pytest_socket import disable_socket, enable_socket

from recognition import registry
from recognition.contract import Transcript, Utterance
from recognition.models import Recognition
from recognition.operations import keep_payload
from records.models import AudioRecord, Structure, Text
from records.operations import tally
from records.states import State
from tests.factories import make_record, make_user
from tests.fakes.provider import ScriptedProvider, payload_of

pytestmark = pytest.mark.django_db

SAID = Transcript(language="en", utterances=(Utterance(0, 900, "As it was said."),))


@pytest.fixture
def transcribed(now, scripted: ScriptedProvider) -> AudioRecord:
    record = make_record(State.DONE, now=now)
    keep_payload(record.recognition, payload_of(SAID), now=now)
    return record


def rebuild(*arguments: str) -> str:
    told = io.StringIO()
    call_command("rebuild_structures", *arguments, stdout=told)
    return told.getvalue()


def test_texts_and_structures_come_from_the_saved_answer_without_the_network(transcribed, scripted):
    if connection.vendor == "sqlite":  # PostgreSQL itself is across a socket
        disable_socket()
    try:
        assert rebuild() == "rebuilt: 1\n"
    finally:
        enable_socket()

    record = AudioRecord.objects.select_related("structure", "transcript_text").get()
    assert record.transcript_text.contents == "As it was said."
    assert record.structure.contents["utterances"][0]["text"] == "As it was said."
    assert (record.state, scripted.calls) == (State.DONE, [])
    assert (Structure.objects.count(), Text.objects.count()) == (1, 1)
    assert [(event.outcome, event.origin) for event in record.events.all()] == [("rebuilt", "command")]


def test_what_is_rebuilt_hours_later_is_journaled_as_of_then_and_counted(transcribed, scripted, clock, monkeypatch):
    other = make_record(State.DONE, now=clock.now)
    keep_payload(other.recognition, payload_of(SAID), now=clock.now)
    parse = scripted.parse

    def take_hours(*arguments):
        tally.settle(now=clock.step(hours=5))
        return parse(*arguments)

    monkeypatch.setattr(scripted, "parse", take_hours)
    monkeypatch.setattr("django.utils.timezone.now", clock)

    assert rebuild() == "rebuilt: 2\n"

    assert sum(kind.runs for kind in tally.counted() if kind.outcome == "rebuilt") == 2


WHISPER = {
    "format": "whisper/1",
    "model": "base",
    "language": "en",
    "language_asked": "en",
    "language_probability": None,
    "duration_ms": 2000,
    "channels": [
        [
            {
                "start_ms": 0,
                "end_ms": 900,
                "text": " Said.",
                "avg_logprob": -0.2,
                "no_speech_prob": 0.01,
                "compression_ratio": 1.0,
                "temperature": 0.0,
                "words": [[0, 900, " Said.", 0.9]],
            }
        ]
    ],
}
SPEECHKIT = {
    "result": {
        "audioCursors": {"finalIndex": "0"},
        "final": {"alternatives": [{"words": [{"text": "Said.", "startTimeMs": "0", "endTimeMs": "900"}], "text": "Said."}]},
        "channelTag": "0",
    }
}
OPENAI = {"language": "english", "text": "Said.", "duration": 2.0, "segments": [{"start": 0.0, "end": 0.9, "text": " Said."}]}


@pytest.mark.parametrize(("provider", "answer"), [("whisper", WHISPER), ("speechkit", SPEECHKIT), ("openai", OPENAI)])
def test_every_provider_s_answer_is_rebuilt_without_the_network(provider: str, answer: dict, now):
    record = make_record(State.DONE, now=now)
    Recognition.objects.update(provider=provider, options=registry.get(provider).options(language="en", channels=1))
    record.recognition.refresh_from_db()
    keep_payload(record.recognition, json.dumps(answer).encode(), now=now)
    if connection.vendor == "sqlite":
        disable_socket()
    try:
        assert rebuild("--provider", provider) == "rebuilt: 1\n"
    finally:
        enable_socket()

    record = AudioRecord.objects.select_related("structure", "transcript_text").get()
    assert record.transcript_text.contents == "Said."
    assert record.structure.contents["utterances"][0]["end_ms"] == 900


def test_a_dry_run_changes_nothing(transcribed):
    before = AudioRecord.objects.values().get()
    assert rebuild("--dry-run") == "would be rebuilt: 1\n"
    assert AudioRecord.objects.values().get() == before


def test_records_are_chosen_by_filters(transcribed, now):
    make_record(State.DONE, now=now, owner=make_user("olga"))
    assert rebuild("--owner", transcribed.owner.username, "--dry-run") == "would be rebuilt: 1\n"
    assert rebuild("--provider", "nobody", "--dry-run") == "would be rebuilt: 0\n"
    assert rebuild("--record", str(transcribed.pk), "--dry-run") == "would be rebuilt: 1\n"
    Structure.objects.filter(pk=transcribed.structure_id).update(version=0)
    assert rebuild("--outdated", "--dry-run") == "would be rebuilt: 1\n"


def test_what_cant_be_rebuilt_keeps_what_it_has(transcribed, now):
    without = make_record(State.DONE, now=now)
    garbage = make_record(State.DONE, now=now)
    keep_payload(garbage.recognition, b"<html>", now=now)
    lost = make_record(State.DONE, now=now)
    keep_payload(lost.recognition, payload_of(SAID), now=now)
    default_storage.delete(lost.recognition.payload.name)
    young = make_record(State.SUBMITTED, now=now)

    told = rebuild()

    assert told.splitlines()[0] == "rebuilt: 1"
    assert set(told.splitlines()[1:]) == {
        "passed over, no_payload: 2",
        "passed over, unreadable: 1",
        "passed over, not_transcribed: 1",
    }
    for record in (without, garbage, lost):
        before = record.structure_id
        record.refresh_from_db()
        assert record.structure_id == before
    young.refresh_from_db()
    assert young.structure is None
