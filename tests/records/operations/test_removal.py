from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage, storages
from django.db import connection, transaction

from recognition.models import Recognition
from recognition.operations import keep_payload
from records.models import AudioRecord, File, IntakeKey, RecordEvent, Structure, Text
from records.operations import control
from records.operations.control import By
from records.operations.removal import remove
from records.pipeline.acquire import acquire
from records.pipeline.dispatch import Worker
from records.states import Origin, State
from tests.factories import make_record, wav_bytes
from topics.models import Topic

ROWS = (AudioRecord, File, Structure, Text, Recognition, RecordEvent, IntakeKey)


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], list[Path]]:
    return lambda: [path for path in (tmp_path / "media").rglob("*") if path.is_file()]


def nothing_is_left(files: Callable[[], list[Path]]) -> bool:
    return not files() and not any(model.objects.exists() for model in ROWS)


@pytest.mark.django_db(transaction=True)
class TestEverythingGoes:
    @pytest.mark.parametrize("state", State)
    def test_in_every_state(self, state, now, files):
        record = make_record(state, now=now)
        record.topics.add(topic := Topic.objects.create(owner=record.owner, name="work"))
        IntakeKey.objects.create(owner=record.owner, key="k", digest="d", record=record)
        if state != State.DONE:
            control.halt(AudioRecord.objects.all(), by=By(Origin.API), now=now)
        for attempt in Recognition.objects.all():
            attempt.payload.save("", ContentFile(b"raw"))
            # An earlier attempt that was restarted from leaves its answer as well.
            Recognition.objects.create(record=record, provider="scripted").payload.save("", ContentFile(b"raw"))
        assert files()

        assert remove(AudioRecord.objects.filter(pk=record.pk)) == 1

        assert nothing_is_left(files)
        assert list(Topic.objects.all()) == [topic]
        assert not default_storage.exists(record.folder)

    def test_others_stay(self, now, files):
        record, other = make_record(State.DONE, now=now), make_record(State.DONE, now=now)

        remove(AudioRecord.objects.filter(pk=record.pk))

        assert AudioRecord.objects.get() == other
        assert sorted(default_storage.path(file.location) for file in File.objects.all()) == sorted(map(str, files()))
        assert (Structure.objects.count(), Text.objects.count(), Recognition.objects.count()) == (1, 1, 1)

    def test_bytes_stay_until_the_removal_is_committed(self, now, files):
        make_record(State.DONE, now=now)

        with transaction.atomic():
            remove(AudioRecord.objects.all())
            assert len(files()) == 2
            transaction.set_rollback(True)

        assert len(files()) == 2
        assert AudioRecord.objects.exists()

    def test_a_file_that_can_t_be_removed_does_not_keep_the_record(self, now, files, monkeypatch, caplog):
        make_record(now=now)
        monkeypatch.setattr(type(storages["default"]), "delete", _denied)

        assert remove(AudioRecord.objects.all()) == 1

        assert not AudioRecord.objects.exists()
        assert "could not be removed: PermissionError" in caplog.text

    def test_removed_by_two_at_once(self, now):
        make_record(State.DONE, now=now)
        removed: list[int] = []

        def act() -> None:
            start.wait()
            removed.append(remove(AudioRecord.objects.all()))
            connection.close()

        start = threading.Barrier(2)
        threads = [threading.Thread(target=act) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(removed) == [0, 1]


def _denied(*_: object) -> None:
    raise PermissionError


@pytest.mark.django_db(transaction=True)
class TestWhileItIsWorkedOn:
    """Whoever works on it finds out, says nothing, and leaves nothing behind."""

    @pytest.fixture(autouse=True)
    def _quiet(self, caplog):
        caplog.set_level(logging.INFO)
        yield
        assert [entry for entry in caplog.get_records("call") if entry.levelno >= logging.WARNING] == []

    def test_normalized(self, worker, scripted, clock, tmp_path, files, monkeypatch):
        from records import audio

        make_record(now=clock.now, contents=wav_bytes(tmp_path))
        normalize = audio.normalize

        def normalize_and_remove(*arguments, **options):
            made = normalize(*arguments, **options)
            remove(AudioRecord.objects.all())
            return made

        monkeypatch.setattr(audio, "normalize", normalize_and_remove)

        assert worker.work_once()

        assert nothing_is_left(files)

    def test_submitted(self, worker, scripted, clock, files, monkeypatch):
        make_record(State.NORMALIZED, now=clock.now)
        submit = scripted.submit

        def submit_and_remove(*arguments):
            remove(AudioRecord.objects.all())
            return submit(*arguments)

        monkeypatch.setattr(scripted, "submit", submit_and_remove)

        assert worker.work_once()

        assert nothing_is_left(files)

    def test_recognized(self, worker, scripted, clock, files):
        make_record(State.SUBMITTED, now=clock.now)
        answer = scripted.answers[0]

        def removed_meanwhile(heartbeat: object):
            remove(AudioRecord.objects.all())
            return answer

        scripted.answers = [removed_meanwhile]

        assert worker.work_once()

        assert nothing_is_left(files)
        assert not worker.work_once()

    def test_just_acquired(self, worker: Worker, scripted, clock, files, monkeypatch):
        make_record(now=clock.now)

        def acquire_and_lose(*arguments, **options):
            acquisition = acquire(*arguments, **options)
            remove(AudioRecord.objects.all())
            return acquisition

        monkeypatch.setattr("records.pipeline.dispatch.acquire", acquire_and_lose)

        assert worker.work_once()

        assert nothing_is_left(files)


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_is_being_kept_is_removed_as_well(now, files):
    record = make_record(State.SUBMITTED, now=now)
    attempt = record.recognition
    assert attempt is not None
    kept = threading.Event()

    def keep() -> None:
        keep_payload(attempt, b"raw", now=now)
        kept.set()
        connection.close()

    thread = threading.Thread(target=keep)
    thread.start()
    remove(AudioRecord.objects.all())
    thread.join()

    assert kept.is_set()
    assert nothing_is_left(files)
