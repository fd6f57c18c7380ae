"""The same recording through every provider, by the real dispatch: rows of the same shape, and a change of the config changes none of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection

from recognition import operations as recognitions_of
from recognition import registry
from recognition.models import Recognition
from records.models import AudioRecord, File
from records.pipeline.dispatch import Worker
from records.pipeline.transitions import Rules
from records.states import State
from tests.conftest import Clock
from tests.contracts.conftest import RECORDING
from tests.factories import make_record
from tests.fakes import openai_server, speechkit_server
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.recognizers import LocalWhisper, bare
from tests.fakes.s3 import REGION, S3
from tests.fakes.speechkit_server import Plan, SpeechKitServer

pytestmark = pytest.mark.django_db

PROVIDERS = ("whisper", "speechkit", "openai")
SAID = "Good morning, everybody.\nWelcome to the meeting.\nToday we will talk about the weather in the mountains."


@pytest.fixture
def speechkit(s3: S3) -> Iterator[SpeechKitServer]:
    with SpeechKitServer(s3.url, recognizer=LocalWhisper(settings.DATA_DIR / "models", slow=False)) as server:
        yield server


@pytest.fixture
def openai() -> Iterator[OpenAIServer]:
    with OpenAIServer(recognizer=LocalWhisper(settings.DATA_DIR / "models")) as server:
        yield server


@pytest.fixture
def configure(s3: S3, speechkit: SpeechKitServer, openai: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write another provider into the config, and start again."""
    before = settings.TRANSCRIBER
    bucket = s3.make_bucket()

    def use(provider: str) -> None:
        config = replace(
            before,
            recognition=replace(before.recognition, provider=provider),
            whisper=replace(before.whisper, threads=os.cpu_count() or 1),
            speechkit=replace(
                before.speechkit, stt_url=speechkit.stt_url, operations_url=speechkit.operations_url, api_key=speechkit_server.API_KEY
            ),
            bucket=replace(
                before.bucket,
                endpoint_url=s3.url,
                region=REGION,
                name=bucket,
                access_key_id=s3.access_key_id,
                secret_access_key=s3.secret_access_key,
            ),
            openai=replace(before.openai, base_url=openai.base_url, api_key=openai_server.API_KEY),
        )
        monkeypatch.setattr(settings, "TRANSCRIBER", config)
        registry.get.cache_clear()

    yield use
    registry.get.cache_clear()


@pytest.fixture
def now_worker(rules: Rules) -> Worker:
    """A worker whose time is stepped on, from the present: the stand-ins live in it."""
    clock = Clock()
    clock.now = datetime.now(UTC)
    return Worker(clock=clock, rules=rules)


def recording(worker: Worker) -> AudioRecord:
    return make_record(now=worker.clock(), contents=RECORDING.read_bytes(), language="en")


def work(worker: Worker, record: AudioRecord, *, until: State = State.DONE) -> AudioRecord:
    for _ in range(200):
        worker.work_once(record.pk)
        record = AudioRecord.objects.select_related("structure", "transcript_text", "recognition").get(pk=record.pk)
        assert not record.halted_at, record.error_text
        if record.state == until:
            return record
        worker.clock.step(seconds=10)  # type: ignore[attr-defined]
    raise AssertionError(f"stands at {record.state}: {record.error_text}")


def recognition_of(record: AudioRecord) -> Recognition:
    assert record.recognition is not None
    return record.recognition


def said_in(record: AudioRecord) -> str:
    assert record.transcript_text is not None
    return record.transcript_text.contents


# ---- shapes -------------------------------------------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """Keys and types, without what they hold."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value)


def row_of(instance: Any) -> dict[str, Any]:
    return {field.attname: field.value_from_object(instance) for field in instance._meta.concrete_fields}


