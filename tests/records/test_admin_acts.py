"""Halting, resuming and restarting from the list and of one record: what is said before, what is done, and what is told after."""

from __future__ import annotations

import re
import uuid
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from records.models import AudioRecord, RecordEvent
from records.operations import control
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_file, make_halted, make_record, make_user
from tests.fakes.provider import ScriptedProvider

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"
ACTS = ("halt", "resume", "restart")


@pytest.fixture
def paid(scripted: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> ScriptedProvider:
    """The provider that new recordings go to, and it costs money."""
    scripted.costs_money = True
    return scripted


def many_halted(count: int, reason: HaltReason = HaltReason.STUCK) -> list[AudioRecord]:
    owner, now = make_user(), timezone.now()
    files = [make_file() for _ in range(count)]
    return AudioRecord.objects.bulk_create(
        AudioRecord(owner=owner, original_file=file, halted_at=now, halt_reason=reason) for file in files
    )


def ask(client: Client, act: str, records: list[AudioRecord], query: str = "", *, across: bool = False) -> Any:
    """The page that asks, as it comes when a button below the list is pressed."""
    data = {
        "action": act,
        "index": "0",
        "select_across": "1" if across else "0",
        "_selected_action": [str(record.pk) for record in records],
    }
    return client.post(LIST + query, data)


def fields_of(page: Any, form: str = "act") -> dict[str, str]:
    """What the form of the page carries."""
    written = re.search(rf'<form[^>]*id="{form}".*?</form>', page.content.decode(), flags=re.DOTALL)
    assert written
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', written[0])
    return {name: unescape(value) for name, value in found}


def confirm(client: Client, page: Any, form: str = "act", **more: str) -> Any:
    """The answer to what the page asks."""
    return client.post(page.context["address"], {**fields_of(page, form), **more}, follow=True)


def told(page: Any) -> list[str]:
    return [str(message) for message in page.context["messages"]]


def text_of(page: Any) -> str:
    """What a person reads on the page, in one line."""
    content = page.content.decode().split('id="content-main"')[1]
    return " ".join(unescape(re.sub(r"<script.*?</script>|<[^>]+>", " ", content, flags=re.DOTALL)).split())


# ---- from the list ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTS)
def test_nothing_is_done_before_it_was_asked(browser: Client, act: str) -> None:
    running, stopped = make_record(now=timezone.now()), make_halted()
    before = list(AudioRecord.objects.order_by("id").values())
    page = ask(browser, act, [running, stopped])
    assert page.context["changes"]
    assert list(AudioRecord.objects.order_by("id").values()) == before
    assert not RecordEvent.objects.exists()


def test_halting_says_how_many_of_each_state_and_reports_what_came_of_it_and_the_journal_names_the_operator(
    browser: Client, operator: User
) -> None:
    running, done, stopped = make_record(now=timezone.now()), make_record(State.DONE, now=timezone.now()), make_halted()
    AudioRecord.objects.filter(pk=running.pk).update(acquisition_id=uuid.uuid4(), acquire_expires_at=timezone.now())
    page = ask(browser, "halt", [running, done, stopped])
    text = text_of(page)
    assert "Halt 3 records?" in text
    assert "Uploaded 1 none Normalized 1 Exhausted: 1 Done 1 none" in text
    assert "1 record stands still until somebody resumes it." in text
    assert "1 of them is being worked on now" in text
    assert "Passed over: 1 done already, 1 halted already." in text

    page = confirm(browser, page)

    assert told(page) == ["Halted 1 record. Passed over 2: 1 done already, 1 halted already."]
    running.refresh_from_db()
    assert (running.state, running.halt_reason, running.acquisition_id) == (State.UPLOADED, HaltReason.STOPPED, None)
    event = RecordEvent.objects.get()
    assert (event.record_id, event.outcome, event.origin, event.actor) == (running.pk, EventOutcome.HALTED, Origin.ADMIN, operator)


def test_resuming_passes_over_what_nobody_knows_to_be_paid(browser: Client, operator: User) -> None:
    exhausted, unconfirmed = make_halted(), make_halted(HaltReason.UNCONFIRMED)
    page = ask(browser, "resume", [exhausted, unconfirmed])
    assert "Passed over: 1 unconfirmed: its provider has to be asked first." in text_of(page)
    assert told(confirm(browser, page)) == ["Resumed 1 record. Passed over 1: 1 unconfirmed: its provider has to be asked first."]
    exhausted.refresh_from_db()
    assert (exhausted.halted_at, exhausted.state) == (None, State.NORMALIZED)
    assert RecordEvent.objects.get().actor == operator


def test_resuming_says_which_paid_submissions_lie_ahead(browser: Client, paid: ScriptedProvider, settings: Any) -> None:
    """Of those that were not submitted yet; what was paid for already is not paid for again, and a free provider costs nothing."""
    unsubmitted, submitted, unconfirmed = make_halted(), make_halted(state=State.SUBMITTED), make_halted(HaltReason.UNCONFIRMED)
    page = ask(browser, "resume", [unsubmitted, submitted, unconfirmed])
    provider = settings.TRANSCRIBER.recognition.provider
    assert page.context["costs"] == [f"1 record goes on to be submitted to {provider}, which is paid for."]
    paid.costs_money = False
    assert ask(browser, "resume", [unsubmitted, submitted]).context["costs"] == []


def test_what_would_just_fail_again_is_left_out_and_a_restart_of_it_is_offered(browser: Client, paid: ScriptedProvider) -> None:
    alive, dead = make_halted(), make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="result_expired")
    bystander = make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="result_expired")
    page = ask(browser, "resume", [alive, dead])
    assert "The operation of 1 record is dead at the provider" in text_of(page)
    assert told(confirm(browser, page)) == ["Resumed 1 record. Passed over 1: 1 whose operation is dead: it has to be restarted."]

    page = confirm(browser, ask(browser, "resume", [alive, dead]), "restart-dead")
    assert "Restart 1 record?" in text_of(page)
    assert [option.state for option in page.context["options"] if option.is_chosen] == [State.NORMALIZED]
    assert "1 new recognition by" in text_of(page)
    assert told(confirm(browser, page, state="normalized")) == ["Restarted from “Normalized”: 1 record."]
    for record in (alive, dead, bystander):
        record.refresh_from_db()
    assert (dead.state, dead.halted_at, dead.recognition) == (State.NORMALIZED, None, None)
    assert bystander.state == State.SUBMITTED


