"""The state of the database's schema, for those who start the service."""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

LOCK = zlib.crc32(b"transcriber migrations")


def missing_migrations() -> int:
    """How many are not applied yet. Raises CommandError if the database can't be reached."""
    try:
        executor = MigrationExecutor(connection)
    except OperationalError as error:
        raise CommandError(f"The database can't be reached: {str(error).strip()}") from error
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


@contextmanager
def migrating() -> Iterator[None]:
    """One at a time: of two services that are started at once on one database, one waits for the other."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        try:
            yield
        finally:
            connection.close()  # the lock belongs to the connection
    else:
        with (settings.DATA_DIR / "migrate.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def keep_wal(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Have the file of a new SQLite connection in WAL mode, which a file keeps for good once it has it.

    Of processes that open a new file at once one makes it WAL; the others wait for it and look again. SQLite itself lets none of them wait:
    whoever changes the mode of a file that another has just opened is told at once that it is locked, whatever its busy timeout.

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
            while _journal_mode(cursor) != "wal":
                try:
                    cursor.execute("PRAGMA journal_mode=WAL")
                except OperationalError:  # somebody reads the file, if only to see its mode
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        finally:
            os.close(folder)


def _journal_mode(cursor: Any) -> str:
    return str(cursor.execute("PRAGMA journal_mode").fetchone()[0])


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
