"""The read side: records as their owners see them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from records.models import AudioRecord, RecordEvent

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SHOWN = ("original_file", "normalized_file", "structure")


def own(owner: User) -> QuerySet[AudioRecord]:
    """The records a person may see, and nothing loaded of them yet."""
    return AudioRecord.objects.of(owner)


def shown(owner: User) -> QuerySet[AudioRecord]:
    """The same with all that is shown of them: two queries for any number, and no content."""
    return own(owner).select_related(*SHOWN).defer("structure__contents").prefetch_related("topics")


def get_shown(owner: User, pk: UUID) -> AudioRecord:
    """One record as it is shown. Raises AudioRecord.DoesNotExist, also for another's."""
    return shown(owner).get(pk=pk)


def get_with_structure(owner: User, pk: UUID) -> AudioRecord:
    """One record with its timed transcript loaded, if there is one. Raises AudioRecord.DoesNotExist."""
    return own(owner).select_related("structure").get(pk=pk)


def get_with_files(owner: User, pk: UUID) -> AudioRecord:
    """One record and its two files. Raises AudioRecord.DoesNotExist."""
    return own(owner).select_related("original_file", "normalized_file").get(pk=pk)


def journal(owner: User, pk: UUID) -> QuerySet[RecordEvent]:
    """What happened to a record. Raises AudioRecord.DoesNotExist."""
    return own(owner).only("pk").get(pk=pk).events.select_related("actor")


def filtered(
    records: QuerySet[AudioRecord],
    *,
    status: str | None = None,
    halted: bool | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    search: str = "",
) -> QuerySet[AudioRecord]:
    """Narrow a list down. `search` looks in titles, in any case of letters."""
    if status is not None:
        records = records.filter(state=status)
    if halted is not None:
        records = records.filter(halted_at__isnull=not halted)
    if created_after is not None:
        records = records.filter(created__gte=created_after)
    if created_before is not None:
        records = records.filter(created__lt=created_before)
    if search:
        # SQLite's LIKE knows the case of Latin letters alone; its regular expressions are Python's, which know all.
        sought = {"title__iregex": re.escape(search)} if connection.vendor == "sqlite" else {"title__icontains": search}
        records = records.filter(**sought)
    return records
