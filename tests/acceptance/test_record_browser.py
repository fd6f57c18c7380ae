"""A record's page in a real browser: sound that is really played beside its transcript, a page that follows its record, and edits by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, Response, Route, expect

from recognition.models import Recognition
from records import audio
from records.models import AudioRecord, File, RecordEvent, Structure, Text, TextKind
from records.operations.removal import remove
from records.states import EventOutcome, HaltReason, Origin, State
from tests.acceptance.browser import NARROW, PATIENCE, WIDE, chromium, scrolls_sideways, sign_in, violations, visitor
from tests.audio import silence, tone, write_wav
from tests.factories import make_record, make_user
from topics.models import Topic

pytestmark = [pytest.mark.processes, pytest.mark.no_database, pytest.mark.django_db(transaction=True)]

LIST = "/admin/records/audiorecord/"
SECONDS = 300
PLAYS = "document.querySelector('audio').paused === false"
LIT_MS = "Number(document.querySelector('.utterance[aria-current]')?.dataset.start)"
IS_KNOWN = "document.querySelector('audio')?.readyState >= 1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@dataclass(frozen=True)
class Sound:
    original: bytes
    normalized: bytes
    duration_ms: int


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """Five minutes of beeps, one a second, as they were sent and normalized as every recording is."""
    folder = tmp_path_factory.mktemp("sound")
    source = write_wav(folder / "beeps.wav", (tone(0.6) + silence(0.4)) * SECONDS)
    normalized = audio.normalize(source, folder / "beeps.ogg", channels="mix", max_duration_s=3600, beat=lambda progress: None)
    return Sound(source.read_bytes(), (folder / "beeps.ogg").read_bytes(), normalized.duration_ms)


@pytest.fixture
def page(browser: Browser, live_server: Any) -> Iterator[Page]:
    """Of somebody who is signed in and may do everything."""
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    with visitor(browser) as opened:
        expect.set_options(timeout=PATIENCE)
        sign_in(opened, live_server.url, "olga", "a long sentence")
        yield opened


def give_sound(record: AudioRecord, sound: Sound) -> None:
    record.normalized_file = store(sound.normalized, sound, format="ogg")
    record.save()


def store(contents: bytes, sound: Sound, **about: Any) -> File:
    location = default_storage.save(f"records/test/{uuid4()}", ContentFile(contents))
    return File.objects.create(location=location, size=len(contents), duration_ms=sound.duration_ms, **about)


def spoken(utterances: int = SECONDS) -> Structure:
    """An utterance a second, of two speakers in turn."""
    contents = {
        "language": "en",
        "speakers": ["Anna", "Boris"],
        "utterances": [
            {
                "start_ms": n * 1000,
                "end_ms": n * 1000 + 900,
                "text": f"Sentence {n} about bread.",
                "channel": 0,
                "speaker": "Anna" if n % 2 else "Boris",
                "words": [],
            }
            for n in range(utterances)
        ],
    }
    return Structure.objects.create(version=1, contents=contents, language="en")


@pytest.fixture
def record(sound: Sound, db: Any) -> AudioRecord:
    """Done, with sound and transcript."""
    made = make_record(State.DONE, now=timezone.now(), title="Talk about bread")
    give_sound(made, sound)
    made.structure = spoken()
    made.save()
    return made


def open_page(page: Page, live_server: Any, record: AudioRecord, tail: str = "change/") -> None:
    page.goto(f"{live_server.url}{LIST}{record.pk}/{tail}")


def utterance(page: Page, number: int) -> Locator:
    return page.locator(f'.utterance[data-start="{number * 1000}"]')


def lit(page: Page) -> Locator:
    return page.locator(".utterance[aria-current]")


IN_VIEW = """row => {
  const [own, box] = [row, row.closest(".transcript")].map(element => element.getBoundingClientRect());
  return own.top >= box.top - 1 && own.bottom <= box.bottom + 1;
}"""


def wait_in_view(page: Page, row: Locator) -> None:
    """Of a row that stays the same."""
    page.wait_for_function(IN_VIEW, arg=row.element_handle())


def wait_lit_in_view(page: Page) -> None:
    """Of whichever is lit at the time: while it plays, that goes on."""
    page.wait_for_function(f"[...document.querySelectorAll('.utterance[aria-current]')].slice(-1).some({IN_VIEW})")


def moment(page: Page) -> float:
    return float(page.evaluate("document.querySelector('audio').currentTime"))


# ---- the player ---------------------------------------------------------------------------------------------------------------------


def test_a_click_on_an_utterance_plays_it_and_the_playing_one_is_lit_and_kept_in_view(
    page: Page, live_server: Any, record: AudioRecord
) -> None:
    open_page(page, live_server, record)
    page.wait_for_function(IS_KNOWN)
    assert page.evaluate("Math.round(document.querySelector('audio').duration)") == SECONDS
    utterance(page, 120).locator("p").click()
    page.wait_for_function(PLAYS)
    page.wait_for_function(f"{LIT_MS} >= 120000")
    assert moment(page) >= 120
    began = page.evaluate(LIT_MS)
    page.wait_for_function(f"{LIT_MS} > {began}")  # it goes along
    expect(lit(page)).to_have_count(1)
    wait_lit_in_view(page)


def test_seeking_fetches_ranges_of_the_sound(page: Page, live_server: Any, record: AudioRecord, sound: Sound) -> None:
    AudioRecord.objects.filter(pk=record.pk).update(original_file=store(sound.original, sound, format="wav"))
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer) if "/audio/original/" in answer.url else None)
    open_page(page, live_server, record)
    page.locator("[data-sound]").select_option("Original")
    page.wait_for_function(IS_KNOWN)
    starts = re.compile(r"bytes (\d+)-")
    with page.expect_response(
        lambda answer: (
            "/audio/original/" in answer.url
            and int(starts.match(answer.headers.get("content-range", "bytes 0-"))[1]) > len(sound.original) / 2
        )  # type: ignore[index]
    ):
        page.evaluate("document.querySelector('audio').currentTime = 280")
    page.wait_for_function("!document.querySelector('audio').seeking && document.querySelector('audio').readyState >= 2")
    expect(utterance(page, 280)).to_have_attribute("aria-current", "true")
    assert {answer.status for answer in answers} == {206}
    assert {answer.headers["content-type"] for answer in answers} == {"audio/wav"}


def test_the_keyboard_plays_pauses_skips_and_goes_from_utterance_to_utterance(page: Page, live_server: Any, record: AudioRecord) -> None:
    open_page(page, live_server, record)
    page.wait_for_function(IS_KNOWN)
    utterance(page, 0).locator("button").focus()
    for _ in range(60):
        page.keyboard.press("ArrowDown")
    expect(utterance(page, 60).locator("button")).to_be_focused()
    expect(page.locator('.at[tabindex="0"]')).to_have_count(1)  # Tab goes through the transcript in one step
    page.keyboard.press("Enter")
    page.wait_for_function(f"{PLAYS} && document.querySelector('audio').currentTime >= 60")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    page.wait_for_function("document.querySelector('audio').paused")
    stood = moment(page)
    page.keyboard.press("ArrowRight")
    assert moment(page) == pytest.approx(stood + 5, abs=0.01)
    page.keyboard.press("ArrowLeft")
    assert moment(page) == pytest.approx(stood, abs=0.01)
    page.locator("#id_title").focus()
    page.keyboard.press("End")
    page.keyboard.type(" x")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#id_title").input_value() == "Talk about bread x"
    assert page.evaluate("document.querySelector('audio').paused")
    assert moment(page) == pytest.approx(stood, abs=0.01)
    utterance(page, 200).locator("button").focus()
    page.keyboard.press(" ")
    page.wait_for_function(f"{PLAYS} && document.querySelector('audio').currentTime >= 200")


def test_a_person_who_scrolls_is_left_alone_until_they_come_back(page: Page, live_server: Any, record: AudioRecord) -> None:
    open_page(page, live_server, record)
    page.wait_for_function(IS_KNOWN)
    utterance(page, 10).locator("button").click()
    page.wait_for_function(PLAYS)
    wait_lit_in_view(page)
    page.locator(".transcript").hover()
    page.mouse.wheel(0, 1_000_000)  # to its end, where nothing plays for minutes
    back = page.get_by_role("button", name="Back to what is playing")
    expect(back).to_be_visible()
    page.wait_for_function("document.querySelector('.transcript').scrollTop > 2000")
    stood = page.evaluate(LIT_MS)
    page.wait_for_function(f"{LIT_MS} > {stood}")
    page.evaluate("document.querySelector('audio').pause()")
    assert not lit(page).last.evaluate(IN_VIEW)
    back.click()
    expect(back).to_be_hidden()
    wait_lit_in_view(page)


@pytest.mark.parametrize(("t", "second"), [("120", 120), ("4:10", 250)])
def test_a_link_to_a_moment_opens_the_page_there(page: Page, live_server: Any, record: AudioRecord, t: str, second: int) -> None:
    open_page(page, live_server, record, f"change/?t={t}")
    page.wait_for_function(IS_KNOWN)
    expect(utterance(page, second)).to_have_attribute("aria-current", "true")
    assert moment(page) == pytest.approx(second, abs=0.1)
    assert page.evaluate("document.querySelector('audio').paused")
    wait_in_view(page, utterance(page, second))


def test_a_long_transcript_is_all_there(page: Page, live_server: Any, record: AudioRecord) -> None:
    AudioRecord.objects.filter(pk=record.pk).update(structure=spoken(2600))
    open_page(page, live_server, record)
    expect(page.locator(".utterance")).to_have_count(2600)
    starts = page.evaluate("[...document.querySelectorAll('.utterance')].map(row => Number(row.dataset.start))")
    assert starts == [n * 1000 for n in range(2600)]
    expect(page.locator(".more")).to_have_count(0)


def test_the_other_sound_can_be_chosen_and_what_cannot_be_played_says_so(page: Page, live_server: Any, record: AudioRecord) -> None:
    File.objects.filter(pk=record.original_file_id).update(format="wav")  # its bytes are no sound
    open_page(page, live_server, record)
    page.wait_for_function(IS_KNOWN)
    problem = page.get_by_text("This browser can't play it")
    expect(problem).to_be_hidden()
    page.locator("[data-sound]").select_option("Original")
    expect(problem).to_be_visible()
    page.locator("[data-sound]").select_option("Normalized copy")
    page.wait_for_function(IS_KNOWN)
    expect(problem).to_be_hidden()


def test_downloads_come(page: Page, live_server: Any, record: AudioRecord, tmp_path: Path) -> None:
    assert record.recognition
    record.recognition.payload.save("", ContentFile(b"the answer"))
    open_page(page, live_server, record)
    brought = {}
    for name in ("Original", "Normalized copy", "Raw answer of the provider", "txt", "srt", "vtt", "json"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        brought[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    key, attempt = str(record.pk), str(record.recognition.pk)
    assert set(brought) == {
        f"{key}-original.bin", f"{key}-normalized.ogg", f"{attempt}.raw", f"{key}.txt", f"{key}.srt", f"{key}.vtt", f"{key}.json",
    }  # fmt: skip
    assert brought[f"{key}-normalized.ogg"].startswith(b"OggS")
    assert brought[f"{attempt}.raw"] == b"the answer"
    assert brought[f"{key}.txt"].startswith(b"Boris: Sentence 0 about bread.\nAnna: Sentence 1 about bread.\n")
    assert b"Anna: Sentence 299 about bread." in brought[f"{key}.srt"]


# ---- a page that follows its record -------------------------------------------------------------------------------------------------


def advance(record: AudioRecord, step: str, told: str, **columns: Any) -> None:
    """As a worker does it, at once: a page that looks in between would take the final state for the whole of it."""
    with transaction.atomic():
        AudioRecord.objects.filter(pk=record.pk).update(**columns)
        RecordEvent.objects.create(record=record, origin=Origin.WORKER, step=step, outcome=EventOutcome.ADVANCED, outcome_text=told)


def test_an_open_page_follows_its_record_and_disturbs_nothing(page: Page, live_server: Any, sound: Sound) -> None:
    now = timezone.now()
    record = make_record(State.SUBMITTED, now=now, delay_time=now + timedelta(hours=1), title="Old")
    open_page(page, live_server, record)
    expect(page.locator("[aria-current=step]")).to_contain_text("Submitted")
    expect(page.get_by_text("next status check in")).to_be_visible()
    expect(page.get_by_text("There is no transcript yet.")).to_be_visible()
    page.fill("#id_title", "Half a ti")
    page.get_by_role("link", name="Halt", exact=True).focus()

    give_sound(record, sound)
    text = Text.objects.create(kind=TextKind.TRANSCRIPT, contents="Sentence 0 about bread.")
    advance(record, "poll", "It is there.", state=State.TRANSCRIBED, structure=spoken(3), transcript_text=text, delay_time=timezone.now())

    expect(page.locator("[aria-current=step]")).to_contain_text("Transcribed")
    expect(page.locator(".utterance")).to_have_count(3)
    expect(page.locator(".timeline")).to_contain_text("It is there.")
    expect(page.locator("[data-announce]")).to_contain_text("State: Transcribed.")
    expect(page.get_by_role("link", name="Halt", exact=True)).to_be_focused()
    assert page.locator("#id_title").input_value() == "Half a ti"
    expect(page.locator("[name=state]")).to_have_value("transcribed")
    expect(page.locator("[name=initial-state]")).to_have_value("transcribed")
    page.wait_for_function(IS_KNOWN)

    utterance(page, 1).locator("button").click()
    page.wait_for_function(PLAYS)
    advance(record, "finish", "All done.", state=State.DONE, state_entered_at=timezone.now(), progress=1)
    expect(page.locator("[aria-current=step]")).to_contain_text("Done")
    expect(page.locator(".timeline")).to_contain_text("All done.")
    page.wait_for_function(f"{PLAYS} && document.querySelector('audio').currentTime > 2")  # it played on


@pytest.mark.parametrize("fails", ["answers 503", "can't be reached"])
@pytest.mark.parametrize("address", ["head/", "change/"], ids=["head", "whole"])
def test_an_open_page_goes_on_following_after_the_service_was_away(page: Page, live_server: Any, address: str, fails: str) -> None:
    record = make_record(State.SUBMITTED, now=timezone.now())
    failed: list[str] = []

    def fail_once(route: Route) -> None:
        if failed or route.request.resource_type != "fetch":
            route.continue_()
            return
        failed.append(route.request.url)
        if fails == "answers 503":
            route.fulfill(status=503, body="Away for a moment.")
        else:
            route.abort()

    page.route(f"**/{record.pk}/{address}", fail_once)
    open_page(page, live_server, record)
    expect(page.get_by_text("There is no transcript yet.")).to_be_visible()

    advance(record, "poll", "It is there.", state=State.DONE, structure=spoken(3), state_entered_at=timezone.now(), progress=1)

    expect(page.locator("[aria-current=step]")).to_contain_text("Done")
    expect(page.locator(".utterance")).to_have_count(3)
    expect(page.locator(".timeline")).to_contain_text("It is there.")
    assert len(failed) == 1


def test_an_open_page_of_a_record_that_is_gone_looks_no_more(page: Page, live_server: Any) -> None:
    record = make_record(State.SUBMITTED, now=timezone.now())
    page.clock.install()
    looks: list[str] = []
    page.on("request", lambda request: looks.append(request.url) if request.url.endswith("/head/") else None)
    open_page(page, live_server, record)
    with page.expect_response(lambda answer: answer.url.endswith("/head/") and answer.status == 404):
        remove(AudioRecord.objects.all())
    before = len(looks)

    page.clock.run_for(60_000)

    assert len(looks) == before


# ---- by hand ------------------------------------------------------------------------------------------------------------------------


def test_a_state_edited_by_hand_is_confirmed_and_journaled(page: Page, live_server: Any, record: AudioRecord) -> None:
    open_page(page, live_server, record)
    page.get_by_label("State", exact=True).select_option("submitted")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile(r"/restart/\?state=submitted"))
    expect(page.locator('input[name="state"][value="submitted"]')).to_be_checked()
    record.refresh_from_db()
    assert record.state == State.DONE
    page.locator('form:has(input[name="state"]) [type=submit]').click()
    expect(page.locator("[aria-current=step]")).to_contain_text("Submitted")
    expect(page.locator(".timeline")).to_contain_text("Done → Submitted")
    expect(page.locator(".timeline")).to_contain_text("olga (Admin)")
    record.refresh_from_db()
    assert (record.state, record.structure) == (State.SUBMITTED, None)


def test_a_state_that_lies_ahead_is_refused_at_its_field(page: Page, live_server: Any) -> None:
    record = make_record(State.NORMALIZED, now=timezone.now())
    open_page(page, live_server, record)
    page.get_by_label("State", exact=True).select_option("done")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("has not come to “Done” yet")).to_be_in_viewport()


def test_an_unconfirmed_submission_is_answered_for(page: Page, live_server: Any) -> None:
    record = unconfirmed()
    open_page(page, live_server, record)
    page.get_by_role("link", name="Answer: was it accepted?").click()
    page.get_by_label("The operation's id").fill("f8d-found")
    enter = page.get_by_role("button", name="Enter the id")
    enter.click()
    expect(page).to_have_url(re.compile("/confirm/$"))  # the browser asks for the tick
    page.get_by_label("this operation is of this recording").check()
    enter.click()
    expect(page.get_by_text("It goes on: the operation is polled.")).to_be_visible()
    record.refresh_from_db()
    assert record.halted_at is None


# ---- how it looks -------------------------------------------------------------------------------------------------------------------


def unconfirmed() -> AudioRecord:
    now = timezone.now()
    record = make_record(State.NORMALIZED, now=now, halted_at=now, halt_reason=HaltReason.UNCONFIRMED, error_code="submission_unconfirmed")
    record.recognition = Recognition.objects.create(
        record=record, provider="speechkit", model="general", submit_started_at=now, source_uri=f"https://storage.example/{'b' * 120}.ogg"
    )
    record.save()
    return record


def full(record: AudioRecord) -> AudioRecord:
    """With a row in every table, and with long words that could burst a narrow page."""
    AudioRecord.objects.filter(pk=record.pk).update(
        title="Interview_with_a_very_long_name_that_nobody_has_broken_into_words_2026_01_02_final_version.mp3",
        brief="About bread, its crust, and why it is cut the way it is.",
        state=State.SUBMITTED,
        halted_at=timezone.now(),
        halt_reason=HaltReason.REJECTED,
        error_code="result_expired",
        error_text=f"It has expired: {'x' * 200}.",
        notes=["truncated", "resampled"],
    )
    record.refresh_from_db()
    record.topics.add(Topic.objects.create(owner=record.owner, name="bakery" * 20))
    record.literary_text = Text.objects.create(kind=TextKind.LITERARY, contents="Once upon a time. " * 40)
    record.save()
    File.objects.filter(pk=record.original_file_id).update(format="wav")
    assert record.recognition
    record.recognition.options = {"language": None, "prompt": "p" * 200, "words": ["bread", "crust"]}
    record.recognition.external_id = "o" * 50
    record.recognition.save()
    for outcome in EventOutcome:
        RecordEvent.objects.create(
            record=record, origin=Origin.WORKER, step="poll", outcome=outcome, duration_ms=1234, outcome_text=f"what: {'y' * 150}"
        )
    return record


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_can_be_read_by_everybody(
    browser: Browser, live_server: Any, record: AudioRecord, scheme: str, size: dict[str, int]
) -> None:
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    full(record)
    waits = unconfirmed()
    with visitor(browser, viewport=size, color_scheme=scheme) as page:
        sign_in(page, live_server.url, "olga", "a long sentence")
        for shown, tail in ((record, f"change/?t={SECONDS // 2}"), (waits, "change/"), (waits, "confirm/"), (record, "delete/")):
            open_page(page, live_server, shown, tail)
            page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
            if tail.startswith("change/?t"):
                expect(lit(page)).to_have_count(1)
            assert not scrolls_sideways(page), tail
            assert violations(page) == [], tail
