"""Files in an object storage that speaks S3, for more than one machine (django-storages)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from storages.backends.s3 import S3Storage

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
READ_AHEAD = 1024 * 1024


class ObjectStorage(S3Storage):  # type: ignore[misc]
    """django-storages' S3, where a file has been saved only once the object is known to be there, and is read as far as it is asked for.

    Errors of the network and of the server are OSErrors, as those of a disk are.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{
                "default_acl": None,
                "file_overwrite": False,
                "signature_version": "s3v4",
                "client_config": Config(
                    signature_version="s3v4",
                    s3={"addressing_style": "path"},
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"max_attempts": 3, "mode": "standard"},
                    # Look-alikes of S3 do not all know the newer checksum headers.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
                **options,
            }
        )

    def _save(self, name: str, content: File[Any]) -> str:
        try:
            saved = str(super()._save(name, content))
            there = self.size(saved)
        except (BotoCoreError, ClientError) as error:
            raise OSError(f"the object storage did not take a file ({_code(error)})") from error
        if there != content.size:
            self.delete(saved)
            raise OSError("the object storage holds another number of bytes than was sent")
        return saved

    def _open(self, name: str, mode: str = "rb") -> File[Any]:
        if mode != "rb":
            raise ValueError("files are opened for reading, and saved whole")
        return File(io.BufferedReader(_Object(self, name, self.size(name)), READ_AHEAD), name)

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        try:
            head = self.connection.meta.client.head_object(Bucket=self.bucket_name, Key=self._normalize_name(name))
        except (BotoCoreError, ClientError) as error:
            if _code(error) in ("404", "NoSuchKey"):
                raise FileNotFoundError(name) from error
            raise OSError(f"the object storage did not answer ({_code(error)})") from error
        return int(head["ContentLength"])

    def delete(self, name: str) -> None:
        try:
            super().delete(name)
        except (BotoCoreError, ClientError) as error:
            raise OSError(f"the object storage did not remove a file ({_code(error)})") from error

    def get_modified_time(self, name: str) -> Any:
        try:
            return super().get_modified_time(name)
        except ClientError as error:
            raise FileNotFoundError(name) from error

    def stretch(self, name: str, start: int) -> Iterator[bytes]:
        """The object's bytes from `start` on, as they arrive."""
        try:
            answer = self.connection.meta.client.get_object(
                Bucket=self.bucket_name, Key=self._normalize_name(name), Range=f"bytes={start}-"
            )
            body = answer["Body"]
            try:
                yield from body.iter_chunks(256 * 1024)
            finally:
                body.close()
        except (BotoCoreError, ClientError) as error:
            raise OSError(f"the object storage broke off ({_code(error)})") from error


class _Object(io.RawIOBase):
    """An object as a seekable file: one request for each place from which it is read on."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        self._storage, self._name, self._size = storage, name, size
        self._at = 0
        self._arriving: Iterator[bytes] | None = None
        self._left = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        if target != self._at:
            self._stop()
            self._at = max(0, target)
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        if self._arriving is None:
            self._arriving = self._storage.stretch(self._name, self._at)
        if not self._left:
            self._left = next(self._arriving, b"")
            if not self._left:
                raise OSError("the object ended before its size")
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        self._at += count
        return count

    def close(self) -> None:
        self._stop()
        super().close()

    def _stop(self) -> None:
        arriving, self._arriving, self._left = self._arriving, None, b""
        if arriving is not None:
            arriving.close()  # type: ignore[attr-defined]


def _code(error: BotoCoreError | ClientError) -> str:
    """What went wrong, without addresses or keys."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "?"))
    return type(error).__name__