def test_rows_have_the_same_shape_whoever_recognized(configure: Callable[[str], None], now_worker: Worker) -> None:
    structures, recognitions = {}, {}
    for name in PROVIDERS:
        configure(name)
        record = work(now_worker, recording(now_worker))

        assert said_in(record) == SAID, name
        structure = record.structure
        assert structure is not None
        structures[name] = {**row_of(structure), "contents": shape(structure.contents)}
        words = [word["text"] for utterance in structure.contents["utterances"] for word in utterance["words"]]
        assert [bare(word) for word in words] == [bare(word) for word in SAID.split()]
        recognition = recognition_of(record)
        assert (recognition.provider, recognition.model) == (registry.get(name).name, registry.get(name).model)
        assert recognitions_of.read_payload(recognition), "no raw answer was kept"
        assert bool(recognition.submit_started_at) == registry.get(name).costs_money
        recognitions[name] = {key: bool(value) for key, value in row_of(recognition).items() if key != "submit_started_at"}

    assert structures["whisper"]["contents"] == structures["speechkit"]["contents"] == structures["openai"]["contents"]
    assert len({structures[name]["version"] for name in PROVIDERS}) == 1
    assert {structures[name]["language"].split("-")[0] for name in PROVIDERS} == {"en"}
    assert recognitions["whisper"] == recognitions["speechkit"] == recognitions["openai"]
    assert all(recognitions["whisper"].values()), "a column of recognitions is empty"


# ---- a change of the config ---------------------------------------------------------------------------------------------------------


def rows(records: list[AudioRecord]) -> dict[str, list[Any]]:
    """All that belongs to these records, table by table as the database holds it, and the bytes of all files."""
    found: dict[str, list[Any]] = {}
    ids: dict[str, list[Any]] = {
        "audio_records": [record.pk for record in records],
        "structures": [record.structure_id for record in records],
        "texts": [record.transcript_text_id for record in records],
        "files": [pk for record in records for pk in (record.original_file_id, record.normalized_file_id)],
    }
    columns = {**dict.fromkeys(ids, "id"), "recognitions": "record_id", "record_events": "record_id"}
    with connection.cursor() as cursor:
        for table, column in columns.items():
            pks = [pk.hex if connection.vendor == "sqlite" else pk for pk in ids.get(table, ids["audio_records"])]
            cursor.execute(f"SELECT * FROM {table} WHERE {' OR '.join([f'{column} = %s'] * len(pks))} ORDER BY id", pks)
            found[table] = cursor.fetchall()
    assert all(found.values())
    found["bytes"] = [recognitions_of.read_payload(row) for row in Recognition.objects.filter(record__in=records).order_by("pk")]
    for location in File.objects.filter(pk__in=ids["files"]).order_by("pk").values_list("location", flat=True):
        with default_storage.open(location) as file:
            found["bytes"].append(file.read())
    return found


def test_another_provider_in_the_config_changes_no_row_and_no_waiting_recognition(
    configure: Callable[[str], None], now_worker: Worker, speechkit: SpeechKitServer, openai: OpenAIServer
) -> None:
    done = []
    for name in PROVIDERS:
        configure(name)
        done.append(work(now_worker, recording(now_worker)))
    waiting = {}
    speechkit.plan = Plan(never=True)
    for name in PROVIDERS:
        configure(name)
        waiting[name] = work(now_worker, recording(now_worker), until=State.SUBMITTED)
    before, paid = rows(done), (speechkit.paid, openai.accepted)

    for other in ("whisper", "openai", "speechkit"):
        configure(other)
        fresh = work(now_worker, recording(now_worker), until=State.SUBMITTED)
        assert recognition_of(fresh).provider == other
        assert rows(done) == before
    configure("whisper")
    speechkit.finish()
    for name, record in waiting.items():
        record = work(now_worker, record)
        assert (recognition_of(record).provider, said_in(record)) == (name, SAID)
        assert Recognition.objects.filter(record=record).count() == 1

    assert rows(done) == before
    assert (speechkit.paid, openai.accepted) == (paid[0] + 1, paid[1] + 1), "paid for by the fresh recordings alone"
