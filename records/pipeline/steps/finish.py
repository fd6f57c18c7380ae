from __future__ import annotations

from datetime import datetime

from django.conf import settings

from recognition import operations as recognitions
from records.models import AudioRecord
from records.pipeline.heartbeat import Checkpoint, Heartbeat
from records.pipeline.outcomes import Advance, Outcome


def finish(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """The last step: the provider's copy of the audio is needed no more. The worker delivers once this has been written."""
    recognition, file = record.recognition, record.normalized_file
    has_copy = recognition is not None and file is not None and recognition.source_uri not in ("", file.location)
    if recognition is not None and has_copy and not settings.TRANSCRIBER.bucket.keep_source:
        recognitions.request_removal([recognition], now=now, result=False)
    return Advance()
