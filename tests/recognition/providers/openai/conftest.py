from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recognition.contract import Attempt
from recognition.providers.openai import OpenAIProvider
from tests.fakes.openai_server import API_KEY, OpenAIServer
from tests.fakes.recognizers import opus_file

MakeProvider = Callable[..., OpenAIProvider]


@contextmanager
def opened(source_uri: str) -> Iterator[Path]:
    yield Path(source_uri)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def provider_of(server: OpenAIServer) -> MakeProvider:
    """A provider for the stand-in, with what the test says."""

    def make(**said: object) -> OpenAIProvider:
        return OpenAIProvider(
            **{"base_url": server.base_url, "api_key": API_KEY, "model": "whisper-1", "paid": True, "open_source": opened, **said}  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "0190-normalized.ogg"
    path.write_bytes(opus_file(9.3))
    return path


def attempt_of(provider: OpenAIProvider, recording: Path, *, language: str = "en", channels: int = 1) -> Attempt:
    options = provider.options(language=language, channels=channels)
    return Attempt("1", provider.model, options, "", str(recording), 9300)
