"""What the page of one record shows: all of its rows, read in a fixed number of queries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Length
from django.utils.translation import gettext as _

from recognition.models import Recognition
from records.admin import words
from records.models import AudioRecord, File, RecordEvent
from records.operations import control
from records.pipeline.stages import STAGES
from records.sentences import translated
from records.states import FINAL, EventOutcome, HaltReason, Origin, State
from records.storage.serving import TYPES

JOURNAL_ROWS = 500
"""More than that many make a page that no browser likes."""
NEWEST_EVENTS = 50
"""So many rows of the journal tell the head of the page when each state was reached, and who halted."""
FIRST_UTTERANCES = 200
MORE_UTTERANCES = 2000
"""So many utterances come with the page, and so many with each request for more."""
VOICES = 6
"""Colors of voices in the style sheet."""


# ---- the head -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateShown:
    state: State
    place: str
    """`reached`, `current` or `ahead`."""
    at: datetime | None


@dataclass(frozen=True)
class Head:
    """How a record stands, and what can be done about it."""

    record: AudioRecord
    states: list[StateShown]
    standing: words.Standing
    error: str
    is_dead: bool
    can_halt: bool
    can_confirm: bool
    can_resume: bool
    marker: str
    """Changes when anything does that the rest of the page shows."""
    refresh_ms: int
    """After which to look again; 0: never."""


def head_of(record_id: uuid.UUID, *, now: datetime) -> Head:
    """In two queries, and without any content. Raises AudioRecord.DoesNotExist."""
    record = AudioRecord.objects.select_related("recognition").get(pk=record_id)
    events = RecordEvent.objects.filter(record=record).select_related("actor").order_by("-id")
    return _head(record, list(events[:NEWEST_EVENTS]), now=now)


def _head(record: AudioRecord, newest: Sequence[RecordEvent], *, now: datetime) -> Head:
    """`newest`: rows of the journal, the newest first."""
    recognition = record.recognition
    has_external_id = bool(recognition and (recognition.external_id or recognition.payload))
    is_open = record.halt_reason == HaltReason.UNCONFIRMED and not has_external_id
    is_dead = bool(record.halted_at) and control.operation_is_dead(record)
    halt = next((event for event in newest if event.outcome == EventOutcome.HALTED), None)
    seen = (record.state, record.halted_at, recognition and (recognition.pk, recognition.updated))
    return Head(
        record=record,
        states=_states(record, newest),
        standing=words.standing(
            record,
            halted_by=halt.actor.get_username() if halt and halt.actor else "",
            has_external_id=has_external_id,
            is_dead=is_dead,
            now=now,
        ),
        error=translated(record.error_text),
        is_dead=is_dead,
        can_halt=record.state != FINAL and not record.halted_at,
        can_confirm=is_open,
        can_resume=bool(record.halted_at) and not is_open,
        marker=str(uuid.uuid5(uuid.NAMESPACE_OID, repr((seen, newest[0].pk if newest else None)))),
        refresh_ms=_refresh_ms(record, now=now),
    )


def _states(record: AudioRecord, newest: Sequence[RecordEvent]) -> list[StateShown]:
    reached: dict[State, datetime] = {State.UPLOADED: record.created}
    leads_to = {stage.name: stage.leads_to for stage in STAGES}
    for event in reversed(newest):
        if event.outcome == EventOutcome.ADVANCED and event.step in leads_to:
            reached[leads_to[event.step]] = event.created
    now_at = State(record.state)
    reached[now_at] = record.state_entered_at
    places = {state: "ahead" if STAGES.is_before(now_at, state) else "reached" for state in State} | {now_at: "current"}
    return [StateShown(state, place, reached.get(state) if place != "ahead" else None) for state, place in places.items()]


def _refresh_ms(record: AudioRecord, *, now: datetime) -> int:
    if record.state == FINAL:
        return 0
    if record.halted_at:
        return 15_000  # somebody else may let it go on
    return 2_000 if record.acquisition_id or record.delay_time < now + timedelta(minutes=2) else 10_000


# ---- the transcript -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UtteranceShown:
    number: int
    start_ms: int
    end_ms: int
    at: str
    who: str
    voice: int
    text: str


@dataclass(frozen=True)
class Stretch:
    """Utterances of a transcript, and where the rest begins (None: that was the last)."""

    utterances: list[UtteranceShown]
    rest_from: int | None
    left: int


def stretch_of(contents: Mapping[str, Any], *, start: int = 0, number: int = FIRST_UTTERANCES) -> Stretch:
    """`contents`: as in `Structure.contents`."""
    utterances = contents["utterances"]
    several = len({utterance["channel"] for utterance in utterances}) > 1
    voices: dict[tuple[str | None, int], int] = {}
    for utterance in utterances:
        voices.setdefault((utterance["speaker"], utterance["channel"]), len(voices) % VOICES)
    end = start + number
    shown = [
        UtteranceShown(
            number=start + offset,
            start_ms=utterance["start_ms"],
            end_ms=utterance["end_ms"],
            at=words.clock(utterance["start_ms"]),
            who=utterance["speaker"] or (_("channel %(number)d") % {"number": utterance["channel"] + 1} if several else ""),
            voice=voices[utterance["speaker"], utterance["channel"]],
            text=utterance["text"],
        )
        for offset, utterance in enumerate(utterances[start:end])
    ]
    left = max(0, len(utterances) - end)
    return Stretch(shown, end if left else None, left)


# ---- the other rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileShown:
    kind: str
    name: str
    row: File
    duration: str
    is_playable: bool


@dataclass(frozen=True)
class RecognitionShown:
    row: Recognition
    options: list[tuple[str, str]]
    is_current: bool
    took: str


@dataclass(frozen=True)
class EventShown:
    row: RecordEvent
    outcome: str
    step: str
    text: str
    origin: str
    took: str
    after: str
    """Since the row before it."""


def page_of(record_id: uuid.UUID, *, now: datetime) -> dict[str, Any]:
    """The context of the page's template, except for the form."""
    record = (
        AudioRecord.objects.select_related("owner", "original_file", "normalized_file", "structure", "literary_text", "recognition")
        .annotate(transcript_length=Length("transcript_text__contents"))
        .get(pk=record_id)
    )
    events = list(RecordEvent.objects.filter(record=record).select_related("actor").order_by("-id")[: JOURNAL_ROWS + 1])
    recognitions = Recognition.objects.filter(record=record).order_by("-id")
    files = _files(record)
    return {
        "record": record,
        "head": _head(record, events[:NEWEST_EVENTS], now=now),
        "files": files,
        "sounds": [file for file in reversed(files) if file.is_playable],
        "structure": record.structure,
        "stretch": stretch_of(record.structure.contents) if record.structure else None,
        "recognitions": [_recognition(row, record) for row in recognitions],
        "journal": _journal(record, events),
        "journal_is_cut": len(events) > JOURNAL_ROWS,
        "topic_names": sorted(topic.name for topic in record.topics.all()),
    }


