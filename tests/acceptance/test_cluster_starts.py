"""Starting: what is said when it can't be, and two services side by side."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys

import pytest

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, Service, wait_for

pytestmark = pytest.mark.processes


def test_two_services_run_side_by_side(make_service: MakeService) -> None:
    one, other = make_service(), make_service()
    for service in (one, other):
        service.put()
        service.launch("serve")
    for service in (one, other):
        wait_for(service.is_healthy, within=40)
        wait_for(lambda service=service: service.states() == {"done": 1}, within=40)  # type: ignore[misc]

    one.stop()

    assert one.status == 0
    assert other.is_healthy()


def test_two_services_make_one_database_at_once(make_service: MakeService, server: str | None) -> None:
    one, other = make_service(), make_service()
    for service in (one, other):
        service.database.drop()
        service.database.path.unlink(missing_ok=True)
    if server:
        one.database.create()
        other.environment["DATABASE_URL"] = one.environment["DATABASE_URL"]
    other.environment["TRANSCRIBER_DATA"] = str(one.data)

    for service in (one, other):
        service.launch("serve")
    for service in (one, other):
        wait_for(lambda service=service: "2 workers ready" in service.log and service.is_healthy(), within=60)  # type: ignore[misc]
    one.put(4)

    wait_for(lambda: one.states() == {"done": 4}, within=60)
    assert "Traceback" not in one.log + other.log


def test_the_service_makes_its_database_and_says_where_it_is(make_service: MakeService, server: str | None) -> None:
    service = make_service()
    service.database.drop()
    service.database.path.unlink(missing_ok=True)
    if server:
        service.database.create()

    service.start("serve")

    for line in (f"Admin       {service.url}/admin/", f"API         {service.url}/api/v1/docs/", "createsuperuser", "create_token NAME"):
        assert line in service.log
    assert "2 workers ready" in service.log
    assert "Warning" not in service.log


def test_a_port_that_is_taken_is_said_in_one_sentence(service: Service) -> None:
    with socket.create_server(("127.0.0.1", service.port)):
        service.launch("serve")
        wait_for(lambda: service.status is not None, within=20)

    assert service.status == 1
    assert service.log == (
        f"CommandError: Can't listen on 127.0.0.1:{service.port}: another program listens there. Choose another port: PORT=8001 make run\n"
    )
    assert not service.processes()


def test_run_once_ends_when_nothing_is_left_to_do(service: Service) -> None:
    service.put(3)

    service.launch("qcluster", "--run-once")
    wait_for(lambda: service.status is not None, within=60)

    assert service.status == 0
    assert service.states() == {"done": 3}
    assert not service.processes()


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="this system knows no forkserver")
def test_it_does_not_matter_how_python_starts_processes_by_default(service: Service) -> None:
    service.put()
    program = (
        "import multiprocessing; multiprocessing.set_start_method('forkserver');"
        "from django.core.management import execute_from_command_line; execute_from_command_line(['manage.py', 'qcluster', '--run-once'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=service.environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert service.states() == {"done": 1}
