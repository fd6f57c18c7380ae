"""What `getRecognition` sends: the events of a recognition, and the ways in which their stream may be written down."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.recognizers import Phrase, Sound, bare

Event = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """How the stream looks. The default is what the vendor's pages show; each switch is something that a client must bear.

    `refinements`: inline (after its final), late (all after the last final), none, some (for every other final), alone (without finals).
    `channel_order`: time, blocks (one channel after the other), reversed (by time, the last first). `final_index`: channel or global.
    `tags`: both, outer, inner (where they belong to the text alone), none. `error_after`: a late error after so many objects.
    `cursor`: with the final's own index, or without it.
    """

    pretty: bool = False
    trailing_newline: bool = True
    per_line: int = 1
    bare_objects: bool = False
    """Without the `result` around each."""
    refinements: str = "inline"
    channel_order: str = "time"
    final_index: str = "channel"
    tags: str = "both"
    numbers: bool = False
    """int64 as JSON numbers."""
    omit_defaults: bool = False
    duplicate_finals: bool = False
    unknown_events: bool = False
    partials: bool = False
    status_codes: bool = False
    analysis: bool = False
    summary: bool = False
    error_after: int | None = None
    error_shape: str = "stream_old"
    cursor: bool = True


@dataclass(frozen=True)
class Asked:
    """What of the request decides how the text comes."""

    normalized: bool = True
    literature: bool = True
    detects: bool = False
    labels: bool = False
    language: str = "ru-RU"


@dataclass
class Recognition:
    """What was heard, and the identifiers of its session."""

    phrases: Sequence[Phrase]
    sound: Sound
    asked: Asked
    session: str = field(default_factory=lambda: "-".join(uuid.uuid4().hex[n : n + 8] for n in range(0, 32, 8)))
    user_request: str = field(default_factory=lambda: "f8d" + uuid.uuid4().hex[:17])


def chunks(recognition: Recognition, shape: Shape, error: Callable[[int, str, str], bytes]) -> list[bytes]:
    """The body, object by object. `error(status, shape, message)` gives the text of an error."""
    objects = [event if shape.bare_objects else {"result": event} for event in _events(recognition, shape)]
    if shape.error_after is not None:
        objects = objects[: shape.error_after]
    if shape.pretty:
        texts = [json.dumps(thing, ensure_ascii=False, indent=2) for thing in objects]
    else:
        texts = [json.dumps(thing, ensure_ascii=False, separators=(",", ":")) for thing in objects]
    if shape.error_after is not None:
        texts.append(error(500, shape.error_shape, "internal error").decode())
    ends = ["\n" if (number + 1) % shape.per_line == 0 else "" for number in range(len(texts))]
    if ends:
        ends[-1] = "\n" if shape.trailing_newline else ""
    return [(text + end).encode() for text, end in zip(texts, ends, strict=True)]


def _events(recognition: Recognition, shape: Shape) -> list[Event]:
    """All of them, in the order in which they are sent."""
    asked = recognition.asked
    told: list[_Told] = []
    next_index: dict[int | None, int] = {}
    ends: dict[int, int] = {}
    for phrase in sorted(recognition.phrases, key=lambda phrase: (phrase.end_ms, phrase.channel)):
        tag = phrase.speaker if asked.labels and recognition.sound.channels == 1 else phrase.channel
        counter = tag if shape.final_index == "channel" else None
        index = next_index.get(counter, 0)
        next_index[counter] = index + 1
        told.append(_Told(phrase, tag, index, ends.get(phrase.channel, 0)))
        ends[phrase.channel] = phrase.end_ms
    if shape.channel_order == "blocks":
        told.sort(key=lambda one: one.tag)
    elif shape.channel_order == "reversed":
        told.reverse()

    stream = _Stream(recognition, shape)
    if shape.status_codes or not told:
        stream.add({"statusCode": {"codeType": "WORKING", "message": ""}}, 0)
    if not told:
        stream.eou_ms = recognition.sound.duration_ms
        stream.add({"eouUpdate": {"timeMs": stream.int64(stream.eou_ms)}}, 0)
    late: list[_Told] = []
    for number, one in enumerate(told):
        stream.final_ms, stream.index = max(stream.final_ms, one.phrase.end_ms), one.index
        if shape.partials:
            stream.add({"partial": stream.alternative(one, one.phrase.bare)}, one.tag)
        if shape.refinements != "alone":
            stream.add({"final": stream.alternative(one, one.phrase.bare)}, one.tag)
        if shape.duplicate_finals:
            stream.add({"final": stream.alternative(one, one.phrase.bare)}, one.tag)
        refined = not asked.detects and shape.refinements != "none" and not (shape.refinements == "some" and number % 2)
        if refined and shape.refinements == "late":
            late.append(one)
        elif refined:
            stream.add({"finalRefinement": stream.refinement(one)}, one.tag)
        if shape.unknown_events:
            stream.add({"moodUpdate": {"mood": "CHEERFUL", "alternatives": [{"text": "not to be taken for speech"}]}}, one.tag)
        stream.eou_ms = one.phrase.end_ms
        stream.add({"eouUpdate": {"timeMs": stream.int64(one.phrase.end_ms)}}, one.tag)
    for one in late:
        stream.add({"finalRefinement": stream.refinement(one)}, one.tag)
    if shape.status_codes:
        stream.add({"statusCode": {"codeType": "WARNING", "message": "requested option is not available, default used"}}, 0)
    if shape.analysis:
        stream.add({"classifierUpdate": _classifier(stream)}, 0)
        for tag in sorted({one.tag for one in told}):
            stream.add({"speakerAnalysis": _analysis(stream, [one.phrase for one in told if one.tag == tag], tag)}, tag)
        stream.add({"conversationAnalysis": _conversation(stream)}, 0)
    if shape.summary:
        usage = {"inputTextTokens": "150", "completionTokens": "12", "totalTokens": "162"}
        stream.add({"summarization": {"results": [{"response": "Клиент уточнил номер заказа."}], "contentUsage": usage}}, "")
    return stream.events


@dataclass(frozen=True)
class _Told:
    phrase: Phrase
    tag: int
    index: int
    after_ms: int
    """Where its fragment begins: the sample's alternative spans the silence before the words, too."""


