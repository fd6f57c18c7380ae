"""Rows about signing in that nobody needs any more."""

from __future__ import annotations

from datetime import datetime

from django.contrib.sessions.models import Session

from transcriber.signin import attempts


def clear(*, now: datetime) -> None:
    """Remove attempts that count no longer, and sessions that have run out. Meant to be called every minute."""
    attempts.forget(now=now)
    Session.objects.filter(expire_date__lte=now).delete()
