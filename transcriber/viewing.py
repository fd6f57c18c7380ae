"""What is shown as its viewer is used to it: words in the viewer's language, times as the viewer's clock has them."""

from __future__ import annotations

from collections.abc import Callable
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import timezone

COOKIE = "timezone"
"""Set by console.js to the name of the browser's time zone."""


class ViewersLanguage(LocaleMiddleware):
    """Django's, which chooses by the cookie of the language switch, else by Accept-Language. It calls every answer written in that language;
    sound is in its own, which nobody knows here, and a view that knows better, or knows of none (""), has said so.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        answer = super().process_response(request, response)
        if answer.streaming or not answer["Content-Language"]:
            del answer["Content-Language"]
        return answer


class ViewersZone:
    """Middleware: moments are shown in the zone that the browser named, else in the configured one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        zone = named(request.COOKIES.get(COOKIE, ""))
        if zone is None:
            return self.get_response(request)
        with timezone.override(zone):
            return self.get_response(request)


def named(name: str) -> ZoneInfo | None:
    """The zone of that name; None where there is none, whatever was sent."""
    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError, KeyError):
        return None
