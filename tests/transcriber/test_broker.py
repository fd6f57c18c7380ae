from __future__ import annotations

import pytest
from django.db import OperationalError
from django_q.brokers.orm import ORM

from transcriber import broker, seats
from transcriber.broker import RecordBroker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "tokens", list)


def test_seats_come_before_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "tokens", lambda: ["a seat"])
    monkeypatch.setattr(ORM, "dequeue", lambda broker: pytest.fail("tasks were looked for"))

    assert RecordBroker("transcriber").dequeue() == [(None, "a seat")]


def test_ordinary_tasks_are_handed_out_too() -> None:
    queue = RecordBroker("transcriber")
    key = queue.enqueue("a task")

    assert queue.dequeue() == [(key, "a task")]


def test_a_database_that_is_away_does_not_end_the_pusher(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(broker: ORM) -> None:
        raise OperationalError("the words of the database")

    slept: list[float] = []
    monkeypatch.setattr(ORM, "dequeue", fail)
    monkeypatch.setattr("transcriber.broker.connections.close_all", lambda: None)
    monkeypatch.setattr("transcriber.broker.time.sleep", slept.append)

    assert RecordBroker("transcriber").dequeue() is None
    assert slept == [broker.PAUSE_S]
    assert "OperationalError" in caplog.text
