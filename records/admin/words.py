"""What an operator reads: spans of time, steps, and how a record stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext_lazy

from recognition.contract import OPERATION_FORBIDDEN
from records.models import AudioRecord
from records.pipeline.stages import STAGES
from records.sentences import translated
from records.states import FINAL, EventOutcome, HaltReason, State

STEPS = {
    "normalize": pgettext_lazy("step", "normalize"),
    "submit": pgettext_lazy("step", "submit"),
    "poll": pgettext_lazy("step", "poll"),
    "finish": pgettext_lazy("step", "finish"),
}


def step_name(step: str) -> str:
    """What a step is called among people; a step that is known no more keeps the name it was journaled with."""
    return str(STEPS.get(step, step))


@dataclass(frozen=True)
class Standing:
    """How a record stands, in a sentence, and what a person can do about it (empty: nothing needs to be done)."""

    text: str
    advice: str = ""


def span(length: timedelta) -> str:
    """A length of time in its two largest units: `4 s`, `3 min 20 s`, `2 h`, `5 d 3 h`. Never negative."""
    seconds = max(0, round(length.total_seconds()))
    units = [
        (seconds // 86400, _("%(count)d d")),
        (seconds // 3600 % 24, _("%(count)d h")),
        (seconds // 60 % 60, _("%(count)d min")),
        (seconds % 60, _("%(count)d s")),
    ]
    first = next((number for number, (count, _unit) in enumerate(units) if count), 3)
    return " ".join(unit % {"count": count} for count, unit in units[first : first + 2] if count) or units[3][1] % {"count": 0}


def took(length: timedelta) -> str:
    """How long something took: below ten seconds with its fraction."""
    seconds = length.total_seconds()
    return span(length) if seconds >= 10 else _("%(seconds)s s") % {"seconds": number_format(max(0.0, seconds), 2)}


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
        return _("at work") if record.delay_time > now else _("lease ran out")
    return _("in %(time)s") % {"time": span(record.delay_time - now)} if record.delay_time > now else _("due")


def standing(record: AudioRecord, *, halted_by: str = "", has_external_id: bool, is_dead: bool = False, now: datetime) -> Standing:
    """Why the record stands where it does. `halted_by`: the name of the person who halted it; `is_dead`: as `control.operation_is_dead` says."""
    if record.state == FINAL:
        times = {"time": span(now - record.state_entered_at), "took": span(record.state_entered_at - record.created)}
        return Standing(_("Done %(time)s ago, %(took)s after it came in.") % times)
    step = step_name(STAGES[record.state].name)
    if record.halted_at:
        return _halted(record, step, halted_by=halted_by, has_external_id=has_external_id, is_dead=is_dead, now=now)
    if record.acquisition_id and record.acquire_expires_at:
        return _at_work(record, step, expires_at=record.acquire_expires_at, now=now)
    if record.delay_time > now:
        return Standing(_waits(record, step, wait=span(record.delay_time - now)))
    text = _("Due for %(time)s: the step “%(step)s” runs as soon as a worker is free.") % {
        "time": span(now - record.delay_time),
        "step": step,
    }
    if not settings.TRANSCRIBER.pipeline.workers:
        return Standing(text, _("The configuration has no workers ([pipeline] workers = 0), so records stand until it has some."))
    return Standing(text)


def _at_work(record: AudioRecord, step: str, *, expires_at: datetime, now: datetime) -> Standing:
    if expires_at <= now:
        return Standing(
            _(
                "The worker at the step “%(step)s” gave no sign of life; its lease ran out %(time)s ago. "
                "The next free worker takes the record over, and that counts as a failure."
            )
            % {"step": step, "time": span(now - expires_at)}
        )
    return Standing(
        _("A worker is at the step “%(step)s”, %(percent)d%% done. Its lease holds for %(time)s and is renewed while the step runs.")
        % {"step": step, "percent": round(record.progress * 100), "time": span(expires_at - now)}
    )


def _waits(record: AudioRecord, step: str, *, wait: str) -> str:
    about = {"step": step, "error": translated(record.error_text), "time": wait, "count": record.attempts}
    if record.attempts:
        return (
            ngettext(
                "The step “%(step)s” failed once: %(error)s It is tried again in %(time)s.",
                "The step “%(step)s” failed %(count)d times: %(error)s It is tried again in %(time)s.",
                record.attempts,
            )
            % about
        )
    if record.error_code:
        return _("Waiting: %(error)s The step “%(step)s” runs again in %(time)s.") % about
    if record.state == State.SUBMITTED:
        return _("Waiting for the provider: next status check in %(time)s.") % about
    return _("The step “%(step)s” runs in %(time)s.") % about


def _halted(record: AudioRecord, step: str, *, halted_by: str, has_external_id: bool, is_dead: bool, now: datetime) -> Standing:
    assert record.halted_at is not None
    about = {
        "time": span(now - record.halted_at),
        "error": translated(record.error_text),
        "step": step,
        "who": halted_by,
        "state": State.NORMALIZED.label,
        "record": record.pk,
    }
    goes_on = _("Resume lets it go on with the step “%(step)s”.")
    match HaltReason(record.halt_reason):
        case HaltReason.STOPPED:
            text = _("Halted %(time)s ago by %(who)s.") if halted_by else _("Halted %(time)s ago.")
            advice = goes_on
        case HaltReason.REJECTED | HaltReason.EXHAUSTED if is_dead:
            text = _("Halted %(time)s ago, because the operation came to nothing at the provider: %(error)s")
            advice = _(
                "The operation is dead: resuming would only ask the provider for it again. "
                "Restart from “%(state)s” for a new recognition, which may have to be paid for."
            )
        case HaltReason.REJECTED if record.error_code == OPERATION_FORBIDDEN:
            text = _("Halted %(time)s ago: %(error)s")
            advice = _("Put the cause right first (the journal tells of it). Resume then lets it go on with the step “%(step)s”.")
        case HaltReason.REJECTED:
            text = _("Halted %(time)s ago, because it was judged unfit: %(error)s")
            advice = _(
                "Mostly the sender has to send another recording. If the cause lay with us and is gone (a limit, a setting), resume: "
                "it goes on with the step “%(step)s”."
            )
        case HaltReason.EXHAUSTED:
            text = _("Halted %(time)s ago, because the step “%(step)s” kept failing: %(error)s")
            advice = _("Put the cause right first (the journal tells of it). Resume then lets it go on with the step “%(step)s”.")
        case HaltReason.STUCK:
            text = _("Halted %(time)s ago, because the step “%(step)s” took too long: %(error)s")
            advice = _("Resume lets it go on with the step “%(step)s”, and its time limit starts anew.")
        case HaltReason.UNCONFIRMED if has_external_id:
            text = _("Halted %(time)s ago: %(error)s")
            advice = _("The provider's id of the operation is known by now. Resume lets it go on with the step “%(step)s”.")
        case HaltReason.UNCONFIRMED:
            text = _("Halted %(time)s ago, because nobody knows whether the provider accepted the submission: %(error)s")
            advice = _(
                "Look it up at the provider, then answer here: with the operation's id if it is there, else by submitting again, which is "
                "paid for. The same from a shell: manage.py confirm_submission %(record)s --external-id ID | --submit-again"
            )
    return Standing(text % about, advice % about)


def journal_text(outcome: str, text: str) -> str:
    """What a row of the journal says, with the names of states as they are called among people."""
    if outcome in (EventOutcome.ADVANCED, EventOutcome.RESTARTED):
        was, arrow, state = text.partition(" → ")
        if arrow and was in State.values and state in State.values:
            return f"{State(was).label} → {State(state).label}"
    at, _space, state = text.partition(" ")
    if at == "at" and state in State.values:
        return _("at “%(state)s”") % {"state": State(state).label}
    return translated(text)
