"""A recording in a request's body: as the field `file` of a form, or as the body itself. It goes to disk as it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from django.db import connection
from django.http import HttpRequest, UnreadablePostError
from django.utils.http import parse_header_parameters
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from rest_framework import exceptions, status
from rest_framework.request import Request

from records.api.errors import Refusal, invalid
from records.operations.intake import CHUNK, Arrival, Empty

SILENCE_SECONDS = 60.0
"""How long a sender may send nothing before its request is ended: one that vanished without a word would hold a thread for ever."""

LARGEST_HEADERS = 16 * 1024  # of one part; a name of 300 letters may be 3,600 bytes once it is percent-encoded
LARGEST_FIELD = 16 * 1024
MOST_PARTS = 20
FORM_OVERHEAD = 256 * 1024  # by which a form may be larger than the recording in it
NEVER_A_RECORDING = ("application/json", "application/x-www-form-urlencoded")  # unless it is said to be a file


@dataclass(frozen=True)
class Upload:
    """What was sent: the bytes, the name they came under, and the other fields."""

    arrival: Arrival
    name: str
    fields: dict[str, str] = field(default_factory=dict)


@contextmanager
def receive(request: Request) -> Iterator[Upload]:
    """Receive a recording whole or not at all: every byte that was announced has come, and nothing of it is left on the disk once the context
    ends, unless it was taken in.

    What the headers say is checked before a byte is read. Django's form parser is not used: it takes a form for whole that ends early, gives
    up on long names, and removes the joiners of emoji from them.
    """
    sent = request._request
    length = _length(sent)
    is_form = sent.content_type == "multipart/form-data"
    form = _Form(sent, length) if is_form else None
    name = "" if is_form else _name(sent)
    with Arrival(expected=max(0, length - FORM_OVERHEAD) if is_form else length) as arrival, _patience(sent):
        if form:
            upload = form.read(arrival)
        else:
            body = Body(sent, length)
            while chunk := body.read():
                arrival.write(chunk)
            upload = Upload(arrival, name, {"language": sent.headers.get("Content-Language", "")})
        connection.health_check_done = False  # type: ignore[attr-defined]  # it may have lain idle for an hour while the recording came
        yield upload


def _length(sent: HttpRequest) -> int:
    announced = sent.META.get("CONTENT_LENGTH") or ""
    if not announced or "HTTP_TRANSFER_ENCODING" in sent.META:
        raise Refusal(status.HTTP_411_LENGTH_REQUIRED, "length_required", _("Say how long the request is in a Content-Length header."))
    if not re.fullmatch(r"[0-9]{1,18}", announced):
        raise Refusal(status.HTTP_400_BAD_REQUEST, "malformed", _("Content-Length must be a number of bytes."))
    if not int(announced):
        raise Empty
    return int(announced)


def _name(sent: HttpRequest) -> str:
    """The name in the Content-Disposition header of a raw body."""
    header = sent.headers.get("Content-Disposition", "")
    with suppress(UnicodeError):
        header = header.encode("latin-1").decode("utf-8")  # WSGI hands out UTF-8 as if it were Latin-1
    name = _parameters(header).get("filename")
    if name is None and sent.content_type in NEVER_A_RECORDING:
        raise exceptions.UnsupportedMediaType(sent.content_type or "")
    if name is None:
        raise Refusal(
            status.HTTP_400_BAD_REQUEST,
            "name_missing",
            _(
                "Send a form with the field file, or the recording itself with its name in a header: Content-Disposition: attachment; filename=…."
            ),
        )
    return name


def _parameters(header: str) -> dict[str, str]:
    try:
        return dict(parse_header_parameters(header)[1])
    except ValueError:  # an encoding that is none
        return {}


@contextmanager
def _patience(sent: HttpRequest) -> Iterator[None]:
    """Wait for the sender's next bytes, but not for ever."""
    socket = sent.META.get("gunicorn.socket")
    if socket is None:
        yield
        return
    socket.settimeout(SILENCE_SECONDS)
    try:
        yield
    finally:
        socket.settimeout(None)


