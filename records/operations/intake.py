"""Taking recordings in, for whoever brings them: the API, a command, a bot.

Bytes go to disk as they arrive (:class:`Arrival`): under a name of ours beside their final place, counted and hashed on the way.
:func:`take_in` then makes them durable, gives them their final name, and commits the record; only after that may anybody be told that the
recording was accepted. What was not taken in is removed by whoever opened it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import sqlite3
import unicodedata
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from django.conf import settings
from django.core.files.base import File as Bytes
from django.core.files.storage import storages
from django.db import DatabaseError, IntegrityError, InterfaceError, transaction
from django.utils.translation import gettext_lazy as _

from records.models import AudioRecord, File, IntakeKey
from records.storage import TakesParts

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.utils.functional import _StrPromise as StrPromise

logger = logging.getLogger(__name__)

CHUNK = 256 * 1024
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class IntakeRefused(Exception):
    """A recording that is not taken in. `code` is for programs, `sentence` for people, in their language."""

    code: str
    sentence: StrPromise

    @property
    def message(self) -> str:
        return str(self.sentence)

    def __str__(self) -> str:
        return self.message


class Empty(IntakeRefused):
    code = "empty"
    sentence = _("The recording is empty.")


class TooLarge(IntakeRefused):
    code = "too_large"
    sentence = _("The recording is larger than this service accepts.")


class NoSpace(IntakeRefused):
    code = "disk_full"
    sentence = _("There is no space left for this recording; try again later.")


class StorageAway(IntakeRefused):
    code = "storage_unavailable"
    sentence = _("The storage of recordings does not answer; try again later.")


class KeyReused(IntakeRefused):
    code = "idempotency_key_reused"
    sentence = _("This Idempotency-Key was used for another recording.")


class BadLanguage(IntakeRefused):
    code = "bad_language"
    sentence = _("The language must be a BCP-47 tag, such as en or pt-BR.")


# ---- bytes --------------------------------------------------------------------------------------------------------------------------


class Arrival:
    """The bytes of a recording that is arriving. A context: what was not taken in when it ends is removed.

    `expected` is how many bytes there will be, where that is known: a disk that can't hold them is said so at once.
    Raises TooLarge, NoSpace and StorageAway, on opening and from :meth:`write`.
    """

    def __init__(self, *, expected: int = 0, limit: int | None = None) -> None:
        self.limit: int = settings.TRANSCRIBER.intake.max_size if limit is None else limit
        self.size = 0
        self._hash = hashlib.sha256()
        if expected > self.limit:
            raise TooLarge
        with _storage_errors():
            self.path = _part_path()
            if expected > shutil.disk_usage(self.path.parent).free:
                raise NoSpace
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)

    def write(self, chunk: bytes | memoryview) -> None:
        if self.size + len(chunk) > self.limit:
            raise TooLarge
        left = memoryview(chunk)
        with _storage_errors():
            while left:  # a raw write may be short
                left = left[self._file.write(left) :]
        self._hash.update(chunk)
        self.size += len(chunk)

    @property
    def digest(self) -> str:
        """SHA-256 of what has arrived, in hex."""
        return self._hash.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def _part_path() -> Path:
    """A fresh name for a part; beside the final files where the storage lies on a disk of ours."""
    storage = storages["default"]
    if isinstance(storage, TakesParts):
        return storage.part_path()
    folder = Path(settings.DATA_DIR) / "scratch" / "incoming"  # where housekeeping sweeps what a killed process left
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{uuid.uuid4().hex}.part"


@contextmanager
def _storage_errors() -> Iterator[None]:
    """A full disk, said by the file system or by the database, as NoSpace; a storage that can't be written to as StorageAway."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise NoSpace from error
        logger.error("a recording could not be stored: %s", error.strerror or type(error).__name__)
        raise StorageAway from error
    except DatabaseError as error:
        cause = error.__cause__
        if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == "53100":
            raise NoSpace from error
        raise


# ---- records ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """The record of a recording. `is_new` is false where it had been taken in under the same key before."""

    record: AudioRecord
    is_new: bool


