"""`make demo`: the whole service on a recording that comes along, from the upload over HTTP to the transcript.

Web server and workers run on a free port with a data folder of their own, which is removed at the end. The speech model is the one of the
usual data folder, so that it is made once. Standard output gets the results, standard error what is going on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NoReturn

from transcriber import processes
from transcriber.config import ConfigError, load
from transcriber.demo.display import Display

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDING = Path(__file__).with_name("recording.ogg")

START_LIMIT = 90.0
"""Seconds until the service must answer."""
STILL_LIMIT = 600.0
"""Seconds without any progress after which we give up: a slow machine needs a while for the model."""
STOP_LIMIT = 15.0


class DemoFailed(Exception):
    """What went wrong, in one sentence."""


class Unreachable(DemoFailed):
    """Nobody answers."""


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    display = Display(sys.stderr)
    try:
        config = load(ROOT)
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with own_folder(config.data) as folder:
            demo(folder, display)
    except KeyboardInterrupt:
        display.line("Stopped.")
        return 130
    except (DemoFailed, ConfigError, OSError) as error:
        display.line(f"The demo failed: {error}")
        return 1
    return 0


def demo(folder: Path, display: Display) -> None:
    env = environment(folder)
    with Service(env, log=folder / "service.log") as service:
        try:
            display.line(f"Starting web server and workers on {service.url}")
            service.start()
            token = create_token(env)  # while it starts
            service.wait_until_it_serves()
            display.line(f"Sending {RECORDING.name}, {RECORDING.stat().st_size // 1024} kB of speech")
            record = service.upload(RECORDING, token)
            follow(service, record, token, display)
            transcript = service.get(f"/api/v1/records/{record}/transcript.txt", token)
            subtitles = service.get(f"/api/v1/records/{record}/transcript.srt", token)
        except DemoFailed:
            display.line("The last lines of the service's log:")
            for line in service.last_lines():
                display.line(f"    {line}")
            raise
        sys.stdout.write(f"\nThe transcript:\n\n{transcript.strip()}\n\nThe same as subtitles (srt):\n\n{subtitles.strip()}\n\n")
        sys.stdout.flush()
        display.line("Stopping the service")
    display.line("Done. `make run` starts the service for your own recordings; README.md goes on from here.")


def follow(service: Service, record: str, token: str, display: Display) -> None:
    """Show how the record goes on until it is done."""
    seen, began = None, time.monotonic()
    since = began
    while True:
        poll = json.loads(service.get(f"/api/v1/records/{record}/", token))
        trouble = poll["error"] or poll["waiting_for"]  # the service would try again; a demo is over
        if trouble:
            raise DemoFailed(f"at {poll['status']}: {trouble['message']}")
        display.progress(poll["status"], poll["progress"], time.monotonic() - began)
        if poll["status"] == "done":
            return
        if (poll["status"], poll["progress"]) != seen:
            seen, since = (poll["status"], poll["progress"]), time.monotonic()
        if time.monotonic() - since > STILL_LIMIT:
            raise DemoFailed(f"the recording has stood at {poll['status']} for {STILL_LIMIT / 60:.0f} minutes.")
        time.sleep(0.2)


# ---- the service --------------------------------------------------------------------------------------------------------------------


class Service:
    """`manage.py serve` as a child; a context that leaves none of its processes behind."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self.log = log
        self.port = int(env["PORT"])
        self.url = f"http://127.0.0.1:{self.port}"
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Service:
        return self

    def start(self) -> None:
        with self.log.open("wb") as log, interrupts_held_back():
            # A group of its own: Ctrl-C reaches this process alone, which then ends the service in order.
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=processes.tied_to_us(),  # and however this process ends, the service ends with it
            )

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        with interrupts_held_back():
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_LIMIT)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever is left of the group
            process.wait()

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while True:
            if self._process is None or self._process.poll() is not None:
                raise DemoFailed("the service ended while it was starting.")
            try:
                self._request("GET", "/healthz")
            except Unreachable:
                if time.monotonic() > deadline:
                    raise DemoFailed(f"the service did not answer within {START_LIMIT:.0f} seconds.") from None
                time.sleep(0.05)
            else:
                return

    def upload(self, recording: Path, token: str) -> str:
        """Send a file as the raw body of a request; gives the record's id."""
        headers = {"Content-Type": "audio/ogg", "Content-Disposition": f'attachment; filename="{recording.name}"'}
        answer = self._request("POST", "/api/v1/records/", token, body=recording.read_bytes(), headers=headers)
        return str(json.loads(answer)["id"])

    def get(self, path: str, token: str) -> str:
        return self._request("GET", path, token)

    def last_lines(self, count: int = 20) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-count:]

    def _request(self, method: str, path: str, token: str = "", *, body: bytes | None = None, headers: dict[str, str] | None = None) -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {**(headers or {}), **({"Authorization": f"Token {token}"} if token else {})})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, HTTPException) as error:
            raise Unreachable(f"the service can't be reached ({type(error).__name__}).") from error
        finally:
            connection.close()
        if response.status >= 300:
            said = text if response.headers.get_content_type() == "application/json" else response.reason
            raise DemoFailed(f"{method} {path} was answered with {response.status}: {said.strip()[:500]}")
        return text


def create_token(env: dict[str, str]) -> str:
    command = [sys.executable, "manage.py", "create_token", "demo"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"no token could be made: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return done.stdout.strip()


# ---- its surroundings ---------------------------------------------------------------------------------------------------------------


@contextmanager
def own_folder(data: Path) -> Iterator[Path]:
    """A data folder for this run alone, beside the usual one's contents and with its models."""
    models = data / "models"
    models.mkdir(mode=0o700, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir=data))
    try:
        (folder / "models").symlink_to(models, target_is_directory=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder: Path) -> dict[str, str]:
    """What the service of the demo starts with: the user's settings, except for where and how it is reached and where it keeps things."""
    env: dict[str, Any] = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return {
        **env,
        "PORT": str(_free_port()),
        "TRANSCRIBER_DATA": str(folder),
        "TRANSCRIBER_PIPELINE_WORKERS": "1",
        "TRANSCRIBER_WEB_LISTEN": "127.0.0.1",
        "TRANSCRIBER_WEB_ALLOWED_HOSTS": "127.0.0.1",
        "TRANSCRIBER_WEB_HTTPS": "false",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM come afterwards: neither may fall between the start of the service and knowing it, nor into its end."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
