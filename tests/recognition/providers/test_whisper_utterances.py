from __future__ import annotations

import json
from typing import Any

import pytest

from recognition.contract import Transcript, Transient
from recognition.providers.whisper.utterances import transcript_of

Words = list[list[Any]]


def words(text: str, *, start: int = 0, step: int = 300) -> Words:
    """Words of 200 ms, one every `step` ms."""
    return [[start + n * step, start + n * step + 200, f" {word}", 0.9] for n, word in enumerate(text.split())]


def segment(said: Words, **scores: float) -> dict[str, Any]:
    return {"avg_logprob": -0.2, "no_speech_prob": 0.05, "compression_ratio": 1.2, "words": said, **scores}


def parsed(*channels: list[dict[str, Any]], language: str | None = "en", asked: bool = False) -> Transcript:
    answer = {"format": "whisper/1", "language": language, "language_asked": asked, "channels": channels}
    return transcript_of(json.dumps(answer).encode())


def texts(transcript: Transcript) -> list[str]:
    return [utterance.text for utterance in transcript.utterances]


def test_utterances_end_with_sentences():
    assert texts(parsed([segment(words("It works. Does it? Yes! Well… no"))])) == ["It works.", "Does it?", "Yes!", "Well… no"]


def test_utterances_end_at_pauses_and_go_on_across_segments():
    said = [segment(words("so I was")), segment(words("saying that", start=900)), segment(words("later on", start=3000))]
    transcript = parsed(said)
    assert texts(transcript) == ["so I was saying that", "later on"]
    assert [(u.start_ms, u.end_ms) for u in transcript.utterances] == [(0, 1400), (3000, 3500)]


@pytest.mark.parametrize("text", ["Mr. Smith came", "А. С. Пушкин родился", "Dr. Who is here"])
def test_abbreviations_end_no_sentence(text: str):
    assert texts(parsed([segment(words(text))])) == [text]


def test_long_sentences_are_cut_after_a_comma_and_lose_no_word():
    text = " ".join(["word"] * 30) + ", " + " ".join(["other"] * 40)
    transcript = parsed([segment(words(text))])
    assert len(transcript.utterances) > 1
    assert transcript.utterances[0].text.endswith("word,") or transcript.utterances[1].text.endswith("word,")
    assert all(u.end_ms - u.start_ms <= 15_000 and len(u.text) <= 200 for u in transcript.utterances)
    assert " ".join(texts(transcript)) == text


def test_what_has_no_space_before_it_belongs_to_the_word_before():
    said = [[0, 100, " twenty", 0.9], [100, 200, "-one", 0.9], [200, 300, " or", 0.9], [300, 400, " 3", 0.9], [400, 500, ".5", 0.9]]
    (utterance,) = parsed([segment(said)]).utterances
    assert utterance.text == "twenty-one or 3.5"
    assert [(word.start_ms, word.end_ms, word.text) for word in utterance.words] == [
        (0, 200, "twenty-one"),
        (200, 300, "or"),
        (300, 500, "3.5"),
    ]


def test_languages_without_spaces_keep_their_characters():
    said = [[0, 100, "你", 0.9], [100, 200, "好", 0.9]]
    (utterance,) = parsed([segment(said)], language="zh").utterances
    assert (utterance.text, len(utterance.words)) == ("你好", 2)


def test_channels_are_merged_by_time():
    transcript = parsed([segment(words("first")), segment(words("third", start=4000))], [segment(words("second", start=2000))])
    assert [(u.channel, u.text) for u in transcript.utterances] == [(0, "first"), (1, "second"), (0, "third")]


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("la la la la", {"compression_ratio": 3.0}),
        ("something or other", {"no_speech_prob": 0.8, "avg_logprob": -0.9}),
        ("something or other", {"avg_logprob": -2.0}),
        ("Thanks for watching!", {"no_speech_prob": 0.5}),
        ("Продолжение следует...", {"no_speech_prob": 0.4}),
        ("Субтитры сделал DimaTorzok", {}),
    ],
)
def test_invented_text_is_dropped(text: str, scores: dict[str, float]):
    assert parsed([segment(words(text), **scores)]) == Transcript()
    assert parsed([segment(words(text), **scores)], asked=True) == Transcript(language="en")


def test_one_text_again_and_again_over_doubtful_sound_is_dropped():
    def often(times: int, no_speech_prob: float) -> list[dict[str, Any]]:
        return [segment(words("oh well", start=n * 3000), no_speech_prob=no_speech_prob) for n in range(times)]

    assert texts(parsed(often(3, 0.4))) == []
    assert texts(parsed(often(2, 0.4))) == ["oh well"] * 2
    assert texts(parsed(often(3, 0.1))) == ["oh well"] * 3


def test_a_thank_you_that_was_said_is_kept():
    assert texts(parsed([segment(words("Thank you."))])) == ["Thank you."]


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"[]", b"null", b'{"format":"whisper/1"', b'{"format":"whisper/9"}', b'{"format":"whisper/1"}']
)
def test_what_is_no_whole_answer_may_be_tried_again(payload: bytes):
    with pytest.raises(Transient):
        transcript_of(payload)
