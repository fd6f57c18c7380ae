"""What the list of records costs with a million of them: each way to look at it, and the questions before an act."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from records.models import AudioRecord
from tests.rows import fill, mix

LIST = "/admin/records/audiorecord/"
LOOKS = [
    "", "p=200", "o=oldest", "state=done", "state=unfinished", "state=submitted&o=longest", "halted=yes", "reason=stuck&o=longest", "step=poll",
    "work=waiting", "work=running", "provider=speechkit", "error=nothing+like+it", "created=1", "created_from=2020-01-01&created_to=2020-01-02",
    "q={record}", "q=talk", "q=nothing+like+it",
]  # fmt: skip


def main() -> None:
    client = Client(headers={"host": "localhost"})
    for done, waiting in ((1_000, 100), (900_000, 100_000)):
        now = timezone.now()
        fill(now, done=done, waiting=waiting)
        mix(now)
        client.force_login(User.objects.get_or_create(username="operator", is_staff=True, is_superuser=True)[0])
        record = AudioRecord.objects.order_by("id")[done // 2].pk
        print(f"{done:>9,} done, {waiting:>9,} unfinished")
        assert client.get(LIST).status_code == 200
        for look in LOOKS:
            figures(look, partial(client.get, f"{LIST}?{look.format(record=record)}"))
        for act in ("resume", "halt", "restart"):
            asked = {"action": act, "index": "0", "select_across": "1", "_selected_action": "all"}
            figures(f"{act} all that are unfinished?", partial(client.post, f"{LIST}?state=unfinished", asked))


def figures(name: str, ask: Callable[[], Any]) -> None:
    began = time.perf_counter()
    with CaptureQueriesContext(connection) as queries:
        assert ask().status_code == 200
    took = time.perf_counter() - began
    slowest = max(float(query["time"]) for query in queries)
    print(f"  {name:<45} {took * 1000:6.0f} ms, {len(queries)} queries, the slowest {slowest * 1000:.0f} ms")
