from __future__ import annotations

import json
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recognition.contract import Transcript, Transient, Utterance, Word
from recognition.providers.speechkit.parse import StreamError, events, is_settled, parse
from tests.fakes.recognizers import FixedText, Phrase, sound_of
from tests.fakes.recognizers import opus_file as made_opus
from tests.fakes.speechkit_stream import Asked, Recognition, Shape, chunks

pytestmark = pytest.mark.no_database

FIXTURES = Path(__file__).parent / "fixtures"
MONO = {"language": "ru-RU", "channels": 1, "speaker_labeling": False}
STEREO = {"language": "ru-RU", "channels": 2, "speaker_labeling": False}
LABELED = {"language": "ru-RU", "channels": 1, "speaker_labeling": True}

ORDER = (Word(240, 690, "заказ"), Word(720, 1080, "номер"), Word(1130, 1620, "двадцать"), Word(1650, 1990, "пять"))
THANKS = (Word(5010, 5600, "спасибо"),)


def fixture(name: str) -> bytes:
    return (FIXTURES / f"{name}.jsonl").read_bytes()


def stream(*told: Mapping[str, Any]) -> bytes:
    return "\n".join(json.dumps({"result": event}, ensure_ascii=False) for event in told).encode()


def spoken(text: str, start: object = "0", end: object = "1000", **more: Any) -> dict[str, Any]:
    return {"alternatives": [{"text": text, "startTimeMs": start, "endTimeMs": end, **more}]}


def final(text: str, index: object, start: object = "0", end: object = "1000", tag: object = "0", **more: Any) -> dict[str, Any]:
    return {"audioCursors": {"finalIndex": index}, "final": spoken(text, start, end, **more), "channelTag": tag}


def refinement(text: str, index: object, start: object = "0", end: object = "1000", tag: object = "0", **more: Any) -> dict[str, Any]:
    return {
        "audioCursors": {"finalIndex": "9"},
        "finalRefinement": {"finalIndex": index, "normalizedText": spoken(text, start, end, **more)},
        "channelTag": tag,
    }


def lines(payload: bytes, options: Mapping[str, Any] = MONO) -> list[str]:
    return [utterance.text for utterance in parse(payload, options).utterances]


# ---- what the service sends ---------------------------------------------------------------------------------------------------------


def test_one_channel_normalized() -> None:
    assert parse(fixture("mono_normalized"), MONO) == Transcript(
        utterances=(Utterance(240, 1990, "Заказ номер 25.", words=ORDER), Utterance(5010, 5600, "Спасибо!", words=THANKS)),
        language="ru-RU",
    )


def test_without_refinements_the_raw_text_stands() -> None:
    assert parse(fixture("mono_without_refinements"), MONO).utterances == (
        Utterance(240, 1990, "заказ номер двадцать пять", words=ORDER),
        Utterance(5010, 5600, "спасибо", words=THANKS),
    )


def test_channels_kept_apart_are_told_by_their_number() -> None:
    found = parse(fixture("stereo"), STEREO)

    assert [(u.start_ms, u.channel, u.speaker, u.text) for u in found.utterances] == [
        (1300, 0, None, "Алло!"),
        (2100, 1, None, "Да, слушаю."),
        (3900, 0, None, "Спасибо."),
        (5000, 1, None, "Хорошо."),
    ]
    assert found.speakers == ()


def test_two_labeled_voices_of_one_channel_are_speakers() -> None:
    found = parse(fixture("labeled"), LABELED)

    assert [(u.channel, u.speaker, u.text) for u in found.utterances] == [
        (0, "0", "Алло!"),
        (0, "1", "Да, слушаю."),
        (0, "0", "Спасибо."),
    ]
    assert found.speakers == ("0", "1")


def test_silence_is_a_transcript() -> None:
    assert parse(fixture("silence"), MONO) == Transcript(language="ru-RU")
    assert parse(b"", {"language": "auto"}) == Transcript()
    assert parse(b" \n", {}) == Transcript()


def test_analysis_and_summary_are_passed_over() -> None:
    assert parse(fixture("analysis_and_summary"), STEREO).utterances == (
        Utterance(1300, 1710, "алло", channel=1, words=(Word(1300, 1710, "алло"),)),
    )


def test_an_answer_that_was_broken_off_is_not_taken_by_halves() -> None:
    with pytest.raises(StreamError) as raised:
        parse(fixture("broken_off"), MONO)
    assert raised.value.grpc_code == 13
    assert "internal error" not in str(raised.value)


