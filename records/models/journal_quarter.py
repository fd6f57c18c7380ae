from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from records.models.base import Row
from records.states import EventOutcome

QUARTER_S = 900


def quarter_of(moment: datetime) -> int:
    """The quarter of an hour in which a moment lies, counted from 1970. Everybody's midnight lies between two of them."""
    return int(moment.timestamp() // QUARTER_S)


class JournalQuarter(Row):
    """What workers wrote into the journal within a quarter of an hour, up to `TallyMark.until` or of a record that is gone."""

    quarter = models.PositiveIntegerField(help_text="Quarters of an hour since 1970 (UTC).")
    step = models.CharField(max_length=32)
    outcome = models.CharField(max_length=16, choices=EventOutcome)
    up_to_ms = models.BigIntegerField(help_text="Runs that lasted so long, and longer than the next smaller bound; 0: did not succeed.")
    runs = models.PositiveBigIntegerField()
    recorded_ms = models.PositiveBigIntegerField(help_text="Length of the recordings that were done with it.")

    class Meta:
        db_table = "journal_quarters"
        constraints = [
            models.UniqueConstraint(fields=["quarter", "step", "outcome", "up_to_ms"], name="journal_quarters_one_each"),
            models.CheckConstraint(condition=Q(outcome__in=EventOutcome.values), name="journal_quarters_outcome_known"),
        ]

    def __str__(self) -> str:
        return f"{self.quarter} {self.step} {self.outcome} {self.runs}"