def test_who_insists_resumes_also_what_will_fail_again(browser: Client) -> None:
    dead = make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="result_expired")
    page = ask(browser, "resume", [dead])
    assert told(confirm(browser, page, dead_too="yes")) == ["Resumed 1 record."]


def test_restarting_says_for_each_state_how_many_move_and_what_it_costs(browser: Client, paid: ScriptedProvider, settings: Any) -> None:
    now = timezone.now()
    records = [make_record(State.DONE, now=now), make_record(State.DONE, now=now), make_halted(), make_record(now=now)]
    provider = settings.TRANSCRIBER.recognition.provider
    options = ask(browser, "restart", records).context["options"]
    assert [(option.state.value, option.moves, option.is_paid) for option in options] == [
        ("uploaded", 4, True),
        ("normalized", 3, True),
        ("submitted", 2, False),
        ("transcribed", 2, False),
    ]
    assert options[1].cost == f"3 new recognitions by {provider}, each of which is paid for."
    assert options[1].told == "3 of 4 move; the rest never reached it."
    assert (options[2].cost, options[3].cost) == ("", "")
    paid.costs_money = False
    assert ask(browser, "restart", records).context["options"][0].cost == f"4 new recognitions by {provider}, which cost nothing."


def test_a_confirmed_restart_moves_the_records_and_is_journaled(browser: Client, operator: User) -> None:
    done, fresh = make_record(State.DONE, now=timezone.now()), make_record(now=timezone.now())
    page = confirm(browser, ask(browser, "restart", [done, fresh]), state="normalized")
    assert told(page) == ["Restarted from “Normalized”: 1 record. Passed over 1: 1 that never reached that state."]
    done.refresh_from_db()
    assert (done.state, done.transcript_text, done.recognition) == (State.NORMALIZED, None, None)
    event = RecordEvent.objects.get()
    assert (event.outcome, event.origin, event.actor) == (EventOutcome.RESTARTED, Origin.ADMIN, operator)


@pytest.mark.parametrize("state", ["", "done", "nonsense"])
def test_a_restart_from_no_state_asks_again(browser: Client, state: str) -> None:
    record = make_record(State.DONE, now=timezone.now())
    page = confirm(browser, ask(browser, "restart", [record]), state=state)
    assert "Choose the state to restart from." in text_of(page)
    record.refresh_from_db()
    assert record.state == State.DONE
    assert told(confirm(browser, page, state="transcribed")) == ["Restarted from “Transcribed”: 1 record."]


