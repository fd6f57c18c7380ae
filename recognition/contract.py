"""The one contract between the pipeline and whatever recognizes speech.

Values and protocols alone: no Django, no rows, no network. A provider is built by `recognition.registry` from the config and is used by the
pipeline's steps through the four calls of :class:`Provider`. Times are integers in milliseconds from the start of the original recording;
languages are BCP-47 tags (``en``, ``ru``, ``pt-BR``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

# ---- the domain result --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """A timed token, with the punctuation that hangs on it and without spaces around it."""

    start_ms: int
    end_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Utterance:
    """A timed stretch of speech of one voice: what a subtitle or a line of the transcript shows."""

    start_ms: int
    end_ms: int
    text: str
    channel: int = 0
    speaker: str | None = None
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """The result, ordered by time. No utterances is a valid transcript: nobody spoke."""

    utterances: tuple[Utterance, ...] = ()
    language: str | None = None

    @property
    def text(self) -> str:
        """Plain text, one utterance a line."""
        return "\n".join(utterance.text for utterance in self.utterances)

    @property
    def speakers(self) -> tuple[str, ...]:
        """Voices in the order in which they are first heard."""
        return tuple(dict.fromkeys(u.speaker for u in self.utterances if u.speaker))


# ---- what goes in -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Audio:
    """The normalized recording (Ogg/Opus) as a provider sees it.

    `location` is our storage's name for it and holds no personal data; `local_path()` gives a readable file for as long as the context lasts.
    """

    location: str
    size: int
    duration_ms: int
    channels: int
    local_path: Callable[[], AbstractContextManager[Path]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a provider needs to know of a recognition: one that is to be submitted (no `external_id` yet), or that was."""

    id: str
    model: str
    options: Mapping[str, Any]
    external_id: str
    source_uri: str
    duration_ms: int
    submitted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider takes. `None` means no limit. Checked before anything is paid.

    `max_duration_ms` is compared with the duration times the number of channels when `channels_add_up`.
    """

    max_duration_ms: int | None = None
    max_size: int | None = None
    channels_add_up: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """The provider is still at work: ask again in so many seconds."""

    ask_again_in: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The submission was answered with the result itself: `payload` is what `poll` would have given."""

    external_id: str
    payload: bytes


class Heartbeat(Protocol):
    """How long work says that it lives, and learns that it must stop."""

    def beat(self, progress: float | None = None) -> None:
        """Call often (every second or so). `progress` is 0..1 of this step's work.

        Raises an exception that the provider lets pass when the work must stop: the record was lost, the process is told to end, or the
        deadline has passed.
        """


# ---- the provider -------------------------------------------------------------------------------------------------------------------


@runtime_checkable
class Provider(Protocol):
    """An engine behind the contract. Every call may be repeated, all but `submit` of a provider that costs money."""

    name: str
    costs_money: bool
    """True: `submit` is paid for, and is never repeated while its outcome is unknown."""
    model: str
    limits: Limits
    paces: Mapping[str, float]
    """Seconds between two calls of a kind (`submit`, `poll`), kept by all workers of all machines together; without an entry, none."""

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        """What is frozen on the recognition row, so that a repeat gives the same transcript. JSON values. `language` "" means detect."""

    def upload(self, audio: Audio) -> str:
        """Put the audio where the engine reads it; gives the `source_uri`. Idempotent: what is there already is not sent again."""

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str | Answered:
        """Start the recognition; gives the `external_id` (at most 200 characters, never the same twice). May cost money; never retried inside.

        A local engine gives an id at once and works in `poll`. A service that is paid for and answers on the same connection does its work
        in here and gives its answer along with an id: whoever repeats `poll` must not pay again. What takes long beats.
        """

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> Pending | bytes:
        """The raw answer once there is one. A local engine works in here."""

    def parse(self, payload: bytes, options: Mapping[str, Any]) -> Transcript:
        """The raw answer, of a recognition with these options, as a transcript. Pure: no network, no clock, no rows.

        Raises :class:`Transient` on bytes that are no whole answer.
        """

    def remove_source(self, source_uri: str) -> None:
        """Remove the copy of the audio that `upload` made for this provider. Idempotent; nothing to do where there is none of its own."""

    def remove_result(self, external_id: str) -> None:
        """Remove what the provider keeps of a recognition. Idempotent; nothing to do where it keeps nothing."""


@runtime_checkable
class TellsApart(Protocol):
    """What a provider may have besides: so that its refusal of one recognition is not taken for a refusal of all."""

    def answers_for(self, external_id: str) -> bool:
        """Whether it tells us about that recognition, in all the ways that `poll` asks. Free; raises what `poll` raises."""


@runtime_checkable
class MakesCopies(Protocol):
    """What a provider has besides whose `upload` makes a copy of the audio: its link is written down before there is anything to lose."""

    def copy_of(self, audio: Audio) -> str:
        """The `source_uri` that `upload` will give. No network."""


# ---- typed failures -----------------------------------------------------------------------------------------------------------------


@dataclass
class ProviderError(Exception):
    """A failure with a stable `code` for programs and a sentence for people. Holds no secret, no file name and nothing that was said."""

    code: str
    message: str
    knows_us: bool = field(default=False, kw_only=True)
    """The provider answered, and did so as one that takes our key: a pause for want of access is over."""

    def __post_init__(self) -> None:
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass
class Refused(ProviderError):
    """Permanent: this recording will not be recognized by this provider however often it is asked.

    `knows_us=False` where we say so ourselves, without having asked it.
    """

    knows_us: bool = field(default=True, kw_only=True)


@dataclass
class Transient(ProviderError):
    """Trying again may help; counts as a failure."""


@dataclass
class NotAccepted(Transient):
    """A submission that for certain never reached the provider (no connection could be made): it may be made again."""


@dataclass
class Busy(ProviderError):
    """The provider asks to come back later (429). Not a failure."""

    retry_after: float = 60.0
    knows_us: bool = field(default=True, kw_only=True)


@dataclass
class Misconfigured(ProviderError):
    """The provider as a whole does not work for us (401, 403, a model that is not there). No attempt is spent."""


@dataclass
class OutcomeUnknown(ProviderError):
    """A paid submission may or may not have been accepted. Never repeated by itself."""


ANSWER_GONE = frozenset({"answer_missing", "result_expired"})
"""Codes by which `poll` says that the provider has no answer any more, or never kept one."""

OPERATION_DEAD = ANSWER_GONE | {"language_unsupported", "recognition_failed", "recognition_refused", "source_unreadable"}
"""Codes by which `poll` says that this operation will never have an answer however often it is asked: only a new recognition helps. Every other
code leaves it open, and the operation, which may be paid for, can be asked again."""

OPERATION_FORBIDDEN = "operation_forbidden"
"""The provider tells about other operations and not about this one: with the key that it was begun with, it does."""


__all__ = [
    "ANSWER_GONE",
    "OPERATION_DEAD",
    "OPERATION_FORBIDDEN",
    "Answered",
    "Attempt",
    "Audio",
    "Busy",
    "Heartbeat",
    "Limits",
    "MakesCopies",
    "Misconfigured",
    "NotAccepted",
    "OutcomeUnknown",
    "Pending",
    "Provider",
    "ProviderError",
    "Refused",
    "TellsApart",
    "Transcript",
    "Transient",
    "Utterance",
    "Word",
]
