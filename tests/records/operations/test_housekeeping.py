from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone

from recognition import operations as recognitions
from recognition.models import Recognition
from records.models import RecordEvent, Tally
from records.operations import housekeeping
from records.pipeline.acquire import acquire
from records.pipeline.scratch import scratch_root
from records.pipeline.stages import STAGES
from records.states import EventOutcome, Origin
from records.storage import DurableFileSystemStorage
from tests.factories import make_record
from transcriber.seats import keep_house

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _empty_scratch() -> Iterator[None]:
    shutil.rmtree(scratch_root(), ignore_errors=True)
    yield
    shutil.rmtree(scratch_root(), ignore_errors=True)


def age(path: Path, **span: float) -> None:
    """Make a file or folder look that old."""
    moment = (timezone.now() - timedelta(**span)).timestamp()
    os.utime(path, (moment, moment))


def stored(name: str, **span: float) -> Path:
    path = Path(default_storage.path(default_storage.save(name, ContentFile(b"bytes"))))
    age(path, **span)
    return path


def sweep_all() -> int:
    return sum(housekeeping.sweep(now=timezone.now(), shard=shard) for shard in range(housekeeping.SHARDS))


def test_parts_of_uploads_that_ended_long_ago_go():
    storage = DurableFileSystemStorage(location=default_storage.path(""))
    old, young = storage.part_path(), storage.part_path()
    for part in (old, young):
        part.write_bytes(b"half")
    age(old, hours=2)

    sweep_all()

    assert (old.exists(), young.exists()) == (False, True)


def test_scratch_of_a_worker_that_is_gone_goes_and_that_of_a_living_one_stays():
    make_record(now=timezone.now())
    acquisition = acquire(STAGES, now=timezone.now())
    assert acquisition is not None
    living, left = scratch_root() / str(acquisition.id), scratch_root() / str(uuid.uuid4())
    for folder in (living, left):
        folder.mkdir(parents=True)
        (folder / "source").write_bytes(b"x")
        age(folder, hours=1)

    sweep_all()

    assert (living.exists(), left.exists()) == (True, False)


def test_files_that_no_row_leads_to_go_and_all_others_stay():
    record = make_record(now=timezone.now())
    folder = f"records/{record.pk.hex[-2:]}/{record.pk}"
    kept = Path(default_storage.path(record.original_file.location))
    age(kept, days=30)
    orphan, fresh = stored(f"{folder}/normalized-aa.ogg", hours=2), stored(f"{folder}/normalized-bb.ogg", minutes=1)
    of_nobody = stored(f"records/0f/{uuid.uuid4()}/original", hours=2)

    assert sweep_all() == 2

    assert (kept.exists(), orphan.exists(), fresh.exists(), of_nobody.exists()) == (True, False, True, False)
    assert not of_nobody.parent.exists()


def test_payloads_without_a_row_go():
    record = make_record(now=timezone.now())
    recognition = Recognition.objects.create(record=record, provider="scripted")
    recognitions.keep_payload(recognition, b"raw", now=timezone.now())
    kept = Path(default_storage.path(str(recognition.payload.name)))
    age(kept, days=30)
    orphan = stored("payloads/7f/left.raw", hours=2)

    sweep_all()

    assert (kept.exists(), orphan.exists()) == (True, False)


def test_all_shards_have_their_turn_within_hours():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    minutes = [int((start + timedelta(minutes=n)).timestamp() // 60) % housekeeping.SHARDS for n in range(housekeeping.SHARDS)]
    assert sorted(minutes) == list(range(housekeeping.SHARDS))


@pytest.mark.parametrize("fails", [False, True])
def test_the_journal_is_added_up_whatever_becomes_of_the_sweep(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that is away for days would leave a backlog."""

    def is_away(folder: str) -> tuple[list[str], list[str]]:
        raise ConnectionError

    written = timezone.now() - timedelta(hours=1)
    RecordEvent.objects.create(record=make_record(now=written), created=written, outcome=EventOutcome.RESUMED, origin=Origin.ADMIN)
    monkeypatch.setattr("transcriber.seats.connections.close_all", lambda: None)
    if fails:
        monkeypatch.setattr(default_storage, "listdir", is_away)

    keep_house()

    assert [kind.runs for kind in Tally.objects.all()] == [1]


def test_nothing_to_do_is_nothing_done():
    assert sweep_all() == 0
