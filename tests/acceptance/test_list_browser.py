"""The list of records in a real browser: found by filters, chosen across pages, acted on after a question; by keyboard alone, and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from records.models import AudioRecord, RecordEvent
from records.states import EventOutcome, HaltReason, State
from tests.acceptance.browser import NARROW, PATIENCE, WIDE, chromium, scrolls_sideways, settle, sign_in, violations, visitor
from tests.factories import make_record, make_user

pytestmark = [pytest.mark.processes, pytest.mark.no_database, pytest.mark.django_db(transaction=True)]

LIST = "/admin/records/audiorecord/"
HALTED_PAGES = 53  # more than one page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Browser, live_server: Any) -> Iterator[Callable[..., Page]]:
    """Opens a page of somebody who is signed in and may do everything; `how` as for `visitor`."""
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    expect.set_options(timeout=PATIENCE)
    opened = []

    def visit(**how: Any) -> Page:
        context = visitor(browser, **how)
        page = context.__enter__()
        opened.append(context)
        sign_in(page, live_server.url, "olga", "a long sentence")
        return page

    yield visit
    for context in opened:
        context.__exit__(None, None, None)


def halted(reason: HaltReason, count: int, **more: Any) -> list[AudioRecord]:
    now, owner = timezone.now(), make_user()
    about = {"halted_at": now, "halt_reason": reason, "error_code": "time_limit", "error_text": "It took too long.", **more}
    return [make_record(State.NORMALIZED, now=now, owner=owner, title=f"Talk {n}", **about) for n in range(count)]


def fill_list() -> None:
    """Records of every kind, some with words that could burst a narrow page."""
    now = timezone.now()
    owner = make_user("research-and-development-department-of-the-northern-branch")
    for state in State:
        make_record(state, now=now - timedelta(days=3), owner=owner, language="pt-BR")
    for reason in HaltReason:
        halted(reason, 2, error_code="a_code_that_is_as_long_as_a_code_can_be_said_in_one_word_or_two")
    ends = now + timedelta(hours=1)
    held: dict[str, Any] = {"acquisition_id": uuid4(), "acquire_expires_at": ends, "delay_time": ends, "progress": 0.4, "attempts": 2}
    make_record(State.SUBMITTED, now=now, owner=owner, work_started_at=now - timedelta(hours=20), title="", **held)
    make_record(now=now, owner=owner, work_started_at=now - timedelta(hours=2), title="Interview_" * 20)


def tab_to(page: Page, selector: str) -> None:
    """Go on by keyboard until that has the focus."""
    settle(page)  # a key that is pressed before the scripts are there is lost
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached by keyboard")


def test_what_a_filter_finds_is_resumed_across_pages_after_a_question(visit: Callable[..., Page], live_server: Any) -> None:
    stuck, rejected = halted(HaltReason.STUCK, HALTED_PAGES), halted(HaltReason.REJECTED, 2)
    page = visit()
    page.goto(live_server.url + LIST)
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Halt reason").select_option("Stuck")
    page.get_by_label("Created", exact=True).select_option("Past 7 days")
    page.get_by_role("button", name="Apply filters").click()
    expect(page.locator(".chips b")).to_have_text(["Stuck", "Past 7 days"])
    page.get_by_role("link", name="Remove the filter Created: Past 7 days").click()
    expect(page.locator(".chips b")).to_have_text(["Stuck"])
    expect(page.get_by_role("heading", name="53 records")).to_be_visible()
    settle(page)
    address = page.url

    page.locator("#action-toggle").check()
    expect(page.locator(".action-counter")).to_have_text("50 of 50 selected")
    page.get_by_role("button", name="Select all 53").click()
    page.locator(".selection").get_by_role("button", name="Resume …").click()
    expect(page.get_by_role("heading", name="Resume 53 records?")).to_be_visible()
    assert AudioRecord.objects.filter(halted_at=None).count() == 0

    page.get_by_role("link", name="Cancel").click()
    expect(page).to_have_url(address)
    settle(page)
    page.locator("#act-on-all").get_by_role("button", name="Resume …").click()
    page.locator("#act").get_by_role("button", name="Resume", exact=True).click()

    expect(page.get_by_text("Resumed 53 records.")).to_be_visible()
    expect(page).to_have_url(address)
    assert AudioRecord.objects.filter(pk__in=[record.pk for record in stuck], halted_at=None).count() == HALTED_PAGES
    assert AudioRecord.objects.filter(pk__in=[record.pk for record in rejected], halted_at=None).count() == 0
    assert RecordEvent.objects.filter(outcome=EventOutcome.RESUMED, actor__username="olga").count() == HALTED_PAGES


def test_a_row_is_acted_on_and_opened_and_one_comes_back_to_the_same_list(visit: Callable[..., Page], live_server: Any) -> None:
    halted(HaltReason.STUCK, 2)
    page = visit()
    page.goto(f"{live_server.url}{LIST}?reason=stuck&o=oldest")
    address = page.url
    page.get_by_role("link", name="Restart Talk 0").click()
    page.locator("label", has_text="the step “submit” runs next").click()
    page.go_back()
    expect(page).to_have_url(address)
    page.get_by_role("link", name="Resume Talk 0").click()
    page.locator("#act").get_by_role("button", name="Resume", exact=True).click()
    expect(page).to_have_url(address)
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    page.locator("#result_list .field-age").click(force=True)  # anywhere in the row: its link lies over it
    expect(page).to_have_url(re.compile("/change/"))


def test_everything_is_done_by_keyboard_alone(visit: Callable[..., Page], live_server: Any) -> None:
    record, other = halted(HaltReason.STUCK, 2)
    page = visit()
    page.goto(live_server.url + LIST)
    tab_to(page, "[aria-controls=filter-form]")
    page.keyboard.press("Enter")
    expect(page.locator("#filter-form")).to_be_visible()
    tab_to(page, "#filter-form [name=error]")
    page.keyboard.type("time_limit")
    page.keyboard.press("Enter")
    expect(page.locator(".chips b")).to_have_text(["time_limit"])

    tab_to(page, f"input[value='{record.pk}']")
    page.keyboard.press("Space")
    tab_to(page, ".selection button[value=resume]")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Resume 1 record?")).to_be_visible()
    tab_to(page, "#act button[type=submit]")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Resumed 1 record.")).to_be_visible()
    other.refresh_from_db()
    assert other.halted_at

    tab_to(page, ".chips a.clear")
    page.keyboard.press("Enter")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    tab_to(page, "#result_list .field-name a")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/change/"))


@pytest.mark.parametrize(("scheme", "locale"), [("light", "en-US"), ("dark", "ru-RU")], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pages_fit_and_everybody_can_read_them(
    visit: Callable[..., Page], live_server: Any, scheme: str, locale: str, size: dict[str, int]
) -> None:
    fill_list()
    page = visit(viewport=size, color_scheme=scheme, locale=locale)
    url = live_server.url + LIST

    def is_fine(name: str) -> None:
        assert not scrolls_sideways(page), name
        assert page.evaluate(
            "[...document.querySelectorAll('#result_list, .kinds')].every(e => e.scrollWidth <= e.parentElement.clientWidth)"
        ), name
        assert violations(page) == [], name

    page.goto(f"{url}?halted=yes&error=code")
    page.locator("[aria-controls=filter-form]").click()
    expect(page.locator("#filter-form")).to_be_visible()
    is_fine("filters")
    page.goto(f"{url}?q=nothing+like+it")
    is_fine("empty")
    page.goto(url)
    is_fine("list")
    page.locator("#action-toggle").check()
    expect(page.locator(".selection")).to_be_visible()
    is_fine("ticked")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    settle(page)
    covered = "document.querySelector('#result_list').getBoundingClientRect().bottom - document.querySelector('.selection').getBoundingClientRect().top"
    assert page.evaluate(covered) <= 0  # the bar lies below the last row, and covers none
    for act in ("resume", "halt", "restart"):
        page.goto(url)
        page.locator("#action-toggle").check()
        page.locator(f".selection button[value={act}]").click()
        expect(page.locator(".act-page")).to_be_visible()
        is_fine(act)


def test_who_may_only_look_is_offered_nothing_to_do(browser: Browser, live_server: Any) -> None:
    from django.contrib.auth.models import Permission

    viewer = make_user("victor", password="a long sentence", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_audiorecord"))
    halted(HaltReason.STUCK, 1)
    with visitor(browser, viewport=NARROW) as page:
        sign_in(page, live_server.url, "victor", "a long sentence")
        page.goto(f"{live_server.url}{LIST}?halted=yes")
        expect(page.locator("#result_list tbody tr")).to_have_count(1)
        assert page.locator("#result_list input, #result_list button, .field-acts, #act-on-all").count() == 0
        assert not scrolls_sideways(page)
        assert violations(page) == []
