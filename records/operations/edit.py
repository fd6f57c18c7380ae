"""What a person may change about a record by hand: how it is called and described."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from records.models import AudioRecord
from records.operations.intake import clean_title


def edit(records: QuerySet[AudioRecord], *, now: datetime, title: str | None = None, brief: str | None = None) -> int:
    """Change the title, the brief or both (None: leave it). Returns how many records were changed.

    Writes these columns alone: whoever works on the record keeps it.
    """
    changes = {}
    if title is not None:
        changes["title"] = clean_title(title)
    if brief is not None:
        changes["brief"] = brief
    return records.update(**changes, updated=now)
