"""What an operator reads: spans of time, how a record stands, and what an act came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from records.models import AudioRecord, RecordEvent
from records.operations.control import Report
from records.pipeline.stages import STAGES
from records.states import FINAL, EventOutcome, HaltReason, State

PASSED_OVER = {
    "done": "done already",
    "halted_already": "halted already",
    "not_halted": "not halted",
    "unconfirmed": "unconfirmed: the provider has to be asked first",
    "not_reached": "never reached that state",
}


@dataclass(frozen=True)
class Standing:
    """How a record stands, in a sentence, and what a person can do about it (empty: nothing needs to be done)."""

    text: str
    advice: str = ""


def span(length: timedelta) -> str:
    """A length of time in its two largest units: `4 s`, `3 min 20 s`, `2 h`, `5 d 3 h`. Never negative."""
    seconds = max(0, round(length.total_seconds()))
    units = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((number for number, (_, count) in enumerate(units) if count), 3)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"


def clock(milliseconds: int) -> str:
    """A place in a recording: `0:04`, `1:02:03`."""
    seconds = milliseconds // 1000
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def next_try(record: AudioRecord, *, now: datetime) -> str:
    """When a record is worked on again, for a cell of a table."""
    if record.state == FINAL or record.halted_at:
        return "—"
    if record.acquisition_id:
        return "at work" if record.delay_time > now else "lease ran out"
    return f"in {span(record.delay_time - now)}" if record.delay_time > now else "due"


def standing(record: AudioRecord, journal: Sequence[RecordEvent], *, has_external_id: bool, now: datetime) -> Standing:
    """Why the record stands where it does. `journal`: its rows, the newest last."""
    if record.state == FINAL:
        return Standing(f"Done for {span(now - record.state_entered_at)}.")
    step = STAGES[record.state].name
    if record.halted_at:
        return _halted(record, journal, step, has_external_id=has_external_id, now=now)
    if record.acquisition_id and record.acquire_expires_at:
        if record.acquire_expires_at <= now:
            return Standing(
                f"The worker at {step} gave no sign of life; its lease ran out {span(now - record.acquire_expires_at)} ago. "
                "The next free worker takes the record over, and that counts as a failure."
            )
        return Standing(
            f"A worker is at {step}, {record.progress:.0%} done. Its lease holds for {span(record.acquire_expires_at - now)} "
            "and is renewed while the step runs."
        )
    if record.delay_time > now:
        wait = span(record.delay_time - now)
        if record.attempts:
            return Standing(f"{step} failed {_times(record.attempts)}: {record.error_text} It is tried again in {wait}.")
        if record.error_code:
            return Standing(f"Waiting: {record.error_text} {step} runs again in {wait}.")
        return Standing(
            f"Waiting for the provider: next status check in {wait}." if record.state == State.SUBMITTED else f"{step} runs in {wait}."
        )
    text = f"Due for {span(now - record.delay_time)}: {step} runs as soon as a worker is free."
    if not settings.TRANSCRIBER.pipeline.workers:
        return Standing(text, "The configuration has no workers ([pipeline] workers = 0), so records stand until it has some.")
    return Standing(text)


def _halted(record: AudioRecord, journal: Sequence[RecordEvent], step: str, *, has_external_id: bool, now: datetime) -> Standing:
    assert record.halted_at is not None
    since = f"Halted {span(now - record.halted_at)} ago"
    goes_on = f"Resume lets it go on with {step}."
    match HaltReason(record.halt_reason):
        case HaltReason.STOPPED:
            act = next((event for event in reversed(journal) if event.outcome == EventOutcome.HALTED), None)
            who = f" by {act.actor.get_username()}" if act and act.actor else ""
            return Standing(f"{since}{who}.", goes_on)
        case HaltReason.REJECTED:
            return Standing(
                f"{since}, because it was judged unfit: {record.error_text}",
                f"Mostly the sender has to send another recording. If the cause lay with us and is gone (a limit, a setting), resume. {goes_on}",
            )
        case HaltReason.EXHAUSTED:
            return Standing(
                f"{since}, because {step} kept failing: {record.error_text}",
                f"Put the cause right first (see the journal below). {goes_on}",
            )
        case HaltReason.STUCK:
            return Standing(f"{since}, because it took too long at {step}: {record.error_text}", f"{goes_on} Its time limit starts anew.")
        case HaltReason.UNCONFIRMED if has_external_id:
            return Standing(f"{since}: {record.error_text}", f"The provider's id of the operation is known by now. {goes_on}")
        case HaltReason.UNCONFIRMED:
            return Standing(
                f"{since}, because nobody knows whether the provider accepted the submission: {record.error_text}",
                "Look it up at the provider, then answer here: with the operation's id if it is there, else by submitting again, which is paid for. "
                f"The same from a shell: manage.py confirm_submission {record.pk} --external-id ID | --submit-again",
            )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def outcome_of(done: str, report: Report) -> str:
    """What an act came to: `Halted 12 records. Passed over 3: 2 done already, 1 halted already.`"""
    text = f"{done} {count_of(report.changed)}."
    if report.passed_over:
        parts = ", ".join(f"{count} {PASSED_OVER.get(reason, reason)}" for reason, count in report.passed_over.items())
        text += f" Passed over {sum(report.passed_over.values())}: {parts}."
    return text


def count_of(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"
