"""The database as a whole: whether it can serve, who has hold of it, and having it brought to the schema of this code."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.sql import emit_post_migrate_signal
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from records.trouble import is_trouble

LOCK = zlib.crc32(b"transcriber migrations")
OURS = "records"
"""The app without whose migrations a database that others have migrated is not ours."""
SPACE_NEEDED = 2**23
"""Bytes without which the next write may fail: the journal of one step and the pages it changes."""
SAID_AFTER_S = 2.0
"""Of waiting for another process, it is said what is waited for."""


class CannotServe(Exception):
    """The database is there and can't be worked with.

    The message is for whoever starts or runs the service: why, and what to do. It holds no row and no password. `brief` says why without
    naming places, for everybody who may ask whether the service is ready.
    """

    def __init__(self, brief: str, sentence: str) -> None:
        super().__init__(sentence)
        self.brief = brief


# ---- sentences ------------------------------------------------------------------------------------------------------------------------------

_NOT_OURS = "Name a database of its own in DATABASE_URL, or another folder in TRANSCRIBER_DATA. Nothing was written to this one."
_DAMAGED = "Stop the service and restore the last backup (docs/operations.md). Nothing was written to it."


def explain(error: Exception) -> CannotServe:
    """What a driver's error means. Holds nothing of the driver's own words but why a server can't be reached."""
    if isinstance(error, CannotServe):
        return error
    return _explain_sqlite(error) if connection.vendor == "sqlite" else _explain_postgres(error)


