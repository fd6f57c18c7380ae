from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.service import wait_for
from transcriber import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the signal of a parent's death is Linux's own")

ROOT = Path(__file__).resolve().parent.parent.parent

# A family of three generations that waits for its end; each writes its id.
FAMILY = """
import os, time
from transcriber import processes
processes.forks_die_with_us()
with processes.naming_forks("q-family"):
    for generation in range(3):
        print(os.getpid(), flush=True)
        if os.fork():
            time.sleep(600)
"""


@pytest.fixture
def family():
    process = subprocess.Popen([sys.executable, "-c", FAMILY], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    members = [psutil.Process(int(process.stdout.readline())) for _ in range(3)]
    yield process, members
    for member in members:
        if member.is_running():
            member.kill()
    process.wait()
    process.stdout.close()


def test_forks_end_with_their_parent_generation_by_generation(family) -> None:
    process, members = family

    process.kill()
    process.wait()

    wait_for(lambda: not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in members), within=5)


def test_descendants_are_found_and_named(family) -> None:
    process, members = family
    wait_for(lambda: processes.descendants(process.pid) == [members[1].pid, members[2].pid], within=5)
    assert [Path(f"/proc/{member.pid}/comm").read_text() for member in members[1:]] == ["q-family\n"] * 2


def test_a_process_that_is_an_orphan_already_ends_at_once() -> None:
    pid = os.fork()
    if not pid:
        processes.die_with(os.getppid() + 1)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_everything_that_was_started_is_killed_even_what_ignores_signals() -> None:
    program = """
import signal, subprocess, sys
from transcriber import processes
deaf = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
children = [subprocess.Popen(deaf, start_new_session=True) for _ in range(2)]
print(processes.kill_descendants())
assert [child.wait() for child in children] == [-signal.SIGKILL] * 2
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)

    assert done.stdout == "2\n", done.stderr
    assert done.returncode == signal.SIG_DFL
