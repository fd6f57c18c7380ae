"""The admin's home: what stands, what is at work, and where it hurts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def home(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Called by unfold with the context of the index page; gives the context that its template reads."""
    return context
