"""Thousands of recordings wait for a provider that allows five status checks a second: several real worker processes keep to it together."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, Service, wait_for
from tests.fakes.loopback import Status
from tests.fakes.s3 import S3
from tests.fakes.speechkit_server import SpeechKitServer

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("speechkit")]

WAITING = 5000

FILL = """
import sys, django
django.setup()
from django.utils import timezone
from recognition.models import Recognition
from records.models import AudioRecord, File
from tests.factories import make_user
now, owner = timezone.now(), make_user()
halted = sys.argv[2] == "halted"
mark = {"halted_at": now, "halt_reason": "stuck"} if halted else {}
files, records, recognitions = [], [], []
for number in range(int(sys.argv[1])):
    original, copy = File(location=f"o/{number}", size=1), File(location=f"n/{number}", size=1, duration_ms=60000)
    record = AudioRecord(owner=owner, original_file=original, normalized_file=copy, state="submitted", state_entered_at=now, delay_time=now, **mark)
    recognition = Recognition(record=record, provider="speechkit", external_id=f"f8d{number:017d}", submit_started_at=now)
    files += [original, copy]
    records.append(record)
    recognitions.append(recognition)
File.objects.bulk_create(files, batch_size=500)
AudioRecord.objects.bulk_create(records, batch_size=500)
Recognition.objects.bulk_create(recognitions, batch_size=500)
for record, recognition in zip(records, recognitions, strict=True):
    record.recognition = recognition
AudioRecord.objects.bulk_update(records, ["recognition"], batch_size=200)
"""

RESUME = """
import django
django.setup()
from django.utils import timezone
from records.models import AudioRecord
from records.operations.control import By, resume
from records.states import Origin
print(resume(AudioRecord.objects.all(), by=By(Origin.COMMAND), now=timezone.now()).changed)
"""


@pytest.fixture
def speechkit() -> Iterator[SpeechKitServer]:
    with S3() as s3, SpeechKitServer(s3.url) as server:
        # Whatever is asked for is still running: these operations were made before the stand-in was.
        server.faults.always("operation", Status(status=503, shape="empty"))
        yield server


@pytest.fixture
def service(make_service: MakeService, speechkit: SpeechKitServer) -> Service:
    return make_service(**speechkit.environment(), TRANSCRIBER_SPEECHKIT_POLL_INTERVAL="5s")


@pytest.mark.parametrize("before", ["waiting", "halted"])
def test_several_workers_never_check_more_often_than_the_quota(before: str, service: Service, speechkit: SpeechKitServer):
    service.run("-c", FILL, str(WAITING), before)
    workers = [
        subprocess.Popen([sys.executable, "-m", "tests.fakes.endless_worker"], cwd=ROOT, env=service.environment, stdin=subprocess.DEVNULL)
        for _ in range(3)
    ]
    try:
        if before == "halted":
            assert service.run("-c", RESUME).stdout.split() == [str(WAITING)]
        wait_for(lambda: speechkit.requests.counts().get("operation", 0) >= 60, within=120)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()

    assert speechkit.requests.most("operation", 1.0) <= 5
    assert service.database.query("SELECT count(*) FROM audio_records WHERE halted_at IS NOT NULL OR attempts > 0") == [(0,)]
    assert service.database.query("SELECT count(*) FROM audio_records WHERE state = 'submitted'") == [(WAITING,)]


FILL_NORMALIZED = """
import sys, django
django.setup()
from django.utils import timezone
from tests.factories import make_record, make_user
owner = make_user()
for _ in range(int(sys.argv[1])):
    make_record("normalized", now=timezone.now(), owner=owner)
"""


def test_several_workers_never_submit_more_often_than_the_quota(make_service: MakeService):
    """500 an hour, one every 7.2 s: seen over the first few, which is where many workers would crowd."""
    with S3() as s3, SpeechKitServer(s3.url) as speechkit:
        speechkit.faults.always("submit", Status(status=503, shape="empty"))  # each is unconfirmed then, and not sent again
        service = make_service(**speechkit.environment(), **s3.environment(s3.make_bucket()))
        service.run("-c", FILL_NORMALIZED, "60")
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.endless_worker"], cwd=ROOT, env=service.environment, stdin=subprocess.DEVNULL
            )
            for _ in range(3)
        ]
        try:
            wait_for(lambda: speechkit.requests.counts().get("submit", 0) >= 4, within=120)
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
                worker.wait()

        # A call may be late by half a pace, never early: the stretch from the first to the last is as long as their slots lie apart.
        assert speechkit.requests.most("submit", 3.5) == 1
        moments = sorted(call.at for call in speechkit.requests.of("submit"))
        assert moments[-1] - moments[0] >= (len(moments) - 1) * 7.25 - 3.7
        halted = service.database.query("SELECT DISTINCT halt_reason FROM audio_records WHERE halted_at IS NOT NULL")
        assert halted in ([("unconfirmed",)], [])
        assert service.database.query("SELECT count(*) FROM audio_records WHERE attempts > 0") == [(0,)]
