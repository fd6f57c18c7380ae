"""A real headless Chromium: the one the machine has, driven by Playwright. And axe, which judges whether everybody can read and use a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000
"""Milliseconds that a page may take for anything; a busy machine is no failure."""
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine")
    # Playwright keeps an event loop in this thread, and Django then refuses the database; nothing here is in fact asynchronous.
    with patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, chromium_sandbox=False)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visitor(browser: Browser, **how: Any) -> Iterator[Page]:
    """A page of a visitor of its own; `how` as in Playwright's `new_context` (viewport, color_scheme, locale, timezone_id). Ends with a complaint
    if a script of a page ran into an error."""
    context: BrowserContext = browser.new_context(**{"viewport": WIDE, "locale": "en-US", "timezone_id": "UTC", **how})
    context.set_default_timeout(PATIENCE)
    problems: list[str] = []
    context.on("weberror", lambda error: problems.append(str(error.error)))
    try:
        yield context.new_page()
    finally:
        context.close()
    assert problems == []


def sign_in(page: Page, url: str, name: str, password: str) -> None:
    page.goto(f"{url}/admin/login/?next=/admin/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("[type=submit]")
    page.wait_for_url(f"{url}/admin/")


SETTLED = """document.readyState === 'complete' && document.fonts.status === 'loaded'
  && document.getAnimations().every(({ playState, effect }) => playState !== 'running' || effect.getComputedTiming().endTime === Infinity)"""


def settle(page: Page) -> None:
    """Wait until the page is loaded with its scripts and letters, and nothing fades in or out."""
    page.wait_for_load_state()
    page.wait_for_function(SETTLED)


def scrolls_sideways(page: Page) -> bool:
    settle(page)
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def violations(page: Page) -> list[str]:
    """What axe finds against WCAG 2.1 A and AA, one line a place: the rule, and the element."""
    settle(page)
    options = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]


def picture(page: Page, path: Path) -> None:
    page.screenshot(path=path, full_page=True)
