"""The operator's list, acts and record page, as a browser would ask for them."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from records.admin.listing import CappedPaginator
from records.models import AudioRecord, RecordEvent
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_file, make_record, make_user
from topics.models import Topic

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"


@pytest.fixture
def operator() -> User:
    return make_user("olga", is_staff=True, is_superuser=True)


@pytest.fixture
def browser(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture
def viewer() -> Client:
    """Signed in as staff that may look at records and nothing else."""
    user = make_user("victor", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_audiorecord"))
    client = Client()
    client.force_login(user)
    return client


def halted(reason: HaltReason = HaltReason.EXHAUSTED, state: State = State.NORMALIZED, **more: Any) -> AudioRecord:
    now = timezone.now()
    return make_record(state, now=now, halted_at=now, halt_reason=reason, error_code="no_luck", error_text="It did not work.", **more)


def shown(page: Any) -> set[Any]:
    """The records of a list page."""
    return {record.pk for record in page.context["cl"].result_list}


def act(client: Client, action: str, records: list[AudioRecord], query: str = "", **more: str) -> Any:
    data = {"action": action, "_selected_action": [str(record.pk) for record in records], **more}
    return client.post(LIST + query, data, follow=True)


def told(page: Any) -> list[str]:
    return [str(message) for message in page.context["messages"]]


def text_of(page: Any) -> str:
    """What a person reads on the page, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.content.decode())).split())


def page_of(record: AudioRecord) -> str:
    return reverse("admin:records_audiorecord_change", args=[record.pk])


def body_of(answer: Any) -> bytes:
    """What a download brings; read to its end, the test client closes the file."""
    return b"".join(answer.streaming_content)


# ---- the list -----------------------------------------------------------------------------------------------------------------------


def test_the_list_shows_state_halt_reason_owner_and_age(browser: Client) -> None:
    owner = make_user("anna")
    record = halted(HaltReason.REJECTED, owner=owner, title="Interview", attempts=3, state_entered_at=timezone.now() - timedelta(hours=2))
    text = text_of(browser.get(LIST))
    for piece in ("Interview", "anna", "normalized", "rejected", "no_luck", "2 h"):
        assert piece in text
    record.title = ""
    record.save()
    assert str(record.pk) in text_of(browser.get(LIST))


def test_next_try_says_at_work_due_or_when(browser: Client) -> None:
    now = timezone.now()
    lease: dict[str, Any] = {"acquisition_id": "0193b1a0-0000-7000-8000-000000000000", "acquire_expires_at": now + timedelta(minutes=5)}
    held = make_record(
        now=now, delay_time=now + timedelta(minutes=5), **{key: value for key, value in lease.items() if key != "delay_time"}
    )
    due = make_record(now=now)
    waiting = make_record(now=now, delay_time=now + timedelta(hours=3, minutes=1))
    page = browser.get(LIST)
    cells = dict(
        zip([row.pk for row in page.context["cl"].result_list], re.findall(r'field-next_try">([^<]*)<', page.content.decode()), strict=True)
    )
    assert cells[held.pk] == "at work"
    assert cells[due.pk] == "due"
    assert cells[waiting.pk].startswith("in 3 h")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=uploaded", {"fresh"}),
        ("state=unfinished", {"fresh", "stuck", "rejected"}),
        ("state=done", {"done"}),
        ("halted=yes", {"stuck", "rejected"}),
        ("halted=no", {"fresh", "done"}),
        ("reason=stuck", {"stuck"}),
        ("state=normalized&reason=rejected", {"rejected"}),
        ("created=1", {"fresh", "stuck", "done"}),
        ("created=7", {"fresh", "stuck", "rejected", "done"}),
        ("state=nonsense", {"fresh", "stuck", "rejected", "done"}),
    ],
)
def test_filters(browser: Client, query: str, expected: set[str]) -> None:
    now = timezone.now()
    records = {
        "fresh": make_record(now=now),
        "stuck": halted(HaltReason.STUCK, State.SUBMITTED),
        "rejected": halted(HaltReason.REJECTED),
        "done": make_record(State.DONE, now=now),
    }
    AudioRecord.objects.filter(pk=records["rejected"].pk).update(created=now - timedelta(days=3))
    assert shown(browser.get(f"{LIST}?{query}")) == {records[name].pk for name in expected}


