"""Requests byte by byte: what no client library would send."""

from __future__ import annotations

import io
from typing import Any

from rest_framework.test import APIClient

RECORDS = "/api/v1/records/"
BOUNDARY = "a boundary, of all things"
FORM = f'multipart/form-data; boundary="{BOUNDARY}"'


class Unread(io.BytesIO):
    """A body that nobody may read."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise AssertionError("the body was read")


def part(name: str, contents: bytes, *, filename: str | bytes | None = None, **headers: str) -> bytes:
    raw_name = filename.encode() if isinstance(filename, str) else filename
    disposition = f'Content-Disposition: form-data; name="{name}"'.encode()
    if raw_name is not None:
        disposition += b'; filename="' + raw_name + b'"'
    lines = [disposition, *(f"{header.replace('_', '-')}: {value}".encode() for header, value in headers.items())]
    return b"\r\n".join([f"--{BOUNDARY}".encode(), *lines, b"", contents]) + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def post(client: APIClient, body: bytes, *, announced: int | None = None, content_type: str = FORM, **headers: Any) -> Any:
    """Send `body`; `announced` is what Content-Length says, if it is not the truth."""
    extra: dict[str, Any] = {
        "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body) if announced is None else announced),
        **headers,
    }
    return client.generic("POST", RECORDS, body, content_type=content_type, **extra)  # type: ignore[arg-type]  # bytes are taken as well
