"""From a file to stretches of speech: decode as a stream, cut into pieces at pauses, find who-speaks spans, pack them into windows.

Positions are in samples at 16 kHz. Nothing here holds more than one piece of a recording in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recognition.contract import Transient

if TYPE_CHECKING:
    import numpy as np
    from av import AudioFrame
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

RATE = 16_000
_BLOCK = 30 * RATE
_WORD_MARGIN = RATE * 32 // 100
"""How far a word may reach beyond the speech that was found. Left alone, the first word after a pause begins with the padding."""


class Span(NamedTuple):
    """A stretch of sound. Words lie between `start + lead` and `end - tail`: the model is given more silence than a word may claim."""

    start: int
    end: int
    lead: int = 0
    tail: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Cutting:
    """How sound is cut. Part of what is frozen on a recognition: other numbers, other text."""

    piece_seconds: int = 300
    window_seconds: int = 28
    vad_threshold: float = 0.5
    min_speech_ms: int = 150
    min_pause_ms: int = 160
    pad_ms: int = 400


@dataclass(frozen=True, slots=True)
class Window:
    """Speech that the model hears at once: spans of a piece put one after the other, without the pauses between them."""

    spans: tuple[Span, ...]

    @property
    def length(self) -> int:
        return sum(span.length for span in self.spans)

    def samples(self, piece: Samples) -> Samples:
        import numpy as np

        return np.concatenate([piece[span.start : span.end] for span in self.spans])

    def between(self, start: int, end: int) -> Window:
        """What of it lies between two positions of the piece."""
        clipped = (Span(max(span.start, start), min(span.end, end)) for span in self.spans)
        return Window(tuple(span for span in clipped if span.length > 0))

    def to_piece(self, start: int, end: int) -> Span:
        """Where a word of the window lies in the piece. A word lies in one span: the one that holds its middle."""
        ends = list(accumulate(span.length for span in self.spans))
        index = min(bisect_right(ends, (start + end) // 2), len(self.spans) - 1)
        span = self.spans[index]
        shift = span.end - ends[index]
        first, last = span.start + span.lead, span.end - span.tail
        return Span(*(min(max(position + shift, first), last) for position in (start, end)))


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one channel that begins and ends in a pause, and the windows of speech in it."""

    start: int
    samples: Samples
    windows: tuple[Window, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


def count_channels(path: Path) -> int:
    """Channels of the first audio stream."""
    import av

    try:
        with av.open(str(path), metadata_errors="ignore") as container:
            return container.streams.audio[0].channels
    except (av.error.FFmpegError, IndexError) as error:
        raise _unreadable() from error


def pieces(path: Path, *, channel: int | None, cutting: Cutting, tick: Callable[[], None]) -> Iterator[Piece]:
    """Cut one channel (`None`: all of them mixed) into pieces. `tick` is called every few dozen milliseconds of work.

    Raises `Transient` where the file cannot be read.
    """
    import numpy as np

    longest = cutting.piece_seconds * RATE
    start = 0
    waiting: list[Samples] = []
    for block in chain(_decode(path, channel), [None]):
        tick()
        if block is not None:
            waiting.append(block)
            if sum(map(len, waiting)) < longest:
                continue
        samples = np.concatenate(waiting) if waiting else np.zeros(0, np.float32)
        while len(samples) >= longest or (block is None and len(samples)):
            taken = samples[:longest]
            speech = _speech(taken, cutting)
            cut = _cut(taken, speech) if len(samples) > len(taken) or block is not None else len(taken)
            kept = [Span(span.start, min(span.end, cut)) for span in speech if span.start < cut]
            yield Piece(start, taken[:cut], _windows(taken[:cut], kept, cutting))
            start += cut
            samples = samples[cut:]
            tick()
        waiting = [samples.copy()]  # a copy, so that the whole piece is not kept alive by a view of its end


def _decode(path: Path, channel: int | None) -> Iterator[Samples]:
    """Blocks of about half a minute of one channel."""
    import av
    import numpy as np

    collected: list[Samples] = []
    length = 0
    try:
        with av.open(str(path), metadata_errors="ignore") as container:
            stream = container.streams.audio[0]
            layout = "mono" if channel is None else stream.layout.name
            resampler = av.AudioResampler(format="fltp", layout=layout, rate=RATE)
            frames = _skip_damaged(container.decode(stream))
            for frame in chain(frames, [None]):
                if frame is not None:
                    frame.pts = None  # samples are counted, as every player does within one stream
                for resampled in resampler.resample(frame):
                    row = resampled.to_ndarray()[channel or 0]
                    collected.append(row.astype(np.float32, copy=False))
                    length += len(row)
                if length >= _BLOCK:
                    yield np.concatenate(collected)
                    collected, length = [], 0
            if collected:
                yield np.concatenate(collected)
    except (av.error.FFmpegError, IndexError) as error:
        raise _unreadable() from error


def _skip_damaged(frames: Iterator[AudioFrame]) -> Iterator[AudioFrame]:
    import av

    while True:
        try:
            yield next(frames)
        except StopIteration:
            return
        except av.error.InvalidDataError:
            continue


def _unreadable() -> Transient:
    return Transient("audio_unreadable", "The normalized recording cannot be decoded.")


def _speech(samples: Samples, cutting: Cutting) -> list[Span]:
    """Where somebody speaks, without padding."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(
        threshold=cutting.vad_threshold,
        min_speech_duration_ms=cutting.min_speech_ms,
        min_silence_duration_ms=cutting.min_pause_ms,
        speech_pad_ms=0,
    )
    return [Span(found["start"], min(found["end"], len(samples))) for found in get_speech_timestamps(samples, options)]


def _cut(samples: Samples, speech: Sequence[Span]) -> int:
    """Where to end a piece that goes on: in the longest pause of its last half; in the quietest moment if there is none."""
    half = len(samples) // 2
    begins, ends = [span.start for span in speech] + [len(samples)], [0] + [span.end for span in speech]
    pauses = [Span(max(end, half), begin) for end, begin in zip(ends, begins, strict=True) if begin > half]
    longest = max(pauses, key=lambda pause: pause.length, default=Span(0, 0))
    if longest.length >= RATE // 10:
        return longest.start + longest.length // 2
    return _quietest(samples, half, len(samples))


def _quietest(samples: Samples, start: int, end: int) -> int:
    """The middle of the quietest 50 ms between two positions."""
    import numpy as np

    step = RATE // 100
    part = samples[start:end]
    energy = np.square(part[: len(part) // step * step]).reshape(-1, step).sum(axis=1)
    smooth = np.convolve(energy, np.ones(5), mode="same")[2:-2]
    return start + (int(np.argmin(smooth)) + 2) * step + step // 2


def _windows(samples: Samples, speech: Sequence[Span], cutting: Cutting) -> tuple[Window, ...]:
    """Pack speech into as few windows as fit, cut at the longest pause of a window's second half."""
    longest = cutting.window_seconds * RATE
    rest = list(chain.from_iterable(_split(samples, span, longest) for span in _pad(speech, len(samples), cutting.pad_ms * RATE // 1000)))
    windows = []
    while rest:
        lengths = list(accumulate(span.length for span in rest))
        fit = max(1, bisect_right(lengths, longest))
        if fit < len(rest):
            places = [n for n in range(1, fit + 1) if lengths[n - 1] * 2 >= longest] or [fit]
            fit = max(places, key=lambda n: rest[n].start - rest[n - 1].end)
        windows.append(Window(tuple(rest[:fit])))
        rest = rest[fit:]
    return tuple(windows)


def _pad(speech: Sequence[Span], end: int, pad: int) -> Iterator[Span]:
    """Widen spans by `pad`, or to the middle of the pause where two would meet: beginnings and endings of words are quiet."""
    middles = [0, *((before.end + after.start) // 2 for before, after in pairwise(speech)), end]
    for span, (left, right) in zip(speech, pairwise(middles), strict=False):
        start, stop = max(span.start - pad, left), min(span.end + pad, right)
        yield Span(start, stop, max(0, span.start - start - _WORD_MARGIN), max(0, stop - span.end - _WORD_MARGIN))


def _split(samples: Samples, span: Span, longest: int) -> Iterator[Span]:
    while span.length > longest:
        cut = _quietest(samples, span.start + longest // 2, span.start + longest)
        yield Span(span.start, cut, lead=span.lead)
        span = Span(cut, span.end, tail=span.tail)
    yield span
