"""Removing what was left with a provider: asked for with the change that makes it due, done by the housekeeping."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from recognition import registry
from recognition.models import ProviderRemoval, Recognition

logger = logging.getLogger(__name__)

BATCH = 100
FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(days=1)
STILL_ARRIVING = timedelta(minutes=3)
"""After a record was lost, a worker may go on sending its copy for a moment: longer than a lease and the grace after it."""


def request_removal(recognitions: Iterable[Recognition], *, now: datetime, result: bool = True) -> None:
    """Have the provider's copy of the audio removed, and its result as well; inside the caller's transaction."""
    ProviderRemoval.objects.bulk_create(
        ProviderRemoval(
            provider=recognition.provider,
            source_uri=recognition.source_uri,
            external_id=recognition.external_id if result else "",
            created=now,
            updated=now,
            delay_time=now + STILL_ARRIVING if result and not (recognition.external_id or recognition.payload) else now,
        )
        for recognition in recognitions
        if recognition.source_uri or (result and recognition.external_id)
    )


def work_off_removals(*, now: datetime) -> int:
    """Do what is due; what fails is tried again later, ever more rarely. Gives how many were done. Removing twice is harmless."""
    done = 0
    for removal in ProviderRemoval.objects.filter(delay_time__lte=now).order_by("delay_time")[:BATCH]:
        try:
            provider = registry.get(removal.provider)
            if removal.source_uri and not _is_read_again(removal):
                provider.remove_source(removal.source_uri)
            if removal.external_id:
                provider.remove_result(removal.external_id)
        except Exception as error:  # of a provider of somebody else's as well: the others must have their turn
            pause = min(FIRST_PAUSE * float(2 ** min(removal.attempts, 20)), LONGEST_PAUSE)
            ProviderRemoval.objects.filter(pk=removal.pk).update(attempts=removal.attempts + 1, delay_time=now + pause, updated=now)
            logger.warning("something could not be removed at %s yet: %s", removal.provider, getattr(error, "code", type(error).__name__))
        else:
            removal.delete()
            done += 1
    return done


def _is_read_again(removal: ProviderRemoval) -> bool:
    """Whether a later attempt reads the same copy and has no answer yet; its own end asks for the removal again."""
    return Recognition.objects.filter(
        provider=removal.provider, source_uri=removal.source_uri, payload="", created__gt=removal.created
    ).exists()
