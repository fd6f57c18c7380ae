"""Every provider and every fake of one, set up so that one suite can be run over all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recognition.bucket import Bucket
from recognition.contract import Answered, Attempt, Audio, Heartbeat, Pending, Provider, Transcript
from recognition.providers.openai import OpenAIProvider
from recognition.providers.speechkit import SpeechKitProvider
from recognition.providers.whisper import WhisperProvider
from tests.audio import silence, write_wav
from tests.fakes import openai_server, speechkit_server
from tests.fakes.loopback import Delay, Loopback
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.provider import HELLO, ScriptedProvider, payload_of
from tests.fakes.quick import QuickProvider
from tests.fakes.recognizers import Silence
from tests.fakes.s3 import REGION, S3
from tests.fakes.speechkit_server import SpeechKitServer

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "transcriber" / "demo" / "recording.ogg"
LOCATION = "records/01/personal-name.ogg"
"""A name of which nothing may be told to anybody but the storage."""


@dataclass
class Beats:
    """A heartbeat that counts."""

    count: int = 0

    def beat(self, progress: float | None = None) -> None:
        assert progress is None or 0 <= progress <= 1
        self.count += 1


_answers: dict[tuple[str, bool], tuple[bytes, dict[str, Any]]] = {}


@dataclass
class Subject:
    """A provider under test and what is known of its surroundings."""

    build: Callable[[], Provider]
    source: Path = RECORDING
    opened: list[str] = field(default_factory=list)
    server: Loopback | None = None
    paid_route: str = ""
    """The stand-in's route that starts a recognition."""
    secret: str = ""
    stored: Callable[[], int] = lambda: 0
    """How often the recording was put somewhere."""
    hear_nothing: Callable[[], None] | None = None
    take_long: Callable[[], None] = lambda: None
    """Makes the next recognition take the better part of a second, where it would be done at once."""
    between_looks: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.provider = self.build()

    @property
    def audio(self) -> Audio:
        return Audio(LOCATION, self.source.stat().st_size, 7806, 1, lambda: self.open(LOCATION))

    @contextmanager
    def open(self, location: str) -> Iterator[Path]:
        assert location == LOCATION
        self.opened.append(location)
        yield self.source

    def attempt(self, *, language: str = "en") -> Attempt:
        """An attempt that is ready to be submitted."""
        options = self.provider.options(language=language, channels=1)
        return Attempt("1", self.provider.model, options, "", self.provider.upload(self.audio), self.audio.duration_ms, datetime.now(UTC))

    def answered(self) -> tuple[bytes, dict[str, Any]]:
        """An answer, and the options it was asked for with; recognized once for all tests of this process."""
        kind = (self.provider.name, self.provider.costs_money)
        if kind not in _answers:
            attempt = self.attempt()
            _answers[kind] = (self.recognize(attempt, Beats()), dict(attempt.options))
        payload, options = _answers[kind]
        return payload, deepcopy(options)

    def recognize(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        accepted = self.provider.submit(attempt, heartbeat)
        return accepted.payload if isinstance(accepted, Answered) else self.wait(replace(attempt, external_id=accepted), heartbeat)

    def wait(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        for _ in range(50):
            answer = self.provider.poll(attempt, heartbeat)
            if isinstance(answer, bytes):
                return answer
            assert isinstance(answer, Pending)
            assert answer.ask_again_in > 0
            self.between_looks()
        raise AssertionError("no answer")


# ---- the subjects -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with S3() as running:
        yield running


def _whisper(stack: ExitStack, request: pytest.FixtureRequest) -> Subject:
    models, folder = request.getfixturevalue("models_dir"), request.getfixturevalue("tmp_path")

    def build() -> Provider:
        return WhisperProvider(model="base", models_dir=models, threads=os.cpu_count() or 1, open_source=lambda uri: subject.open(uri))

    def hear_nothing() -> None:
        subject.source = write_wav(folder / "silence.wav", silence(3))

    subject = Subject(build, hear_nothing=hear_nothing)
    return subject


def _speechkit(stack: ExitStack, request: pytest.FixtureRequest) -> Subject:
    s3: S3 = request.getfixturevalue("s3")
    bucket = s3.make_bucket()
    s3.clear()
    server = stack.enter_context(SpeechKitServer(s3.url))

    def build() -> Provider:
        return SpeechKitProvider(
            stt_url=server.stt_url,
            operations_url=server.operations_url,
            api_key=speechkit_server.API_KEY,
            model="general",
            language="ru-RU",
            speaker_labeling=False,
            poll_interval=timedelta(seconds=10),
            bucket=Bucket(
                endpoint_url=s3.url,
                region=REGION,
                name=bucket,
                access_key_id=s3.access_key_id,
                secret_access_key=s3.secret_access_key,
            ),
            clock=server.clock.now,
        )

    return Subject(
        build,
        server=server,
        paid_route="submit",
        secret=speechkit_server.API_KEY,
        stored=lambda: s3.counts()["put"] + s3.counts()["complete"],
        hear_nothing=lambda: setattr(server, "recognizer", Silence()),
        between_looks=lambda: server.clock.advance(10),
    )


def _openai(stack: ExitStack, *, paid: bool) -> Subject:
    server = stack.enter_context(OpenAIServer())

    def build() -> Provider:
        return OpenAIProvider(
            base_url=server.base_url,
            api_key=openai_server.API_KEY,
            model="whisper-1",
            paid=paid,
            open_source=lambda uri: subject.open(uri),
        )

    subject = Subject(
        build,
        server=server,
        paid_route="transcriptions",
        secret=openai_server.API_KEY,
        take_long=lambda: server.faults.next("transcriptions", Delay(seconds=0.8)),
        hear_nothing=lambda: setattr(server, "recognizer", Silence()),
    )
    return subject


def _scripted(stack: ExitStack, request: pytest.FixtureRequest) -> Subject:
    def build(transcript: Transcript = HELLO) -> Provider:
        return ScriptedProvider(answers=[Pending(1), payload_of(transcript)])

    def hear_nothing() -> None:
        subject.provider = build(Transcript())

    subject = Subject(build, hear_nothing=hear_nothing)
    return subject


def _documented(stack: ExitStack, request: pytest.FixtureRequest) -> Subject:
    """The provider that docs/providers.md shows to whoever writes one."""
    (source,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "providers.md").read_text(), re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {}
    exec(source, page)
    return Subject(page["Parrot"])


SUBJECTS: dict[str, Callable[[ExitStack, pytest.FixtureRequest], Subject]] = {
    "whisper": _whisper,
    "speechkit": _speechkit,
    "openai, paid": lambda stack, _: _openai(stack, paid=True),
    "openai, free": lambda stack, _: _openai(stack, paid=False),
    "scripted": _scripted,
    "quick": lambda stack, _: Subject(QuickProvider),
    "documented": _documented,
}
OVER_HTTP = ("speechkit", "openai, paid", "openai, free")


@pytest.fixture(name="subject")
def _subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with ExitStack() as stack:
        yield SUBJECTS[request.param](stack, request)
