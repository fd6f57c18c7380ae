"""The state of the database's schema, for those who start the service."""

from __future__ import annotations

import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management import CommandError
from django.db import OperationalError, connection
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