def test_an_act_across_pages_takes_all_that_the_filter_finds_in_a_fixed_number_of_queries(browser: Client) -> None:
    def resume_all(count: int) -> tuple[int, int]:
        first = many_halted(count)[0]
        with CaptureQueriesContext(connection) as asked:
            page = ask(browser, "resume", [first], "?reason=stuck", across=True)
        assert page.context["total"] == count
        assert len(page.content) < 60_000  # it carries no ids
        with CaptureQueriesContext(connection) as done:
            page = browser.post(page.context["address"], fields_of(page))
        assert page["Location"] == f"{LIST}?reason=stuck"
        return len(asked), len(done)

    bystander = make_halted(HaltReason.EXHAUSTED)
    resume_all(2)  # fills the caches of the process
    assert resume_all(130) == resume_all(60)
    bystander.refresh_from_db()
    assert bystander.halted_at
    assert RecordEvent.objects.filter(outcome=EventOutcome.RESUMED).count() == 192


def test_the_act_takes_what_the_filter_finds_by_then_and_the_report_tells_the_truth(browser: Client) -> None:
    first, second = many_halted(2)
    page = ask(browser, "resume", [first], "?reason=stuck", across=True)
    assert "2 records go on from where they stand" in text_of(page)
    AudioRecord.objects.filter(pk=first.pk).update(halted_at=None, halt_reason="")
    third, fourth = many_halted(2)
    assert told(confirm(browser, page)) == ["Resumed 3 records."]
    assert set(RecordEvent.objects.values_list("record", flat=True)) == {second.pk, third.pk, fourth.pk}


def test_what_was_ticked_and_stands_otherwise_by_then_is_told_as_passed_over(browser: Client) -> None:
    first, second = many_halted(2)
    page = ask(browser, "resume", [first, second])
    AudioRecord.objects.filter(pk=first.pk).update(halted_at=None, halt_reason="")
    assert told(confirm(browser, page)) == ["Resumed 1 record. Passed over 1: 1 not halted."]


def test_a_thousand_ticked_records_travel_through_the_confirmation(browser: Client) -> None:
    """In one field, since a server takes only so many. A page of the list has no room for as many ticks; who has, may send them like this."""
    records = many_halted(1_000)
    bystander = make_halted(HaltReason.STUCK)
    ticked = ",".join(str(record.pk) for record in records)
    page = browser.post(LIST, {"action": "resume", "index": "0", "select_across": "0", "chosen": ticked})
    assert "Resume 1,000 records?" in text_of(page)
    assert told(confirm(browser, page)) == ["Resumed 1,000 records."]
    bystander.refresh_from_db()
    assert bystander.halted_at


def test_from_the_confirmation_one_comes_back_to_the_same_list(browser: Client) -> None:
    record = make_halted()
    query = "?halted=yes&o=oldest&q=recording"
    page = ask(browser, "resume", [record], query)
    assert page.context["back"] == LIST + query
    page = confirm(browser, page)
    assert page.redirect_chain == [(LIST + query, 302)]


@pytest.mark.parametrize("ticked", [[], ["nonsense"], ["", "1"]])
def test_nothing_ticked_does_nothing(browser: Client, ticked: list[str]) -> None:
    record = make_halted()
    data = {"action": "resume", "index": "0", "select_across": "0", "confirmed": "yes", "_selected_action": ticked}
    assert browser.post(LIST, data).status_code in (200, 302)
    assert browser.post(LIST, {**data, "chosen": ",".join(ticked)}).status_code in (200, 302)
    record.refresh_from_db()
    assert record.halted_at
    assert not RecordEvent.objects.exists()


def test_records_are_not_removed_from_the_list(browser: Client) -> None:
    record = make_record(now=timezone.now())
    page = ask(browser, "delete_selected", [record])
    assert "act-page" not in page.content.decode()
    browser.post(LIST, {"action": "delete_selected", "index": "0", "_selected_action": [str(record.pk)], "post": "yes"})
    assert AudioRecord.objects.filter(pk=record.pk).exists()


def test_the_journal_is_written_in_english_whoever_acts(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now())
    browser.defaults["HTTP_ACCEPT_LANGUAGE"] = "ru"
    page = confirm(browser, ask(browser, "restart", [record]), state="normalized")
    with translation.override("ru"):
        label = str(State.NORMALIZED.label)
    assert label in told(page)[0]
    assert RecordEvent.objects.get().outcome_text == "done → normalized"
    confirm(browser, ask(browser, "halt", [record]))
    assert RecordEvent.objects.order_by("id")[1].outcome_text == "at normalized"


