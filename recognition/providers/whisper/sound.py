"""From a file to what the model hears: decode as a stream, find speech, cut passages out of the silence around them, pack them into windows.

What the model hears must not depend on where in a recording it is said: the same speech moved by a hundredth of a second is heard as other
words. So a passage (speech without a long pause) is cut out by its own sound, not by the clock, with the same quiet before and after it however
much there was, and windows are packed from passages alone, as if there were nothing else. Blocks of decoding and of memory leave no trace.

Positions are in samples at 16 kHz from the start of the recording. Nothing here holds more than a few minutes of a recording in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
_WORD_MARGIN = RATE * 16 // 100
"""How far a word may reach beyond the speech that was found. Left alone, the first word after a pause begins with the padding."""
_GRID = 512
"""The detector judges this many samples at a time, counted from the first that it is given."""
_ATTENTIVE = 0.7
"""Passages are looked for with so much of the threshold: after silence the detector takes speech for less likely (0.39 after 120 s of digital silence
where it was 0.61 without), and gets its hearing back only as somebody speaks. What it finds is judged anew, without what was before."""
_ANCHOR = 10 * RATE
"""The loudest moment of so much of a passage's beginning decides where the detector's grid lies."""
_QUIET, _LEVEL, _MOST_GAIN = 0.1, 0.4, 100.0
"""A passage whose peak is below the first is amplified to the second, at most so many times: detector and model both miss words of quiet speech."""


class Span(NamedTuple):
    """A stretch of sound: speech from `start + lead` to `end - tail`, and the quiet around it."""

    start: int
    end: int
    lead: int = 0
    tail: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def speech(self) -> tuple[int, int]:
        return self.start + self.lead, self.end - self.tail


@dataclass(frozen=True, slots=True)
class Cutting:
    """How sound is cut. Part of what is frozen on a recognition: other numbers, other text."""

    piece_seconds: int = 300
    """The longest passage, and about what is held in memory."""
    window_seconds: int = 28
    vad_threshold: float = 0.35
    min_speech_ms: int = 150
    min_pause_ms: int = 160
    pad_ms: int = 400
    """Quiet before and after a passage, real as far as the recording reaches. A pause of twice as much ends a passage."""

    @property
    def pad(self) -> int:
        return self.pad_ms * RATE // 1000


class Stretch(NamedTuple):
    """A span and how it sounds; silence stands for what lies before the beginning or after the end of the recording."""

    span: Span
    samples: Samples


@dataclass(frozen=True, slots=True)
class Window:
    """Speech that the model hears at once: stretches put one after the other, without the long pauses between them."""

    stretches: tuple[Stretch, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(stretch.span for stretch in self.stretches)

    @property
    def length(self) -> int:
        return sum(stretch.span.length for stretch in self.stretches)

    @property
    def samples(self) -> Samples:
        import numpy as np

        return np.concatenate([stretch.samples for stretch in self.stretches])

    @property
    def end(self) -> int:
        return self.stretches[-1].span.end

    def between(self, start: int, end: int) -> Window:
        """What of it lies between two positions of the recording."""
        return Window(
            tuple(_part(stretch, start, end) for stretch in self.stretches if stretch.span.start < end and start < stretch.span.end)
        )

    def halves(self) -> tuple[Window, ...]:
        """Two windows, parted at the longest pause that is not near the ends; none where it is all one stretch."""
        parts = self.stretches
        ends = list(accumulate(stretch.span.length for stretch in parts))
        places = [n for n in range(1, len(parts)) if self.length <= 4 * ends[n - 1] <= 3 * self.length]
        if not places:
            return ()
        place = max(places, key=lambda n: _pause(parts[n - 1].span, parts[n].span))
        return Window(parts[:place]), Window(parts[place:])

    def place(self, start: int, end: int) -> Span:
        """Where a word of the window lies in the recording. A word lies in one span: the one that holds its middle."""
        ends = list(accumulate(span.length for span in self.spans))
        index = min(bisect_right(ends, (start + end) // 2), len(ends) - 1)
        span = self.spans[index]
        shift = span.end - ends[index]
        speech_start, speech_end = span.speech
        first, last = max(span.start, speech_start - _WORD_MARGIN), min(span.end, speech_end + _WORD_MARGIN)
        return Span(*(max(min(max(position + shift, first), last), 0) for position in (start, end)))


def _part(stretch: Stretch, start: int, end: int) -> Stretch:
    span = stretch.span
    first, last = max(span.start, start), min(span.end, end)
    speech_start, speech_end = span.speech
    part = Span(first, last, min(max(speech_start - first, 0), last - first), max(last - max(speech_end, first), 0))
    return Stretch(part, stretch.samples[first - span.start : last - span.start])


def count_channels(path: Path) -> int:
    """Channels of the first audio stream."""
    import av

    try:
        with av.open(str(path), metadata_errors="ignore") as container:
            return container.streams.audio[0].channels
    except (av.error.FFmpegError, IndexError) as error:
        raise _unreadable() from error


def windows(path: Path, *, channel: int | None, cutting: Cutting, tick: Callable[[int], None]) -> Iterator[Window]:
    """What the model is to hear of one channel (`None`: all of them mixed), in order.

    `tick` is called every few dozen milliseconds of work with how much has been decoded. Raises `Transient` where the file cannot be read.
    """
    return _packed(_stretches(_decode(path, channel), cutting, tick), cutting)


# ---- decoding -----------------------------------------------------------------------------------------------------------------------


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


# ---- passages -----------------------------------------------------------------------------------------------------------------------


def _stretches(blocks: Iterable[Samples], cutting: Cutting, tick: Callable[[int], None]) -> Iterator[Stretch]:
    """The speech of a recording, passage by passage, each judged by itself once it is whole."""
    import numpy as np

    apart, longest = 2 * cutting.pad, cutting.piece_seconds * RATE
    settled = 2 * apart  # what is nearer to the end of what is held may go on in what is yet to be decoded
    decoded = origin = 0  # where `held` begins
    held: Samples = np.zeros(0, np.float32)
    waiting: list[Samples] = []
    for block in chain(blocks, [None]):
        if block is not None:
            decoded += len(block)
            waiting.append(block)
        tick(decoded)
        if block is not None and decoded - origin < longest + settled:
            continue
        held = np.concatenate([held, *waiting])
        waiting = []
        while len(held) >= longest + settled or (block is None and len(held)):
            keep = len(held) if block is None else len(held) - apart
            for passage in _passages(_speech(_leveled(held), cutting, cutting.vad_threshold * _ATTENTIVE), apart):
                ended = block is None or passage.end + settled <= len(held)
                if passage.length > longest and (ended or passage.start <= apart):
                    stretches, keep = _beginning(held, passage, cutting, partial(tick, decoded))
                elif ended:
                    stretches = _cut_out(held, passage, cutting, partial(tick, decoded))
                else:
                    keep = max(passage.start - apart, 0)
                    break
                yield from (Stretch(_moved(span, origin), samples) for span, samples in stretches)
                if passage.length > longest:
                    break
            if not keep:
                break  # a passage that is not whole yet
            held = held[keep:].copy()  # a copy, so that all of it is not kept alive by a view of its end
            origin += keep


def _passages(speech: Sequence[Span], apart: int) -> Iterator[Span]:
    """Speech as stretches between which there is a pause of at least `apart`."""
    if not speech:
        return
    start = speech[0].start
    for before, after in pairwise(speech):
        if after.start - before.end >= apart:
            yield Span(start, before.end)
            start = after.start
    yield Span(start, speech[-1].end)


def _beginning(held: Samples, passage: Span, cutting: Cutting, beat: Callable[[], None]) -> tuple[list[Stretch], int]:
    """The beginning of a passage that is too long to be held, and where it was cut: in the longest pause of the last half, or where it is quietest."""
    end = passage.start + cutting.piece_seconds * RATE
    beat()
    cut = _cut(held, _heard(held, Span(passage.start, end), cutting)[0], passage.start, end)
    return _cut_out(held[:cut], Span(passage.start, cut), cutting, beat), cut


def _cut_out(held: Samples, passage: Span, cutting: Cutting, beat: Callable[[], None], *, times: int = 3) -> list[Stretch]:
    """What is said in a passage. It is judged several times: each says where the next begins, and whether it is several passages, so that in the end
    nothing is left of what was around it when it was found.
    """
    beat()
    speech, gain = _heard(held, passage, cutting)
    if times > 1:
        return [stretch for part in _passages(speech, 2 * cutting.pad) for stretch in _cut_out(held, part, cutting, beat, times=times - 1)]
    return [Stretch(span, _taken(held, span.start, span.end) * gain) for span in _pad(speech, cutting.pad)]


def _heard(held: Samples, passage: Span, cutting: Cutting) -> tuple[list[Span], np.float32]:
    """Speech of one passage, heard as if there were nothing else, and how much it is to be amplified.

    The detector's grid is laid by the passage's own loudest moment, so that the same passage gives the same spans wherever it lies.
    """
    import numpy as np

    loudness = np.abs(_taken(held, passage.start, passage.end))
    peak = float(loudness.max(initial=0.0))
    gain = np.float32(min(_LEVEL / peak, _MOST_GAIN) if 0 < peak < _QUIET else 1.0)
    anchor = passage.start + int(loudness[:_ANCHOR].argmax())
    start = anchor - -(-(anchor - passage.start + cutting.pad) // _GRID) * _GRID
    found = _speech(_taken(held, start, passage.end + cutting.pad) * gain, cutting, cutting.vad_threshold)
    return [_moved(span, start) for span in found], gain


def _taken(held: Samples, start: int, end: int) -> Samples:
    """A stretch of sound, silent where it reaches beyond what there is."""
    import numpy as np

    part = held[max(start, 0) : max(end, 0)]
    return np.pad(part, (max(-start, 0), max(end - start - max(-start, 0) - len(part), 0)))


def _moved(span: Span, by: int) -> Span:
    return span._replace(start=span.start + by, end=span.end + by)


def _leveled(samples: Samples) -> Samples:
    """Quiet stretches amplified by what is loudest within two seconds around them: the detector passes over quiet speech."""
    import numpy as np

    frames = np.abs(np.pad(samples, (0, -len(samples) % _GRID))).reshape(-1, _GRID).max(axis=1)
    around = 2 * RATE // _GRID
    loudest = np.lib.stride_tricks.sliding_window_view(np.pad(frames, around, mode="edge"), 2 * around + 1).max(axis=1)
    gains = np.where(loudest < _QUIET, np.minimum(_LEVEL / np.maximum(loudest, 1e-9), _MOST_GAIN), 1.0)
    levels = gains.astype(np.float32)
    changes = np.diff(levels, append=levels[-1:])
    ramps = levels[:, None] + changes[:, None] * (np.arange(_GRID, dtype=np.float32) / _GRID)
    return (samples * ramps.reshape(-1)[: len(samples)]).astype(np.float32, copy=False)


def seconds_of_speech(raw: Path, beat: Callable[[], None]) -> float:
    """Of a file of raw 16-bit samples at 16 kHz, one channel. `beat` is called before each half minute of it, which takes a fraction of a second."""
    import numpy as np

    cutting = Cutting()
    found = 0
    with raw.open("rb") as file:
        while block := file.read(2 * _BLOCK):
            beat()
            samples = np.frombuffer(block[: len(block) // 2 * 2], dtype="<i2").astype(np.float32) / np.float32(32768)
            for span in _speech(_leveled(samples), cutting, cutting.vad_threshold) if len(samples) else ():
                found += span.length
    return found / RATE


def _speech(samples: Samples, cutting: Cutting, threshold: float) -> list[Span]:
    """Where somebody speaks, without padding."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(
        threshold=threshold,
        neg_threshold=threshold - 0.1,
        min_speech_duration_ms=cutting.min_speech_ms,
        min_silence_duration_ms=cutting.min_pause_ms,
        speech_pad_ms=0,
    )
    return [Span(found["start"], min(found["end"], len(samples))) for found in get_speech_timestamps(samples, options)]


