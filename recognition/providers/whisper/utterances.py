"""From the payload to the transcript: what was invented is dropped, words become utterances at pauses and sentence ends. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from recognition.contract import Transcript, Transient, Utterance, Word

FORMAT = "whisper/1"

MAX_COMPRESSION = 2.4
"""Text that zips better than this repeats itself: the model was caught in a loop (Whisper's own threshold)."""
_NO_SPEECH = 0.6
_SURE_LOGPROB = -0.7
_HOPELESS_LOGPROB = -1.5
_DOUBT = 0.3
"""From this `no_speech_prob` on a text that Whisper likes to invent is taken as invented."""
_NEVER_SAID = re.compile(
    r"субтитры\s+(?:\w+\s+)?(?:сделал|делал|создавал|подогнал|добавил)|редактор субтитров|amara\.org|subtitles by|субтитрування", re.I
)
_OFTEN_INVENTED = re.compile(
    r"\W*(?:thank you|thanks|thank you(?: so much)? for watching|thanks for watching|please subscribe|you|bye"
    r"|спасибо за (?:просмотр|внимание)|продолжение следует|до новых встреч|спасибо)\W*",
    re.IGNORECASE,
)
"""What subtitles end with: the model learned it from them and says it over silence and music."""

_PAUSE_MS = 700
_LONGEST_MS = 15_000
_LONGEST_CHARACTERS = 200
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'»”’)\]]*$")
_CLAUSE_END = re.compile(r"[,;:，；：、—–]$")
_ABBREVIATION = re.compile(r"^[\"'«“(\[]*(?:\w|mr|mrs|ms|dr|st|vs|prof|т\.е|т\.к|т\.д|им|ул|гл|стр|см)\.$", re.IGNORECASE)
_UNSPACED = {"zh", "ja", "th", "lo", "my", "yue"}
"""Languages written without spaces, where faster-whisper's words are characters."""


def transcript_of(payload: bytes) -> Transcript:
    """Raises `Transient` on bytes that are no whole answer of ours."""
    try:
        answer = json.loads(payload)
        if answer["format"] != FORMAT:
            raise ValueError("unknown format")
        return _transcript(answer)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Transient("payload_unreadable", "The kept answer of the Whisper engine is not whole.") from error


def _transcript(answer: Mapping[str, Any]) -> Transcript:
    language = answer["language"]
    utterances = [
        Utterance(words[0].start_ms, max(words[-1].end_ms, words[0].start_ms + 1), _text(group), channel, None, words)
        for channel, segments in enumerate(answer["channels"])
        for group in _grouped(_tokens(segments, spaced=language not in _UNSPACED))
        if (words := tuple(word for word, _ in group))
    ]
    utterances.sort(key=lambda utterance: (utterance.start_ms, utterance.channel))
    # A language that was guessed from what turned out to be no speech is no language.
    return Transcript(tuple(utterances), language if utterances or answer["language_asked"] else None)


# ---- what was invented --------------------------------------------------------------------------------------------------------------


def _spoken(segments: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The segments without what was invented."""
    texts = [_plain(segment) for segment in segments]
    for number, (segment, text) in enumerate(zip(segments, texts, strict=True)):
        doubtful = segment["no_speech_prob"] > _DOUBT
        repeated = text and any(texts[first : first + 3] == [text] * 3 for first in range(max(0, number - 2), number + 1))
        if not (
            segment["compression_ratio"] > MAX_COMPRESSION
            or segment["avg_logprob"] < _HOPELESS_LOGPROB
            or (segment["no_speech_prob"] > _NO_SPEECH and segment["avg_logprob"] < _SURE_LOGPROB)
            or _NEVER_SAID.search(text)
            or (doubtful and (repeated or _OFTEN_INVENTED.fullmatch(text)))
        ):
            yield segment


def _plain(segment: Mapping[str, Any]) -> str:
    return "".join(word[2] for word in segment["words"]).strip()


# ---- words --------------------------------------------------------------------------------------------------------------------------

_Token = tuple[Word, str]
"""A word, and its text with the space that stands before it."""


def _tokens(segments: Sequence[Mapping[str, Any]], *, spaced: bool) -> list[_Token]:
    """Words of one channel in order. faster-whisper splits "twenty-one" and "3.5"; what has no space before it belongs to the word before."""
    tokens: list[_Token] = []
    last = 0
    for segment in _spoken(segments):
        first = len(tokens)
        for start, end, text, _probability in segment["words"]:
            if not text.strip():
                continue
            start = max(start, last)
            last = end = max(start, end)
            if spaced and len(tokens) > first and not text.startswith(" "):
                word, before = tokens[-1]
                text = before + text
                start = word.start_ms
                tokens.pop()
            elif spaced and len(tokens) == first and not text.startswith(" "):
                text = f" {text}"
            tokens.append((Word(start, end, text.strip()), text))
    return tokens


def _text(group: Sequence[_Token]) -> str:
    return " ".join("".join(text for _, text in group).split())


# ---- utterances ---------------------------------------------------------------------------------------------------------------------


def _grouped(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    if not tokens:
        return
    start = 0
    for position, ((word, _), (after, _)) in enumerate(pairwise(tokens), start=1):
        if after.start_ms - word.end_ms >= _PAUSE_MS or _ends_sentence(word.text, after.text):
            yield from _shortened(tokens[start:position])
            start = position
    yield from _shortened(tokens[start:])


def _ends_sentence(text: str, after: str) -> bool:
    return bool(_SENTENCE_END.search(text)) and not _ABBREVIATION.match(text) and not after[:1].islower()


def _shortened(group: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Cut a sentence that is too long to be shown at once, after a comma near its middle or at its longest pause there."""
    duration = group[-1][0].end_ms - group[0][0].start_ms
    if len(group) < 4 or (duration <= _LONGEST_MS and len(_text(group)) <= _LONGEST_CHARACTERS):
        yield group
        return
    places = range(len(group) // 4 or 1, len(group) - len(group) // 4)
    cut = max(
        places,
        key=lambda n: (
            bool(_CLAUSE_END.search(group[n - 1][0].text)),
            group[n][0].start_ms - group[n - 1][0].end_ms,
            -abs(2 * n - len(group)),
        ),
    )
    yield from _shortened(group[:cut])
    yield from _shortened(group[cut:])
