from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import Error as DatabaseProblem
from django.db import connection

from recognition import operations as recognitions
from recognition import registry
from recognition.contract import Answered, Audio, Busy, MakesCopies, Misconfigured, NotAccepted, OutcomeUnknown, Provider, Refused
from recognition.models import Recognition
from recognition.sources import local_copy
from records.models import AudioRecord
from records.pipeline.heartbeat import Checkpoint, Clock, Heartbeat, LeaseLost, check_connection
from records.pipeline.outcomes import Advance, Halt, Outcome
from records.pipeline.steps.provider_call import UPLOAD, NotNow, Turn, call
from records.states import HaltReason

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEEP_PAUSES_S = (0.1, 0.5, 1.0, 2.0)


def submit(record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
    """Start the recognition, once: what a former run did already is found on the row of the attempt and not done again."""
    audio = _audio(record)
    recognition = record.recognition
    if recognition is None:
        provider = registry.default()
        recognition = recognitions.new_recognition(
            record_id=record.pk, provider=provider, language=record.language, channels=audio.channels, now=now
        )
        checkpoint.begin_recognition(recognition)
    else:
        provider = registry.get(recognition.provider)
    if recognition.external_id or recognition.payload:
        return Advance()
    if provider.costs_money and recognition.submit_started_at is not None:
        return _unconfirmed()
    _check_limits(provider, audio)
    try:
        uploaded = _upload(provider, recognition, audio, record=record, heartbeat=heartbeat, checkpoint=checkpoint)
        with call(provider, "submit", record=record, heartbeat=heartbeat, clock=checkpoint.clock, after=uploaded) as turn:
            heartbeat.beat()  # whoever must stop begins no paid call
            if provider.costs_money and not checkpoint.mark_submission(recognition):
                return _unconfirmed()
            with heartbeat.unhurried():
                accepted = _submit(provider, recognition, audio, heartbeat, checkpoint)
                _keep(provider, recognition, accepted, clock=checkpoint.clock)
    except NotNow as wait:
        return wait.outcome
    except LeaseLost:
        _take_copy_along(recognition, audio, clock=checkpoint.clock)
        raise
    except OutcomeUnknown:
        if provider.costs_money:
            return _unconfirmed()
        raise
    if provider.costs_money:
        turn.worked()
    else:
        turn.asked_nothing()  # an engine of our own gives an id without a look at anything: its `poll` shows
    return Advance()


def _upload(
    provider: Provider, recognition: Recognition, audio: Audio, *, record: AudioRecord, heartbeat: Heartbeat, checkpoint: Checkpoint
) -> Turn | None:
    """Put the audio where the provider reads it; the turn that this took, if it did. It says nothing of the provider, and ends no pause.

    A copy's link is written down before, so that whoever removes the record has it removed.
    """
    if isinstance(provider, MakesCopies):
        if recognition.source_uri != (link := provider.copy_of(audio)):
            checkpoint.write(recognition, source_uri=link)
    elif recognition.source_uri:
        return None
    with call(provider, UPLOAD, record=record, heartbeat=heartbeat, clock=checkpoint.clock) as turn:
        source_uri = provider.upload(audio)
    if recognition.source_uri != source_uri:
        checkpoint.write(recognition, source_uri=source_uri)
    else:
        checkpoint.check()
    return turn


def _take_copy_along(recognition: Recognition, audio: Audio, *, clock: Clock) -> None:
    """The record was removed while its copy was on the way, and so before there was one to remove: it is removed now."""
    if recognition.source_uri not in ("", audio.location) and not Recognition.objects.filter(pk=recognition.pk).exists():
        recognitions.request_removal([recognition], now=clock())


def _keep(provider: Provider, recognition: Recognition, accepted: str | Answered, *, clock: Clock) -> None:
    """Commit what was paid for: the answer first, where there is one, for it can't be asked for again; then the id.

    Where the database is away for a moment it is tried again. Where it stays away, the log is the last place to keep the id.
    """
    external_id = accepted.external_id if isinstance(accepted, Answered) else accepted
    try:
        check_connection()
        if isinstance(accepted, Answered):
            payload = accepted.payload
            _persistently(lambda: recognitions.keep_payload(recognition, payload, now=clock()))
        if not _persistently(lambda: recognitions.keep_external_id(recognition, external_id, now=clock())) and provider.costs_money:
            _not_kept(recognition, external_id, clock=clock)
    except BaseException:
        logger.critical("recognition %s was accepted as operation %s, which could not be kept", recognition.pk, external_id)
        raise


def _not_kept(recognition: Recognition, external_id: str, *, clock: Clock) -> None:
    """The row has another id, which is told; or it was removed meanwhile, and what it left with the provider goes as well."""
    if Recognition.objects.filter(pk=recognition.pk).exists():
        logger.critical("recognition %s was accepted as operation %s, and its row has another", recognition.pk, external_id)
        return
    recognition.external_id = external_id
    recognitions.request_removal([recognition], now=clock())


def _persistently(write: Callable[[], T]) -> T:
    for pause in KEEP_PAUSES_S:
        try:
            return write()
        except (DatabaseProblem, OSError):
            time.sleep(pause)
            connection.close_if_unusable_or_obsolete()
    return write()


def _submit(provider: Provider, recognition: Recognition, audio: Audio, heartbeat: Heartbeat, checkpoint: Checkpoint) -> str | Answered:
    """The call that may cost money. What is refused for certain takes the mark off again."""
    try:
        return provider.submit(recognitions.attempt_of(recognition, duration_ms=audio.duration_ms), heartbeat)
    except (Refused, Busy, Misconfigured, NotAccepted):
        recognitions.take_mark_off(recognition, now=checkpoint.clock())
        raise


def _unconfirmed() -> Halt:
    return Halt(
        HaltReason.UNCONFIRMED,
        "submission_unconfirmed",
        "The paid submission may have been accepted, but no answer came back. Enter the operation's id, or submit again.",
    )


def _check_limits(provider: Provider, audio: Audio) -> None:
    """Say no before anything is paid. Raises Refused."""
    limits = provider.limits
    duration = audio.duration_ms * (audio.channels if limits.channels_add_up else 1)
    if limits.max_duration_ms is not None and duration > limits.max_duration_ms:
        hours = limits.max_duration_ms / 3_600_000
        if limits.channels_add_up:
            raise Refused("too_long", f"The provider takes at most {hours:g} hours, summed over channels.", knows_us=False)
        raise Refused("too_long", f"The provider takes at most {hours:g} hours.", knows_us=False)
    if limits.max_size is not None and audio.size > limits.max_size:
        raise Refused("too_large", f"The provider takes at most {limits.max_size / 2**20:.0f} MiB.", knows_us=False)


def _audio(record: AudioRecord) -> Audio:
    file = record.normalized_file
    assert file is not None
    return Audio(
        location=file.location,
        size=file.size,
        duration_ms=file.duration_ms or 0,
        channels=file.channels,
        local_path=lambda: local_copy(default_storage, file.location, settings.DATA_DIR / "scratch" / "sources"),
    )
