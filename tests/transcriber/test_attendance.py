from __future__ import annotations

import os
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from records.models import SeatedWorker
from records.pipeline.dispatch import Worker
from tests.factories import make_record
from transcriber import attendance
from transcriber.seats import Seats, cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Seats:
    """Two seats, in the second of which somebody sits (elsewhere: a process does not see its own locks)."""
    ours = Seats(2)
    assert ours.take(1)
    monkeypatch.setattr(ours, "free", lambda: [0])
    monkeypatch.setattr(attendance, "seats", ours)
    return ours


def test_who_sits_is_reported_with_what_he_does(seats, now):
    record_id = uuid.uuid4()
    seats.hold(1, record_id)

    attendance.report(now=now)

    row = SeatedWorker.objects.get()
    assert (row.cluster, row.seat, row.pid, row.record_id, row.seen_at) == (cluster, 1, os.getpid(), record_id, now)
    assert abs(row.started_at - timezone.now()) < timedelta(minutes=1)


def test_a_later_report_takes_the_place_of_the_former(seats, now):
    seats.hold(1, uuid.uuid4())
    attendance.report(now=now)
    seats.hold(1, None)

    attendance.report(now=now + timedelta(seconds=15))

    row = SeatedWorker.objects.get()
    assert (row.record_id, row.seen_at, row.created) == (None, now + timedelta(seconds=15), now)


def test_two_clusters_are_counted_together_and_who_is_not_seen_is_gone(seats, now, monkeypatch):
    attendance.report(now=now)
    monkeypatch.setattr(attendance, "cluster", uuid.uuid4())
    attendance.report(now=now + timedelta(seconds=30))

    def alive(seconds: int) -> int:
        return SeatedWorker.objects.alive(now=now + timedelta(seconds=seconds)).count()

    assert [alive(31), alive(61), alive(91)] == [2, 1, 0]


def test_rows_that_nobody_needs_are_removed_after_a_day(seats, now, monkeypatch):
    attendance.report(now=now)
    another = uuid.uuid4()
    monkeypatch.setattr(attendance, "cluster", another)

    attendance.report(now=now + timedelta(days=1, seconds=1))

    assert SeatedWorker.objects.get().cluster == another


def test_a_worker_tells_what_it_works_on(now, clock, rules, scripted):
    record = make_record(now=now)
    told: list[uuid.UUID | None] = []

    Worker(clock=clock, rules=rules, holding=told.append).work_once()

    assert told == [record.pk, None]
