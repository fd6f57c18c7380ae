"""The first minute of a database, and one that can't serve: whoever meets it, whichever command."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, Service, wait_for
from tests.audio import tone, write_wav
from tests.postgres import free_port

pytestmark = pytest.mark.processes

COMMANDS = ("serve", "qcluster", "create_token", "createsuperuser", "transcribe", "migrate")
FIRST_STARTS = int(os.environ.get("FIRST_STARTS", "1"))
"""How often each pair is started: 3 gives 63 starts."""


# ---- side by side ---------------------------------------------------------------------------------------------------------------------------


class Command:
    """One of the commands, on the database of a service, beside others of its kind."""

    def __init__(self, name: str, number: int, service: Service) -> None:
        self.name = name
        self.log = service.data / f"{number}-{name}.log"
        sound = service.data / f"{number}.wav"
        write_wav(sound, tone(1))
        arguments = {
            "create_token": [f"owner{number}"],
            "createsuperuser": ["--noinput", "--username", f"chief{number}", "--email", "chief@example.org"],
            "transcribe": [str(sound)],
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), name, *arguments.get(name, [])],
                cwd=ROOT,
                env={**service.environment, "PORT": str(free_port()), "DJANGO_SUPERUSER_PASSWORD": "a long word of passing"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def succeeds(self) -> bool:
        """Whether it did what it is for; a failure of the test where it ended otherwise."""
        status = self.process.poll()
        assert status in (None, 0), f"{self.name}: {status}\n{self.output}"
        if self.name in ("serve", "qcluster"):
            assert status is None, self.output
            return "ready" in self.output
        return status == 0

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)


def bare(service: Service) -> Service:
    """Without the database that it was made with; on PostgreSQL it is empty."""
    service.database.drop()
    service.database.path.unlink(missing_ok=True)
    if service.database.url:
        service.database.create()
    return service


@pytest.mark.parametrize("pair", [*itertools.combinations_with_replacement(COMMANDS, 2)], ids="+".join)
def test_any_two_commands_meet_a_database_that_is_not_there(make_service: MakeService, pair: tuple[str, str]) -> None:
    for _ in range(FIRST_STARTS):
        service = bare(make_service())
        commands = [Command(name, number, service) for number, name in enumerate(pair)]
        try:
            wait_for(lambda commands=commands: all(command.succeeds() for command in commands), within=90)  # type: ignore[misc]
        finally:
            for command in commands:
                command.end()
        output = "".join(command.output for command in commands)
        assert "Traceback" not in output
        assert "locked" not in output
        assert_is_whole(service)


def assert_is_whole(service: Service) -> None:
    assert service.manage("migrate", "--check", check=False).returncode == 0
    assert service.database.query("SELECT count(*) FROM auth_permission WHERE codename = 'view_audiorecord'") == [(1,)]
    if not service.database.url:
        assert service.database.query("PRAGMA journal_mode") == [("wal",)]


def applied(service: Service) -> int:
    try:
        return int(service.database.query("SELECT count(*) FROM django_migrations")[0][0])
    except Exception:  # no such table yet, or somebody writes
        return 0


def test_a_service_killed_in_the_middle_of_its_first_migration_is_whole_at_the_next_start(make_service: MakeService) -> None:
    service = bare(make_service())
    service.launch("serve")
    wait_for(lambda: service.database.url or service.database.path.exists(), within=30, every=0.01)
    wait_for(lambda: applied(service) >= 5, within=60, every=0.01)
    service.send(signal.SIGKILL, group=True)
    wait_for(lambda: not service.processes(), within=10)
    half = applied(service)

    service.start("serve")
    service.put()

    wait_for(lambda: service.states() == {"done": 1}, within=40)
    assert 5 <= half < applied(service)
    assert_is_whole(service)


def test_a_service_killed_between_its_last_migration_and_the_permissions_is_whole_at_the_next_start(make_service: MakeService) -> None:
    service = make_service()
    service.database.execute("DELETE FROM auth_permission WHERE codename LIKE 'view_%'")

    service.manage("ensure_database")

    assert_is_whole(service)


def test_whoever_waits_for_a_database_that_is_being_prepared_says_for_whom(make_service: MakeService) -> None:
    service = bare(make_service())
    keeper = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK],
        cwd=ROOT,
        env=service.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == "held\n"
    service.launch("qcluster")
    wait_for(lambda: "Waiting: the database is being prepared by" in service.log, within=30)
    said = service.log
    keeper.communicate("\n", timeout=30)

    wait_for(lambda: "ready" in service.log, within=60)
    assert "server process" in said if service.database.url else f"process {keeper.pid} (" in said


HOLD_THE_LOCK = """
import django; django.setup()
from transcriber.database import migrating
with migrating():
    print("held", flush=True)
    input()
