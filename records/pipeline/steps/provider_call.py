"""What every step does before and around a call to a provider."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from recognition.contract import Provider, ProviderError
from recognition.operations import gates
from recognition.operations.gates import Wait
from records.models import AudioRecord
from records.pipeline.heartbeat import Clock, Heartbeat
from records.pipeline.outcomes import Postpone

SLEEP_S = 0.05
UPLOAD = "upload"


class NotNow(Exception):
    """The call may not be made now: `outcome` says when to come back, and why."""

    def __init__(self, wait: Wait) -> None:
        self.outcome = Postpone(wait.delay, foreign=True, paced=True, code=wait.code, text=wait.text)
        super().__init__(wait.code)


@dataclass(frozen=True)
class Turn:
    """The turn to call. `worked()` is said once what the provider answered is kept: it ends a pause that this call was to probe."""

    provider: Provider
    clock: Clock
    probe_won_at: datetime | None

    def worked(self) -> None:
        if self.probe_won_at is not None:
            gates.end_pause(self.provider, now=self.clock())

    def asked_nothing(self) -> None:
        """No call showed how the provider fares: the next one is to."""
        if self.probe_won_at is not None:
            gates.hand_on(self.provider, won_at=self.probe_won_at, now=self.clock())


@contextmanager
def call(
    provider: Provider, kind: str, *, record: AudioRecord, heartbeat: Heartbeat, clock: Clock, after: Turn | None = None
) -> Iterator[Turn]:
    """Around a call of that kind: raises NotNow where the provider is paused or its quota is used up; else comes in when it is our turn.

    `after`: the turn of the same step that prepared this call. A probe that it won is kept for this one, and handed on where no slot is free.
    """
    probe_won_at = after.probe_won_at if after else None
    if probe_won_at is None and (wait := gates.pause_of(provider, now=clock())):
        raise NotNow(wait)
    try:
        wait_for_slot(provider, kind, has_booked=record.error_code == gates.WAITING_FOR_SLOT, heartbeat=heartbeat, clock=clock)
    except NotNow:
        if after:
            after.asked_nothing()
        raise
    if probe_won_at is None:
        # Not before the slot: who got no slot would have used up the one probe without a call.
        now = clock()
        is_probe = gates.probe(provider, now=now)
        if isinstance(is_probe, Wait):
            raise NotNow(is_probe)
        probe_won_at = now if is_probe else None
    turn = Turn(provider, clock, probe_won_at)
    with gates.watched(provider, now=clock()):
        try:
            yield turn
        except ProviderError as error:
            # No success, but an answer that is given only to those who have access. Copies may be kept by somebody else.
            if error.knows_us and kind != UPLOAD:
                turn.worked()
            raise


def wait_for_slot(provider: Provider, kind: str, *, has_booked: bool, heartbeat: Heartbeat, clock: Clock) -> None:
    """Return when a call of that kind may be made within the quota. Raises NotNow where that is not soon."""
    while True:
        slot = gates.take_slot(provider, kind, has_booked=has_booked, now=clock())
        if isinstance(slot, Wait):
            raise NotNow(slot)
        while (left := slot - clock()) > timedelta(0):
            heartbeat.beat()
            time.sleep(min(left.total_seconds(), SLEEP_S))
        if clock() - slot <= gates.latest(provider, kind):
            return