def test_filter_by_owner_offers_those_who_own_records(browser: Client) -> None:
    mine, other = make_record(now=timezone.now()), make_record(now=timezone.now())
    idle = make_user("idle")
    page = browser.get(f"{LIST}?owner={mine.owner_id}")
    assert shown(page) == {mine.pk}
    assert f"?owner={other.owner_id}" in page.content.decode()
    assert f"?owner={idle.pk}" not in page.content.decode()


def folds_case_of_cyrillic() -> bool:
    """PostgreSQL knows the letters of its own locale; the tests' server has the plain one."""
    if connection.vendor == "sqlite":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT upper('я') = 'Я'")
        return bool(cursor.fetchone()[0])


def test_search_by_id_title_and_error(browser: Client) -> None:
    interview = make_record(now=timezone.now(), title="Interview with the Baker")
    russian = make_record(now=timezone.now(), title="Разговор о Погоде")
    failed = make_record(now=timezone.now(), title="Other", error_code="no_luck", error_text="The disk is full.")
    for term, found in [
        (str(interview.pk), interview),
        (interview.pk.hex, interview),
        ("the baker", interview),
        ("погоде" if folds_case_of_cyrillic() else "Погоде", russian),
        ("disk is FULL", failed),
        ("no_luck", failed),
    ]:
        assert shown(browser.get(LIST, {"q": term})) == {found.pk}, term
    assert shown(browser.get(LIST, {"q": "(.*"})) == set()


