"""The provider: what is frozen, the work inside `poll`, and its payload."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from recognition.contract import Attempt, Audio, Heartbeat, Limits, Refused, Transcript, Transient
from recognition.providers.whisper.decoding import Segment, detect, encode, transcribe
from recognition.providers.whisper.model import get_model
from recognition.providers.whisper.sound import RATE, Cutting, Window, count_channels, windows
from recognition.providers.whisper.utterances import FORMAT, transcript_of

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

T = TypeVar("T")

_BEAT_SECONDS = 0.5
# Primary subtags of BCP-47 that Whisper knows under another code, and back.
_TO_WHISPER = {"nb": "no", "iw": "he", "in": "id", "ji": "yi", "jv": "jw", "fil": "tl", "cmn": "zh", "ekk": "et", "swh": "sw"}
_FROM_WHISPER = {"jw": "jv"}


@dataclass(frozen=True, slots=True)
class Parameters(Cutting):
    """All that decides the text besides the sound, the model and the language. Frozen on the recognition; `poll` obeys what was frozen."""

    compute_type: str = "int8"
    beam_size: int = 5
    batch_size: int = 2
    """Windows that the model takes at once: how long work goes on after it was told to stop (a few seconds), and how much memory it takes."""


class WhisperProvider:
    """faster-whisper in this process. `open_source` gives a local file for a `source_uri`, which is the `location` of the normalized copy.

    `threads` is for one recognition: the processor's cores divided by the number of workers. `models_dir` keeps the joined default model
    and what was fetched from the hub.
    """

    name = "whisper"
    costs_money = False
    limits = Limits()
    paces: Mapping[str, float] = MappingProxyType({})

    def __init__(
        self,
        *,
        model: str,
        models_dir: Path,
        threads: int,
        compute_type: str = "int8",
        open_source: Callable[[str], AbstractContextManager[Path]],
    ) -> None:
        self.model = model
        self._models_dir = models_dir
        self._threads = threads
        self._compute_type = compute_type
        self._open_source = open_source

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        """Raises `Refused` for a language that Whisper does not know. More than one channel: each is recognized by itself."""
        return {
            "language": _whisper_language(language) if language else "",
            "channels": channels,
            **asdict(Parameters(compute_type=self._compute_type)),
        }

    def upload(self, audio: Audio) -> str:
        return audio.location

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str:
        return f"local-{uuid.uuid4()}"

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        """Recognize. Whatever the heartbeat raises comes through within a second, also while the model computes.

        Raises `Misconfigured` for a model that cannot be loaded, `Refused` for a language that it lacks, `Transient` where the engine or the
        decoder fails.
        """
        heartbeat.beat(0.0)
        work = _Work(attempt, heartbeat)
        with self._open_source(attempt.source_uri) as path:
            model = work.apart(
                lambda: get_model(attempt.model, self._models_dir, compute_type=work.parameters.compute_type, threads=self._threads)
            )
            return work.run(path, model)

    def parse(self, payload: bytes, options: Mapping[str, Any] | None = None) -> Transcript:
        return transcript_of(payload)

    def remove_source(self, source_uri: str) -> None:
        pass  # it read the record's own file

    def remove_result(self, external_id: str) -> None:
        pass


@dataclass
class _Work:
    """One run of `poll`."""

    attempt: Attempt
    heartbeat: Heartbeat
    parameters: Parameters = field(init=False)
    language: str = field(init=False)
    language_probability: float | None = None
    progress: float = 0.0

    def __post_init__(self) -> None:
        options = self.attempt.options
        self.parameters = Parameters(**{f.name: options[f.name] for f in fields(Parameters) if f.name in options})
        self.language = options.get("language", "")

    def run(self, path: Path, model: WhisperModel) -> bytes:
        if self.language:
            _require_language(model, self.language)
        asked = self.language
        apart = min(self.attempt.options.get("channels", 1), count_channels(path))
        channels: list[list[Segment]] = []
        duration = 0

        def tick(decoded: int) -> None:
            nonlocal duration
            duration = max(duration, decoded)
            self.beat()

        for number in range(apart):
            segments: list[Segment] = []
            heard = windows(path, channel=number if apart > 1 else None, cutting=self.parameters, tick=tick)
            while batch := list(islice(heard, self.parameters.batch_size)):
                segments += self.apart(lambda batch=batch: self.recognize(batch, model))  # type: ignore[misc]
                self.beat((number + batch[-1].end * 1000 / RATE / max(self.attempt.duration_ms, 1)) / apart)
            channels.append(segments)
        self.beat(1.0)
        return json.dumps(
            {
                "format": FORMAT,
                "model": self.attempt.model,
                "parameters": asdict(self.parameters),
                "language": _FROM_WHISPER.get(self.language, self.language) or None,
                "language_asked": bool(asked),
                "language_probability": self.language_probability,
                "duration_ms": duration * 1000 // RATE,
                "channels": channels,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()

    def recognize(self, batch: list[Window], model: WhisperModel) -> list[Segment]:
        """What is said in some windows. The first settle the language: together they are half a minute, or all that is said."""
        encoded = encode(model, batch)
        if not self.language:
            self.language, self.language_probability = detect(model, encoded)
        return transcribe(model, encoded, self.language, beam_size=self.parameters.beam_size)

    def beat(self, progress: float | None = None) -> None:
        if progress is not None:
            self.progress = min(max(progress, self.progress), 1.0)
        self.heartbeat.beat(self.progress)

    def apart(self, compute: Callable[[], T]) -> T:
        """Run in a thread, so that the heart beats while the model computes, downloads or loads, and stopping does not wait for it.

        A thread that is left behind ends with the batch that it computes; it holds nothing but memory.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def target() -> None:
            try:
                results.append(compute())
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        threading.Thread(target=target, name="whisper", daemon=True).start()
        while not done.wait(_BEAT_SECONDS):
            self.beat()
        if not errors:
            return results[0]
        if isinstance(errors[0], (RuntimeError, ValueError, MemoryError)):
            raise Transient(
                "engine_failed", f"The recognition engine failed on a stretch of the recording ({type(errors[0]).__name__})."
            ) from errors[0]
        raise errors[0]


def _whisper_language(tag: str) -> str:
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    primary = tag.replace("_", "-").split("-")[0].lower()
    code = _TO_WHISPER.get(primary, primary)
    if code not in _LANGUAGE_CODES:
        raise Refused("language_unsupported", "Whisper does not know the language that was asked for.", knows_us=False)
    return str(code)


def _require_language(model: WhisperModel, language: str) -> None:
    known = model.hf_tokenizer.token_to_id(f"<|{language}|>") is not None if model.model.is_multilingual else language == "en"
    if not known:
        raise Refused("language_unsupported", "This Whisper model does not know the language that was asked for.")
