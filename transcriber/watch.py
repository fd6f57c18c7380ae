"""The look at the database while the service runs: what can't be kept is not taken in, and nothing is worked on, until it can serve again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connection, connections
from django.http import HttpRequest, HttpResponse

from records.api.errors import unavailable
from transcriber import database

logger = logging.getLogger(__name__)

EVERY_S = 1.0

_problem = ""
"""What keeps this web process from serving; empty: nothing."""


def begin(tell: Callable[[str], None]) -> None:
    """Look from here on, in a thread of its own, and tell each time what is wrong ("" for nothing). For a process that never forks."""
    threading.Thread(target=_look_on_and_on, args=[tell], name="database watch", daemon=True).start()


def _look_on_and_on(tell: Callable[[str], None]) -> None:
    never = threading.Event()
    said = ""
    while True:
        problem = look()
        if problem and not said:
            logger.error("nothing is taken in and nothing is worked on: %s", problem)
        elif said and not problem:
            logger.info("the database serves again")
        said = problem
        tell(problem)
        never.wait(EVERY_S)


def look() -> str:
    """What keeps the database from being worked with, as a sentence with its remedy; empty: nothing."""
    try:
        database.look()
    except Exception as error:
        connections.close_all()
        return str(database.explain(error))
    if connection.vendor == "sqlite":
        connection.close()  # the next look opens the file that is there by then
    return ""


def remember(problem: str) -> None:
    """Have the web process of this thread serve, or say that it can't."""
    global _problem
    _problem = problem


class Watched:
    """Middleware: 503 for everything but the two addresses that tell of the service's health, as long as the database can't serve."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _problem and request.path not in ("/healthz", "/readyz"):
            return unavailable(request)
        return self.get_response(request)
