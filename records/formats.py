"""A transcript as text, JSON and subtitles. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pysubs2

from recognition.contract import Transcript, Utterance, Word

VERSION = 1
"""Of the structure below. Raised when its shape changes; old rows are rebuilt from the saved answers."""


def to_structure(transcript: Transcript) -> dict[str, Any]:
    """The shape kept in `structures.contents` and given out as JSON."""
    return {
        "language": transcript.language,
        "speakers": list(transcript.speakers),
        "utterances": [
            {
                "start_ms": utterance.start_ms,
                "end_ms": utterance.end_ms,
                "text": utterance.text,
                "channel": utterance.channel,
                "speaker": utterance.speaker,
                "words": [{"start_ms": word.start_ms, "end_ms": word.end_ms, "text": word.text} for word in utterance.words],
            }
            for utterance in transcript.utterances
        ],
    }


def from_structure(contents: Mapping[str, Any]) -> Transcript:
    """The way back."""
    return Transcript(
        language=contents["language"],
        utterances=tuple(
            Utterance(**{**utterance, "words": tuple(Word(**word) for word in utterance["words"])}) for utterance in contents["utterances"]
        ),
    )


def to_txt(transcript: Transcript) -> str:
    """One utterance a line, with a line break at the end; empty if nobody spoke."""
    return "".join(f"{utterance.text}\n" for utterance in transcript.utterances)


def to_srt(transcript: Transcript) -> str:
    return _subtitles(transcript).to_string("srt")


def to_vtt(transcript: Transcript) -> str:
    return _subtitles(transcript).to_string("vtt")


LONGEST_CUE_MS = 7000
LONGEST_CUE_CHARACTERS = 84  # two lines of 42, the usual measure of subtitles


def _subtitles(transcript: Transcript) -> pysubs2.SSAFile:
    """Utterances as cues, a long one cut between words so that it can be read while it is spoken."""
    subtitles = pysubs2.SSAFile()
    for utterance in transcript.utterances:
        for start, end, text in _cues(utterance):
            event = pysubs2.SSAEvent(start=start, end=end)
            event.plaintext = text
            subtitles.events.append(event)
    return subtitles


def _cues(utterance: Utterance) -> list[tuple[int, int, str]]:
    short = utterance.end_ms - utterance.start_ms <= LONGEST_CUE_MS and len(utterance.text) <= LONGEST_CUE_CHARACTERS
    if short or not utterance.words:
        return [(utterance.start_ms, utterance.end_ms, utterance.text)]
    cues: list[list[tuple[Word, str]]] = [[]]
    length = 0
    for word, written in zip(utterance.words, _as_written(utterance), strict=True):
        cue = cues[-1]
        if cue and (length + len(written.rstrip()) > LONGEST_CUE_CHARACTERS or word.end_ms - cue[0][0].start_ms > LONGEST_CUE_MS):
            cues.append([])
            length = 0
        cues[-1].append((word, written))
        length += len(written)
    return [(cue[0][0].start_ms, cue[-1][0].end_ms, "".join(written for _, written in cue).strip()) for cue in cues]


def _as_written(utterance: Utterance) -> list[str]:
    """The words with what follows each in the text, so that joined they read as it does: no space is put into Chinese or Thai.

    Where the words are not those of the text, they are set apart by spaces.
    """
    starts: list[int] = []
    place = 0
    for word in utterance.words:
        start = utterance.text.find(word.text, place)
        if start < 0:
            return [f"{word.text} " for word in utterance.words]
        starts.append(start)
        place = start + len(word.text)
    starts[0] = 0
    return [utterance.text[start:end] for start, end in zip(starts, [*starts[1:], len(utterance.text)], strict=True)]
