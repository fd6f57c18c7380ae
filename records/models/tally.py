from __future__ import annotations

from django.db import models
from django.db.models import Q

from records.models.base import Row
from records.states import EventOutcome, Origin


class Tally(Row):
    """How often a thing was written into the journal, up to `TallyMark.until` or by a record that is gone. Grows and never shrinks."""

    step = models.CharField(max_length=32, blank=True)
    outcome = models.CharField(max_length=16, choices=EventOutcome)
    origin = models.CharField(max_length=16, choices=Origin)
    up_to_ms = models.BigIntegerField(help_text="Runs that lasted so long, and longer than the next smaller bound; -1: the longest ones.")
    runs = models.PositiveBigIntegerField()
    duration_ms = models.PositiveBigIntegerField(help_text="All of them together.")

    class Meta:
        db_table = "journal_tallies"
        constraints = [
            models.UniqueConstraint(fields=["step", "outcome", "origin", "up_to_ms"], name="journal_tallies_one_each"),
            models.CheckConstraint(condition=Q(outcome__in=EventOutcome.values), name="journal_tallies_outcome_known"),
            models.CheckConstraint(condition=Q(origin__in=Origin.values), name="journal_tallies_origin_known"),
        ]

    def __str__(self) -> str:
        return f"{self.step} {self.outcome} {self.runs}"


class TallyMark(Row):
    """One row: rows of the journal that are older are counted in the tallies. Whoever adds to the tallies holds it."""

    until = models.DateTimeField()

    class Meta:
        db_table = "journal_tally_mark"

    def __str__(self) -> str:
        return self.until.isoformat()
