"""A real service, or a bare cluster, in a data folder of its own: started through manage.py, spoken to over HTTP, looked at from outside."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from tests.postgres import free_port

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = "tests.fakes.quick.QuickProvider"


def wait_for(what: Callable[[], T], *, within: float, every: float = 0.1) -> T:
    """The first true value, or a failure that says what was seen last."""
    deadline = time.monotonic() + within
    while not (value := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come about within {within:g} s; last seen: {value!r}")
        time.sleep(every)
    return value


class Database:
    """The service's database, seen from outside."""

    def __init__(self, folder: Path, server: str | None) -> None:
        self.path = folder / "db.sqlite3"
        self._server = server
        self._name = f"service_{uuid.uuid4().hex[:12]}"
        self.url = f"{server.rpartition('/')[0]}/{self._name}" if server else None

    def create(self, template: Database | None = None) -> None:
        """As a copy of another that nobody uses, if one is given."""
        if self.url:
            copied = f" TEMPLATE {template._name}" if template else ""
            self._administer(f"CREATE DATABASE {self._name}{copied}")
        elif template:
            shutil.copy(template.path, self.path)

    def drop(self) -> None:
        if self.url:
            self._administer(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        if self.url:
            import psycopg

            with psycopg.connect(self.url, autocommit=True) as connection:
                return connection.execute(statement).fetchall()
        with closing(sqlite3.connect(self.path, timeout=20)) as file:
            return file.execute(statement).fetchall()

    def execute(self, statement: str) -> None:
        if self.url:
            import psycopg

            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(statement)
        else:
            with closing(sqlite3.connect(self.path, timeout=20)) as file, file:
                file.execute(statement)

    def _administer(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._server or "", autocommit=True) as connection:
            connection.execute(statement)


class Service:
    """`start("serve")` or `start("qcluster")`, as often as wanted, one after the other. What it wrote is in `log`."""

    def __init__(self, folder: Path, server: str | None, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder
        self.database = Database(folder, server)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TRANSCRIBER_", "DATABASE_URL", "PYTEST_"))},
            "TRANSCRIBER_DATA": str(folder),
            "TRANSCRIBER_CONFIG": os.environ["TRANSCRIBER_CONFIG"],
            "TRANSCRIBER_RECOGNITION_PROVIDER": QUICK,
            "DJANGO_SETTINGS_MODULE": "transcriber.settings",
            "PORT": str(self.port),
            **({"DATABASE_URL": self.database.url} if self.database.url else {}),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, psutil.Process] = {}

    # ---- its life ---------------------------------------------------------------------------------------------------------------------------

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(str(ROOT / "manage.py"), *arguments, check=check)

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    def start(self, command: str, *arguments: str, **environment: str) -> psutil.Process:
        """Start `manage.py <command>` and wait until it works: all seats are taken, and the web answers if there is one."""
        self.launch(command, *arguments, **environment)
        wait_for(lambda: "ready" in self.new_log() or self._died(), within=40)
        if command == "serve":
            wait_for(lambda: self.is_healthy() or self._died(), within=40)
        assert self.status is None, self.log
        return psutil.Process(self.pid)

    def launch(self, command: str, *arguments: str, **environment: str) -> None:
        assert self._process is None or self._process.poll() is not None
        self._log_starts = len(self.log)
        with (self.data / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), command, *arguments],
                cwd=ROOT,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, once there is one."""
        assert self._process is not None
        return self._process.poll()

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        self.processes()
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, within: float = 10.0) -> float:
        """Signal, and wait until nothing is left. Gives the seconds it took."""
        began = time.monotonic()
        self.send(number)
        wait_for(lambda: not self.processes(), within=within)
        return time.monotonic() - began

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self._process is not None:
            for process in self.processes():
                with _gone():
                    process.kill()
            self._process.wait(timeout=10)
            wait_for(lambda: not self.processes(), within=10)
        self.database.drop()

    def _died(self) -> bool:
        return self.status is not None

    # ---- what can be seen of it -------------------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        path = self.data / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def new_log(self) -> str:
        """Since it was started last."""
        return self.log[self._log_starts :]

    def is_healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def processes(self) -> list[psutil.Process]:
        """Every living process that it ever started, itself included, as far as they were seen by a call like this one."""
        self._process.poll() if self._process else None
        children: dict[int, list[int]] = {}
        for pid in psutil.pids():
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
        known = [self.pid, *(process.pid for process in self._seen.values() if _lives(process))]
        while known:
            pid = known.pop()
            if pid not in self._seen or not _lives(self._seen[pid]):
                with _gone():
                    self._seen[pid] = psutil.Process(pid)
            known += [child for child in children.get(pid, []) if child not in self._seen]
        return [process for process in self._seen.values() if _lives(process)]

    def named(self, name: str) -> list[psutil.Process]:
        """The living processes whose name begins so: q-main, q-sentinel, q-worker (the idle one), q-seat-0, q-monitor, q-pusher, ffmpeg."""
        return [process for process in self.processes() if _name(process).startswith(name)]

    def records(self) -> list[tuple[str, int, bool]]:
        """State, attempts and "is held" of each."""
        found = self.database.query("SELECT state, attempts, acquisition_id IS NOT NULL FROM audio_records ORDER BY id")
        return [(state, attempts, bool(held)) for state, attempts, held in found]

    def states(self) -> Counter[str]:
        return Counter(state for state, _, _ in self.records())

    def events(self) -> list[tuple[str, str, str]]:
        """Step, outcome and text of each row of the journal."""
        return self.database.query("SELECT step, outcome, outcome_text FROM record_events ORDER BY id")

    # ---- what can be done with it -----------------------------------------------------------------------------------------------------------

    def put(self, number: int = 1, *, seconds: float = 0.5) -> None:
        """Short recordings, straight into the database and the storage."""
        self.run("-c", PUT, str(number), str(seconds))

    def put_long(self, *, hours: float = 0.5) -> None:
        """A recording of silence that keeps ffmpeg busy for several seconds, and takes no room on the disk."""
        self.run("-c", PUT_LONG, str(round(hours * 3600)))


PUT = """
import pathlib, sys, tempfile, django
django.setup()
from django.utils import timezone
from tests.factories import make_record, make_user, wav_bytes
with tempfile.TemporaryDirectory() as folder:
    contents = wav_bytes(pathlib.Path(folder), float(sys.argv[2]))
owner = make_user()
for _ in range(int(sys.argv[1])):
    make_record(now=timezone.now(), owner=owner, contents=contents)
"""

PUT_LONG = """
import os, struct, sys, django
django.setup()
from django.core.files.storage import default_storage
from django.utils import timezone
from records.models import File
from tests.factories import make_record
size = int(sys.argv[1]) * 32000
head = b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16) + b"data" + struct.pack("<I", size)
record = make_record(now=timezone.now(), contents=head, halted_at=timezone.now(), halt_reason="stopped")
os.truncate(default_storage.path(record.original_file.location), size + 44)
File.objects.update(size=size + 44)
type(record).objects.update(halted_at=None, halt_reason="")
"""


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


def _gone() -> AbstractContextManager[None]:
    """For what may be dead by now."""
    return suppress(psutil.NoSuchProcess, psutil.ZombieProcess)
