from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recognition.bucket import Bucket
from recognition.contract import (
    Attempt,
    Audio,
    Busy,
    MakesCopies,
    Misconfigured,
    Pending,
    Provider,
    ProviderError,
    Refused,
    TellsApart,
    Transient,
)
from recognition.providers.speechkit import SpeechKitProvider
from tests.fakes.loopback import Body, Cut, Reset, Status
from tests.fakes.recognizers import Silence, opus_file
from tests.fakes.s3 import S3
from tests.fakes.speechkit_server import API_KEY, Clock, Plan, Reshape, SpeechKitServer

pytestmark = pytest.mark.no_database


class Heart:
    def __init__(self) -> None:
        self.beats = 0

    def beat(self, progress: float | None = None) -> None:
        self.beats += 1


class Case:
    """A provider, the service it speaks to, and the one clock of both."""

    def __init__(self, server: SpeechKitServer, bucket: Bucket, folder: Path) -> None:
        self.server, self.bucket, self.folder = server, bucket, folder
        self.provider = self.make()

    def make(self, **changes: Any) -> SpeechKitProvider:
        told: dict[str, Any] = {
            "stt_url": self.server.stt_url,
            "operations_url": self.server.operations_url,
            "api_key": API_KEY,
            "model": "general",
            "language": "ru-RU",
            "speaker_labeling": False,
            "poll_interval": timedelta(seconds=10),
            "bucket": self.bucket,
            "clock": self.server.clock.now,
        }
        return SpeechKitProvider(**{**told, **changes})

    def submit(self, *, seconds: float = 12, channels: int = 1, language: str = "") -> Attempt:
        path = self.folder / "sound.ogg"
        path.write_bytes(opus_file(seconds, channels))

        @contextmanager
        def local_path() -> Iterator[Path]:
            yield path

        audio = Audio(f"a/{seconds}-{channels}.ogg", path.stat().st_size, round(seconds * 1000), channels, local_path)
        options = self.provider.options(language=language, channels=channels)
        uri = self.provider.upload(audio)
        attempt = Attempt("id", self.provider.model, options, "", uri, audio.duration_ms, self.server.clock.now())
        return replace(attempt, external_id=self.provider.submit(attempt, Heart()))

    def poll(self, attempt: Attempt) -> Pending | bytes:
        return self.provider.poll(attempt, Heart())


@pytest.fixture(scope="module")
def storage() -> Iterator[S3]:
    with S3() as running:
        yield running


@pytest.fixture(scope="module")
def bucket(storage: S3) -> Bucket:
    return Bucket(
        endpoint_url=storage.url,
        region="ru-central1",
        name=storage.make_bucket(),
        access_key_id=storage.access_key_id,
        secret_access_key=storage.secret_access_key,
    )


@pytest.fixture
def case(storage: S3, bucket: Bucket, tmp_path: Path) -> Iterator[Case]:
    clock = Clock(datetime(2026, 9, 14, 8, 11, 2, tzinfo=UTC))
    with SpeechKitServer(storage.url, clock=clock) as server:
        server.plan = Plan(polls=0)
        yield Case(server, bucket, tmp_path)


def code_of(raised: pytest.ExceptionInfo[ProviderError]) -> str:
    return raised.value.code


def test_it_keeps_the_contract(case: Case) -> None:
    assert isinstance(case.provider, Provider)
    assert case.provider.costs_money
    assert case.provider.limits.channels_add_up


@pytest.mark.parametrize(("channels", "labeling"), [(1, False), (1, True), (2, False), (2, True)])
def test_a_recording_becomes_a_transcript_with_one_paid_submission(case: Case, channels: int, labeling: bool) -> None:
    case.provider = case.make(speaker_labeling=labeling)
    attempt = case.submit(channels=channels)

    raw = case.poll(attempt)

    assert isinstance(raw, bytes)
    transcript = case.provider.parse(raw, attempt.options)
    assert transcript.utterances[0].text == "Добрый день, заказ готов."
    assert transcript.language == "ru-RU"
    assert {u.channel for u in transcript.utterances} == set(range(channels))
    assert set(transcript.speakers) == ({"0", "1"} if labeling and channels == 1 else set())
    assert case.server.paid == 1
    assert case.server.requests.counts() == {"submit": 1, "operation": 1, "result": 1}


@pytest.mark.parametrize("language", ["en", "pt-BR", "kk"])
def test_the_service_takes_what_is_asked_of_it(case: Case, language: str) -> None:
    case.server.switches.strict = True
    assert isinstance(case.poll(case.submit(language=language)), bytes)


def test_the_answer_is_kept_as_it_was_sent(case: Case) -> None:
    case.server.faults.next("result", Reshape.of(pretty=True, trailing_newline=False, per_line=2))
    raw = case.poll(case.submit())
    assert isinstance(raw, bytes)
    assert raw.startswith(b'{\n  "result"')
    assert b"}{" in raw.replace(b"\n", b"")


