from __future__ import annotations

from datetime import datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from recognition import operations as recognitions
from recognition.models import Recognition
from recognition.operations import attempts
from records.states import State
from tests.factories import make_record

pytestmark = pytest.mark.django_db


def attempt(now: datetime, external_id: str, *, is_answered: bool = True, provider: str = "scripted") -> Recognition:
    recognition = make_record(State.SUBMITTED, now=now).recognition
    assert recognition is not None
    recognition.provider, recognition.external_id = provider, external_id
    recognition.payload = "payloads/answer.raw" if is_answered else ""
    recognition.save()
    return recognition


def test_others_are_the_newest_of_the_provider_with_and_without_an_answer(now: datetime):
    attempt(now, "old", is_answered=False)
    attempt(now, "under way", is_answered=False)
    attempt(now, "answered")
    attempt(now, "elsewhere", provider="other")
    attempt(now, "", is_answered=False)
    own = attempt(now, "own", is_answered=False)
    assert recognitions.others_of(own) == ["answered", "under way"]


def test_others_are_not_searched_for_in_the_whole_archive(now: datetime, monkeypatch: pytest.MonkeyPatch):
    """Where all are answered, there is none to be found that is not, however far one looks."""
    monkeypatch.setattr(attempts, "LOOK_AMONG", 3)
    attempt(now, "forgotten", is_answered=False)
    for number in range(3):
        attempt(now, f"answered {number}")
    own = attempt(now, "own", is_answered=False)

    with CaptureQueriesContext(connection) as captured:
        assert recognitions.others_of(own) == ["answered 2"]

    assert len(captured) == 1
    assert "LIMIT 3" in captured[0]["sql"]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by the number of rows, and here are few")
def test_an_index_has_them_in_order(now: datetime):
    own = attempt(now, "own")
    with CaptureQueriesContext(connection) as captured:
        recognitions.others_of(own)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {captured[0]['sql']}")
        plan = " ".join(row[3] for row in cursor.fetchall())
    assert "recognitions_of_provider" in plan
    assert "TEMP B-TREE" not in plan
