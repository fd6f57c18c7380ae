"""The provider: what is frozen, when it is looked again, and what the answers mean for a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from recognition.bucket import Bucket
from recognition.contract import (
    Attempt,
    Audio,
    Busy,
    Heartbeat,
    Limits,
    Misconfigured,
    Pending,
    ProviderError,
    Refused,
    Transcript,
    Transient,
)
from recognition.providers.speechkit import status
from recognition.providers.speechkit.client import OUTAGE, Operation, SpeechKitClient
from recognition.providers.speechkit.parse import StreamError, is_settled, parse
from recognition.providers.speechkit.request import Parameters, configured_code, language_code

RETENTION = timedelta(days=3)
"""How long results are kept over there."""
NEW_OPERATION = timedelta(minutes=1)
"""In which an operation that was made may be unknown yet."""
NEW_RESULT = timedelta(minutes=2)
"""In which the result of an operation that is done may not be there yet."""
NEW_STREAM = timedelta(seconds=30)
"""In which it may still be empty; after that nobody spoke."""
LOOK_AGAIN = 5.0
OUTAGE_PAUSE = 60.0

_EXPIRED = (
    "SpeechKit keeps results for 3 days, and this one is gone: restart the record from `normalized`, which is a new paid recognition."
)


def _now() -> datetime:
    return datetime.now(UTC)


class SpeechKitProvider:
    """Yandex SpeechKit v3, recognition of files. `bucket` is where it reads them from; `language` is for recordings that name none.

    `poll_interval` is the time between two looks at one operation.
    """

    name = "speechkit"
    costs_money = True
    limits = Limits(max_duration_ms=4 * 3_600_000, max_size=10**9, channels_add_up=True)
    # The quotas are 500 submissions an hour and 5 looks a second, in any stretch of that length. A stretch of length T holds at most
    # T / pace + 1 calls that are a pace apart. Calls leave up to 0.2 s after their slot, so that stretches of T + 0.2 s of slots count:
    # 3600.2 / 7.25 + 1 = 497 calls, and 1.2 / 0.25 + 1 = 5 calls.
    paces: Mapping[str, float] = MappingProxyType({"submit": 7.25, "poll": 0.25})

    def __init__(
        self,
        *,
        stt_url: str,
        operations_url: str,
        api_key: str,
        model: str,
        language: str,
        speaker_labeling: bool,
        poll_interval: timedelta,
        bucket: Bucket,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.model = model
        self._language = language
        self._speaker_labeling = speaker_labeling
        self._poll_interval = poll_interval.total_seconds()
        self._bucket = bucket
        self._client = SpeechKitClient(stt_url=stt_url, operations_url=operations_url, api_key=api_key)
        self._clock = clock

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        """Raises `Refused` for a language that SpeechKit does not know. Speakers are told apart in recordings of one channel alone."""
        if language:
            code = language_code(language)
            if code is None:
                raise Refused("language_unsupported", "SpeechKit does not know the language that was asked for.", knows_us=False)
        else:
            code = configured_code(self._language)
            if code is None:
                raise Misconfigured("language_unsupported", "[speechkit] language must be a code such as ru-RU, or auto.")
        return Parameters(
            model=self.model, language=code, channels=channels, speaker_labeling=self._speaker_labeling and channels == 1
        ).as_options()

    def upload(self, audio: Audio) -> str:
        return self._bucket.upload(audio)

    def copy_of(self, audio: Audio) -> str:
        return self._bucket.link_to(audio.location)

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str:
        """The one call that is paid for; see `SpeechKitClient.submit` for what its errors tell."""
        return self._client.submit(Parameters.of(attempt.options).body(attempt.source_uri))

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> Pending | bytes:
        """Look at the operation, and fetch its result once there is one: the bytes as they came, checked to be whole.

        An outage over there is waited out, as long as a provider is waited for: looking is free, and the result is paid for already.
        """
        try:
            return self._look(attempt, heartbeat)
        except Transient as error:
            if error.code in OUTAGE:
                raise Busy(error.code, error.message, OUTAGE_PAUSE, knows_us=False) from error
            raise

    def _look(self, attempt: Attempt, heartbeat: Heartbeat) -> Pending | bytes:
        heartbeat.beat()
        operation = self._client.operation(attempt.external_id)
        heartbeat.beat()
        if operation is None:
            return self._no_operation(attempt)
        if operation.failed:
            raise _failure(operation.error_code)
        if not operation.done:
            return Pending(self._next_look(attempt))
        raw = self._client.result(attempt.external_id, beat=heartbeat.beat)
        # Where it does not say since when it is done, it was not before it was submitted.
        since_done = operation.since_modified
        if since_done is None:
            since_done = self._since(operation.modified_at or attempt.submitted_at)
        if raw is None:
            return self._no_result(attempt, operation, since_done)
        try:
            settled = is_settled(raw)
        except StreamError as error:
            match error.grpc_code:
                case status.NOT_FOUND:
                    return self._no_result(attempt, operation, since_done)
                case status.RESOURCE_EXHAUSTED:
                    raise Busy("provider_busy", "SpeechKit asks to come back later.") from error
            raise
        if not settled and since_done is not None and since_done < NEW_STREAM:
            return Pending(self._soon())
        return raw

    def answers_for(self, external_id: str) -> bool:
        """Both hosts are asked: the right to look at operations and the right to recognize are two."""
        if self._client.operation(external_id) is None:
            return False
        self._client.result(external_id, beat=lambda: None)
        return True

    def parse(self, payload: bytes, options: Mapping[str, Any]) -> Transcript:
        return parse(payload, options)

    def remove_source(self, source_uri: str) -> None:
        self._bucket.remove(source_uri)

    def remove_result(self, external_id: str) -> None:
        self._client.delete(external_id)

    def _no_operation(self, attempt: Attempt) -> Pending:
        age = self._since(attempt.submitted_at)
        if age is not None and age < NEW_OPERATION:
            return Pending(self._soon())
        if age is not None and age > RETENTION:
            raise Refused("result_expired", _EXPIRED)
        raise Transient("operation_missing", "SpeechKit does not know the operation.")

    def _no_result(self, attempt: Attempt, operation: Operation, since_done: timedelta | None) -> Pending:
        if since_done is not None and since_done < NEW_RESULT:
            return Pending(self._soon())
        age = self._since(operation.created_at or attempt.submitted_at)
        if age is not None and age > RETENTION:
            raise Refused("result_expired", _EXPIRED)
        raise Transient("result_missing", "SpeechKit says that the operation is done, but has no result of it.", knows_us=True)

    def _next_look(self, attempt: Attempt) -> float:
        """Recognition takes about 10 s a minute of audio; the result of a short recording is looked for as soon as it is likely."""
        age = self._since(attempt.submitted_at)
        likely_in = max(LOOK_AGAIN, attempt.duration_ms / 12_000) - (age.total_seconds() if age else 0.0)
        return min(self._poll_interval, likely_in) if likely_in >= 1 else self._poll_interval

    def _soon(self) -> float:
        return min(self._poll_interval, LOOK_AGAIN)

    def _since(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else self._clock() - moment


def _failure(code: int | None) -> ProviderError:
    """What it means that the operation itself failed: however often it is asked, it will say the same."""
    match code:
        case status.INVALID_ARGUMENT | status.FAILED_PRECONDITION | status.OUT_OF_RANGE:
            return Refused("recognition_refused", f"SpeechKit could not take the recording or what was asked of it (code {code}).")
        case status.NOT_FOUND | status.PERMISSION_DENIED | status.UNAUTHENTICATED:
            return Refused(
                "source_unreadable",
                f"SpeechKit could not read the recording in the bucket (code {code}): its service account must be able to. "
                "Once that is mended, restart the record from `normalized`, which is a new recognition.",
            )
        case (
            status.CANCELLED
            | status.UNKNOWN
            | status.DEADLINE_EXCEEDED
            | status.RESOURCE_EXHAUSTED
            | status.INTERNAL
            | status.UNAVAILABLE
            | status.DATA_LOSS
        ):
            return Transient(
                "recognition_failed",
                f"The recognition failed on SpeechKit's side (code {code}). If it stays so, restart the record from `normalized`, "
                "which is a new recognition.",
                knows_us=True,
            )
        case None:
            return Refused("recognition_failed", "SpeechKit gave the recognition up and does not say why.")
        case _:
            return Refused("recognition_failed", f"SpeechKit gave the recognition up (code {code}).")
