from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from transcriber import processes, service
from transcriber.service import CannotListen, Supervisor, open_listener


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch):
    """One whose children are whatever the test says, and that starts them again without a pause."""
    monkeypatch.setattr(service, "PAUSES_S", (0.0,) * 3)
    made = Supervisor(open_listener("127.0.0.1", 0))
    yield made
    made._listener.close()


def children(monkeypatch: pytest.MonkeyPatch, *, web: str, cluster: str) -> list[str]:
    """Have other programs started; gives the list of what was."""
    started: list[str] = []

    def start(*arguments: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        name = "web" if "gunicorn" in arguments else "cluster"
        started.append(name)
        return subprocess.Popen([sys.executable, "-c", {"web": web, "cluster": cluster}[name]], process_group=0)

    monkeypatch.setattr(service, "_start", start)
    return started


SLEEP = "import time; time.sleep(600)"


def test_a_cluster_that_can_t_go_on_is_started_again_and_given_up_after_several_in_a_row(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = children(monkeypatch, web=SLEEP, cluster=f"raise SystemExit({processes.RESTART})")

    with caplog.at_level("INFO", "transcriber.service"):
        assert supervisor.run() == 1

    assert started == ["web"] + ["cluster"] * 4
    assert "giving up" in caplog.text
    assert processes.descendants(os.getpid()) == []


def test_a_long_calm_makes_the_count_start_again(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CALM_AFTER_S", -1.0)
    for _ in range(10):
        assert supervisor._may_restart()


def test_a_pause_grows(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    supervisor._started_at = time.monotonic()
    begins = []
    while supervisor._may_restart():
        begins.append(supervisor._start_at - time.monotonic())

    assert len(begins) == len(service.PAUSES_S)
    assert begins == sorted(begins)
    assert begins[-1] > 10


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_end_of_one_is_the_end_of_both(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    children(monkeypatch, web=f"raise SystemExit({status})", cluster=SLEEP)

    assert supervisor.run() == 1

    assert f"the web server ended with status {status}; the service does not go on without it" in caplog.text
    assert processes.descendants(os.getpid()) == []


def test_what_does_not_stop_is_killed(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(service, "STOP_WITHIN_S", 0.3)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
    children(monkeypatch, web="raise SystemExit(1)", cluster=deaf)

    assert supervisor.run() == 1

    assert processes.descendants(os.getpid()) == []


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(CannotListen, match="another program listens there"):
        open_listener("127.0.0.1", other.getsockname()[1])


def test_an_address_of_another_machine() -> None:
    with pytest.raises(CannotListen, match=r"Can't listen on 192\.0\.2\.1:0: "):
        open_listener("192.0.2.1", 0)


def test_ipv6_is_listened_on() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        listener = open_listener("[::1]", 0)
    except CannotListen as error:
        pytest.skip(str(error))
    with listener:
        assert listener.getsockname()[0] == "::1"
