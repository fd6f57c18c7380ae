from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from recognition import registry
from recognition.contract import Audio, Transient
from recognition.models import ProviderRemoval, Recognition
from recognition.operations import request_removal, work_off_removals
from records.models import AudioRecord
from records.operations.removal import remove
from records.states import State
from tests.factories import make_record
from tests.fakes.provider import ScriptedProvider

pytestmark = pytest.mark.django_db


def test_what_was_asked_for_is_removed_once(now, scripted: ScriptedProvider):
    request_removal([make_record(State.DONE, now=now).recognition], now=now)

    assert work_off_removals(now=now) == 1
    assert work_off_removals(now=now) == 0

    assert scripted.calls == ["remove_source", "remove_result"]


def test_a_provider_that_is_away_is_asked_again_ever_more_rarely(now, scripted: ScriptedProvider, monkeypatch):
    request_removal([make_record(State.DONE, now=now).recognition], now=now)

    def away(_: str) -> None:
        raise Transient("away", "Nobody answers.")

    with monkeypatch.context() as patch:
        patch.setattr(scripted, "remove_source", away)
        pauses = []
        for _ in range(4):
            assert work_off_removals(now=now) == 0
            due = ProviderRemoval.objects.get().delay_time
            pauses.append(due - now)
            now = due
    assert pauses == [timedelta(minutes=minutes) for minutes in (1, 2, 4, 8)]

    assert work_off_removals(now=now) == 1


def test_the_copy_goes_once_the_record_is_done(now, worker, scripted: ScriptedProvider):
    make_record(State.TRANSCRIBED, now=now)
    worker.work_once()
    assert work_off_removals(now=now) == 1
    assert scripted.calls == ["remove_source"]


def test_removing_a_record_takes_what_the_provider_has_along(now, scripted: ScriptedProvider):
    make_record(State.DONE, now=now)
    assert remove(AudioRecord.objects.all()) == 1
    work_off_removals(now=now + timedelta(days=36500))
    assert scripted.calls == ["remove_source", "remove_result"]


def test_a_local_engine_has_nothing_of_its_own_to_remove(now, worker, scripted: ScriptedProvider):
    record = make_record(State.TRANSCRIBED, now=now)
    record.recognition.source_uri = record.normalized_file.location
    record.recognition.save()
    worker.work_once()
    remove(AudioRecord.objects.all())
    assert ProviderRemoval.objects.count() == 0


def test_a_copy_that_a_later_attempt_reads_stays(now, scripted: ScriptedProvider):
    record = make_record(State.DONE, now=now)
    request_removal([record.recognition], now=now, result=False)
    later = Recognition.objects.create(
        record=record, provider="scripted", source_uri=record.recognition.source_uri, created=now + timedelta(minutes=1)
    )

    work_off_removals(now=now)
    assert "remove_source" not in scripted.calls

    request_removal([later], now=now + timedelta(minutes=2), result=False)  # its own end asks again
    work_off_removals(now=now + timedelta(minutes=2))
    assert scripted.calls == ["remove_source"]


def test_one_that_fails_holds_no_other_up(now, scripted: ScriptedProvider, monkeypatch):
    ProviderRemoval.objects.create(provider="nobody.Knows", source_uri="x", delay_time=now - timedelta(hours=1))
    request_removal([make_record(State.DONE, now=now).recognition], now=now, result=False)
    assert work_off_removals(now=now) == 1
    assert scripted.calls == ["remove_source"]


# ---- a record that goes while its copy is on the way ----------------------------------------------------------------------------------


class Copying(ScriptedProvider):
    """Has a bucket: `copies` are what lies there. `during` is called in the middle of an upload."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: set[str] = set()
        self.during: Callable[[], object] = lambda: None

    def copy_of(self, audio: Audio) -> str:
        return f"bucket:{audio.location}"

    def upload(self, audio: Audio) -> str:
        self.during()
        self.copies.add(self.copy_of(audio))
        return self.copy_of(audio)

    def remove_source(self, source_uri: str) -> None:
        self.copies.discard(source_uri)


@pytest.fixture
def copying(scripted: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> Copying:
    provider = Copying()
    registry.get.cache_clear()
    monkeypatch.setitem(registry.BUILT_IN, "scripted", lambda: provider)
    monkeypatch.setattr(registry, "default", lambda: provider)
    return provider


def test_a_record_removed_during_the_upload_leaves_no_copy(now, worker, copying: Copying):
    make_record(State.NORMALIZED, now=now)
    copying.during = lambda: (remove(AudioRecord.objects.all()), work_off_removals(now=now))

    worker.work_once()

    assert copying.copies, "it arrived after its record was gone"
    work_off_removals(now=timezone.now() + timedelta(hours=1))
    assert copying.copies == set()
    assert not ProviderRemoval.objects.exists()


def test_nor_does_one_whose_worker_was_killed_after_it(now, worker, copying: Copying):
    class Killed(BaseException):
        pass

    def killed() -> None:
        copying.copies.add(f"bucket:{AudioRecord.objects.get().normalized_file.location}")
        raise Killed

    make_record(State.NORMALIZED, now=now)
    copying.during = killed
    with pytest.raises(Killed):
        worker.work_once()

    remove(AudioRecord.objects.all())

    work_off_removals(now=timezone.now())
    assert copying.copies, "a worker that lives may still be at it"
    work_off_removals(now=timezone.now() + timedelta(hours=1))
    assert copying.copies == set()


def test_a_copy_is_sent_before_its_submission_also_by_who_comes_after(now, worker, copying: Copying):
    """That its link is known does not mean that it is there."""
    record = make_record(State.NORMALIZED, now=now)
    copying.during = lambda: AudioRecord.objects.update(acquisition_id=None, acquire_expires_at=None, delay_time=now)
    worker.work_once()
    copying.copies.clear()
    copying.during = lambda: None

    worker.work_once()

    record.refresh_from_db()
    assert record.state == State.SUBMITTED
    assert copying.copies == {record.recognition.source_uri}