def take_in(arrival: Arrival, *, owner: User, name: str, now: datetime, title: str = "", language: str = "", key: str = "") -> Taken:
    """Make a record of a recording that has arrived whole. When this returns, it survives a power cut.

    `name` is the sent file's name: it gives the title where none is given, and nothing else. The same `key` from the same owner gives the
    same record, also to two who come at once. Raises IntakeRefused.
    """
    language = clean_language(language)
    if not arrival.size:
        raise Empty
    if key and (earlier := _under_key(arrival, owner=owner, key=key)):
        return earlier
    record = AudioRecord(
        owner=owner,
        title=clean_title(title) or title_of(name),
        language=language,
        state_entered_at=now,
        delay_time=now,
        created=now,
        updated=now,
    )
    location = f"{record.folder}/original"
    with _storage_errors():
        try:
            _keep(arrival, location)
            with transaction.atomic():
                record.original_file = File.objects.create(location=location, size=arrival.size, created=now, updated=now)
                record.save(force_insert=True)
                if key:
                    IntakeKey.objects.create(owner=owner, key=key, digest=arrival.digest, record=record, created=now, updated=now)
        except IntegrityError:
            _remove(location)
            if key and (earlier := _under_key(arrival, owner=owner, key=key)):  # somebody was first
                return earlier
            raise
        except BaseException:
            _remove_unless_committed(record, location)
            raise
    logger.info("record %s taken in: %d bytes", record.pk, arrival.size)
    return Taken(record, is_new=True)


def take_in_stream(source: BinaryIO, *, owner: User, name: str, now: datetime, title: str = "", language: str = "") -> Taken:
    """The same for a recording that can be read at leisure, as from a file."""
    with Arrival() as arrival:
        while chunk := source.read(CHUNK):
            arrival.write(chunk)
        return take_in(arrival, owner=owner, name=name, title=title, language=language, now=now)


def _under_key(arrival: Arrival, *, owner: User, key: str) -> Taken | None:
    known = IntakeKey.objects.select_related("record").filter(owner=owner, key=key).first()
    if known is None:
        return None
    if known.digest != arrival.digest:
        raise KeyReused
    return Taken(known.record, is_new=False)


def _keep(arrival: Arrival, location: str) -> None:
    """Give the bytes their final name, durably."""
    storage = storages["default"]
    if isinstance(storage, TakesParts):
        storage.adopt(arrival.path, location)
    else:
        with arrival.path.open("rb") as contents:
            storage.save(location, Bytes(contents))


def _remove(location: str) -> None:
    try:
        storages["default"].delete(location)
    except OSError:
        logger.warning("a file that was not taken in could not be removed")


def _remove_unless_committed(record: AudioRecord, location: str) -> None:
    """A connection lost in the commit leaves open whether there is a record now; its file must not be taken away. What can't be known is left
    to the sweep of files without a record."""
    try:
        committed = AudioRecord.objects.filter(pk=record.pk).exists()
    except (DatabaseError, InterfaceError):
        return
    if not committed:
        _remove(location)


# ---- what senders say ---------------------------------------------------------------------------------------------------------------

TITLE_LENGTH = 255
_EXTENSION = re.compile(r"(?<=.)\.(?=[0-9]*[A-Za-z])[A-Za-z0-9]{1,5}$", re.DOTALL)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
# Controls, surrogates, and the separators of lines and paragraphs: nothing a line of text can show. Joiners and direction marks stay: emoji
# and right-to-left names need them.
_UNSHOWABLE = ("Cc", "Cs", "Zl", "Zp")


def clean_title(title: str) -> str:
    """A title as one line of text that fits its column."""
    return _shown(title)[:TITLE_LENGTH].rstrip()


def title_of(name: str) -> str:
    """The title that a sent file's name gives: without folders and extension."""
    last = _shown(name).replace("\\", "/").rsplit("/", 1)[-1]
    return clean_title(_EXTENSION.sub("", last))


def _shown(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c) not in _UNSHOWABLE).strip()


def clean_language(tag: str) -> str:
    """A BCP-47 tag as it is usually written (`en`, `pt-BR`, `zh-Hant`); empty stays empty. Raises BadLanguage."""
    tag = tag.strip()
    if not tag:
        return ""
    if len(tag) > 35 or not _LANGUAGE.fullmatch(tag):
        raise BadLanguage
    language, *rest = tag.split("-")
    shaped = {2: str.upper, 4: str.title}
    return "-".join([language.lower(), *(shaped.get(len(part), str.lower)(part) for part in rest)])
