"""Processes that end with their parent, and the ending of those that don't."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

RESTART = os.EX_TEMPFAIL
"""Exit status of a cluster that can't go on and would work again after a fresh start."""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

_forking = 0
_named = ""


def die_with(parent: int) -> None:
    """Have this process killed once its parent dies; at once if that has happened already.

    Linux alone knows this. Elsewhere whoever works in a loop looks at `os.getppid()`.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def forks_die_with_us() -> None:
    """From here on every fork of this process, and every fork of theirs, ends with its parent."""
    os.register_at_fork(before=_remember_parent, after_in_child=_in_child)


def _remember_parent() -> None:
    global _forking
    _forking = os.getpid()


def _in_child() -> None:
    die_with(_forking)
    if _named:
        name_process(_named)


def name_process(name: str) -> None:
    """What `ps -o comm` and `top` show of this process; at most 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


@contextmanager
def naming_forks(name: str) -> Iterator[None]:
    """The processes that are forked meanwhile bear that name, and so do theirs."""
    global _named
    former, _named = _named, name
    try:
        yield
    finally:
        _named = former


def tied_to_us() -> Callable[[], None]:
    """A `preexec_fn` that ties a started program to this process. For parents without threads."""
    parent = os.getpid()
    return lambda: die_with(parent)


def leave(status: int) -> NoReturn:
    """End this process without taking Python apart piece by piece, which takes half a second where the machine is busy."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def descendants(pid: int) -> list[int]:
    """The living processes that `pid` started, and those that they started, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in parentheses may hold anything, so the fields are counted from its end.
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        of_one = children.get(waiting.pop(0), [])
        found += of_one
        waiting += of_one
    return found


def kill_descendants(*, within: float = 2.0) -> int:
    """Kill everything that this process started, until nothing is left or the seconds have passed. Gives the number of those killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + within
    while (living := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(living)
        time.sleep(0.02)
    return len(killed)