def _explain_sqlite(error: Exception) -> CannotServe:
    path = database_file()
    at = f"The database {path}"
    code = getattr(error.__cause__, "sqlite_errorcode", None) or (sqlite3.SQLITE_BUSY if "locked" in str(error) else 0)
    match code & 0xFF:  # the rest tells where in SQLite
        case sqlite3.SQLITE_NOTADB:
            return CannotServe("The file of the database is none.", f"{at} is not a database. {_NOT_OURS}")
        case sqlite3.SQLITE_CORRUPT:
            return CannotServe("The database is damaged or cut off.", f"{at} is damaged or cut off. {_DAMAGED}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            by = _by(holders(path, Path(f"{path}-shm")))
            return CannotServe("The database is locked.", f"{at} is locked{by}. Wait until that is over, or end it, and try again.")
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if _space(path) < SPACE_NEEDED:
            return _full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            return _read_only(path)
    what = f"{type(error).__name__}, {code}" if code else type(error).__name__
    return CannotServe(
        f"The database does not answer ({what}).", f"{at} does not do what it is asked ({what}). Look at its disk and at the system's log."
    )


def _explain_postgres(error: Exception) -> CannotServe:
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if state == "53100":
        return CannotServe(
            "The disk of the database is full.", "The disk of the database server is full. Make room there; nothing more is needed here."
        )
    if state == "25006":
        return _read_only_server()
    if state.startswith("XX"):
        return CannotServe("The database is damaged.", f"The database server says that the database is damaged ({state}). {_DAMAGED}")
    if state == "42501":
        needed = "Make the user of DATABASE_URL the owner of the database."
        return CannotServe("The database refuses its user.", f"The database server does not let this user do what must be done. {needed}")
    what = f"{type(error).__name__}, {state}" if state else type(error).__name__
    if state:
        return CannotServe(
            f"The database does not answer ({what}).", f"The database server does not do what it is asked ({what}). Look at its log."
        )
    return CannotServe(f"The database does not answer ({what}).", f"The database can't be reached: {str(error).strip()}")


def _full(path: Path) -> CannotServe:
    needed = "Make room there; nothing more is needed here."
    return CannotServe("The disk of the database is full.", f"The disk that holds the database {path} is full. {needed}")


def _read_only(path: Path) -> CannotServe:
    needed = "Give whoever runs this the right to write to the file and to its folder, on a disk that is not mounted read only."
    return CannotServe("The database can't be written to.", f"The database {path} can't be written to. {needed}")


def _read_only_server() -> CannotServe:
    needed = "Name the primary server in DATABASE_URL."
    return CannotServe(
        "The database takes nothing in.", f"The database server takes nothing in: it is a standby, or set read only. {needed}"
    )


def _by(names: list[str]) -> str:
    return f" by {' and '.join(names)}" if names else " by another process"


def holders(*paths: Path) -> list[str]:
    """The processes that hold a lock on one of these files, as `process 12 (sqlite3)`. Linux alone tells."""
    wanted = {str(path.stat().st_ino) for path in paths if path.exists()}
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return []
    # "1: POSIX ADVISORY WRITE 812 08:01:263 0 EOF"; one that waits has an arrow before its kind. SQLite's readers hold READ locks.
    pids = {int(line[4]) for line in lines if line[1] != "->" and line[3] == "WRITE" and line[5].rpartition(":")[2] in wanted}
    return [f"process {pid} ({_name(pid)})" for pid in sorted(pids - {os.getpid()})]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of somebody else"


def database_file() -> Path:
    """SQLite's."""
    return Path(connection.settings_dict["NAME"])


def _space(path: Path) -> int:
    """Free bytes on the disk of that file."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


# ---- whether it can serve -------------------------------------------------------------------------------------------------------------------


def is_whole() -> bool:
    """Whether the schema is the one of this code, and all that belongs to it is there. Writes nothing.

    Raises CannotServe for a database that this code must not work on.
    """
    try:
        return not lacking() and not _lacks_permissions()
    except (DatabaseError, InterfaceError) as error:
        raise explain(error) from error


def lacking() -> int:
    """How many migrations are not applied yet. Raises CannotServe where others are: another program's, or a newer version's."""
    tables = connection.introspection.table_names()
    executor = MigrationExecutor(connection)
    applied = set(executor.loader.applied_migrations or ())
    unknown = sorted(applied - set(executor.loader.disk_migrations or ()))
    if (tables and "django_migrations" not in tables) or (unknown and not any(app == OURS for app, _ in applied)):
        raise CannotServe("The database is another program's.", f"{_named()} holds the tables of another program. {_NOT_OURS}")
    if unknown:
        names = ", ".join(".".join(one) for one in unknown[:3])
        raise CannotServe(
            "The database was brought up to date by a newer version.",
            f"{_named()} was brought up to date by a newer version of this service ({names}{', …' if len(unknown) > 3 else ''}). Start that "
            "version or a newer one, or restore the backup that was made before. Nothing was written to it.",
        )
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _lacks_permissions() -> bool:
    """Django makes them after the last migration: a process killed between the two leaves a schema that looks whole."""
    from django.contrib.auth.models import Permission

    expected = {
        (model._meta.app_label, model._meta.model_name, f"{action}_{model._meta.model_name}")
        for model in apps.get_models()
        for action in model._meta.default_permissions
        if model._meta.managed or model._meta.proxy
    }
    found = Permission.objects.values_list("content_type__app_label", "content_type__model", "codename")
    return not expected <= set(found)


def look() -> None:
    """Look at what may change while the service runs: cheap enough for every second. Writes nothing, and waits for nobody.

    Raises CannotServe, or what the driver raises where the database is away.
    """
    if connection.vendor == "sqlite":
        path = database_file()
        if not path.exists():  # to open it would make an empty one
            raise CannotServe(
                "The database is gone.", f"The database {path} is gone. Put it back, or stop the service and restore the last backup."
            )
    _look_at_schema()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('transaction_read_only')")
            if cursor.fetchone()[0] == "on":
                raise _read_only_server()
    elif not connection.in_atomic_block:
        if _space(path) < SPACE_NEEDED:
            raise _full(path)
        _try_to_write()


_agreed: tuple[int, int] | None = None
"""Number and last id of the migrations that were found to be the code's."""


def _look_at_schema() -> None:
    global _agreed
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), max(id) FROM django_migrations")
            found = cursor.fetchone()
    except DatabaseError:  # there is no such table, or something worse, which the next look says again
        found = None
    if found is not None and found == _agreed:
        return
    if lacking():
        needed = "They are applied at the next start, or by: manage.py migrate"
        raise CannotServe("The database lacks migrations.", f"{_named()} lacks migrations of this version. {needed}")
    _agreed = found


def _try_to_write() -> None:
    """Take SQLite's lock of writers and give it back. That another has it is the best of signs."""
    with connection.cursor() as cursor:
        wait = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(wait)}")


def _named() -> str:
    return f"The database {database_file()}" if connection.vendor == "sqlite" else f"The database {connection.settings_dict['NAME']}"