def test_the_heart_beats_around_each_call(case: Case) -> None:
    heart = Heart()
    case.provider.poll(case.submit(), heart)
    assert heart.beats >= 3


# ---- waiting ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "age", "again_in"),
    [(12, 0, 5), (12, 2, 3), (12, 4.5, 10), (90, 0, 7.5), (600, 0, 10), (600, 45, 5), (600, 4000, 10)],
)
def test_when_to_look_again(case: Case, seconds: float, age: float, again_in: float) -> None:
    case.server.plan = Plan(never=True)
    attempt = case.submit(seconds=seconds)
    case.server.clock.advance(age)
    assert case.poll(attempt) == Pending(again_in)
    assert case.server.requests.counts()["operation"] == 1


def test_the_configured_interval_governs(case: Case) -> None:
    case.server.plan = Plan(never=True)
    case.provider = case.make(poll_interval=timedelta(seconds=2))
    assert case.poll(case.submit()) == Pending(2)


def test_an_operation_that_is_not_known_yet(case: Case) -> None:
    attempt = case.submit()
    case.server.faults.always("operation", Status(status=404))

    case.server.clock.advance(30)
    assert case.poll(attempt) == Pending(5)
    case.server.clock.advance(31)
    with pytest.raises(Transient) as raised:
        case.poll(attempt)
    assert code_of(raised) == "operation_missing"
    assert type(raised.value) is Transient


def test_a_result_that_is_not_there_yet(case: Case) -> None:
    case.server.plan = Plan(polls=0, hidden=2)
    attempt = case.submit()

    assert [case.poll(attempt), case.poll(attempt)] == [Pending(5), Pending(5)]
    assert isinstance(case.poll(attempt), bytes)


def test_a_result_that_never_comes(case: Case) -> None:
    case.server.plan = Plan(polls=0, hidden=10**6)
    attempt = case.submit()
    assert case.poll(attempt) == Pending(5)

    case.server.clock.advance(hours=1)
    with pytest.raises(Transient) as raised:
        case.poll(attempt)

    assert code_of(raised) == "result_missing"


@pytest.mark.parametrize("operations_expire", [False, True])
def test_a_result_that_expired_says_what_to_do_and_that_it_costs(case: Case, operations_expire: bool) -> None:
    case.server.switches.operations_expire = operations_expire
    attempt = case.submit()
    assert isinstance(case.poll(attempt), bytes)

    case.server.clock.advance(days=3, seconds=121)
    with pytest.raises(Refused) as raised:
        case.poll(attempt)

    assert code_of(raised) == "result_expired"
    assert "normalized" in raised.value.message
    assert "paid" in raised.value.message


def test_a_result_that_is_still_there_is_taken_however_late(case: Case) -> None:
    case.server.plan = Plan(polls=0, seconds=2 * 86400)
    attempt = case.submit()
    case.server.clock.advance(days=3, seconds=-5)
    assert isinstance(case.poll(attempt), bytes)


def test_not_found_in_the_stream_is_the_same_as_not_found(case: Case) -> None:
    attempt = case.submit()
    case.server.faults.next("result", Body(body='{"error":{"grpcCode":5,"httpCode":404,"message":"m"}}'))
    assert case.poll(attempt) == Pending(5)


# ---- silence ------------------------------------------------------------------------------------------------------------------------


def test_silence_is_a_result(case: Case) -> None:
    case.server.recognizer = Silence()
    attempt = case.submit()
    raw = case.poll(attempt)
    assert isinstance(raw, bytes)
    assert case.provider.parse(raw, attempt.options).utterances == ()


@pytest.mark.parametrize("body", [b"", b"\n", b'{"result":{"statusCode":{"codeType":"WORKING","message":""}}}\n'], ids=range(3))
def test_an_empty_stream_right_after_the_end_is_looked_at_again_and_then_believed(case: Case, body: bytes) -> None:
    attempt = case.submit()
    case.server.faults.always("result", Body(body=body))

    assert case.poll(attempt) == Pending(5)
    case.server.clock.advance(29)
    assert case.poll(attempt) == Pending(5)
    case.server.clock.advance(1)
    assert case.poll(attempt) == body
    assert case.provider.parse(body, attempt.options).utterances == ()


# ---- failures -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rolling_back", [False, True])
@pytest.mark.parametrize(
    ("grpc", "kind", "code"),
    [
        (1, Transient, "recognition_failed"),
        (2, Transient, "recognition_failed"),
        (3, Refused, "recognition_refused"),
        (4, Transient, "recognition_failed"),
        (5, Refused, "source_unreadable"),
        (7, Refused, "source_unreadable"),
        (8, Transient, "recognition_failed"),
        (9, Refused, "recognition_refused"),
        (12, Refused, "recognition_failed"),
        (13, Transient, "recognition_failed"),
        (14, Transient, "recognition_failed"),
        (15, Transient, "recognition_failed"),
        (99, Refused, "recognition_failed"),
    ],
)
def test_an_operation_that_failed(case: Case, grpc: int, kind: type[ProviderError], code: str, rolling_back: bool) -> None:
    case.server.plan = Plan(polls=0, error=grpc, message="said-by-the-vendor", rolling_back=rolling_back)
    attempt = case.submit()

    with pytest.raises(ProviderError) as raised:
        case.poll(attempt)

    assert type(raised.value) is kind
    assert code_of(raised) == code
    assert "said-by-the-vendor" not in str(raised.value)
    assert case.server.requests.counts().get("result", 0) == 0


