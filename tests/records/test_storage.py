from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from records.storage import DurableFileSystemStorage

pytestmark = pytest.mark.no_database


@pytest.fixture
def storage(tmp_path: Path) -> DurableFileSystemStorage:
    return DurableFileSystemStorage(location=str(tmp_path / "media"))


def everything(storage: DurableFileSystemStorage) -> list[str]:
    return sorted(str(path.relative_to(storage.location)) for path in Path(storage.location).rglob("*") if path.is_file())


def test_what_is_saved_can_be_read_and_leaves_nothing_else(storage):
    name = storage.save("records/ab/x/original", ContentFile(b"bytes"))
    assert Path(storage.path(name)).read_bytes() == b"bytes"
    assert everything(storage) == ["records/ab/x/original"]
    assert Path(storage.path(name)).stat().st_mode & 0o777 == 0o600


def test_a_part_becomes_the_file(storage):
    part = storage.part_path()
    part.write_bytes(b"bytes")
    storage.adopt(part, "records/ab/x/original")
    assert everything(storage) == ["records/ab/x/original"]


def test_nothing_is_overwritten(storage):
    storage.save("a/original", ContentFile(b"first"))
    part = storage.part_path()
    part.write_bytes(b"second")
    with pytest.raises(FileExistsError):
        storage.adopt(part, "a/original")
    assert Path(storage.path("a/original")).read_bytes() == b"first"
    assert storage.save("a/original", ContentFile(b"third")) != "a/original"


def test_bytes_are_durable_before_the_name_and_the_name_before_we_go_on(storage, monkeypatch):
    """The order a power cut would test: fsync of the file, the final name, fsync of the folders that got a name."""
    order: list[str] = []
    real_fsync, real_link = os.fsync, Path.hardlink_to

    def fsync(handle: int) -> None:
        target = Path(f"/proc/self/fd/{handle}").resolve() if sys.platform == "linux" else Path("?")
        order.append(f"fsync {'folder' if target.is_dir() else 'file'} {target.name}" if target.is_dir() else "fsync file")
        real_fsync(handle)

    def link(self: Path, target: Path) -> None:
        order.append("name")
        real_link(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "hardlink_to", link)
    part = storage.part_path()
    part.write_bytes(b"bytes")

    storage.adopt(part, "records/ab/x/original")

    assert order[:2] == ["fsync file", "name"]
    assert {entry.split()[-1] for entry in order[2:]} == {"x", "ab", "records", "media"}


def test_a_full_disk_leaves_nothing(tmp_path):
    """A process that may write no file over 4 kB stands for the full disk."""
    script = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
import django
from django.conf import settings
settings.configure()
django.setup()
from django.core.files.base import ContentFile
from records.storage import DurableFileSystemStorage
try:
    DurableFileSystemStorage(location={str(tmp_path)!r}).save("a/original", ContentFile(b"x" * 10000))
except OSError as error:
    sys.exit(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == errno.EFBIG
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_deleting_the_last_file_takes_its_folder_along(storage):
    name = storage.save("records/ab/x/original", ContentFile(b"bytes"))
    storage.delete(name)
    assert not Path(storage.path("records/ab/x")).exists()
    storage.delete(name)  # and once more harms nobody


def test_saving_and_deleting_in_one_folder_at_once_lose_nothing(storage):
    lost: list[str] = []

    def come_and_go(number: int) -> None:
        for turn in range(50):
            name = storage.save(f"shard/{number}-{turn}", ContentFile(b"x"))
            if not storage.exists(name):
                lost.append(name)
            storage.delete(name)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert everything(storage) == []
