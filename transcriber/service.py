"""Web server and cluster side by side, and one supervisor that lives and dies with both (`manage.py serve`)."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from django.conf import settings

from transcriber import processes

logger = logging.getLogger(__name__)

STOP_WITHIN_S = 8.5
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Before each start of a cluster that follows upon another; after the last one it is given up."""
CALM_AFTER_S = 300.0
SAME_SIGNAL_S = 1.0


class CannotListen(Exception):
    """The message is one sentence for whoever started the service."""


def open_listener(host: str, port: int) -> socket.socket:
    """The socket on which the web server will accept; bound before anything is started. Raises CannotListen."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program listens there. Choose another port: PORT=8001 make run"
        raise CannotListen(f"Can't listen on {host}:{port}: {reason}") from error


class Supervisor:
    """Starts both, ends both. If one of them can't go on, neither does."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._signals = 0
        self._signal_at = float("-inf")
        self._restarts = 0
        self._web: subprocess.Popen[bytes] | None = None
        self._cluster: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = 0.0

    def listen_to_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def run(self) -> int:
        """Serve until told to stop (0) or until one of the two has died (1)."""
        try:
            status = 0 if self._is_told() else self._serve()
        finally:
            self._end()
        logger.info("stopped")
        return status

    def _serve(self) -> int:
        with self._listener:
            descriptor = self._listener.fileno()
            self._web = _start(
                "-m", "gunicorn", "-c", "python:transcriber.web", "-b", f"fd://{descriptor}", "transcriber.wsgi", pass_fds=(descriptor,)
            )
        while True:
            if self._cluster is None and time.monotonic() >= self._start_at:
                self._cluster = _start(str(settings.BASE_DIR / "manage.py"), "qcluster")
                self._started_at = time.monotonic()
            if self._is_told(within=0.1):
                return 0
            if self._web.poll() is not None:
                return self._lost("the web server", self._web)
            if self._cluster is not None and self._cluster.poll() is not None:
                if self._cluster.returncode != processes.RESTART or not self._may_restart():
                    return self._lost("the cluster", self._cluster)
                self._cluster = None

    def _lost(self, what: str, process: subprocess.Popen[bytes]) -> int:
        # A signal to the whole group reaches children first at times.
        if self._is_told(within=0.5):
            return 0
        status = process.returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        logger.error("%s %s; the service does not go on without it", what, how)
        return 1

    def _may_restart(self) -> bool:
        if time.monotonic() - self._started_at > CALM_AFTER_S:
            self._restarts = 0
        if self._restarts == len(PAUSES_S):
            logger.error("the cluster had to be started again %d times in a row; giving up", self._restarts)
            return False
        pause = PAUSES_S[self._restarts]
        self._restarts += 1
        logger.warning("the cluster could not go on; starting it again in %g s", pause)
        self._start_at = time.monotonic() + pause
        return True

    def _end(self) -> None:
        """Ask both to stop; after a while, or when asked twice, kill what is left."""
        children = [child for child in (self._web, self._cluster) if child is not None]
        for child in children:
            if child.poll() is None:
                child.terminate()
        _wait(lambda: self._signals > 1 or all(child.poll() is not None for child in children), STOP_WITHIN_S)
        if killed := processes.kill_descendants():
            logger.warning("%d processes did not stop in time and were killed", killed)
        for child in children:
            child.poll()

    def _is_told(self, within: float = 0.0) -> bool:
        return _wait(lambda: self._signals > 0, within)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # One wish to stop may come twice at once, to the group and passed on by make; the second that counts is somebody's impatience.
        if time.monotonic() - self._signal_at > SAME_SIGNAL_S:
            self._signals += 1
            self._signal_at = time.monotonic()


def _start(*arguments: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a Python program that ends with us, in a group of its own: Ctrl-C is for us alone, who pass it on in good order."""
    path = os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=pass_fds,
        process_group=0,
        preexec_fn=processes.tied_to_us(),
        env={**os.environ, "PYTHONPATH": path},
    )


def _wait(is_over: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (over := is_over()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return over
