"""Guessing passwords is slowed down: how many attempts are free, and how long one waits for the next.

django-axes stands in the way of each password (its backend, middleware, table and commands); what counts is decided here. An attempt is counted
before the password is looked at and taken back when it was right, so many at once are no way around. What must wait is refused and not counted:
hammering makes nobody wait longer.

Counted are, each with a limit of its own: a name from one address, an address, and a name from everywhere. The last one would let anybody shut
out the owner of a name; so a browser in which that name has signed in before (a signed cookie) is counted by itself and waits for nobody else.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core import signing
from django.db import connection, transaction
from django.db.models import F, Max, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

logger = logging.getLogger(__name__)

FREE_PER_PAIR = 5
FREE_PER_ADDRESS = 50
FREE_PER_NAME = 50
FIRST_WAIT = timedelta(minutes=1)
"""After the last free attempt; doubled by each further one."""
LONGEST_WAIT = timedelta(hours=1)
REMEMBERED = timedelta(days=1)
"""After the last attempt that was counted."""

COOKIE = "known_browser"
COOKIE_AGE = timedelta(days=180)


class Attempts(AxesDatabaseHandler):  # type: ignore[misc]  # axes ships no types
    """The rules. A row of axes holds a name, an address and, in the place of the user agent, which known browser it was; nothing else that was
    sent."""

    def is_allowed(self, request: Any, credentials: dict[str, Any] | None = None) -> bool:
        """Count an attempt, or refuse it. Nothing is counted where there is no password."""
        name = str((credentials or {}).get("username") or "")[:255]
        if not name or (credentials or {}).get("password") is None:
            return True
        now: datetime = request.axes_attempt_time
        browser = known_browser(request, name)
        row = {"username": name, "ip_address": request.axes_ip_address, "user_agent": browser}
        with transaction.atomic():
            _one_after_the_other(row)
            wait = self._wait(row, now)
            if wait > timedelta(0):
                request.retry_after = wait
                return False
            self._count(row, now)
            if self._wait(row, now) > timedelta(0):
                logger.warning("attempts to sign in are slowed down: too many have failed for one name or from one address")
        request.attempt = row
        return True

    def _count(self, row: dict[str, Any], now: datetime) -> None:
        rows = AccessAttempt.objects.filter(**row)
        if rows.filter(attempt_time__lte=now - REMEMBERED).update(failures_since_start=1, attempt_time=now):
            return
        if rows.update(failures_since_start=F("failures_since_start") + 1, attempt_time=now):
            return
        AccessAttempt.objects.create(**row, failures_since_start=1)

    def _wait(self, row: dict[str, Any], now: datetime) -> timedelta:
        """Until the next attempt may be made; nothing or less: it may."""
        name, address, browser = Q(username=row["username"]), Q(ip_address=row["ip_address"]), Q(user_agent=row["user_agent"])
        counted = {"pair": (name & address & browser, FREE_PER_PAIR)}
        if browser_is_known := bool(row["user_agent"]):
            counted = {"browser": (name & browser, FREE_PER_PAIR)}
        else:
            counted["name"] = (name & browser, FREE_PER_NAME)
            if row["ip_address"]:
                counted["address"] = (address & browser, FREE_PER_ADDRESS)
        rows = AccessAttempt.objects.filter(name if browser_is_known or not row["ip_address"] else name | address)
        found = rows.filter(attempt_time__gt=now - REMEMBERED).aggregate(
            **{f"{what}_number": Sum("failures_since_start", filter=rows_of) for what, (rows_of, _) in counted.items()},
            **{f"{what}_last": Max("attempt_time", filter=rows_of) for what, (rows_of, _) in counted.items()},
        )
        waits = [timedelta(0)]
        for what, (_, free) in counted.items():
            if between := pause(found[f"{what}_number"] or 0, free):
                waits.append(found[f"{what}_last"] + between - now)
        return max(waits)

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
        """The middleware turns the answer into a 429 where it was for us that it failed."""
        if hasattr(request, "retry_after"):
            request.axes_locked_out = True

    def user_logged_in(self, sender: Any, request: Any, user: AbstractBaseUser, **kwargs: Any) -> None:
        row = getattr(request, "attempt", None)
        if row is None:  # by the provider, or by a program
            return
        AccessAttempt.objects.filter(**row).delete()
        request.known_browser = row["user_agent"] or secrets.token_hex(8)
        request.known_name = row["username"]

    def user_logged_out(self, sender: Any, request: Any, user: AbstractBaseUser | None, **kwargs: Any) -> None:
        pass

    def clean_expired_user_attempts(self, request: Any = None, credentials: dict[str, Any] | None = None) -> int:
        return forget(now=timezone.now())


def _one_after_the_other(row: dict[str, Any]) -> None:
    """Until the transaction ends nobody else counts what is counted together with this row. What has no row yet can't be locked by its row, so on
    PostgreSQL it is the name and the address that are; SQLite has one writer anyhow."""
    if connection.vendor != "postgresql":
        return
    if row["user_agent"]:
        counted = [f"browser {row['user_agent']}"]
    else:
        counted = [f"name {row['username']}", *([f"address {row['ip_address']}"] if row["ip_address"] else [])]
    keys = (hashlib.blake2b(what.encode(), digest_size=8).digest() for what in counted)
    with connection.cursor() as cursor:
        for key in sorted(int.from_bytes(key, signed=True) for key in keys):  # in one order, or two could wait for each other
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])


def pause(number: int, free: int) -> timedelta:
    """What must lie between the last attempt and the next, after so many."""
    if number < free:
        return timedelta(0)
    wait: timedelta = FIRST_WAIT * 2 ** min(number - free, 16)
    return min(wait, LONGEST_WAIT)


def forget(*, now: datetime) -> int:
    """Remove the rows that count no longer. Meant to be called every minute."""
    removed, _ = AccessAttempt.objects.filter(attempt_time__lte=now - REMEMBERED).delete()
    return int(removed)


# ---- where it comes from ----------------------------------------------------------------------------------------------------------------


def address(request: HttpRequest) -> str | None:
    """The visitor's address; of IPv6 the network, since each visitor has a whole one. None where everybody comes from the proxy's.

    X-Forwarded-For is believed as far as our own proxies wrote it, and not at all where none are configured.
    """
    web = settings.TRANSCRIBER.web
    if web.https and not web.proxies:
        return None
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")
    given = [request.META.get("REMOTE_ADDR", "")]
    if 0 < web.proxies <= len(forwarded):
        given.insert(0, forwarded[-web.proxies])
    return next(filter(None, map(_network, given)), None)


def _network(written: str) -> str | None:
    bare = re.sub(r"^\[(.*)\](:\d+)?$|^([^:]*):\d+$", r"\1\3", written.strip())  # some proxies add the port
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False).network_address)


def known_browser(request: HttpRequest, name: str) -> str:
    """The mark of a browser in which somebody has signed in under that name; empty: none of ours."""
    try:
        browser, known_as = signing.loads(request.COOKIES.get(COOKIE, ""), salt=COOKIE, max_age=COOKIE_AGE)
    except (signing.BadSignature, ValueError):
        return ""
    return str(browser) if known_as == name else ""


def remember_browser(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: a browser in which somebody has just given the right password gets its mark."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if browser := getattr(request, "known_browser", ""):
            response.set_cookie(
                COOKIE,
                signing.dumps([browser, getattr(request, "known_name", "")], salt=COOKIE),
                max_age=COOKIE_AGE,
                httponly=True,
                secure=bool(settings.SESSION_COOKIE_SECURE),
                samesite="Lax",
            )
        return response

    return respond


def put_off(request: Any, response: HttpResponse, credentials: Any) -> HttpResponse:
    """The login page says in words that one has to wait (`forms.LoginForm`); this tells programs."""
    response.status_code = 429
    response["Retry-After"] = str(math.ceil(request.retry_after.total_seconds()))
    return response
