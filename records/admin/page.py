"""What the page of one record shows: all of its rows, read in a fixed number of queries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from recognition.models import Recognition
from records.admin import words
from records.models import AudioRecord, File, RecordEvent, Structure
from records.states import FINAL, HaltReason, State

JOURNAL_ROWS = 500
UTTERANCES = 2000
"""More than that many rows make a page that no browser likes; the rest is in the downloads."""


@dataclass(frozen=True)
class StateShown:
    name: str
    place: str
    """`reached`, `current` or `ahead`."""


@dataclass(frozen=True)
class FileShown:
    kind: str
    row: File
    duration: str


@dataclass(frozen=True)
class RecognitionShown:
    row: Recognition
    options: str
    is_current: bool
    took: str


@dataclass(frozen=True)
class EventShown:
    row: RecordEvent
    took: str
    who: str


@dataclass(frozen=True)
class UtteranceShown:
    start: str
    end: str
    who: str
    text: str


def page_of(record_id: uuid.UUID, *, now: datetime) -> dict[str, Any]:
    """The context of the page's template, except for what the form shows."""
    record = AudioRecord.objects.select_related(
        "original_file", "normalized_file", "structure", "transcript_text", "literary_text", "recognition"
    ).get(pk=record_id)
    newest = list(RecordEvent.objects.filter(record=record).select_related("actor").order_by("-id")[: JOURNAL_ROWS + 1])
    journal = newest[:JOURNAL_ROWS][::-1]
    recognitions = list(Recognition.objects.filter(record=record).order_by("id"))
    has_external_id = bool(record.recognition and (record.recognition.external_id or record.recognition.payload))
    utterances = record.structure.contents["utterances"] if record.structure else []
    return {
        "record": record,
        "states": _states(record),
        "standing": words.standing(record, journal, has_external_id=has_external_id, now=now),
        "can_halt": record.state != FINAL and not record.halted_at,
        "can_confirm": record.halt_reason == HaltReason.UNCONFIRMED and not has_external_id,
        "can_resume": bool(record.halted_at) and (record.halt_reason != HaltReason.UNCONFIRMED or has_external_id),
        "files": _files(record),
        "transcript": record.transcript_text,
        "literary": record.literary_text,
        "structure": record.structure,
        "utterances": _utterances(record.structure),
        "utterances_left_out": max(0, len(utterances) - UTTERANCES),
        "recognitions": [_recognition(row, record) for row in recognitions],
        "journal": _journal(journal),
        "journal_is_cut": len(newest) > JOURNAL_ROWS,
    }


def _states(record: AudioRecord) -> list[StateShown]:
    order = list(State)
    at = order.index(State(record.state))
    return [StateShown(state.value, "current" if n == at else "reached" if n < at else "ahead") for n, state in enumerate(order)]


def _files(record: AudioRecord) -> list[FileShown]:
    rows = {"original": record.original_file, "normalized": record.normalized_file}
    return [
        FileShown(kind, row, words.clock(row.duration_ms) if row.duration_ms is not None else "not known yet")
        for kind, row in rows.items()
        if row
    ]


def _recognition(row: Recognition, record: AudioRecord) -> RecognitionShown:
    return RecognitionShown(
        row,
        options=json.dumps(row.options, ensure_ascii=False, indent=1),
        is_current=row.pk == record.recognition_id,
        took=words.span(row.finished_at - row.started_at) if row.started_at and row.finished_at else "",
    )


def _journal(rows: Sequence[RecordEvent]) -> list[EventShown]:
    return [
        EventShown(
            row,
            took=_took(row.duration_ms),
            who=f"{row.actor.get_username()} ({row.origin})" if row.actor else row.origin,
        )
        for row in rows
    ]


def _took(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return words.span(timedelta(milliseconds=milliseconds)) if milliseconds >= 10_000 else f"{milliseconds / 1000:.2f} s"


def _utterances(structure: Structure | None) -> list[UtteranceShown]:
    if not structure:
        return []
    several = len({utterance["channel"] for utterance in structure.contents["utterances"]}) > 1
    return [
        UtteranceShown(
            start=words.clock(utterance["start_ms"]),
            end=words.clock(utterance["end_ms"]),
            who=utterance["speaker"] or (f"channel {utterance['channel']}" if several else ""),
            text=utterance["text"],
        )
        for utterance in structure.contents["utterances"][:UTTERANCES]
    ]
