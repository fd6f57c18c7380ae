"""A PostgreSQL server of the tests' own, started from the binaries that are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ACCOUNTS = ("postgres", "nobody")
"""Under whom the server runs when the tests run as root: initdb refuses root."""


def find_binaries() -> Path | None:
    """The folder that holds `initdb` and `postgres`, the newest version first."""
    on_path = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    folders += [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A throw-away server; `url` names it once it is started."""

    def __init__(self, binaries: Path, *, fsync: bool = False) -> None:
        self.binaries = binaries
        self.fsync = fsync
        self.folder = Path(tempfile.mkdtemp(prefix="transcriber-postgres-"))
        self.port = free_port()
        self.account = next((name for name in ACCOUNTS if _exists(name)), None) if os.geteuid() == 0 else None
        self.url = f"postgres://tests@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        data = self.folder / "data"
        if self.account:
            shutil.chown(self.folder, self.account)
        self._run("initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = [
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            f"fsync={'on' if self.fsync else 'off'}",
            "max_connections=200",
        ]
        arguments = [str(self.binaries / "postgres"), "-D", str(data)]
        for option in options:
            arguments += ["-c", option]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, process_group=0, **self._as()
            )
        deadline = time.monotonic() + 60
        ready = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "tests", "-d", "postgres"]
        while subprocess.run(ready, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start:\n" + (self.folder / "log").read_text())
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGQUIT)  # at once: nothing in it is kept
        self.process.wait(timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self.binaries / program), *map(str, arguments)], capture_output=True, cwd=self.folder, check=False, text=True, **self._as()
        )
        if done.returncode:
            sys.exit(f"{program} failed: {done.stderr}")

    def _as(self) -> dict[str, Any]:
        return {"user": self.account, "group": pwd.getpwnam(self.account).pw_gid, "extra_groups": []} if self.account else {}


def _exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True
