from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core.files.base import File as Bytes
from django.core.files.storage import default_storage

from recognition import registry
from recognition.sources import local_copy
from records import audio
from records.models import AudioRecord, File
from records.pipeline.heartbeat import Checkpoint, Heartbeat
from records.pipeline.outcomes import Advance, Outcome
from records.pipeline.scratch import scratch_folder


def normalize(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """Make the copy that providers read: Ogg/Opus, measured after it was made."""
    config = settings.TRANSCRIBER
    with scratch_folder(checkpoint.acquisition.id) as scratch:
        target = scratch / "normalized.ogg"
        with local_copy(default_storage, record.original_file.location, scratch) as source:
            made = audio.normalize(
                source,
                target,
                channels=config.audio.channels,
                max_duration_s=config.intake.max_duration.total_seconds(),
                beat=heartbeat.beat,
                listen=registry.seconds_of_speech,
            )
        heartbeat.beat()
        with target.open("rb") as contents:
            location = default_storage.save(normalized_name(record, checkpoint), Bytes(contents))
    copy = File(location=location, size=made.size, format=made.format, duration_ms=made.duration_ms, channels=made.channels)
    return Advance(
        links={"normalized_file": copy},
        facts={"notes": list(made.notes)},
        original={"format": made.source_format, "duration_ms": made.source_duration_ms},
    )


def normalized_name(record: AudioRecord, checkpoint: Checkpoint) -> str:
    """A name of its own for each acquisition: a late worker can't touch its successor's file."""
    return f"{record.folder}/normalized-{checkpoint.acquisition.id.hex[:12]}.ogg"
