"""The list of records, as a browser would ask for it: what it shows, how it is narrowed, and what that costs."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from recognition.models import Recognition
from records.admin.listing import CappedPaginator
from records.models import AudioRecord
from records.states import HaltReason, State
from tests.factories import make_halted, make_record, make_user
from tests.fakes.provider import ScriptedProvider
from tests.rows import fill
from transcriber.viewing import COOKIE

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"


def held(state: State = State.UPLOADED, *, ends_in: timedelta = timedelta(minutes=1), **more: Any) -> AudioRecord:
    now = timezone.now()
    ends = now + ends_in
    about = {"acquisition_id": uuid.uuid4(), "acquire_expires_at": ends, "delay_time": ends, "work_started_at": now, **more}
    return make_record(state, now=now, **about)


def shown(page: Any) -> list[Any]:
    """The records of a list page, in their order."""
    return [record.pk for record in page.context["cl"].result_list]


def text_of(page: Any) -> str:
    """What a person reads on the page, in one line."""
    return " ".join(unescape(re.sub(r"<script.*?</script>|<[^>]+>", " ", page.content.decode(), flags=re.DOTALL)).split())


def cells(page: Any, column: str) -> dict[Any, str]:
    """What stands in a column, by record."""
    found = re.findall(rf'<t[dh] class="field-{column} [^>]*>(.*?)</t[dh]>', page.content.decode(), flags=re.DOTALL)
    texts = [" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in found]
    return dict(zip(shown(page), texts, strict=True))


def chips(page: Any) -> list[tuple[str, str]]:
    return [(chip.title, chip.value) for chip in page.context["cl"].chips]


# ---- columns ----------------------------------------------------------------------------------------------------------------------------


def test_a_row_tells_how_its_record_stands(browser: Client) -> None:
    owner = make_user("anna")
    record = make_halted(
        HaltReason.REJECTED, owner=owner, title="Interview", attempts=3, language="ru", state_entered_at=timezone.now() - timedelta(hours=2)
    )
    row = " ".join(cells(browser.get(LIST), column)[record.pk] for column in ("name", "of_owner", "length", "standing", "age", "next_try"))
    for piece in ("Interview", "anna", "0:02", "ru", "Normalized", "Rejected", "no_luck", "2 h", "3 of 5 attempts failed"):
        assert piece in row
    AudioRecord.objects.update(title="")
    assert str(record.pk) in cells(browser.get(LIST), "name")[record.pk]


def test_the_words_are_the_viewer_s_and_the_class_is_the_value(browser: Client) -> None:
    make_halted(HaltReason.STUCK, State.SUBMITTED)
    with translation.override("ru"):
        state, reason = State.SUBMITTED.label, HaltReason.STUCK.label
    page = browser.get(LIST, headers={"Accept-Language": "ru"}).content.decode()
    assert f'class="badge state-submitted">{state}<' in page
    assert re.search(rf'class="badge halted stuck"><span[^>]*>[^<]+</span> {reason}<', page)


def test_next_try_says_at_work_due_or_when(browser: Client) -> None:
    now = timezone.now()
    at_work = held(progress=0.4)
    lost = held(ends_in=-timedelta(minutes=1))
    due = make_record(now=now)
    waiting = make_record(now=now, delay_time=now + timedelta(hours=3, minutes=1))
    done = make_record(State.DONE, now=now)
    page = browser.get(LIST)
    told = cells(page, "next_try")
    assert (told[at_work.pk], told[lost.pk], told[due.pk], told[done.pk]) == ("at work, 40%", "lease ran out", "due", "—")
    assert told[waiting.pk].startswith("in 3 h")
    assert re.findall(r'<progress value="(\d+)"', page.content.decode()) == ["40"]  # only where something is under way


def test_the_length_is_the_original_s_once_it_is_known_and_the_language_that_which_was_heard(browser: Client) -> None:
    record = make_record(State.TRANSCRIBED, now=timezone.now(), language="ru")
    assert cells(browser.get(LIST), "length")[record.pk] == "0:02 en"
    fresh = make_record(now=timezone.now())
    fresh.original_file.duration_ms = None
    fresh.original_file.save()
    assert cells(browser.get(LIST), "length")[fresh.pk] == "—"


@pytest.mark.parametrize(
    ("state", "worked", "more", "told"),
    [
        (State.UPLOADED, timedelta(minutes=30), {}, None),
        (State.UPLOADED, timedelta(minutes=46), {}, "76% of its limit of 1 h"),
        (State.UPLOADED, timedelta(hours=2), {}, "past its limit of 1 h"),
        (State.SUBMITTED, timedelta(hours=2), {}, None),
        (State.SUBMITTED, timedelta(hours=19), {}, "79% of its limit of 1 d"),
        # What waits for its provider is judged by the provider's limit, whatever the step; what failed of itself is not.
        (State.NORMALIZED, timedelta(hours=2), {"error_code": "provider_busy"}, None),
        (State.NORMALIZED, timedelta(hours=2), {"error_code": "provider_failed", "attempts": 1}, "past its limit of 1 h"),
        # Nobody has come to it yet: that is no time in its state.
        (State.UPLOADED, None, {"state_entered_at": datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))}, None),
    ],
)
def test_the_age_warns_near_the_limit_and_past_it(
    browser: Client, state: State, worked: timedelta | None, more: dict[str, Any], told: str | None
) -> None:
    record = make_record(state, now=timezone.now(), work_started_at=worked and timezone.now() - worked, **more)
    page = browser.get(LIST)
    warned = {"near": "age near", "past": "age past"}
    if told is None:
        assert "limit" not in cells(page, "age")[record.pk]
        assert not any(f'"{name}"' in page.content.decode() for name in warned.values())
    else:
        assert cells(page, "age")[record.pk].endswith(told)
        assert f'"{warned["past" if told.startswith("past") else "near"]}"' in page.content.decode()


def test_a_halted_record_s_clock_stands(browser: Client) -> None:
    record = make_halted(HaltReason.STUCK, work_started_at=timezone.now() - timedelta(days=3))
    assert "limit" not in cells(browser.get(LIST), "age")[record.pk]


def test_a_row_offers_what_can_be_done_with_its_record_and_leads_back_to_the_same_list(browser: Client) -> None:
    def offered(query: str) -> list[tuple[str, str]]:
        return re.findall(r'href="[^"]*/(halt|resume|restart)/\?([^"]*)"', browser.get(LIST + query).content.decode())

    make_halted()
    back = "_changelist_filters=halted%3Dyes"
    assert offered("?halted=yes") == [("resume", back), ("restart", back)]
    AudioRecord.objects.update(halted_at=None, halt_reason="")
    assert [act for act, _back in offered("")] == ["halt", "restart"]
    AudioRecord.objects.update(state=State.DONE, progress=1)
    assert [act for act, _back in offered("")] == ["restart"]


# ---- filters ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=uploaded", {"fresh", "running", "lost"}),
        ("state=unfinished", {"fresh", "running", "lost", "stuck", "rejected"}),
        ("state=done", {"done"}),
        ("state=nonsense", set()),
        ("halted=yes", {"stuck", "rejected"}),
        ("halted=no", {"fresh", "running", "lost", "done"}),
        ("reason=stuck", {"stuck"}),
        ("state=normalized&reason=rejected", {"rejected"}),
        ("step=normalize", {"fresh", "running", "lost"}),
        ("step=submit", {"rejected"}),
        ("step=poll", {"stuck"}),
        ("step=finish", set()),
        ("work=waiting", {"fresh", "lost"}),
        ("work=running", {"running"}),
        ("provider=scripted", {"stuck", "done"}),
        ("provider=whisper", set()),
        ("error=did+not", {"stuck"}),
        ("error=NO_AUDIO", {"rejected"}),
        ("error=no_aud", set()),
        ("error=100%25", set()),
        ("created=1", {"fresh", "running", "lost", "stuck", "done"}),
        ("created=7", {"fresh", "running", "lost", "stuck", "rejected", "done"}),
        ("created=99", set()),
        ("owner=x", set()),
        ("owner=999999999999999999999", set()),
    ],
)
def test_filters(browser: Client, query: str, expected: set[str]) -> None:
    now = timezone.now()
    records = {
        "fresh": make_record(now=now),
        "running": held(),
        "lost": held(ends_in=-timedelta(seconds=5)),
        "stuck": make_halted(HaltReason.STUCK, State.SUBMITTED),
        "rejected": make_halted(HaltReason.REJECTED, error_code="no_audio", error_text="The file has no sound."),
        "done": make_record(State.DONE, now=now),
    }
    AudioRecord.objects.filter(pk=records["rejected"].pk).update(created=now - timedelta(days=3))
    assert set(shown(browser.get(f"{LIST}?{query}"))) == {records[name].pk for name in expected}


def test_a_day_is_the_viewer_s(browser: Client) -> None:
    """In Tokyo the second of January begins at 15:00 of the first by UTC."""
    moments = [datetime(2026, 1, 1, 14, 59, tzinfo=ZoneInfo("UTC")), datetime(2026, 1, 1, 15, 0, tzinfo=ZoneInfo("UTC"))]
    before, after = [make_record(now=moment, id=uuid.UUID(int=int(moment.timestamp() * 1000) << 80)) for moment in moments]
    browser.cookies[COOKIE] = "Asia/Tokyo"
    assert shown(browser.get(f"{LIST}?created_from=2026-01-02")) == [after.pk]
    assert shown(browser.get(f"{LIST}?created_to=2026-01-01")) == [before.pk]
    assert shown(browser.get(f"{LIST}?created_from=2026-01-02&created_to=2026-01-02")) == [after.pk]
    browser.cookies[COOKIE] = "UTC"
    assert shown(browser.get(f"{LIST}?created_from=2026-01-02")) == []
    for nonsense in ("2026-02-30", "soon", "9999-12-31", "0001-01-01"):
        for end in ("created_from", "created_to"):
            assert browser.get(f"{LIST}?{end}={nonsense}").status_code == 200


def test_what_is_applied_stands_in_chips_each_of_which_leads_to_the_list_without_it(browser: Client) -> None:
    owner = make_user("anna")
    make_halted(HaltReason.STUCK, owner=owner)
    query = f"?created=1&created_from=2020-01-02&error=no_luck&owner={owner.pk}&q=recording&reason=stuck"
    page = browser.get(LIST + query)
    assert len(shown(page)) == 1
    assert chips(page) == [
        ("Search", "recording"),
        ("Halt reason", "Stuck"),
        ("Owner", "anna"),
        ("Error", "no_luck"),
        ("Created", "Past 24 hours"),
        ("Created from", "Jan. 2, 2020"),
    ]
    for chip, name in zip(page.context["cl"].chips, ("q", "reason", "owner", "error", "created", "created_from"), strict=True):
        left = [part for part in query[1:].split("&") if not part.startswith(f"{name}=")]
        assert chip.without == "?" + "&".join(left)
    assert 'href="?">Clear all' in page.content.decode()
    for name, nonsense, title in (
        ("state", "nonsense", "State"),
        ("owner", "777", "Owner"),
        ("created_from", "2026-13-45", "Created from"),
    ):
        page = browser.get(f"{LIST}?{name}={nonsense}")
        assert page.context["cl"].result_count == 0
        assert chips(page) == [(title, f"{nonsense} (unknown)")]


def test_filter_by_owner_offers_those_who_own_records(browser: Client) -> None:
    mine, other = make_record(now=timezone.now()), make_record(now=timezone.now())
    make_user("idle")
    page = browser.get(f"{LIST}?owner={mine.owner_id}")
    assert shown(page) == [mine.pk]
    offered = next(spec.lookup_choices for spec in page.context["cl"].filter_specs if spec.parameter_name == "owner")
    assert {value for value, _name in offered} == {str(mine.owner_id), str(other.owner_id)}


def folds_case_of_cyrillic() -> bool:
    """PostgreSQL knows the letters of its own locale; the tests' server has the plain one."""
    if connection.vendor == "sqlite":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT upper('я') = 'Я'")
        return bool(cursor.fetchone()[0])


