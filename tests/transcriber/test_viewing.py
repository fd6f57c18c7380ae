"""Moments on the clock of whoever looks: the browser names its zone in a cookie, and whatever stands there does no harm."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.utils import timezone

from tests.factories import make_record, make_user
from transcriber.viewing import COOKIE, ViewersZone, named

NO_ZONES = (
    "",
    "Mars/Olympus_Mons",
    "../../../etc/passwd",
    "/etc/passwd",
    "Europe",
    "zone.tab",
    "tzdata.zi",
    "Asia/Tokyo\0",
    "Asia/Tokyo;x=y",
    "x" * 4000,
    "%41sia/Tokyo",
    "é",
    "\udcff",
    "<script>alert(1)</script>",
)


@pytest.mark.parametrize("name", NO_ZONES)
@pytest.mark.no_database
def test_what_is_no_zone_is_none(name):
    assert named(name) is None


@pytest.mark.no_database
def test_a_zone_holds_for_its_request_alone():
    seen = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(timezone.get_current_timezone_name())
        return HttpResponse()

    middleware = ViewersZone(view)
    for name in ("Asia/Tokyo", "no zone", "America/New_York"):
        request = HttpRequest()
        request.COOKIES[COOKIE] = name
        middleware(request)
    middleware(HttpRequest())

    assert seen == ["Asia/Tokyo", "UTC", "America/New_York", "UTC"]
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("cookie", "shown"),
    [
        ("Asia/Tokyo", "2026-01-02 12:04"),
        ("America/New_York", "2026-01-01 22:04"),
        ("Asia/Kathmandu", "2026-01-02 08:49"),
        ("Mars/Olympus_Mons", "2026-01-02 03:04"),
        ("../../../etc/passwd", "2026-01-02 03:04"),
        (None, "2026-01-02 03:04"),
    ],
)
def test_the_admin_shows_the_viewers_time(cookie, shown, now):
    assert now == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    client = Client()
    client.force_login(make_user("olga", is_staff=True, is_superuser=True))
    if cookie:
        client.cookies[COOKIE] = cookie
    record = make_record(now=now)

    listed = client.get("/admin/records/audiorecord/").content.decode()
    page = client.get(f"/admin/records/audiorecord/{record.pk}/change/").content.decode()

    assert shown in listed
    assert f"{shown}:05" in page
    zone = ZoneInfo(cookie) if cookie in ("Asia/Tokyo", "America/New_York", "Asia/Kathmandu") else UTC
    assert f'datetime="{now.astimezone(zone).isoformat()}"' in listed, "for programs, the same moment"