"""


# ---- there, and unable to serve -------------------------------------------------------------------------------------------------------------

Spoil = Callable[[Service], None]


def random_bytes(service: Service) -> None:
    service.database.path.write_bytes(bytes(range(7, 256)) * 40)


def cut_off(service: Service) -> None:
    whole = service.database.path.read_bytes()
    service.database.path.write_bytes(whole[: len(whole) // 3 // 4096 * 4096])


def malformed(service: Service) -> None:
    """The first page stands, what it points to doesn't."""
    whole = service.database.path.read_bytes()
    service.database.path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


def anothers(service: Service) -> None:
    bare(service)
    service.database.execute("CREATE TABLE song (name text)")


def anothers_of_django(service: Service) -> None:
    bare(service)
    service.database.execute(
        "CREATE TABLE django_migrations (id integer PRIMARY KEY, app varchar(255), name varchar(255), applied timestamp with time zone)"
    )
    service.database.execute("INSERT INTO django_migrations VALUES (1, 'songs', '0001_initial', '2026-01-01 00:00:00')")


def newer(service: Service) -> None:
    service.database.execute(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('records', '0999_of_tomorrow', '2026-01-01 00:00:00')"
    )


SPOILT: dict[str, tuple[Spoil, str]] = {
    "random bytes": (random_bytes, "is not a database"),
    "cut off": (cut_off, "is damaged or cut off"),
    "malformed": (malformed, "is damaged or cut off"),
    "another program's": (anothers, "holds the tables of another program"),
    "another Django project's": (anothers_of_django, "holds the tables of another program"),
    "newer": (newer, "was brought up to date by a newer version of this service (records.0999_of_tomorrow)"),
}
FILES_ALONE = {"random bytes", "cut off", "malformed"}


@pytest.mark.parametrize("kind", SPOILT)
def test_each_command_refuses_a_database_that_cannot_serve_and_writes_nothing_to_it(make_service: MakeService, kind: str) -> None:
    service = make_service()
    if service.database.url and kind in FILES_ALONE:
        pytest.skip("a file is spoilt so; a server keeps its own")
    spoil, sentence = SPOILT[kind]
    spoil(service)
    before = contents(service)

    assert_all_refuse(service, sentence)

    assert contents(service) == before


def assert_all_refuse(service: Service, sentence: str) -> None:
    commands = [Command(name, number, service) for number, name in enumerate((*COMMANDS, "ensure_database", "resume_records"))]
    try:
        for command in commands:
            assert command.process.wait(timeout=60) != 0, command.name
            assert sentence in command.output, (command.name, command.output)
            assert "Traceback" not in command.output, (command.name, command.output)
    finally:
        for command in commands:
            command.end()


def contents(service: Service) -> object:
    if not service.database.url:
        return service.database.path.read_bytes()
    tables = service.database.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1")
    return tables, "django_migrations" in str(tables) and service.database.query("SELECT count(*), max(id) FROM django_migrations")


