from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from records.models import SeatedWorker
from transcriber import database, health

pytestmark = pytest.mark.django_db


def seat_a_worker(ago: timedelta = timedelta(0)) -> SeatedWorker:
    seen = timezone.now() - ago
    return SeatedWorker.objects.create(cluster=uuid.uuid4(), seat=0, host="here", pid=1, started_at=seen, seen_at=seen)


def test_the_process_serves_without_looking_at_anything(client: Client):
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/healthz").content == b"ok\n"
    assert not queries


def test_all_is_well_and_to_ask_is_cheap(client: Client):
    seat_a_worker()
    client.get("/readyz")  # the first look of a process compares the migrations themselves, later ones their number

    with CaptureQueriesContext(connection) as queries:
        answer = client.get("/readyz")

    assert (answer.status_code, answer.json()) == (200, {"ready": True, "problems": {}})
    assert len(queries) == (3 if connection.vendor == "postgresql" else 2)  # a server may be a standby; a file shows that by itself


def test_without_a_living_worker_it_is_not_ready(client: Client):
    seat_a_worker(timedelta(minutes=2))

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "problems": {"workers": "No worker has given a sign of life for a minute."}}


def test_where_no_workers_are_wanted_none_are_missed(client: Client, monkeypatch: pytest.MonkeyPatch):
    config = settings.TRANSCRIBER
    monkeypatch.setattr(settings, "TRANSCRIBER", replace(config, pipeline=replace(config.pipeline, workers=0)))

    assert client.get("/readyz").status_code == 200


def test_a_database_that_is_away_is_named_without_its_words(client: Client, monkeypatch: pytest.MonkeyPatch, caplog):
    def fail() -> None:
        raise OperationalError("the password is hunter2")

    monkeypatch.setattr(database, "look", fail)

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["problems"] == {"database": "The database does not answer (OperationalError)."}
    assert "hunter2" not in caplog.text


def test_a_full_disk_is_named(client: Client, monkeypatch: pytest.MonkeyPatch):
    seat_a_worker()
    free = shutil.disk_usage(settings.DATA_DIR).free
    monkeypatch.setattr(health, "SPACE_NEEDED", free * 2)

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert "disk is full" in answer.json()["problems"]["storage"]


def test_a_folder_that_can_not_be_made_is_named(client: Client, tmp_path: Path):
    seat_a_worker()
    Path(default_storage.path("")).parent.joinpath("media").write_text("a file stands where the folder should be")

    problems = client.get("/readyz").json()["problems"]

    assert problems == {"storage": "The storage does not answer (FileExistsError)."}


def test_an_object_storage_is_asked_whether_it_answers(client: Client, monkeypatch: pytest.MonkeyPatch):
    class Away:
        def path(self, name: str) -> str:
            raise NotImplementedError

        def exists(self, name: str) -> bool:
            raise OSError("the object storage did not answer")

    seat_a_worker()
    monkeypatch.setattr(health, "default_storage", Away())

    assert client.get("/readyz").json()["problems"] == {"storage": "The storage does not answer (OSError)."}
