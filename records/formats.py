"""A transcript as text, JSON and subtitles. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pysubs2

from recognition.contract import Transcript, Utterance, Word
from records import cues

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


@dataclass(frozen=True, slots=True)
class Writing:
    """How a transcript is written for people: what of `txt`, `srt` and `vtt` may be chosen."""

    measures: cues.Measures = field(default_factory=cues.Measures)
    speakers: bool = True
    """Say who speaks, where there are several."""
    words: bool = False
    """In vtt, when each word begins."""


def to_txt(transcript: Transcript, writing: Writing = Writing()) -> str:
    """One utterance a line, with a line break at the end; empty if nobody spoke. Begins with who speaks, where there are several."""
    names = cues.speakers(transcript)
    if not writing.speakers or len(names) < 2:
        return "".join(f"{utterance.text}\n" for utterance in transcript.utterances)
    said = [utterance for utterance in transcript.utterances if utterance.text.strip()]
    return "".join(f"{names[cues.voice(utterance)]}: {utterance.text}\n" for utterance in said)


def to_srt(transcript: Transcript, writing: Writing = Writing()) -> str:
    """SubRip. A cue with which another voice begins says whose it is, where there are several."""
    subtitles = pysubs2.SSAFile()
    subtitles.events = [
        _event(cue, cue.text) for cue in cues.cut(transcript, writing.measures, labelled=_tells_speakers(transcript, writing))
    ]
    return subtitles.to_string("srt", keep_ssa_tags=True)


def to_vtt(transcript: Transcript, writing: Writing = Writing()) -> str:
    """WebVTT, with a voice tag in each cue where there are several voices."""
    is_told = _tells_speakers(transcript, writing)
    subtitles = pysubs2.SSAFile()
    for cue in cues.cut(transcript, writing.measures):
        text = "\n".join(
            _timed_words(cue, line) if writing.words else _escaped(text) for line, text in zip(cue.lines, cue.texts, strict=True)
        )
        subtitles.events.append(_event(cue, f"<v {_escaped(cue.speaker)}>{text}</v>" if is_told else text))
    return subtitles.to_string("vtt", keep_ssa_tags=True)


def _tells_speakers(transcript: Transcript, writing: Writing) -> bool:
    return writing.speakers and len(cues.speakers(transcript)) > 1


def _event(cue: cues.Cue, text: str) -> pysubs2.SSAEvent:
    event = pysubs2.SSAEvent(start=cue.start_ms, end=cue.end_ms)
    event.plaintext = text
    return event


def _escaped(text: str) -> str:
    """WebVTT's cue text: https://www.w3.org/TR/webvtt1/#webvtt-cue-text-span."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _timed_words(cue: cues.Cue, line: Sequence[cues.Piece]) -> str:
    """A line whose words come with the moments at which they begin, as far as these lie inside the cue and go on."""
    written = []
    now = cue.start_ms
    for piece in line:
        moment = piece.start_ms
        if now < moment < cue.end_ms:
            written.append(f"<{_moment(moment)}>")
            now = moment
        written.append(f"<c>{_escaped(piece.written.rstrip())}</c>{piece.written[len(piece.written.rstrip()) :]}")
    return "".join(written).rstrip()


def _moment(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:03}"
