from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from records import history
from records.models import AudioRecord, JournalQuarter, RecordEvent, Tally, TallyMark
from records.operations import tally
from records.operations.removal import remove
from records.states import EventOutcome, Origin
from tests.factories import make_record

pytestmark = pytest.mark.django_db

KINDS = (("normalize", "failed"), ("poll", "advanced"), ("submit", "halted"))


def write(
    record: AudioRecord, *, created: datetime, step: str = "poll", outcome: str = EventOutcome.ADVANCED, ms: int | None = 1500
) -> None:
    RecordEvent.objects.create(record=record, created=created, step=step, outcome=outcome, origin=Origin.WORKER, duration_ms=ms)


def counts() -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for kind in tally.counted():
        found[kind.step, kind.outcome] += kind.runs
    return found


def test_all_that_was_ever_written_is_counted_whenever_it_settles_and_whatever_goes(clock):
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(40):
        record = make_record(now=clock.now)
        for kind in (KINDS[number % 3], KINDS[number % 2]):
            write(record, created=clock.now, step=kind[0], outcome=kind[1])
            expected[kind] += 1
        assert counts() == expected
        clock.step(minutes=7)
        if number % 4 == 1:
            tally.settle(now=clock.now)
        if number % 3 == 2:  # one whose rows are counted in part, or not at all, or long since
            remove(AudioRecord.objects.filter(pk=AudioRecord.objects.order_by("id")[number % 2].pk))
        assert counts() == expected
    assert 0 < RecordEvent.objects.count() < expected.total()


def test_old_rows_may_be_taken_out_of_the_journal(clock):
    record = make_record(now=clock.now)
    write(record, created=clock.now)
    clock.step(hours=1)
    write(record, created=clock.now)
    tally.settle(now=clock.now)

    RecordEvent.objects.filter(created__lt=clock.now).delete()

    assert counts() == {("poll", "advanced"): 2}


def test_a_row_that_is_committed_late_is_counted(clock):
    record = make_record(now=clock.now)
    begun = clock.now
    clock.step(minutes=5)
    tally.settle(now=clock.now)
    write(record, created=begun)

    assert counts() == {("poll", "advanced"): 1}


def test_to_settle_twice_counts_nothing_twice(clock):
    write(make_record(now=clock.now), created=clock.now)
    for minutes in (0, 60, 0, 0, 15, 60):
        clock.step(minutes=minutes)
        tally.settle(now=clock.now)
        assert counts() == {("poll", "advanced"): 1}
    assert [kind.runs for kind in Tally.objects.all()] == [1]


def test_a_backlog_is_worked_off_little_by_little(clock, monkeypatch):
    """Each step adds a bounded number of rows, and whoever asks between two steps is told the same; rows of one instant stay together."""
    monkeypatch.setattr(tally, "SLICE", 5)
    record = make_record(now=clock.now)
    edges = [clock.now.replace(minute=0, second=0) + timedelta(hours=hours) for hours in range(0, 40, 4)]
    for number in range(43):
        if not 20 <= number < 28:  # nine of one instant
            clock.step(minutes=number % 7, microseconds=1)
        write(record, created=clock.now, step=KINDS[number % 3][0], ms=1000 * number)
    clock.step(hours=1)
    expected, told = counts(), history.spans(edges)

    added, settled = [], 0
    while not TallyMark.objects.filter(until=clock.now - tally.SETTLED_AFTER).exists():
        tally.settle(now=clock.now, patience_s=0)
        assert counts() == expected
        assert history.spans(edges) == told
        before, settled = settled, sum(Tally.objects.values_list("runs", flat=True))
        added.append(settled - before)
        assert sum(JournalQuarter.objects.values_list("runs", flat=True)) == settled

    assert added == [5, 5, 5, 4, 9, 5, 5, 5]


def test_what_is_added_costs_no_more_where_there_are_more_kinds(clock):
    record = make_record(now=clock.now)
    asked = []
    for kinds in (1, 60):
        for number in range(kinds):
            write(record, created=clock.now, ms=2**number % 10**7 + number)
        clock.step(hours=1)
        with CaptureQueriesContext(connection) as queries:
            tally.settle(now=clock.now)
        asked.append(len(queries))

    assert asked[1] <= asked[0]
    assert counts() == {("poll", "advanced"): 61}


@pytest.mark.parametrize(
    ("lasted", "up_to"),
    [(0, 100), (100, 100), (101, 500), (60_000, 60_000), (14_400_000, 14_400_000), (14_400_001, tally.LONGER), (None, 100)],
)
@pytest.mark.parametrize("has_settled", [False, True])
def test_a_run_is_kept_under_the_bound_it_did_not_exceed(clock, lasted, up_to, has_settled):
    write(make_record(now=clock.now), created=clock.now, ms=lasted)
    if has_settled:
        clock.step(hours=1)
        tally.settle(now=clock.now)

    assert [(kind.up_to_ms, kind.runs, kind.duration_ms) for kind in tally.counted()] == [(up_to, 1, lasted or 0)]


def test_what_has_settled_is_not_read_again(clock):
    """By the plan: the fresh rows are found by their time, and there is nothing else but the few rows of the tallies."""
    record = make_record(now=clock.now)
    write(record, created=clock.now)
    clock.step(hours=1)
    tally.settle(now=clock.now)
    write(record, created=clock.now)

    with CaptureQueriesContext(connection) as queries:
        tally.counted()

    assert len(queries) == 2
    if connection.vendor == "sqlite":  # PostgreSQL reads so few rows in a row, whatever indexes there are
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + queries[-1]["sql"])
            plan = [row[-1] for row in cursor.fetchall() if "record_events" in row[-1]]
        assert len(plan) == 1
        assert "record_events_created (created>" in plan[0]


@pytest.mark.django_db(transaction=True)
def test_removing_settling_and_asking_at_once(now):
    """Whatever comes between what: who asks always sees the same sum."""
    for number in range(12):
        record = make_record(now=now)
        for minute in range(4):
            write(record, created=now + timedelta(minutes=number * 4 + minute))
    problems: list[BaseException] = []

    def settle() -> None:
        for minute in range(0, 90, 11):
            tally.settle(now=now + timedelta(minutes=minute))

    def take_out(records: list) -> None:
        for pk in records:
            remove(AudioRecord.objects.filter(pk=pk))

    def run(what, *arguments) -> None:
        try:
            what(*arguments)
        except BaseException as error:
            problems.append(error)
        finally:
            connection.close()

    ids = list(AudioRecord.objects.order_by("id").values_list("pk", flat=True))
    threads = [threading.Thread(target=run, args=arguments) for arguments in ((settle,), (take_out, ids[::2]), (take_out, ids[1::2]))]
    for thread in threads:
        thread.start()
    seen = {counts()["poll", "advanced"]}
    while any(thread.is_alive() for thread in threads):
        seen.add(counts()["poll", "advanced"])
    for thread in threads:
        thread.join()

    assert not problems
    assert seen | {counts()["poll", "advanced"]} == {48}
    assert not RecordEvent.objects.exists()
