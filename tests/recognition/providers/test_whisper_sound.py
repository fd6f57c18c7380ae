from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from recognition.providers.whisper.sound import RATE, Cutting, Piece, Span, Window, _cut, _pad, _quietest, _windows, pieces
from tests.audio import noise, silence, tone, write_wav

LOUD = (np.asarray(noise(60, volume=0.5)) / 32768).astype(np.float32)


def seconds(*pairs: tuple[float, float]) -> list[Span]:
    return [Span(round(start * RATE), round(end * RATE)) for start, end in pairs]


def cut_up(path: Path, channel: int | None = None) -> list[Piece]:
    return list(pieces(path, channel=channel, cutting=Cutting(piece_seconds=40), tick=lambda: None))


def sound(found: Iterable[Piece]) -> np.ndarray:
    return np.concatenate([piece.samples for piece in found])


def test_pieces_follow_each_other_and_hold_the_whole_recording(tmp_path: Path):
    samples = noise(130, volume=0.3)
    found = cut_up(write_wav(tmp_path / "noise.wav", samples))
    assert [piece.start for piece in found] == [0, *(piece.end for piece in found[:-1])]
    assert all(len(piece.samples) <= 40 * RATE for piece in found)
    assert np.abs(sound(found) * 32768 - np.asarray(samples)).max() < 1


def test_channels_are_taken_one_at_a_time_or_mixed(tmp_path: Path):
    path = write_wav(tmp_path / "stereo.wav", tone(1), silence(1))
    left, right, mixed = (float(np.abs(sound(cut_up(path, channel))).max()) for channel in (0, 1, None))
    assert right == 0 < mixed < left


def test_the_clock_ticks_while_decoding(tmp_path: Path):
    ticks: list[None] = []
    path = write_wav(tmp_path / "long.wav", silence(300))
    list(pieces(path, channel=None, cutting=Cutting(), tick=lambda: ticks.append(None)))
    assert len(ticks) >= 10


def test_a_piece_ends_in_the_longest_pause_of_its_last_half():
    speech = seconds((0, 10), (18, 31), (31.3, 40), (42, 50), (50.4, 60))
    assert _cut(LOUD, speech) == 41 * RATE


def test_a_piece_without_pause_ends_at_the_quietest_moment():
    samples = LOUD.copy()
    samples[45 * RATE : round(45.1 * RATE)] *= 0.01
    assert 45 <= _cut(samples, seconds((0, 60))) / RATE <= 45.1
    assert 45 <= _quietest(samples, 0, len(samples)) / RATE <= 45.1


def test_padding_never_makes_spans_overlap():
    padded = list(_pad(seconds((0.1, 1), (1.2, 2), (5, 6)), 7 * RATE, round(0.4 * RATE)))
    assert [span[:2] for span in padded] == [span[:2] for span in seconds((0, 1.1), (1.1, 2.4), (4.6, 6.4))]
    assert [(span.lead, span.tail) for span in padded] == [(0, 0), (0, RATE * 8 // 100), (RATE * 8 // 100, RATE * 8 // 100)]
    assert list(_pad([], 7 * RATE, 100)) == []


def test_windows_are_cut_at_the_longest_pause_and_hold_all_speech():
    speech = seconds((0, 9), (9.2, 16), (18, 24), (24.2, 33), (33.3, 59))
    windows = _windows(LOUD, speech, Cutting(pad_ms=0))
    assert [span for window in windows for span in window.spans] == speech
    assert [window.spans[0].start / RATE for window in windows] == [0, 18, 33.3]
    assert all(window.length <= 28 * RATE for window in windows)


def test_speech_longer_than_a_window_is_split():
    windows = _windows(LOUD, seconds((0, 60)), Cutting(pad_ms=0))
    assert all(window.length <= 28 * RATE for window in windows)
    assert sum(window.length for window in windows) == 60 * RATE


@pytest.mark.parametrize(
    ("place", "expected"),
    [((0, 50), (100, 150)), ((90, 99), (190, 199)), ((80, 110), (180, 200)), ((95, 130), (500, 530)), ((200, 400), (600, 600))],
)
def test_a_word_of_a_window_lies_in_one_span_of_the_piece(place: tuple[int, int], expected: tuple[int, int]):
    assert Window((Span(100, 200), Span(500, 600))).to_piece(*place) == Span(*expected)


def test_words_do_not_begin_in_the_padding():
    window = Window((Span(100, 200, lead=20, tail=30), Span(500, 600)))
    assert window.to_piece(0, 99) == Span(120, 170)


def test_what_lies_between_two_positions_of_a_window():
    window = Window((Span(100, 200), Span(500, 600)))
    assert window.between(150, 520).spans == (Span(150, 200), Span(500, 520))
    assert window.between(210, 490).spans == ()
