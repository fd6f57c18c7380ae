"""Halting, resuming and restarting ten thousand records at once."""

from __future__ import annotations

import time

from django.utils import timezone

from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.states import Origin, State
from tests.rows import fill


def main() -> None:
    for count in (100, 10_000):
        owner = fill(timezone.now(), done=1_000, waiting=count)
        by = By(Origin.ADMIN, owner)
        for act in ("halt", "resume", "restart"):
            records = AudioRecord.objects.exclude(state=State.DONE)
            began = time.perf_counter()
            arguments = (records, State.UPLOADED) if act == "restart" else (records,)
            report = getattr(control, act)(*arguments, by=by, now=timezone.now())
            assert report.changed == count
            print(f"{act:<7} {count:>6,} records: {time.perf_counter() - began:6.2f} s")
