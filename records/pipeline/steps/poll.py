from __future__ import annotations

from datetime import datetime, timedelta

from recognition import operations as recognitions
from recognition import registry
from recognition.contract import Pending, Transcript
from records import formats
from records.models import AudioRecord, Structure, Text, TextKind
from records.pipeline.heartbeat import Checkpoint, Heartbeat, check_connection
from records.pipeline.outcomes import Advance, Outcome, Postpone
from records.pipeline.steps.provider_call import NotNow, call


def poll(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """Ask the provider how the recognition stands, and move on once its answer is kept. A local engine works in here."""
    recognition = record.recognition
    assert recognition is not None
    provider = registry.get(recognition.provider)
    raw = recognitions.read_payload(recognition)
    if raw is None:
        duration_ms = (record.normalized_file.duration_ms if record.normalized_file else None) or 0
        try:
            with call(provider, "poll", record=record, heartbeat=heartbeat, clock=checkpoint.clock) as turn:
                answer = provider.poll(recognitions.attempt_of(recognition, duration_ms=duration_ms), heartbeat)
        except NotNow as wait:
            return wait.outcome
        check_connection()  # what came must not be lost to one that died meanwhile
        if isinstance(answer, Pending):
            turn.worked()
            return Postpone(timedelta(seconds=answer.ask_again_in))
        raw = answer
        recognitions.keep_payload(recognition, raw, now=checkpoint.clock())  # first: it can't be asked for again
        turn.worked()
    return Advance(links=rows_of(provider.parse(raw, recognition.options)))


def rows_of(transcript: Transcript) -> dict[str, Structure | Text]:
    """The rows in which a transcript is kept."""
    return {
        "structure": Structure(version=formats.VERSION, contents=formats.to_structure(transcript), language=transcript.language or ""),
        "transcript_text": Text(kind=TextKind.TRANSCRIPT, contents=transcript.text),
    }
