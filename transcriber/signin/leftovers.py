"""Rows about signing in that nobody needs any more."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.sessions.models import Session
from django.http import HttpRequest

from transcriber.signin import attempts


def clear(*, now: datetime) -> None:
    """Remove attempts that count no longer, and sessions that have run out. Meant to be called every minute."""
    attempts.forget(now=now)
    Session.objects.filter(expire_date__lte=now).delete()


def keep(request: HttpRequest, **kwargs: Any) -> None:
    """Upon `user_logged_in`: a session in which a stranger had set out for the provider lasts as long as any other, however they came in."""
    request.session.set_expiry(None)
