"""Sound made on the spot: tones, silence and noise as WAV files, from the standard library alone."""

from __future__ import annotations

import array
import math
import random
import sys
import wave
from collections.abc import Iterable
from pathlib import Path

RATE = 16000


def tone(seconds: float, *, hz: float = 440.0, volume: float = 0.3, rate: int = RATE) -> list[int]:
    """Samples of a sine tone, 16 bit."""
    peak = volume * 32767
    return [int(peak * math.sin(2 * math.pi * hz * i / rate)) for i in range(round(seconds * rate))]


def silence(seconds: float, *, rate: int = RATE) -> list[int]:
    return [0] * round(seconds * rate)


def noise(seconds: float, *, volume: float = 0.05, seed: int = 1, rate: int = RATE) -> list[int]:
    rnd = random.Random(seed)
    peak = volume * 32767
    return [int(rnd.uniform(-peak, peak)) for _ in range(round(seconds * rate))]


def write_wav(path: Path, *channels: Iterable[int], rate: int = RATE) -> Path:
    """Write one channel per list of samples; shorter ones are padded with silence."""
    lists = [list(channel) for channel in channels]
    length = max(len(samples) for samples in lists)
    mixed = array.array("h", bytes(2 * length * len(lists)))
    for number, samples in enumerate(lists):
        mixed[number : len(samples) * len(lists) : len(lists)] = array.array("h", samples)
    if sys.byteorder == "big":
        mixed.byteswap()
    with wave.open(str(path), "wb") as out:
        out.setnchannels(len(lists))
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(mixed.tobytes())
    return path
