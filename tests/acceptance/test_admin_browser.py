"""The main paths of an operator, in a real browser: sign in, find what stands, put it right, read a record; wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from records.models import AudioRecord, RecordEvent
from records.states import EventOutcome, HaltReason, Origin, State
from tests.acceptance.chromium import Chromium, find_chromium
from tests.factories import make_record, make_user
from topics.models import Topic

pytestmark = [pytest.mark.processes, pytest.mark.no_database, pytest.mark.django_db(transaction=True)]

LIST = "/admin/records/audiorecord/"

# The lowest contrast of text against what lies behind it, among the elements that are ours, and whose text that is.
CONTRAST = """
(() => {
  const channels = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const ours = ".badge, .quiet, .standing p, .standing li, .rows td, .rows th, .rows h2, .rows summary, .rows code, .acts .button, .choices span, .choices em";
  const found = [...document.querySelectorAll(ours)].filter(element => element.innerText?.trim()).map(element => {
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 120)];
  });
  return found.sort((one, other) => one[0] - other[0])[0];
})()
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine")
    with Chromium(program, tmp_path / "profile") as chromium:
        chromium.look(width=1280)
        yield chromium
        assert chromium.problems == []


@pytest.fixture
def signed_in(browser: Chromium, live_server: Any) -> Chromium:
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    browser.open(live_server.url + LIST)
    browser.fill("#id_username", "olga")
    browser.fill("#id_password", "a long sentence")
    browser.follow("[type=submit]")
    assert "audio record" in browser.text("h1").lower()
    return browser


def full_record() -> AudioRecord:
    """One with a row in every table, and with long words that could burst a narrow page."""
    now = timezone.now()
    record = make_record(
        State.TRANSCRIBED,
        now=now - timedelta(minutes=5),
        title="Interview_with_a_very_long_name_that_nobody_has_broken_into_words_2026_01_02_final_version.mp3",
        brief="About bread, its crust, and why it is cut the way it is.",
        halted_at=now - timedelta(minutes=3),
        halt_reason=HaltReason.STUCK,
        error_code="time_limit",
        error_text="Waited for our own work longer than 1:00:00. The disk answers slowly: /var/lib/transcriber/media/records/9c/a/b/c/d/e/f/g/h.ogg",
    )
    record.topics.add(Topic.objects.create(owner=record.owner, name="bakery"))
    assert record.structure
    assert record.transcript_text
    assert record.recognition
    record.structure.contents["utterances"] = [
        {
            "start_ms": n * 4000,
            "end_ms": n * 4000 + 3500,
            "text": f"Sentence {n} of a talk about bread. " * 3,
            "channel": 0,
            "speaker": "A",
            "words": [],
        }
        for n in range(40)
    ]
    record.structure.save()
    record.transcript_text.contents = "Sentence of a talk about bread.\n" * 40
    record.transcript_text.save()
    record.recognition.options = {"language": None, "beam_size": 5}
    record.recognition.submit_started_at = record.recognition.finished_at = now
    record.recognition.payload.save("", ContentFile(b"{}"))
    for outcome, text in [
        (EventOutcome.ADVANCED, "uploaded → normalized"),
        (EventOutcome.FAILED, "provider_down: The provider did not answer."),
        (EventOutcome.HALTED, "stuck: time_limit: Waited for our own work longer than 1:00:00."),
    ]:
        RecordEvent.objects.create(
            record=record, origin=Origin.WORKER, step="normalize", outcome=outcome, duration_ms=1234, outcome_text=text
        )
    return record


def test_from_the_list_an_operator_resumes_what_is_stuck_across_pages(signed_in: Chromium, live_server: Any, tmp_path: Path) -> None:
    browser = signed_in
    now = timezone.now()
    owner = make_user("anna")
    stuck = [
        make_record(State.NORMALIZED, now=now, owner=owner, halted_at=now, halt_reason=HaltReason.STUCK, error_code="time_limit")
        for _ in range(53)
    ]
    rejected = make_record(now=now, owner=owner, halted_at=now, halt_reason=HaltReason.REJECTED, error_code="no_audio")

    browser.open(live_server.url + LIST)
    browser.screenshot(tmp_path / "list.png")
    browser.follow("#changelist-filter a", text="stuck")
    browser.click("#action-toggle")
    browser.click(".actions .question a")
    browser.choose("select[name=action]", "resume")
    browser.follow(".actions button")

    assert browser.text(".messagelist") == "Resumed 53 records."
    assert AudioRecord.objects.filter(pk__in=[record.pk for record in stuck], halted_at=None).count() == 53
    rejected.refresh_from_db()
    assert rejected.halted_at


def test_on_its_page_an_operator_resumes_halts_and_restarts_a_record(signed_in: Chromium, live_server: Any) -> None:
    browser = signed_in
    record = full_record()
    browser.open(f"{live_server.url}{LIST}{record.pk}/change/")
    assert "too long at finish" in browser.text(".standing")
    browser.follow(".acts button", text="Resume")
    assert browser.text(".messagelist") == "Resumed 1 record."
    browser.follow(".acts button", text="Halt")
    assert "by olga" in browser.text(".standing")
    browser.follow(".acts a")
    browser.click("input[value=normalized]")
    assert "may cost money" in browser.text(".choices")
    browser.follow(".acts button")
    assert browser.text(".messagelist") == "Restarted from normalized: 1 record."
    assert browser.text("[aria-current=step]") == "normalized"
    record.refresh_from_db()
    assert (record.state, record.halted_at) == (State.NORMALIZED, None)


def test_pages_fit_a_phone_and_are_readable_in_both_themes(signed_in: Chromium, live_server: Any, tmp_path: Path) -> None:
    browser = signed_in
    record = full_record()
    now = timezone.now()
    for state in State:
        make_record(state, now=now, owner=record.owner)
    for reason in HaltReason:
        make_record(
            State.NORMALIZED, now=now, owner=record.owner, halted_at=now, halt_reason=reason, error_code="code", error_text="Because."
        )
    held: dict[str, Any] = {"acquisition_id": uuid4(), "acquire_expires_at": now + timedelta(minutes=1), "progress": 0.4}
    make_record(State.SUBMITTED, now=now + timedelta(minutes=1), owner=record.owner, **held)
    for name, url in {"list": LIST, "record": f"{LIST}{record.pk}/change/", "restart": f"{LIST}{record.pk}/restart/"}.items():
        for dark in (False, True):
            for width in (1280, 390):
                browser.look(width=width, dark=dark)
                browser.open(live_server.url + url)
                browser.run("document.querySelectorAll('details').forEach(details => details.open = true)")
                browser.screenshot(tmp_path / f"{name}-{'dark' if dark else 'light'}-{width}.png")
                assert browser.run("document.documentElement.scrollWidth") <= width, (name, width)
                assert browser.run("[...document.querySelectorAll('.results')].every(box => box.scrollWidth <= box.clientWidth)"), (
                    name,
                    width,
                )
                contrast, whose = browser.run(CONTRAST)
                assert contrast >= 4.5, (name, dark, contrast, whose)
