"""A headless Chromium, driven over its debugging pipe (the DevTools protocol): no driver program and no library between."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it refuses root otherwise; it sees our own pages alone
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
# The browser reads commands from descriptor 3 and answers on 4.
START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
PATIENCE = 60.0


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Chromium:
    """One browser with one page. A context; `problems` holds the errors that scripts of the page ran into."""

    def __init__(self, program: str, profile: Path) -> None:
        self.program = program
        self.profile = profile
        self.problems: list[str] = []
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loads = 0

    def __enter__(self) -> Chromium:
        commands, self._out = _pipe()
        self._in, answers = _pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                str(commands),
                str(answers),
                self.program,
                *FLAGS,
                f"--user-data-dir={self.profile}",
                "about:blank",
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        try:
            target = self.send("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.send("Page.enable")
            self.send("Runtime.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)
        os.close(self._in)
        os.close(self._out)

    # ---- what a person does ------------------------------------------------------------------------------------------------------

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """The size of the window and the theme the person prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url: str) -> None:
        with self.page_load():
            self.send("Page.navigate", url=url)

    def fill(self, selector: str, value: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=value)

    def choose(self, selector: str, value: str) -> None:
        """An option of a select."""
        self.run(
            f"(() => {{ const select = document.querySelector({json.dumps(selector)}); select.value = {json.dumps(value)};"
            " select.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def click(self, selector: str, *, text: str = "") -> None:
        """Press the mouse on the first element that is found (and reads so, if `text` is given), where it stands on the screen."""
        place = self.run(
            f"(() => {{ const found = [...document.querySelectorAll({json.dumps(selector)})]"
            f".find(element => !{json.dumps(text)} || element.textContent.trim() === {json.dumps(text)});"
            " if (!found) return null; found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        assert place, f"nothing to click: {selector} {text}"
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def follow(self, selector: str, *, text: str = "") -> None:
        """Click, and wait for the page that it leads to."""
        with self.page_load():
            self.click(selector, text=text)

    def text(self, selector: str = "body") -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def screenshot(self, path: Path) -> None:
        """The whole page, as long as it is."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]))

    # ---- the protocol ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def page_load(self) -> Iterator[None]:
        loads = self._loads
        yield
        deadline = time.monotonic() + PATIENCE
        while self._loads == loads:
            self._take(self._message(deadline))

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._message(deadline)
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._take(message)

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                self.problems.append(str(event["params"]["exceptionDetails"]))

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise ConnectionError("Chromium has ended")
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))


def _pipe() -> tuple[int, int]:
    """Both ends, with numbers that can't be in the way of 3 and 4."""
    ends = os.pipe()
    high = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 10), fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, 10)
    for end in ends:
        os.close(end)
    return high