def test_search_by_id_title_error_and_operation(browser: Client, scripted: ScriptedProvider) -> None:
    interview = make_record(now=timezone.now(), title="Interview with the Baker")
    russian = make_record(now=timezone.now(), title="Разговор о Погоде")
    failed = make_record(now=timezone.now(), title="Other", error_code="no_luck", error_text="The disk is full.")
    submitted = make_record(State.SUBMITTED, now=timezone.now(), title="Third")
    assert submitted.recognition
    for term, found in [
        (str(interview.pk), interview),
        (f" {interview.pk.hex} ", interview),
        ("the baker", interview),
        ("погоде" if folds_case_of_cyrillic() else "Погоде", russian),
        ("disk is FULL", failed),
        ("no_luck", failed),
        (submitted.recognition.external_id, submitted),
    ]:
        assert shown(browser.get(LIST, {"q": term})) == [found.pk], term
    assert shown(browser.get(LIST, {"q": "(.*"})) == []


def test_an_operation_of_an_earlier_attempt_finds_its_record_once(browser: Client, scripted: ScriptedProvider) -> None:
    record = make_record(State.SUBMITTED, now=timezone.now())
    Recognition.objects.create(record=record, provider="scripted", external_id="op-earlier")
    assert shown(browser.get(LIST, {"q": "op-earlier"})) == [record.pk]


