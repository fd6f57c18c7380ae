"""django-q2's door to what is to be done: besides its own tasks it hands out seats."""

from __future__ import annotations

import logging
import time

from django.db import DatabaseError, connections
from django_q.brokers.orm import ORM

from transcriber import seats

logger = logging.getLogger(__name__)

PAUSE_S = 2.0


class RecordBroker(ORM):  # type: ignore[misc]
    """Seat and housekeeping tokens first, then the ordinary tasks."""

    def dequeue(self) -> list[tuple[int | None, str]] | None:
        tokens = seats.tokens()
        if tokens:
            return [(None, token) for token in tokens]
        try:
            tasks: list[tuple[int | None, str]] | None = super().dequeue()
        except DatabaseError as error:
            # django-q2 would end the pusher over this, and no seat could be handed out meanwhile.
            logger.error("the task queue could not be read (%s)", type(error).__name__)
            connections.close_all()
            time.sleep(PAUSE_S)
            return None
        return tasks
