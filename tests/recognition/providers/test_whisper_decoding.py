from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recognition.providers.whisper.decoding import _missed, _phrases, _sure
from recognition.providers.whisper.sound import RATE, Span, Stretch, Window

pytestmark = pytest.mark.no_database


def window(*spans: tuple[float, float]) -> Window:
    """Speech between those seconds."""
    found = [Span(round(start * RATE), round(end * RATE)) for start, end in spans]
    return Window(tuple(Stretch(span, np.zeros(span.length, np.float32)) for span in found))


def segment(*words: tuple[float, float], avg_logprob: float = -0.3, compression_ratio: float = 1.2) -> dict[str, Any]:
    placed = [[round(start * 1000), round(end * 1000), " word", 0.9] for start, end in words]
    return {"words": placed, "avg_logprob": avg_logprob, "compression_ratio": compression_ratio}


def missed(heard: Window, *segments: dict[str, Any]) -> list[list[tuple[float, float]]]:
    return [[(span.start / RATE, span.end / RATE) for span in gap.spans] for gap in _missed(heard, segments)]


# ---- what the model wrote down ------------------------------------------------------------------------------------------------------

EOT, TIME = 100, 200


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([TIME, 1, 2, TIME + 50, TIME + 60, 3, TIME + 90], [[1, 2], [3]]),
        ([TIME, 1, 2, TIME + 50, TIME + 50, 3, 4], [[1, 2], [3, 4]]),  # no time after the last words: they count all the same
        ([1, 2], [[1, 2]]),
        ([TIME, TIME + 9], []),
        ([], []),
    ],
)
def test_no_text_is_dropped_for_want_of_a_time(tokens: list[int], expected: list[list[int]]):
    assert _phrases(tokens, SimpleNamespace(eot=EOT)) == expected


# ---- what was passed over -----------------------------------------------------------------------------------------------------------


def test_a_single_word_between_two_pauses_that_was_passed_over_is_found():
    assert missed(window((0, 2), (3.3, 3.7), (5.4, 7)), segment((0, 1), (1, 2), (5.4, 7))) == [[(3.3, 3.7)]]


def test_speech_in_which_the_model_stopped_early_is_found():
    assert missed(window((0, 9)), segment((0, 1), (1, 4))) == [[(4, 9)]]
    assert missed(window((0, 9)), segment((3, 9))) == [[(0, 3)]]


def test_short_gaps_and_noises_are_no_missed_speech():
    assert missed(window((0, 2), (2.5, 2.7), (3, 5)), segment((0, 2), (3, 3.5), (4, 5))) == []


def test_a_window_without_words_is_left_alone():
    assert missed(window((0, 9))) == []


# ---- another try --------------------------------------------------------------------------------------------------------------------


class Hearing:
    """Gives answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, dict[str, Any]]] = []

    def __call__(self, heard: Window, **generating: Any) -> list[dict[str, Any]]:
        self.asked.append((heard.length / RATE, generating))
        return self.answers.pop(0)


LONG = window((0, 9), (10, 20))


def test_what_is_sure_is_not_heard_again():
    hear = Hearing()
    segments = [segment((0, 1))]
    assert _sure(LONG, segments, hear) is segments
    assert hear.asked == []


def test_a_loop_is_heard_again_without_repetition():
    straight = [segment((0, 1))]
    hear = Hearing(straight)
    assert _sure(LONG, [segment((0, 1), compression_ratio=9.0)], hear) is straight
    assert hear.asked == [(19, {"no_repeat_ngram_size": 3})]


def test_doubtful_speech_is_heard_in_halves_and_the_surer_answer_is_taken():
    doubtful = [segment((0, 1), avg_logprob=-1.2)]
    halves = [[segment((0, 1), avg_logprob=-0.9)], [segment((10, 11), avg_logprob=-0.4)]]
    hear = Hearing(*halves)
    assert _sure(LONG, doubtful, hear) == [*halves[0], *halves[1]]
    assert hear.asked == [(9, {}), (10, {})]
    worse = Hearing([segment((0, 1), avg_logprob=-1.6)], [segment((10, 11), avg_logprob=-0.4)])
    assert _sure(LONG, doubtful, worse) is doubtful


def test_short_speech_is_not_parted():
    doubtful = [segment((0, 1), avg_logprob=-1.2)]
    assert _sure(window((0, 4), (5, 9)), doubtful, Hearing()) is doubtful
