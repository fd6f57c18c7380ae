"""The admin's home: its numbers, where they lead, what they cost, and who may see them."""

from __future__ import annotations

import re
import uuid
from collections import Counter, namedtuple
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from recognition.models import ProviderGate
from records import history, overview
from records.admin.home import Home, edges_of, look
from records.models import AudioRecord, JournalQuarter, RecordEvent, SeatedWorker
from records.operations import tally
from records.operations.removal import remove
from records.pipeline.stage import MAX_LEASE
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_file, make_record, make_user
from tests.rows import fill, mix, write_journal

pytestmark = pytest.mark.django_db

HOME = "/admin/"


@pytest.fixture
def configure(monkeypatch):
    def change(section: str, **keys):
        config = settings.TRANSCRIBER
        monkeypatch.setattr(settings, "TRANSCRIBER", replace(config, **{section: replace(getattr(config, section), **keys)}))

    return change


Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def give_disk(monkeypatch):
    """There is room on the disk, whatever this machine has."""

    def change(free_gib: int = 500) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(1000 * 2**30, (1000 - free_gib) * 2**30, free_gib * 2**30))

    change()
    return change


def seen(browser: Client, query: str = "") -> Home:
    page = browser.get(HOME + query)
    assert page.status_code == 200
    return page.context["home"]


@pytest.fixture
def look_at(rf):
    """The page as it is at a moment, and not a second later."""

    def look_so(now: datetime, **query: str) -> Home:
        request = rf.get(HOME, query)
        request.user = make_user(is_superuser=True)
        return look(request, now=now)

    return look_so


