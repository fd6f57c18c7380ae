"""The console in Russian and on the viewer's clock, in a real browser: every page there is, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from axes.models import AccessAttempt
from django.contrib import admin
from django.contrib.auth.models import Group
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django_q.models import Failure, Schedule
from knox.models import AuthToken
from playwright.sync_api import Browser, Page

from records.models import AudioRecord, RecordEvent, SeatedWorker, Structure, Text, TextKind
from records.pipeline.stages import STAGES
from records.states import FINAL, EventOutcome, HaltReason, Origin, State
from tests.acceptance.browser import NARROW, WIDE, chromium, scrolls_sideways, sign_in, visitor
from tests.factories import make_record, make_user
from topics.models import Topic
from transcriber.signin.models import Identity

pytestmark = [pytest.mark.processes, pytest.mark.no_database, pytest.mark.django_db(transaction=True)]

LIST = "/admin/records/audiorecord/"
WRITTEN = {
    HaltReason.REJECTED: ("no_audio", "There is no sound in this file."),
    HaltReason.EXHAUSTED: ("provider_failed", "SpeechKit answered with an error (HTTP 503, gRPC 14). Tried 8 times."),
    HaltReason.STUCK: ("time_limit", "Waited for the provider longer than 1 day, 0:00:00."),
    HaltReason.UNCONFIRMED: (
        "submission_unconfirmed",
        "The paid submission may have been accepted, but no answer came back. Enter the operation's id, or submit again.",
    ),
    HaltReason.STOPPED: ("", ""),
}

# All words that can be read, and those that are read out, with the element they stand in; code is no language.
SAID = """() => {
  const silent = 'script, style, code, pre, kbd, template, svg, .material-symbols-outlined, .simplebar-content-wrapper[aria-label]';
  const found = [];
  const take = (text, element) => { if (/[A-Za-z]{2,}/.test(text)) found.push([text.trim().replace(/\\s+/g, ' '), element.outerHTML.slice(0, 150)]) };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (element && !element.matches('script *, code *, pre *, svg *') && !element.closest('script, style, code, pre, kbd, template, svg, .material-symbols-outlined'))
      take(walker.currentNode.textContent, element);
  }
  for (const name of ['title', 'placeholder', 'aria-label', 'alt', 'data-label'])
    for (const element of document.querySelectorAll(`[${name}]`))
      if (!element.matches('.simplebar-content-wrapper')) take(element.getAttribute(name), element);
  for (const element of document.querySelectorAll('input[type=submit], input[type=button]')) take(element.value, element);
  found.push([document.title, '<title>']);
  return found;
}"""
SAME_EVERYWHERE = re.compile(
    r"Transcriber|English|\b(?:en|ru|API|Telegram|SpeechKit|HTTP|gRPC|UTC|ISO|Cron|URL|JSON)\b|\b(?:txt|srt|vtt|json|wav|ogg|original)\b"
    r"|\b(?:speechkit|whisper|openai|scripted|parrot)\b|[\w.+-]+@[\w.-]+|[Hh]ttps?://\S+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b[a-z]+(?:_[a-z]+)+\b|\[\w+\] \w+|make run|manage\.py.*|operation-\S+|pbkdf2\S*|[«“][A-Za-z ]+[»“”]|\bMac\b|Single Si\w+-On|LDAP|\bhost-1\b"
    r"|[\w+/.=]+\*{4,}|\b[0-9a-f]{12,}\b|\b[A-Za-z_]+(?:\.[A-Za-z_]+)+\b|\bID\b|\b(?:kwargs|dict|tuple|name)\b"
)
"""Names, addresses, ids, codes and keys."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def records() -> list[AudioRecord]:
    """One of each kind: at every state, halted for every reason, held by a worker, done, with everything that a page shows of it."""
    now = timezone.now()
    owner = make_user("ольга", is_staff=True, is_superuser=True, password="длинное предложение")
    about: dict[str, Any] = {"owner": owner, "title": "Планёрка отдела"}
    made = [make_record(state, now=now - timedelta(minutes=90), **about) for state in State]
    for reason, (code, text) in WRITTEN.items():
        made.append(
            make_record(State.SUBMITTED, now=now, halted_at=now, halt_reason=reason, error_code=code, error_text=text, attempts=3, **about)
        )
    unconfirmed = next(record for record in made if record.halt_reason == HaltReason.UNCONFIRMED)
    unconfirmed.recognition.external_id = ""
    unconfirmed.recognition.submit_started_at = now
    unconfirmed.recognition.save()
    made.append(
        make_record(
            State.NORMALIZED,
            now=now + timedelta(minutes=3),
            attempts=1,
            error_code="bucket_failed",
            error_text="The object storage answered with an error (HTTP 500).",
            **about,
        )
    )
    done = made[State.values.index("done")]
    utterances: list[dict[str, Any]] = [
        {"start_ms": 0, "end_ms": 900, "text": "Здравствуйте.", "channel": channel, "speaker": None, "words": []} for channel in (0, 1)
    ]
    done.structure = Structure.objects.create(
        version=1, language="ru", contents={"language": "ru", "speakers": [], "utterances": utterances}
    )
    done.transcript_text = Text.objects.create(kind=TextKind.TRANSCRIPT, contents="Здравствуйте.")
    done.notes = ["truncated"]
    done.save()
    done.topics.add(Topic.objects.create(owner=owner, name="хлеб"))
    for outcome in EventOutcome:
        for origin, actor in ((Origin.WORKER, None), (Origin.ADMIN, owner)):
            text = "disk_full: There is no space left on the disk." if outcome == EventOutcome.FAILED else "at uploaded"
            RecordEvent.objects.create(
                record=done, origin=origin, actor=actor, step="poll", outcome=outcome, outcome_text=text, duration_ms=1500, created=now
            )
    SeatedWorker.objects.create(
        cluster=owner.audio_records.first().pk, seat=0, host="host-1", pid=1, started_at=now, seen_at=now, record_id=made[0].pk
    )
    Group.objects.create(name="наблюдатели")
    AuthToken.objects.create(user=owner)
    Identity.objects.create(user=owner, issuer="https://id.example", subject="1")
    AccessAttempt.objects.create(username="ольга", ip_address="127.0.0.1", failures_since_start=3, attempt_time=now)
    Schedule.objects.create(func="records.operations.housekeeping.sweep", name="уборка")
    Failure.objects.create(id="1" * 32, name="сбой", func="records.x", started=now, stopped=now, success=False, result="")
    return made


