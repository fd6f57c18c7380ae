"""Speech made on the spot by espeak-ng, with the place of every word: what was recognized can be held against what was said, and when.

    from tests.speech import Spoken, join, say, why_not

Sound is float32 at 16 kHz. Needs numpy (it comes with the engine) and the library of espeak-ng.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.audio import RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


class Place(NamedTuple):
    """A word that was said, from where to where, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Spoken:
    samples: Samples
    words: tuple[Place, ...] = ()

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def at(self, decibel: float) -> Spoken:
        """As loud as that, relative to full scale, on average over its speech."""
        spoken = np.concatenate([self.samples[round(w.start * RATE) : round(w.end * RATE)] for w in self.words] or [self.samples])
        return Spoken(self.samples * np.float32(10 ** (decibel / 20) / np.sqrt(np.mean(np.square(spoken)))), self.words)


def silence(seconds: float) -> Spoken:
    return Spoken(np.zeros(round(seconds * RATE), np.float32))


def join(*parts: Spoken | float) -> Spoken:
    """One after the other; numbers are seconds of silence."""
    whole = [part if isinstance(part, Spoken) else silence(part) for part in parts]
    words, start = [], 0.0
    for part in whole:
        words += [Place(word.text, word.start + start, word.end + start) for word in part.words]
        start += part.seconds
    return Spoken(np.concatenate([part.samples for part in whole]), tuple(words))


def write(path: Path, *channels: Spoken) -> Path:
    """A WAV file with one channel for each; shorter ones are padded with silence."""
    sound = np.zeros((max(len(one.samples) for one in channels), len(channels)), "<i2")
    for number, one in enumerate(channels):
        sound[: len(one.samples), number] = np.clip(one.samples * 32767, -32768, 32767)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(len(channels))
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(sound.tobytes())
    return path


def read(path: Path) -> Spoken:
    """A recording of real speech; where its words lie is not known."""
    from faster_whisper.audio import decode_audio

    return Spoken(decode_audio(str(path), sampling_rate=RATE))


# ---- espeak-ng ----------------------------------------------------------------------------------------------------------------------

_RETRIEVAL, _UTF8, _WORD, _LAST, _RATE = 1, 1, 1, 0, 1


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


def why_not() -> str:
    """Why nothing can be said here; empty where it can."""
    return "" if ctypes.util.find_library("espeak-ng") else "the library of espeak-ng is not installed"


@lru_cache(maxsize=1)
def _library() -> tuple[Any, int]:
    library = ctypes.CDLL(ctypes.util.find_library("espeak-ng"))
    rate = library.espeak_Initialize(_RETRIEVAL, 0, None, 0)
    if rate <= 0:
        raise RuntimeError("espeak-ng can't be set up")
    return library, rate


@lru_cache(maxsize=1000)
def say(text: str, voice: str = "en-us", *, words_per_minute: int = 150) -> Spoken:
    """Say a sentence, without quiet before and after it. `voice` is espeak's (`ru`, `en-us+f3`)."""
    library, rate = _library()
    if library.espeak_SetVoiceByName(voice.encode()) != 0:
        raise ValueError(f"espeak-ng has no voice {voice}")
    sound: list[int] = []
    starts: list[tuple[str, int]] = []

    def take(samples: Any, count: int, events: Any) -> int:
        if samples:
            sound.extend(samples[:count])
        number = 0
        while events[number].type != _LAST:
            event = events[number]
            if event.type == _WORD:
                starts.append((text[event.text_position - 1 : event.text_position - 1 + event.length], event.sample))
            number += 1
        return 0

    library.espeak_SetParameter(_RATE, words_per_minute, 0)
    callback = _CALLBACK(take)
    library.espeak_SetSynthCallback(callback)
    data = text.encode() + b"\0"
    if library.espeak_Synth(data, len(data), 0, 1, 0, _UTF8, None, None) != 0 or library.espeak_Synchronize() != 0:
        raise RuntimeError("espeak-ng says nothing")
    return _trimmed(np.asarray(sound, np.float32) / np.float32(32768), rate, starts)


def _trimmed(sound: Samples, rate: int, starts: Sequence[tuple[str, int]]) -> Spoken:
    audible = np.flatnonzero(np.abs(sound) > 0.005)
    first, last = int(audible[0]), int(audible[-1]) + 1
    places = [(text, (max(sample, first) - first) / rate) for text, sample in starts]
    seconds = (last - first) / rate
    ends = [*(start for _, start in places[1:]), seconds]
    samples = _resampled(sound[first:last], rate)
    return Spoken(samples, tuple(Place(text, start, end) for (text, start), end in zip(places, ends, strict=True)))


def _resampled(sound: Samples, rate: int) -> Samples:
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    frame = av.AudioFrame.from_ndarray(sound[None], format="flt", layout="mono")
    frame.sample_rate = rate
    return np.concatenate([part.to_ndarray()[0] for given in (frame, None) for part in resampler.resample(given)])
