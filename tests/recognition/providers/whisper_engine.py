"""What the Whisper tests share: attempts over local files, and heartbeats that watch or stop the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recognition.contract import Attempt

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "transcriber" / "demo" / "recording.ogg"
DEMO_TEXT = "Good morning, everybody. Welcome to the meeting. Today we will talk about the weather in the mountains."
SHARED = ROOT.parent / "shared" / "audio"


@contextmanager
def opened(source_uri: str) -> Iterator[Path]:
    yield Path(source_uri)


def attempt(path: Path, options: dict[str, Any], *, duration_ms: int = 10_000, model: str = "base") -> Attempt:
    return Attempt("1", model, options, "local-1", str(path), duration_ms)


class Watching:
    """A heartbeat that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def beat(self, progress: float | None = None) -> None:
        if progress is not None:
            self.told.append(progress)


class Stop(Exception):
    """What a heartbeat raises when the work must end."""


class Stopping:
    """A heartbeat that raises at its nth beat."""

    def __init__(self, at: int) -> None:
        self.left = at

    def beat(self, progress: float | None = None) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Stop
