"""The result stream of SpeechKit v3 as a transcript. Pure.

The stream is JSON objects one after the other, each `{"result": {…one event…}}`. A fragment of speech comes up to twice: as `final`, raw, and as
`finalRefinement`, normalized; the two are paired by channel and index and are one text.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recognition.contract import Transcript, Transient, Utterance, Word
from recognition.providers.speechkit.request import AUTO
from recognition.providers.speechkit.status import grpc_code

logger = logging.getLogger(__name__)

_SPACE = re.compile(r"[ \t\r\n]*")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_decoder = json.JSONDecoder()


@dataclass
class StreamError(Transient):
    """The service broke the stream off with an error object. `grpc_code` is google.rpc's."""

    grpc_code: int | None = None


def parse(payload: bytes, options: Mapping[str, Any]) -> Transcript:
    """Raises `Transient` on bytes that are no whole result. No bytes at all are one: nobody spoke.

    With speaker labeling a channel tag names a voice, else it is the number of a channel.
    """
    fragments = _Fragments()
    for event in events(payload):
        fragments.add(event)
    labeled = bool(options.get("speaker_labeling"))
    spoken = sorted(fragments.spoken(), key=lambda found: (found.start_ms, found.channel, found.index))
    asked = options.get("language")
    return Transcript(
        utterances=tuple(
            Utterance(
                start_ms=fragment.start_ms,
                end_ms=fragment.end_ms,
                text=fragment.text,
                channel=0 if labeled else fragment.channel,
                speaker=fragment.tag if labeled else None,
                words=fragment.words,
            )
            for fragment in spoken
        ),
        language=_most_probable(spoken) or (asked if asked and asked != AUTO else None),
    )


def is_settled(payload: bytes) -> bool:
    """Whether a whole stream tells that the recording was listened to: right after the end of an operation it may still be empty.

    Raises `Transient` as :func:`parse` does.
    """
    settled = False
    for event in events(payload):  # to the end: a cut-off stream must be noticed
        settled = settled or any(kind in event for kind in ("final", "finalRefinement", "eouUpdate"))
    return settled


def events(payload: bytes) -> Iterator[dict[str, Any]]:
    """The events of a stream, however its objects are laid out. Raises `StreamError`, and `Transient` where it is cut off or no such stream."""
    try:
        text = payload.decode("utf-8-sig")
        at = _end_of_space(text, 0)
        while at < len(text):
            found, at = _decoder.raw_decode(text, at)
            event = found.get("result", found) if isinstance(found, dict) else None
            if not isinstance(event, dict):
                raise ValueError("no event")
            if "error" in found:
                raise StreamError("answer_broken_off", "SpeechKit broke its answer off with an error.", grpc_code(found))
            yield event
            at = _end_of_space(text, at)
    except (ValueError, RecursionError) as error:
        raise Transient("answer_unreadable", "SpeechKit's answer is not whole, or not of the form that is expected.") from error


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


# ---- fragments ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A stretch of speech as one event has it."""

    tag: str
    index: int
    text: str
    start_ms: int
    end_ms: int
    words: tuple[Word, ...]
    languages: tuple[tuple[str, float], ...]

    @property
    def channel(self) -> int:
        return int(self.tag) if re.fullmatch(r"[0-9]{1,4}", self.tag) else 0

    @property
    def place(self) -> tuple[str, int, int]:
        return (self.tag, self.start_ms, self.end_ms)


@dataclass
class _Version:
    """The fragments in one of the two versions in which they come, by channel tag and index."""

    by_key: dict[tuple[str, int], _Fragment] = field(default_factory=dict)
    last: dict[str, _Fragment] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any], spoken: Mapping[str, Any], index: object) -> None:
        tag = next((str(tag) for tag in (event.get("channelTag"), spoken.get("channelTag")) if tag not in (None, "")), "0")
        fragment = _fragment(tag, _whole(index, default=-1), spoken)
        if fragment.index < 0:
            fragment = replace(fragment, index=self._index_of(fragment))
        if (tag, fragment.index) in self.by_key:
            logger.warning("SpeechKit sent a fragment twice; the later one is taken")
        self.by_key[tag, fragment.index] = self.last[tag] = fragment

    def _index_of(self, fragment: _Fragment) -> int:
        """An index that was left out: 0, which may be left out, or else the next of the channel; that of the same fragment if it comes again."""
        first, last = self.by_key.get((fragment.tag, 0)), self.last.get(fragment.tag)
        if first is None or last is None or first.place == fragment.place:
            return 0
        return last.index if last.place == fragment.place else last.index + 1


