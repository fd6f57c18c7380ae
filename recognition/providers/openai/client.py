"""The one request of the API, with timeouts and typed errors.

It has a connection of its own, is never repeated or redirected in here, and works in a thread, so that the heart beats while the server
recognizes. What the server writes into its messages may hold anything and is not passed on.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from recognition.contract import Busy, Misconfigured, NotAccepted, OutcomeUnknown, ProviderError, Refused, Transient
from recognition.providers.refusals import DEFINITE_REFUSALS
from recognition.providers.retry_after import pause_of

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
BEAT_SECONDS = 0.5
PATIENCE = 4.0
"""Seconds in which a paid answer may still come after we were told to stop; a worker has six."""
CHUNK = 2**16
MAX_ANSWER = 2**28
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A server may be silent for hours while it recognizes; that it is gone shows within two minutes all the same."""


class OpenAIClient:
    """`paid`: an answer that is lost leaves open whether money was spent (`OutcomeUnknown`); else it is asked for again (`Transient`)."""

    def __init__(self, *, base_url: str, api_key: str, paid: bool) -> None:
        self._url = f"{base_url.rstrip('/')}/audio/transcriptions"
        self._auth = _BearerKey(api_key.strip())
        self._paid = paid

    def transcribe(self, form: Form, *, seconds: float, beat: Callable[[], None]) -> bytes:
        """Send the form and give the answer as it came: JSON with a text.

        Waits at most `seconds` for a sign of the server. What `beat` raises comes through; a paid answer is waited for a moment longer, and
        given if it comes. For certain nothing was recognized after `NotAccepted`, `Refused`, `Busy` and `Misconfigured`.
        """
        self._auth.check()
        exchange = _Exchange(self._url, self._auth, form, seconds)
        exchange.start()
        try:
            while not exchange.ended.wait(BEAT_SECONDS):
                beat()
        except BaseException:
            if not (self._paid and exchange.ended.wait(PATIENCE)):
                exchange.abandon()
                raise
        if exchange.error is not None:
            raise self._no_answer(exchange, exchange.error) from exchange.error
        return self._judged(exchange)

    def _no_answer(self, exchange: _Exchange, error: BaseException) -> BaseException:
        if not isinstance(error, (requests.RequestException, HTTPError, OSError)):
            return error
        kind = type(error).__name__
        if not exchange.form.is_sent:
            return NotAccepted("provider_unreachable", f"The recording could not be sent to the server in [openai] base_url ({kind}).")
        return self._unclear("provider_unreachable", f"No whole answer came from the server in [openai] base_url ({kind}).")

    def _judged(self, exchange: _Exchange) -> bytes:
        status = exchange.status
        if 200 <= status < 300:
            if not is_transcription(exchange.body):
                raise self._unclear(
                    "answer_unreadable", "The server in [openai] base_url answered with something that is no transcription."
                )
            return exchange.body
        said = _error_of(exchange.body)
        logger.warning("the server of [openai] answered %d%s", status, _trace_of(exchange))
        match status:
            case 429 if "insufficient_quota" in said:
                raise Misconfigured("provider_quota_spent", "The account of TRANSCRIBER_OPENAI_API_KEY has no money or quota left (429).")
            case 429:
                raise self._busy(exchange)
            case 503 if not self._paid and "Retry-After" in exchange.headers:
                raise self._busy(exchange)
            case 401 | 402 | 403 | 404 | 405 | 407:
                raise _misconfigured(status)
            case 413:
                raise Refused("too_large", "The server does not take a recording of this size (413).")
            case 400 if {"model", "response_format", "timestamp_granularities", "timestamp_granularities[]"} & said:
                raise Misconfigured(
                    "provider_model", "The model in [openai] model is not there, or cannot give verbose_json with the times of words (400)."
                )
            case status if 300 <= status < 400:
                raise Misconfigured(
                    "provider_address", f"The server in [openai] base_url sends us elsewhere ({status}): write that address."
                )
            case status if status in DEFINITE_REFUSALS:
                raise Refused("provider_refused", f"The server refused the recording, or what was asked of it ({status}).")
            case _:
                raise self._unclear("provider_failed", f"The server in [openai] base_url answered with an error ({status}).")

    def _busy(self, exchange: _Exchange) -> Busy:
        return Busy("provider_busy", "The server asks to come back later.", retry_after=pause_of(exchange.headers.get("Retry-After", "")))

    def _unclear(self, code: str, sentence: str) -> ProviderError:
        if self._paid:
            perhaps = "The request may have been paid for all the same."
            return OutcomeUnknown("submission_unconfirmed", f"{sentence} {perhaps}")
        return Transient(code, sentence)


def is_transcription(body: bytes) -> bool:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and isinstance(answer.get("text"), str) and not answer.get("error")


# ---- the request --------------------------------------------------------------------------------------------------------------------


