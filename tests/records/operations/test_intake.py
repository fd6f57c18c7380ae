from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.files.storage import default_storage
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from records.models import AudioRecord, File, IntakeKey
from records.operations.intake import (
    Arrival,
    BadLanguage,
    Empty,
    KeyReused,
    NoSpace,
    Taken,
    TooLarge,
    clean_language,
    clean_title,
    take_in,
    take_in_stream,
    title_of,
)
from tests.factories import make_user


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], list[Path]]:
    """Every file there is, parts included."""
    return lambda: [path for path in (tmp_path / "media").rglob("*") if path.is_file()]


def arrive(contents: bytes = b"sound", **more) -> Taken:
    with Arrival() as arrival:
        arrival.write(contents)
        return take_in(arrival, **{"name": "a.wav", **more})


# ---- bytes --------------------------------------------------------------------------------------------------------------------------


def test_what_is_not_taken_in_is_removed(files):
    with Arrival() as arrival:
        arrival.write(b"so")
        arrival.write(memoryview(b"und"))
        [part] = files()
        assert part.read_bytes() == b"sound"
        assert part.stat().st_mode & 0o777 == 0o600
        assert (arrival.size, arrival.digest) == (5, hashlib.sha256(b"sound").hexdigest())

    assert files() == []


def test_neither_is_what_an_error_ends(files):
    def interrupted() -> None:
        with Arrival() as arrival:
            arrival.write(b"sound")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert files() == []


def test_a_recording_may_be_as_large_as_the_limit_and_no_larger(files):
    with Arrival(limit=5) as arrival:
        arrival.write(b"sound")
        with pytest.raises(TooLarge):
            arrival.write(b"s")
    with pytest.raises(TooLarge):
        Arrival(expected=6, limit=5)
    assert files() == []


# ---- records ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_recording_becomes_a_record(now, files):
    owner = make_user()

    taken = take_in_stream(io.BytesIO(b"sound" * 50_000), owner=owner, name="Новая.wav", language="RU", now=now)

    assert taken.is_new
    record = AudioRecord.objects.get()
    assert (record.pk, record.owner, record.title, record.language) == (taken.record.pk, owner, "Новая", "ru")
    assert (record.state, record.delay_time, record.state_entered_at, record.created) == ("uploaded", now, now, now)
    assert record.original_file.size == 250_000
    with default_storage.open(record.original_file.location) as stored:
        assert stored.read() == b"sound" * 50_000
    assert len(files()) == 1


@pytest.mark.django_db
def test_what_is_refused_leaves_nothing(now, files):
    owner = make_user()
    arrive(owner=owner, key="k", now=now)
    before = files()

    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (Empty, {"contents": b""}),
        (BadLanguage, {"language": "English"}),
        (KeyReused, {"contents": b"other", "key": "k"}),
    ]
    for refusal, more in cases:
        with pytest.raises(refusal):
            arrive(**{"owner": owner, "now": now, **more})

    assert files() == before
    assert AudioRecord.objects.count() == File.objects.count() == IntakeKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_bytes_and_their_name_are_durable_before_the_row_is(now, monkeypatch):
    """fsync of the file, its final name, fsync of the folders, commit: in this order."""
    happened: list[str] = []

    def fsync(handle: int) -> None:
        happened.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().suffix or 'folder'}")

    def hardlink_to(path: Path, target: Path) -> None:
        happened.append("name")
        os.link(target, path)

    def commit(self: BaseDatabaseWrapper) -> None:
        happened.append("commit")
        real_commit(self)

    real_commit = BaseDatabaseWrapper.commit
    owner = make_user()
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "hardlink_to", hardlink_to)
    monkeypatch.setattr(BaseDatabaseWrapper, "commit", commit)

    arrive(owner=owner, now=now)

    assert happened[:2] == ["sync .part", "name"]
    assert set(happened[2:-1]) == {"sync folder"}
    assert happened[-1] == "commit"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_whose_outcome_is_unknown_takes_no_file_from_a_record(now, files, monkeypatch, committed):
    owner = make_user()
    real_commit = BaseDatabaseWrapper.commit

    def lost(self: BaseDatabaseWrapper) -> None:
        if committed:
            real_commit(self)
        raise DatabaseError("connection lost")

    with monkeypatch.context() as patched:
        patched.setattr(BaseDatabaseWrapper, "commit", lost)
        with pytest.raises(DatabaseError):
            arrive(owner=owner, now=now)

    assert AudioRecord.objects.count() == len(files()) == int(committed)


