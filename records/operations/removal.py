"""Removing a record with everything that is its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from recognition.models import Recognition
from recognition.operations import request_removal
from records.models import AudioRecord, File, Structure, TallyMark, Text
from records.operations import tally

logger = logging.getLogger(__name__)


def remove(records: QuerySet[AudioRecord]) -> int:
    """Remove records with their rows, and after the commit their files and saved answers. Returns how many there were.

    Whoever works on one loses it: nothing that it writes later finds a row, and it removes the files that it made.
    """
    removed = 0
    for pk in list(records.values_list("pk", flat=True)):
        with transaction.atomic():
            mark = tally.hold_mark()
            removed += _remove(AudioRecord.objects.select_for_update().filter(pk=pk), mark)
    return removed


def _remove(found: QuerySet[AudioRecord], mark: TallyMark) -> bool:
    record = found.first()
    if record is None:
        return False
    # Locked, so that an answer that is just being kept is either seen here or finds no row and is taken back.
    attempts = Recognition.objects.select_for_update().filter(record=record)
    files = File.objects.filter(pk__in=[record.original_file_id, record.normalized_file_id])
    names = [str(attempt.payload.name) for attempt in attempts if attempt.payload] + list(files.values_list("location", flat=True))
    request_removal((attempt for attempt in attempts if _is_elsewhere(attempt, names)), now=timezone.now())
    tally.count_in(record, mark, now=timezone.now())
    found.update(recognition=None)  # record and attempt lead to each other
    found.delete()
    files.delete()
    Structure.objects.filter(pk__in=[record.structure_id]).delete()
    Text.objects.filter(pk__in=[record.transcript_text_id, record.literary_text_id]).delete()
    transaction.on_commit(partial(_remove_files, names, record.folder))
    logger.info("record %s removed", record.pk)
    return True


def _is_elsewhere(attempt: Recognition, names: Iterable[str]) -> bool:
    """Whether the provider has something of its own, other than the record's files."""
    return bool(attempt.source_uri) and attempt.source_uri not in names


def _remove_files(names: Iterable[str], folder: str) -> None:
    for name in names:
        try:
            default_storage.delete(name)
        except OSError as error:  # the record is gone all the same; what is left is found by the sweep of files without a record
            logger.warning("a file of a removed record could not be removed: %s", type(error).__name__)
    with suppress(OSError):
        default_storage.delete(folder)
