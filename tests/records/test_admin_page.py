"""The page of one record, as a browser would ask for it: what it shows, what it lets a person do, and what it gives out."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone, translation

from recognition.models import ProviderRemoval, Recognition
from records.admin.page import FIRST_UTTERANCES, JOURNAL_ROWS, MORE_UTTERANCES
from records.models import AudioRecord, File, RecordEvent, Structure, Text, TextKind
from records.operations import removal
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_halted, make_record, make_user
from topics.models import Topic

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"
ATTACK = "<script>alert(1)</script>"


def said(record: AudioRecord, *texts: str, **more: Any) -> AudioRecord:
    """Give the record a transcript: an utterance for each text, one a second."""
    assert record.structure
    assert record.transcript_text
    record.structure.contents["utterances"] = [
        {"start_ms": n * 1000, "end_ms": n * 1000 + 900, "text": text, "channel": 0, "speaker": None, "words": [], **more}
        for n, text in enumerate(texts)
    ]
    record.structure.save()
    record.transcript_text.contents = "\n".join(texts)
    record.transcript_text.save()
    return record


def at(record: AudioRecord, tail: str = "change/") -> str:
    return f"{LIST}{record.pk}/{tail}"


def told(page: Any) -> list[str]:
    return [str(message) for message in page.context["messages"]]


def text_of(page: Any) -> str:
    """What a person reads on the page, in one line."""
    return " ".join(unescape(re.sub(r"<script.*?</script>|<[^>]+>", " ", page.content.decode(), flags=re.DOTALL)).split())


def hrefs(page: Any) -> set[str]:
    return {unescape(href) for href in re.findall(r'href="([^"]+)"', page.content.decode())}


def body_of(answer: Any) -> bytes:
    """What a download brings; read to its end, the test client closes the file."""
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


# ---- what it shows ------------------------------------------------------------------------------------------------------------------


def test_the_page_shows_every_row_of_the_record(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now(), title="Interview", brief="About bread", notes=["resampled"], language="en-GB")
    record.topics.add(Topic.objects.create(owner=record.owner, name="bakery"))
    said(record, *(f"Sentence {n}." for n in range(61)), "Good bread.", speaker="Anna")
    record.literary_text = Text.objects.create(kind=TextKind.LITERARY, contents="It was good bread, Anna said.")
    record.save()
    assert record.recognition
    record.recognition.options = {"beam": 5, "prompt": "a bakery"}
    record.recognition.payload.save("", ContentFile(b"raw"))
    former = Recognition.objects.create(record=record, provider="elsewhere", model="parrot", external_id="former-operation")
    RecordEvent.objects.create(
        record=record, origin=Origin.WORKER, step="normalize", outcome=EventOutcome.ADVANCED, duration_ms=1500,
        outcome_text="uploaded → normalized",
    )  # fmt: skip
    RecordEvent.objects.create(
        record=record, origin=Origin.COMMAND, actor=make_user("anton"), outcome=EventOutcome.REBUILT, outcome_text="Done anew."
    )
    page = browser.get(at(record))
    text = text_of(page)
    for piece in (
        "Interview", "About bread", "bakery", "resampled", "en-GB", record.owner.username, str(record.pk), "Done 0 s ago",
        "1:01 Anna Good bread.", "It was good bread, Anna said.", "structure of version 1",
        "scripted / parrot current", record.recognition.external_id, "beam 5", "prompt a bakery", "elsewhere / parrot", former.external_id,
        "Advanced normalize Uploaded → Normalized", "the step took 1.50 s", "Rebuilt Done anew.", "anton (Command)", "Received",
        "ogg", "0:02", "4 bytes", "1 channel",
    ):  # fmt: skip
        assert piece in text, piece
    downloads = sorted(href for href in hrefs(page) if re.search(r"/payload/|/files/|/transcript\.", href))
    assert {body_of(browser.get(url)) for url in downloads} >= {b"OggS", b"raw", b"sound"}
    assert len(downloads) == 7


def test_each_state_that_was_reached_has_its_time(browser: Client) -> None:
    record = make_record(State.SUBMITTED, now=timezone.now(), created=timezone.now() - timedelta(hours=5))
    for step in ("normalize", "submit"):
        RecordEvent.objects.create(record=record, origin=Origin.WORKER, step=step, outcome=EventOutcome.ADVANCED)
    RecordEvent.objects.filter(step="normalize").update(created=record.created + timedelta(hours=1))
    states = browser.get(at(record)).context["head"].states
    assert [(state.state, state.place) for state in states] == [
        ("uploaded", "reached"), ("normalized", "reached"), ("submitted", "current"), ("transcribed", "ahead"), ("done", "ahead"),
    ]  # fmt: skip
    assert [state.at for state in states] == [
        record.created, record.created + timedelta(hours=1), record.state_entered_at, None, None,
    ]  # fmt: skip


def test_after_a_restart_no_time_is_left_of_what_is_ahead_again(browser: Client) -> None:
    record = make_record(State.NORMALIZED, now=timezone.now())
    for step in ("normalize", "submit", "poll"):
        RecordEvent.objects.create(record=record, origin=Origin.WORKER, step=step, outcome=EventOutcome.ADVANCED)
    states = browser.get(at(record)).context["head"].states
    assert [state.at is None for state in states] == [False, False, True, True, True]


def test_the_page_takes_as_many_queries_for_long_rows_as_for_short_ones_and_reads_no_text_that_it_does_not_show(
    browser: Client, operator: User
) -> None:
    record = make_record(State.DONE, now=timezone.now())

    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(at(record)).status_code == 200
        return [query["sql"] for query in captured]

    queries()  # what is cached for good, such as content types
    few = queries()
    said(record, *(f"Sentence {n}." for n in range(500)))
    for _ in range(30):
        RecordEvent.objects.create(record=record, origin=Origin.ADMIN, actor=operator, outcome=EventOutcome.RESUMED)
        Recognition.objects.create(record=record, provider="scripted")
        record.topics.add(Topic.objects.create(owner=record.owner, name=f"topic {uuid4()}"))
    many = queries()
    assert len(many) == len(few) <= 9, many
    # The transcript's plain text is measured, not read: its utterances are shown.
    read = [alias for sql in many for alias in re.findall(r'"(\w+)"\."contents" AS', re.sub(r"LENGTH\([^)]*\)", "", sql)) or []]
    assert len(read) <= 2, read


def test_the_head_reads_no_content_and_takes_two_queries_besides_who_asks(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now())
    browser.get(at(record, "head/"))
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(at(record, "head/")).status_code == 200
    assert len(captured) <= 5
    assert not any('"contents"' in query["sql"] for query in captured)


def test_the_head_tells_a_page_that_is_open_whether_anything_else_has_changed(browser: Client) -> None:
    record = make_record(State.SUBMITTED, now=timezone.now())

    def marker() -> str:
        return browser.get(at(record, "head/")).context["head"].marker

    first = marker()
    AudioRecord.objects.filter(pk=record.pk).update(progress=0.5, delay_time=timezone.now() + timedelta(minutes=1))
    assert marker() == first
    RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED)
    second = marker()
    assert second != first
    Recognition.objects.filter(record=record).update(updated=timezone.now())
    assert marker() not in (first, second)


@pytest.mark.parametrize(
    ("about", "refresh_ms"),
    [
        ({}, 2_000),
        ({"delay_time": timedelta(hours=1)}, 10_000),
        ({"halted_at": timedelta(0), "halt_reason": HaltReason.STOPPED}, 15_000),
        ({"state": State.DONE}, 0),
    ],
)
def test_a_page_looks_again_the_sooner_the_more_is_going_on(browser: Client, about: dict[str, Any], refresh_ms: int) -> None:
    now = timezone.now()
    columns: dict[str, Any] = {name: now + value if isinstance(value, timedelta) else value for name, value in about.items()}
    record = make_record(columns.pop("state", State.UPLOADED), now=now, **columns)
    page = browser.get(at(record, "head/"))
    assert f'data-refresh="{refresh_ms}"' in page.content.decode()


def test_a_long_journal_is_cut_and_says_so(browser: Client) -> None:
    record = make_record(now=timezone.now())
    RecordEvent.objects.bulk_create(
        RecordEvent(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED, outcome_text=f"Try {n}.")
        for n in range(JOURNAL_ROWS + 2)
    )
    text = text_of(browser.get(at(record)))
    assert f"The newest {JOURNAL_ROWS} rows; there are older ones." in text
    assert f"Try {JOURNAL_ROWS + 1}." in text
    assert "Try 2." in text
    assert "Try 1." not in text
    assert "Received" not in text


def test_rows_of_the_journal_say_how_long_after_the_one_before_they_came(browser: Client) -> None:
    record = make_record(now=timezone.now(), created=timezone.now() - timedelta(hours=3))
    for n, minutes in enumerate((10, 75)):
        event = RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED, outcome_text=f"Try {n}.")
        RecordEvent.objects.filter(pk=event.pk).update(created=record.created + timedelta(minutes=minutes))
    assert [event.after for event in browser.get(at(record)).context["journal"]] == ["1 h 5 min", "10 min"]


def test_times_are_the_viewer_s(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now().replace(year=2026, month=1, day=2, hour=3, minute=4, second=5, microsecond=0))
    browser.cookies["timezone"] = "Asia/Tokyo"
    page = browser.get(at(record)).content.decode()
    assert "2026-01-02T12:04:05+09:00" in page
    assert "2026-01-02 12:04:05" in page


def test_the_page_speaks_russian(browser: Client) -> None:
    record = make_halted(HaltReason.STUCK)
    page = browser.get(at(record), headers={"accept-language": "ru"})
    with translation.override("ru"):
        assert str(HaltReason.STUCK.label) in text_of(page)
    assert '<html lang="ru"' in page.content.decode()


def test_markup_in_what_was_sent_is_shown_as_text(browser: Client) -> None:
    record = make_record(
        State.TRANSCRIBED, now=timezone.now(), title=ATTACK, brief=ATTACK, halted_at=timezone.now(), halt_reason=HaltReason.STUCK,
        error_code="x", error_text=f'"{ATTACK}', notes=[ATTACK],
    )  # fmt: skip
    said(record, ATTACK, speaker=ATTACK)
    assert record.recognition
    record.recognition.options = {"prompt": ATTACK, ATTACK: [ATTACK]}
    record.recognition.external_id = record.recognition.source_uri = f'"{ATTACK}'
    record.recognition.save()
    record.topics.add(Topic.objects.create(owner=record.owner, name=ATTACK))
    RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED, outcome_text=ATTACK)
    for url in (at(record), at(record, "head/"), at(record, "utterances/"), at(record, "delete/")):
        page = browser.get(url).content.decode()
        assert ATTACK not in page, url
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page, url
    saved = browser.post(at(record), {"title": ATTACK + "!", "brief": ATTACK}, follow=True)
    assert ATTACK not in saved.content.decode()


# ---- the transcript -----------------------------------------------------------------------------------------------------------------


def numbers(page: Any) -> list[int]:
    return [int(number) for number in re.findall(r"Sentence (\d+)\.", text_of(page))]


def test_every_utterance_of_a_long_transcript_is_reached_and_none_comes_twice(browser: Client) -> None:
    total = FIRST_UTTERANCES + MORE_UTTERANCES + 7
    record = said(make_record(State.DONE, now=timezone.now()), *(f"Sentence {n}." for n in range(total)))
    page = browser.get(at(record))
    found = numbers(page)
    assert len(found) == FIRST_UTTERANCES
    while more := re.search(r'hx-get="([^"]+)"', page.content.decode()):
        page = browser.get(unescape(more[1]))
        found += numbers(page)
    assert found == list(range(total))


@pytest.mark.parametrize("start", ["-1", "x", "9" * 10, "1.5", ""])
def test_a_start_that_is_no_number_finds_nothing(browser: Client, start: str) -> None:
    record = said(make_record(State.DONE, now=timezone.now()), "Hello.")
    assert browser.get(at(record, f"utterances/?from={start}")).status_code == 404
    assert numbers(browser.get(at(record, "utterances/?from=5"))) == []
    assert browser.get(at(make_record(now=timezone.now()), "utterances/")).status_code == 404


def test_speakers_are_named_and_channels_where_there_are_several(browser: Client) -> None:
    record = said(make_record(State.DONE, now=timezone.now()), "Hello.", "Goodbye.")
    assert "channel" not in [utterance.who for utterance in browser.get(at(record)).context["stretch"].utterances]
    assert record.structure
    record.structure.contents["utterances"][1]["channel"] = 1
    record.structure.save()
    shown = browser.get(at(record)).context["stretch"].utterances
    assert [(utterance.who, utterance.voice) for utterance in shown] == [("channel 1", 0), ("channel 2", 1)]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [(State.SUBMITTED, "There is no transcript yet."), (State.DONE, "The transcript is empty: nobody spoke.")],
)
def test_where_there_is_no_transcript_the_page_says_why(browser: Client, state: State, sentence: str) -> None:
    assert sentence in text_of(browser.get(at(make_record(state, now=timezone.now()))))


# ---- how it stands, and what can be done --------------------------------------------------------------------------------------------


def acts(page: Any) -> dict[str, str]:
    """The buttons of the head: what they say, and where they lead."""
    part = page.content.decode().split('data-part="acts"')[1].split("</section>")[0]
    links = re.findall(r'<a href="([^"]+)".*?>(.*?)</a>', part, re.DOTALL)
    return {" ".join(re.sub(r"<[^>]+>", " ", label).split()): unescape(href) for href, label in links}


def test_only_what_makes_sense_is_offered(browser: Client) -> None:
    running, done, stuck = make_record(now=timezone.now()), make_record(State.DONE, now=timezone.now()), make_halted(HaltReason.STUCK)
    unconfirmed = make_halted(HaltReason.UNCONFIRMED)
    assert list(acts(browser.get(at(running)))) == ["Halt", "Restart from a state…"]
    assert list(acts(browser.get(at(done)))) == ["Restart from a state…"]
    assert list(acts(browser.get(at(stuck)))) == ["Resume", "Restart from a state…"]
    assert list(acts(browser.get(at(unconfirmed)))) == ["Answer: was it accepted?", "Restart from a state…"]


def test_a_record_whose_operation_is_dead_offers_first_to_restart_and_says_what_it_costs(browser: Client) -> None:
    record = make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="result_expired", error_text="The result has expired.")
    page = browser.get(at(record))
    offered = acts(page)
    assert list(offered) == ["Restart with a new recognition", "Resume", "Restart from a state…"]
    assert offered["Restart with a new recognition"] == at(record, "restart/?state=normalized")
    text = text_of(page)
    assert "The operation is dead" in text
    assert "may have to be paid for" in text


def test_a_record_that_another_key_would_free_offers_to_resume(browser: Client) -> None:
    sentence = "If the key was changed, put the former one back and resume the record."
    record = make_halted(HaltReason.REJECTED, State.SUBMITTED, error_code="operation_forbidden", error_text=sentence)
    page = browser.get(at(record))
    assert list(acts(page)) == ["Resume", "Restart from a state…"]
    text = text_of(page)
    assert "The operation is dead" not in text
    assert "another recording" not in text
    assert "Put the cause right first" in text


def test_an_unconfirmed_record_says_what_to_do_from_a_shell_too(browser: Client) -> None:
    record = make_halted(HaltReason.UNCONFIRMED)
    assert f"confirm_submission {record.pk} --external-id" in text_of(browser.get(at(record)))


def test_who_halted_it_stands_there(browser: Client) -> None:
    record = make_record(now=timezone.now())
    browser.post(at(record, "halt/"), {"confirmed": "yes"})
    page = browser.get(at(record))
    assert "Halted: Stopped" in text_of(page)
    assert re.search(r"Halted \d+ s ago by olga\.", text_of(page))


def test_progress_is_shown_while_a_worker_holds_it(browser: Client) -> None:
    lease: dict[str, Any] = {"acquisition_id": uuid4(), "acquire_expires_at": timezone.now() + timedelta(minutes=1)}
    page = browser.get(at(make_record(State.SUBMITTED, now=timezone.now(), progress=0.4, **lease))).content.decode()
    assert '<progress value="0.4"' in page
    assert "40% done" in page
    assert "<progress" not in browser.get(at(make_record(State.SUBMITTED, now=timezone.now()))).content.decode()


# ---- editing ------------------------------------------------------------------------------------------------------------------------


def sent(record: AudioRecord, **changes: str) -> dict[str, str]:
    """What the page's form sends."""
    return {"title": record.title, "brief": record.brief, "state": record.state, "initial-state": record.state, "_save": "", **changes}


