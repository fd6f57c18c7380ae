"""Writes on attempts that stand whoever holds the record by then, because they were paid for; and the making of an attempt."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.core.files.base import ContentFile

from recognition.contract import Attempt, Provider
from recognition.models import Recognition

LOOK_AMONG = 300
"""How many of a provider's newest submissions are looked at to find others."""


def new_recognition(*, record_id: uuid.UUID, provider: Provider, language: str, channels: int, now: datetime) -> Recognition:
    """An attempt, not saved yet, with the options frozen under which it will run."""
    return Recognition(
        record_id=record_id,
        provider=provider.name,
        model=provider.model,
        options=provider.options(language=language, channels=channels),
        started_at=now,
        created=now,
        updated=now,
    )


def keep_external_id(recognition: Recognition, external_id: str, *, now: datetime) -> bool:
    """Commit the provider's handle, by itself and at once. False if the attempt has one already."""
    kept = Recognition.objects.filter(pk=recognition.pk, external_id="").update(external_id=external_id, updated=now)
    if kept:
        recognition.external_id = external_id
    return bool(kept)


def take_mark_off(recognition: Recognition, *, now: datetime) -> None:
    """The paid call was refused for certain: nothing was bought, and it may be made again."""
    Recognition.objects.filter(pk=recognition.pk, external_id="").update(submit_started_at=None, updated=now)
    recognition.submit_started_at = None


def keep_payload(recognition: Recognition, raw: bytes, *, now: datetime) -> None:
    """Keep the raw answer before anything is made of it: a finished operation can't be asked again.

    Where `recognition` has one already, that one is lost (see `read_payload`), and this one takes its place.
    """
    lost = recognition.payload.name or ""
    recognition.payload.save("", ContentFile(raw), save=False)
    kept = Recognition.objects.filter(pk=recognition.pk, payload__in=["", lost]).update(
        payload=recognition.payload.name, finished_at=now, updated=now
    )
    if kept:
        recognition.finished_at = now
        return
    recognition.payload.delete(save=False)
    earlier = Recognition.objects.filter(pk=recognition.pk).first()
    if earlier is not None:  # else the record was removed meanwhile, and nothing is left that an answer could belong to
        recognition.payload, recognition.finished_at = earlier.payload, earlier.finished_at


def read_payload(recognition: Recognition) -> bytes | None:
    """The raw answer, if it was kept. Raises FileNotFoundError where it was, and is gone from the storage."""
    if not recognition.payload:
        return None
    with recognition.payload.open("rb") as file:
        return bytes(file.read())


def others_of(recognition: Recognition) -> list[str]:
    """The provider's handles of two other attempts: the newest that was answered, and the newest that was not.

    Looks at the newest records alone (an index of the provider's has them in order): where all are answered, the search for one that is not
    would else go through the whole archive.
    """
    others = Recognition.objects.filter(provider=recognition.provider, external_id__gt="").exclude(pk=recognition.pk).order_by("-record_id")
    found: dict[bool, str] = {}
    for external_id, payload in others.values_list("external_id", "payload")[:LOOK_AMONG]:
        found.setdefault(payload != "", external_id)
    return [found[is_answered] for is_answered in (True, False) if is_answered in found]


def attempt_of(recognition: Recognition, *, duration_ms: int) -> Attempt:
    """The attempt as the provider sees it."""
    return Attempt(
        id=str(recognition.pk),
        model=recognition.model,
        options=recognition.options,
        external_id=recognition.external_id,
        source_uri=recognition.source_uri,
        duration_ms=duration_ms,
        submitted_at=recognition.submit_started_at,
    )
