"""Files on a local disk, kept so that what was accepted survives a power cut.

Django's own file storage never calls fsync, and its move can accept a cut-off file. Here bytes are written under another name on the same
file system, synced, given their final name, and the folder is synced; only then has a file been saved.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from django.core.files.base import File
from django.core.files.storage import FileSystemStorage

INCOMING = ".incoming"
ATTEMPTS = 20
"""So often a folder may vanish between its making and its use, as files beside ours are deleted."""


@runtime_checkable
class TakesParts(Protocol):
    """A storage that makes a file of its own out of one that lies on its disk already."""

    def part_path(self) -> Path: ...

    def adopt(self, part: Path, name: str) -> str: ...


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DurableFileSystemStorage(FileSystemStorage):
    """Django's file storage with durable writes. Names are ours and unique: nothing is ever overwritten."""

    def part_path(self) -> Path:
        """A fresh name, on the same file system as the final ones, for bytes that are still arriving. Whoever opens it removes it."""
        folder = Path(self.location) / INCOMING
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{uuid.uuid4().hex}.part"

    def adopt(self, part: Path, name: str) -> str:
        """Make a part that is whole the file `name`, durably. Raises FileExistsError, OSError; the part stays on failure."""
        final = Path(self.path(name))
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        made = self._link(part, final)
        part.unlink()
        for changed in (final.parent, *(folder.parent for folder in made)):
            sync_folder(changed)
        return name

    @staticmethod
    def _link(part: Path, final: Path) -> list[Path]:
        """Give the part its final name; gives the folders made for it. Unlike a rename, a link never replaces a file."""
        for attempt in range(ATTEMPTS):
            made = [folder for folder in final.parents if not folder.exists()]
            try:
                final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                final.hardlink_to(part)
            except (FileNotFoundError, FileExistsError):
                # The last file of the folder was deleted in between, and the folder with it: before the link, or while mkdir() looked
                # whether what stood in its way is a folder.
                if attempt == ATTEMPTS - 1 or not part.exists() or final.exists():
                    raise
            else:
                return made
        raise AssertionError("not reached")

    def _save(self, name: str, content: File[Any]) -> str:
        part = self.part_path()
        try:
            with part.open("xb") as out:
                os.fchmod(out.fileno(), 0o600)
                for chunk in content.chunks():
                    out.write(chunk)
            return self.adopt(part, name)
        finally:
            part.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        super().delete(name)
        folder = Path(self.path(name)).parent
        with suppress(OSError):  # not empty, or gone already
            folder.rmdir()
