"""The calls of SpeechKit's REST API v3, with timeouts and typed errors.

Every call has a connection of its own: nothing is shared over a fork, and no kept-alive connection can have died unseen. Nothing is ever
repeated or redirected in here. What the service writes into its messages may hold anything and is not passed on; codes are.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from recognition.contract import Busy, Misconfigured, NotAccepted, OutcomeUnknown, ProviderError, Refused, Transient
from recognition.providers.refusals import DEFINITE_REFUSALS
from recognition.providers.retry_after import pause_of
from recognition.providers.speechkit.status import grpc_code

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
SUBMIT_TIMEOUT = 60.0
"""Seconds of silence after a submission. Generous: what is given up on here stays unknown until a person looks."""
READ_TIMEOUT = 30.0
ANSWER_SECONDS = 120.0
"""In which an answer has to be whole, though its bytes keep trickling. Results have no such limit: the step that fetches them has one."""
MAX_ANSWER = 2**20
MAX_RESULT = 2**28
"""Bytes. The result of four hours is some tens of megabytes."""
MAX_ID = 50


@dataclass(frozen=True, slots=True)
class Operation:
    """How an operation stands. `failed`: it has an error, whether or not it says that it is done; `error_code` is google.rpc's, if given."""

    done: bool
    failed: bool = False
    error_code: int | None = None
    created_at: datetime | None = None
    modified_at: datetime | None = None
    told_at: datetime | None = field(default=None, compare=False)
    """By the service's own clock: ours may be wrong."""

    @property
    def since_modified(self) -> timedelta | None:
        """How long ago it changed last, which is when it was done."""
        return self.told_at - self.modified_at if self.told_at and self.modified_at else None


