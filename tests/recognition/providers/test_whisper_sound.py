from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recognition.providers.whisper.sound import (
    RATE,
    Cutting,
    Span,
    Stretch,
    Window,
    _cut,
    _packed,
    _pad,
    _passages,
    _quietest,
    _stretches,
    seconds_of_speech,
    windows,
)
from tests.audio import noise, silence, tone, write_wav
from tests.recognition.providers.whisper_engine import DEMO, SHARED
from tests.speech import Spoken, join, read

if TYPE_CHECKING:
    from recognition.providers.whisper.sound import Samples

pytestmark = pytest.mark.no_database

LOUD = (np.asarray(noise(60, volume=0.5)) / 32768).astype(np.float32)
NO_PAD = Cutting(pad_ms=0)


def seconds(*pairs: tuple[float, float]) -> list[Span]:
    return [Span(round(start * RATE), round(end * RATE)) for start, end in pairs]


def stretches(*pairs: tuple[float, float]) -> list[Stretch]:
    return [Stretch(span, LOUD[span.start : span.end]) for span in seconds(*pairs)]


def found(samples: Samples, cutting: Cutting | None = None, *, block: int = 30 * RATE) -> list[Stretch]:
    blocks = [samples[start : start + block] for start in range(0, len(samples), block)]
    return list(_stretches(blocks, cutting or Cutting(), lambda decoded: None))


def raw(path: Path, samples: Samples) -> Path:
    path.write_bytes((samples * 32767).astype("<i2").tobytes())
    return path


