"""What the admin's home costs with a million records and a million rows of the journal."""

from __future__ import annotations

import statistics
import time

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.bench.figures import spread
from tests.rows import fill, mix, write_journal


def main() -> None:
    client = Client(headers={"host": "localhost"})
    for done, waiting, old in ((1_000, 100, 4_000), (900_000, 100_000, 1_000_000)):
        now = timezone.now()
        fill(now, done=done, waiting=waiting)
        mix(now)
        write_journal(now, old=old, fresh=2_000)
        client.force_login(User.objects.get_or_create(username="operator", is_staff=True, is_superuser=True)[0])
        print(f"{done:>9,} done, {waiting:>9,} unfinished, {old:>9,} old rows of the journal")
        for period in ("1", "7", "30"):
            took = []
            for _ in range(5):
                began = time.perf_counter()
                with CaptureQueriesContext(connection) as queries:
                    assert client.get("/admin/", {"period": period}).status_code == 200
                took.append(time.perf_counter() - began)
            slowest = max(queries, key=lambda query: float(query["time"]))
            print(
                f"  {period:>2} days: {spread(took)}, median {statistics.median(took):.2f} s, {len(queries)} queries, the slowest {slowest['time']} s"
            )
