"""An operator's walk through the console, by script: what stands is found from the home page in two clicks, resumed in bulk, and finishes.

`make screenshots` takes it and leaves its pictures in docs/console/; so does tests/acceptance/test_walk.py, which checks what came of it. The 200
recordings are real ones, recognized by a provider that answers at once; the 60 that stand were halted by the engine itself, on a clock that was
set.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.acceptance.browser import NARROW, PATIENCE, WIDE, chromium, sign_in, visitor
from tests.acceptance.service import ROOT, Service, wait_for

RECORDS = 200
HALTED = 60
PICTURES = ROOT / "docs" / "console"
RECORDING = ROOT / "transcriber" / "demo" / "recording.ogg"
OPERATOR, PASSWORD = "olga", "a long sentence"

expect.set_options(timeout=PATIENCE)


class Walk:
    """`take()` walks; `pictures`: a folder for what was seen on the way."""

    def __init__(self, service: Service, browser: Browser, pictures: Path | None = None) -> None:
        self.service = service
        self.browser = browser
        self.pictures = pictures

    def prepare(self) -> None:
        self.service.run("-c", PREPARE, str(RECORDING), str(RECORDS - HALTED), str(HALTED // 3), OPERATOR, PASSWORD)

    def take(self) -> None:
        with visitor(self.browser) as page:
            sign_in(page, self.service.url, OPERATOR, PASSWORD)
            self.see(page, "home-halted")
            self.find(page)
            self.resume(page)
            self.watch(page)
            self.read(page)
        for scheme, name, size in (("dark", "dark", WIDE), ("light", "phone", NARROW)):
            with visitor(self.browser, color_scheme=scheme, viewport=size) as page:
                sign_in(page, self.service.url, OPERATOR, PASSWORD)
                self.see(page, f"home-{name}")
                self.open_record(page)
                self.see(page, f"record-{name}")

    def find(self, page: Page) -> None:
        """Each reason is one click away, and so are all that are halted."""
        for reason in ("Exhausted", "Stuck", "Stopped"):
            page.locator(".home-needs").get_by_role("link", name=f"{reason} {HALTED // 3}", exact=True).click()
            expect(page.get_by_text(f"{HALTED // 3} records", exact=True)).to_be_visible()
            expect(page.locator("#result_list tbody tr").get_by_text(reason)).to_have_count(HALTED // 3)
            if reason == "Stuck":
                self.see(page, "list-stuck")
            page.go_back()
        page.locator("#home-halted").click()
        expect(page).to_have_url(re.compile(r"\?halted=yes$"))
        expect(page.get_by_text(f"{HALTED} records", exact=True)).to_be_visible()
        self.see(page, "list-halted")

    def resume(self, page: Page) -> None:
        page.locator("#action-toggle").check()
        page.get_by_role("button", name=f"Select all {HALTED}").click()
        self.see(page, "list-selected")
        page.locator(".selection").get_by_role("button", name="Resume …").click()
        expect(page.get_by_role("heading", name=f"Resume {HALTED} records")).to_be_visible()
        self.see(page, "resume-confirmation")
        page.locator("#act").get_by_role("button", name="Resume", exact=True).click()
        expect(page.get_by_text(f"Resumed {HALTED} records")).to_be_visible()
        self.see(page, "resumed")

    def watch(self, page: Page) -> None:
        wait_for(lambda: self.service.states()["done"] == RECORDS, within=600, every=0.5)
        page.goto(f"{self.service.url}/admin/")
        self.see(page, "home-done")

    def read(self, page: Page) -> None:
        self.open_record(page)
        self.see(page, "record")

    def open_record(self, page: Page) -> None:
        page.goto(f"{self.service.url}/admin/records/audiorecord/?state=done")
        page.locator("#result_list a[href*='/change/']").first.click()
        expect(page.locator("audio")).to_be_visible()

    def see(self, page: Page, name: str) -> None:
        if self.pictures:
            self.pictures.mkdir(exist_ok=True)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=self.pictures / f"{name}.png")


PREPARE = """
import sys, django
django.setup()
from datetime import timedelta
from pathlib import Path
from django.contrib.auth.models import User
from django.utils import timezone
from recognition.contract import Transient
from records.models import AudioRecord
from records.operations import control
from records.pipeline.dispatch import Worker
from records.pipeline.outcomes import Postpone
from records.states import Origin, State
from tests.factories import make_record
from tests.fakes.steps import ScriptedTable

recording, going, each, operator, password = Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6]
User.objects.create_superuser(operator, password=password)
owners = [User.objects.create_user(name) for name in ("support", "research", "anna")]
titles = ("Call", "Interview", "Lecture", "Voice message")
moment = timezone.now() - timedelta(days=2)
made = 0

def put(now):
    global made
    made += 1
    return make_record(now=now, owner=owners[made % 3], contents=recording, title=f"{titles[made % 4]} {made}").pk

def work(record_id, times, table=None):
    global moment
    worker = Worker(clock=lambda: moment, **({"table": table} if table else {}))
    for _ in range(times):
        assert worker.work_once(record_id)
        moment = max(moment, AudioRecord.objects.values_list("delay_time", flat=True).get(pk=record_id))

down = ScriptedTable()
down.script(State.NORMALIZED, Transient("provider_unavailable", "The provider answered 503."))
slow = ScriptedTable()
slow.script(State.SUBMITTED, Postpone(timedelta(minutes=30)))
start = moment
for _ in range(each):  # the provider was down
    moment = start
    record_id = put(moment)
    work(record_id, 1)
    work(record_id, 5, down)
for _ in range(each):  # the provider took too long
    moment = start
    record_id = put(moment)
    work(record_id, 2)
    while not AudioRecord.objects.get(pk=record_id).halted_at:
        work(record_id, 1, slow)
        moment += timedelta(hours=10)
stopped = [put(timezone.now() - timedelta(hours=1)) for _ in range(each)]
control.halt(AudioRecord.objects.filter(pk__in=stopped), by=control.By(Origin.ADMIN, User.objects.get(username=operator)), now=timezone.now())
for _ in range(going):
    put(timezone.now())
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="transcriber-walk-") as folder, chromium() as browser:
        (Path(folder) / "none.toml").touch()
        os.environ["TRANSCRIBER_CONFIG"] = str(Path(folder) / "none.toml")  # nobody's own configuration
        service = Service(Path(folder) / "service", None, TRANSCRIBER_PIPELINE_WORKERS="2")
        try:
            service.manage("migrate", "--verbosity", "0")
            walk = Walk(service, browser, PICTURES)
            walk.prepare()
            service.start("serve")
            walk.take()
        finally:
            service.end()


if __name__ == "__main__":
    main()