class SpeechKitClient:
    """Errors of all calls but `submit`: `Misconfigured` (401, 403), `Busy` (429, or 503 with a date to come back at), `Refused` (other 4xx),
    `Transient` (the network, 5xx, what can't be read)."""

    def __init__(self, *, stt_url: str, operations_url: str, api_key: str) -> None:
        self._stt_url = stt_url.rstrip("/")
        self._operations_url = operations_url.rstrip("/")
        self._auth = _ApiKey(api_key.strip())

    def submit(self, body: Mapping[str, Any]) -> str:
        """`recognizeFileAsync`: the paid call, made once. Gives the operation's id.

        For certain nothing was bought after `NotAccepted`, `Refused`, `Busy` and `Misconfigured`; after `OutcomeUnknown` nobody knows.
        """
        content = _Body(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
        try:
            answer = self._call("POST", f"{self._stt_url}/stt/v3/recognizeFileAsync", read_timeout=SUBMIT_TIMEOUT, body=content)
        except _NoAnswer as error:
            if not content.is_sent:
                raise NotAccepted("provider_unreachable", f"SpeechKit could not be reached ({error.kind}).") from error
            raise OutcomeUnknown(
                "submission_unconfirmed", f"No answer came back to the submission ({error.kind}); SpeechKit may have accepted it."
            ) from error
        if not 200 <= answer.status < 300:
            raise _refusal_of_submission(answer)
        operation = answer.json()
        external_id = operation.get("id") if isinstance(operation, dict) else None
        if not isinstance(external_id, str) or not re.fullmatch(rf"[!-~]{{1,{MAX_ID}}}", external_id):
            raise OutcomeUnknown("submission_unconfirmed", "SpeechKit accepted the submission, but its answer has no id that can be used.")
        return external_id

    def operation(self, external_id: str) -> Operation | None:
        """How the operation stands; None if there is no such operation (404)."""
        answer = self._call("GET", f"{self._operations_url}/operations/{quote(external_id, safe='')}")
        if answer.status == 404:
            return None
        found = _require_success(answer).json()
        if not isinstance(found, dict) or found.get("id") != external_id:
            raise Transient("answer_unreadable", "SpeechKit's answer about the operation could not be read.")
        error = found.get("error")
        return Operation(
            done=found.get("done", False) is True,
            failed=bool(error),
            error_code=grpc_code(found) if error else None,
            created_at=_moment(found.get("createdAt")),
            modified_at=_moment(found.get("modifiedAt")),
            told_at=_http_date(answer.headers.get("Date", "")),
        )

    def result(self, external_id: str, *, beat: Callable[[], None]) -> bytes | None:
        """The bytes of the result, as they came; None if there is nothing to give (404). `beat` is called as they arrive, and may raise."""
        answer = self._call(
            "GET",
            f"{self._stt_url}/stt/v3/getRecognition",
            params={"operationId": external_id},
            max_bytes=MAX_RESULT,
            seconds=float("inf"),
            beat=beat,
        )
        return None if answer.status == 404 else _require_success(answer).body

    def delete(self, external_id: str) -> None:
        """Remove the result over there. Nothing happens if it is gone."""
        answer = self._call("DELETE", f"{self._stt_url}/stt/v3/deleteRecognition", params={"operationId": external_id})
        if answer.status != 404:
            _require_success(answer)

    def _call(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        body: _Body | None = None,
        read_timeout: float | None = None,
        max_bytes: int | None = None,
        seconds: float | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> Answer:
        """One request, one answer of whatever status. Raises `_NoAnswer`."""
        self._auth.check()
        max_bytes = MAX_ANSWER if max_bytes is None else max_bytes
        give_up_at = time.monotonic() + (ANSWER_SECONDS if seconds is None else seconds)
        content = bytearray()
        try:
            with (
                _new_session() as session,
                session.request(
                    method,
                    url,
                    params=params,
                    data=body,
                    headers={"Content-Type": "application/json"} if body else None,
                    auth=self._auth,
                    timeout=(CONNECT_TIMEOUT, READ_TIMEOUT if read_timeout is None else read_timeout),
                    allow_redirects=False,
                    stream=True,
                ) as response,
            ):
                while chunk := response.raw.read1(2**16, decode_content=True):
                    content += chunk
                    beat()
                    if len(content) > max_bytes or time.monotonic() > give_up_at:
                        raise _NoAnswer("TooLong")
        except (requests.RequestException, HTTPError, OSError) as error:
            raise _NoAnswer(type(error).__name__) from error
        answer = Answer(response.status_code, response.headers, bytes(content))
        if answer.status >= 300:
            logger.warning("SpeechKit answered %d%s", answer.status, _trace_of(answer))
        return answer


OUTAGE = ("provider_unreachable", "provider_failed")
"""Codes of failures that are the network's or the service's, whatever was asked."""


class _NoAnswer(Transient):
    """No answer, or none that is whole. `kind` says in a word or two how that came."""

    def __init__(self, kind: str) -> None:
        super().__init__("provider_unreachable", f"No answer came from SpeechKit ({kind}).")
        self.kind = kind


# ---- requests -----------------------------------------------------------------------------------------------------------------------


class _Body:
    """A body that knows whether it was asked for: as long as no byte of it has left, nobody can have accepted it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.is_sent = False

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[bytes]:
        self.is_sent = True
        yield self._content


class _ApiKey(AuthBase):
    """The key as a header that no `.netrc` replaces."""

    def __init__(self, key: str) -> None:
        self._key = key

    def check(self) -> None:
        if not self._key:
            raise Misconfigured("provider_key", "There is no key for SpeechKit: set TRANSCRIBER_SPEECHKIT_API_KEY in the environment.")
        if not re.fullmatch(r"[!-~]+", self._key):
            raise Misconfigured("provider_key", "TRANSCRIBER_SPEECHKIT_API_KEY has characters that no key has.")

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Api-Key {self._key}"
        return request


def _new_session() -> requests.Session:
    session = requests.Session()
    adapter = HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=Retry(total=0, read=False))
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)
    # Whole and as it came: a compressed body that was cut off can't always be told from a whole one.
    session.headers.update({"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"})
    return session


# ---- answers ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """None if it is no JSON: balancers answer with HTML or nothing."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def _require_success(answer: Answer) -> Answer:
    if 200 <= answer.status < 300:
        return answer
    match answer.status:
        case 429:
            raise _busy(answer)
        case 503 if "Retry-After" in answer.headers:
            raise _busy(answer)
        case 401 | 402 | 403 | 407:
            raise _misconfigured(answer.status)
        case 408 | 499:
            raise Transient("provider_failed", f"SpeechKit gave up on a request (HTTP {answer.status}).")
        case status if 400 <= status < 500 or status == 501:
            raise Refused("provider_refused", f"SpeechKit refused to say more about this recognition ({_named(answer)}).")
        case _:
            raise Transient("provider_failed", f"SpeechKit answered with an error ({_named(answer)}).")


def _refusal_of_submission(answer: Answer) -> ProviderError:
    match answer.status:
        case 429:
            return _busy(answer)
        case 401 | 402 | 403 | 407:
            return _misconfigured(answer.status)
        case 404:
            return Refused(
                "source_unreadable",
                "SpeechKit did not find the recording: its service account must be able to read the bucket in [bucket] name, "
                "and [speechkit] stt_url must be right.",
            )
        case 413:
            return Refused("too_large", "SpeechKit does not take a recording of this size.")
        case status if status in DEFINITE_REFUSALS:
            return Refused("provider_refused", f"SpeechKit refused the recording ({_named(answer)}).")
        case _:
            return OutcomeUnknown(
                "submission_unconfirmed",
                f"SpeechKit answered the submission with an error ({_named(answer)}), and may have accepted it all the same.",
            )


def _busy(answer: Answer) -> Busy:
    return Busy("provider_busy", "SpeechKit asks to come back later.", retry_after=pause_of(answer.headers.get("Retry-After", "")))


def _misconfigured(status: int) -> Misconfigured:
    if status == 401:
        return Misconfigured(
            "provider_key", "SpeechKit does not take TRANSCRIBER_SPEECHKIT_API_KEY (401): it is wrong, or its service account lacks a role."
        )
    if status == 407:
        return Misconfigured("proxy_key", "The proxy between us and SpeechKit wants to know who we are (407).")
    return Misconfigured(
        "provider_forbidden",
        f"SpeechKit refuses the service account of TRANSCRIBER_SPEECHKIT_API_KEY ({status}): it needs the role ai.speechkit-stt.user, "
        "and its folder an active billing account.",
    )


def _named(answer: Answer) -> str:
    code = grpc_code(answer.json())
    return f"HTTP {answer.status}" if code is None else f"HTTP {answer.status}, gRPC {code}"


def _trace_of(answer: Answer) -> str:
    """What the vendor's support asks for."""
    found = {name: answer.headers.get(name, "") for name in ("x-request-id", "x-server-trace-id")}
    return "".join(f", {name} {value}" for name, value in found.items() if re.fullmatch(r"[\w:.-]{1,100}", value))


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
