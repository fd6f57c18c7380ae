"""`manage.py transcribe`: the transcript alone on standard output, and an exit status that scripts can use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, Service, wait_for
from tests.factories import wav_bytes

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("transcribe")]


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "secret name.wav"
    path.write_bytes(wav_bytes(tmp_path))
    return path


def transcribe(service: Service, *arguments: object) -> subprocess.CompletedProcess[str]:
    return service.run("manage.py", "transcribe", *map(str, arguments), check=False)


def test_the_transcript_alone_on_standard_output(service: Service, talk: Path):
    done = transcribe(service, talk)
    assert (done.returncode, done.stdout) == (0, "Quick.\n")
    assert done.stderr.split() == ["normalize", "submit", "poll", "finish"]
    assert service.records() == [("done", 0, False)]


def test_every_format_and_the_owner(service: Service, talk: Path):
    structure = json.loads(transcribe(service, talk, "--format", "json", "--owner", "anna").stdout)
    assert (structure["version"], structure["utterances"][0]["text"]) == (1, "Quick.")
    assert transcribe(service, talk, "--format", "srt").stdout == "1\n00:00:00,000 --> 00:00:01,000\nQuick.\n\n"
    assert transcribe(service, talk, "--format", "vtt").stdout.startswith("WEBVTT\n")
    owners = service.database.query("SELECT u.username FROM audio_records r JOIN auth_user u ON u.id = r.owner_id ORDER BY r.id")
    assert owners == [("anna",), ("command",), ("command",)]


def test_a_recording_that_is_none(service: Service, tmp_path: Path):
    (tmp_path / "secret name.mp3").write_text("These are words, and not a recording. " * 20)
    refused = transcribe(service, tmp_path / "secret name.mp3")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "This is not an audio or video recording." in refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.parametrize("contents", [None, b""], ids=["absent", "empty"])
def test_a_file_that_cant_be_taken_in(contents: bytes | None, service: Service, tmp_path: Path):
    if contents is not None:
        (tmp_path / "talk.wav").write_bytes(contents)
    refused = transcribe(service, tmp_path / "talk.wav")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert service.records() == []


def test_a_provider_that_does_not_exist_stops_the_start(make_service: MakeService, talk: Path):
    service = make_service(TRANSCRIBER_RECOGNITION_PROVIDER="no.such.Provider")
    refused = transcribe(service, talk)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "names no provider" in refused.stderr
    assert service.records() == []


def test_a_model_that_cant_be_had_is_said_and_the_record_stays(make_service: MakeService, talk: Path):
    service = make_service(TRANSCRIBER_RECOGNITION_PROVIDER="whisper", TRANSCRIBER_WHISPER_MODEL="./no/such/folder")
    waiting = transcribe(service, talk)
    assert (waiting.returncode, waiting.stdout) == (1, "")
    assert "which is configured as the Whisper model" in waiting.stderr
    assert service.records() == [("submitted", 0, False)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_gives_the_record_back(number: signal.Signals, make_service: MakeService, talk: Path):
    service = make_service(QUICK_SECONDS="60")
    command = subprocess.Popen(
        [sys.executable, "manage.py", "transcribe", str(talk)], cwd=ROOT, env=service.environment, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: service.records() == [("submitted", 0, True)], within=60)
    wait_for(
        lambda: service.database.query("SELECT count(*) FROM audio_records WHERE progress > 0") == [(1,)], within=60
    )  # in the step itself
    command.send_signal(number)
    _, told = command.communicate(timeout=10)
    assert command.returncode == 130
    assert "Interrupted." in told
    assert "Traceback" not in told
    assert service.records() == [("submitted", 0, False)]


INTERRUPTED = """
import os, signal, sys, django
django.setup()
from django.core.management import call_command
from records.pipeline import dispatch, transitions
module, name = {"acquire": (dispatch, "acquire"), "advance": (transitions, "advance"), "work": (dispatch, "Heartbeat")}[sys.argv[1]]
real = getattr(module, name)
def interrupted(*arguments, **options):
    given = real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGINT)
    return given
setattr(module, name, interrupted)
call_command("transcribe", sys.argv[2])
"""


@pytest.mark.parametrize(("place", "state"), [("acquire", "uploaded"), ("work", "uploaded"), ("advance", "normalized")])
def test_ctrl_c_counts_nothing_wherever_it_falls(place: str, state: str, service: Service, talk: Path):
    """Right after the record was taken, right before its step begins, and right after its result was written."""
    command = service.run("-c", INTERRUPTED, place, str(talk), check=False)
    assert command.returncode == 130, command.stderr
    assert "Interrupted. Record " in command.stderr
    assert service.records() == [(state, 0, False)]
    assert not [text for _, outcome, text in service.events() if outcome == "failed"]


def test_ctrl_c_before_anything_was_taken_in(service: Service, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = subprocess.Popen(
        [sys.executable, "manage.py", "transcribe", str(pipe)], cwd=ROOT, env=service.environment, stderr=subprocess.PIPE, text=True
    )
    with pipe.open("wb"):  # goes on once the command reads
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=10)
    assert (command.returncode, told) == (130, "Interrupted.\n")
    assert service.records() == []


def test_it_waits_where_a_running_worker_was_faster(make_service: MakeService, talk: Path):
    service = make_service()
    service.start("qcluster")
    done = [transcribe(service, talk) for _ in range(3)]
    assert [one.stdout for one in done] == ["Quick.\n"] * 3
    service.stop()


@pytest.mark.no_database
def test_with_the_default_engine_and_the_recording_that_comes_along(make_service: MakeService):
    service = make_service(TRANSCRIBER_RECOGNITION_PROVIDER="whisper")
    done = transcribe(service, ROOT / "transcriber" / "demo" / "recording.ogg", "--language", "en")
    assert done.returncode == 0, done.stderr
    assert "Welcome to the meeting." in done.stdout