def test_orders(browser: Client) -> None:
    now = timezone.now()
    first = make_record(now=now, state_entered_at=now - timedelta(hours=1))
    second = make_record(now=now, state_entered_at=now - timedelta(hours=2))
    assert shown(browser.get(LIST)) == [second.pk, first.pk]
    assert shown(browser.get(f"{LIST}?o=oldest")) == [first.pk, second.pk]
    assert shown(browser.get(f"{LIST}?o=longest&state=unfinished")) == [second.pk, first.pk]
    # Among all records there is no index for it, and it is not offered; nor is any column that somebody may think of.
    assert shown(browser.get(f"{LIST}?o=longest")) == [second.pk, first.pk]
    assert "Longest in its state first" not in text_of(browser.get(LIST))
    assert shown(browser.get(f"{LIST}?o=-3.1")) == [second.pk, first.pk]


@pytest.mark.parametrize(
    "name",
    ["state", "halted", "reason", "work", "step", "owner", "provider", "error", "created", "created_from", "created_to", "title", "q"],
)
def test_a_nul_finds_nothing(browser: Client, name: str) -> None:
    """PostgreSQL refuses it in any text."""
    record = make_record(now=timezone.now())
    for value in ("%00", "a%00b"):
        page = browser.get(f"{LIST}?{name}={value}")
        assert page.status_code == 200
        assert shown(page) == []
    assert shown(browser.get(f"{LIST}?p=%00")) == [record.pk]