def test_title_and_brief_are_edited_and_nothing_else_even_if_it_is_sent(browser: Client) -> None:
    record = make_record(now=timezone.now(), title="Old")
    page = browser.post(at(record), sent(record, title="New", brief="Short", attempts="7", halt_reason="stuck", owner="1"), follow=True)
    assert page.redirect_chain == [(at(record), 302)]
    assert told(page) == ["Saved."]
    owner = record.owner
    record.refresh_from_db()
    assert (record.title, record.brief, record.attempts, record.halt_reason, record.owner) == ("New", "Short", 0, "", owner)
    entry = LogEntry.objects.get()
    assert "New" not in entry.object_repr + entry.change_message
    assert "Old" not in entry.object_repr + entry.change_message


def test_another_state_is_asked_for_and_not_written(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now(), title="Old")
    answer = browser.post(at(record), sent(record, state="normalized", title="New"))
    assert (answer.status_code, answer["Location"]) == (302, at(record, "restart/?state=normalized"))
    record.refresh_from_db()
    assert (record.state, record.title) == (State.DONE, "New")
    assert not RecordEvent.objects.exists()
    asked = browser.get(answer["Location"])
    assert re.search(r'value="normalized"[^>]* checked', asked.content.decode())
    assert "paid for" in text_of(asked) or "costs nothing" in text_of(asked)