def pages_of_the_admin() -> Iterator[str]:
    """The pages that every table of the admin has."""
    for model in admin.site._registry:
        names = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{names}_changelist")
        yield reverse(f"{names}_add")
        row = model.objects.first()  # type: ignore[attr-defined]
        if row is not None and model is not AudioRecord:
            for page in ("change", "delete", "history"):
                try:
                    yield reverse(f"{names}_{page}", args=[row.pk])
                except NoReverseMatch:
                    continue


def foreign(page: Page) -> list[str]:
    """What a page says in Latin letters and has no reason to."""
    left = [(re.sub(r"\W+", " ", SAME_EVERYWHERE.sub("", text)), text, where) for text, where in page.evaluate(SAID)]
    return [f"{text!r} in {where}" for rest, text, where in left if re.search("[A-Za-z]{2,}", rest)]


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_page_is_half_english(browser, live_server, records, size):
    paths = [
        "/admin/",
        "/admin/?period=1",
        LIST,
        f"{LIST}?q=нет такой",
        f"{LIST}?halted=yes",
        "/admin/password_change/",
        *pages_of_the_admin(),
    ]
    for record in records:
        paths.append(f"{LIST}{record.pk}/change/")
    unconfirmed, done = (next(r for r in records if r.halt_reason == HaltReason.UNCONFIRMED), next(r for r in records if r.state == FINAL))
    paths += [f"{LIST}{record.pk}/{page}/" for record in (unconfirmed, done) for page in ("halt", "resume", "restart", "delete", "history")]
    paths.append(f"{LIST}{unconfirmed.pk}/confirm/")

    with visitor(browser, locale="ru-RU", viewport=size) as page:
        page.goto(f"{live_server.url}/admin/login/")
        assert foreign(page) == []
        page.fill("#id_username", "ольга")
        page.fill("#id_password", "не то")
        with page.expect_navigation():
            page.click("[type=submit]")
        assert foreign(page) == []
        AccessAttempt.objects.all().delete()
        sign_in(page, live_server.url, "ольга", "длинное предложение")
        wrong = []
        for path in paths:
            answer = page.goto(live_server.url + path)
            assert answer is not None
            if answer.status == 403:  # nobody adds a row of history
                continue
            assert answer.status == 200, path
            assert page.get_attribute("html", "lang") == "ru", path
            wrong += [f"{path}: {words}" for words in foreign(page)]
            if scrolls_sideways(page):
                wrong.append(f"{path}: scrolls sideways")
        assert wrong == [], "\n".join(wrong)
        assert len(paths) > 40
        assert {STAGES[state].name for state in State if state != FINAL}  # each step's page was among them


@pytest.mark.parametrize(
    ("zone", "locale", "listed"), [("Asia/Tokyo", "en-US", "%Y-%m-%d %H:%M"), ("America/New_York", "ru-RU", "%d.%m.%Y %H:%M")]
)
def test_moments_are_the_viewers(browser, live_server, zone, locale, listed):
    """The first page says it in the service's zone; the script names the browser's, and every page after it is on the viewer's clock."""
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    record = make_record(now=moment)
    local = moment.astimezone(ZoneInfo(zone))

    with visitor(browser, locale=locale, timezone_id=zone) as page:
        sign_in(page, live_server.url, "olga", "a long sentence")
        page.goto(live_server.url + LIST)
        assert local.strftime(listed) in page.inner_text("body")
        page.goto(f"{live_server.url}{LIST}{record.pk}/change/")
        assert local.strftime(f"{listed}:%S") in page.inner_text("body")
        said: Any = page.evaluate("url => fetch(url, {credentials: 'same-origin'}).then(answer => answer.json())", "/api/v1/records/")
        assert said["results"] == [], "hers alone"
