from __future__ import annotations

from pathlib import Path

import pytest

from recognition.providers.whisper import WhisperProvider
from tests.recognition.providers.whisper_engine import opened


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def whisper(models_dir: Path) -> WhisperProvider:
    """One provider, and so one loaded model, for all tests of this process."""
    return WhisperProvider(model="base", models_dir=models_dir, threads=1, open_source=opened)
