from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from recognition.contract import Busy, Misconfigured
from recognition.models import ProviderGate
from recognition.operations import gates
from recognition.operations.gates import LATE, PATIENCE, PROBE_EVERY, Wait
from tests.fakes.provider import ScriptedProvider

pytestmark = pytest.mark.django_db

QUOTA = 5  # a second
PACED = ScriptedProvider(name="paced", paces={"poll": 0.25, "submit": 7.25})


def most_within(moments: list[datetime], span: timedelta) -> int:
    """The largest number of moments in any stretch of that length."""
    moments = sorted(moments)
    most = begin = 0
    for end, moment in enumerate(moments):
        while moment - moments[begin] >= span:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def test_a_call_without_a_quota_goes_at_once(now, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert gates.take_slot(PACED, "upload", has_booked=False, now=now) == now


def test_slots_lie_apart_and_those_far_off_are_booked(now):
    taken = [gates.take_slot(PACED, "poll", has_booked=False, now=now) for _ in range(12)]
    at_once = [slot for slot in taken if isinstance(slot, datetime)]
    booked = [slot for slot in taken if isinstance(slot, Wait)]

    assert at_once == [now + timedelta(seconds=0.25) * number for number in range(9)]
    assert [wait.delay for wait in booked] == [timedelta(seconds=2.25), timedelta(seconds=2.5), timedelta(seconds=2.75)]
    assert {wait.code for wait in booked} == {gates.WAITING_FOR_SLOT}


def test_quotas_of_two_kinds_and_two_providers_do_not_meet(now):
    other = ScriptedProvider(name="other", paces={"poll": 0.25})
    assert gates.take_slot(PACED, "submit", has_booked=False, now=now) == now
    assert gates.take_slot(PACED, "poll", has_booked=False, now=now) == now
    assert gates.take_slot(other, "poll", has_booked=False, now=now) == now
    assert isinstance(gates.take_slot(PACED, "submit", has_booked=False, now=now), Wait)


def test_time_that_nobody_used_is_not_saved_up(now):
    gates.take_slot(PACED, "poll", has_booked=False, now=now)
    later = now + timedelta(hours=1)
    slots = [gates.take_slot(PACED, "poll", has_booked=False, now=later) for _ in range(5)]
    assert slots == [later + timedelta(seconds=0.25) * number for number in range(5)]


def test_who_waited_goes_before_who_comes_now(now):
    for _ in range(50):
        gates.take_slot(PACED, "poll", has_booked=False, now=now)
    later = now + timedelta(seconds=2.3)

    assert isinstance(gates.take_slot(PACED, "poll", has_booked=False, now=later), Wait)
    assert gates.take_slot(PACED, "poll", has_booked=True, now=later) == later


@pytest.mark.no_database  # the same arithmetic on every database
def test_five_thousand_that_wait_are_served_in_their_turn_and_never_too_many(now):
    """On a set clock: each comes back exactly when it was told to; the quota holds, nobody comes back more than a few times."""
    interval = timedelta(seconds=0.25)
    due = [(now, False)] * 5000
    calls: list[datetime] = []
    visits = 0
    while due:
        due.sort(key=lambda entry: entry[0])
        moment, has_booked = due.pop(0)
        visits += 1
        slot = gates.take_slot(PACED, "poll", has_booked=has_booked, now=moment)
        if isinstance(slot, Wait):
            due.append((moment + slot.delay, True))
        else:
            calls.append(slot)
    assert len(calls) == 5000
    assert most_within(calls, timedelta(seconds=1)) <= QUOTA
    assert max(calls) - now <= interval * 5000 + PATIENCE
    assert visits <= 3 * 5000


def test_the_paces_leave_room_for_a_late_call():
    """The most calls in a sliding window if each may be late by up to LATE and another tenth of a second on the wire."""
    jitter = LATE + timedelta(seconds=0.1)
    for kind, span, quota in (("poll", timedelta(seconds=1), 5), ("submit", timedelta(hours=1), 500)):
        pace = timedelta(seconds=PACED.paces[kind])
        assert (span + jitter) // pace + 1 <= quota


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_keep_the_quota_in_real_time():
    calls: list[datetime] = []
    begun = time.monotonic()

    def work() -> None:
        try:
            while time.monotonic() - begun < 4:
                slot = gates.take_slot(PACED, "poll", has_booked=True, now=timezone.now())
                if isinstance(slot, Wait):
                    time.sleep(min(slot.delay.total_seconds(), 0.1))
                    continue
                time.sleep(max(0.0, (slot - timezone.now()).total_seconds()))
                if timezone.now() - slot <= LATE:
                    calls.append(timezone.now())
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) >= 8
    assert most_within(calls, timedelta(seconds=1)) <= QUOTA
    assert ProviderGate.objects.filter(provider="paced", kind="poll").count() == 1


def test_bookings_of_records_that_are_gone_hold_nobody_back(now):
    for _ in range(500):
        gates.take_slot(PACED, "submit", has_booked=False, now=now)
    later = now + timedelta(minutes=1)
    assert gates.take_slot(PACED, "submit", has_booked=False, now=later) == later


def test_a_clock_that_was_wrong_once_does_not_close_the_gate(now):
    gates.take_slot(PACED, "poll", has_booked=False, now=now + timedelta(days=365))
    wait = gates.take_slot(PACED, "poll", has_booked=True, now=now)
    assert isinstance(wait, Wait)
    assert wait.delay <= PATIENCE + timedelta(seconds=0.25)


def test_slots_that_lie_far_apart_bear_a_slow_commit():
    assert gates.latest(PACED, "poll") == LATE
    late = gates.latest(PACED, "submit")
    assert late > timedelta(seconds=3)
    assert (timedelta(hours=1) + late) // timedelta(seconds=7.25) + 1 <= 500


# ---- the pause ------------------------------------------------------------------------------------------------------------------------

PLAIN = ScriptedProvider(name="plain")


def refuse(now: datetime) -> None:
    with pytest.raises(Misconfigured), gates.watched(PLAIN, now=now):
        raise Misconfigured("unauthorized", "The key is not accepted.")


def test_a_provider_that_refuses_us_is_paused_with_its_reason(now):
    refuse(now)

    wait = gates.pause_of(PLAIN, now=now + timedelta(seconds=10))

    assert wait == Wait(PROBE_EVERY - timedelta(seconds=10), "unauthorized", "The key is not accepted.")
    assert gates.pause_of(ScriptedProvider(name="other"), now=now) is None


def test_one_probes_and_the_others_wait_for_how_it_fares(now):
    refuse(now)
    later = now + PROBE_EVERY

    assert gates.pause_of(PLAIN, now=later) is None
    answers = [gates.probe(PLAIN, now=later) for _ in range(5)]

    assert answers[0] is True
    assert all(isinstance(answer, Wait) for answer in answers[1:])


def test_all_go_on_once_a_probe_gets_through(now):
    refuse(now)
    later = now + PROBE_EVERY
    assert gates.probe(PLAIN, now=later) is True
    with gates.watched(PLAIN, now=later):
        pass
    assert isinstance(gates.probe(PLAIN, now=later), Wait)
    gates.end_pause(PLAIN, now=later)
    for _ in range(3):
        assert gates.pause_of(PLAIN, now=later) is None
        assert gates.probe(PLAIN, now=later) is False


@pytest.mark.parametrize("error", [Busy("busy", "Later."), ValueError()])
def test_other_errors_pause_nobody(error, now):
    with pytest.raises(type(error)), gates.watched(PLAIN, now=now):
        raise error
    assert gates.pause_of(PLAIN, now=now) is None