class _Stream:
    def __init__(self, recognition: Recognition, shape: Shape) -> None:
        self.recognition, self.shape = recognition, shape
        self.events: list[Event] = []
        self.final_ms = self.index = self.eou_ms = 0

    def int64(self, number: int) -> int | str:
        return number if self.shape.numbers else str(number)

    def add(self, event: Event, tag: int | str) -> None:
        duration = self.recognition.sound.duration_ms
        cursors = {
            "receivedDataMs": duration,
            "resetTimeMs": 0,
            "partialTimeMs": duration,
            "finalTimeMs": self.final_ms,
            **({"finalIndex": self.index} if self.shape.cursor else {}),
            "eouTimeMs": self.eou_ms,
        }
        ((kind, inner),) = event.items()
        texts = inner.get("normalizedText", inner) if kind in ("partial", "final", "finalRefinement") else None
        if texts is not None and self.shape.tags in ("both", "inner"):
            texts["channelTag"] = str(tag)
        result: Event = {
            "sessionUuid": {"uuid": self.recognition.session, "userRequestId": self.recognition.user_request},
            "audioCursors": {name: self.int64(value) for name, value in cursors.items()},
            "responseWallTimeMs": self.int64(200 + 7 * len(self.events)),
            **event,
        }
        if self.shape.tags in ("both", "outer"):
            result["channelTag"] = str(tag)
        self.events.append(_without_defaults(result) if self.shape.omit_defaults else result)

    def alternative(self, one: _Told, text: str) -> Event:
        asked = self.recognition.asked
        words = [
            {"text": bare(word), "startTimeMs": self.int64(start), "endTimeMs": self.int64(end)}
            for word, start, end in one.phrase.words
            if bare(word)
        ]
        return {
            "alternatives": [
                {
                    "words": words,
                    "text": text,
                    "startTimeMs": self.int64(one.after_ms),
                    "endTimeMs": self.int64(one.phrase.end_ms),
                    "confidence": 0,
                    "languages": [{"languageCode": asked.language, "probability": 0.98}] if asked.detects else [],
                }
            ]
        }

    def refinement(self, one: _Told) -> Event:
        asked = self.recognition.asked
        # Sent although normalization was not asked for, in the vendor's sample; its text is the final's then.
        text = one.phrase.text if asked.normalized and asked.literature else one.phrase.bare
        return {"finalIndex": self.int64(one.index), "normalizedText": self.alternative(one, text)}


