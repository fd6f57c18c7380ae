"""SIGTERM and Ctrl-C, at any moment: everything is gone within ten seconds, nothing is spent, and after a start it goes on."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes

DEAF = {"QUICK_DEAF_SECONDS": "600"}
BEATING = {"QUICK_SECONDS": "600"}


@pytest.mark.parametrize(
    ("work", "number", "group"),
    [(BEATING, signal.SIGTERM, False), (BEATING, signal.SIGINT, True), (DEAF, signal.SIGTERM, True), (DEAF, signal.SIGINT, False)],
    ids=["beating", "beating-group", "deaf-group", "deaf"],
)
def test_stop_in_the_middle_of_a_recognition(service: Service, work: dict[str, str], number: signal.Signals, group: bool) -> None:
    service.put()
    service.start("qcluster", **work)
    wait_for(lambda: service.records() == [("submitted", 0, True)], within=30)

    took = stop(service, number, group=group)

    print(f"stopped in {took:.1f} s")
    assert service.status == 0
    assert service.records() == [("submitted", 0, False)]
    assert "failed" not in {outcome for _, outcome, _ in service.events()}
    service.start("qcluster")
    wait_for(lambda: service.states() == {"done": 1}, within=30)


def test_a_stop_that_is_said_twice_at_once_spends_nothing(service: Service) -> None:
    """As when the whole group gets the signal and make passes it on as well."""
    service.put()
    service.start("serve", **BEATING)
    wait_for(lambda: service.records() == [("submitted", 0, True)], within=30)

    service.send(signal.SIGTERM)
    service.send(signal.SIGTERM)
    wait_for(lambda: not service.processes(), within=10)

    assert service.status == 0
    assert service.records() == [("submitted", 0, False)]
    assert "were killed" not in service.new_log()


def test_stop_in_the_middle_of_ffmpeg(service: Service) -> None:
    service.put_long(hours=0.25)
    service.start("qcluster")
    wait_for(lambda: service.named("ffmpeg"), within=30)

    took = stop(service, signal.SIGTERM, group=True)

    print(f"stopped in {took:.1f} s")
    assert service.status == 0
    assert service.records() == [("uploaded", 0, False)]
    assert service.database.query("SELECT count(*) FROM files") == [(1,)]
    assert len(files_in(service.data / "media")) == 1
    assert not files_in(service.data / "scratch")
    service.start("qcluster")
    wait_for(lambda: service.states() == {"done": 1}, within=120)
    assert service.database.query("SELECT duration_ms FROM files ORDER BY id") == [(900_000,)] * 2


def test_stops_at_random_moments_spend_nothing(make_service: MakeService) -> None:
    service = make_service(QUICK_SECONDS="0.3", TRANSCRIBER_PIPELINE_WORKERS="3")
    service.put(12)
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    longest = 0.0
    for number in [signal.SIGTERM, signal.SIGINT] * 3:
        service.launch("qcluster")
        wait_for(lambda: service.named("q-main"), within=20)  # before that Python itself would end on the signal
        time.sleep(moments.uniform(0, 3))
        longest = max(longest, stop(service, number, group=moments.random() < 0.5))
        assert service.status == 0, f"seed {seed}\n{service.new_log()}"
        assert {(attempts, held) for _, attempts, held in service.records()} == {(0, False)}, f"seed {seed}\n{service.new_log()}"
    print(f"longest stop {longest:.1f} s")

    service.start("qcluster")
    wait_for(lambda: service.states() == {"done": 12}, within=60)
    assert {outcome for _, outcome, _ in service.events()} == {"advanced"}
    assert len(service.events()) == 48


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGTERM, True)])
def test_the_service_stops_cleanly(service: Service, number: signal.Signals, group: bool) -> None:
    service.put(2)
    service.start("serve", **DEAF)
    wait_for(lambda: service.records() == [("submitted", 0, True)] * 2, within=30)

    took = stop(service, number, group=group)

    print(f"stopped in {took:.1f} s")
    assert service.status == 0
    assert service.records() == [("submitted", 0, False)] * 2
    assert "Traceback" not in service.log


def stop(service: Service, number: signal.Signals, *, group: bool) -> float:
    began = time.monotonic()
    service.send(number, group=group)
    wait_for(lambda: not service.processes(), within=10)
    return time.monotonic() - began


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