# ---- cost -------------------------------------------------------------------------------------------------------------------------------


def test_the_list_asks_as_many_queries_for_many_records_as_for_few(browser: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            browser.get(LIST)
        statements = [query["sql"] for query in captured]
        assert not any('FROM "texts"' in sql or '"contents"' in sql or "transcript_text_id" in sql for sql in statements)
        return len(statements)

    make_record(State.DONE, now=timezone.now())
    queries()  # fills the caches of the process
    few = queries()
    for _ in range(20):
        make_record(State.DONE, now=timezone.now())
    assert queries() == few <= 4  # the session, the person, the owners, the rows
    for _ in range(40):
        make_record(State.DONE, now=timezone.now())
    assert queries() == few + 1  # and the count, once there is more than a page


def test_the_count_is_given_up_at_its_cap(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from records.admin import AudioRecordAdmin

    monkeypatch.setattr(CappedPaginator, "CAP", 3)
    monkeypatch.setattr(AudioRecordAdmin, "list_per_page", 2)
    for _ in range(3):
        make_record(now=timezone.now())
    assert "3 records" in text_of(browser.get(LIST))
    make_record(now=timezone.now())
    with CaptureQueriesContext(connection) as captured:
        page = browser.get(LIST)
    assert "3+ records" in text_of(page)
    assert len(shown(page)) == 2
    counts = [query["sql"] for query in captured if "COUNT(" in query["sql"]]
    assert counts
    assert all("LIMIT 4" in sql for sql in counts)
    assert browser.get(f"{LIST}?p=2").context["cl"].page_num == 2


@pytest.mark.parametrize(("asked", "given"), [("3", 2), ("99", 2), ("0", 1), ("-1", 1), ("x", 1)])
def test_a_page_that_is_gone_is_the_nearest_one_with_the_same_filters(
    browser: Client, monkeypatch: pytest.MonkeyPatch, asked: str, given: int
) -> None:
    from records.admin import AudioRecordAdmin

    monkeypatch.setattr(AudioRecordAdmin, "list_per_page", 2)
    for _ in range(3):
        make_halted()
    page = browser.get(f"{LIST}?halted=yes&p={asked}")
    assert page.context["cl"].page_num == given
    assert len(shown(page)) == (2 if given == 1 else 1)
    assert [(link.title, link.is_current) for link in page.context["cl"].pages] == [("1", given == 1), ("2", given == 2)]
    AudioRecord.objects.update(halted_at=None, halt_reason="")
    assert browser.get(f"{LIST}?halted=yes&p={asked}").status_code == 200


ALL_OF_IT = ["", "o=oldest", "p=3", "state=done", "halted=no"]
A_PART = [
    "state=unfinished", "state=uploaded", "state=submitted&o=longest", "step=poll", "halted=yes", "reason=stuck", "reason=stuck&o=longest",
    "work=waiting", "work=running", "error=disk", "provider=nobody", "created_from=2020-01-01&created_to=2020-01-02",
]  # fmt: skip


def plan_of(sql: str) -> str:
    explain = "EXPLAIN " if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN "
    with connection.cursor() as cursor:
        cursor.execute(explain + sql.replace("%", "%%"))
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def test_no_look_reads_a_large_archive_through(browser: Client) -> None:
    """What is asked for is found by an index; and where that is all there is, it is read no further than the page, or the cap of the count."""
    fill(timezone.now(), done=100_000, waiting=200)
    for query in [*ALL_OF_IT, *A_PART]:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(f"{LIST}?{query}").status_code == 200
        asked = [entry["sql"] for entry in captured if 'FROM "audio_records"' in entry["sql"] and "EXISTS" not in entry["sql"]]
        assert asked
        for sql in asked:
            plan = plan_of(sql)
            assert "LIMIT" in sql
            if query in ALL_OF_IT:
                assert not re.search(r"TEMP B-TREE|Sort ", plan), (query, sql, plan)
            else:
                assert not re.search(r"SCAN audio_records(?! USING)|Seq Scan on audio_records", plan), (query, sql, plan)


# ---- who may what -----------------------------------------------------------------------------------------------------------------------


def test_staff_that_may_only_look_sees_records_and_nothing_to_do_with_them(viewer: Client) -> None:
    record = make_halted()
    page = viewer.get(f"{LIST}?halted=yes")
    assert shown(page) == [record.pk]
    written = page.content.decode()
    for trace in ('name="action"', "action-select", "action-toggle", "/resume/", "/restart/", "act-on-all"):
        assert trace not in written


@pytest.mark.parametrize("tail", ["", "{}/change/", "{}/restart/", "{}/files/original/"])
def test_people_without_a_right_to_records_see_nothing(tail: str) -> None:
    record = make_record(now=timezone.now())
    url = LIST + tail.format(record.pk)
    assert Client().get(url).status_code == 302
    for user, status in ((make_user(), 302), (make_user(is_staff=True), 403)):
        client = Client()
        client.force_login(user)
        assert client.get(url).status_code == status


def test_markup_in_what_was_sent_is_shown_as_text(browser: Client) -> None:
    attack = '"><script>alert(1)</script>'
    owner = make_user(attack)
    make_halted(title=attack, owner=owner, language="<b>", error_code="<i>", error_text=attack)
    for query in ({}, {"q": attack}, {"error": attack}, {"provider": attack}, {"owner": owner.pk}, {"created_from": attack}):
        written = browser.get(LIST, query).content.decode()
        assert "<script>alert" not in written
        assert "<i>" not in written
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in browser.get(LIST).content.decode()


def test_an_empty_list_says_so_and_offers_the_way_back(browser: Client) -> None:
    assert "Nobody has sent a recording yet." in text_of(browser.get(LIST))
    make_record(now=timezone.now())
    page = browser.get(f"{LIST}?halted=yes")
    assert "No record is like that." in text_of(page)
    assert "act-on-all" not in page.content.decode()


def test_what_misleads_an_operator_is_not_offered(browser: Client) -> None:
    text = text_of(browser.get("/admin/"))
    assert "Recordings" in text
    assert "Queued tasks" not in text
    assert "Successful tasks" not in text
