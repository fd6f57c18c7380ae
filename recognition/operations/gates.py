"""The gate before a call to a provider: is the provider paused as a whole, and is there a slot within its quota?

A quota is kept exactly by all workers together: every call takes a slot of its own from the provider's row, at least `paces[kind]` seconds after
the one before. Who would have to wait longer than a moment books a later slot and is postponed to it, so that thousands of waiting records come
back one after the other and not all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from recognition.contract import Misconfigured, Provider
from recognition.models import ProviderGate

PATIENCE = timedelta(seconds=2)
"""A slot within that time is waited for by the worker itself."""
LATE = timedelta(seconds=0.1)
"""A slot that is older must not be used: calls that all come late could crowd together. Where slots lie far apart, half a pace does no harm."""
PROBE_EVERY = timedelta(minutes=3)
WAITING_FOR_SLOT = "provider_quota"


@dataclass(frozen=True)
class Wait:
    """Come back in so long; why."""

    delay: timedelta
    code: str
    text: str


# ---- the quota ------------------------------------------------------------------------------------------------------------------------


def take_slot(provider: Provider, kind: str, *, has_booked: bool, now: datetime) -> datetime | Wait:
    """A moment at which the call may be made, at most `PATIENCE` away; or when to come back.

    `has_booked`: the record comes back at the time it was given. It does not queue again behind those that came later.
    """
    pace = provider.paces.get(kind)
    if pace is None:
        return now
    interval = timedelta(seconds=pace)
    with transaction.atomic():
        gate = _locked(provider.name, kind)
        # Never further off than slots are given out: a clock that was wrong once must not close the gate for a year.
        next_at = min(gate.next_at or now, now + PATIENCE + interval)
        if gate.booked_until and next_at + interval * 2 < now:
            gate.booked_until = None  # nobody has called for a while: those who booked were halted, or are gone
        slot = max(next_at, now)
        queue_ends = max(gate.booked_until or now, slot)
        if slot - now > PATIENCE and has_booked:
            return _wait(slot - now)
        if not has_booked and (slot - now > PATIENCE or queue_ends - now > PATIENCE):
            gate.booked_until = queue_ends + interval
            gate.save(update_fields=["booked_until"])
            return _wait(queue_ends - now)
        gate.next_at = slot + interval
        gate.save(update_fields=["next_at", "booked_until"])
    return slot


def latest(provider: Provider, kind: str) -> timedelta:
    """How much later than its slot a call may be made."""
    return max(LATE, timedelta(seconds=provider.paces.get(kind, 0)) / 2) if provider.paces.get(kind, 0) > 1 else LATE


def _wait(delay: timedelta) -> Wait:
    return Wait(delay, WAITING_FOR_SLOT, "Waits for its turn within the provider's quota.")


# ---- the pause ------------------------------------------------------------------------------------------------------------------------


def pause_of(provider: Provider, *, now: datetime) -> Wait | None:
    """Why and how long nobody may call; None if there is no pause, or if it has run out."""
    row = _pause(provider)
    if row is None or row.paused_until is None or row.paused_until <= now:
        return None
    return Wait(min(row.paused_until - now, PROBE_EVERY), row.pause_code, row.pause_text)


def probe(provider: Provider, *, now: datetime) -> Wait | bool:
    """Right before a call: whether this is the one that shows how the provider fares after a pause; the others wait for that one."""
    row = _pause(provider)
    if row is None or row.paused_until is None:
        return False
    if row.paused_until <= now:
        its_end = ProviderGate.objects.filter(pk=row.pk, paused_until=row.paused_until)
        if its_end.update(paused_until=now + PROBE_EVERY, updated=now):
            return True
    return Wait(max(row.paused_until - now, timedelta(seconds=1)), row.pause_code, row.pause_text)


def hand_on(provider: Provider, *, won_at: datetime, now: datetime) -> None:
    """The probe that was won at that moment asked nothing of the provider: the next call may be the one."""
    still_its = ProviderGate.objects.filter(provider=provider.name, kind="", paused_until=won_at + PROBE_EVERY)
    still_its.update(paused_until=now)


def _pause(provider: Provider) -> ProviderGate | None:
    return ProviderGate.objects.filter(provider=provider.name, kind="", paused_until__isnull=False).first()


@contextmanager
def watched(provider: Provider, *, now: datetime) -> Iterator[None]:
    """Around a call: one that shows that the provider does not work for us pauses it for everybody.

    Nothing is written where it went well: what it brought, and was paid for, must be kept before anything else.
    """
    try:
        yield
    except Misconfigured as error:
        with transaction.atomic():
            gate = _locked(provider.name, "")
            gate.paused_until, gate.pause_code, gate.pause_text = now + PROBE_EVERY, error.code, error.message[:1000]
            gate.updated = now
            gate.save()
        raise


def end_pause(provider: Provider, *, now: datetime) -> None:
    """The provider works again."""
    ProviderGate.objects.filter(provider=provider.name, kind="", paused_until__isnull=False).update(
        paused_until=None, pause_code="", pause_text="", updated=now
    )


def _locked(provider_name: str, kind: str) -> ProviderGate:
    """The row, made if there is none, held until the transaction ends."""
    rows = ProviderGate.objects.select_for_update().filter(provider=provider_name, kind=kind)
    row = rows.first()
    if row is None:
        ProviderGate.objects.bulk_create([ProviderGate(provider=provider_name, kind=kind)], ignore_conflicts=True)
        row = rows.get()
    return row