def test_a_state_edited_by_hand_and_confirmed_is_a_restart_in_the_journal(browser: Client, operator: User) -> None:
    record = make_record(State.DONE, now=timezone.now())
    asked = browser.post(at(record), sent(record, state="submitted"), follow=True)
    browser.post(asked.redirect_chain[-1][0], {"confirmed": "yes", "state": "submitted"})
    record.refresh_from_db()
    assert (record.state, record.structure, record.transcript_text) == (State.SUBMITTED, None, None)
    event = RecordEvent.objects.get()
    assert (event.outcome, event.origin, event.actor, event.outcome_text) == (
        EventOutcome.RESTARTED, Origin.ADMIN, operator, "done → submitted",
    )  # fmt: skip


@pytest.mark.parametrize("state", ["transcribed", "done"])
def test_a_state_that_was_not_reached_is_refused_with_a_sentence_and_nothing_is_written(browser: Client, state: str) -> None:
    record = make_record(State.NORMALIZED, now=timezone.now(), title="Old")
    page = browser.post(at(record), sent(record, state=state, title="New"))
    assert page.status_code == 200
    assert f"stands at “Normalized” and has not come to “{State(state).label}” yet" in text_of(page)
    assert 'value="New"' in page.content.decode()  # nothing that was typed is lost
    record.refresh_from_db()
    assert (record.state, record.title) == (State.NORMALIZED, "Old")
    assert browser.post(at(record), sent(record, state="nonsense")).status_code == 200


