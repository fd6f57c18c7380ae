"""A folder for the files of a step under way; named after the acquisition, so that what a killed worker left is known by its name."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings


def scratch_root() -> Path:
    return Path(settings.DATA_DIR) / "scratch"


@contextmanager
def scratch_folder(acquisition_id: uuid.UUID) -> Iterator[Path]:
    """An empty folder that is gone when the context ends."""
    folder = scratch_root() / str(acquisition_id)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