# ---- how much speech there is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", [1.0, 0.02])
def test_speech_is_counted_however_quiet(gain: float, tmp_path: Path):
    speech = read(DEMO).samples
    beats: list[None] = []

    counted = seconds_of_speech(
        raw(tmp_path / "raw", np.concatenate([speech * gain, np.zeros(60 * RATE, np.float32)])), lambda: beats.append(None)
    )

    assert 0.6 * len(speech) / RATE < counted <= len(speech) / RATE + 0.5
    assert len(beats) == -(-(len(speech) + 60 * RATE) // (30 * RATE))


@pytest.mark.parametrize("samples", [silence(40), noise(40, volume=0.3), noise(40, volume=0.0008), tone(40), [], [1]])
def test_what_is_no_speech_counts_nothing(samples: list[int], tmp_path: Path):
    path = raw(tmp_path / "raw", (np.asarray(samples) / 32767).astype(np.float32))
    path.write_bytes(path.read_bytes() + b"0")  # cut off within a sample

    assert seconds_of_speech(path, lambda: None) == 0


# ---- decoding -----------------------------------------------------------------------------------------------------------------------


def test_channels_are_taken_one_at_a_time_or_mixed(tmp_path: Path):
    speech = [int(sample * 32767) for sample in read(DEMO).samples]
    path = write_wav(tmp_path / "stereo.wav", speech, silence(1))

    def loudest(channel: int | None) -> float:
        heard = windows(path, channel=channel, cutting=Cutting(), tick=lambda decoded: None)
        return max((float(np.abs(window.samples).max()) for window in heard), default=0.0)

    left, right, mixed = map(loudest, (0, 1, None))
    assert right == 0 < mixed < left


def test_the_clock_ticks_while_decoding_and_tells_how_far_it_is(tmp_path: Path):
    ticks: list[int] = []
    path = write_wav(tmp_path / "long.wav", silence(300))
    assert list(windows(path, channel=None, cutting=Cutting(), tick=ticks.append)) == []
    assert len(ticks) >= 10
    assert ticks == sorted(ticks)
    assert ticks[-1] == 300 * RATE


# ---- what is heard does not depend on where it is said ------------------------------------------------------------------------------

RECORDINGS = [
    DEMO,
    *(
        pytest.param(SHARED / name, marks=pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not on this machine"))
        for name in ("jfk.flac", "ru_call.wav")
    ),
]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_silence_before_and_after_changes_no_sample_that_is_heard(path: Path):
    speech = read(path)
    alone = found(speech.samples)
    assert sum(stretch.span.length for stretch in alone) > 0.6 * len(speech.samples)
    for lead in (0.01, 1.2345, 30.0, 121.3):
        moved = found(join(lead, speech, 5.0).samples)
        before = round(lead * RATE)
        assert [stretch.span for stretch in moved] == [
            span._replace(start=span.start + before, end=span.end + before) for span, _ in alone
        ], lead
        assert all(np.array_equal(one.samples, other.samples) for one, other in zip(alone, moved, strict=True)), lead


def test_a_longer_pause_between_changes_no_sample_that_is_heard():
    speech = read(DEMO)
    near, far = (found(join(speech, pause, speech).samples) for pause in (1.0, 40.0))
    assert len(near) == len(far) > len(found(speech.samples))
    assert all(np.array_equal(one.samples, other.samples) for one, other in zip(near, far, strict=True))


@pytest.mark.parametrize(("piece_seconds", "block"), [(300, 3.0), (12, 30.0), (12, 1.7)])
def test_blocks_and_pieces_leave_no_trace(piece_seconds: int, block: float):
    sound = join(2.0, *(part for _ in range(6) for part in (read(DEMO), 1.5))).samples
    whole = found(sound)
    parts = found(sound, Cutting(piece_seconds=piece_seconds), block=round(block * RATE))
    assert [stretch.span for stretch in parts] == [stretch.span for stretch in whole]
    assert all(np.array_equal(one.samples, other.samples) for one, other in zip(whole, parts, strict=True))


def test_speech_without_pause_is_cut_into_pieces_and_none_of_it_is_lost_or_heard_twice():
    sentence = read(DEMO).samples[round(0.02 * RATE) : round(7.45 * RATE)]
    sound = np.concatenate([sentence] * 8)
    parts = found(sound, Cutting(piece_seconds=10))
    speech = [stretch.span.speech for stretch in parts]
    assert all(before <= after for (_, before), (after, _) in pairwise(speech))
    whole = sum(end - start for start, end in (stretch.span.speech for stretch in found(sound)))
    assert sum(end - start for start, end in speech) == pytest.approx(whole, rel=0.02)


def test_quiet_speech_is_heard_like_loud_speech():
    speech = read(DEMO)
    loud, quiet = (found(speech_at.samples) for speech_at in (speech, Spoken(speech.samples * np.float32(0.01))))
    assert sum(stretch.span.length for stretch in quiet) == pytest.approx(sum(stretch.span.length for stretch in loud), rel=0.05)
    assert max(float(np.abs(stretch.samples).max()) for stretch in quiet) > 0.3


@pytest.mark.parametrize(
    "sound", [silence(60), noise(60, volume=0.3), noise(60, volume=0.01), tone(60, hz=50)], ids=["silence", "noise", "quiet", "hum"]
)
def test_nothing_is_heard_where_nobody_speaks(sound: list[int]):
    assert found((np.asarray(sound) / 32768).astype(np.float32)) == []


# ---- cutting ------------------------------------------------------------------------------------------------------------------------


def test_a_piece_ends_in_the_longest_pause_of_its_last_half():
    speech = seconds((0, 10), (18, 31), (31.3, 40), (42, 50), (50.4, 60))
    assert _cut(LOUD, speech, 0, len(LOUD)) == 41 * RATE


def test_a_piece_without_pause_ends_at_the_quietest_moment():
    samples = LOUD.copy()
    samples[45 * RATE : round(45.1 * RATE)] *= 0.01
    assert 45 <= _cut(samples, seconds((0, 60)), 0, len(samples)) / RATE <= 45.1
    assert 45 <= _quietest(samples, 0, len(samples)) / RATE <= 45.1


def test_padding_never_makes_spans_overlap():
    padded = list(_pad(seconds((0.1, 1), (1.2, 2), (5, 6)), round(0.4 * RATE)))
    assert [span[:2] for span in padded] == [span[:2] for span in seconds((-0.3, 1.1), (1.1, 2.4), (4.6, 6.4))]
    assert [span.speech for span in padded] == [span[:2] for span in seconds((0.1, 1), (1.2, 2), (5, 6))]
    assert list(_pad([], 100)) == []


def test_windows_are_cut_at_the_longest_pause_and_hold_all_speech():
    speech = [(0, 9), (9.2, 16), (18, 24), (24.2, 33), (33.3, 59)]
    packed = list(_packed(stretches(*speech), Cutting(pad_ms=1000)))
    assert [span for window in packed for span in window.spans] == seconds(*speech)
    assert [window.spans[0].start / RATE for window in packed] == [0, 18, 33.3]
    assert all(window.length <= 28 * RATE for window in packed)


def test_speech_longer_than_a_window_is_split():
    packed = list(_packed(stretches((0, 60)), NO_PAD))
    assert all(window.length <= 28 * RATE for window in packed)
    assert np.array_equal(np.concatenate([window.samples for window in packed]), LOUD)


# Speech and pauses in milliseconds.
SPEECH = st.lists(st.tuples(st.integers(150, 40_000), st.integers(160, 40_000)), min_size=1, max_size=25)


@given(SPEECH, st.integers(0, 5_000))
def test_all_speech_lies_in_exactly_one_window_and_windows_are_cut_in_pauses(parts: Sequence[tuple[int, int]], first: int):
    cutting = Cutting(window_seconds=5)
    speech, position = [], first * 16
    for length, pause in parts:
        speech.append(Span(position, position + length * 16))
        position += (length + pause) * 16
    rng = np.random.default_rng(len(parts))
    padded = [span for passage in _grouped(speech, 2 * cutting.pad) for span in _pad(passage, cutting.pad)]
    given_ = [Stretch(span, rng.standard_normal(span.length).astype(np.float32)) for span in padded]
    packed = list(_packed(given_, cutting))
    assert np.array_equal(np.concatenate([window.samples for window in packed]), np.concatenate([stretch.samples for stretch in given_]))
    heard = [span.speech for window in packed for span in window.spans if span.speech[0] < span.speech[1]]
    assert all(before <= after for (_, before), (after, _) in pairwise(heard))
    assert sum(end - start for start, end in heard) == sum(span.length for span in speech)
    for window, after in pairwise(packed):
        assert window.length <= 5 * RATE
        border = after.spans[0].speech[0]
        inside = [span for span in speech if span.start < border < span.end]
        assert all(span.length + 2 * cutting.pad > 5 * RATE for span in inside), "cut within speech that fits into a window"


def _grouped(speech: Sequence[Span], apart: int) -> list[list[Span]]:
    passages = list(_passages(speech, apart))
    assert all(after.start - before.end >= apart for before, after in pairwise(passages))
    return [[span for span in speech if passage.start <= span.start and span.end <= passage.end] for passage in passages]


@given(SPEECH, st.lists(st.integers(0, 600_000), min_size=25, max_size=25))
def test_how_long_a_long_pause_is_changes_no_window(parts: Sequence[tuple[int, int]], longer: Sequence[int]):
    cutting = Cutting(window_seconds=10)

    def lengths(more: Sequence[int]) -> list[list[int]]:
        speech, position = [], 0
        for (length, pause), added in zip(parts, more, strict=False):
            speech.append(Span(position, position + length * 16))
            position += (length + pause + (added if pause * 16 >= 2 * cutting.pad else 0)) * 16
        padded = [span for passage in _grouped(speech, 2 * cutting.pad) for span in _pad(passage, cutting.pad)]
        given_ = [Stretch(span, np.zeros(span.length, np.float32)) for span in padded]
        return [[span.length for span in window.spans] for window in _packed(given_, cutting)]

    assert lengths(longer) == lengths([0] * len(parts))


# ---- places -------------------------------------------------------------------------------------------------------------------------

TWO = Window((Stretch(Span(1000, 2000), LOUD[:1000]), Stretch(Span(5000, 6000), LOUD[:1000])))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((0, 500), (1000, 1500)),
        ((900, 990), (1900, 1990)),
        ((800, 1100), (1800, 2000)),
        ((950, 1300), (5000, 5300)),
        ((2000, 4000), (6000, 6000)),
    ],
)
def test_a_word_of_a_window_lies_in_one_span_of_the_recording(place: tuple[int, int], expected: tuple[int, int]):
    assert TWO.place(*place) == Span(*expected)


def test_words_do_not_begin_in_the_padding_nor_before_the_recording():
    window = Window((Stretch(Span(0, 20_000, lead=6400, tail=6400), LOUD[:20_000]),))
    assert window.place(0, 20_000) == Span(6400 - 2560, 20_000 - 6400 + 2560)
    early = Window((Stretch(Span(-6400, 20_000, lead=6400), LOUD[:26_400]),))
    assert early.place(0, 10_000) == Span(0, 3600)


def test_what_lies_between_two_positions_of_a_window():
    between = TWO.between(1500, 5200)
    assert between.spans == (Span(1500, 2000), Span(5000, 5200))
    assert len(between.samples) == between.length
    assert TWO.between(2100, 4900).spans == ()


def test_halves_are_parted_at_the_longest_pause_that_is_not_near_the_ends():
    window = next(_packed(stretches((0, 1), (8, 13), (14, 19), (23, 26)), NO_PAD))
    assert [half.spans for half in window.halves()] == [tuple(seconds((0, 1), (8, 13))), tuple(seconds((14, 19), (23, 26)))]
    assert Window(window.stretches[:1]).halves() == ()