def test_a_state_that_is_sent_empty_is_none_that_was_chosen(browser: Client) -> None:
    record = make_record(State.TRANSCRIBED, now=timezone.now())
    page = browser.post(at(record), sent(record, state="", title="New"), follow=True)
    assert told(page) == ["Saved."]
    record.refresh_from_db()
    assert (record.state, record.title) == (State.TRANSCRIBED, "New")


def test_a_state_that_moved_on_while_the_page_was_open_is_not_taken_for_edited(browser: Client) -> None:
    record = make_record(State.TRANSCRIBED, now=timezone.now())
    page = browser.post(at(record), sent(record, state="normalized", **{"initial-state": "normalized"}, title="New"), follow=True)
    assert told(page) == ["Saved."]
    record.refresh_from_db()
    assert (record.state, record.title) == (State.TRANSCRIBED, "New")


def test_saving_leaves_alone_what_a_worker_wrote_since_the_page_was_read(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record(now=timezone.now())
    from records.admin import AudioRecordAdmin

    real = AudioRecordAdmin.save_model

    def save_late(self: Any, request: Any, obj: Any, form: Any, change: Any) -> None:
        AudioRecord.objects.filter(pk=record.pk).update(attempts=2, error_code="later")
        real(self, request, obj, form, change)

    monkeypatch.setattr(AudioRecordAdmin, "save_model", save_late)
    browser.post(at(record), sent(record, title="New"))
    record.refresh_from_db()
    assert (record.title, record.attempts, record.error_code) == ("New", 2, "later")


def test_a_title_that_is_too_long_is_told_at_its_place(browser: Client) -> None:
    record = make_record(now=timezone.now())
    page = browser.post(at(record), sent(record, title="x" * 256))
    assert "It was not saved." in text_of(page)
    assert "at most 255 characters" in text_of(page)


def test_history_can_be_changed_nowhere_in_the_admin() -> None:
    shown = set(admin.site._registry)
    assert AudioRecord in shown
    assert shown.isdisjoint({RecordEvent, Recognition, File, Text, Structure, ProviderRemoval})


# ---- who may what -------------------------------------------------------------------------------------------------------------------


def test_who_may_only_look_sees_everything_and_can_do_nothing(viewer: Client) -> None:
    record = said(make_halted(HaltReason.STUCK, State.TRANSCRIBED), "Hello.")
    page = viewer.get(at(record))
    assert "Hello." in text_of(page)
    assert 'data-part="acts"' not in page.content.decode()
    assert not re.search(r'<form[^>]*method="post"[^>]*id="audiorecord_form"', page.content.decode())
    for name in ("halt", "resume", "restart", "confirm", "delete"):
        assert at(record, f"{name}/") not in hrefs(page)
        assert viewer.post(at(record, f"{name}/"), {"confirmed": "yes", "state": "uploaded", "post": "yes"}).status_code == 403
    assert viewer.post(at(record), sent(record, title="Mine now")).status_code == 403
    record.refresh_from_db()
    assert (record.title, record.halt_reason) == ("A recording", HaltReason.STUCK)
    assert not RecordEvent.objects.exists()
    for tail in ("head/", "utterances/", "files/original/", "audio/normalized/", "transcript.txt"):
        answer = viewer.get(at(record, tail))
        assert answer.status_code == 200
        assert body_of(answer)


TAILS = ("", "head/", "utterances/", "confirm/", "audio/normalized/", "files/original/", "transcript.txt", "recognitions/{}/payload/")


@pytest.mark.parametrize("tail", TAILS)
def test_people_without_a_right_to_records_see_nothing(tail: str) -> None:
    record = said(make_record(State.DONE, now=timezone.now()), "Hello.")
    assert record.recognition
    record.recognition.payload.save("", ContentFile(b"raw"))
    url = at(record, tail.format(record.recognition.pk) or "change/")
    assert Client().get(url).status_code == 302
    for user, status in ((make_user(), 302), (make_user(is_staff=True), 403)):
        client = Client()
        client.force_login(user)
        assert client.get(url).status_code == status


@pytest.mark.parametrize("tail", TAILS)
def test_a_record_that_is_not_there_is_not_found(browser: Client, tail: str) -> None:
    answer = browser.get(f"{LIST}{uuid4()}/{tail.format(uuid4())}")
    assert answer.status_code == (302 if tail == "" else 404)  # Django's own page goes home with a message


# ---- unconfirmed submissions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def unconfirmed() -> AudioRecord:
    record = make_halted(HaltReason.UNCONFIRMED)
    record.recognition = Recognition.objects.create(
        record=record, provider="speechkit", submit_started_at=timezone.now(), source_uri="https://bucket.example/a.ogg"
    )
    record.save()
    return record


def test_the_question_says_what_is_known_and_what_it_costs(browser: Client, unconfirmed: AudioRecord) -> None:
    page = browser.get(at(unconfirmed, "confirm/"))
    text = text_of(page)
    for piece in (
        "speechkit",
        "https://bucket.example/a.ogg",
        "0:02",
        "How to look it up",
        "it is paid twice",
        "Submit again, and pay again",
    ):
        assert piece in text, piece
    assert unconfirmed.recognition
    assert unconfirmed.recognition.submit_started_at
    assert f"{timezone.localtime(unconfirmed.recognition.submit_started_at):%Y-%m-%d %H:%M:%S}" in text


def test_the_operation_s_id_is_entered_after_a_confirmation(browser: Client, operator: User, unconfirmed: AudioRecord) -> None:
    asked = browser.post(at(unconfirmed, "confirm/"), {"answer": "id", "external_id": "f8d-found"})
    assert "Tick that you have looked it up" in text_of(asked)
    assert 'value="f8d-found"' in asked.content.decode()
    unconfirmed.refresh_from_db()
    assert unconfirmed.halted_at is not None

    page = browser.post(
        at(unconfirmed, "confirm/"), {"answer": "id", "external_id": " f8d-found ", "confirmed": "on"}, follow=True
    )  # fmt: skip

    assert told(page) == ["It goes on: the operation is polled."]
    unconfirmed.refresh_from_db()
    assert unconfirmed.recognition
    assert (unconfirmed.halted_at, unconfirmed.recognition.external_id) == (None, "f8d-found")
    assert unconfirmed.events.get().actor == operator


def test_submitting_again_makes_room_for_a_new_recognition(browser: Client, unconfirmed: AudioRecord) -> None:
    browser.post(at(unconfirmed, "confirm/"), {"answer": "again", "confirmed": "on"})
    unconfirmed.refresh_from_db()
    assert (unconfirmed.halted_at, unconfirmed.recognition) == (None, None)
    assert unconfirmed.recognitions.count() == 1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"answer": "id", "external_id": "", "confirmed": "on"}, "1 to 50 characters"),
        ({"answer": "id", "external_id": "x" * 51, "confirmed": "on"}, "1 to 50 characters"),
        ({"answer": "again"}, "Tick that you have looked it up"),
        ({"confirmed": "on"}, "Choose one of the two."),
    ],
)
def test_no_answer_changes_nothing_and_loses_nothing(
    answer: dict[str, str], complaint: str, browser: Client, unconfirmed: AudioRecord
) -> None:
    page = browser.post(at(unconfirmed, "confirm/"), answer)
    assert page.status_code == 200
    assert complaint in text_of(page)
    if given := answer.get("external_id"):
        assert f'value="{given}"' in page.content.decode()
    if "confirmed" in answer and "answer" in answer:
        assert page.content.decode().count(" checked") == 1
    unconfirmed.refresh_from_db()
    assert unconfirmed.halt_reason == HaltReason.UNCONFIRMED


