"""A stand-in for Yandex SpeechKit (STT v3, recognition of files) on loopback, made after its documentation and not after our client.

    with S3() as s3, SpeechKitServer(s3.url) as server:
        ...
        assert server.paid == 1

Two ports, since the real service has two hosts: a client that asks the wrong one gets a 404. Routes, for faults and for the ledger: `submit`,
`operation`, `cancel`, `result`, `delete`. Where the real behavior is unknown there is a switch (:class:`Switches`).

As a program: `python -m tests.fakes.speechkit_server [--port N] (--s3 URL | --with-s3) [--recognizer fixed|silence|whisper]`. It prints one
line of JSON with its addresses, and a test in another process steers it over `/_control/`.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import math
import os
import random
import re
import string
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from tests.fakes import s3
from tests.fakes.loopback import Answer, Call, Fault, Listener, Loopback, json_answer
from tests.fakes.recognizers import FixedText, LocalWhisper, NotAudio, Phrase, Recognizer, Silence, Sound, sound_from
from tests.fakes.speechkit_stream import Asked, Recognition, Shape, chunks

API_KEY = "stand-in-key"
ACCOUNT = "ajestandin0000000001"
FOLDER = "b1gstandin0000000001"
KEPT = timedelta(days=3)
MAX_SIZE = 1 << 30
MAX_INLINE = 60 << 20
MAX_DURATION_MS = 4 * 3600 * 1000

INVALID, NOT_FOUND, DENIED, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAUTHENTICATED = 3, 5, 7, 8, 12, 13, 16
HTTP_OF = {INVALID: 400, NOT_FOUND: 404, DENIED: 403, EXHAUSTED: 429, UNIMPLEMENTED: 501, INTERNAL: 500, UNAUTHENTICATED: 401}
GRPC_OF = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 429: 8, 499: 1, 500: 13, 501: 12, 502: 14, 503: 14, 504: 4}
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 429: "Too Many Requests"}


class Refusal(Exception):
    """An answer of the service with an error."""

    def __init__(self, code: int, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status or HTTP_OF[code]


# ---- time ---------------------------------------------------------------------------------------------------------------------------


class Clock:
    """The stand-in's time: the real one, moved on by `advance`; or, with a start, one that stands still between the advances."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start
        self._ahead = timedelta()

    def now(self) -> datetime:
        return (self._start or datetime.now(UTC)) + self._ahead

    def advance(self, seconds: float = 0, **span: float) -> None:
        self._ahead += timedelta(seconds=seconds, **span)

    def stand_still(self) -> None:
        self._start, self._ahead = self.now(), timedelta()


# ---- switches -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How an operation goes: it ends once it was looked at more than `polls` times and is `seconds` old (both).

    `error`: it ends with this code and message. `rolling_back`: it shows the error while `done` is still false. `hidden`: results are not there
    (404) for so many calls after the end.
    """

    polls: int = 1
    seconds: float = 0
    never: bool = False
    error: int | None = None
    message: str = "audio cannot be decoded"
    rolling_back: bool = False
    hidden: int = 0


@dataclass
class Switches:
    """What the real service does here is unknown, or it does both. Set them at any time."""

    strict: bool = True
    """Refuse fields that are not in the reference, and want a model: to catch typing errors. The real service ignores them."""
    missing_object: str = "submit"
    """Where an object that can't be read shows: `submit` (404) or `operation` (its error)."""
    bad_audio: str = "operation"
    """The same for what can't be decoded, or is too long or too large: `submit` (400) or `operation`."""
    labels_on_stereo: str = "ignored"
    """Or `refused`."""
    cancel_status: int = 200
    foreign_folder: int = 403
    """Or 400."""
    foreign_operation: int = 404
    """Or 403: somebody else's."""
    failed_result: str = "not_found"
    """What getRecognition says of a failed operation: `not_found`, or `same` error."""
    omit_empty: bool = True
    """The operations host leaves out what is empty, `done: false` included."""
    response_on_done: bool = False
    """Whether a finished operation carries an (empty) `response`."""
    operations_expire: bool = False
    """Whether the operation itself is unknown, too, once its result has expired."""
    stream_errors: str = "stream_old"
    """Shape of getRecognition's errors: `stream_old` (3), `stream` (4), `status` (1) or `status_old` (2)."""
    polls_a_second: int = 0
    """Answer with 429 above this quota (5 at the real one). 0: not limited."""
    submits_an_hour: int = 0
    """The same (500)."""


