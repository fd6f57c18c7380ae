"""A provider whose answers are scripted; obeys the contract (tests/contracts)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recognition.contract import Answered, Attempt, Audio, Heartbeat, Limits, Pending, Transcript, Transient, Utterance, Word

Answer = Pending | bytes | BaseException | Callable[[Heartbeat], Pending | bytes]

HELLO = Transcript(
    language="en",
    utterances=(
        Utterance(0, 900, "Hello there.", words=(Word(0, 400, "Hello"), Word(500, 900, "there."))),
        Utterance(1500, 2000, "Goodbye.", words=(Word(1500, 2000, "Goodbye."),)),
    ),
)


def payload_of(transcript: Transcript) -> bytes:
    return json.dumps(
        {
            "language": transcript.language,
            "utterances": [
                [u.start_ms, u.end_ms, u.text, [[w.start_ms, w.end_ms, w.text] for w in u.words]] for u in transcript.utterances
            ],
        }
    ).encode()


@dataclass
class ScriptedProvider:
    """Answers of `submit` and `poll` come from lists, one a call, the last one for ever. `calls` tells what was asked of it."""

    name: str = "scripted"
    costs_money: bool = False
    model: str = "parrot"
    limits: Limits = field(default_factory=Limits)
    paces: Mapping[str, float] = field(default_factory=dict)
    submissions: list[str | Answered | BaseException] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=lambda: [payload_of(HELLO)])
    calls: list[str] = field(default_factory=list)
    submitted: int = 0

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        return {"language": language, "channels": channels}

    def upload(self, audio: Audio) -> str:
        self.calls.append("upload")
        return f"scripted:{audio.location}"

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str | Answered:
        self.calls.append("submit")
        answer: str | Answered | BaseException = f"operation-{self.submitted + 1}-{id(self)}"
        if self.submissions:
            answer = self.submissions.pop(0) if len(self.submissions) > 1 else self.submissions[0]
        if isinstance(answer, BaseException):
            raise answer
        self.submitted += 1
        return answer

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> Pending | bytes:
        self.calls.append("poll")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer(heartbeat)
        return answer

    def parse(self, payload: bytes, options: Mapping[str, Any]) -> Transcript:
        try:
            read = json.loads(payload)
            return Transcript(
                language=read["language"],
                utterances=tuple(Utterance(s, e, t, words=tuple(Word(*word) for word in words)) for s, e, t, words in read["utterances"]),
            )
        except (ValueError, KeyError) as error:
            raise Transient("answer_unreadable", "The answer could not be read.") from error

    def remove_source(self, source_uri: str) -> None:
        self.calls.append("remove_source")

    def remove_result(self, external_id: str) -> None:
        self.calls.append("remove_result")
