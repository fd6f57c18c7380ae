"""What the web server itself refuses, before Django sees it, is answered in the API's shape."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

CODES = {
    HTTPStatus.BAD_REQUEST: ("malformed", "This is no request that HTTP knows."),
    HTTPStatus.REQUEST_URI_TOO_LONG: ("uri_too_long", "The address is too long."),
    HTTPStatus.EXPECTATION_FAILED: ("expectation_failed", "What the request expects can't be."),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: ("headers_too_large", "The request's headers are too long, or too many."),
    HTTPStatus.NOT_IMPLEMENTED: ("not_implemented", "The request's body comes in a way that is not understood."),
}


class Worker(ThreadWorker):  # type: ignore[misc]
    """Threads, and JSON where gunicorn would answer in HTML."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        refusal = _Heard(client)
        super().handle_error(req, refusal, addr, exc)
        if refusal.said:
            client.sendall(_in_shape(refusal.said))


class _Heard:
    """A socket that keeps what is sent to it."""

    def __init__(self, client: Any) -> None:
        self.said = b""
        self._client = client

    def sendall(self, data: bytes) -> None:
        self.said += data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _in_shape(answer: bytes) -> bytes:
    """The same status. Nothing of what was sent is repeated."""
    found = re.match(rb"HTTP/1\.[01] ([0-9]{3}) ", answer)
    status = HTTPStatus(int(found[1])) if found else HTTPStatus.INTERNAL_SERVER_ERROR
    code, detail = CODES.get(status, ("error", f"{status.phrase}."))
    kind = "client_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    body = json.dumps({"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
