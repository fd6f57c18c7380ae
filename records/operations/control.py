"""Halting, resuming and restarting, for one record or for ten thousand: one UPDATE and one INSERT of journal rows in one transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.files.storage import default_storage
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from recognition.contract import ANSWER_GONE, OPERATION_DEAD
from recognition.models import Recognition
from records.models import AudioRecord, File, Structure, Text
from records.models.base import new_id
from records.pipeline.stages import STAGES
from records.states import FINAL, EventOutcome, HaltReason, Origin, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True)
class By:
    """Who acts, and through what."""

    origin: Origin
    actor: User | None = None


@dataclass
class Report:
    """How many records an act changed, and how many it passed over, by reason (`not_halted`, `unconfirmed`, …)."""

    changed: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)


def foresee(records: QuerySet[AudioRecord], passing: dict[str, Q]) -> Report:
    """What an act that passes over those (`passed_over_by_resume` and the like) would come to now. One query, which writes nothing."""
    counts: dict[str, Count] = {}
    left = Q()
    for reason, condition in passing.items():
        counts[reason] = Count("pk", filter=left & condition)
        left &= ~condition
    found = records.order_by().aggregate(changed=Count("pk", filter=left), **counts)
    return Report(changed=found.pop("changed"), passed_over=_counts(found))


def passed_over_by_resume(*, dead_too: bool) -> dict[str, Q]:
    """Conditions by reason; a record counts for the first that is true of it."""
    known = Exists(Recognition.objects.filter(pk=OuterRef("recognition_id")).exclude(external_id="", payload=""))
    passing = {"not_halted": Q(halted_at__isnull=True), "unconfirmed": Q(halt_reason=HaltReason.UNCONFIRMED) & ~Q(known)}
    return passing if dead_too else {**passing, "dead": DEAD_OPERATION}


def passed_over_by_halt() -> dict[str, Q]:
    return {"done": Q(state=FINAL), "halted_already": Q(halted_at__isnull=False)}


def resume(records: QuerySet[AudioRecord], *, by: By, now: datetime, dead_too: bool = True) -> Report:
    """Let halted records go on from where they stood, with the clock of the state started again.

    Passes over what is not halted, and what is `unconfirmed` without the provider's id: that needs an answer, not a click. Unless `dead_too`,
    also those whose operation is dead (DEAD_OPERATION).
    """
    return _act(
        records,
        EventOutcome.RESUMED,
        passing=passed_over_by_resume(dead_too=dead_too),
        columns=_fresh(now) | {"state_entered_at": now},
        by=by,
        now=now,
    )


def halt(records: QuerySet[AudioRecord], *, by: By, now: datetime) -> Report:
    """Make unfinished records stand still; whoever works on one loses it."""
    return _act(
        records,
        EventOutcome.HALTED,
        passing=passed_over_by_halt(),
        columns={
            "halted_at": now,
            "halt_reason": HaltReason.STOPPED,
            "error_code": "",
            "error_text": "",
            "acquisition_id": None,
            "acquire_expires_at": None,
            "progress": 0,
        },
        by=by,
        now=now,
    )


DEAD_OPERATION = Q(
    Q(error_code__in=sorted(ANSWER_GONE)) | Exists(Recognition.objects.filter(pk=OuterRef("recognition_id"), payload="")),
    state=State.SUBMITTED,
    halt_reason__in=[HaltReason.REJECTED, HaltReason.EXHAUSTED],
    error_code__in=sorted(OPERATION_DEAD),
    halted_at__isnull=False,
)
"""Halted records whose operation ended at the provider without an answer, or whose answer is gone there: resuming would only ask it again. What
helps is a restart from `normalized`, which is a new recognition. An answer that was kept counts for nothing where the provider was asked all the
same, which is done when its file is lost. `operation_is_dead` says the same of one record."""


def operation_is_dead(record: AudioRecord) -> bool:
    """Whether resuming this record would only ask for an answer that will never come (see DEAD_OPERATION). Reads `record.recognition`."""
    if record.state != State.SUBMITTED or record.halt_reason not in (HaltReason.REJECTED, HaltReason.EXHAUSTED):
        return False
    is_kept = record.recognition is None or bool(record.recognition.payload)
    return record.error_code in (ANSWER_GONE if is_kept else OPERATION_DEAD)


class NotUnconfirmed(Exception):
    """The record does not stand for want of an answer."""


class AnswerKnown(Exception):
    """The operation's id, or its answer, is known by now: the record is to be resumed, and nothing to be paid again."""


class IdKnownElsewhere(Exception):
    """That operation belongs to another recognition already."""


def confirm_submission(record: AudioRecord, *, external_id: str | None, by: By, now: datetime) -> None:
    """Answer for a paid submission whose outcome was unknown, and let the record go on.

    With the operation's id it is polled; with None it is submitted again, as a new recognition that is paid for (the old one stays as history).
    Raises NotUnconfirmed, AnswerKnown, IdKnownElsewhere.
    """
    with transaction.atomic():
        held = AudioRecord.objects.select_for_update(of=("self",)).filter(pk=record.pk, halt_reason=HaltReason.UNCONFIRMED)
        current = held.first()
        if current is None or current.recognition_id is None:
            raise NotUnconfirmed
        attempt = Recognition.objects.select_for_update().get(pk=current.recognition_id)
        if attempt.external_id or attempt.payload:
            raise AnswerKnown
        if external_id is None:
            columns, text = {"recognition_id": None}, "To be submitted again, as a new paid recognition."
        else:
            columns, text = {}, "The operation's id was entered."
            try:
                with transaction.atomic():
                    Recognition.objects.filter(pk=current.recognition_id, external_id="").update(external_id=external_id, updated=now)
            except IntegrityError as error:
                raise IdKnownElsewhere from error
        held.update(**_fresh(now), **columns, state_entered_at=now)
        _journal([(current.pk, STAGES[current.state].name, text)], EventOutcome.RESUMED, by=by, now=now)


