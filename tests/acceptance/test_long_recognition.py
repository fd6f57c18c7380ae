"""An hour of speech in the real engine, stopped in the middle of it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from records.audio import ffmpeg_binary
from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.no_database]

PUT = """
import sys, django
django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from records.operations.intake import take_in_stream
owner = User.objects.create(username="anna")
with open(sys.argv[1], "rb") as source:
    take_in_stream(source, owner=owner, name="talk.ogg", now=timezone.now())
"""


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording that comes along, said over and over for an hour."""
    path = tmp_path_factory.mktemp("hour") / "hour.ogg"
    recording = ROOT / "transcriber" / "demo" / "recording.ogg"
    command = [ffmpeg_binary(), "-v", "error", "-stream_loop", "-1", "-i", str(recording), "-t", "3600", "-c", "copy", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def test_stopped_in_the_middle_of_an_hour(hour: Path, make_service: MakeService):
    service = make_service(TRANSCRIBER_RECOGNITION_PROVIDER="whisper", TRANSCRIBER_PIPELINE_WORKERS="1")
    service.run("-c", PUT, str(hour))
    for number in (signal.SIGTERM, signal.SIGINT):
        service.start("qcluster")
        wait_for(lambda: service.database.query("SELECT state FROM audio_records WHERE progress > 0") == [("submitted",)], within=240)

        service.send(number, group=number == signal.SIGINT)  # Ctrl-C of a terminal reaches the whole group
        wait_for(lambda: not service.processes(), within=10)

        assert service.records() == [("submitted", 0, False)]
        assert service.database.query("SELECT payload FROM recognitions") == [("",)]
    assert [outcome for _, outcome, _ in service.events()] == ["advanced", "advanced"]
