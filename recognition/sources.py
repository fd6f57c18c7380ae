"""Stored recordings as files that programs can open."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.core.files.storage import Storage


@contextmanager
def local_copy(storage: Storage, name: str, folder: Path) -> Iterator[Path]:
    """The file as a path that programs can open: itself where it lies on a disk, else a copy in `folder` for as long as the context lasts.

    Raises FileNotFoundError.
    """
    try:
        path = Path(storage.path(name))
    except NotImplementedError:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / uuid.uuid4().hex
        try:
            with storage.open(name, "rb") as source, path.open("xb") as out:
                for chunk in source.chunks():
                    out.write(chunk)
            yield path
        finally:
            path.unlink(missing_ok=True)
    else:
        if not path.is_file():
            raise FileNotFoundError(name)
        yield path