def restart(records: QuerySet[AudioRecord], state: State, *, by: By, now: datetime) -> Report:
    """Move records back to `state`, and clear what the steps from there on produced. Recognitions stay as history.

    From before `submitted` the next recognition is a new one, which may cost money: whoever calls has asked. Passes over records that never
    reached the state.
    """
    if state == FINAL:
        raise ValueError("nothing starts from the final state")
    order = list(State)
    links = STAGES.produced_from(state)
    with transaction.atomic():
        ids = _lock(records)
        chosen = AudioRecord.objects.filter(_among("id", ids))
        eligible = Q(state__in=[reached.value for reached in order[order.index(state) :]])
        rows = list(chosen.filter(eligible).values_list("id", "state", *(f"{link}_id" for link in links)))
        moved = {row[0]: row[1] for row in rows}
        produced = {link: [row[2 + number] for row in rows if row[2 + number]] for number, link in enumerate(links)}
        AudioRecord.objects.filter(_among("id", list(moved))).update(
            state=state, state_entered_at=now, **_fresh(now), **{f"{link}_id": None for link in links}
        )
        _journal(((pk, STAGES[state].name, f"{was} → {state.value}") for pk, was in moved.items()), EventOutcome.RESTARTED, by=by, now=now)
        _remove(produced)
    return Report(changed=len(moved), passed_over=_counts({"not_reached": len(ids) - len(moved)}))


REMOVED: dict[str, Any] = {"normalized_file": File, "structure": Structure, "transcript_text": Text, "literary_text": Text}


def _remove(produced: dict[str, list[uuid.UUID]]) -> None:
    """Delete the rows that links led to; the bytes of files after the commit."""
    for link, ids in produced.items():
        if link not in REMOVED or not ids:
            continue
        rows = REMOVED[link].objects.filter(_among("id", ids))
        if link == "normalized_file":
            locations = list(rows.values_list("location", flat=True))
            transaction.on_commit(partial(_delete_files, locations))
        rows._raw_delete(rows.db)


def _delete_files(locations: Iterable[str]) -> None:
    for location in locations:
        default_storage.delete(location)


def _fresh(now: datetime) -> dict[str, Any]:
    """The queue columns of a record that starts anew in its state."""
    return {
        "halted_at": None,
        "halt_reason": "",
        "error_code": "",
        "error_text": "",
        "attempts": 0,
        "progress": 0,
        "acquisition_id": None,
        "acquire_expires_at": None,
        "delay_time": now,
        "work_started_at": None,
        "updated": now,
    }


def _act(
    records: QuerySet[AudioRecord], outcome: EventOutcome, *, passing: dict[str, Q], columns: dict[str, Any], by: By, now: datetime
) -> Report:
    with transaction.atomic():
        ids = _lock(records)
        left, passed_over = ids, {}
        for reason, condition in passing.items():
            passed = set(AudioRecord.objects.filter(_among("id", left)).filter(condition).values_list("id", flat=True))
            passed_over[reason] = len(passed)
            left = [pk for pk in left if pk not in passed]
        chosen = AudioRecord.objects.filter(_among("id", left))
        states = dict(chosen.values_list("id", "state"))
        chosen.update(**{**columns, "updated": now})
        _journal(((pk, STAGES[state].name, f"at {state}") for pk, state in states.items()), outcome, by=by, now=now)
    return Report(changed=len(left), passed_over=_counts(passed_over))


def _lock(records: QuerySet[AudioRecord]) -> list[uuid.UUID]:
    """The ids, in order and held until the transaction ends (SQLite's immediate transaction holds everything)."""
    return list(
        AudioRecord.objects.filter(pk__in=records.order_by().values("pk")).select_for_update().order_by("id").values_list("id", flat=True)
    )


def _counts(passed_over: dict[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in passed_over.items() if count}


def _among(column: str, ids: Sequence[uuid.UUID]) -> Q:
    """Any number of ids as one parameter, so that ten thousand are one statement on every database."""
    if connection.vendor == "postgresql":
        return Q(**{f"{column}__in": RawSQL("SELECT unnest(%s::uuid[])", [list(ids)])})
    return Q(**{f"{column}__in": RawSQL("SELECT value FROM json_each(%s)", [json.dumps([_plain(pk) for pk in ids])])})


def _journal(rows: Iterable[tuple[uuid.UUID, str, str]], outcome: EventOutcome, *, by: By, now: datetime) -> None:
    """Insert a row of the journal for each (record, step, text), all in one statement."""
    events = [{"id": _plain(new_id()), "record": _plain(record_id), "step": step, "text": text} for record_id, step, text in rows]
    if not events:
        return
    event, source = ("e ->> '{}'", "jsonb_array_elements(%s::jsonb) AS e")
    if connection.vendor == "sqlite":
        event, source = ("json_extract(value, '$.{}')", "json_each(%s)")
    cast = "::uuid" if connection.vendor == "postgresql" else ""
    moment = connection.ops.adapt_datetimefield_value(now)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO record_events (id, record_id, step, outcome_text, origin, actor_id, outcome, created, updated) "  # noqa: S608 - names alone
            f"SELECT ({event.format('id')}){cast}, ({event.format('record')}){cast}, {event.format('step')}, {event.format('text')}, "
            f"%s, %s, %s, %s, %s FROM {source}",
            [by.origin.value, by.actor.pk if by.actor else None, outcome.value, moment, moment, json.dumps(events)],
        )


def _plain(pk: uuid.UUID) -> str:
    """A UUID as the database's column holds it."""
    return str(pk) if connection.vendor == "postgresql" else pk.hex
