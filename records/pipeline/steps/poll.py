from __future__ import annotations

import logging
from datetime import datetime, timedelta

from recognition import operations as recognitions
from recognition import registry
from recognition.contract import OPERATION_FORBIDDEN, Misconfigured, Pending, Provider, ProviderError, Refused, TellsApart, Transcript
from recognition.models import Recognition
from records import formats
from records.models import AudioRecord, Structure, Text, TextKind
from records.pipeline.heartbeat import Checkpoint, Clock, Heartbeat, check_connection
from records.pipeline.outcomes import Advance, Outcome, Postpone
from records.pipeline.steps.provider_call import NotNow, call, wait_for_slot

logger = logging.getLogger(__name__)


def poll(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """Ask the provider how the recognition stands, and move on once its answer is kept. A local engine works in here."""
    recognition = record.recognition
    assert recognition is not None
    provider = registry.get(recognition.provider)
    try:
        raw = recognitions.read_payload(recognition)
    except FileNotFoundError:
        logger.warning("the answer that was kept of recognition %s is gone from the storage; its provider is asked again", recognition.pk)
        raw = None
    if raw is None:
        duration_ms = (record.normalized_file.duration_ms if record.normalized_file else None) or 0
        try:
            with call(provider, "poll", record=record, heartbeat=heartbeat, clock=checkpoint.clock) as turn:
                try:
                    answer = provider.poll(recognitions.attempt_of(recognition, duration_ms=duration_ms), heartbeat)
                except Misconfigured as error:
                    if _answers_for_others(provider, recognition, heartbeat=heartbeat, clock=checkpoint.clock):
                        raise _refused_alone() from error
                    raise
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


def _answers_for_others(provider: Provider, recognition: Recognition, *, heartbeat: Heartbeat, clock: Clock) -> bool:
    """Whether the provider that refuses this recognition tells about another one at the same time: then it is not our access that is wrong."""
    if not isinstance(provider, TellsApart):
        return False
    for external_id in recognitions.others_of(recognition):
        try:
            wait_for_slot(provider, "poll", has_booked=True, heartbeat=heartbeat, clock=clock)
            if provider.answers_for(external_id):
                return True
        except (NotNow, ProviderError):
            continue
    return False


def _refused_alone() -> Refused:
    return Refused(
        OPERATION_FORBIDDEN,
        "The provider answers for other recognitions and refuses to tell about this one: its id belongs to another account. "
        "If the key was changed, put the former one back and resume the record; else restart it from `normalized`, "
        "which is a new recognition.",
    )


def rows_of(transcript: Transcript) -> dict[str, Structure | Text]:
    """The rows in which a transcript is kept."""
    return {
        "structure": Structure(version=formats.VERSION, contents=formats.to_structure(transcript), language=transcript.language or ""),
        "transcript_text": Text(kind=TextKind.TRANSCRIPT, contents=transcript.text),
    }