@pytest.mark.parametrize("error", [{"code": 13, "message": "m"}, {"grpcCode": 13}, {"message": "m"}, "m", None, {}])
def test_a_late_error_of_any_shape(error: object) -> None:
    payload = fixture("mono_normalized") + json.dumps({"error": error}).encode()
    for read in (lambda: parse(payload, MONO), lambda: is_settled(payload)):
        with pytest.raises(Transient):
            read()


@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        b"[]",
        b"1",
        b'"text"',
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"result":[]}',
        b"{} x",
        b"{},{}",
        b'{"a":' * 5000,
        fixture("stereo")[:-2],
    ],
    ids=range(13),
)
def test_bytes_that_are_no_whole_answer(payload: bytes) -> None:
    for read in (lambda: parse(payload, MONO), lambda: is_settled(payload)):
        with pytest.raises(Transient):
            read()


# ---- how the stream is laid out -----------------------------------------------------------------------------------------------------

OBJECTS = [json.loads(line) for line in fixture("stereo").splitlines()]


@settings(deadline=None)  # the machine may be busy
@given(
    layout=st.lists(
        st.tuples(st.sampled_from([None, 1, 2, 7]), st.booleans(), st.sampled_from(["", "\n", " ", "\r\n", "\n\n\t", "\n \n"])),
        min_size=len(OBJECTS),
        max_size=len(OBJECTS),
    ),
    before=st.sampled_from(["", "\n", " ", "\ufeff"]),
)
def test_the_layout_makes_no_difference(layout: list[tuple[int | None, bool, str]], before: str) -> None:
    texts = [
        json.dumps(found, ensure_ascii=escaped, indent=indent) + after
        for found, (indent, escaped, after) in zip(OBJECTS, layout, strict=True)
    ]
    assert parse((before + "".join(texts)).encode(), STEREO) == parse(fixture("stereo"), STEREO)


@settings(deadline=None)
@given(st.data())
def test_a_stream_cut_inside_an_object_is_noticed_wherever_it_is_cut(data: st.DataObject) -> None:
    whole = fixture("labeled")
    ends = _line_ends(whole)
    cut = data.draw(st.integers(1, len(whole) - 1).filter(lambda at: at not in ends))
    with pytest.raises(Transient):
        list(events(whole[:cut]))


def _line_ends(whole: bytes) -> set[int]:
    """Where an object has just ended, with its line's end or without."""
    found, at = set(), 0
    for line in whole.splitlines():
        found |= {at + len(line), at + len(line) + 1}
        at += len(line) + 1
    return found


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_be_refused(payload: bytes) -> None:
    try:
        parse(payload, MONO)
    except Transient:
        return
    assert payload.lstrip().startswith(b"{") or not payload.strip(b" \t\r\n") or payload.startswith(b"\xef\xbb\xbf")


SHAPES = st.builds(
    Shape,
    pretty=st.booleans(),
    trailing_newline=st.booleans(),
    per_line=st.integers(1, 3),
    bare_objects=st.booleans(),
    refinements=st.sampled_from(["inline", "late", "none", "some", "alone"]),
    channel_order=st.sampled_from(["time", "blocks", "reversed"]),
    final_index=st.sampled_from(["channel", "global"]),
    tags=st.sampled_from(["both", "outer", "inner"]),
    cursor=st.booleans(),
    numbers=st.booleans(),
    omit_defaults=st.booleans(),
    duplicate_finals=st.booleans(),
    unknown_events=st.booleans(),
    partials=st.booleans(),
    status_codes=st.booleans(),
    analysis=st.booleans(),
    summary=st.booleans(),
)


@settings(deadline=None)
@given(shape=SHAPES, channels=st.sampled_from([1, 2]), labels=st.booleans(), seconds=st.integers(1, 40))
def test_whatever_the_stream_looks_like_each_phrase_comes_once(shape: Shape, channels: int, labels: bool, seconds: int) -> None:
    labels = labels and channels == 1
    sound = sound_of(made_opus(seconds, channels))
    phrases = FixedText()(sound, "ru-RU")

    found = parse(payload_of(phrases, sound, shape, Asked(labels=labels)), {"language": "ru-RU", "speaker_labeling": labels})

    assert [(u.start_ms, u.end_ms, u.channel, u.speaker, u.text.lower().strip(".,!?")) for u in found.utterances] == [
        (
            phrase.words[0][1],
            phrase.words[-1][2],
            0 if labels else phrase.channel,
            str(phrase.speaker) if labels else None,
            (phrase.text if refined(found, number) else phrase.bare).lower().strip(".,!?"),
        )
        for number, phrase in enumerate(phrases)
    ]
    if shape.refinements in ("inline", "late", "alone"):
        assert [u.text for u in found.utterances] == [phrase.text for phrase in phrases]
    if shape.refinements == "none":
        assert [u.text for u in found.utterances] == [phrase.bare for phrase in phrases]
    assert found.language == "ru-RU"


