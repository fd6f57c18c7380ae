from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.pipeline.acquire import Acquisition, acquire
from records.pipeline.dispatch import Worker
from records.pipeline.heartbeat import DeadlinePassed, Heartbeat, Interrupted, LeaseLost, Stopping
from records.pipeline.outcomes import Advance
from records.pipeline.stages import STAGES
from records.states import Origin, State
from tests.factories import make_record

pytestmark = pytest.mark.django_db

LEASE = timedelta(minutes=1)


@pytest.fixture
def held(clock) -> Acquisition:
    make_record(now=clock.now)
    acquisition = acquire(STAGES, now=clock.now)
    assert acquisition is not None
    return acquisition


def beating(held: Acquisition, clock, **more: Any) -> Heartbeat:
    return Heartbeat(held, **{"lease": LEASE, "deadline": timedelta(hours=1), "clock": clock, **more})


def test_the_lease_is_renewed_long_before_it_ends(held, clock):
    heartbeat = beating(held, clock)
    record = AudioRecord.objects.get()
    first_end = record.delay_time

    clock.step(seconds=19)
    heartbeat.tick()
    record.refresh_from_db()
    assert record.delay_time == first_end

    clock.step(seconds=1)
    heartbeat.tick()
    record.refresh_from_db()
    assert record.delay_time == record.acquire_expires_at == clock.now + LEASE
    assert acquire(STAGES, now=first_end) is None


def test_work_of_hours_is_never_taken_over_while_it_lives(held, clock):
    heartbeat = beating(held, clock, deadline=timedelta(hours=9))
    for _ in range(8 * 60 * 3):
        clock.step(seconds=20)
        heartbeat.tick()
        assert acquire(STAGES, now=clock.now) is None
    heartbeat.beat()


def test_progress_is_carried_but_not_at_every_beat(held, clock, django_assert_num_queries):
    heartbeat = beating(held, clock)
    with django_assert_num_queries(1):
        for hundredth in range(30):
            heartbeat.beat(hundredth / 100)
            clock.step(seconds=0.1)
            heartbeat.tick()
    assert AudioRecord.objects.get().progress == pytest.approx(0.19, abs=0.011)


@pytest.mark.parametrize(("said", "kept"), [(-0.5, 0.0), (1.7, 1.0)])
def test_progress_stays_a_fraction(said, kept, held, clock):
    heartbeat = beating(held, clock)
    heartbeat.beat(said)
    clock.step(seconds=20)
    heartbeat.tick()
    assert AudioRecord.objects.get().progress == kept


def test_a_lost_lease_interrupts(held, clock):
    heartbeat = beating(held, clock)
    control.halt(AudioRecord.objects.all(), by=By(Origin.ADMIN), now=clock.now)
    heartbeat.beat()
    clock.step(seconds=20)
    heartbeat.tick()
    with pytest.raises(LeaseLost):
        heartbeat.beat()


def test_past_the_deadline_it_interrupts_and_renews_no_more(held, clock):
    heartbeat = beating(held, clock, deadline=timedelta(minutes=5))
    clock.step(minutes=5)
    heartbeat.tick()
    with pytest.raises(DeadlinePassed):
        heartbeat.beat()
    assert acquire(STAGES, now=clock.now) is not None


def test_being_told_to_stop_interrupts_at_once(held, clock):
    heartbeat = beating(held, clock, stop=lambda: True)
    with pytest.raises(Stopping):
        heartbeat.beat(0.5)


def test_a_database_that_is_away_costs_the_lease_only_when_it_has_run_out(held, clock, monkeypatch):
    heartbeat = beating(held, clock)

    def away(*_: Any, **__: Any) -> None:
        raise DatabaseError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("records.models.audio_record.AudioRecordQuerySet.update", away)
        for _ in range(2):
            clock.step(seconds=25)
            heartbeat.tick()
            heartbeat.beat()
        clock.step(seconds=10)
        heartbeat.tick()
    with pytest.raises(LeaseLost):
        heartbeat.beat()


def test_the_last_resort_comes_after_a_grace_and_only_while_the_step_runs(held, clock):
    called: list[Interrupted] = []
    heartbeat = beating(held, clock, stop=lambda: True, last_resort=called.append)
    heartbeat.tick()
    clock.step(seconds=2.9)
    heartbeat.tick()
    assert called == []
    clock.step(seconds=0.1)
    heartbeat.tick()
    assert [type(reason) for reason in called] == [Stopping]

    heartbeat._ended.set()
    heartbeat.tick()
    assert len(called) == 1


def test_what_is_paid_for_is_not_broken_off_by_a_lost_record(held, clock):
    called: list[Interrupted] = []
    heartbeat = beating(held, clock, last_resort=called.append)
    control.halt(AudioRecord.objects.all(), by=By(Origin.ADMIN), now=clock.now)
    with heartbeat.unhurried():
        for _ in range(3):
            clock.step(seconds=20)
            heartbeat.tick()
            heartbeat.beat()
        assert called == []
    with pytest.raises(LeaseLost):
        heartbeat.beat()


def test_what_is_paid_for_has_longer_to_end_when_told_to_stop(held, clock):
    called: list[Interrupted] = []
    heartbeat = beating(held, clock, stop=lambda: True, last_resort=called.append)
    with heartbeat.unhurried():
        heartbeat.tick()
        clock.step(seconds=5.9)
        heartbeat.tick()
        assert called == []
        clock.step(seconds=0.1)
        heartbeat.tick()
    assert [type(reason) for reason in called] == [Stopping]


def test_a_step_told_to_stop_gives_its_record_back_unharmed(table, clock, rules):
    record = make_record(now=clock.now)
    worker = Worker(table=table, clock=clock, rules=rules, stop=lambda: True)
    table.script(State.UPLOADED, lambda heartbeat, **_: heartbeat.beat())

    assert worker.work_once()

    record.refresh_from_db()
    assert (record.acquisition_id, record.attempts, record.state, record.delay_time) == (None, 0, State.UPLOADED, clock.now)
    assert record.events.count() == 0


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(1)])
def test_a_person_s_interruption_gives_the_record_back_and_passes_on(interruption, engine: Worker, table, clock):
    record = make_record(now=clock.now)
    table.script(State.UPLOADED, interruption)

    with pytest.raises(type(interruption)):
        engine.work_once()

    record.refresh_from_db()
    assert (record.acquisition_id, record.attempts) == (None, 0)


def test_a_step_past_its_deadline_has_failed(engine: Worker, table, clock):
    record = make_record(now=clock.now)

    def too_slow(heartbeat: Heartbeat, **_: Any) -> Advance:
        clock.step(hours=3)
        heartbeat.tick()
        heartbeat.beat()
        return Advance()

    table.script(State.UPLOADED, too_slow)

    engine.work_once()

    record.refresh_from_db()
    assert (record.attempts, record.error_code) == (1, "deadline")