@dataclass
class _Fragments:
    raw: _Version = field(default_factory=_Version)
    refined: _Version = field(default_factory=_Version)

    def add(self, event: Mapping[str, Any]) -> None:
        """Take an event in; those of other kinds are passed over, as the service gets new ones over time."""
        if final := _object(event, "final"):
            self.raw.add(event, final, _object(event, "audioCursors").get("finalIndex"))
        elif refinement := _object(event, "finalRefinement"):
            # Not the cursor of this event, which may be ahead already.
            self.refined.add(event, _object(refinement, "normalizedText"), refinement.get("finalIndex"))

    def spoken(self) -> Iterator[_Fragment]:
        """One fragment for each that was said: the refined one where it has text, else the raw one."""
        alone = dict(self.refined.by_key)
        for raw, refined in self._pairs():
            if refined:
                alone.pop((refined.tag, refined.index), None)
            best = refined if refined and refined.text else raw
            words = best.words or raw.words
            if best.text:
                yield _settle(replace(best, words=words, languages=best.languages or raw.languages))
        yield from (_settle(refined) for refined in alone.values() if refined.text)

    def _pairs(self) -> Iterator[tuple[_Fragment, _Fragment | None]]:
        """Each raw fragment and what was made of it: that of its index, unless they are numbered differently and their places tell."""
        raw_places = {raw.place for raw in self.raw.by_key.values() if raw.end_ms}
        astray = {  # what is not at the place of the raw fragment with its index
            refined.place: refined
            for key, refined in self.refined.by_key.items()
            if refined.place in raw_places and (key not in self.raw.by_key or self.raw.by_key[key].place != refined.place)
        }
        for key, raw in self.raw.by_key.items():
            refined = self.refined.by_key.get(key)
            if refined is None or refined.place != raw.place:
                refined = astray.get(raw.place, None if refined and refined.place in astray else refined)
            yield raw, refined


def _settle(fragment: _Fragment) -> _Fragment:
    """With the times of its words: a fragment spans the silence around it, too."""
    words = fragment.words
    if not words:
        return replace(fragment, end_ms=max(fragment.start_ms, fragment.end_ms))
    return replace(fragment, start_ms=words[0].start_ms, end_ms=max(word.end_ms for word in words))


def _fragment(tag: str, index: int, spoken: Mapping[str, Any]) -> _Fragment:
    alternatives = [found for found in _list(spoken, "alternatives") if isinstance(found, dict)]
    best = alternatives[0] if alternatives else {}
    words = tuple(sorted(_words(best), key=lambda word: word.start_ms))
    return _Fragment(
        tag=tag,
        index=index,
        text=_line(best.get("text")) or " ".join(word.text for word in words),
        start_ms=_whole(best.get("startTimeMs")),
        end_ms=_whole(best.get("endTimeMs")),
        words=words,
        languages=tuple(
            (found["languageCode"], _share(found.get("probability")))
            for found in _list(best, "languages")
            if isinstance(found, dict) and isinstance(found.get("languageCode"), str) and _LANGUAGE.fullmatch(found["languageCode"])
        ),
    )


def _words(alternative: Mapping[str, Any]) -> Iterator[Word]:
    for word in _list(alternative, "words"):
        if isinstance(word, dict) and (text := _line(word.get("text"))):
            start_ms = _whole(word.get("startTimeMs"))
            yield Word(start_ms, max(start_ms, _whole(word.get("endTimeMs"))), text)


def _most_probable(fragments: list[_Fragment]) -> str | None:
    """The language that most was said in."""
    weights: dict[str, float] = {}
    for fragment in fragments:
        for code, probability in fragment.languages:
            weights[code] = weights.get(code, 0.0) + probability * len(fragment.text)
    return max(weights, key=lambda code: weights[code]) if weights else None


# ---- values -------------------------------------------------------------------------------------------------------------------------


def _object(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _list(holder: Mapping[str, Any], key: str) -> list[Any]:
    found = holder.get(key)
    return found if isinstance(found, list) else []


def _line(text: object) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _number(value: object) -> float | None:
    """A number, which comes as such or as a string."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: object, *, default: int = 0) -> int:
    number = _number(value)
    return default if number is None or number < 0 else int(number)


def _share(value: object) -> float:
    number = _number(value)
    return 1.0 if number is None else min(max(number, 0.0), 1.0)