def refined(found: Transcript, number: int) -> bool:
    return found.utterances[number].text[:1].isupper()


@pytest.mark.parametrize("refinements", ["inline", "late", "some"])
@pytest.mark.parametrize("final_index", ["channel", "global"])
def test_finals_without_an_index_are_still_one_text_with_their_refinements(refinements: str, final_index: str) -> None:
    sound = sound_of(made_opus(30, 2))
    phrases = FixedText()(sound, "ru-RU")
    shape = Shape(cursor=False, refinements=refinements, final_index=final_index)

    found = parse(payload_of(phrases, sound, shape, Asked()), STEREO)

    assert [(u.channel, u.text.lower().strip(".,!?")) for u in found.utterances] == [
        (phrase.channel, (phrase.text if refined(found, number) else phrase.bare).lower().strip(".,!?"))
        for number, phrase in enumerate(phrases)
    ]
    assert any(refined(found, number) for number in range(len(phrases)))


def payload_of(phrases: list[Phrase], sound: Any, shape: Shape, asked: Asked) -> bytes:
    return b"".join(chunks(Recognition(phrases, sound, asked), shape, lambda *_: b""))


# ---- one text, twice ----------------------------------------------------------------------------------------------------------------


def test_a_refinement_is_paired_by_its_own_index_and_not_by_the_cursor_beside_it() -> None:
    payload = stream(
        final("один", "0"),
        final("два", "1", "1000", "2000"),
        refinement("Один.", "0"),
        refinement("Два.", "1", "1000", "2000"),
    )
    assert lines(payload) == ["Один.", "Два."]


def test_a_refinement_without_text_leaves_the_raw_one() -> None:
    assert lines(stream(final("один", "0"), refinement(" ", "0"))) == ["один"]
    assert lines(stream(final("один", "0"), {"finalRefinement": {"finalIndex": "0", "normalizedText": {"alternatives": []}}})) == ["один"]


def test_a_refinement_alone_is_a_text_of_its_own() -> None:
    assert lines(stream(refinement("Один.", "4", "0", "1000"), final("два", "5", "1000", "2000"))) == ["Один.", "два"]


def test_of_two_with_one_index_the_later_is_taken_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert lines(stream(final("раз", "0"), final("один", "0"))) == ["один"]
    assert "twice" in caplog.text
    assert "раз" not in caplog.text


def test_indices_that_are_left_out_count_on() -> None:
    first, second = final("один", None), final("два", None, "1000", "2000")
    bare = {**first, "audioCursors": {}}, {key: value for key, value in second.items() if key != "audioCursors"}
    assert lines(stream(*bare, refinement("Один.", None), refinement("Два.", None, "1000", "2000"))) == ["Один.", "Два."]


def test_an_index_of_nought_may_be_left_out() -> None:
    payload = stream(
        final("один", None),
        final("два", "1", "1000", "2000"),
        refinement("Два.", "1", "1000", "2000"),
        refinement("Один.", None),
        final("один", None),
    )
    assert lines(payload) == ["Один.", "Два."]


# ---- values -------------------------------------------------------------------------------------------------------------------------


def test_numbers_come_as_strings_or_as_numbers() -> None:
    word = {"text": "да", "startTimeMs": 100, "endTimeMs": 200.0}
    payload = stream(final("да", 0, 0, 900, words=[word]), final("нет", 1.0, "1000", "1500", words=[]))
    assert parse(payload, MONO).utterances == (Utterance(100, 200, "да", words=(Word(100, 200, "да"),)), Utterance(1000, 1500, "нет"))