def test_an_id_that_another_recognition_has_is_refused(browser: Client, unconfirmed: AudioRecord) -> None:
    other = make_record(now=timezone.now())
    Recognition.objects.create(record=other, provider="speechkit", external_id="taken")
    page = browser.post(at(unconfirmed, "confirm/"), {"answer": "id", "external_id": "taken", "confirmed": "on"})
    assert "belongs to another recognition" in text_of(page)
    unconfirmed.refresh_from_db()
    assert unconfirmed.halted_at is not None


def test_an_answer_that_comes_too_late_says_so(browser: Client, unconfirmed: AudioRecord) -> None:
    for record in (make_halted(), make_record(State.DONE, now=timezone.now())):
        page = browser.post(at(record, "confirm/"), {"answer": "again", "confirmed": "on"}, follow=True)
        assert told(page) == ["This record does not stand as unconfirmed any more."]
    assert unconfirmed.recognition
    Recognition.objects.filter(pk=unconfirmed.recognition.pk).update(external_id="came-late")
    page = browser.get(at(unconfirmed, "confirm/"), follow=True)
    assert told(page) == ["Its operation is known by now: resume the record, nothing needs to be paid again."]
    assert "Resume" in acts(page)


def test_an_id_holds_no_nul(browser: Client, unconfirmed: AudioRecord) -> None:
    page = browser.post(at(unconfirmed, "confirm/"), {"answer": "id", "external_id": "\0", "confirmed": "on"})
    assert "1 to 50 characters" in text_of(page)
    browser.post(at(unconfirmed, "confirm/"), {"answer": "id", "external_id": "op\0-1", "confirmed": "on"})
    unconfirmed.refresh_from_db()
    assert unconfirmed.recognition
    assert unconfirmed.recognition.external_id == "op-1"


