"""The answer (`verbose_json`) as a transcript. Pure.

Servers differ: the times of words stand beside the segments or inside them, with punctuation or bare, or are missing; segments may be missing
as well. A segment becomes an utterance; its text says how it is written, the words say when.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recognition.contract import Transcript, Transient, Utterance, Word
from recognition.providers.openai.languages import CODES

_TAG = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_JOINED = re.compile(r"[-‑'’.,:/]")
"""What may stand inside a token: "twenty-one", "don't", "3.5"."""


def parse(payload: bytes, options: Mapping[str, Any]) -> Transcript:
    """Raises `Transient` on bytes that are no whole answer. An empty text is one: nobody spoke."""
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _unreadable() from error
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        raise _unreadable()
    utterances = sorted(_utterances(answer), key=lambda utterance: utterance.start_ms)
    asked = options.get("language") or None
    return Transcript(tuple(utterances), (_language(answer.get("language")) if utterances else None) or asked)


def _unreadable() -> Transient:
    return Transient("answer_unreadable", "The server's answer is not whole, or not of the form that is expected.")


def _utterances(answer: Mapping[str, Any]) -> Iterator[Utterance]:
    segments = [_stretch(segment) for segment in _objects(answer, "segments")]
    words = [_word(word) for word in _objects(answer, "words")]
    if not words:
        words = [_word(word) for segment in _objects(answer, "segments") for word in _objects(segment, "words")]
    segments = [segment for segment in segments if segment.text]
    words = sorted((word for word in words if word.text), key=lambda word: word.start_ms)
    if not segments and (text := _line(answer["text"])):
        end_ms = max(_ms(answer.get("duration")), *(word.end_ms for word in words), 0)
        segments = [Utterance(0, end_ms, text)]
    for segment, timed in zip(segments, _by_segment(segments, words), strict=True):
        if timed:
            yield replace(segment, start_ms=timed[0].start_ms, end_ms=max(word.end_ms for word in timed), words=tuple(timed))
        else:
            yield segment


# ---- which words are a segment's, and how they are written --------------------------------------------------------------------------


def _by_segment(segments: Sequence[Utterance], words: Sequence[Word]) -> Iterator[list[Word]]:
    """The words of each segment: those that spell it; where none do, those in its time, as they are."""
    at = 0
    for number, segment in enumerate(segments):
        count = _spelling(segment.text, words, at)
        if count is not None:
            yield _written(segment.text, words[at : at + count])
        else:
            is_last = number == len(segments) - 1
            count = next((n for n, word in enumerate(words[at:]) if _middle(word) >= segment.end_ms and not is_last), len(words) - at)
            yield list(words[at : at + count])
        at += count


def _spelling(text: str, words: Sequence[Word], at: int) -> int | None:
    """How many words from there on have just the letters of the text; None if they have others."""
    letters = _letters(text)
    spelled = count = 0
    while spelled < len(letters):
        if at + count == len(words):
            return None
        word = _letters(words[at + count].text)
        if word != letters[spelled : spelled + len(word)]:
            return None
        spelled += len(word)
        count += 1
    return count


def _written(text: str, words: Sequence[Word]) -> list[Word]:
    """The words as the text writes them: with their capitals and the punctuation that hangs on them."""
    places = [place for place, character in enumerate(text) if character.isalnum()]
    written: list[Word] = []
    spelled, start = 0, 0  # `start`: where the text of the next word begins
    first: Word | None = None
    for word in words:
        letters = len(_letters(word.text))
        if not letters:
            continue
        spelled += letters
        first = first or word
        after = places[spelled - 1] + 1
        gap = text[after : places[spelled]] if spelled < len(places) else text[after:]
        if spelled < len(places) and _JOINED.fullmatch(gap):
            continue
        end = after + len(gap) if spelled == len(places) else after + _hanging(gap)
        written.append(Word(first.start_ms, max(first.start_ms, word.end_ms), text[start:end].strip()))
        start, first = end, None
    return written


def _hanging(gap: str) -> int:
    """How much of what stands between two words belongs to the first: all up to the last space, or all."""
    spaces = [place for place, character in enumerate(gap) if character.isspace()]
    return spaces[-1] if spaces else len(gap)


def _letters(text: str) -> list[str]:
    return [character.casefold() for character in text if character.isalnum()]


def _middle(word: Word) -> float:
    return (word.start_ms + word.end_ms) / 2


# ---- values -------------------------------------------------------------------------------------------------------------------------


def _stretch(segment: Mapping[str, Any]) -> Utterance:
    start_ms = _ms(segment.get("start"))
    return Utterance(start_ms, max(start_ms, _ms(segment.get("end"))), _line(segment.get("text")))


def _word(word: Mapping[str, Any]) -> Word:
    start_ms = _ms(word.get("start"))
    return Word(start_ms, max(start_ms, _ms(word.get("end"))), _line(word.get("word", word.get("text"))))


def _objects(holder: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = holder.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _line(text: object) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _ms(seconds: object) -> int:
    """Seconds, which come as a number or as text, in milliseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, str)):
        return 0
    try:
        number = float(seconds)
    except (ValueError, OverflowError):
        return 0
    return round(number * 1000) if math.isfinite(number) and number > 0 else 0


def _language(said: object) -> str | None:
    """A name in English or a code, as a tag."""
    if not isinstance(said, str):
        return None
    said = said.strip()
    return CODES.get(said.lower()) or (said if _TAG.fullmatch(said) else None)