@pytest.mark.django_db
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_at_the_very_end(now, files, monkeypatch, number):
    owner = make_user()

    def full(handle: int) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpace):
        arrive(owner=owner, now=now)

    assert files() == []
    assert not AudioRecord.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL cannot be told to be full")
def test_a_database_that_is_full(now, files):
    owner = make_user()

    def set_most_pages(count: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA max_page_count = {count}")

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        pages = cursor.fetchone()[0]
    set_most_pages(pages)
    try:
        with pytest.raises(NoSpace):
            all(arrive(owner=owner, title="x" * 255, now=now) for _ in range(1000))
    finally:
        set_most_pages(2**31 - 2)

    assert AudioRecord.objects.count() == File.objects.count() == len(files())


@pytest.mark.django_db
def test_a_storage_that_is_no_disk(now, settings):
    settings.STORAGES = {**settings.STORAGES, "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"}}
    parts = Path(django_settings.DATA_DIR) / "scratch" / "incoming"

    with Arrival() as arrival:
        arrival.write(b"sound")
        assert arrival.path.parent == parts
        taken = take_in(arrival, owner=make_user(), name="a", now=now)
        assert arrival.path.exists()

    assert not arrival.path.exists()
    with default_storage.open(taken.record.original_file.location) as stored:
        assert stored.read() == b"sound"


# ---- sending again ------------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_many_at_once_with_one_key_are_one_record(now, files):
    owner = make_user()

    outcomes = at_once([lambda: arrive(owner=owner, key="k", now=now)] * 6)

    records = {outcome.record.pk for outcome in outcomes}
    assert records == {AudioRecord.objects.get().pk}
    assert sorted(outcome.is_new for outcome in outcomes) == [False] * 5 + [True]
    assert len(files()) == File.objects.count() == IntakeKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_different_recordings_at_once_with_one_key_are_one_record(now, files):
    owner = make_user()

    outcomes = at_once([partial(arrive, f"sound {n}".encode(), owner=owner, key="k", now=now) for n in range(4)])

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["KeyReused"] * 3 + ["Taken"]
    assert len(files()) == File.objects.count() == AudioRecord.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_who_is_overtaken_between_look_and_commit_gets_the_winners_record(now, files, monkeypatch):
    from records.operations import intake

    owner = make_user()
    keep = intake._keep

    def keep_and_be_overtaken(arrival: Arrival, location: str) -> None:
        monkeypatch.setattr(intake, "_keep", keep)
        winners.append(arrive(owner=owner, key="k", now=now))
        keep(arrival, location)

    winners: list[Taken] = []
    monkeypatch.setattr(intake, "_keep", keep_and_be_overtaken)

    taken = arrive(owner=owner, key="k", now=now)

    assert (taken.record.pk, taken.is_new) == (winners[0].record.pk, False)
    assert len(files()) == File.objects.count() == AudioRecord.objects.count() == 1


def at_once(acts: list[Callable[[], Taken]]) -> list[Any]:
    outcomes: list[Any] = []
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], Taken]) -> None:
        start.wait()
        try:
            outcomes.append(act())
        except Exception as error:
            outcomes.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[act]) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


# ---- what senders say ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "clean"),
    [("", ""), (" ", ""), ("EN", "en"), ("pt-br", "pt-BR"), ("zh-hant-tw", "zh-Hant-TW"), ("de-1996", "de-1996"), ("yue", "yue")],
)
def test_a_language_is_written_as_usual(tag, clean):
    assert clean_language(tag) == clean


@pytest.mark.parametrize(
    "tag", ["e", "english", "en_US", "en-", "-en", "en--US", "ен", "en US", "en\nUS", "auto", "en-" + "a" * 40, "en-123456789"]
)
def test_what_is_no_language(tag):
    with pytest.raises(BadLanguage):
        clean_language(tag)


@pytest.mark.parametrize(
    ("name", "title"),
    [("a.b.ogg", "a.b"), ("1.5", "1.5"), ("x.3gp", "x"), ("talk.", "talk."), (".ogg", ".ogg"), ("", ""), ("a/b\\c.mp3", "c"), ("dir/", "")],
)
def test_the_title_of_a_name(name, title):
    assert title_of(name) == title


def test_a_title_is_one_line_that_fits():
    assert clean_title(" a\r\n\tb\x00\x9f\ud800c ") == "abc"
    assert clean_title("x" * 300) == "x" * 255
    assert clean_title("x" * 254 + " yz") == "x" * 254
