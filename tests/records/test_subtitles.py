"""Cues read as the recognized text does."""

from __future__ import annotations

import pysubs2
import pytest

from recognition.contract import Transcript, Utterance, Word
from records import formats


@pytest.mark.parametrize(
    ("words", "between"),
    [(["今天", "天气", "很好,"] * 20, ""), (["สวัสดี", "ครับ"] * 30, ""), (["Well,", "don't", "go."] * 20, " "), (["مرحبا", "بكم"] * 30, " ")],
)
def test_words_are_joined_as_the_text_joins_them(words: list[str], between: str) -> None:
    timed = tuple(Word(start_ms=400 * n, end_ms=400 * n + 300, text=word) for n, word in enumerate(words))
    said = Utterance(start_ms=0, end_ms=400 * len(words), text=between.join(words), words=timed)

    cues = pysubs2.SSAFile.from_string(formats.to_srt(Transcript(utterances=(said,))), format_="srt")

    assert len(cues) > 1
    assert between.join(cue.plaintext.replace("\n", between) for cue in cues) == said.text
