"""The command line: Django's, with a database that is fit to be worked with before a command begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from django.core.management import BaseCommand, CommandError, ManagementUtility
from django.db import Error

from records.trouble import is_trouble
from transcriber import database

WITHOUT_DATABASE = frozenset(
    {
        "check",
        "collectstatic",
        "compilemessages",
        "dbshell",
        "diffsettings",
        "findstatic",
        "inspectdb",
        "makemessages",
        "makemigrations",
        "optimizemigration",
        "runserver",
        "sendtestemail",
        "shell",
        "showmigrations",
        "spectacular",
        "sqlmigrate",
        "squashmigrations",
        "startapp",
        "startproject",
        "test",
        "testserver",
    }
)
"""Commands for developers, and those that look at a database as it is: none is made or brought up to date for them."""
PREPARES_BY_ITSELF = "serve"
"""It says first that its port is taken."""


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells give it."""


def run(argv: Sequence[str]) -> None:
    try:
        _CommandLine(list(argv)).execute()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(INTERRUPTED)


class _CommandLine(ManagementUtility):
    def fetch_command(self, subcommand: str) -> BaseCommand:
        command = super().fetch_command(subcommand)
        command.execute = _with_database(subcommand, command.execute)  # type: ignore[method-assign]
        return command


def _with_database(name: str, execute: Callable[..., Any]) -> Callable[..., Any]:
    """The command between a look at the database and a sentence for what that says, in place of a traceback."""

    def executed(*arguments: Any, **options: Any) -> Any:
        try:
            if name == "migrate":
                database.is_whole()  # another's database, or a newer version's, is refused
                with database.migrating():
                    return execute(*arguments, **options)
            if name not in WITHOUT_DATABASE and name != PREPARES_BY_ITSELF:
                database.prepare()
            return execute(*arguments, **options)
        except (database.CannotServe, Error) as error:
            if isinstance(error, database.CannotServe) or is_trouble(error):
                raise CommandError(str(database.explain(error))) from error
            raise

    return executed