@pytest.fixture
def small_disk(tmp_path: Path, server: str | None) -> Iterator[Path]:
    """A file system of 16 MB."""
    if server:
        pytest.skip("the disk of a server is the server's")
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("a disk that is full, or read only, can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def on_small_disk(make_service: MakeService, small_disk: Path) -> Service:
    service = make_service()
    shutil.move(service.database.path, small_disk / "db.sqlite3")
    service.database.path = small_disk / "db.sqlite3"
    service.environment["DATABASE_URL"] = f"sqlite:///{service.database.path}"
    return service


def test_each_command_says_that_the_disk_is_full(on_small_disk: Service) -> None:
    on_small_disk.database.execute("DELETE FROM auth_permission")  # there is something to do
    fill(on_small_disk.database.path.parent)

    assert_all_refuse(on_small_disk, "is full. Make room there")


def test_each_command_says_that_the_database_cannot_be_written_to(on_small_disk: Service) -> None:
    on_small_disk.database.execute("DELETE FROM auth_permission")
    subprocess.run(["mount", "-o", "remount,ro", str(on_small_disk.database.path.parent)], check=True)

    assert_all_refuse(on_small_disk, "can't be written to. Give whoever runs this the right")


def test_each_command_says_that_the_server_takes_nothing_in(make_service: MakeService, server: str | None) -> None:
    if not server:
        pytest.skip("a server's setting")
    service = make_service()
    service.database.execute("DELETE FROM auth_permission")
    read_only(service, "on")

    assert_all_refuse(service, "takes nothing in")


def test_a_locked_database_names_who_holds_it(make_service: MakeService, server: str | None) -> None:
    if server:
        pytest.skip("a server locks no database")
    service = make_service()
    service.database.execute("DELETE FROM auth_permission")
    with closing(sqlite3.connect(service.database.path, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        refused = service.run("manage.py", "create_token", "anna", check=False)

    assert refused.returncode == 1
    assert f"is locked by process {os.getpid()} (" in refused.stderr
    assert "Traceback" not in refused.stderr


def fill(folder: Path) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def read_only(service: Service, value: str) -> None:
    """From now on and for whoever is connected."""
    name = service.database._name
    service.database._administer(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
    service.database._administer(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


# ---- while it runs --------------------------------------------------------------------------------------------------------------------------

STANDS = "nothing is taken in and nothing is worked on"


class Watched:
    """A service that has done one recording of somebody with a token."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.token = service.manage("create_token", "anna").stdout.strip()
        self.sound = write_wav(service.data / "sound.wav", tone(1))
        service.start("serve")
        assert self.upload().status_code == 202
        wait_for(lambda: service.states() == {"done": 1}, within=40)

    def upload(self) -> requests.Response:
        with self.sound.open("rb") as file:
            return requests.post(
                f"{self.service.url}/api/v1/records/", headers={"Authorization": f"Token {self.token}"}, files={"file": file}, timeout=30
            )

    def readiness(self) -> str:
        """Empty when it is ready."""
        answer = requests.get(f"{self.service.url}/readyz", timeout=30)
        return "" if answer.status_code == 200 else answer.text

    def assert_stands_and_goes_on(self, spoil: Callable[[], object], mend: Callable[[], object], brief: str) -> None:
        """Nothing is taken in and nothing is worked on between the two."""
        spoil()
        try:
            wait_for(lambda: brief in self.readiness(), within=30)
            wait_for(lambda: self.service.new_log().count(STANDS) >= 2, within=30)  # the web and the cluster
            refused = self.upload()
            assert refused.status_code == 503
            assert "database_unavailable" in refused.text
            assert requests.get(f"{self.service.url}/admin/", timeout=30).status_code == 503
            assert requests.get(f"{self.service.url}/healthz", timeout=30).status_code == 200
        finally:
            mend()
        wait_for(lambda: not self.readiness(), within=60)
        wait_for(lambda: self.upload().status_code == 202, within=20)
        wait_for(lambda: self.service.states() == {"done": 2}, within=60)
        assert self.service.status is None
        wait_for(lambda: self.service.new_log().count("the database serves again") >= 2, within=20)


def today_again(service: Service) -> None:
    service.database.execute("DELETE FROM django_migrations WHERE name = '0999_of_tomorrow'")


def test_a_schema_that_becomes_newer_while_the_service_runs_is_not_worked_on(make_service: MakeService) -> None:
    service = make_service()
    Watched(service).assert_stands_and_goes_on(
        lambda: newer(service), lambda: today_again(service), "brought up to date by a newer version"
    )


def test_a_cluster_leaves_records_alone_under_a_newer_schema(make_service: MakeService) -> None:
    service = make_service()
    service.start("qcluster")
    newer(service)
    wait_for(lambda: STANDS in service.new_log(), within=20)

    service.put()
    service.put()  # each is a process of its own: time enough for a worker that would take the first
    assert service.records() == [("uploaded", 0, False)] * 2
    today_again(service)

    wait_for(lambda: service.states() == {"done": 2}, within=40)


def test_a_database_file_that_is_replaced_by_something_else_and_put_back(make_service: MakeService, server: str | None) -> None:
    if server:
        pytest.skip("a server keeps its own files")
    service = make_service()
    kept = service.data / "kept"
    kept.mkdir()

    def spoil() -> None:
        for path in service.data.glob("db.sqlite3*"):
            path.rename(kept / path.name)
        service.database.path.write_bytes(b"not a database at all" * 4096)

    def mend() -> None:
        for path in service.data.glob("db.sqlite3*"):
            path.unlink()
        for path in kept.iterdir():
            path.rename(service.data / path.name)

    Watched(service).assert_stands_and_goes_on(spoil, mend, "The file of the database is none")


def test_a_disk_that_becomes_full(on_small_disk: Service) -> None:
    folder = on_small_disk.database.path.parent
    Watched(on_small_disk).assert_stands_and_goes_on(lambda: fill(folder), (folder / "filling").unlink, "The disk of the database is full")


def test_a_server_that_takes_nothing_in_for_a_while(make_service: MakeService, server: str | None) -> None:
    if not server:
        pytest.skip("a server's setting")
    service = make_service()
    Watched(service).assert_stands_and_goes_on(
        lambda: read_only(service, "on"), lambda: read_only(service, "off"), "The database takes nothing in"
    )
