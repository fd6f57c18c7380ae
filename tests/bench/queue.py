"""What acquiring costs as the archive grows, and how many steps a second the engine makes."""

from __future__ import annotations

import statistics
import time

from django.utils import timezone

from records.pipeline.acquire import acquire
from records.pipeline.dispatch import Worker
from records.pipeline.outcomes import Advance
from records.states import FINAL, State
from tests.bench.figures import spread
from tests.fakes.steps import ScriptedTable
from tests.rows import fill


def acquisitions(count: int) -> list[float]:
    table, took = ScriptedTable(), []
    for _ in range(count):
        began = time.perf_counter()
        assert acquire(table, now=timezone.now()) is not None
        took.append(time.perf_counter() - began)
    return took


def main() -> None:
    medians = {}
    for done in (1_000, 100_000, 1_000_000):
        fill(timezone.now(), done=done, waiting=1_000)
        took = acquisitions(500)
        medians[done] = statistics.median(took)
        print(f"acquire beside {done:>9,} finished: {spread(took)}")
    print(f"growth of the median from 1,000 to 1,000,000: x {medians[1_000_000] / medians[1_000]:.2f}")

    fill(timezone.now(), done=0, waiting=250)
    table = ScriptedTable()
    for state in State:
        if state != FINAL:
            table.script(state, Advance())
    worker = Worker(table=table)
    began, steps = time.perf_counter(), 0
    while worker.work_once():
        steps += 1
    print(f"no-op steps, one worker: {steps / (time.perf_counter() - began):.0f}/s ({steps} steps)")
