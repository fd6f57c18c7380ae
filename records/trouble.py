"""Which errors tell of the state of the database, rather than of a mistake in what it was asked."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, InternalError, OperationalError


def is_trouble(error: BaseException | None) -> bool:
    """Whether the database is away, locked, full, read only or damaged. SQLite's damage comes as a bare DatabaseError, a server's as internal."""
    return isinstance(error, OperationalError | InterfaceError | InternalError) or type(error) is DatabaseError
