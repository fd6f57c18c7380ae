"""What the model makes of windows: the language that is spoken, and words with their places.

The model's own primitives are used, not faster-whisper's pipelines: those drop what was said after the last time that the model wrote down, hear
each window differently depending on the one before, and encode the first windows twice to detect the language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from recognition.providers.whisper.sound import RATE, Window
from recognition.providers.whisper.utterances import MAX_COMPRESSION

if TYPE_CHECKING:
    from ctranslate2 import StorageView
    from faster_whisper import WhisperModel
    from faster_whisper.tokenizer import Tokenizer

_PASSED_OVER = RATE * 25 // 100
"""Speech between two pauses of which no word came, from so much on."""
_STOPPED_EARLY = RATE * 7 // 10
"""Speech between two words that none of them reaches, from so much on."""
_DOUBT = -1.0
"""Below this `avg_logprob` a window is heard again in two halves (Whisper's own threshold for a second try)."""
_SHORT = 2 * RATE
"""Of what is shorter the model makes up words: they count if it is sure of them."""
_HALF = 5 * RATE
"""What is shorter makes no sense by itself."""
_HOP = RATE // 100
_PREPENDED = "\"'“¿([{-"
_APPENDED = "\"'.。,，!！?？:：”)]}、"
Segment = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Windows as the model hears them."""

    windows: Sequence[Window]
    states: StorageView


def encode(model: WhisperModel, windows: Sequence[Window]) -> Encoded:
    import numpy as np
    from faster_whisper.audio import pad_or_trim

    features = [pad_or_trim(model.feature_extractor(window.samples)[..., :-1]) for window in windows]
    return Encoded(windows, model.encode(np.stack(features)))


def detect(model: WhisperModel, encoded: Encoded) -> tuple[str, float]:
    """The language of some windows, weighed by how much is said in each, and how likely it is."""
    if not model.model.is_multilingual:
        return "en", 1.0
    weights: Counter[str] = Counter()
    for window, probabilities in zip(encoded.windows, model.model.detect_language(encoded.states), strict=True):
        for token, probability in probabilities:
            weights[token[2:-2]] += probability * window.length
    language, weight = weights.most_common(1)[0]
    return language, round(weight / sum(window.length for window in encoded.windows), 3)


def transcribe(model: WhisperModel, encoded: Encoded, language: str, *, beam_size: int) -> list[Segment]:
    """What is said in the windows, in order."""

    def hear(window: Window, **generating: Any) -> list[Segment]:
        return _listen(model, encode(model, [window]), language, beam_size=beam_size, **generating)[0]

    found: list[Segment] = []
    for window, segments in zip(encoded.windows, _listen(model, encoded, language, beam_size=beam_size), strict=True):
        segments = _sure(window, segments, hear)
        for missed in _missed(window, segments):
            again = hear(missed)
            if missed.length > _SHORT or _certainty(again) > _DOUBT:
                segments = [*segments, *again]
        found += sorted(segments, key=lambda segment: segment["words"][0][0] if segment["words"] else segment["start_ms"])
    return found


def _sure(window: Window, segments: list[Segment], hear: Callable[..., list[Segment]]) -> list[Segment]:
    """The segments, or better ones: where the model was caught in a loop or is in doubt, it is asked in another way."""
    if _is_looped(segments):
        # The sequential pipeline would roll dice at a higher temperature; forbidding repetition gives the same text each time.
        segments = hear(window, no_repeat_ngram_size=3)
    if _certainty(segments) < _DOUBT and (halves := window.halves()) and min(half.length for half in halves) >= _HALF:
        apart = [segment for half in halves for segment in hear(half)]
        if not _is_looped(apart) and _certainty(apart) > _certainty(segments):
            return apart
    return segments


def _is_looped(segments: Sequence[Segment]) -> bool:
    return any(segment["compression_ratio"] > MAX_COMPRESSION for segment in segments)


def _certainty(segments: Sequence[Segment]) -> float:
    return min((segment["avg_logprob"] for segment in segments), default=0.0)


def _missed(window: Window, segments: Sequence[Segment]) -> Iterator[Window]:
    """Speech of a window that the model passed over, as windows of their own: it sometimes stops early, above all where the voice changes."""
    words = [(word[0] * RATE // 1000, word[1] * RATE // 1000) for segment in segments for word in segment["words"]]
    if not words:
        return
    ends = [window.spans[0].start, *(end for _, end in words)]
    starts = [*(start for start, _ in words), window.end]
    for end, start in zip(ends, starts, strict=True):
        if end >= start:
            continue
        gap = window.between(end, start)
        whole = [last - first for first, last in (span.speech for span in window.spans) if end <= first and last <= start]
        if (
            max(whole, default=0) >= _PASSED_OVER
            or sum(last - first for first, last in (span.speech for span in gap.spans)) >= _STOPPED_EARLY
        ):
            yield gap


def _listen(model: WhisperModel, encoded: Encoded, language: str, *, beam_size: int, **generating: Any) -> list[list[Segment]]:
    from faster_whisper.tokenizer import Tokenizer
    from faster_whisper.transcribe import get_suppressed_tokens

    tokenizer = Tokenizer(model.hf_tokenizer, model.model.is_multilingual, task="transcribe", language=language)
    # With times, though they are not used: without them the model more often skips speech (measured: 12 % of the words against 1 %).
    prompt = model.get_prompt(tokenizer, [], without_timestamps=False)
    results = model.model.generate(
        encoded.states,
        [list(prompt) for _ in encoded.windows],
        beam_size=beam_size,
        max_length=model.max_length,
        suppress_blank=True,
        suppress_tokens=get_suppressed_tokens(tokenizer, [-1]),
        return_scores=True,
        return_no_speech_prob=True,
        **generating,
    )
    said = [_phrases(result.sequences_ids[0], tokenizer) for result in results]
    frames = [min(-(-window.length // _HOP), model.feature_extractor.nb_max_frames) for window in encoded.windows]
    aligned = model.find_alignment(tokenizer, [list(chain.from_iterable(phrases)) for phrases in said], encoded.states, frames)
    found = []
    for window, result, phrases, words in zip(encoded.windows, results, said, aligned, strict=True):
        length = len(result.sequences_ids[0])
        scores = {
            "start_ms": max(window.spans[0].start, 0) * 1000 // RATE,
            "end_ms": window.end * 1000 // RATE,
            "speech_ms": window.length * 1000 // RATE,
            "avg_logprob": round(result.scores[0] * length / (length + 1), 3),
            "no_speech_prob": round(result.no_speech_prob, 3),
        }
        found.append([scores | segment for segment in _segments(window, phrases, words, tokenizer)])
    return found


def _phrases(tokens: Sequence[int], tokenizer: Tokenizer) -> list[list[int]]:
    """Tokens of text between the times that the model wrote down; the last need not be followed by one."""
    phrases: list[list[int]] = [[]]
    for token in tokens:
        if token < tokenizer.eot:
            phrases[-1].append(token)
        elif phrases[-1]:
            phrases.append([])
    return [phrase for phrase in phrases if phrase]


def _segments(window: Window, phrases: Sequence[Sequence[int]], words: list[dict[str, Any]], tokenizer: Tokenizer) -> Iterator[Segment]:
    from faster_whisper.transcribe import get_compression_ratio, merge_punctuations

    merge_punctuations(words, _PREPENDED, _APPENDED)
    rest = iter(words)
    for phrase in phrases:
        placed: list[list[Any]] = []
        taken = 0
        while taken < len(phrase) and (word := next(rest, None)) is not None:
            taken += len(word["tokens"])
            if word["word"]:
                place = window.place(round(word["start"] * RATE), round(word["end"] * RATE))
                times = (place.start * 1000 // RATE, place.end * 1000 // RATE)
                placed.append([*times, word["word"], round(float(word["probability"]), 3)])
        yield {"compression_ratio": round(get_compression_ratio(tokenizer.decode(list(phrase))), 3), "words": placed}
