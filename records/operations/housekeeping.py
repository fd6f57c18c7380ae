"""What a killed process may leave behind, cleared away little by little: parts of uploads, scratch folders, files that no row leads to."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.core.files.storage import Storage, default_storage

from recognition.models import Recognition
from recognition.operations import work_off_removals
from records.models import AudioRecord, File
from records.pipeline.scratch import scratch_root
from records.storage import INCOMING

logger = logging.getLogger(__name__)

LEFT_ALONE = timedelta(hours=1)
"""Nothing younger is touched: a part is written to while it arrives, and a file's row follows its bytes within moments."""

SHARDS = 256
BATCH = 500


def sweep(*, now: datetime, shard: int | None = None) -> int:
    """Clear what nobody needs; gives the number of files and folders removed. Meant to be called every minute.

    The stored files are gone through a shard (the two hex digits by which they are spread) at a call: all of them every few hours, whatever
    their number.
    """
    removed = sum(_remove_path(path) for path in [*_old_parts(now), *_left_scratch(now)])
    shard = int(now.timestamp() // 60) % SHARDS if shard is None else shard
    for folder, known in ((f"records/{shard:02x}", _known_files), (f"payloads/{shard:02x}", _known_payloads)):
        removed += _remove_orphans(default_storage, folder, known, now=now)
    work_off_removals(now=now)
    if removed:
        logger.info("housekeeping removed %d left-over files", removed)
    return removed


def _old_parts(now: datetime) -> Iterator[Path]:
    try:
        folder = Path(default_storage.path(INCOMING))
    except NotImplementedError:  # then they lie on this machine until they are whole (records.operations.intake)
        folder = Path(settings.DATA_DIR) / "scratch" / "incoming"
    yield from (path for path in folder.glob("*.part") if _age(path, now) > LEFT_ALONE)


def _left_scratch(now: datetime) -> Iterator[Path]:
    """Scratch folders whose acquisition is over: the worker that made them is gone."""
    folders: dict[uuid.UUID, Path] = {}
    for path in scratch_root().glob("*"):
        try:
            folders[uuid.UUID(path.name)] = path
        except ValueError:
            yield from (left for left in path.glob("*") if _age(left, now) > timedelta(days=1))
    held = set(AudioRecord.objects.filter(acquisition_id__in=folders).values_list("acquisition_id", flat=True)) if folders else set()
    yield from (path for acquisition_id, path in folders.items() if acquisition_id not in held and _age(path, now) > timedelta(minutes=5))


def _remove_orphans(storage: Storage, folder: str, known: Callable[[list[str]], set[str]], *, now: datetime) -> int:
    removed = 0
    for names in _batches(_walk(storage, folder)):
        for name in set(names) - known(names):
            try:
                if now - storage.get_modified_time(name) > LEFT_ALONE:
                    storage.delete(name)
                    removed += 1
            except FileNotFoundError:  # its owner removed it in the meantime
                continue
    return removed


def _walk(storage: Storage, folder: str) -> Iterator[str]:
    try:
        folders, files = storage.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from (f"{folder}/{name}" for name in files)
    for name in folders:
        yield from _walk(storage, f"{folder}/{name}")


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for name in names:
        batch.append(name)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _known_files(names: list[str]) -> set[str]:
    return set(File.objects.filter(location__in=names).values_list("location", flat=True))


def _known_payloads(names: list[str]) -> set[str]:
    return set(Recognition.objects.filter(payload__in=names).values_list("payload", flat=True))


def _age(path: Path, now: datetime) -> timedelta:
    try:
        return now - datetime.fromtimestamp(path.lstat().st_mtime, tz=UTC)
    except FileNotFoundError:
        return timedelta(0)


def _remove_path(path: Path) -> int:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return 1
