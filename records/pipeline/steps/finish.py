from __future__ import annotations

from datetime import datetime

from records.models import AudioRecord
from records.pipeline.heartbeat import Checkpoint, Heartbeat
from records.pipeline.outcomes import Advance, Outcome


def finish(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """The last step. The worker delivers once this has been written (`records.pipeline.dispatch`)."""
    return Advance()
