"""What the stand-ins hear in a recording: a fixed text spread over its real duration, nothing, or what the local model hears.

Also the reader of the recordings themselves, which knows no more of a file than the container's header and its end.
"""

from __future__ import annotations

import io
import itertools
import os
import struct
import tempfile
import wave
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

# ---- recordings ---------------------------------------------------------------------------------------------------------------------


class NotAudio(Exception):
    """The bytes are not what they are said to be, or can't be decoded."""


@dataclass(frozen=True)
class Sound:
    """A recording. `read(start, length)` gives bytes of it; a negative start counts from the end."""

    kind: str
    size: int
    duration_ms: int
    channels: int
    read: Callable[[int, int], bytes] = field(repr=False, compare=False)

    def whole(self) -> bytes:
        return self.read(0, self.size)


def sound_of(data: bytes) -> Sound:
    """Raises NotAudio."""
    return sound_from(len(data), lambda start, length: data[start : start + length] if start >= 0 else data[start:][:length])


def sound_from(size: int, read: Callable[[int, int], bytes]) -> Sound:
    """Look at a recording through `read`, at its start and its end alone where the container allows it. Raises NotAudio."""
    head = read(0, 65536)
    if head[:4] == b"OggS":
        channels, duration_ms = _opus(head, head if size <= len(head) else read(-65536, 65536))
        return Sound("OGG_OPUS", size, duration_ms, channels, read)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        channels, duration_ms = _wav(read(0, size))
        return Sound("WAV", size, duration_ms, channels, read)
    if head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2):
        channels, duration_ms = _mp3(read(0, size))
        return Sound("MP3", size, duration_ms, channels, read)
    raise NotAudio("no container that is known here")


def _opus(head: bytes, tail: bytes) -> tuple[int, int]:
    segments = head[26] if len(head) > 26 else 0
    packet = head[27 + segments :]
    if packet[:8] != b"OpusHead" or len(packet) < 19 or not packet[9]:
        raise NotAudio("Ogg, but no Opus in it")
    pre_skip = int.from_bytes(packet[10:12], "little")
    end, at = 0, tail.rfind(b"OggS")
    while at >= 0:
        granule = int.from_bytes(tail[at + 6 : at + 14], "little") if len(tail) >= at + 14 else 2**64 - 1
        if granule != 2**64 - 1:  # a page on which no packet ends has none
            end = granule
            break
        at = tail.rfind(b"OggS", 0, at)
    return packet[9], max(end - pre_skip, 0) * 1000 // 48000


def _wav(data: bytes) -> tuple[int, int]:
    try:
        with wave.open(io.BytesIO(data)) as sound:  # refuses whatever is not PCM
            if sound.getsampwidth() != 2:
                raise NotAudio("not 16 bits a sample")
            return sound.getnchannels(), sound.getnframes() * 1000 // sound.getframerate()
    except (wave.Error, EOFError) as error:
        raise NotAudio("no plain WAV") from error


def _mp3(data: bytes) -> tuple[int, int]:
    import av

    try:
        with av.open(io.BytesIO(data), "r", format="mp3") as container:
            stream = container.streams.audio[0]
            return stream.channels, (container.duration or 0) // 1000
    except (av.FFmpegError, IndexError) as error:
        raise NotAudio("no MP3") from error