# ---- of one record ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTS)
def test_an_act_of_a_row_asks_and_leads_back_to_the_list_it_came_from(browser: Client, act: str) -> None:
    record = make_halted() if act == "resume" else make_record(State.SUBMITTED, now=timezone.now())
    page = browser.get(f"{LIST}{record.pk}/{act}/", {"_changelist_filters": "state=unfinished&p=2"})
    assert str(record) in text_of(page)
    assert not RecordEvent.objects.exists()
    page = browser.post(page.context["address"], {**fields_of(page), "state": "normalized"})
    assert page["Location"] == f"{LIST}?state=unfinished&p=2"
    assert RecordEvent.objects.get().record_id == record.pk


def test_without_a_list_to_go_back_to_it_leads_to_the_record(browser: Client) -> None:
    record = make_record(now=timezone.now())
    page = browser.get(f"{LIST}{record.pk}/halt/")
    assert page.context["back"] == f"{LIST}{record.pk}/change/"
    page = browser.get(f"{LIST}{record.pk}/halt/", {"_changelist_filters": ""})
    assert page.context["back"] == f"{LIST}?"


def test_what_can_t_be_done_is_not_offered(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now())
    for act, why in (("halt", "1 done already"), ("resume", "1 not halted")):
        page = browser.get(f"{LIST}{record.pk}/{act}/")
        assert "There is nothing to do" in text_of(page)
        assert why in text_of(page)
        assert 'type="submit"' not in page.content.decode().split('id="act"')[1].split("</form>")[0]


def test_one_dead_record_leads_to_its_restart(browser: Client) -> None:
    record = make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="result_expired")
    page = browser.get(f"{LIST}{record.pk}/resume/", {"_changelist_filters": "halted=yes"})
    assert page.context["is_all_dead"]
    page = browser.get(f"{LIST}{record.pk}/restart/", fields_of(page, "restart-dead"))
    assert page.context["back"] == f"{LIST}?halted=yes"
    assert [option.state for option in page.context["options"] if option.is_chosen] == [State.NORMALIZED]


# ---- who may what -----------------------------------------------------------------------------------------------------------------------


def test_staff_that_may_only_look_can_do_nothing(viewer: Client) -> None:
    record = make_halted()
    for act in ACTS:
        assert ask(viewer, act, [record]).status_code == 403
        answer = {"action": act, "index": "0", "select_across": "1", "_selected_action": "all", "confirmed": "yes", "state": "uploaded"}
        assert viewer.post(LIST, answer).status_code == 403
        assert viewer.get(f"{LIST}{record.pk}/{act}/").status_code == 403
        assert viewer.post(f"{LIST}{record.pk}/{act}/", {"confirmed": "yes", "state": "uploaded"}).status_code == 403
    record.refresh_from_db()
    assert record.halted_at
    assert not RecordEvent.objects.exists()


def test_an_act_needs_the_token_of_its_form(operator: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    record = make_record(now=timezone.now())
    assert ask(client, "halt", [record]).status_code == 403
    assert client.post(f"{LIST}{record.pk}/halt/", {"confirmed": "yes"}).status_code == 403
    record.refresh_from_db()
    assert record.halted_at is None


# ---- foreseeing -------------------------------------------------------------------------------------------------------------------------


def test_what_is_foreseen_is_what_comes_of_it(operator: User) -> None:
    now = timezone.now()
    for reason in HaltReason:
        for state in (State.NORMALIZED, State.SUBMITTED):
            make_halted(reason, state, error_code="result_expired" if reason == HaltReason.REJECTED else "no_luck")
    make_record(now=now)
    make_record(State.DONE, now=now)
    everything, by = AudioRecord.objects.all(), control.By(Origin.ADMIN, operator)
    foreseen = control.foresee(everything, control.passed_over_by_resume(dead_too=False))
    assert control.resume(everything, by=by, now=now, dead_too=False) == foreseen
    assert foreseen.passed_over == {"not_halted": 2, "unconfirmed": 1, "dead": 1}
    foreseen = control.foresee(everything, control.passed_over_by_halt())
    assert control.halt(everything, by=by, now=now) == foreseen
    assert foreseen.passed_over == {"done": 1, "halted_already": 2}
