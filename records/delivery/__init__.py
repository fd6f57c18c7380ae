"""Telling the sender: the tail of the last step, behind one small seam.

Whoever wants to be told appends a function to `receivers`. It is called by the worker that moved the record to `done`, after that was
committed: the move itself is the mark, so a delivery is made at most once per `done`, and never by a worker that lost the record.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finished:
    """A record whose transcript is there."""

    record_id: uuid.UUID


Receiver = Callable[[Finished], None]
receivers: list[Receiver] = []


def deliver(finished: Finished) -> None:
    """Tell every receiver. One that fails is logged and does not undo what is done."""
    for receiver in receivers:
        try:
            receiver(finished)
        except Exception as error:
            logger.error("delivery of record %s failed: %s", finished.record_id, type(error).__name__)