def opus_file(seconds: float, channels: int = 1, *, pages: int = 1) -> bytes:
    """An Ogg/Opus file of digital silence that says it is this long, however long that is: header, tags, and `pages` small pages."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, channels, 312, 48000, 0, 0)
    tags = b"OpusTags" + struct.pack("<I", 4) + b"none" + struct.pack("<I", 0)
    last = 312 + round(seconds * 48000)
    sound = [(last * number // pages, b"\xfc\xff\xfe") for number in range(1, pages + 1)]
    packets = [(0, head), (0, tags), *sound]
    return b"".join(
        _page(2 * (number == 0) | 4 * (number == len(packets) - 1), granule, number, packet)
        for number, (granule, packet) in enumerate(packets)
    )


def _page(flags: int, granule: int, number: int, packet: bytes) -> bytes:
    header = struct.pack("<4sBBQIIIBB", b"OggS", 0, flags, granule, 1, number, 0, 1, len(packet))
    checksum = _ogg_crc(header + packet)
    return header[:22] + struct.pack("<I", checksum) + header[26:] + packet


def _ogg_crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
        value &= 0xFFFFFFFF
    return value


# ---- speech -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phrase:
    """Something said without a pause, by one voice. Words are `(text with its punctuation, start_ms, end_ms)`."""

    start_ms: int
    end_ms: int
    words: tuple[tuple[str, int, int], ...]
    channel: int = 0
    speaker: int = 0

    @property
    def text(self) -> str:
        return " ".join(word for word, _, _ in self.words)

    @property
    def bare(self) -> str:
        """As a recognizer hears it: no capitals, no punctuation."""
        return " ".join(bare(word) for word, _, _ in self.words if bare(word))


def bare(word: str) -> str:
    return word.strip(".,!?…:;\"'«»“”()[]—–-").lower()


class Recognizer(Protocol):
    @property
    def slow(self) -> bool:
        """Whether it works so long that no request should wait for it."""

    def __call__(self, sound: Sound, language: str) -> list[Phrase]:
        """What is said, by time. `language` is a tag such as `en-US`, or "" where it is to be detected. Raises NotAudio."""


RUSSIAN = ("Добрый день, заказ готов.", "Номер двадцать пять, верно?", "Да, спасибо!")
ENGLISH = ("Good morning, the order is ready.", "Number twenty five, right?", "Yes, thank you!")


@dataclass(frozen=True)
class FixedText:
    """Invented phrases, one after the other, each starting `every_ms` after the last one, as long as the sound lasts.

    Each channel has phrases of its own. The speakers take turns. `texts` is Russian or English by the language asked for, unless given.
    """

    texts: Sequence[str] = ()
    every_ms: int = 5000
    slow: bool = False

    def __call__(self, sound: Sound, language: str) -> list[Phrase]:
        texts = self.texts or (ENGLISH if language.startswith("en") else RUSSIAN)
        said = itertools.cycle(enumerate(texts))
        phrases = []
        for start in range(0, max(sound.duration_ms - 200, 1), self.every_ms):
            end = min(start + self.every_ms, sound.duration_ms)
            for channel in range(sound.channels):
                number, text = next(said)
                phrases.append(_spread(text, start, end, channel, number % 2))
        return phrases


def _spread(text: str, start: int, end: int, channel: int, speaker: int) -> Phrase:
    """Words of the same length between a tenth and eight tenths of the stretch."""
    words = text.split()
    first, room = start + (end - start) // 10, (end - start) * 7 // 10
    edges = [first + room * number // len(words) for number in range(len(words) + 1)]
    timed = tuple((word, edges[n], edges[n] + (edges[n + 1] - edges[n]) * 9 // 10) for n, word in enumerate(words))
    return Phrase(start, end, timed, channel, speaker)


@dataclass(frozen=True)
class Silence:
    """Nobody speaks."""

    slow: bool = False

    def __call__(self, sound: Sound, language: str) -> list[Phrase]:
        return []


@dataclass(frozen=True)
class LocalWhisper:
    """What the local model hears. The model is the default one, kept under the data folder."""

    models_dir: Path
    slow: bool = True

    def __call__(self, sound: Sound, language: str) -> list[Phrase]:
        from recognition.contract import Attempt, ProviderError
        from recognition.providers.whisper import WhisperProvider  # heavy libraries come with the model

        @contextmanager
        def opened(path: str):
            yield Path(path)

        provider = WhisperProvider(model="base", models_dir=self.models_dir, threads=os.cpu_count() or 1, open_source=opened)
        options = provider.options(language=language, channels=sound.channels)
        with tempfile.NamedTemporaryFile(suffix=".audio") as file:
            file.write(sound.whole())
            file.flush()
            attempt = Attempt("stand-in", "base", options, "stand-in", file.name, sound.duration_ms, datetime.now(UTC))
            try:
                heard = provider.parse(provider.poll(attempt, _NoHeart()), options)
            except ProviderError as error:
                raise NotAudio(str(error)) from error
        phrases = [
            Phrase(u.start_ms, u.end_ms, tuple((w.text, w.start_ms, w.end_ms) for w in u.words), u.channel)
            for u in heard.utterances
            if u.words
        ]
        return [replace(phrase, speaker=number % 2) for number, phrase in enumerate(phrases)]


class _NoHeart:
    def beat(self, progress: float | None = None) -> None:
        pass
