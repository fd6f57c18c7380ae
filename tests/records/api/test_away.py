"""What the service leans on is away: said with 503 and when to try again, and nothing half done."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.core.files.storage import default_storage
from django.db import InterfaceError, OperationalError, connection
from rest_framework.test import APIClient

from records.models import AudioRecord, File
from records.operations.housekeeping import SHARDS, sweep
from records.states import State
from tests.factories import make_record
from tests.records.api.conftest import code_of
from tests.records.api.forms import RECORDS, form, part, post

pytestmark = pytest.mark.django_db


def is_away(answer: Any, code: str) -> bool:
    assert (answer.status_code, code_of(answer)) == (503, code)
    assert 0 < int(answer["Retry-After"]) < 3600
    return True


def send(api: APIClient, sound: bytes) -> Any:
    return post(api, form(part("file", sound, filename="talk.wav")))


# ---- the storage ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["mkdir", "open", "fsync", "hardlink_to"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EROFS])
def test_a_disk_that_fails_takes_nothing_in(place: str, number: int, api, sound, stored, monkeypatch):
    def fails(*_: Any, **__: Any) -> NoReturn:
        raise OSError(number, os.strerror(number), "/a/path/of/ours")

    with monkeypatch.context() as patch:
        patch.setattr(f"records.storage.local.Path.{place}" if place in ("mkdir", "hardlink_to") else f"os.{place}", fails)
        answer = send(api, sound)

    assert is_away(answer, "storage_unavailable")
    assert "/a/path" not in answer.content.decode()
    assert stored() == []
    assert not AudioRecord.objects.exists()
    assert not File.objects.exists()
    assert send(api, sound).status_code == 202


@pytest.mark.parametrize("which", ["original", "normalized"])
@pytest.mark.parametrize("method", ["get", "head"])
def test_a_recording_that_can_t_be_read_now(which: str, method: str, api, anna, now, monkeypatch):
    record = make_record(State.DONE, owner=anna, now=now)

    def fails(*_: Any, **__: Any) -> NoReturn:
        raise OSError("the object storage did not answer (EndpointConnectionError)")

    monkeypatch.setattr(type(default_storage), "open", fails, raising=False)
    answer = getattr(api, method)(f"{RECORDS}{record.pk}/audio/{which}/")

    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    if method == "get":
        assert is_away(answer, "storage_unavailable")


def test_a_transcript_needs_no_storage(api, anna, now, monkeypatch):
    record = make_record(State.DONE, owner=anna, now=now)
    monkeypatch.setattr(type(default_storage), "open", None, raising=False)
    assert api.get(f"{RECORDS}{record.pk}/transcript.txt").status_code == 200


# ---- the database ---------------------------------------------------------------------------------------------------------------------


SAID = "connection to server at 10.0.0.7 failed: password hunter2"


@pytest.fixture(params=[OperationalError, InterfaceError])
def database_away(request: pytest.FixtureRequest):
    def fails(*_: Any) -> NoReturn:
        raise request.param(SAID)

    return lambda: connection.execute_wrapper(fails)


CALLS = [
    ("get", ""),
    ("get", "{pk}/"),
    ("patch", "{pk}/"),
    ("delete", "{pk}/"),
    ("post", "{pk}/resume/"),
    ("post", "{pk}/halt/"),
    ("get", "{pk}/events/"),
    ("get", "{pk}/transcript.txt"),
    ("get", "{pk}/transcript.srt"),
    ("get", "{pk}/audio/original/"),
    ("get", "{pk}/audio/normalized/"),
]


@pytest.mark.parametrize(("method", "address"), CALLS)
def test_every_call_says_that_the_database_is_away(method: str, address: str, database_away, api, anna, now, caplog):
    record = make_record(State.DONE, owner=anna, now=now)

    with database_away():
        answer = getattr(api, method)(RECORDS + address.format(pk=record.pk))

    assert is_away(answer, "database_unavailable")
    assert "hunter2" not in answer.content.decode() + caplog.text
    assert AudioRecord.objects.filter(pk=record.pk, state=State.DONE).exists()


def test_a_recording_is_not_half_taken_in(database_away, api, sound, stored):
    with database_away():
        answer = send(api, sound)

    assert is_away(answer, "database_unavailable")
    assert stored() == []
    assert not AudioRecord.objects.exists()


def test_nor_is_one_whose_database_goes_away_at_the_very_end(api, sound, stored, now):
    """Its file stays only as long as nobody can say whether there is a record: then housekeeping takes it."""

    def fails(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("INSERT") or 'AS "a" FROM "audio_records"' in statement:
            raise OperationalError("the connection is closed")
        return execute(statement, *rest)

    with connection.execute_wrapper(fails):
        answer = send(api, sound)

    assert is_away(answer, "database_unavailable")
    assert not AudioRecord.objects.exists()
    [left] = stored()
    os.utime(left, (0, 0))
    for shard in range(SHARDS):
        sweep(now=now + timedelta(days=1), shard=shard)
    assert stored() == []