def _without_defaults(value: Any) -> Any:
    """proto3-JSON without what has its default value. Objects stay: that one is there means something."""
    if isinstance(value, dict):
        return {name: _without_defaults(inner) for name, inner in value.items() if inner not in ("", "0", 0, [], False, None)}
    if isinstance(value, list):
        return [_without_defaults(inner) for inner in value]
    return value


def _analysis(stream: _Stream, phrases: list[Phrase], tag: int) -> Event:
    spoken = sum(phrase.words[-1][2] - phrase.words[0][1] for phrase in phrases)
    duration = max(stream.recognition.sound.duration_ms, 1)
    statistics = {"min": 1.2, "max": 3.1, "mean": 2.2, "std": 0.6, "quantiles": [{"level": 0.5, "value": 2.1}]}
    return {
        "speakerTag": str(tag),
        "windowType": "TOTAL",
        "speechBoundaries": {
            "startTimeMs": stream.int64(phrases[0].words[0][1]),
            "endTimeMs": stream.int64(phrases[-1].words[-1][2]),
        },
        "totalSpeechMs": stream.int64(spoken),
        "speechRatio": round(spoken / duration, 3),
        "totalSilenceMs": stream.int64(duration - spoken),
        "silenceRatio": round(1 - spoken / duration, 3),
        "wordsCount": stream.int64(sum(len(phrase.words) for phrase in phrases)),
        "lettersCount": stream.int64(sum(len(word) for phrase in phrases for word, _, _ in phrase.words)),
        **dict.fromkeys(("wordsPerSecond", "lettersPerSecond", "wordsPerUtterance", "lettersPerUtterance"), statistics),
        "utteranceCount": stream.int64(len(phrases)),
        "utteranceDurationEstimation": statistics,
    }


def _classifier(stream: _Stream) -> Event:
    end = stream.recognition.sound.duration_ms
    highlight = {"text": "not to be taken for speech", "startTimeMs": stream.int64(0), "endTimeMs": stream.int64(end)}
    found = {"classifier": "formal_greeting", "highlights": [highlight], "labels": [{"label": "formal_greeting", "confidence": 0.9}]}
    return {"windowType": "LAST_UTTERANCE", "startTimeMs": stream.int64(0), "endTimeMs": stream.int64(end), "classifierResult": found}


def _conversation(stream: _Stream) -> Event:
    end = stream.recognition.sound.duration_ms
    interrupt = {"startTimeMs": stream.int64(end // 2), "endTimeMs": stream.int64(end // 2 + 100)}
    interrupts = {"speakerTag": "0", "interruptsCount": "1", "interruptsDurationMs": "100", "interrupts": [interrupt]}
    return {
        "conversationBoundaries": {"startTimeMs": stream.int64(0), "endTimeMs": stream.int64(end)},
        "totalSimultaneousSilenceDurationMs": stream.int64(end // 10),
        "totalSimultaneousSilenceRatio": 0.1,
        "totalSimultaneousSpeechDurationMs": stream.int64(100),
        "totalSimultaneousSpeechRatio": 0.01,
        "speakerInterrupts": [interrupts],
        "totalSpeechDurationMs": stream.int64(end * 9 // 10),
        "totalSpeechRatio": 0.9,
    }
