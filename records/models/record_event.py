from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from records.models.audio_record import AudioRecord
from records.models.base import Row
from records.states import EventOutcome, Origin


class RecordEvent(Row):
    """A row of the journal: a change of state, a failed try, a halt, or an act of a person. Append-only; nothing decides by it."""

    record = models.ForeignKey(AudioRecord, on_delete=models.CASCADE, related_name="events")
    origin = models.CharField(max_length=16, choices=Origin)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    step = models.CharField(max_length=32, blank=True, help_text="The step that ran, or that was to run.")
    outcome = models.CharField(max_length=16, choices=EventOutcome)
    duration_ms = models.PositiveIntegerField(null=True, blank=True, help_text="How long the step ran.")
    outcome_text = models.CharField(max_length=500, blank=True)

    class Meta:
        db_table = "record_events"
        verbose_name = _("journal row")
        verbose_name_plural = _("journal rows")
        indexes = [
            models.Index(fields=["record", "id"], name="record_events_of_record"),
            models.Index(fields=["created"], name="record_events_created"),
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(outcome__in=EventOutcome.values), name="record_events_outcome_known"),
            models.CheckConstraint(condition=models.Q(origin__in=Origin.values), name="record_events_origin_known"),
        ]

    def __str__(self) -> str:
        return f"{self.outcome} {self.pk}"
