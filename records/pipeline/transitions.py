"""The only writer of a step's result: each function writes the record's queue columns and the journal row in one transaction, on condition
that the record still carries the acquisition under which the step worked. Whoever lost it gets LeaseLost, and nothing is written.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from records.models import AudioRecord, File, RecordEvent
from records.pipeline.acquire import Acquisition
from records.pipeline.heartbeat import LeaseLost
from records.pipeline.outcomes import Advance, Halt, Postpone
from records.pipeline.stage import Stage, Work
from records.states import FINAL, EventOutcome, HaltReason, Origin

FIRST_PAUSE = timedelta(seconds=10)
JITTER = 0.2


@dataclass(frozen=True)
class Rules:
    """The two guards: how many failures in a state, and how long in one."""

    max_attempts: int
    limits: Mapping[Work, timedelta]
    jitter: float = JITTER

    def pause(self, attempts: int) -> timedelta:
        """What is waited after that many failures: 10 s, doubled each time, give or take a fifth."""
        return FIRST_PAUSE * float(2 ** (attempts - 1)) * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - no secret

    def longest_pauses(self) -> timedelta:
        """All the pauses of a record that fails until it is exhausted."""
        return FIRST_PAUSE * float(2 ** (self.max_attempts - 1) - 1) * (1 + self.jitter)


@dataclass(frozen=True)
class Run:
    """One run of a step: what the writers below need to know of it. `record` is as it was read after the acquisition."""

    acquisition: Acquisition
    record: AudioRecord
    stage: Stage
    rules: Rules
    started_at: datetime

    def too_long(self, now: datetime, work: Work) -> bool:
        started = self.record.work_started_at
        return started is not None and now - started > self.rules.limits[work]


def advance(run: Run, outcome: Advance, *, now: datetime) -> None:
    """Move on, with all that the step produced."""
    leads_to = run.stage.leads_to
    with transaction.atomic():
        _write(
            run,
            now,
            state=leads_to,
            state_entered_at=now,
            work_started_at=None,
            attempts=0,
            progress=1 if leads_to == FINAL else 0,
            error_code="",
            error_text="",
            **_let_go(now),
            **{f"{link}_id": row.pk for link, row in outcome.links.items()},
            **outcome.facts,
        )
        for row in outcome.links.values():
            row.save(force_insert=True)
        if outcome.original:
            File.objects.filter(pk=run.record.original_file_id).update(**outcome.original, updated=now)
        _journal(run, EventOutcome.ADVANCED, f"{run.stage.state.value} → {leads_to.value}", now=now)


def postpone(run: Run, outcome: Postpone, *, now: datetime) -> None:
    """Wait at no cost, unless the state has lasted too long."""
    work = Work.FOREIGN if outcome.foreign else run.stage.work
    if not outcome.paced and run.too_long(now, work):
        _stuck(run, work, code=outcome.code, text=outcome.text, now=now)
        return
    # Our own pacing is neither time in the state nor a sign that what failed before works now.
    guards: dict[str, Any] = {"work_started_at": None} if outcome.paced else {"attempts": 0}
    _write(run, now, progress=0, error_code=outcome.code, error_text=outcome.text[:1000], **guards, **_let_go(now + outcome.delay))


def fail(run: Run, *, code: str, text: str, now: datetime) -> None:
    """Count a failure: wait and try again, or halt when one of the two guards says so."""
    attempts = run.record.attempts + 1
    if attempts >= run.rules.max_attempts:
        _exhausted(run, code=code, text=text, attempts=attempts, now=now)
    elif run.too_long(now, run.stage.work):
        _stuck(run, run.stage.work, code=code, text=text, attempts=attempts, now=now)
    else:
        with transaction.atomic():
            _write(
                run,
                now,
                attempts=attempts,
                progress=0,
                error_code=code,
                error_text=text[:1000],
                **_let_go(now + run.rules.pause(attempts)),
            )
            _journal(run, EventOutcome.FAILED, f"{code}: {text}", now=now)


def taken_over(run: Run, *, now: datetime) -> bool:
    """Journal that another's lease had run out (acquiring counted it). False if that was one failure too many, and the record halted."""
    code, text = "worker_lost", "The worker that held this record went away in the middle of its work."
    if run.record.attempts >= run.rules.max_attempts:
        _exhausted(run, code=code, text=text, attempts=run.record.attempts, now=now)
        return False
    with transaction.atomic():
        _write(run, now, error_code=code, error_text=text)
        _journal(run, EventOutcome.FAILED, f"{code}: {text}", now=now)
    return True


def halt(run: Run, outcome: Halt, *, now: datetime, **columns: Any) -> None:
    """Stand still until a person says otherwise."""
    with transaction.atomic():
        _write(
            run,
            now,
            halted_at=now,
            halt_reason=outcome.reason,
            error_code=outcome.code,
            error_text=outcome.text[:1000],
            progress=0,
            **_let_go(now),
            **columns,
        )
        _journal(run, EventOutcome.HALTED, f"{outcome.reason.value}: {outcome.code}: {outcome.text}", now=now)


def release(run: Run, *, now: datetime) -> None:
    """Give the record back unharmed: the worker was told to stop, which is nobody's failure and must not count as time in the state."""
    _write(run, now, progress=0, work_started_at=None, **_let_go(now))


def _exhausted(run: Run, *, code: str, text: str, attempts: int, now: datetime) -> None:
    tried = f"Tried {attempts} times."
    halt(run, Halt(HaltReason.EXHAUSTED, code, f"{text} {tried}"), now=now, attempts=attempts)


def _stuck(run: Run, work: Work, *, code: str, text: str, now: datetime, **columns: Any) -> None:
    limit = run.rules.limits[work]
    sentence = f"Waited for our own work longer than {limit}." if work is Work.OWN else f"Waited for the provider longer than {limit}."
    halt(run, Halt(HaltReason.STUCK, code or "time_limit", f"{sentence} {text}".strip()), now=now, **columns)


def _let_go(due: datetime) -> dict[str, Any]:
    return {"acquisition_id": None, "acquire_expires_at": None, "delay_time": due}


def _write(run: Run, now: datetime, **columns: Any) -> None:
    """The guarded write. The state belongs to the guard as well: what the step did is true of that state alone."""
    guard = AudioRecord.objects.filter(pk=run.acquisition.record_id, acquisition_id=run.acquisition.id, state=run.stage.state)
    if not guard.update(updated=now, **columns):
        raise LeaseLost


def _journal(run: Run, outcome: EventOutcome, text: str, *, now: datetime) -> None:
    RecordEvent.objects.create(
        record_id=run.acquisition.record_id,
        origin=Origin.WORKER,
        step=run.stage.name,
        outcome=outcome,
        duration_ms=max(0, round((now - run.started_at).total_seconds() * 1000)),
        outcome_text=text[:500],
        created=now,
        updated=now,
    )