# ---- bringing it up to date -----------------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Have a database with the schema of this code: made where there is none, finished where it is half made.

    Of several that come at once one does it; the others wait for that one, look again, and go on. Raises CannotServe.
    """
    if is_whole():
        return
    with migrating():
        if not is_whole():
            migrate()


def migrate(**options: Any) -> None:
    """`manage.py migrate` for who holds the lock."""
    try:
        call_command("migrate", **{"interactive": False, "verbosity": 0, **options})
        if not options and _lacks_permissions():  # it had nothing to do, and then leaves undone what comes after
            emit_post_migrate_signal(0, interactive=False, db=connection.alias)
    except (DatabaseError, InterfaceError) as error:
        if is_trouble(error):
            raise explain(error) from error
        raise


@contextmanager
def migrating() -> Iterator[None]:
    """One at a time, on all machines that share the database. Says on standard error whom it waits for. Raises CannotServe."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            _wait(lambda: _advisory_lock(cursor), _postgres_holders)
        try:
            yield
        finally:
            connection.close()  # the lock belongs to the connection
    else:
        path = database_file()
        path = path.with_name(f"{path.name}.migrate")
        try:
            file = path.open("w")
        except OSError as error:
            raise (_full(path) if _space(path) < SPACE_NEEDED else _read_only(database_file())) from error
        with file:
            _wait(lambda: _locked(file.fileno()), lambda: holders(path))
            yield


def _wait(has_come: Callable[[], bool], who: Callable[[], list[str]]) -> None:
    began = time.monotonic()
    is_said = False
    while not has_come():
        if not is_said and time.monotonic() - began > SAID_AFTER_S:
            is_said = True
            sys.stderr.write(f"Waiting: the database is being prepared{_by(who())}.\n")
            sys.stderr.flush()
        time.sleep(0.05)


def _advisory_lock(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
    return bool(cursor.fetchone()[0])


def _postgres_holders() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT l.pid, host(a.client_addr) FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
            "WHERE l.locktype = 'advisory' AND l.granted AND l.objid = %s",
            [LOCK],
        )
        return [f"server process {pid} of {address or 'this machine'}" for pid, address in cursor.fetchall()]


# ---- SQLite's mode --------------------------------------------------------------------------------------------------------------------------


def keep_wal(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Have the file of a new SQLite connection in WAL mode, which a file keeps for good once it has it.

    Of processes that open a new file at once one makes it WAL; the others wait for it and look again. SQLite itself lets none of them wait:
    whoever changes the mode of a file that another has just opened is told at once that it is locked, whatever its busy timeout. A file that
    holds another program's tables stays as it is.

    Raises OperationalError when somebody else holds the file for longer than the connection's timeout.
    """
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        if _journal_mode(cursor) != "delete":  # WAL already, or a database in memory
            return
        deadline = time.monotonic() + connection.settings_dict["OPTIONS"].get("timeout", 5)
        # The folder, not the file: to close a file, even once, takes away the locks that SQLite has on it in this process.
        folder = os.open(Path(connection.settings_dict["NAME"]).parent, os.O_RDONLY)
        try:
            while not _locked(folder):
                if time.monotonic() > deadline:
                    raise OperationalError("database is locked")
                time.sleep(0.01)
            while _journal_mode(cursor) != "wal" and _may_be_ours(cursor):
                try:
                    cursor.execute("PRAGMA journal_mode=WAL")
                except OperationalError as error:  # somebody reads the file, if only to see its mode
                    if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        finally:
            os.close(folder)


def leave_replaced(**kwargs: Any) -> None:
    """Close this thread's connection where SQLite's file is another by now, as after a restore: what is written to the old one is lost."""
    if connection.vendor != "sqlite" or connection.connection is None or connection.in_atomic_block:
        return
    now, opened = _file_id(connection.settings_dict["NAME"]), getattr(connection, "file_id", None)
    if now and opened and now != opened:
        connection.close()


def remember_file(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Which file a new connection has open, for `leave_replaced`."""
    if connection.vendor == "sqlite":
        connection.file_id = _file_id(connection.settings_dict["NAME"])  # type: ignore[attr-defined]


def _file_id(name: Any) -> tuple[int, int] | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _may_be_ours(cursor: Any) -> bool:
    """Whether the file is empty, or has migrations of ours."""
    tables = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if "django_migrations" not in tables:
        return not tables
    return cursor.execute("SELECT 1 FROM django_migrations WHERE app = %s LIMIT 1", [OURS]).fetchone() is not None


def _journal_mode(cursor: Any) -> str:
    return str(cursor.execute("PRAGMA journal_mode").fetchone()[0])


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
