"""The console's home in a real browser: read by everybody, in both themes, on a phone, by keyboard, and kept up to date."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from records.models import AudioRecord, RecordEvent, SeatedWorker
from records.states import EventOutcome, HaltReason, Origin, State
from tests.acceptance.browser import NARROW, PATIENCE, WIDE, chromium, scrolls_sideways, sign_in, violations, visitor
from tests.factories import make_record, make_user

pytestmark = [pytest.mark.processes, pytest.mark.no_database, pytest.mark.django_db(transaction=True)]

COLOURS = "[...document.querySelectorAll('canvas[data-plot]')].map(canvas => Chart.getChart(canvas).data.datasets[0].backgroundColor)"
DRAWN = "[...document.querySelectorAll('canvas[data-plot]')].every(canvas => Chart.getChart(canvas))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True)
def _roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room on the disk, whatever this machine has."""
    usage = shutil.disk_usage("/")._replace(total=1000 * 2**30, used=500 * 2**30, free=500 * 2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


@pytest.fixture
def records() -> dict[str, AudioRecord]:
    """One or two of each kind, with a journal, and a worker at work."""
    now = timezone.now()
    halt: dict[str, Any] = {"halted_at": now, "error_text": "It did not work."}
    found = {
        "waiting": make_record(now=now),
        "stuck": make_record(State.SUBMITTED, now=now, title="A talk that is stuck", halt_reason=HaltReason.STUCK, **halt),
        "rejected": make_record(now=now, halt_reason=HaltReason.REJECTED, **halt),
        "done": make_record(State.DONE, now=now),
    }
    for days, step, outcome in ((0, "finish", "advanced"), (1, "finish", "advanced"), (0, "poll", "failed"), (2, "submit", "halted")):
        RecordEvent.objects.create(
            record=found["done"],
            created=now - timedelta(days=days),
            origin=Origin.WORKER,
            step=step,
            outcome=EventOutcome(outcome),
            duration_ms=4000,
        )
    SeatedWorker.objects.create(cluster="0" * 32, seat=0, host="one", pid=1, started_at=now, seen_at=now + timedelta(hours=1))
    return found


@pytest.fixture
def visit(browser: Browser, live_server: Any) -> Any:
    """`with visit(viewport=…, color_scheme=…) as page`: of somebody who may do everything, at home."""
    make_user("olga", password="a long sentence", is_staff=True, is_superuser=True)
    expect.set_options(timeout=PATIENCE)

    @contextmanager
    def visiting(**how: Any) -> Iterator[Page]:
        with visitor(browser, **how) as page:
            sign_in(page, live_server.url, "olga", "a long sentence")
            page.wait_for_function(DRAWN)
            yield page

    return visiting


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everybody_can_read_it(visit, records, scheme: str, viewport: dict[str, int]) -> None:
    with visit(viewport=viewport, color_scheme=scheme) as page:
        expect(page.locator("#home-headline")).to_have_text("One thing needs you")
        assert violations(page) == []
        assert not scrolls_sideways(page)

        page.locator("summary", has_text="The same as a table").click()

        expect(page.locator(".home-numbers table")).to_be_visible()
        assert violations(page) == []
        assert not scrolls_sideways(page)


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_first_steps_can_be_read_as_well(visit, viewport: dict[str, int]) -> None:
    with visit(viewport=viewport) as page:
        expect(page.locator("#home-first")).to_have_text("First steps")
        assert violations(page) == []
        assert not scrolls_sideways(page)


def test_a_halted_record_is_found_in_two_clicks(visit, records) -> None:
    with visit() as page:
        page.locator(".home-needs a", has_text=re.compile(r"Stuck\s+1")).click()
        expect(page.locator("#result_list tbody tr")).to_have_count(1)

        page.locator("#result_list a", has_text="A talk that is stuck").first.click()

        expect(page).to_have_url(re.compile(str(records["stuck"].pk)))


def test_by_keyboard(visit, records) -> None:
    with visit() as page:
        reached: list[str] = []
        while "home-period-30" not in reached:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
            assert len(reached) < 120
        tiles = [name for name in reached if name in ("home-waiting", "home-running", "home-halted", "home-done")]
        assert tiles == ["home-waiting", "home-running", "home-halted", "home-done"]

        page.keyboard.press("Enter")

        page.wait_for_url("**/admin/?period=30")
        page.wait_for_function(DRAWN)
        expect(page.locator("#home-period-30")).to_have_attribute("aria-current", "true")
        assert page.evaluate("Chart.getChart(document.querySelector('canvas[data-plot=done]')).data.labels.length") == 30


def test_it_is_brought_up_to_date_in_place(visit, records) -> None:
    with visit() as page:
        page.locator("summary", has_text="The same as a table").click()
        page.locator("#home-waiting").focus()
        place = page.evaluate("scrollY")
        make_record(now=timezone.now())
        RecordEvent.objects.create(
            record=records["done"], origin=Origin.WORKER, step="finish", outcome=EventOutcome.ADVANCED, duration_ms=4000
        )

        page.evaluate("document.querySelector('[data-refresh]').click()")

        expect(page.locator("#home-waiting strong")).to_have_text("2")
        expect(page.locator("[data-live=done-total]")).to_have_text("3")
        assert page.evaluate("document.activeElement.id") == "home-waiting"
        assert page.evaluate("scrollY") == place
        expect(page.locator(".home-numbers table")).to_be_visible()
        assert sum(page.evaluate("Chart.getChart(document.querySelector('canvas[data-plot=done]')).data.datasets[0].data")) == 3


def test_the_first_record_turns_the_first_steps_into_the_page(visit) -> None:
    with visit() as page:
        expect(page.locator("#home-first")).to_be_visible()
        make_record(now=timezone.now())

        page.locator("[data-refresh]").click()

        expect(page.locator("#home-waiting strong")).to_have_text("1")
        page.wait_for_function(f"document.querySelector('canvas[data-plot]') && {DRAWN}")


def test_who_was_signed_out_meanwhile_is_told(visit, records) -> None:
    with visit() as page:
        page.context.clear_cookies(name="sessionid")

        page.locator("[data-refresh]").click()

        expect(page.locator("[data-told]")).to_have_text("You were signed out. Load the page again to sign in.")
        expect(page.locator("#home-waiting strong")).to_have_text("1")


def test_the_charts_take_the_colours_of_the_theme(visit, records) -> None:
    with visit(color_scheme="dark") as page:
        dark = page.evaluate(COLOURS)

        page.keyboard.press("Control+e")  # django-unfold's switch

        page.wait_for_function(f"dark => JSON.stringify({COLOURS}) !== JSON.stringify(dark)", arg=dark)
        assert all(before != after for before, after in zip(dark, page.evaluate(COLOURS), strict=True))