@pytest.mark.parametrize("odd", ["", "later", None, True, [], {}, "-5", -5, "Infinity", float("inf"), float("nan"), "1e400", 10**400])
def test_odd_numbers_do_not_cost_the_text(odd: object) -> None:
    (utterance,) = parse(stream(final("да", "0", odd, odd, words=[{"text": "да", "startTimeMs": odd, "endTimeMs": odd}])), MONO).utterances
    assert (utterance.start_ms, utterance.end_ms, utterance.text) == (0, 0, "да")


def test_nothing_ends_before_it_starts() -> None:
    (utterance,) = parse(stream(final("да", "0", "900", "100")), MONO).utterances
    assert (utterance.start_ms, utterance.end_ms) == (900, 900)


def test_an_utterance_is_one_line_and_words_have_no_spaces_around_them() -> None:
    payload = stream(final(" да,\n  конечно ", "0", words=[{"text": " да "}, {"text": " "}, {}, None, {"text": 5}]))
    (utterance,) = parse(payload, MONO).utterances
    assert utterance.text == "да, конечно"
    assert [word.text for word in utterance.words] == ["да"]


def test_words_stand_in_for_a_missing_text_and_raw_ones_for_refined_ones() -> None:
    words = [{"text": "да", "startTimeMs": "100", "endTimeMs": "200"}]
    assert lines(stream(final("", "0", words=words))) == ["да"]
    (utterance,) = parse(stream(final("да", "0", words=words), refinement("Да.", "0")), MONO).utterances
    assert utterance == Utterance(100, 200, "Да.", words=(Word(100, 200, "да"),))


@pytest.mark.parametrize(
    ("event", "channel"),
    [
        ({"channelTag": "1", "final": {**spoken("да"), "channelTag": "0"}}, 1),
        ({"final": {**spoken("да"), "channelTag": "1"}}, 1),
        ({"channelTag": "", "final": {**spoken("да"), "channelTag": "1"}}, 1),
        ({"channelTag": 1, "final": spoken("да")}, 1),
        ({"final": spoken("да")}, 0),
        ({"channelTag": "left", "final": spoken("да")}, 0),
        ({"channelTag": None, "finalRefinement": {"normalizedText": {**spoken("да"), "channelTag": "1"}}}, 1),
    ],
)
def test_where_the_channel_is_said(event: dict[str, Any], channel: int) -> None:
    assert [u.channel for u in parse(stream(event), STEREO).utterances] == [channel]


def test_the_first_of_several_alternatives_is_taken() -> None:
    event = {"final": {"alternatives": [*spoken("да")["alternatives"], *spoken("нет")["alternatives"]]}}
    assert lines(stream(event)) == ["да"]


@pytest.mark.parametrize("event", [{"final": None}, {"final": []}, {"final": {}}, {"final": {"alternatives": "x"}}, {"mood": {}}, {}])
def test_events_that_are_odd_or_new_say_nothing(event: dict[str, Any]) -> None:
    assert parse(stream(event), MONO).utterances == ()


def test_the_language_is_the_one_most_is_said_in() -> None:
    def languages(*told: tuple[object, object]) -> list[dict[str, Any]]:
        return [{"languageCode": code, "probability": probability} for code, probability in told]

    payload = stream(
        final("yes", "0", languages=languages(("en-US", 0.9), ("ru-RU", "0.1"))),
        final("добрый день всем", "1", languages=languages(("ru-RU", 0.7), ("en-US", 0.3))),
        refinement("Добрый день всем!", "1", languages=[]),
        final("!", "2", languages=[*languages(("not a tag", 1), (5, 1), ("en-US", "x")), None]),
    )
    assert parse(payload, {"language": "auto"}).language == "ru-RU"
    assert parse(stream(final("да", "0")), {"language": "auto"}).language is None
    assert parse(stream(final("да", "0")), {"language": "kk-KZ"}).language == "kk-KZ"


# ---- settled ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "settled"),
    [
        (b"", False),
        (b"\n", False),
        (stream({"statusCode": {"codeType": "WORKING"}}), False),
        (fixture("silence"), True),
        (fixture("mono_normalized"), True),
        (stream({"finalRefinement": {}}), True),
    ],
    ids=range(6),
)
def test_whether_a_stream_tells_that_the_recording_was_listened_to(payload: bytes, settled: bool) -> None:
    assert is_settled(payload) is settled


def test_parsing_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise AssertionError("parsing is pure")

    monkeypatch.setattr(socket, "socket", refuse)
    assert parse(fixture("labeled"), LABELED).utterances