@dataclass(frozen=True)
class Reshape(Fault):
    """A result stream written in another way, for `server.faults.next("result", Reshape.of(pretty=True))`."""

    acted: bool = True
    shape: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **shape: Any) -> Reshape:
        return cls(shape=shape)

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        assert isinstance(server, SpeechKitServer)
        with server.reshaped(self.shape):
            return act()


# ---- operations ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Operation:
    id: str
    account: str
    body_sha256: str
    uri: str
    asked: Asked
    plan: Plan
    created_at: datetime
    modified_at: datetime
    billed_seconds: int
    sound: Sound | None = None
    failure: tuple[int, str] | None = None
    """What will be its error."""
    looks: int = 0
    finish_now: bool = False
    done: bool = False
    deleted: bool = False
    hidden: int = 0
    recognition: Recognition | None = None
    heard: threading.Event = field(default_factory=threading.Event)


def billed_seconds(duration_ms: int, channels: int) -> int:
    """Seconds of two-channel audio: channels round up to pairs, durations to seconds, and a pair costs 15 seconds at least."""
    return math.ceil(channels / 2) * max(15, math.ceil(duration_ms / 1000))


class SpeechKitServer(Loopback):
    """`storage_url` is the base of the path-style links that it takes and the endpoint that it reads from. A context manager."""

    FAULTS: ClassVar[dict[str, type[Fault]]] = {**Loopback.FAULTS, "reshape": Reshape}

    def __init__(
        self,
        storage_url: str,
        *,
        access_key_id: str = "stand-in-id",
        secret_access_key: str = "stand-in-secret",
        recognizer: Recognizer | None = None,
        port: int = 0,
        operations_port: int = 0,
        clock: Clock | None = None,
        ledger: Path | None = None,
    ) -> None:
        super().__init__(port=port, ledger=ledger)
        self._listeners.append(Listener(self, operations_port, 1))
        self.clock = clock or Clock()
        self.recognizer: Recognizer = recognizer or FixedText()
        self.switches = Switches()
        self.shape = Shape()
        self.plan = Plan()
        self.next_plans: list[Plan] = []
        """For the next operations, one each; then `plan` again."""
        self.keys = {API_KEY: ACCOUNT}
        """Keys and tokens that are known, with the service account each belongs to."""
        self.without_role: set[str] = set()
        """Those of them that may not recognize."""
        self.operations: dict[str, Operation] = {}
        self.storage_url = storage_url.rstrip("/")
        self._storage = s3.client(storage_url, access_key_id, secret_access_key)
        self._lock = threading.RLock()
        self._here = threading.local()
        self._threads: list[threading.Thread] = []

    # ---- what tests look at and do

    @property
    def stt_url(self) -> str:
        return self._listeners[0].url

    @property
    def operations_url(self) -> str:
        return self._listeners[1].url

    @property
    def paid(self) -> int:
        """Submissions that were accepted; each is charged."""
        return len(self.operations)

    @property
    def billed_seconds(self) -> int:
        """By the price list. An operation that ended in an internal error is not charged."""
        return sum(one.billed_seconds for one in self.operations.values() if not (one.done and one.failure and one.failure[0] == INTERNAL))

    @property
    def paid_per_body(self) -> Counter[str]:
        """Accepted submissions by the hash of their body."""
        return Counter(one.body_sha256 for one in self.operations.values())

    @property
    def paid_per_uri(self) -> Counter[str]:
        return Counter(one.uri for one in self.operations.values())

    def finish(self, operation_id: str | None = None) -> None:
        """End one operation, or all, at the next look."""
        with self._lock:
            for one in self.operations.values() if operation_id is None else [self.operations[operation_id]]:
                one.finish_now = True

    def environment(self, key: str = API_KEY) -> dict[str, str]:
        """What makes the service use this stand-in. The bucket's variables are S3's to give."""
        return {
            "TRANSCRIBER_RECOGNITION_PROVIDER": "speechkit",
            "TRANSCRIBER_SPEECHKIT_STT_URL": self.stt_url,
            "TRANSCRIBER_SPEECHKIT_OPERATIONS_URL": self.operations_url,
            "TRANSCRIBER_SPEECHKIT_API_KEY": key,
        }

    def stop(self) -> None:
        super().stop()
        for thread in self._threads:
            thread.join(5)  # a model at work ends with the process

    # ---- routes

    def route(self, method: str, path: str, listener: int) -> str:
        if listener == 0:
            known = {
                ("POST", "/stt/v3/recognizeFileAsync"): "submit",
                ("GET", "/stt/v3/getRecognition"): "result",
                ("DELETE", "/stt/v3/deleteRecognition"): "delete",
            }
            return known.get((method, path), "")
        if re.fullmatch(r"/operations/[^/:]+", path) and method == "GET":
            return "operation"
        if re.fullmatch(r"/operations/[^/:]+:cancel", path) and method in ("GET", "POST"):
            return "cancel"
        return ""

    def respond(self, call: Call) -> Answer:
        try:
            account = self._authenticate(call)
            if call.route == "":
                raise Refusal(NOT_FOUND, "no such method")
            with self._lock:
                self._keep_quotas(call)
            answer: Answer = getattr(self, f"_{call.route}")(call, account)
            return answer
        except Refusal as refusal:
            shape = self.switches.stream_errors if call.route == "result" else "status"
            return self.failure(refusal.status, shape, refusal.message, code=refusal.code)

    def headers(self) -> dict[str, str]:
        return {"x-request-id": str(uuid.uuid4()), "x-server-trace-id": uuid.uuid4().hex}

    def clock_now(self) -> float:
        return self.clock.now().timestamp()

    def failure(self, status: int, shape: str, message: str, *, code: int | None = None) -> Answer:
        """`status` (1 of the reference), `status_old` (2), `stream_old` (3), `stream` (4), and `html`, `empty`, `text`."""
        code = GRPC_OF.get(status, 2) if code is None else code
        unary = {"code": code, "message": message, "details": []}
        if shape in ("", "status"):
            info = {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": str(uuid.uuid4())}
            return json_answer({**unary, "details": [info]}, status)
        if shape == "status_old":
            return json_answer({"error": message, **unary}, status)
        if shape == "stream":
            return json_answer({"error": unary}, status)
        if shape == "stream_old":
            reason = REASONS.get(status, "Internal Server Error")
            old = {"grpcCode": code, "httpCode": status, "message": message, "httpStatus": reason, "details": []}
            return json_answer({"error": old}, status)
        return super().failure(status, shape, message)

    def _authenticate(self, call: Call) -> str:
        scheme, _, key = call.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("api-key", "bearer") or key not in self.keys:
            raise Refusal(UNAUTHENTICATED, "The token is invalid")
        if key in self.without_role:
            raise Refusal(DENIED, "Permission denied")
        folder = call.headers.get("x-folder-id", FOLDER)
        if folder != FOLDER:
            status = self.switches.foreign_folder
            raise Refusal(INVALID if status == 400 else DENIED, "The folder is not that of the service account", status)
        return self.keys[key]

    def _keep_quotas(self, call: Call) -> None:
        """Counts this call, too, as it already stands in the ledger."""
        for route, limit, seconds in (
            ("operation", self.switches.polls_a_second, 1.0),
            ("submit", self.switches.submits_an_hour, 3600.0),
        ):
            if limit and call.route == route:
                recent = sum(1 for other in self.requests.of(route) if call.clock - seconds < other.clock <= call.clock)
                if recent > limit:
                    raise Refusal(EXHAUSTED, "The quota of the folder is exceeded")

    def _submit(self, call: Call, account: str) -> Answer:
        if len(call.body) > MAX_INLINE:
            return self.failure(413, "html", "")
        body = parse(call.body, strict=self.switches.strict)
        asked = _asked(body)
        model = body["recognitionModel"]
        failure: tuple[int, str] | None = None
        sound: Sound | None = None
        try:
            sound = self._sound(body)
            self._check(sound, model["audioFormat"], asked)
        except _Bad as bad:
            where = self.switches.missing_object if bad.code == NOT_FOUND else self.switches.bad_audio
            if where == "submit":
                raise Refusal(bad.code, bad.message) from bad
            failure = (bad.code, bad.message)
        with self._lock:
            plan = self.next_plans.pop(0) if self.next_plans else self.plan
            now = self.clock.now()
            operation = Operation(
                id="f8d" + "".join(random.choices(string.ascii_lowercase + string.digits, k=17)),
                account=account,
                body_sha256=call.body_sha256,
                uri=body.get("uri", ""),
                asked=asked,
                plan=plan,
                created_at=now,
                modified_at=now,
                billed_seconds=billed_seconds(sound.duration_ms, sound.channels) if sound and not failure else 0,
                sound=sound,
                failure=failure or ((plan.error, plan.message) if plan.error is not None else None),
                hidden=plan.hidden,
            )
            self.operations[operation.id] = operation
            self.requests.note(
                accepted=operation.id,
                request=call.number,
                body_sha256=call.body_sha256,
                uri=operation.uri,
                billed_seconds=operation.billed_seconds,
            )
        if operation.failure is None and self.recognizer.slow:
            thread = threading.Thread(target=self._hear, args=(operation,), name="recognizer", daemon=True)
            self._threads.append(thread)
            thread.start()
        return json_answer({**self._shown(operation), "done": False, "metadata": None})

    def _operation(self, call: Call, account: str) -> Answer:
        with self._lock:
            one = self._find(call.path.rpartition("/")[2], account)
            if self.switches.operations_expire and self._is_expired(one):
                raise Refusal(NOT_FOUND, "operation is not found")
            one.looks += 1
            if one.plan.rolling_back and not one.done and one.looks > one.plan.polls and one.failure:
                return self._operation_answer(one, one.failure)
            self._progress(one)
            return self._operation_answer(one, one.failure if one.done else None)

    def _cancel(self, call: Call, account: str) -> Answer:
        with self._lock:
            one = self._find(call.path.rpartition("/")[2].removesuffix(":cancel"), account)
            if self.switches.cancel_status != 200:
                return self.failure(self.switches.cancel_status, "status", "cancel is not supported")
            return self._operation_answer(one, one.failure if one.done else None)

    def _result(self, call: Call, account: str) -> Answer:
        with self._lock:
            one = self._find(self._operation_id(call), account)
            if not one.done or one.deleted or self._is_expired(one):
                raise Refusal(NOT_FOUND, "operation is not found")
            if one.failure:
                if self.switches.failed_result == "same":
                    raise Refusal(one.failure[0], one.failure[1], GRPC_TO_HTTP.get(one.failure[0], 500))
                raise Refusal(NOT_FOUND, "operation is not found")
            if one.hidden:
                one.hidden -= 1
                raise Refusal(NOT_FOUND, "operation is not found")
            recognition = one.recognition
        assert recognition is not None
        shape = getattr(self._here, "shape", None) or self.shape
        body = chunks(recognition, shape, lambda status, kind, message: self.failure(status, kind, message).content)
        return Answer(200, body, {"Content-Type": "application/json"})

    def _delete(self, call: Call, account: str) -> Answer:
        with self._lock:
            one = self._find(self._operation_id(call), account)
            if one.deleted or self._is_expired(one):
                raise Refusal(NOT_FOUND, "operation is not found")
            one.deleted = True
        return json_answer({})

    # ---- what they do

    def reshaped(self, changes: Mapping[str, Any]) -> _Reshaped:
        return _Reshaped(self._here, replace(self.shape, **changes))

    def _operation_id(self, call: Call) -> str:
        operation_id = call.query.get("operation_id") or call.query.get("operationId") or ""
        if not 0 < len(operation_id) <= 50:
            raise Refusal(INVALID, "operation_id: of 1 to 50 characters")
        return operation_id

    def _find(self, operation_id: str, account: str) -> Operation:
        one = self.operations.get(operation_id)
        if one is None:
            raise Refusal(NOT_FOUND, "operation is not found")
        if one.account != account:
            status = self.switches.foreign_operation
            raise Refusal(DENIED if status == 403 else NOT_FOUND, "operation is not found", status)
        return one

    def _is_expired(self, one: Operation) -> bool:
        return self.clock.now() - one.created_at >= KEPT

    def _progress(self, one: Operation) -> None:
        """Let an operation that is due end."""
        due = one.looks > one.plan.polls and self.clock.now() >= one.created_at + timedelta(seconds=one.plan.seconds)
        if one.done or not (one.finish_now or (due and not one.plan.never)):
            return
        if one.failure is None and not one.heard.is_set():
            if self.recognizer.slow:
                return  # it will be there
            self._hear(one)
        one.done, one.modified_at = True, self.clock.now()

    def _hear(self, one: Operation) -> None:
        assert one.sound is not None
        phrases: list[Phrase] = []
        failure: tuple[int, str] | None = None
        try:
            phrases = self.recognizer(one.sound, "" if one.asked.detects else one.asked.language)
        except NotAudio as error:
            failure = (INVALID, str(error))
        except Exception as error:
            self.crashes.append(error)
            failure = (INTERNAL, "internal error")
        one.recognition, one.failure = Recognition(phrases, one.sound, one.asked), failure
        one.heard.set()

    def _shown(self, one: Operation) -> dict[str, Any]:
        moment = "%Y-%m-%dT%H:%M:%SZ"
        return {
            "id": one.id,
            "description": "STT v3 async recognition",
            "createdAt": one.created_at.strftime(moment),
            "createdBy": one.account,
            "modifiedAt": one.modified_at.strftime(moment),
        }

    def _operation_answer(self, one: Operation, failure: tuple[int, str] | None) -> Answer:
        shown = self._shown(one)
        if one.done or not self.switches.omit_empty:
            shown["done"] = one.done
        if not self.switches.omit_empty:
            shown["metadata"] = None
        if failure:
            shown["error"] = {"code": failure[0], "message": failure[1], "details": []}
        elif one.done and self.switches.response_on_done:
            shown["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}
        return json_answer(shown)

    def _sound(self, body: Mapping[str, Any]) -> Sound:
        raw = body["recognitionModel"]["audioFormat"].get("rawAudio")
        if "content" in body:
            data = body["content"]
            return _looked_at(len(data), lambda start, length: data[start : start + length] if start >= 0 else data[start:][:length], raw)
        bucket, key = self._place(body["uri"])
        try:
            size = self._storage.head_object(Bucket=bucket, Key=key)["ContentLength"]
        except (ClientError, BotoCoreError) as error:
            raise _Bad(NOT_FOUND, "the object can't be read") from error
        if size > MAX_SIZE:
            raise _Bad(INVALID, "the file is larger than 1 GB")

        def read(start: int, length: int) -> bytes:
            if not size:
                return b""
            span = f"bytes={start}-{start + length - 1}" if start >= 0 else f"bytes={start}"
            part: bytes = self._storage.get_object(Bucket=bucket, Key=key, Range=span)["Body"].read()
            return part[:length]

        return _looked_at(size, read, raw)

    def _place(self, uri: str) -> tuple[str, str]:
        """Bucket and key of a path-style link under the storage's base; what follows a `?` is ignored."""
        base, given = urlsplit(self.storage_url), urlsplit(uri)
        bucket, _, key = given.path.removeprefix(base.path).lstrip("/").partition("/")
        if (given.scheme, given.netloc) != (base.scheme, base.netloc) or not bucket or not key:
            raise Refusal(INVALID, "uri: not a path-style link to an object of the storage")
        return bucket, unquote(key)

    def _check(self, sound: Sound, audio_format: Mapping[str, Any], asked: Asked) -> None:
        container = audio_format.get("containerAudio", {}).get("containerAudioType")
        if container and container != sound.kind:
            raise _Bad(INVALID, f"the audio is not {container}")
        if sound.duration_ms * sound.channels > MAX_DURATION_MS:
            raise _Bad(INVALID, "the audio is longer than 4 hours, all channels taken together")
        if asked.labels and sound.channels > 1 and self.switches.labels_on_stereo == "refused":
            raise Refusal(INVALID, "speakerLabeling: for mono recordings only")

    # ---- for tests in another process

    def control(self, method: str, what: str, query: Mapping[str, str], said: Mapping[str, Any]) -> object:
        if method == "GET" and what == "state":
            return {
                "paid": self.paid,
                "billed_seconds": self.billed_seconds,
                "paid_per_body": self.paid_per_body,
                "paid_per_uri": self.paid_per_uri,
                "requests": self.requests.counts(),
                "operations": [
                    {"id": one.id, "uri": one.uri, "done": one.done, "looks": one.looks, "deleted": one.deleted, "failure": one.failure}
                    for one in self.operations.values()
                ],
                "crashes": [repr(error) for error in self.crashes],
            }
        if method == "POST" and what == "advance":
            self.clock.advance(float(said["seconds"]))
            return {}
        if method == "POST" and what == "finish":
            self.finish(said.get("id"))
            return {}
        if method == "POST" and what == "switches":
            self.switches = Switches(**{**asdict(self.switches), **said})
            return {}
        if method == "POST" and what == "shape":
            self.shape = replace(self.shape, **said)
            return {}
        if method == "POST" and what == "plan":
            self.plan = replace(self.plan, **said)
            return {}
        if method == "POST" and what == "next_plan":
            self.next_plans.append(Plan(**said))
            return {}
        if method == "POST" and what == "keys":
            self.keys = dict(said["keys"])
            self.without_role = set(said.get("without_role", ()))
            return {}
        return super().control(method, what, query, said)


GRPC_TO_HTTP = {**{code: status for status, code in reversed(GRPC_OF.items())}, 13: 500}


class _Bad(Exception):
    """Audio that can't be recognized; where that shows is a switch."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _Reshaped:
    def __init__(self, here: threading.local, shape: Shape) -> None:
        self._here, self._shape = here, shape

    def __enter__(self) -> None:
        self._here.shape = self._shape

    def __exit__(self, *_: object) -> None:
        self._here.shape = None


def _looked_at(size: int, read: Callable[[int, int], bytes], raw: Mapping[str, Any] | None) -> Sound:
    if raw is not None:
        channels, rate = raw.get("audioChannelCount", 1), raw.get("sampleRateHertz", 8000)
        return Sound("RAW", size, size // (2 * channels) * 1000 // rate, channels, read)
    try:
        return sound_from(size, read)
    except NotAudio as error:
        raise _Bad(INVALID, "audio cannot be decoded") from error


# ---- the request body (section 4 of the reference) ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enum:
    """Names in the order of their numbers, from 0."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Many:
    of: Any


MODELS = tuple(f"{queue}general{version}" for queue in ("", "deferred-") for version in ("", ":rc", ":deprecated"))
_THRESHOLDS = {"simultaneousSilenceThresholdMs": int, "simultaneousSpeechThresholdMs": int}
FIELDS: dict[str, Any] = {
    "uri": str,
    "content": bytes,
    "recognitionModel": {
        "model": str,
        "audioFormat": {
            "containerAudio": {"containerAudioType": Enum(("CONTAINER_AUDIO_TYPE_UNSPECIFIED", "WAV", "OGG_OPUS", "MP3"))},
            "rawAudio": {
                "audioEncoding": Enum(("AUDIO_ENCODING_UNSPECIFIED", "LINEAR16_PCM")),
                "sampleRateHertz": int,
                "audioChannelCount": int,
            },
        },
        "textNormalization": {
            "textNormalization": Enum(("TEXT_NORMALIZATION_UNSPECIFIED", "TEXT_NORMALIZATION_ENABLED", "TEXT_NORMALIZATION_DISABLED")),
            "profanityFilter": bool,
            "literatureText": bool,
            "phoneFormattingMode": Enum(("PHONE_FORMATTING_MODE_UNSPECIFIED", "PHONE_FORMATTING_MODE_DISABLED")),
        },
        "languageRestriction": {
            "restrictionType": Enum(("LANGUAGE_RESTRICTION_TYPE_UNSPECIFIED", "WHITELIST", "BLACKLIST")),
            "languageCode": Many(str),
        },
        "audioProcessingType": Enum(("AUDIO_PROCESSING_TYPE_UNSPECIFIED", "REAL_TIME", "FULL_DATA")),
    },
    "recognitionClassifier": {
        "classifiers": Many(
            {"classifier": str, "triggers": Many(Enum(("TRIGGER_TYPE_UNSPECIFIED", "ON_UTTERANCE", "ON_FINAL", "ON_PARTIAL")))}
        )
    },
    "speechAnalysis": {
        "enableSpeakerAnalysis": bool,
        "enableConversationAnalysis": bool,
        "descriptiveStatisticsQuantiles": Many(float),
        "speakerOptions": {"silenceThresholdMs": int},
        "converstationOptions": _THRESHOLDS,  # the real name
    },
    "speakerLabeling": {"speakerLabeling": Enum(("SPEAKER_LABELING_UNSPECIFIED", "SPEAKER_LABELING_ENABLED", "SPEAKER_LABELING_DISABLED"))},
    "summarization": {
        "modelUri": str,
        "properties": Many({"instruction": str, "jsonObject": bool, "jsonSchema": {"schema": dict}}),
    },
}


def parse(data: bytes, *, strict: bool) -> dict[str, Any]:
    """The body with names in camelCase, enums as their names and numbers as numbers. Raises Refusal."""
    try:
        given = json.loads(data)
    except ValueError as error:
        raise Refusal(INVALID, "the body is not valid JSON") from error
    body: dict[str, Any] = _message(given, FIELDS, "", strict)
    if ("uri" in body) == ("content" in body):
        raise Refusal(INVALID, "exactly one of uri and content")
    model = body.get("recognitionModel", {})
    audio_format = model.get("audioFormat", {})
    if ("containerAudio" in audio_format) == ("rawAudio" in audio_format):
        raise Refusal(INVALID, "recognitionModel.audioFormat: exactly one of containerAudio and rawAudio")
    container = audio_format.get("containerAudio", {"containerAudioType": "RAW"}).get("containerAudioType", "")
    if container.endswith("UNSPECIFIED") or not container:
        raise Refusal(INVALID, "containerAudioType: not specified")
    raw = audio_format.get("rawAudio")
    if raw is not None and (raw.get("sampleRateHertz") not in (8000, 16000, 48000) or raw.get("audioChannelCount", 1) < 1):
        raise Refusal(INVALID, "rawAudio: sampleRateHertz is 8000, 16000 or 48000")
    if model.get("model", "" if strict else "general") not in MODELS:
        raise Refusal(INVALID, "recognitionModel.model: unknown")
    return {**body, "recognitionModel": model}


def _message(given: object, known: Mapping[str, Any], path: str, strict: bool) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Refusal(INVALID, f"{path or 'the body'}: an object is expected")
    names = {spelling: name for name in known for spelling in (name, _snake(name))}
    read: dict[str, Any] = {}
    for spelling, value in given.items():
        name = names.get(spelling)
        if name is None:
            if strict:
                raise Refusal(INVALID, f"{path}{spelling}: unknown field")
        elif name in read:
            raise Refusal(INVALID, f"{path}{name}: given twice")
        elif value is not None:
            read[name] = _value(value, known[name], f"{path}{name}", strict)
    return read


def _value(given: Any, kind: Any, path: str, strict: bool) -> Any:
    try:
        if isinstance(kind, Many):
            if not isinstance(given, list):
                raise ValueError
            return [_value(one, kind.of, path, strict) for one in given]
        if isinstance(kind, Enum):
            if isinstance(given, int) and not isinstance(given, bool):
                return kind.names[given] if 0 <= given < len(kind.names) else kind.names[0]
            return kind.names[kind.names.index(given)]
        if isinstance(kind, dict):
            return _message(given, kind, f"{path}.", strict)
        if kind is int and isinstance(given, (int, str)) and not isinstance(given, bool):
            return int(given)
        if kind is float and isinstance(given, (int, float, str)) and not isinstance(given, bool):
            return float(given)
        if kind is bytes and isinstance(given, str):
            return base64.b64decode(given, validate=True)
        if kind in (str, bool, dict) and isinstance(given, kind):
            return given
    except (ValueError, binascii.Error):
        pass
    raise Refusal(INVALID, f"{path}: invalid value")


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def _asked(body: Mapping[str, Any]) -> Asked:
    model = body["recognitionModel"]
    normalization = model.get("textNormalization", {})
    restriction = model.get("languageRestriction", {})
    languages = restriction.get("languageCode", []) if restriction.get("restrictionType") == "WHITELIST" else []
    detects = "auto" in languages or (not languages and bool(restriction))
    return Asked(
        normalized=normalization.get("textNormalization") == "TEXT_NORMALIZATION_ENABLED",
        literature=normalization.get("literatureText", False),
        detects=detects,
        labels=body.get("speakerLabeling", {}).get("speakerLabeling") == "SPEAKER_LABELING_ENABLED",
        language=languages[0] if languages and not detects else "ru-RU",
    )


# ---- as a program -------------------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="A stand-in for Yandex SpeechKit on loopback, for tests and for trying without an account."
    )
    parser.add_argument("--port", type=int, default=0, help="of the recognition API; 0: any free one")
    parser.add_argument("--operations-port", type=int, default=0)
    storage = parser.add_mutually_exclusive_group(required=True)
    storage.add_argument("--s3", metavar="URL", help="object storage that it reads from")
    storage.add_argument("--with-s3", action="store_true", help="start one, with the bucket `recordings`")
    parser.add_argument("--access-key-id", default="stand-in-id")
    parser.add_argument("--secret-access-key", default="stand-in-secret")
    parser.add_argument("--recognizer", choices=("fixed", "silence", "whisper"), default="fixed")
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("TRANSCRIBER_DATA", "var")) / "models", help="folder of models")
    parser.add_argument("--polls", type=int, default=1, help="looks at an operation before it ends")
    parser.add_argument("--seconds", type=float, default=0, help="and its age")
    parser.add_argument("--ledger", type=Path, help="file of JSON lines that all requests are written to")
    said = parser.parse_args(arguments)
    recognizers: dict[str, Callable[[], Recognizer]] = {
        "fixed": FixedText,
        "silence": Silence,
        "whisper": lambda: LocalWhisper(said.models.absolute()),
    }
    keys = {"access_key_id": said.access_key_id, "secret_access_key": said.secret_access_key}
    with ExitStack() as stack:
        environment: dict[str, str] = {}
        url = said.s3
        if said.with_s3:
            store = stack.enter_context(s3.S3(**keys))
            environment, url = store.environment(store.make_bucket("recordings")), store.url
        server = SpeechKitServer(
            url,
            **keys,
            recognizer=recognizers[said.recognizer](),
            port=said.port,
            operations_port=said.operations_port,
            ledger=said.ledger,
        )
        server.plan = Plan(polls=said.polls, seconds=said.seconds)
        stack.enter_context(server)
        about = {"url": server.url, "operations_url": server.operations_url, "s3_url": url}
        print(json.dumps({**about, "environment": {**environment, **server.environment()}}), flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
