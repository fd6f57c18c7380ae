"""What every step does before and around a call to a provider."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from recognition.contract import Provider, ProviderError
from recognition.operations import gates
from recognition.operations.gates import Wait
from records.models import AudioRecord
from records.pipeline.heartbeat import Clock, Heartbeat
from records.pipeline.outcomes import Postpone

SLEEP_S = 0.05


class NotNow(Exception):
    """The call may not be made now: `outcome` says when to come back, and why."""

    def __init__(self, wait: Wait) -> None:
        self.outcome = Postpone(wait.delay, foreign=True, paced=True, code=wait.code, text=wait.text)
        super().__init__(wait.code)


@dataclass(frozen=True)
class Turn:
    """The turn to call. `worked()` is said once what the call brought is kept: it ends a pause that this call was to probe."""

    provider: Provider
    clock: Clock
    is_probe: bool

    def worked(self) -> None:
        if self.is_probe:
            gates.end_pause(self.provider, now=self.clock())

    def answered(self, error: ProviderError) -> None:
        """No success, but an answer that is given only to those who have access."""
        if error.knows_us:
            self.worked()


@contextmanager
def call(provider: Provider, kind: str, *, record: AudioRecord, heartbeat: Heartbeat, clock: Clock) -> Iterator[Turn]:
    """Around a call of that kind: raises NotNow where the provider is paused or its quota is used up; else comes in when it is our turn."""
    if wait := gates.pause_of(provider, now=clock()):
        raise NotNow(wait)
    wait_for_slot(provider, kind, has_booked=record.error_code == gates.WAITING_FOR_SLOT, heartbeat=heartbeat, clock=clock)
    # Not before the slot: who got no slot would have used up the one probe without a call.
    is_probe = gates.probe(provider, now=clock())
    if isinstance(is_probe, Wait):
        raise NotNow(is_probe)
    turn = Turn(provider, clock, is_probe)
    with gates.watched(provider, now=clock()):
        try:
            yield turn
        except ProviderError as error:
            turn.answered(error)
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