@pytest.mark.parametrize("route", ["operation", "result"])
def test_a_fault_of_the_moment_is_gone_with_the_next_look(case: Case, route: str) -> None:
    attempt = case.submit()
    outage = (Status(status=500), Status(status=503, shape="html"), Status(status=504, shape="empty"), Reset())
    for fault in outage:  # waited out, at no attempt's cost
        case.server.faults.next(route, fault)
        with pytest.raises(Busy):
            case.poll(attempt)
    for spoiled in (Cut(share=0.5), Body(body="<html></html>")):
        case.server.faults.next(route, spoiled)
        with pytest.raises((Busy, Transient)):
            case.poll(attempt)

    assert isinstance(case.poll(attempt), bytes)
    assert case.server.paid == 1


@pytest.mark.parametrize("shape", ["stream_old", "stream", "status_old"])
def test_an_error_inside_the_stream_is_fetched_over(case: Case, shape: str) -> None:
    attempt = case.submit()
    case.server.faults.next("result", Reshape.of(error_after=2, error_shape=shape))

    with pytest.raises(Transient):
        case.poll(attempt)

    assert isinstance(case.poll(attempt), bytes)


def test_a_clock_of_ours_that_is_ahead_does_not_make_an_empty_stream_silence(case: Case) -> None:
    attempt = case.submit()
    case.server.faults.next("result", Body(body=""))
    hours_ahead = case.make(clock=lambda: case.server.clock.now() + timedelta(hours=5))
    case.server.finish()

    assert isinstance(hours_ahead.poll(attempt, Heart()), Pending)


def test_a_quota_that_is_used_up_inside_the_stream(case: Case) -> None:
    attempt = case.submit()
    case.server.faults.next("result", Body(body='{"error":{"code":8,"message":"m"}}'))
    with pytest.raises(Busy):
        case.poll(attempt)


def test_a_key_without_its_role_is_everybodys_trouble(case: Case) -> None:
    attempt = case.submit()
    case.server.without_role.add(API_KEY)
    with pytest.raises(Misconfigured):
        case.poll(attempt)
    with pytest.raises(Misconfigured):
        case.submit()
    assert case.server.paid == 1

    case.provider = case.make(api_key="another-key")
    with pytest.raises(Misconfigured):
        case.submit()


@pytest.mark.parametrize("stage", ["under way", "answered"])
def test_another_operation_tells_whether_the_account_is_refused_or_one_id(case: Case, stage: str) -> None:
    """For free, and by the calls that a look is made of."""
    case.server.switches.foreign_operation = 403
    case.server.keys["other-key"] = "another-account"
    if stage == "under way":
        case.server.plan = Plan(never=True)
    ours, foreign = case.submit(), case.submit(seconds=13)
    case.server.operations[foreign.external_id].account = "another-account"

    assert isinstance(case.provider, TellsApart)
    with pytest.raises(Misconfigured):
        case.poll(foreign)
    assert case.provider.answers_for(ours.external_id)
    with pytest.raises(Misconfigured):
        case.provider.answers_for(foreign.external_id)
    assert not case.provider.answers_for("f8dnobodys0000000000")

    case.server.without_role.add(API_KEY)
    with pytest.raises(Misconfigured):
        case.provider.answers_for(ours.external_id)
    assert case.server.paid == 2


def test_the_link_of_a_copy_is_known_before_there_is_one(case: Case) -> None:
    attempt = case.submit()
    audio = Audio("a/12-1.ogg", 1, 1, 1, nullcontext)
    assert isinstance(case.provider, MakesCopies)
    assert case.provider.copy_of(audio) == attempt.source_uri


def test_a_recording_that_the_service_cannot_find(case: Case) -> None:
    attempt = case.submit()
    with pytest.raises(Refused) as raised:
        case.provider.submit(replace(attempt, source_uri=f"{attempt.source_uri}.gone"), Heart())
    assert code_of(raised) == "source_unreadable"
    assert case.server.paid == 1, "the first alone"


# ---- clearing away ------------------------------------------------------------------------------------------------------------------


def test_what_was_left_over_there_is_removed_once_and_again(case: Case) -> None:
    attempt = case.submit()
    case.poll(attempt)

    for _ in range(2):
        case.provider.remove_source(attempt.source_uri)
        case.provider.remove_result(attempt.external_id)

    with pytest.raises(Refused, match="source_unreadable"):
        case.provider.submit(attempt, Heart())
    assert case.server.operations[attempt.external_id].deleted
