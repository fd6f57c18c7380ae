"""`make demo`, as a user starts it: what it shows, how it ends, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from transcriber.demo.__main__ import RECORDING
from transcriber.demo.display import Display

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "transcriber.demo"]

pytestmark = [pytest.mark.no_database, pytest.mark.timeout(300)]


def environment(data: Path, **more: str) -> dict[str, str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("TRANSCRIBER_") and name not in ("DATABASE_URL", "PORT")
    }
    return {**clean, "TRANSCRIBER_DATA": str(data), "TRANSCRIBER_CONFIG": os.environ["TRANSCRIBER_CONFIG"], **more}


def processes_of(data: Path) -> list[psutil.Process]:
    """All processes that work on this data folder or one below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRANSCRIBER_DATA", "").startswith(str(data)):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def assert_nothing_is_left(data: Path, *, within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while (left := processes_of(data)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    for process in processes_of(folder):
        process.kill()


@pytest.mark.processes
def test_the_demo_shows_transcript_and_subtitles_and_leaves_only_the_model(data: Path) -> None:
    done = subprocess.run(DEMO, cwd=ROOT, env=environment(data), capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
    transcript, subtitles = re.split(r"The same as subtitles \(srt\):", done.stdout.partition("The transcript:")[2])
    assert len(transcript.split()) >= 5
    assert re.search(r"^1\n00:00:0\d,\d{3} --> 00:00:\d\d,\d{3}\n\S", subtitles.strip(), re.MULTILINE)
    assert " ".join(transcript.split()[:3]) in " ".join(subtitles.split())
    states = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    assert states == [state for state in ("uploaded", "normalized", "submitted", "transcribed", "done") if state in states]
    assert states[-1] == "done"
    assert "\r" not in done.stderr  # no terminal, no moving bar
    assert "\x1b" not in done.stderr
    assert [path.name for path in data.iterdir()] == ["models"]
    assert_nothing_is_left(data)


@pytest.mark.processes
def test_a_demo_that_cannot_recognize_says_why_and_shows_the_log(data: Path) -> None:
    env = environment(data, TRANSCRIBER_WHISPER_MODEL=str(data / "no-such-model"))

    done = subprocess.run(DEMO, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("The demo failed: ")
    assert "no-such-model" in lines[-1]
    assert "The last lines of the service's log:" in lines
    assert "Traceback" not in done.stderr
    assert_nothing_is_left(data)


def test_a_demo_with_a_bad_configuration_says_so_in_a_sentence(data: Path) -> None:
    env = environment(data, TRANSCRIBER_PIPELINE_MAX_ATTEMPTS="0")

    done = subprocess.run(DEMO, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines() == ["The demo failed: TRANSCRIBER_PIPELINE_MAX_ATTEMPTS must be a whole number from 1 to 1000."]


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["Starting", "  submitted"], ids=str.strip)
def test_a_demo_that_is_ended_leaves_no_process(data: Path, number: signal.Signals, moment: str) -> None:
    with subprocess.Popen(DEMO, cwd=ROOT, env=environment(data), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        shown = []
        for line in demo.stderr:
            shown.append(line)
            if line.startswith(moment):
                break
        demo.send_signal(number)
        shown += demo.stderr.readlines()

    assert "Traceback" not in "".join(shown)
    assert_nothing_is_left(data)
    if number != signal.SIGKILL:
        assert demo.returncode == 130
        assert shown[-1] == "Stopped.\n"
        assert {path.name for path in data.iterdir()} <= {"models"}


def test_the_recording_is_small_enough_to_come_along() -> None:
    assert RECORDING.stat().st_size < 200_000
    assert RECORDING.read_bytes()[:4] == b"OggS"


# ---- the display --------------------------------------------------------------------------------------------------------------------


class Screen:
    def __init__(self, *, terminal: bool) -> None:
        self.text = ""
        self._terminal = terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return self._terminal


def test_on_a_terminal_the_bar_moves_in_its_line() -> None:
    screen = Screen(terminal=True)
    display = Display(screen)
    display.progress("submitted", 0.0, 0.0)
    display.progress("submitted", 0.5, 7.2)
    display.progress("done", 1.0, 9.0)

    assert [part for part in screen.text.split("\r\x1b[K") if part] == [
        "  submitted\n",
        f"  {'░' * 30}   0%    0 s",
        f"  {'█' * 15}{'░' * 15}  50%    7 s",
        "  done\n",
    ]


def test_elsewhere_a_state_is_a_line() -> None:
    screen = Screen(terminal=False)
    display = Display(screen)
    for state, fraction in (("submitted", 0.0), ("submitted", 0.5), ("done", 1.0)):
        display.progress(state, fraction, 1.0)

    assert screen.text == "  submitted\n  done\n"