def _files(record: AudioRecord) -> list[FileShown]:
    rows = (("original", _("Original"), record.original_file), ("normalized", _("Normalized copy"), record.normalized_file))
    return [
        FileShown(kind, name, row, words.clock(row.duration_ms) if row.duration_ms is not None else "", row.format in TYPES)
        for kind, name, row in rows
        if row
    ]


def _recognition(row: Recognition, record: AudioRecord) -> RecognitionShown:
    return RecognitionShown(
        row,
        options=[(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in row.options.items()],
        is_current=row.pk == record.recognition_id,
        took=words.took(row.finished_at - row.started_at) if row.started_at and row.finished_at else "",
    )


def _journal(record: AudioRecord, newest: Sequence[RecordEvent]) -> list[EventShown]:
    """The newest first, as many as are shown; one more may come along to tell since when."""
    before = [*(event.created for event in newest[1:]), record.created]
    return [
        EventShown(
            row,
            outcome=str(EventOutcome(row.outcome).label),
            step=words.step_name(row.step),
            text=words.journal_text(row.outcome, row.outcome_text),
            origin=str(Origin(row.origin).label),
            took=words.took(timedelta(milliseconds=row.duration_ms)) if row.duration_ms is not None else "",
            after=words.span(row.created - earlier),
        )
        for row, earlier in zip(newest[:JOURNAL_ROWS], before, strict=False)
    ]
