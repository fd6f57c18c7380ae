from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.base import Row

REPORTED_EVERY = timedelta(seconds=15)
ALIVE_FOR = timedelta(seconds=60)
"""After a sign of life: one that is late does not make a worker dead."""


class SeatedWorkerQuerySet(models.QuerySet["SeatedWorker"]):
    def alive(self, *, now: datetime) -> SeatedWorkerQuerySet:
        return self.filter(seen_at__gt=now - ALIVE_FOR)


class SeatedWorker(Row):
    """A worker in its seat, on whatever machine, as its cluster reported it last. For people and monitoring; nothing decides by it."""

    cluster = models.UUIDField(help_text="Fresh at each start of a cluster.")
    seat = models.PositiveIntegerField()
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField(help_text="When the process took the seat.")
    seen_at = models.DateTimeField()
    record_id = models.UUIDField(null=True, blank=True, help_text="What it worked on then; no link, since the record may be gone.")

    objects = SeatedWorkerQuerySet.as_manager()

    class Meta:
        db_table = "workers"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        constraints = [models.UniqueConstraint(fields=["cluster", "seat"], name="workers_one_per_seat")]

    def __str__(self) -> str:
        return f"{self.host} {self.seat}"
