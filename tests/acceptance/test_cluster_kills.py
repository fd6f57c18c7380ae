"""`kill -9` of every process there is, in the middle of work."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes


def test_record_of_a_killed_worker_is_at_work_again_within_two_minutes(make_service: MakeService) -> None:
    service = make_service(TRANSCRIBER_PIPELINE_WORKERS="1", QUICK_SECONDS="5")
    service.put()
    service.start("qcluster")
    wait_for(lambda: service.records() == [("submitted", 0, True)], within=30)

    (worker,) = service.named("q-seat")
    worker.kill()
    killed_at = time.monotonic()
    wait_for(lambda: service.records() == [("submitted", 1, True)], within=120, every=0.5)
    print(f"at work again {time.monotonic() - killed_at:.1f} s after the kill")
    wait_for(lambda: service.states() == {"done": 1}, within=30)

    assert [event[:2] for event in service.events()] == [
        ("normalize", "advanced"),
        ("submit", "advanced"),
        ("poll", "failed"),
        ("poll", "advanced"),
        ("finish", "advanced"),
    ]
    assert service.named("q-seat")[0].pid != worker.pid


def test_records_go_on_whatever_helper_of_the_cluster_is_killed(service: Service) -> None:
    service.start("serve")
    for number, name in enumerate(["q-worker", "q-monitor", "q-pusher", "q-sentinel", "q-seat-0"], start=1):
        (victim,) = wait_for(lambda name=name: service.named(name), within=20)  # type: ignore[misc]
        victim.kill()
        killed_at = time.monotonic()
        service.put(2)
        wait_for(lambda number=number: service.states() == {"done": 2 * number}, within=60)  # type: ignore[misc]
        print(f"{name}: two records done {time.monotonic() - killed_at:.1f} s after the kill")
        wait_for(lambda: service.new_log().count("workers ready") == restarts(service) + 1, within=20)

    assert service.status is None
    assert restarts(service) == 3  # after the waiting worker, the monitor and the sentinel
    assert {attempts for _, attempts, _ in service.records()} == {0}


def test_running_steps_are_given_back_when_the_cluster_must_start_again(service: Service) -> None:
    service.put(2)
    service.start("serve", QUICK_SECONDS="6")
    wait_for(lambda: service.records() == [("submitted", 0, True)] * 2, within=30)

    (monitor,) = service.named("q-monitor")
    monitor.kill()
    wait_for(lambda: restarts(service) == 1, within=10)
    wait_for(lambda: service.states() == {"done": 2}, within=60)

    assert "failed" not in {outcome for _, outcome, _ in service.events()}


def test_nothing_outlives_the_main_process(make_service: MakeService) -> None:
    service = make_service(TRANSCRIBER_PIPELINE_WORKERS="2", QUICK_SECONDS="60")
    service.put_long()
    service.put()
    main = service.start("qcluster")
    wait_for(lambda: service.named("ffmpeg") and ("submitted", 0, True) in service.records(), within=30)
    assert len(service.processes()) >= 7

    main.kill()

    wait_for(lambda: not service.processes(), within=10)


def test_a_service_whose_web_server_dies_ends(service: Service) -> None:
    service.start("serve")

    kill(next(process for process in service.processes() if "gunicorn" in " ".join(process.cmdline())))

    wait_for(lambda: service.status is not None, within=10)
    assert service.status == 1
    assert not service.processes()
    assert "the web server was killed by signal 9" in service.log


def test_a_service_whose_cluster_is_killed_ends(service: Service) -> None:
    service.start("serve")

    kill(*service.named("q-main"))

    wait_for(lambda: service.status is not None, within=10)
    assert service.status == 1
    assert not service.processes()
    assert "the cluster was killed by signal 9" in service.log


def test_nothing_outlives_the_supervisor(service: Service) -> None:
    service.put_long()
    supervisor = service.start("serve")
    wait_for(lambda: service.named("ffmpeg"), within=30)

    kill(supervisor)

    wait_for(lambda: not service.processes(), within=10)
    assert not service.is_healthy()


def test_a_cluster_that_hands_out_no_seats_ends_to_be_started_again(make_service: MakeService) -> None:
    service = make_service(TRANSCRIBER_PIPELINE_WORKERS="2")
    service.start("qcluster")

    service.named("q-pusher")[0].suspend()
    kill(*service.named("q-seat-1"))

    wait_for(lambda: service.status is not None, within=60)
    assert service.status == os.EX_TEMPFAIL
    assert "the cluster must be started again: a free seat is not filled" in service.log
    assert not service.processes()


def kill(*processes: psutil.Process) -> None:
    (process,) = processes
    process.kill()


def restarts(service: Service) -> int:
    return service.new_log().count("starting it again in")
