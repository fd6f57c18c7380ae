"""Run a program under limits, in a process group of its own that dies with us, while the caller's heart goes on beating."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from records.audio import launcher
from records.audio.errors import AudioFailed

BEAT_EVERY_S = 0.25
LINE_MAX = 4096  # of a line so much is looked at
MEMORY_BYTES = 2 * 1024**3  # both binaries live with 300 MB of address space


@dataclass(frozen=True)
class Limits:
    """`wall_s` is kept by us, the others by the kernel."""

    wall_s: float
    file_bytes: int
    cpu_s: float = 0  # 0: twice the wall time, for two threads at work
    memory_bytes: int = MEMORY_BYTES


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    limits: Limits,
    on_output: Callable[[str], None],
    on_message: Callable[[str], None],
    beat: Callable[[], None],
) -> int:
    """Run `command` to its end and return its exit status, -N after signal N.

    `on_output` and `on_message` get the lines of stdout and stderr as they come. `beat` is called at least every half second.
    Whatever any of the three raises ends the whole process group at once and comes through. Raises AudioFailed:
    `timeout` past `limits.wall_s`, `ffmpeg_missing` when the program cannot be started.

    Linux ends the program when the calling thread ends, not only the process; that thread waits here all the while.
    """
    deadline = time.monotonic() + limits.wall_s
    numbers = [os.getpid(), limits.cpu_s or 2 * limits.wall_s, limits.file_bytes, limits.memory_bytes]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", launcher.__file__, *(str(int(number)) for number in numbers), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=_environment(os.environ),
        process_group=0,
    )
    try:
        _attend(process, deadline, on_output, on_message, beat)
    finally:
        _end(process)
    if process.returncode == launcher.NO_PROGRAM:
        raise AudioFailed("ffmpeg_missing")
    return process.returncode


def _attend(
    process: subprocess.Popen[bytes],
    deadline: float,
    on_output: Callable[[str], None],
    on_message: Callable[[str], None],
    beat: Callable[[], None],
) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    takers = {process.stdout.fileno(): on_output, process.stderr.fileno(): on_message}
    rest = dict.fromkeys(takers, b"")
    next_beat = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for descriptor in takers:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() or process.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                raise AudioFailed("timeout")
            if now >= next_beat:
                beat()
                next_beat = now + BEAT_EVERY_S
            if not selector.get_map():  # it closed its pipes and lives on
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
                continue
            for key, _ in selector.select(max(0.0, min(next_beat, deadline) - time.monotonic())):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fd)
                *lines, rest[key.fd] = (rest[key.fd] + data).split(b"\n")
                if rest[key.fd] and (not data or len(rest[key.fd]) > LINE_MAX):
                    lines.append(rest[key.fd])
                    rest[key.fd] = b""
                for line in lines:
                    takers[key.fd](line[:LINE_MAX].decode("utf-8", "replace").rstrip("\r"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the group behind, whether it has ended by itself or not."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # exec has not happened yet or the group is not made yet: the process itself is still ours to kill
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Next to nothing: no secrets, no settings of ours, messages in English."""
    kept = {name: ours[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in ours}
    return {"LC_ALL": "C", "AV_LOG_FORCE_NOCOLOR": "1", **kept}
