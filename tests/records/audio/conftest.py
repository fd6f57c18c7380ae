from __future__ import annotations

import array
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from records.audio import Normalized, ffmpeg_binary, normalize
from records.audio.normalize import Listen
from tests.inputs import inputs_dir

__all__ = ["inputs_dir"]

RATE = 16000  # of what `Sound` holds


@pytest.fixture(params=["system", "wheel"])
def binary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Both kinds of ffmpeg in turn: what holds for one must hold for the other."""
    if request.param == "wheel":
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    elif shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg is installed")
    ffmpeg_binary.cache_clear()
    yield ffmpeg_binary()
    ffmpeg_binary.cache_clear()


def make(path: Path, *arguments: str | Path) -> Path:
    """Have ffmpeg make a file."""
    command = [ffmpeg_binary(), "-nostdin", "-hide_banner", "-v", "error", "-y", *map(str, arguments), str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path


def picture(seconds: float) -> tuple[str, ...]:
    """Arguments for an input that is a gray film."""
    return ("-f", "lavfi", "-t", str(seconds), "-i", "color=c=gray:s=128x96:r=10")


def packets(path: Path) -> list[str]:
    """Checksums of the packets of the first sound track."""
    command = [ffmpeg_binary(), "-v", "error", "-i", str(path), "-map", "0:a:0", "-c", "copy", "-f", "framemd5", "-"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.rsplit(",", 1)[1].strip() for line in lines if not line.startswith("#")]


class Sound:
    """Decoded samples of a file, 16 kHz, one list per channel."""

    def __init__(self, path: Path, channels: int = 1) -> None:
        command = [ffmpeg_binary(), "-v", "error", "-i", str(path), "-ar", str(RATE), "-ac", str(channels), "-f", "s16le", "-"]
        samples = array.array("h", subprocess.run(command, check=True, capture_output=True).stdout)
        self.channels = [samples[number::channels] for number in range(channels)]

    def level(self, start: float, end: float, channel: int = 0) -> float:
        """Loudness (RMS) of a span in dB, full scale = 0."""
        span = self.channels[channel][max(0, round(start * RATE)) : round(end * RATE)]
        if not len(span):
            return -120.0
        return 10 * math.log10(sum(s * s for s in span) / len(span) / 32768**2 + 1e-12)


@pytest.fixture
def normalized(tmp_path: Path) -> Callable[..., tuple[Normalized, Path]]:
    """Normalize a file with a beat that does nothing; what came out and where."""

    def run(
        source: Path, *, channels: Literal["mix", "separate"] = "mix", max_duration_s: float = 3600, listen: Listen | None = None
    ) -> tuple[Normalized, Path]:
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        target = folder / f"{len(list(folder.iterdir()))}.ogg"
        result = normalize(source, target, channels=channels, max_duration_s=max_duration_s, beat=lambda progress: None, listen=listen)
        return result, target

    return run
