"""`make demo-speechkit`, as a user starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcriber.test_demo import ROOT, assert_nothing_is_left, environment, processes_of

pytestmark = [pytest.mark.no_database, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    for process in processes_of(folder):
        process.kill()


def test_demo_with_speechkit_pays_once_and_leaves_only_the_model(data: Path) -> None:
    command = [sys.executable, "-m", "tests.fakes.speechkit_demo"]
    done = subprocess.run(command, cwd=ROOT, env=environment(data), capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stderr
    transcript, _, subtitles = done.stdout.partition("The transcript:")[2].partition("The same as subtitles (srt):")
    assert "weather in the mountains" in transcript
    assert "1\n00:00:0" in subtitles
    assert subtitles.strip().endswith("Paid submissions: 1 (15 seconds billed)")
    assert "  submitted" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert [path.name for path in data.iterdir()] == ["models"]
    assert_nothing_is_left(data)
