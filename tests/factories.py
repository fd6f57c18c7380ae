"""Rows for tests, as the product itself would have left them."""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone

from recognition.models import Recognition
from records.models import AudioRecord, File, Structure, Text, TextKind
from records.states import HaltReason, State
from tests.audio import silence, tone, write_wav


def make_user(name: str | None = None, **more: Any) -> User:
    return User.objects.create_user(name or f"user-{uuid.uuid4().hex[:8]}", **more)


def make_file(contents: bytes = b"sound", **more: Any) -> File:
    """A file row whose bytes are in the storage."""
    location = default_storage.save(f"records/test/{uuid.uuid4()}", ContentFile(contents))
    return File.objects.create(**{"location": location, "size": len(contents), "duration_ms": 2000, **more})


def make_record(
    state: State = State.UPLOADED, *, now: datetime, owner: User | None = None, contents: bytes = b"sound", **more: Any
) -> AudioRecord:
    """A record that has reached `state`, due since `now`, with everything its state promises."""
    order = list(State)
    reached = order.index(state)
    record = AudioRecord(
        owner=owner or make_user(),
        state=state,
        original_file=make_file(contents),
        **{
            "title": "A recording",
            "state_entered_at": now,
            "delay_time": now,
            "created": now,
            "progress": 1 if state == State.DONE else 0,
            **more,
        },
    )
    if reached >= order.index(State.NORMALIZED):
        record.normalized_file = make_file(b"OggS", format="ogg")
    record.save()
    if reached >= order.index(State.SUBMITTED):
        record.recognition = Recognition.objects.create(
            record=record,
            provider="scripted",
            model="parrot",
            external_id=f"operation-{uuid.uuid4()}",
            source_uri="scripted:x",
            started_at=now,
            created=now,
        )
    if reached >= order.index(State.TRANSCRIBED):
        contents_json = {"language": "en", "speakers": [], "utterances": []}
        record.structure = Structure.objects.create(version=1, contents=contents_json, language="en")
        record.transcript_text = Text.objects.create(kind=TextKind.TRANSCRIPT, contents="")
    record.save()
    return record


def make_halted(reason: HaltReason = HaltReason.EXHAUSTED, state: State = State.NORMALIZED, **more: Any) -> AudioRecord:
    """A record that has just been halted, with an error."""
    now = timezone.now()
    about = {"halted_at": now, "halt_reason": reason, "error_code": "no_luck", "error_text": "It did not work.", **more}
    return make_record(state, now=now, **about)


def wav_bytes(folder: Path, seconds: float = 1.0) -> bytes:
    """A short WAV: a tone between two silences."""
    path = write_wav(folder / f"{uuid.uuid4()}.wav", silence(0.2) + tone(seconds) + silence(0.2))
    return path.read_bytes()
