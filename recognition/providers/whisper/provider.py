"""The provider: what is frozen, the work inside `poll`, and its payload."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from recognition.contract import Attempt, Audio, Heartbeat, Limits, Refused, Transcript, Transient
from recognition.providers.whisper.model import get_model
from recognition.providers.whisper.sound import RATE, Cutting, Piece, Window, count_channels, pieces
from recognition.providers.whisper.utterances import FORMAT, MAX_COMPRESSION, transcript_of

if TYPE_CHECKING:
    from faster_whisper import BatchedInferencePipeline, WhisperModel
    from faster_whisper.transcribe import Segment

T = TypeVar("T")

_BEAT_SECONDS = 0.5
_LISTEN_SECONDS = 10
"""How much speech settles the language of a recording: a single short word is too little."""
_MISSED_SECONDS = 2
"""Speech without words that is listened to again."""
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
        channels: list[list[dict[str, Any]]] = []
        duration = 0
        for number in range(apart):
            segments: list[dict[str, Any]] = []
            for piece in pieces(path, channel=number if apart > 1 else None, cutting=self.parameters, tick=self.beat):
                for done, found in self.recognize(piece, model):
                    segments += found
                    self.beat((number + (piece.start + done * len(piece.samples)) * 1000 / RATE / max(self.attempt.duration_ms, 1)) / apart)
                duration = max(duration, piece.end)
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

    def recognize(self, piece: Piece, model: WhisperModel) -> Iterator[tuple[float, list[dict[str, Any]]]]:
        """Give the segments of a piece batch by batch, each time with the share of the piece that is done."""
        if piece.windows and not self.language:
            self.language, self.language_probability = self.apart(lambda: _detect(model, piece))
        windows = iter(piece.windows)
        while batch := list(islice(windows, self.parameters.batch_size)):
            found = self.apart(lambda batch=batch: _transcribe(model, piece, batch, self.language, self.parameters))  # type: ignore[misc]
            yield batch[-1].spans[-1].end / len(piece.samples), found
        yield 1.0, []

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


def _detect(model: WhisperModel, piece: Piece) -> tuple[str, float]:
    """The language of the first speech, weighed by how much of it there is."""
    if not model.model.is_multilingual:
        return "en", 1.0
    weights: Counter[str] = Counter()
    heard = 0.0
    for window in piece.windows:
        seconds = window.length / RATE
        _, _, probabilities = model.detect_language(window.samples(piece.samples))
        for language, probability in probabilities:
            weights[language] += probability * seconds
        heard += seconds
        if heard >= _LISTEN_SECONDS:
            break
    language, weight = weights.most_common(1)[0]
    return language, round(weight / heard, 3)


def _transcribe(model: WhisperModel, piece: Piece, windows: list[Window], language: str, parameters: Parameters) -> list[dict[str, Any]]:
    from faster_whisper import BatchedInferencePipeline

    pipeline = BatchedInferencePipeline(model)
    found = _listen(pipeline, piece, windows, language, parameters)
    for number, window in enumerate(windows):
        if any(segment["compression_ratio"] > MAX_COMPRESSION for segment in found[number]):
            # Caught in a loop. The sequential pipeline would roll dice at a higher temperature; forbidding repetition gives the same text each time.
            found[number] = _listen(pipeline, piece, [window], language, parameters, no_repeat_ngram_size=3)[0]
        if missed := _missed(piece, window, found[number]):
            found[number] += chain.from_iterable(_listen(pipeline, piece, missed, language, parameters))
            found[number].sort(key=lambda segment: segment["words"][0][0] if segment["words"] else segment["start_ms"])
    return list(chain.from_iterable(found))


def _missed(piece: Piece, window: Window, segments: list[dict[str, Any]]) -> list[Window]:
    """Speech of a window that the model passed over, as windows of their own: it sometimes stops early, above all where the voice changes."""
    words = [
        (word[0] * RATE // 1000 - piece.start, word[1] * RATE // 1000 - piece.start) for segment in segments for word in segment["words"]
    ]
    ends = [0, *(end for _, end in words)]
    starts = [*(start for start, _ in words), len(piece.samples)]
    gaps = (window.between(end, start) for end, start in zip(ends, starts, strict=True)) if words else ()
    return [gap for gap in gaps if gap.length >= _MISSED_SECONDS * RATE]


def _listen(
    pipeline: BatchedInferencePipeline, piece: Piece, windows: list[Window], language: str, parameters: Parameters, **decoding: Any
) -> list[list[dict[str, Any]]]:
    """What is said in each window. Times are in the recording."""
    import numpy as np

    clips, start = [], 0
    for window in windows:
        clips.append({"start": start / RATE, "end": (start + window.length) / RATE})
        start += window.length
    segments, _ = pipeline.transcribe(
        np.concatenate([window.samples(piece.samples) for window in windows]),
        language=language,
        clip_timestamps=clips,
        beam_size=parameters.beam_size,
        temperature=0.0,
        word_timestamps=True,
        without_timestamps=False,  # without them the model more often skips speech (measured: 12 % of the words against 1 %)
        batch_size=len(windows),
        **decoding,
    )
    found: list[list[dict[str, Any]]] = [[] for _ in windows]
    for segment in segments:
        number = min(range(len(windows)), key=lambda n: abs(clips[n]["start"] - segment.seek / 100))
        found[number].append(_segment(segment, piece, windows[number], round(clips[number]["start"] * RATE)))
    return found


def _segment(segment: Segment, piece: Piece, window: Window, offset: int) -> dict[str, Any]:
    words = []
    for word in segment.words or []:
        place = window.to_piece(round(word.start * RATE) - offset, round(word.end * RATE) - offset)
        words.append(
            [
                (piece.start + place.start) * 1000 // RATE,
                (piece.start + place.end) * 1000 // RATE,
                word.word,
                round(float(word.probability), 3),
            ]
        )
    return {
        "start_ms": (piece.start + window.spans[0].start) * 1000 // RATE,
        "end_ms": (piece.start + window.spans[-1].end) * 1000 // RATE,
        "speech_ms": window.length * 1000 // RATE,
        "avg_logprob": round(segment.avg_logprob, 3),
        "no_speech_prob": round(segment.no_speech_prob, 3),
        "compression_ratio": round(segment.compression_ratio, 3),
        "words": words,
    }