def text_of(page: Any) -> str:
    body = re.sub(r"<(script|style).*?</\1>", " ", page.content.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def event(
    record: AudioRecord, created: datetime, step: str = "finish", outcome: str = EventOutcome.ADVANCED, ms: int = 1000, **more
) -> None:
    values: dict[str, Any] = {"origin": Origin.WORKER, **more}
    RecordEvent.objects.create(record=record, created=created, step=step, outcome=outcome, duration_ms=ms, **values)


def held(until: datetime) -> dict[str, Any]:
    return {"acquisition_id": uuid.uuid4(), "acquire_expires_at": until, "delay_time": until}


def populate(now: datetime) -> dict[str, AudioRecord]:
    """Two records or so of each kind that the page tells apart."""
    halt: dict[str, Any] = {"halted_at": now - timedelta(hours=1), "error_text": "It did not work."}
    minutes, lease = timedelta(minutes=1), MAX_LEASE * 1.9  # a busy machine gets round to it in time
    return {
        "fresh": make_record(now=now - 90 * minutes),
        "later": make_record(now=now, delay_time=now + 30 * minutes, state_entered_at=now - 5 * minutes, error_code="provider_down"),
        "at work": make_record(State.NORMALIZED, now=now - 60 * minutes, work_started_at=now - 48 * minutes, **held(now + lease)),
        "also at work": make_record(State.SUBMITTED, now=now - 60 * minutes, work_started_at=now - 40 * minutes, **held(now + lease)),
        "lost": make_record(State.NORMALIZED, now=now - 70 * minutes, work_started_at=now - 10 * minutes, **held(now - minutes)),
        "polled": make_record(State.SUBMITTED, now=now - 80 * minutes, work_started_at=now - 79 * minutes, delay_time=now + minutes / 2),
        "stuck": make_record(State.SUBMITTED, now=now - 900 * minutes, halt_reason=HaltReason.STUCK, **halt),
        "stuck too": make_record(State.NORMALIZED, now=now - 900 * minutes, halt_reason=HaltReason.STUCK, **halt),
        "rejected": make_record(now=now - 900 * minutes, halt_reason=HaltReason.REJECTED, **halt),
        "unconfirmed": make_record(State.NORMALIZED, now=now - 900 * minutes, halt_reason=HaltReason.UNCONFIRMED, **halt),
        "done": make_record(State.DONE, now=now),
    }


# ---- the queue ----------------------------------------------------------------------------------------------------------------------


def test_what_stands_is_counted_by_state_and_reason(browser: Client) -> None:
    populate(timezone.now())

    home = seen(browser)

    assert (home.waiting.text, home.running.text, home.halted.text) == ("4", "2", "4")
    assert {reason.name: reason.text for reason in home.reasons} == {"Rejected": "1", "Stuck": "2", "Unconfirmed": "1"}
    rows = [(row.name, row.going.text, row.running.text, row.halted.text) for row in home.states]
    assert rows == [
        ("Uploaded", "2", "0", "1"),
        ("Normalized", "2", "1", "2"),
        ("Submitted", "2", "1", "1"),
        ("Transcribed", "0", "0", "0"),
    ]


def test_each_number_leads_to_the_list_of_just_those_records(browser: Client) -> None:
    populate(timezone.now())
    home = seen(browser)

    counts = [home.waiting, home.running, home.halted, *home.reasons, *home.causes]
    counts += [count for row in home.states for count in (row.going, row.running, row.halted)]
    counts += [count for need in home.needs for count in need.links if count.text.isdecimal()]
    assert len(counts) > 20
    for count in counts:
        assert browser.get(count.link).context["cl"].result_count == int(count.text), count


def test_every_link_of_the_page_leads_somewhere(browser: Client) -> None:
    now = timezone.now()
    records = populate(now)
    SeatedWorker.objects.create(
        cluster=uuid.uuid4(), seat=0, host="one", pid=1, started_at=now, seen_at=now, record_id=records["at work"].pk
    )
    page = browser.get(HOME).content.decode()
    main = page[page.index('id="home"') :]
    links = {unescape(link) for link in re.findall(r'href="([^"#]+)"', main)}
    assert len(links) > 20
    for link in links:
        assert browser.get(link if link.startswith("/") else HOME + link).status_code == 200, link


def test_the_oldest_of_each_state_and_what_the_limit_is_judged_by(now, look_at) -> None:
    records = populate(now)

    uploaded, normalized, submitted, transcribed = look_at(now).states

    assert (uploaded.entered, uploaded.worked, uploaded.percent, uploaded.level) == ("1 h 30 min", "", 0, "good")
    assert uploaded.entered_link.split("/")[-3] == str(records["fresh"].pk)
    assert normalized.entered_link.split("/")[-3] == str(records["lost"].pk)
    assert (normalized.worked, normalized.limit, normalized.percent, normalized.level) == ("48 min", "1 h", 80, "warn")
    assert normalized.worked_link.split("/")[-3] == str(records["at work"].pk)
    assert (submitted.worked, submitted.percent, submitted.level) == ("1 h 19 min", 5, "good")
    assert (transcribed.entered, transcribed.worked) == ("", "")


def test_what_waits_for_its_provider_has_the_provider_s_limit_whatever_its_state(now, look_at) -> None:
    begun = now - timedelta(hours=5)
    make_record(State.NORMALIZED, now=begun, work_started_at=begun, error_code="provider_key", error_text="The key is refused.")

    page = look_at(now)
    row = next(row for row in page.states if row.name == "Normalized")

    assert (row.worked, row.limit, row.percent, row.level) == ("5 h", "1 d", 21, "good")
    assert not any("worked on for" in need.text for need in page.needs)

    own = make_record(State.NORMALIZED, now=now, work_started_at=now - timedelta(minutes=50), **held(now + timedelta(minutes=1)))
    row = next(row for row in look_at(now).states if row.name == "Normalized")
    assert (row.worked, row.limit, row.level) == ("50 min", "1 h", "warn")
    assert row.worked_link.split("/")[-3] == str(own.pk)


def test_what_was_done_leads_to_what_came_in_meanwhile_and_is_done(browser: Client) -> None:
    now = timezone.now()
    fresh = make_record(State.DONE, now=now, pk=uuid.UUID(int=int(now.timestamp() * 1000) << 80))
    before = now - timedelta(days=3)
    make_record(State.DONE, now=before, pk=uuid.UUID(int=int(before.timestamp() * 1000) << 80))

    home = seen(browser, "?period=1")

    for link in (home.done_today.link, home.charts.done_link):
        assert [record.pk for record in browser.get(link).context["cl"].result_list] == [fresh.pk]
    assert all("halted=yes" in series.link for series in home.charts.halts)


def test_past_its_limit_the_bar_is_full(now, look_at) -> None:
    make_record(now=now - timedelta(days=2), work_started_at=now - timedelta(hours=3))

    (row, *_) = look_at(now).states

    assert (row.percent, row.level) == (100, "bad")


def test_more_than_the_cap_is_at_least_the_cap(browser: Client, monkeypatch) -> None:
    monkeypatch.setattr(overview, "CAP", 2)
    for _ in range(4):
        make_record(now=timezone.now())

    home = seen(browser)

    assert (home.waiting.text, home.states[0].going.text) == ("2+", "2+")


# ---- what needs somebody ------------------------------------------------------------------------------------------------------------


def alive(now: datetime, seat: int = 0, **more: Any) -> SeatedWorker:
    values: dict[str, Any] = {
        "cluster": uuid.UUID(int=1),
        "host": "one",
        "pid": 1,
        "started_at": now,
        "seen_at": now + timedelta(minutes=10),
        **more,
    }
    return SeatedWorker.objects.create(seat=seat, **values)


def test_all_is_well(browser: Client) -> None:
    now = timezone.now()
    alive(now)
    make_record(now=now)

    home = seen(browser)

    assert (home.level, home.headline, home.summary) == ("good", "All is well", "0 at work, 1 waiting, 0 halted.")
    assert home.needs == []


def test_halted_records_come_first_with_their_reasons(browser: Client) -> None:
    alive(timezone.now())
    populate(timezone.now())

    home = seen(browser)

    assert home.level == "bad"
    assert home.headline == "2 things need you"  # and one is near its limit
    halted = next(need for need in home.needs if need.text == "4 records are halted.")
    assert [(link.name, link.text) for link in halted.links] == [("Rejected", "1"), ("Stuck", "2"), ("Unconfirmed", "1")]


def test_what_was_judged_or_stopped_by_a_person_alarms_nobody(browser: Client) -> None:
    now = timezone.now()
    alive(now)
    for reason in (HaltReason.REJECTED, HaltReason.STOPPED):
        make_record(now=now, halted_at=now, halt_reason=reason)

    home = seen(browser)

    assert (home.level, home.headline, home.halted.text) == ("good", "All is well", "2")


@pytest.mark.parametrize(("wanted", "level", "said"), [(2, "bad", "No worker is alive."), (0, "warn", "[pipeline] workers is 0")])
def test_that_nobody_works_is_said_aloud(browser: Client, configure, wanted: int, level: str, said: str) -> None:
    configure("pipeline", workers=wanted)
    alive(timezone.now(), seen_at=timezone.now() - timedelta(minutes=5))
    make_record(now=timezone.now())

    home = seen(browser)

    assert home.level == level
    assert said in home.needs[0].text
    assert home.workers == []


def test_workers_and_what_they_do(now, look_at) -> None:
    minute = timedelta(minutes=1)
    busy = make_record(State.SUBMITTED, now=now, title="A talk", progress=0.4, work_started_at=now - 3 * minute, **held(now + minute))
    left = make_record(State.NORMALIZED, now=now)
    for seat, (host, record) in enumerate([("a", busy.pk), ("b", None), ("c", left.pk), ("d", uuid.uuid4())]):
        alive(now, seat, host=host, record_id=record)
    alive(now, 9, host="gone", seen_at=now - 2 * minute)

    home = look_at(now)

    assert [(row.host, row.step, row.title, row.percent, row.worked) for row in home.workers] == [
        ("a", "poll", "A talk", 40, "3 min"),
        *((host, "", "", 0, "") for host in "bcd"),
    ]
    assert home.workers_alive == 4
    assert home.running_note == "of 4 workers"


def test_a_paused_provider_and_who_waits_for_it(browser: Client) -> None:
    now = timezone.now()
    alive(now)
    for _ in range(3):
        make_record(State.NORMALIZED, now=now, error_code="provider_key", error_text="No.", delay_time=now + timedelta(minutes=2))
    make_record(State.NORMALIZED, now=now, error_code="provider_key", error_text="No.", halted_at=now, halt_reason=HaltReason.STOPPED)
    pause = {"paused_until": now + timedelta(minutes=2), "pause_code": "provider_key", "pause_text": "The key is refused."}
    ProviderGate.objects.create(provider="speechkit", kind="", **pause)
    ProviderGate.objects.create(provider="openai", kind="")

    home = seen(browser)

    (need,) = [need for need in home.needs if need.level == "bad"]
    assert need.text == "The provider speechkit does not work for us: The key is refused."
    assert [(link.name, link.text) for link in need.links] == [("waiting for it", "3")]
    assert [(cause.name, cause.text) for cause in home.causes] == [("provider_key", "3")]
    assert browser.get(need.links[0].link).context["cl"].result_count == 3


@pytest.mark.parametrize(("free_gib", "level"), [(500, "good"), (50, "warn"), (1, "bad")])
def test_the_disk(browser: Client, give_disk, free_gib: int, level: str) -> None:
    alive(timezone.now())
    give_disk(free_gib)

    home = seen(browser)

    assert home.disk.level == level
    assert home.disk.percent == 100 - free_gib // 10
    assert [need.level for need in home.needs] == ([] if level == "good" else [level])
    assert home.disk.bucket == ""


# ---- over time ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_days_go_from_midnight_to_midnight_by_the_viewers_clock(look_at, zone: str, is_settled: bool) -> None:
    now = datetime(2026, 6, 10, 12, 7, tzinfo=UTC)
    record = make_record(State.DONE, now=now)
    AudioRecord.objects.filter(pk=record.pk).update(original_file=make_file(duration_ms=3_600_000))
    local = now.astimezone(ZoneInfo(zone))
    midnight = local.replace(hour=0, minute=0)
    moments = [midnight - timedelta(seconds=1), midnight, midnight - timedelta(days=6), midnight - timedelta(days=6, seconds=1)]
    for moment in moments:
        event(record, moment)
    if is_settled:
        tally.settle(now=now + timedelta(hours=1))
        RecordEvent.objects.all().delete()

    with timezone.override(ZoneInfo(zone)):
        home = look_at(now, period="7")

    assert home.charts.done == [1, 0, 0, 0, 0, 1, 1]
    assert home.charts.recorded == [1, 0, 0, 0, 0, 1, 1] or home.charts.recorded == [60, 0, 0, 0, 0, 60, 60]
    assert home.done_today.text == "1"
    assert home.charts.labels[-1] == f"{local:%a} {local.day}"


def test_a_day_of_23_hours_is_a_day() -> None:
    with timezone.override(ZoneInfo("Europe/Berlin")):
        edges = edges_of("7", now=datetime(2026, 3, 30, 12, tzinfo=UTC))

    assert [edge.astimezone(ZoneInfo("Europe/Berlin")).hour for edge in edges] == [0] * 8
    lengths = [(after.astimezone(UTC) - before.astimezone(UTC)) / timedelta(hours=1) for before, after in pairwise(edges)]
    assert lengths == [24, 24, 24, 24, 24, 23, 24]


def test_hours_of_the_last_day(look_at) -> None:
    now = datetime(2026, 6, 10, 12, 7, tzinfo=UTC)
    record = make_record(State.DONE, now=now)
    for moment in (now, now.replace(minute=0), now.replace(minute=0) - timedelta(seconds=1), now - timedelta(hours=23, minutes=7)):
        event(record, moment)
    event(record, now - timedelta(hours=23, minutes=8))

    charts = look_at(now, period="1").charts

    assert charts.done == [1, *[0] * 21, 1, 2]
    assert (charts.labels[0], charts.labels[-1], charts.names[-1]) == ("13:00", "12:00", "10 Jun, 12:00–13:00")


def test_times_failures_and_halts_by_step(now, look_at) -> None:
    record = make_record(State.DONE, now=now)
    for number in range(1, 101):
        event(record, now, "poll", ms=number * 1000)
    for outcome, step, count in (("failed", "submit", 3), ("halted", "poll", 2), ("halted", "normalize", 1)):
        for _ in range(count):
            event(record, now, step, outcome, ms=10**7)
    event(record, now, "poll", EventOutcome.HALTED, origin=Origin.ADMIN)

    charts = look_at(now).charts

    assert [series.total for series in charts.failures] == [0, 3, 0, 0]
    assert [series.total for series in charts.halts] == [1, 0, 2, 0]
    assert (charts.failures[1].values[-1], charts.failures_total, charts.halts_total) == (3, "3", "3")
    assert [times.runs for times in charts.times] == [0, 0, 100, 0]
    assert charts.median_s[2][-1] == pytest.approx(50, rel=0.1)
    assert charts.slow_s[2][-1] == pytest.approx(95, rel=0.1)
    assert charts.median_s[2][0] is None
    assert charts.times[0].median == ""


def test_the_charts_stand_in_a_table_as_well(now, look_at) -> None:
    record = make_record(State.DONE, now=now)
    event(record, now, "finish", ms=4000)
    event(record, now, "submit", EventOutcome.FAILED)

    first = look_at(now).charts.table[0]

    assert (first["done"], first["failures"], first["halts"]) == (1, [0, 1, 0, 0], [0, 0, 0, 0])
    assert first["times"][:3] == [None, None, None]
    assert first["times"][3] is not None


@pytest.mark.parametrize("period", ["", "1", "7", "30", "31", "nonsense", "0"])
def test_any_period_is_answered(browser: Client, period: str) -> None:
    home = seen(browser, f"?period={period}")
    assert home.period == (period if period in ("1", "7", "30") else "7")
    assert len(home.charts.done) == {"1": 24, "30": 30}.get(home.period, 7)


def test_history_is_the_same_before_and_after_it_is_added_up_and_when_records_go(clock) -> None:
    clock.now = timezone.now() - timedelta(hours=5)  # a removal goes by the real clock
    records = [make_record(State.DONE, now=clock.now, title=str(number)) for number in range(4)]
    edges = [clock.now - timedelta(days=1), clock.now, clock.now + timedelta(days=1)]
    edges = [edge.replace(minute=0, second=0) for edge in edges]
    expected = None
    for number, record in enumerate(records):
        event(record, clock.now + timedelta(minutes=3 * number), ms=1000 * number)
        event(record, clock.now - timedelta(hours=12), "poll", EventOutcome.FAILED)
    for act in (
        lambda: None,
        lambda: tally.settle(now=clock.now + timedelta(minutes=12)),  # some of it
        lambda: remove(AudioRecord.objects.filter(pk=records[0].pk)),  # counted already
        lambda: remove(AudioRecord.objects.filter(pk=records[3].pk)),  # not counted yet
        lambda: tally.settle(now=clock.now + timedelta(hours=3)),
        lambda: remove(AudioRecord.objects.all()),
    ):
        act()
        told = history.spans(edges)
        expected = expected or told
        assert told == expected
    assert [span.done for span in expected] == [0, 4]
    assert [span.recorded_ms for span in expected] == [0, 8000]
    assert expected[0].steps["poll"].outcomes == {EventOutcome.FAILED: 4}


def test_quarters_are_kept_no_longer_than_they_are_shown(clock) -> None:
    record = make_record(now=clock.now)
    for _ in range(2):
        event(record, clock.now)
        tally.settle(now=clock.step(hours=1))
        clock.step(days=41)
    tally.settle(now=clock.now)
    assert not JournalQuarter.objects.exists()


def test_a_percentile_is_right_to_within_a_tenth() -> None:
    for ms in (1, 2, 3, 7, 99, 1234, 60_000, 86_400_000):
        bound = next(bound for bound in history.BOUNDS_MS if ms <= bound)
        runs = history.Runs(times=Counter({bound: 3}))
        assert runs.percentile_ms(0.5) == pytest.approx(ms, rel=0.1, abs=0.5)
    assert history.Runs().percentile_ms(0.5) is None


# ---- what it costs ------------------------------------------------------------------------------------------------------------------


def queries_of(client: Client, query: str = "?period=30") -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(HOME + query).status_code == 200
    return [found["sql"] for found in queries]


def test_no_more_than_fifteen_queries_however_much_there_is(viewer: Client) -> None:
    few = queries_of(viewer)
    now = timezone.now()
    records = populate(now)
    for seat in range(30):
        alive(now, seat, record_id=records["at work"].pk)
    for provider in ("a", "b", "c"):
        ProviderGate.objects.create(provider=provider, kind="", paused_until=now, pause_code="x", pause_text="y")
    for record in records.values():
        event(record, now)
    many = queries_of(viewer)

    assert len(few) <= 15
    assert len(many) <= 15


def test_nothing_is_scanned_beside_a_hundred_thousand_records(viewer: Client) -> None:
    now = timezone.now()
    fill(now, done=100_000, waiting=3_000)
    mix(now)
    write_journal(now, old=20_000, fresh=50)
    read: list[tuple[str, str]] = []
    with connection.cursor() as cursor:
        for query in queries_of(viewer):
            if not re.search(r"\b(audio_records|record_events|files)\b", query):
                continue
            if connection.vendor == "sqlite":
                cursor.execute("EXPLAIN QUERY PLAN " + query)
                steps = [row[-1] for row in cursor.fetchall()]
                read += [(step, query) for step in steps if re.match(r"SCAN (TABLE )?(audio_records|record_events|files)\b", step)]
            else:
                cursor.execute("EXPLAIN " + query)
                steps = [row[0] for row in cursor.fetchall()]
                read += [(step, query) for step in steps if re.search(r"Seq Scan on (audio_records|record_events|files)\b", step)]
    # Whether there is any record at all is seen from the first one; what waits is gone through by its own index, and no further than a bound.
    read = [(step, query) for step, query in read if not query.endswith("LIMIT 1") and "audio_records_due" not in step]
    assert read == []


# ---- who may see it -----------------------------------------------------------------------------------------------------------------


def test_who_may_not_view_records_sees_no_number_of_them() -> None:
    populate(timezone.now())
    client = Client()
    client.force_login(make_user("stranger", is_staff=True))

    with CaptureQueriesContext(connection) as queries:
        page = client.get(HOME)

    assert "home" not in page.context
    assert "You may not see records here" in text_of(page)
    assert not any("audio_records" in query["sql"] for query in queries)


def test_who_may_view_sees_the_page(viewer: Client) -> None:
    populate(timezone.now())
    assert seen(viewer).waiting.text == "4"


def test_nobody_else_gets_there() -> None:
    assert Client().get(HOME).status_code == 302


def test_before_the_first_record_the_first_steps_are_told(browser: Client) -> None:
    alive(timezone.now())
    page = browser.get(HOME, headers={"host": "localhost"})
    text = text_of(page)

    home = page.context["home"]
    assert (home.is_empty, home.headline, home.level) == (True, "Ready for the first recording", "good")
    assert "manage.py create_token NAME" in text
    assert 'curl -H "Authorization: Token $TOKEN" -F file=@talk.mp3 http://localhost/api/v1/records/' in text
    assert "Records done" not in text

    make_record(State.DONE, now=timezone.now() - timedelta(days=90))
    home = seen(browser)
    assert (home.is_empty, home.headline) == (False, "All is well")


def test_times_are_told_by_the_viewers_clock(browser: Client) -> None:
    make_record(now=timezone.now())
    browser.cookies["timezone"] = "Asia/Kathmandu"
    page = browser.get(HOME)
    told = re.search(r"As of (\d\d:\d\d:\d\d)", text_of(page))[1]
    assert told == f"{page.context['home'].now.astimezone(ZoneInfo('Asia/Kathmandu')):%H:%M:%S}"


def test_titles_are_shown_as_text(browser: Client) -> None:
    now = timezone.now()
    record = make_record(State.SUBMITTED, now=now, title="<b>bold</b>", work_started_at=now, **held(now + timedelta(minutes=1)))
    alive(now, record_id=record.pk)
    page = browser.get(HOME).content.decode()
    assert "&lt;b&gt;bold" in page
    assert "<b>bold" not in page