def test_the_list_asks_as_many_queries_for_many_records_as_for_few(browser: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            browser.get(LIST)
        statements = [query["sql"] for query in captured]
        assert not any('FROM "texts"' in sql or 'FROM "structures"' in sql or "transcript_text_id" in sql for sql in statements)
        return len(statements)

    make_record(State.DONE, now=timezone.now())
    queries()  # fills the caches of the process
    few = queries()
    for _ in range(20):
        make_record(State.DONE, now=timezone.now())
    assert queries() == few <= 8


def test_the_count_is_given_up_at_its_cap(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CappedPaginator, "CAP", 3)
    for _ in range(3):
        make_record(now=timezone.now())
    assert "3 audio records" in text_of(browser.get(LIST))
    make_record(now=timezone.now())
    with CaptureQueriesContext(connection) as captured:
        page = browser.get(LIST)
    assert "3+ audio records" in text_of(page)
    assert all("LIMIT 4" in query["sql"] for query in captured if "COUNT(*)" in query["sql"])


def test_halted_and_unfinished_are_found_by_their_index(browser: Client) -> None:
    """A database that counts on few rows may scan; so the archive is made to look large."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL plans by the rows there are")
    for query, index in [
        ("halted=yes", "audio_records_halted"),
        ("reason=stuck", "audio_records_halted"),
        ("state=submitted", "audio_records_unfinished"),
    ]:
        with CaptureQueriesContext(connection) as captured:
            browser.get(f"{LIST}?{query}")
        listed = next(entry["sql"] for entry in captured if "ORDER BY" in entry["sql"] and '"audio_records"."title"' in entry["sql"])
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + listed.replace("%", "%%"))
            plan = " ".join(str(row) for row in cursor.fetchall())
        assert index in plan, (query, plan)


# ---- the acts -----------------------------------------------------------------------------------------------------------------------


def test_halting_reports_what_was_changed_and_passed_over_and_the_journal_names_the_operator(browser: Client, operator: User) -> None:
    running, done, stopped = make_record(now=timezone.now()), make_record(State.DONE, now=timezone.now()), halted()
    page = act(browser, "halt", [running, done, stopped])
    assert told(page) == ["Halted 1 record. Passed over 2: 1 done already, 1 halted already."]
    running.refresh_from_db()
    assert (running.state, running.halt_reason) == (State.UPLOADED, HaltReason.STOPPED)
    event = RecordEvent.objects.get()
    assert (event.record_id, event.outcome, event.origin, event.actor) == (running.pk, EventOutcome.HALTED, Origin.ADMIN, operator)


def test_resuming_passes_over_what_nobody_knows_to_be_paid(browser: Client, operator: User) -> None:
    exhausted, unconfirmed = halted(), halted(HaltReason.UNCONFIRMED)
    page = act(browser, "resume", [exhausted, unconfirmed])
    assert told(page) == ["Resumed 1 record. Passed over 1: 1 unconfirmed: the provider has to be asked first."]
    exhausted.refresh_from_db()
    assert (exhausted.halted_at, exhausted.state) == (None, State.NORMALIZED)
    assert RecordEvent.objects.get().actor == operator


def test_an_act_across_pages_takes_the_filtered_records_in_a_fixed_number_of_queries(browser: Client) -> None:
    def resume_all(count: int) -> int:
        owner = make_user()
        file_ids = [make_file().pk for _ in range(count)]
        now = timezone.now()
        AudioRecord.objects.bulk_create(
            AudioRecord(owner=owner, original_file_id=pk, halted_at=now, halt_reason=HaltReason.STUCK) for pk in file_ids
        )
        first = AudioRecord.objects.filter(halt_reason=HaltReason.STUCK)[0]
        with CaptureQueriesContext(connection) as captured:
            page = act(browser, "resume", [first], "?reason=stuck", select_across="1")
        assert told(page) == [f"Resumed {count} records."]
        return len(captured)

    bystander = halted(HaltReason.EXHAUSTED)
    resume_all(2)
    assert resume_all(130) == resume_all(3)
    bystander.refresh_from_db()
    assert bystander.halted_at
    assert RecordEvent.objects.filter(outcome=EventOutcome.RESUMED).count() == 135


def test_restarting_asks_first_and_says_what_it_may_cost(browser: Client) -> None:
    records = [
        make_record(State.DONE, now=timezone.now()),
        make_record(State.DONE, now=timezone.now()),
        halted(),
        make_record(now=timezone.now()),
    ]
    page = act(browser, "restart", records)
    text = text_of(page)
    assert "4 records chosen: 1 uploaded, 1 normalized, 2 done." in text
    assert "normalized , so that submit runs next: 3 of 4 records. Starts a new recognition, which may cost money." in text
    assert "transcribed , so that finish runs next: 2 of 4 records. </span>" not in page.content.decode()
    assert text.count("may cost money") == 2  # from uploaded and from normalized, not from what comes after the payment
    assert not RecordEvent.objects.exists()


def test_a_confirmed_restart_moves_the_records_and_is_journaled(browser: Client, operator: User) -> None:
    done, fresh = make_record(State.DONE, now=timezone.now()), make_record(now=timezone.now())
    confirmation = act(browser, "restart", [done, fresh])
    fields = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', confirmation.content.decode().split('class="restart"')[-1])
    data: dict[str, Any] = {}
    for name, value in fields:
        data.setdefault(name, []).append(value)
    page = browser.post(LIST, {**data, "state": "normalized"}, follow=True)
    assert told(page) == ["Restarted from normalized: 1 record. Passed over 1: 1 never reached that state."]
    done.refresh_from_db()
    assert (done.state, done.transcript_text, done.recognition) == (State.NORMALIZED, None, None)
    event = RecordEvent.objects.get()
    assert (event.outcome, event.origin, event.actor) == (EventOutcome.RESTARTED, Origin.ADMIN, operator)


def test_a_restart_across_pages_takes_all_that_the_filter_finds(browser: Client) -> None:
    records = [make_record(State.DONE, now=timezone.now()) for _ in range(3)]
    other = make_record(State.TRANSCRIBED, now=timezone.now())
    page = act(browser, "restart", records[:1], "?state=done", select_across="1")
    assert "3 records chosen" in text_of(page)
    page = act(browser, "restart", records[:1], "?state=done", select_across="1", confirmed="yes", state="submitted")
    assert told(page) == ["Restarted from submitted: 3 records."]
    assert set(AudioRecord.objects.filter(state=State.SUBMITTED)) == set(records)
    other.refresh_from_db()
    assert other.state == State.TRANSCRIBED


@pytest.mark.parametrize("state", ["", "done", "nonsense"])
def test_a_restart_from_no_state_asks_again(browser: Client, state: str) -> None:
    record = make_record(State.DONE, now=timezone.now())
    page = act(browser, "restart", [record], confirmed="yes", state=state)
    assert "Choose the state to restart from." in text_of(page)
    record.refresh_from_db()
    assert record.state == State.DONE


# ---- who may what -------------------------------------------------------------------------------------------------------------------


def test_staff_that_may_only_look_sees_no_acts_and_can_do_none(viewer: Client) -> None:
    record = halted()
    page = viewer.get(LIST)
    assert shown(page) == {record.pk}
    assert 'name="action"' not in page.content.decode()
    own = viewer.get(page_of(record))
    assert own.status_code == 200
    assert "/resume/" not in own.content.decode()
    assert "/restart/" not in own.content.decode()
    act(viewer, "resume", [record])
    for name in ("halt", "resume", "restart"):
        assert viewer.post(f"{LIST}{record.pk}/{name}/", {"confirmed": "yes", "state": "uploaded"}).status_code == 403
    assert viewer.post(page_of(record), {"title": "Mine now"}).status_code == 403
    record.refresh_from_db()
    assert record.halted_at
    assert record.title == "A recording"
    assert not RecordEvent.objects.exists()


@pytest.mark.parametrize("tail", ["", "{}/change/", "{}/restart/", "{}/files/original/"])
def test_people_without_a_right_to_records_see_nothing(tail: str) -> None:
    record = make_record(now=timezone.now())
    url = LIST + tail.format(record.pk)
    assert Client().get(url).status_code == 302
    for user, status in ((make_user(), 302), (make_user(is_staff=True), 403)):
        client = Client()
        client.force_login(user)
        assert client.get(url).status_code == status


def test_records_are_not_removed_by_the_page_nor_by_those_who_may_not(browser: Client, viewer: Client) -> None:
    record = make_record(now=timezone.now())
    act(browser, "delete_selected", [record], post="yes")
    assert viewer.post(f"{LIST}{record.pk}/delete/", {"post": "yes"}).status_code == 403
    assert AudioRecord.objects.filter(pk=record.pk).exists()


# ---- what people sent is text -------------------------------------------------------------------------------------------------------


def test_markup_in_what_was_sent_is_shown_as_text(browser: Client) -> None:
    attack = "<script>alert(1)</script>"
    record = make_record(
        State.TRANSCRIBED, now=timezone.now(), title=attack, brief=attack, halted_at=timezone.now(), halt_reason=HaltReason.STUCK,
        error_code="x", error_text=f'"{attack}',
    )  # fmt: skip
    assert record.structure
    assert record.transcript_text
    assert record.recognition
    record.structure.contents["utterances"] = [
        {"start_ms": 0, "end_ms": 1, "text": attack, "channel": 0, "speaker": attack, "words": []},
    ]
    record.structure.save()
    record.transcript_text.contents = attack
    record.transcript_text.save()
    record.recognition.options = {"prompt": attack}
    record.recognition.save()
    record.topics.add(Topic.objects.create(owner=record.owner, name=attack))
    RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED, outcome_text=attack)
    for url in (LIST, page_of(record)):
        page = browser.get(url).content.decode()
        assert attack not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    saved = browser.post(page_of(record), {"title": attack + "!", "brief": attack}, follow=True)
    assert attack not in saved.content.decode()


def test_what_misleads_an_operator_is_not_offered(browser: Client) -> None:
    text = text_of(browser.get("/admin/"))
    assert "Audio records" in text
    assert "Queued tasks" not in text
    assert "Successful tasks" not in text
