"""Every recording of ../shared/inputs, sent over the API, taken through the real pipeline with the real engine, and read over the API."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from knox.models import AuthToken
from rest_framework.test import APIClient

from recognition import registry
from recognition.providers.whisper import WhisperProvider
from records.models import AudioRecord
from records.pipeline.dispatch import Worker
from tests.factories import make_user
from tests.inputs import NEIGHBOUR, inputs_dir, load_expectations, recordings  # noqa: F401 - inputs_dir is a fixture

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("whisper"), pytest.mark.no_database]

TRACKS = {
    "two_tracks_hum_first.mkv": ["other_tracks", "track_2"],
    "call_on_two_tracks.mp4": ["other_tracks", "other_speech"],
    "film_two_languages.mkv": ["other_tracks", "other_speech"],
}
"""What is noted of recordings with more than one track."""


@pytest.fixture(scope="session")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> WhisperProvider:
    models = settings.DATA_DIR / "models"
    return WhisperProvider(model="base", models_dir=models, threads=2, open_source=registry.open_source)


@pytest.fixture
def api() -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {AuthToken.objects.create(make_user())[1]}")
    return client


@pytest.mark.parametrize("name", recordings())
def test_what_a_person_gets(name: str, inputs_dir: Path, api: APIClient, whisper, monkeypatch):  # noqa: F811
    wanted = load_expectations(inputs_dir)[name]
    monkeypatch.setattr(registry, "get", lambda _: whisper)
    bytes_ = (inputs_dir / name).read_bytes()

    sent = api.post("/api/v1/records/", {"file": SimpleUploadedFile(name, bytes_)}, format="multipart")
    if sent.status_code != 202:
        assert wanted.expect in ("reject", "either")
        assert 400 <= sent.status_code < 500
        assert sent.json()["errors"][0]["code"] in wanted.codes
        assert not AudioRecord.objects.exists()
        return
    # Somebody else's recording, where a playlist would look for it.
    record = AudioRecord.objects.select_related("original_file").get()
    shutil.copy(inputs_dir / NEIGHBOUR, Path(default_storage.path(record.original_file.location)).with_name(NEIGHBOUR))
    worker = Worker()
    while worker.work_once():
        pass

    answer = api.get(sent.headers["Location"]).json()
    if answer["halted"]:
        assert wanted.expect in ("reject", "either")
        assert (answer["halt_reason"], answer["error"]["code"] in wanted.codes) == ("rejected", True), answer["error"]
        assert answer["error"]["message"].endswith(".")
        assert name not in answer["error"]["message"]
        return
    assert wanted.expect in ("accept", "either")
    assert answer["status"] == "done"
    assert answer["duration_ms"] / 1000 == pytest.approx(wanted.duration_s, abs=wanted.tolerance_s)
    assert bool(answer["notes"]) or not wanted.partial
    assert set(TRACKS.get(name, ())) <= set(answer["notes"])
    transcript = api.get(f"/api/v1/records/{record.pk}/transcript.json").json()
    said = " ".join(utterance["text"] for utterance in transcript["utterances"]).lower()
    for word in wanted.must_not_say:
        assert word not in said
    if wanted.silent:
        assert transcript["utterances"] == []
    else:
        assert said
        spans = [(s["from"] - wanted.slack_s, s["to"] + wanted.slack_s) for option in wanted.said_options for s in option]
        for utterance in transcript["utterances"]:
            middle = (utterance["start_ms"] + utterance["end_ms"]) / 2000
            assert any(begin <= middle <= end for begin, end in spans), utterance