# ---- what it gives out --------------------------------------------------------------------------------------------------------------


def test_sound_comes_in_ranges_as_what_it_was_found_to_be(browser: Client) -> None:
    record = make_record(State.NORMALIZED, now=timezone.now(), contents=b"0123456789")
    File.objects.filter(pk=record.original_file_id).update(format="wav")
    url = at(record, "audio/original/")
    whole = browser.get(url)
    assert (whole.status_code, whole["Content-Type"], body_of(whole)) == (200, "audio/wav", b"0123456789")
    assert whole["Content-Disposition"] == f'inline; filename="{record.pk}-original.wav"'
    assert whole["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in whole["Content-Security-Policy"]
    assert "no-cache" in whole["Cache-Control"]
    part = browser.get(url, headers={"range": "bytes=3-5"})
    assert (part.status_code, part["Content-Range"], body_of(part)) == (206, "bytes 3-5/10", b"345")
    assert body_of(browser.get(url, headers={"range": "bytes=-2"})) == b"89"
    beyond = browser.get(url, headers={"range": "bytes=10-"})
    assert (beyond.status_code, beyond["Content-Range"]) == (416, "bytes */10")
    same = browser.get(url, headers={"range": "bytes=3-5", "if-range": whole["ETag"]})
    assert (same.status_code, body_of(same)) == (206, b"345")
    other = browser.get(url, headers={"range": "bytes=3-5", "if-range": '"another"'})
    assert (other.status_code, body_of(other)) == (200, b"0123456789")
    assert browser.get(url, headers={"if-none-match": whole["ETag"]}).status_code == 304
    assert browser.head(url)["Content-Length"] == "10"


@pytest.mark.parametrize("found", ["", "html", "mpegts"])
def test_what_is_no_known_sound_is_only_ever_downloaded(browser: Client, found: str) -> None:
    record = make_record(now=timezone.now(), contents=ATTACK.encode())
    File.objects.filter(pk=record.original_file_id).update(format=found)
    page = browser.get(at(record))
    assert "<audio" not in page.content.decode()
    assert "There is nothing to play yet" in text_of(page)
    assert browser.get(at(record, "audio/original/")).status_code == 404
    answer = browser.get(at(record, "files/original/"))
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == f'attachment; filename="{record.pk}-original.bin"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert body_of(answer) == ATTACK.encode()
    for tail in ("files/normalized/", "files/other/", "audio/normalized/", "audio/other/"):
        assert browser.get(at(record, tail)).status_code == 404


def test_bytes_that_are_gone_are_not_found(browser: Client) -> None:
    record = make_record(State.DONE, now=timezone.now())
    assert record.normalized_file
    assert record.recognition
    record.recognition.payload.save("", ContentFile(b"raw"))
    for location in (record.normalized_file.location, record.recognition.payload.name):
        default_storage.delete(str(location))
    for tail in ("audio/normalized/", "files/normalized/", f"recognitions/{record.recognition.pk}/payload/"):
        assert browser.get(at(record, tail)).status_code == 404


def test_a_payload_is_given_out_for_its_own_record_alone(browser: Client) -> None:
    record, other = make_record(State.DONE, now=timezone.now()), make_record(State.DONE, now=timezone.now())
    assert record.recognition
    record.recognition.payload.save("", ContentFile(b"raw"))
    tail = f"recognitions/{record.recognition.pk}/payload/"
    answer = browser.get(at(record, tail))
    assert answer["Content-Disposition"] == f'attachment; filename="{record.recognition.pk}.raw"'
    assert body_of(answer) == b"raw"
    assert browser.get(at(other, tail)).status_code == 404


@pytest.mark.parametrize(
    ("kind", "content_type", "piece"),
    [
        ("txt", "text/plain; charset=utf-8", "Хлеб.\n"),
        ("srt", "application/x-subrip; charset=utf-8", "00:00:00,000 --> 00:00:01,000\nХлеб."),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT"),
        ("json", "application/json", '"text": "Хлеб."'),
    ],
)
def test_the_transcript_comes_in_four_forms(browser: Client, kind: str, content_type: str, piece: str) -> None:
    record = said(make_record(State.DONE, now=timezone.now(), title='../"Secret"'), "Хлеб.")
    answer = browser.get(at(record, f"transcript.{kind}"))
    assert answer["Content-Type"] == content_type
    assert answer["Content-Disposition"] == f'attachment; filename="{record.pk}.{kind}"'
    assert piece in answer.content.decode()
    if kind == "json":
        assert json.loads(answer.content)["version"] == 1


def test_a_transcript_that_is_not_there_and_a_form_that_is_none_are_not_found(browser: Client) -> None:
    waiting, done = make_record(now=timezone.now()), make_record(State.DONE, now=timezone.now())
    assert browser.get(at(waiting, "transcript.txt")).status_code == 404
    assert browser.get(at(waiting, "transcript.srt")).status_code == 404
    assert browser.get(at(done, "transcript.doc")).status_code == 404
    assert browser.get(at(done, "transcript.txt")).content == b""  # nobody spoke


def test_both_sounds_are_offered_the_normalized_one_first_at_an_address_of_this_file_alone(browser: Client) -> None:
    record = make_record(State.NORMALIZED, now=timezone.now())
    File.objects.filter(pk=record.original_file_id).update(format="mp3")
    page = browser.get(at(record)).content.decode()
    # A browser keeps sound by its address, and a restart puts another file in the place of the normalized one.
    normalized = at(record, f"audio/normalized/?file={record.normalized_file_id}")
    assert f'src="{normalized}"' in page
    assert re.findall(r'<option value="([^"]+)">', page.split("data-sound")[1].split("</select>")[0]) == [
        normalized,
        at(record, f"audio/original/?file={record.original_file_id}"),
    ]


@pytest.mark.parametrize("tail", ["head/", "change/", "confirm/"])
def test_a_record_that_is_removed_while_its_page_is_made_is_not_found(browser: Client, monkeypatch: pytest.MonkeyPatch, tail: str) -> None:
    from records.admin import AudioRecordAdmin

    record = make_record(now=timezone.now())

    def permitted(*about: Any) -> bool:
        removal.remove(AudioRecord.objects.filter(pk=record.pk))  # after the first look at it
        return True

    for name in ("has_view_permission", "has_change_permission"):
        monkeypatch.setattr(AudioRecordAdmin, name, permitted)
    assert browser.get(at(record, tail)).status_code == 404
    assert not AudioRecord.objects.exists()


# ---- removal ------------------------------------------------------------------------------------------------------------------------


def test_nobody_adds(browser: Client) -> None:
    assert browser.get(f"{LIST}add/").status_code == 403


@pytest.mark.django_db(transaction=True)
def test_a_record_is_removed_with_its_files_and_the_log_keeps_no_title(browser: Client, operator: User) -> None:
    record = make_record(State.DONE, now=timezone.now(), title="Secret")
    RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=EventOutcome.FAILED)
    assert record.normalized_file
    locations = [record.original_file.location, record.normalized_file.location]
    question = text_of(browser.get(at(record, "delete/")))
    for piece in ("Secret", "Files: 2", "Texts: 1", "Recognitions: 1", "Rows of the journal: 1", "The copy in the provider's bucket"):
        assert piece in question, piece
    assert all(default_storage.exists(location) for location in locations)
    browser.post(at(record, "delete/"), {"post": "yes"})
    assert not AudioRecord.objects.exists()
    assert not any(default_storage.exists(location) for location in locations)
    assert ProviderRemoval.objects.exists()  # what lies in the bucket goes as soon as the provider can be reached
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user) == (str(record.pk), operator)
    assert "Secret" not in entry.object_repr + entry.change_message


def test_where_nothing_lies_with_a_provider_nothing_is_said_of_it(browser: Client) -> None:
    record = make_record(now=timezone.now())
    assert "bucket" not in text_of(browser.get(at(record, "delete/")))


def test_the_page_offers_removal_to_those_who_may(browser: Client, viewer: Client) -> None:
    record = make_record(now=timezone.now())
    assert reverse("admin:records_audiorecord_delete", args=[record.pk]) in hrefs(browser.get(at(record)))
    assert viewer.get(at(record, "delete/")).status_code == 403