def _cut(samples: Samples, speech: Sequence[Span], start: int, end: int) -> int:
    """Where to end what goes on: in the longest pause of its last half; in the quietest moment if there is none."""
    half = (start + end) // 2
    begins, ends = [*(span.start for span in speech), end], [start, *(span.end for span in speech)]
    pauses = [Span(max(before, half), min(begin, end)) for before, begin in zip(ends, begins, strict=True) if begin > half]
    longest = max(pauses, key=lambda pause: pause.length, default=Span(0, 0))
    if longest.length >= RATE // 10:
        return longest.start + longest.length // 2
    return _quietest(samples, half, end)


def _quietest(samples: Samples, start: int, end: int) -> int:
    """The middle of the quietest 50 ms between two positions."""
    import numpy as np

    step = RATE // 100
    part = samples[start:end]
    energy = np.square(part[: len(part) // step * step]).reshape(-1, step).sum(axis=1)
    smooth = np.convolve(energy, np.ones(5), mode="same")[2:-2]
    return start + (int(np.argmin(smooth)) + 2) * step + step // 2


def _pad(speech: Sequence[Span], pad: int) -> Iterator[Span]:
    """Widen spans by `pad`, or to the middle of the pause where two would meet: beginnings and endings of words are quiet."""
    if not speech:
        return
    middles = [(before.end + after.start) // 2 for before, after in pairwise(speech)]
    limits = [speech[0].start - pad, *middles, speech[-1].end + pad]
    for span, (left, right) in zip(speech, pairwise(limits), strict=True):
        start, end = max(span.start - pad, left), min(span.end + pad, right)
        yield Span(start, end, span.start - start, end - span.end)


# ---- windows ------------------------------------------------------------------------------------------------------------------------


def _packed(stretches: Iterable[Stretch], cutting: Cutting) -> Iterator[Window]:
    """As few windows as fit, cut at the longest pause of a window's second half. A pause that ends a passage counts the same however long it is."""
    longest = cutting.window_seconds * RATE
    rest: list[Stretch] = []
    for stretch in chain.from_iterable(_split(stretch, longest) for stretch in stretches):
        rest.append(stretch)
        lengths = list(accumulate(one.span.length for one in rest))
        while lengths[-1] > longest:
            places = [n for n in range(1, len(rest)) if lengths[n - 1] * 2 >= longest] or [len(rest) - 1]
            place = max(places, key=lambda n: min(_pause(rest[n - 1].span, rest[n].span), 2 * cutting.pad))
            yield Window(tuple(rest[:place]))
            rest = rest[place:]
            lengths = list(accumulate(one.span.length for one in rest))
    if rest:
        yield Window(tuple(rest))


def _pause(before: Span, after: Span) -> int:
    return after.speech[0] - before.speech[1]


def _split(stretch: Stretch, longest: int) -> Iterator[Stretch]:
    while stretch.span.length > longest:
        cut = stretch.span.start + _quietest(stretch.samples, longest // 2, longest)
        yield _part(stretch, stretch.span.start, cut)
        stretch = _part(stretch, cut, stretch.span.end)
    yield stretch
