from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from records.models import AudioRecord
from records.pipeline.dispatch import Worker
from records.states import State
from tests.factories import make_record
from tests.fakes.provider import HELLO, ScriptedProvider, payload_of


@pytest.mark.django_db(transaction=True)
def test_a_connection_cut_during_recognition_costs_nothing(worker: Worker, scripted: ScriptedProvider, clock, settings) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connections that could be cut")
    record = make_record(State.SUBMITTED, now=clock.now)
    connection.ensure_connection()
    url = "postgresql://{USER}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)

    def answer(heartbeat: object) -> bytes:
        with psycopg.connect(url, autocommit=True) as other:
            mine = connection.connection.info.backend_pid
            assert other.execute("SELECT pg_terminate_backend(%s)", [mine]).fetchone() == (True,)
        return payload_of(HELLO)

    scripted.answers = [answer]

    worker.work_once()

    record = AudioRecord.objects.get(pk=record.pk)
    assert (record.state, record.attempts) == (State.TRANSCRIBED, 0)
    assert scripted.calls.count("poll") == 1


@pytest.mark.django_db(transaction=True)
def test_a_connection_cut_during_a_paid_submission_does_not_lose_the_id(worker: Worker, scripted: ScriptedProvider, clock) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connections that could be cut")
    record = make_record(State.NORMALIZED, now=clock.now)
    scripted.costs_money = True
    url = "postgresql://{USER}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    submit = scripted.submit

    def cut_and_submit(*arguments: object) -> object:
        accepted = submit(*arguments)  # type: ignore[arg-type]
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        return accepted

    scripted.submit = cut_and_submit  # type: ignore[method-assign, assignment]

    worker.work_once()

    record = AudioRecord.objects.select_related("recognition").get(pk=record.pk)
    assert (record.state, record.attempts, scripted.submitted) == (State.SUBMITTED, 0, 1)
    assert record.recognition is not None
    assert record.recognition.external_id