class Body:
    """A request's body: exactly as many bytes as were announced, or a Refusal."""

    def __init__(self, sent: HttpRequest, length: int) -> None:
        self._sent = sent
        self._left = length

    def read(self) -> bytes:
        """The next bytes; none once all have come."""
        if not self._left:
            return b""
        try:
            chunk = self._sent.read(min(CHUNK, self._left))
        except UnreadablePostError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise Refusal(status.HTTP_408_REQUEST_TIMEOUT, "too_slow", _("Nothing came for too long.")) from error
            chunk = b""
        if not chunk:
            raise Refusal(status.HTTP_400_BAD_REQUEST, "cut_off", _("The request ended before all that Content-Length announced had come."))
        self._left -= len(chunk)
        return chunk


# ---- forms --------------------------------------------------------------------------------------------------------------------------


class _Form:
    """A `multipart/form-data` body (RFC 7578), read as it arrives."""

    def __init__(self, sent: HttpRequest, length: int) -> None:
        boundary = (sent.content_params or {}).get("boundary", "")
        if not re.fullmatch(r"[ -~]{0,199}[!-~]", boundary):
            raise _malformed(_("The form's Content-Type has no boundary."))
        self._body = Body(sent, length)
        self._delimiter = b"\r\n--" + boundary.encode()
        self._buffer = b"\r\n"  # so that the first delimiter looks like all others

    def read(self, arrival: Arrival) -> Upload:
        name: str | None = None
        fields: dict[str, str] = {}
        self._until(self._delimiter, _Collected(LARGEST_HEADERS))
        for _number in range(MOST_PARTS):
            if self._is_last():
                break
            field_name, file_name = self._headers()
            if file_name is not None:
                if field_name != "file" or name is not None:
                    raise invalid(field_name, "unexpected_file", _("Send one file, in the field file."))
                name = file_name
                self._until(self._delimiter, arrival.write)
            else:
                if field_name in fields:
                    raise invalid(field_name, "repeated", _("Send this once."))
                value = _Collected(LARGEST_FIELD)
                self._until(self._delimiter, value)
                fields[field_name] = value.text()
        else:
            raise _malformed(
                ngettext("The form has more than %(count)d part.", "The form has more than %(count)d parts.", MOST_PARTS)
                % {"count": MOST_PARTS}
            )
        if name is None or (name == "" and not arrival.size):
            raise invalid("file", "required", _("Send the recording as a file, in the field file."))
        return Upload(arrival, name, fields)

    def _headers(self) -> tuple[str, str | None]:
        """Name of the field, and of the file if the part is one."""
        lines = _Collected(LARGEST_HEADERS)
        self._until(b"\r\n\r\n", lines)
        headers = {name.strip().lower(): value for name, _, value in (line.partition(":") for line in lines.text("replace").split("\r\n"))}
        parameters = _parameters(headers.get("content-disposition", ""))
        if not parameters.get("name"):
            raise _malformed(_("A part of the form has no name."))
        if headers.get("content-transfer-encoding", "").strip().lower() in ("base64", "quoted-printable"):
            raise _malformed(_("The parts of a form must not be encoded."))
        return parameters["name"], parameters.get("filename")

    def _is_last(self) -> bool:
        """After a delimiter: whether it was the closing one. What follows that is nothing, but must have come."""
        while len(self._buffer) < 2:
            self._more()
        if self._buffer.startswith(b"\r\n"):
            return False
        if not self._buffer.startswith(b"--"):
            raise _malformed(_("A boundary of the form is damaged."))
        rest = _Collected(LARGEST_HEADERS)
        rest(self._buffer)
        while chunk := self._body.read():
            rest(chunk)
        return True

    def _until(self, mark: bytes, take: Callable[[bytes], object]) -> None:
        """Hand on everything before the next `mark`, and step over it."""
        keep = len(mark) - 1  # the mark may have come in part
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > keep:
                take(self._buffer[:-keep])
                self._buffer = self._buffer[-keep:]
            self._more()
        take(self._buffer[:at])
        self._buffer = self._buffer[at + len(mark) :]

    def _more(self) -> None:
        chunk = self._body.read()
        if not chunk:
            raise _malformed(_("The form ends before its closing boundary."))
        self._buffer += chunk


class _Collected:
    """A part that is kept in memory, because it must be short."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._bytes += chunk
        if len(self._bytes) > self._limit:
            raise _malformed(_("A part of the form is too long."))

    def text(self, errors: str = "strict") -> str:
        try:
            return self._bytes.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise _malformed(_("A field of the form is not UTF-8.")) from error


def _malformed(detail: str) -> Refusal:
    return Refusal(status.HTTP_400_BAD_REQUEST, "malformed", detail)