class Form:
    """A multipart form that reads its file from the disk while it is sent. Until its last bytes are asked for, nobody can have taken it.

    Raises `OSError` if there is no such file.
    """

    def __init__(self, file: Path, fields: Sequence[tuple[str, str]]) -> None:
        boundary = uuid.uuid4().hex
        parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
        parts.append(
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="recording.ogg"\r\nContent-Type: audio/ogg\r\n\r\n'
        )
        self._head = "".join(parts).encode()
        self._tail = f"\r\n--{boundary}--\r\n".encode()
        self._file = file
        self._size = file.stat().st_size
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self.is_abandoned = False
        self.is_sent = False

    def __len__(self) -> int:
        return len(self._head) + self._size + len(self._tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        left = self._size
        with self._file.open("rb") as file:
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk or self.is_abandoned:
                    raise OSError("the recording ended early, or is wanted no more")
                left -= len(chunk)
                yield chunk
        self.is_sent = True
        yield self._tail


class _Exchange(threading.Thread):
    """The request at work. Once it has `ended`, there is an `error`, or a `status` with `headers` and `body`."""

    def __init__(self, url: str, auth: AuthBase, form: Form, seconds: float) -> None:
        super().__init__(name="transcription", daemon=True)
        self._url, self._auth, self.form, self._seconds = url, auth, form, seconds
        self._connections: list[Any] = []
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.status = 0
        self.headers: Any = {}
        self.body = b""

    def run(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def _ask(self) -> None:
        give_up_at = time.monotonic() + self._seconds
        content = bytearray()
        with (
            self._new_session() as session,
            session.post(
                self._url,
                data=self.form,
                headers={"Content-Type": self.form.content_type},
                auth=self._auth,
                timeout=(CONNECT_TIMEOUT, self._seconds),
                allow_redirects=False,
                stream=True,
            ) as response,
        ):
            while chunk := response.raw.read1(2**16, decode_content=True):
                content += chunk
                if len(content) > MAX_ANSWER or time.monotonic() > give_up_at:
                    raise TimeoutError
        self.status, self.headers, self.body = response.status_code, response.headers, bytes(content)

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        adapter = _Adapter(self._seconds, self._connections)
        for scheme in ("https://", "http://"):
            session.mount(scheme, adapter)
        # As it came: a compressed body that was cut off can't always be told from a whole one.
        session.headers.update({"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"})
        return session

    def abandon(self) -> None:
        """End the connection: the server may notice and stop, the thread does."""
        self.form.is_abandoned = True
        for connection in self._connections:
            with suppress(OSError, TypeError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # below TLS, which the other thread is using


class _Adapter(HTTPAdapter):
    """Keeps the connections it makes in `connections`. Once one stands, the other side may take `patience` seconds over each read and write:
    a server that recognizes one recording at a time leaves the next one in the pipe."""

    def __init__(self, patience: float, connections: list[Any]) -> None:
        self._patience, self._made = patience, connections
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=Retry(total=0, read=False))

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        patience, made = self._patience, self._made

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                made.append(self)
                self.timeout = patience
                self.sock.settimeout(patience)
                with suppress(OSError):
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for name, value in _KEEPALIVE:
                        if hasattr(socket, name):
                            self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

        pool.ConnectionCls = Connection
        return pool


class _BearerKey(AuthBase):
    """The key, if there is one, as a header that no `.netrc` replaces."""

    def __init__(self, key: str) -> None:
        self._key = key

    def check(self) -> None:
        if self._key and not re.fullmatch(r"[!-~]+", self._key):
            raise Misconfigured("provider_key", "TRANSCRIBER_OPENAI_API_KEY has characters that no key has.")

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


# ---- answers ------------------------------------------------------------------------------------------------------------------------


def _error_of(body: bytes) -> set[str]:
    """What an error body says in words for programs: its `type`, `code` and `param`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return set()
    error = answer.get("error") if isinstance(answer, dict) else None
    return {value for key in ("type", "code", "param") if isinstance(value := error.get(key), str)} if isinstance(error, dict) else set()


def _misconfigured(status: int) -> Misconfigured:
    match status:
        case 401 | 403:
            return Misconfigured(
                "provider_key",
                f"The server in [openai] base_url does not take TRANSCRIBER_OPENAI_API_KEY, or not for this model ({status}).",
            )
        case 402:
            return Misconfigured("provider_quota_spent", "The account of TRANSCRIBER_OPENAI_API_KEY has no money left (402).")
        case 407:
            return Misconfigured("proxy_key", "The proxy between us and the server wants to know who we are (407).")
        case _:
            return Misconfigured(
                "provider_model", f"The model in [openai] model is not there, or [openai] base_url is not the server's API ({status})."
            )


def _trace_of(exchange: _Exchange) -> str:
    """What the vendor's support asks for."""
    value = exchange.headers.get("x-request-id", "")
    return f", x-request-id {value}" if re.fullmatch(r"[\w:.-]{1,100}", value) else ""
