"""Stored files as answers over HTTP: ranges, validators, and never the whole file in memory. For the API and the admin alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from django.core.files.storage import default_storage
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, http_date, parse_http_date_safe

from records import formats
from records.models import AudioRecord, File

CHUNK = 256 * 1024

TYPES = {
    "aac": ("audio/aac", "aac"),
    "aiff": ("audio/aiff", "aiff"),
    "amr": ("audio/amr", "amr"),
    "caf": ("audio/x-caf", "caf"),
    "flac": ("audio/flac", "flac"),
    "matroska": ("audio/webm", "webm"),
    "mov": ("audio/mp4", "m4a"),
    "mp3": ("audio/mpeg", "mp3"),
    "ogg": ("audio/ogg", "ogg"),
    "wav": ("audio/wav", "wav"),
}
"""Content type and extension by the format that was found in the bytes. What was sent along with them is not believed."""

TRANSCRIPT_TYPES = {"json": "application/json", "txt": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
"""Content types of a transcript, by its form."""


class NoSuchRange(Exception):
    """What is asked for lies beyond the file's end (416). `size`: the file's, in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def serve(request: HttpRequest, file: File, *, name: str, content_type: str, attachment: bool = True) -> HttpResponseBase:
    """The file, or the range of it that is asked for, under that name. Raises NoSuchRange, and FileNotFoundError where its bytes are gone."""
    etag, changed = f'"{file.pk.hex}"', int(file.created.timestamp())  # the bytes of a file row never change
    headers = {
        "Content-Type": content_type,
        "Content-Disposition": content_disposition_header(attachment, name) or "inline",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=3600",
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Last-Modified": http_date(changed),
    }
    whole = HttpResponse(headers=headers)
    conditional = get_conditional_response(request, etag, changed, whole)
    if conditional is not None and conditional is not whole:  # 304, 412
        return conditional
    start, end, code = 0, file.size, 200
    if asked := _range(request, file.size, etag=etag, changed=changed):
        start, end = asked
        code = 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    headers["Content-Length"] = str(end - start)
    contents = default_storage.open(file.location, "rb")
    if request.method == "HEAD":
        contents.close()
        return HttpResponse(status=code, headers=headers)
    return StreamingHttpResponse(_Stretch(contents, start, end), status=code, headers=headers)


class _Stretch:
    """Part of an open file, chunk by chunk. Not a generator: one that was never begun would leave the file open."""

    def __init__(self, contents: Any, start: int, end: int) -> None:
        self._contents, self._start, self._end = contents, start, end

    def __iter__(self) -> Iterator[bytes]:
        self._contents.seek(self._start)
        left = self._end - self._start
        while left and (chunk := self._contents.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk

    def close(self) -> None:
        self._contents.close()


def _range(request: HttpRequest, size: int, *, etag: str, changed: int) -> tuple[int, int] | None:
    """First byte and the one after the last, or None where the whole file is to be sent: no range, several, or one that is no range."""
    match = re.fullmatch(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", request.headers.get("Range", ""))
    if not match or match.groups() == ("", "") or request.method not in ("GET", "HEAD"):
        return None
    condition = request.headers.get("If-Range", "").strip()
    if condition and condition != etag and parse_http_date_safe(condition) != changed:
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < int(first):
            return None
    if start >= size or start >= end:
        raise NoSuchRange(size)
    return start, end


def content_type_of(kind: str) -> str:
    """Of a transcript in that form; JSON is UTF-8 without saying so."""
    return TRANSCRIPT_TYPES[kind] if kind == "json" else f"{TRANSCRIPT_TYPES[kind]}; charset=utf-8"


AS_USUAL = formats.Writing()


def transcript_as(record: AudioRecord, kind: str, writing: formats.Writing = AS_USUAL) -> str | None:
    """The transcript in one of the forms of TRANSCRIPT_TYPES, None where there is none. Reads the structure."""
    if record.structure is None:
        return None
    contents = record.structure.contents
    if kind == "json":
        return json.dumps({"version": record.structure.version, **contents}, ensure_ascii=False)
    write = {"txt": formats.to_txt, "srt": formats.to_srt, "vtt": formats.to_vtt}[kind]
    return write(formats.from_structure(contents), writing)
