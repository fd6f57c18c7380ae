from __future__ import annotations

import json
import random
from typing import Any

import pytest

from recognition.contract import Transcript, Transient, Utterance, Word
from recognition.providers.openai.languages import CODES
from recognition.providers.openai.parse import parse

pytestmark = pytest.mark.no_database


def answer(text: str = "", **more: Any) -> bytes:
    return json.dumps({"task": "transcribe", "language": "english", "duration": 9.3, "text": text, **more}).encode()


def segment(start: float, end: float | str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": 0, "seek": 0, "start": start, "end": end, "text": text, "tokens": [1], "avg_logprob": -0.2, **more}


def words(*timed: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [{"word": word, "start": start, "end": end} for word, start, end in timed]


def read(payload: bytes, **options: Any) -> Transcript:
    return parse(payload, options)


# ---- times of words -----------------------------------------------------------------------------------------------------------------


def test_bare_words_get_the_capitals_and_the_punctuation_of_their_segment() -> None:
    payload = answer(
        "Good day. It's twenty-one; he said: «Yes, 3.5!»",
        segments=[segment(0, 2, " Good day."), segment(2, 9.3, " It's twenty-one; he said: «Yes, 3.5!»")],
        words=words(
            ("good", 0.1, 0.4),
            ("day", 0.5, 0.9),
            ("it's", 2.1, 2.4),
            ("twenty", 2.5, 2.8),
            ("one", 2.8, 3.1),
            ("he", 4, 4.1),
            ("said", 4.2, 4.5),
            ("yes", 5, 5.4),
            ("3.5", 5.6, 6.25),
        ),
    )
    assert read(payload).utterances == (
        Utterance(100, 900, "Good day.", words=(Word(100, 400, "Good"), Word(500, 900, "day."))),
        Utterance(
            2100,
            6250,
            "It's twenty-one; he said: «Yes, 3.5!»",
            words=(
                Word(2100, 2400, "It's"),
                Word(2500, 3100, "twenty-one;"),
                Word(4000, 4100, "he"),
                Word(4200, 4500, "said:"),
                Word(5000, 5400, "«Yes,"),
                Word(5600, 6250, "3.5!»"),
            ),
        ),
    )


def test_words_with_their_punctuation_inside_the_segments() -> None:
    """As servers made of faster-whisper give them."""
    timed = [segment(0, 2, " Hello, world.", words=words((" Hello,", 0.0, 0.44), (" world.", 0.5, 1.04)))]
    assert read(answer("Hello, world.", segments=timed, words=None)).utterances == (
        Utterance(0, 1040, "Hello, world.", words=(Word(0, 440, "Hello,"), Word(500, 1040, "world."))),
    )


def test_a_word_at_the_edge_belongs_to_the_segment_that_it_spells() -> None:
    payload = answer(
        "One two. Three.",
        segments=[segment(0, 2, "One two."), segment(2, 3, "Three.")],
        words=words(("one", 0.5, 1), ("two", 1.9, 2.6), ("three", 2.6, 3)),
    )
    assert [[word.text for word in utterance.words] for utterance in read(payload).utterances] == [["One", "two."], ["Three."]]


def test_words_that_spell_something_else_are_put_by_their_time_and_left_as_they_are() -> None:
    payload = answer(
        "It costs $25. Yes.",
        segments=[segment(0, 2, "It costs $25."), segment(2, 3, "Yes.")],
        words=words(("it", 0.1, 0.3), ("costs", 0.4, 0.8), ("twenty", 0.9, 1.2), ("five", 1.3, 1.7), ("yes", 2.1, 2.5)),
    )
    first, second = read(payload).utterances
    assert (first.text, [word.text for word in first.words]) == ("It costs $25.", ["it", "costs", "twenty", "five"])
    assert (second.start_ms, [word.text for word in second.words]) == (2100, ["Yes."])


def test_languages_without_spaces_keep_their_words() -> None:
    payload = answer(
        "今日は、晴れ。", segments=[segment(0, 2, "今日は、晴れ。")], words=words(("今日", 0, 0.5), ("は", 0.5, 0.8), ("晴れ", 1, 1.6))
    )
    assert [word.text for word in read(payload).utterances[0].words] == ["今日", "は、", "晴れ。"]


def test_signs_that_stand_alone_hang_on_the_word_before() -> None:
    payload = answer(
        "Да — это он...", segments=[segment(0, 2, "Да — это он...")], words=words(("да", 0, 0.3), ("это", 1, 1.2), ("он", 1.3, 1.5))
    )
    assert [word.text for word in read(payload).utterances[0].words] == ["Да —", "это", "он..."]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_words_no_text_is_lost_and_times_stay_in_order(seed: int) -> None:
    """Text cut into segments and into words at random places, some of them misheard."""
    dice = random.Random(seed)
    vocabulary = ["one", "Two,", "twenty-one", "don't", "3.5", "«Да»,", "—", "...", "İstanbul", "straße!", "नमस्ते।"]
    tokens = dice.choices(vocabulary, k=60)
    segments, timed, at = [], [], 0.0
    while tokens:
        said = [tokens.pop() for _ in range(min(len(tokens), dice.randint(1, 12)))]
        start = at
        for token in said:
            spoken = token if dice.random() > 0.05 else "misheard"
            lasts = 0.1 + dice.random()
            timed.append((spoken.strip("«».,!—।").lower(), at, at + lasts * 0.9))
            at += lasts
        segments.append(segment(start, at, " " + " ".join(said)))
    transcript = read(answer(" ".join(one["text"].strip() for one in segments), segments=segments, words=words(*timed)))
    assert [utterance.text for utterance in transcript.utterances] == [one["text"].strip() for one in segments]
    for utterance in transcript.utterances:
        assert all(utterance.start_ms <= word.start_ms <= word.end_ms <= utterance.end_ms for word in utterance.words)
        starts = [word.start_ms for word in utterance.words]
        assert starts == sorted(starts)
        assert all(word.text for word in utterance.words)


# ---- less than was asked for --------------------------------------------------------------------------------------------------------


def test_segments_alone() -> None:
    payload = answer("One. Two.", segments=[segment(0.5, 2, " One."), segment(2, "3.25", " Two.")])
    assert read(payload).utterances == (Utterance(500, 2000, "One."), Utterance(2000, 3250, "Two."))


def test_words_alone() -> None:
    payload = answer("One. Two.", words=words(("one", 0.5, 1), ("two", 2, 2.5)))
    assert read(payload).utterances == (Utterance(500, 2500, "One. Two.", words=(Word(500, 1000, "One."), Word(2000, 2500, "Two."))),)


def test_text_alone_lasts_as_long_as_the_recording() -> None:
    assert read(answer(" One.\n Two. ")).utterances == (Utterance(0, 9300, "One. Two."),)
    assert read(b'{"text": "One."}').utterances == (Utterance(0, 0, "One."),)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_nobody_spoke(text: str) -> None:
    empty = Transcript((), None)
    assert read(answer(text, segments=[], words=[])) == read(answer(text)) == read(answer(text, segments=[segment(0, 3, " ")])) == empty


def test_nothing_is_asked_of_a_server_that_invents_over_silence() -> None:
    """Whether something was said is for the server to say."""
    assert read(answer("Thank you.", segments=[segment(0, 3, "Thank you.", no_speech_prob=0.99)])).text == "Thank you."


@pytest.mark.parametrize(
    "broken",
    [
        {"start": -1, "end": None},
        {"start": "soon", "end": float("inf")},
        {"start": 3, "end": 1},
        {"start": True, "end": 2**70},
        {"text": 5},
    ],
)
def test_times_that_are_none_do_no_harm(broken: dict[str, Any]) -> None:
    payload = answer("One.", segments=[segment(0, 1, "One.") | broken, "odd", None], words=[{"word": "one"} | broken, 5])
    for utterance in read(payload).utterances:
        assert 0 <= utterance.start_ms <= utterance.end_ms


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b'{"error": "x"}', b'{"text": 1}', b"\xff", b"1\n00:00:00,000 --> x", b"[" * 100_000]
)
def test_what_is_no_answer(payload: bytes) -> None:
    with pytest.raises(Transient, match="not whole"):
        read(payload)


# ---- language -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "tag"),
    [
        ("english", "en"),
        ("Russian", "ru"),
        ("haitian creole", "ht"),
        ("cantonese", "yue"),
        ("en", "en"),
        ("jw", "jv"),
        ("pt-BR", "pt-BR"),
        ("klingonese", None),
        ("", None),
        (None, None),
        (5, None),
    ],
)
def test_names_of_languages_become_tags(said: object, tag: str | None) -> None:
    assert read(answer("One.", language=said)).language == tag


def test_the_language_that_was_asked_for_where_none_is_named() -> None:
    assert read(answer("One.", language=None), language="de").language == "de"
    assert read(answer("", language="english"), language="").language is None
    assert read(answer("", language="english"), language="de").language == "de"


def test_every_language_of_whisper_has_a_name_here() -> None:
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    assert set(_LANGUAGE_CODES) - set(CODES.values()) == {"jw"}
    assert set(CODES.values()) - set(_LANGUAGE_CODES) == {"jv"}
