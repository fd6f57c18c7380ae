from __future__ import annotations

from datetime import timedelta

import pytest

from recognition.contract import Transient
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
