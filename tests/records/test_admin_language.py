"""The admin in Russian: what it says, in which forms; and what it writes, which is English whoever acts."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone, translation

from records.admin import words
from records.models import AudioRecord, RecordEvent
from records.states import HaltReason, State
from tests.factories import make_record, make_user

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"
CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)


@pytest.fixture
def browser() -> Client:
    client = Client(headers={"accept-language": "ru"})
    client.force_login(make_user("olga", is_staff=True, is_superuser=True))
    return client


def halted(state: State, reason: HaltReason, **more: Any) -> AudioRecord:
    now = timezone.now()
    return make_record(state, now=now, halted_at=now, halt_reason=reason, **more)


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())))


def test_acts_are_journaled_in_english(browser, scripted):
    """One record after the other, and the list's bulk acts: nothing Russian reaches a row that others read, nor a column of the queue."""
    waiting = make_record(now=timezone.now())
    stuck = halted(State.SUBMITTED, HaltReason.STUCK, error_code="time_limit", error_text="Waited for the provider longer than 1:00:00.")
    asked = halted(State.NORMALIZED, HaltReason.UNCONFIRMED)
    for act, record, sent in (
        ("halt", waiting, {}),
        ("resume", stuck, {}),
        ("restart", stuck, {"state": "normalized", "confirmed": "on"}),
    ):
        answer = browser.post(f"{LIST}{record.pk}/{act}/", sent, follow=True)
        assert CYRILLIC.search(" ".join(str(message) for message in answer.context["messages"])), act
    browser.post(f"{LIST}{asked.pk}/confirm/", {"answer": "again", "confirmed": "on"})
    browser.post(LIST, {"action": "halt", "select_across": "1", "index": "0", "_selected_action": str(stuck.pk), "confirmed": "on"})
    browser.post(f"{LIST}{waiting.pk}/change/", {"title": "Новое имя", "brief": "", "state": "uploaded", "initial-state": "uploaded"})

    texts = list(RecordEvent.objects.exclude(outcome_text="").values_list("outcome_text", flat=True))
    assert len(texts) >= 4
    assert not [text for text in texts if CYRILLIC.search(text)]
    columns = AudioRecord.objects.values_list("error_code", "error_text", "halt_reason", "state")
    assert not [column for row in columns for column in row if CYRILLIC.search(column)]
    assert not [entry for entry in LogEntry.objects.values_list("change_message", flat=True) if CYRILLIC.search(entry)]


def test_an_error_that_was_written_in_english_is_shown_in_russian(browser):
    record = halted(State.UPLOADED, HaltReason.REJECTED, error_code="no_audio", error_text="There is no sound in this file.")

    page = text_of(browser.get(f"{LIST}{record.pk}/change/"))

    assert "В этом файле нет звука." in page
    assert "There is no sound" not in page
    assert "no_audio" in page, "codes are the same in every language"


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (timedelta(0), "0 с"),
        (timedelta(seconds=4), "4 с"),
        (timedelta(minutes=3, seconds=20), "3 мин 20 с"),
        (timedelta(hours=2), "2 ч"),
        (timedelta(days=5, hours=3, minutes=9), "5 д 3 ч"),
    ],
)
def test_lengths_of_time(length, said):
    with translation.override("ru"):
        assert words.span(length) == said


@pytest.mark.parametrize(
    ("number", "said"), [(1, "1 запись"), (2, "2 записи"), (5, "5 записей"), (11, "11 записей"), (21, "21 запись"), (104, "104 записи")]
)
def test_numbers_of_things(number, said):
    with translation.override("ru"):
        assert translation.ngettext("%(number)s record", "%(number)s records", number) % {"number": number} == said


def test_moments_are_written_as_the_language_does(browser, now):
    record = make_record(now=now)
    page = text_of(browser.get(f"{LIST}{record.pk}/change/"))
    assert "02.01.2026 03:04:05" in page
    assert "2026-01-02 03:04:05" in text_of(browser.get(f"{LIST}{record.pk}/change/", headers={"accept-language": "en"}))


def test_the_switch_of_the_console_is_stronger_than_the_browser(browser):
    browser.post("/i18n/setlang/", {"language": "en", "next": LIST})

    answer = browser.get(LIST)

    assert answer["Content-Language"] == "en"
    assert "Records" in text_of(answer)


def test_rights_are_named_in_the_viewers_language(browser):
    page = text_of(browser.get("/admin/auth/group/add/"))

    assert "Записи: просмотр" in page
    assert "Can view" not in page


def test_rights_that_are_ticked_are_given(browser):
    from django.contrib.auth.models import Group, Permission

    right = Permission.objects.get(codename="view_audiorecord")
    browser.post("/admin/auth/group/add/", {"name": "наблюдатели", "permissions": [right.pk]})

    assert list(Group.objects.get().permissions.all()) == [right]
