from __future__ import annotations

import threading
import uuid
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from records.pipeline.acquire import DUE, WAITING, acquire, is_ready
from records.pipeline.stages import STAGES
from records.states import FINAL, HaltReason, State
from tests.factories import make_record, make_user
from tests.rows import fill

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("state", [state for state in State if state != FINAL])
def test_a_record_in_each_unfinished_state_is_handed_out(state: State, now: datetime):
    record = make_record(state, now=now)

    acquisition = acquire(STAGES, now=now)

    assert acquisition is not None
    record.refresh_from_db()
    assert (acquisition.record_id, acquisition.id, acquisition.taken_over) == (record.pk, record.acquisition_id, False)
    assert record.acquire_expires_at == record.delay_time == now + STAGES[state].lease
    assert (record.work_started_at, record.attempts) == (now, 0)


def test_each_acquisition_has_a_value_of_its_own(now: datetime):
    make_record(now=now)

    first = acquire(STAGES, now=now)
    second = acquire(STAGES, now=now + timedelta(minutes=2))

    assert first is not None
    assert second is not None
    assert first.id != second.id


@pytest.mark.parametrize(
    "why",
    [
        pytest.param({"state": State.DONE, "progress": 1}, id="done"),
        pytest.param({"halted": True}, id="halted"),
        pytest.param({"delay_time": timedelta(seconds=1)}, id="delayed"),
        pytest.param({"acquisition_id": uuid.uuid4(), "delay_time": timedelta(seconds=50)}, id="held"),
    ],
)
def test_what_must_not_be_taken_is_neither_ready_nor_acquired(why: dict, now: datetime):
    columns = dict(why)
    if columns.pop("halted", False):
        columns |= {"halted_at": now, "halt_reason": HaltReason.STOPPED}
    if "delay_time" in columns:
        columns["delay_time"] = now + columns["delay_time"]
    if "acquisition_id" in columns:
        columns["acquire_expires_at"] = columns["delay_time"]
    make_record(now=now, **columns)

    assert not is_ready(now=now)
    assert acquire(STAGES, now=now) is None


def test_a_lease_that_ran_out_is_a_due_record_and_a_failure(now: datetime):
    record = make_record(now=now)
    acquire(STAGES, now=now)
    later = now + STAGES[State.UPLOADED].lease

    assert is_ready(now=later)
    acquisition = acquire(STAGES, now=later)

    assert acquisition is not None
    assert acquisition.taken_over
    record.refresh_from_db()
    assert record.attempts == 1


def test_the_longest_due_comes_first(now: datetime):
    late = make_record(now=now - timedelta(seconds=1))
    early = make_record(now=now - timedelta(seconds=5))

    taken = [acquire(STAGES, now=now), acquire(STAGES, now=now)]

    assert [acquisition and acquisition.record_id for acquisition in taken] == [early.pk, late.pk]


def test_a_record_is_acquired_by_name_only_while_it_is_due(now: datetime):
    other = make_record(now=now - timedelta(hours=1))
    wanted = make_record(now=now)

    acquisition = acquire(STAGES, now=now, record_id=wanted.pk)

    assert acquisition is not None
    assert acquisition.record_id == wanted.pk
    assert acquire(STAGES, now=now, record_id=wanted.pk) is None
    other.refresh_from_db()
    assert other.acquisition_id is None


@pytest.mark.django_db(transaction=True)
def test_no_record_is_taken_twice_by_eight_at_once(now: datetime):
    owner = make_user()
    made = {make_record(now=now, owner=owner).pk for _ in range(100)}
    taken: list[uuid.UUID] = []

    def take() -> None:
        try:
            while acquisition := acquire(STAGES, now=now):
                taken.append(acquisition.record_id)
        finally:
            connection.close()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == len(made)
    assert set(taken) == made


def _explain(sql: str, parameters: list) -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE audio_records")
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {sql}", parameters)
            return "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
        return "\n".join(row[3] for row in cursor.fetchall())


def test_acquiring_uses_its_index_whatever_the_archive(now: datetime):
    fill(now, done=100_000, waiting=1_000)
    with CaptureQueriesContext(connection) as captured:
        assert acquire(STAGES, now=now) is not None
    statements = [query["sql"] for query in captured if query["sql"].lstrip().startswith(("UPDATE", "WITH"))]

    assert len(statements) == 1
    for content in ("title", "brief", "transcript", "structure", "notes", "contents"):
        assert content not in statements[0]
    for sql in (DUE % f"'{now}'", statements[0]):
        plan = _explain(sql.replace("%", "%%"), [])
        assert "audio_records_due" in plan, plan
        assert "Seq Scan" not in plan, plan
        assert "SCAN audio_records" not in plan, plan
        assert "Sort" not in plan, plan
        assert "TEMP B-TREE" not in plan, plan


def test_the_predicate_is_the_index_s_own():
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'audio_records_due'")
            assert "WHERE ((NOT ((state)::text = 'done'::text)) AND (halted_at IS NULL))" in cursor.fetchone()[0]
        else:
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'audio_records_due'")
            assert WAITING in cursor.fetchone()[0].replace('"', "")
