"""Subtitles that a person can read."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recognition.contract import Transcript, Utterance, Word
from records import cues, formats
from records.cues import Cue, Measures, cut

TALKS = sorted((Path(__file__).parent / "talks").glob("*.json"))


def say(text: str, *, start: int = 0, each: int = 350, gap: int = 50, channel: int = 0, speaker: str | None = None) -> Utterance:
    """Words of equal length, one after the other."""
    words = [
        Word(start_ms=start + number * (each + gap), end_ms=start + number * (each + gap) + each, text=word)
        for number, word in enumerate(text.split())
    ]
    return Utterance(start_ms=start, end_ms=words[-1].end_ms, text=text, channel=channel, speaker=speaker, words=tuple(words))


def lines(*utterances: Utterance, language: str | None = "en", **measures: int) -> list[list[str]]:
    return [cue.texts for cue in cut(Transcript(utterances=utterances, language=language), Measures(**measures))]


# ---- whatever is said -----------------------------------------------------------------------------------------------------------------------

LETTERS = st.sampled_from(["a", "the", "I", "weather", "mountains", "and", "so", "40", "well,", "yes.", "no!", "unbelievably", "x" * 60])
RUSSIAN = st.sampled_from(["и", "в", "горах", "погода,", "сегодня.", "достопримечательности"])
CHINESE = st.sampled_from(["今", "天气", "很好,", "。", "公园"])


@st.composite
def utterances(draw: st.DrawFn) -> Utterance:
    words = draw(st.lists(draw(st.sampled_from([LETTERS, RUSSIAN, CHINESE])), min_size=1, max_size=60))
    between = "" if words[0][0] in "今天很。公" else " "
    now = start = draw(st.integers(0, 60_000))
    timed = []
    for word in words:
        now += draw(st.sampled_from([0, 20, 60, 400, 1500, 1501, 4000]))
        until = now + draw(st.sampled_from([0, 40, 300, 900, 9000]))
        timed.append(Word(start_ms=now, end_ms=until, text=word))
        now = until
    return Utterance(
        start_ms=start,
        end_ms=now,
        text=between.join(words),
        channel=draw(st.integers(0, 1)),
        speaker=draw(st.sampled_from([None, "1", "2"])),
        words=tuple(timed) if draw(st.booleans()) else (),
    )


TRANSCRIPTS = st.lists(utterances(), max_size=5).map(
    lambda said: Transcript(utterances=tuple(sorted(said, key=lambda one: one.start_ms)), language="en")
)
MEASURES = st.builds(
    Measures,
    max_line_length=st.sampled_from([None, 8, 20, 42, 200]),
    max_lines=st.integers(1, 4),
    max_duration_ms=st.sampled_from([1000, 2500, 7000, 60_000]),
)


@settings(max_examples=60, deadline=None)
@given(TRANSCRIPTS, MEASURES, st.booleans())
def test_every_word_is_shown_once_in_order_within_the_measures(transcript: Transcript, measures: Measures, labelled: bool) -> None:
    shown = cut(transcript, measures, labelled=labelled)

    for channel in (0, 1):
        said = "".join(one.text for one in transcript.utterances if one.channel == channel)
        text = "".join(cue.text for cue in sorted(shown, key=lambda cue: cue.start_ms) if cue.channel == channel)
        if len({cues.voice(one) for one in transcript.utterances if one.channel == channel}) <= 1:
            assert re.sub(r"Speaker \d+:|\s", "", text) == re.sub(r"\s", "", said)
    assert sorted(re.sub(r"Speaker \d+:|\s", "", "".join(cue.text for cue in shown))) == sorted(
        re.sub(r"\s", "", "".join(one.text for one in transcript.utterances))
    )
    for cue in shown:
        assert cue.start_ms < cue.end_ms <= cue.start_ms + measures.max_duration_ms
        assert_keeps_to_its_room(cue, measures)
    for before, after in pairwise(shown):
        assert before.start_ms <= after.start_ms
        if after.start_ms < before.end_ms:
            assert before.channel != after.channel
            assert after.start_ms < before.heard_until_ms
    assert shown == cut(transcript, measures, labelled=labelled)


def assert_keeps_to_its_room(cue: Cue, measures: Measures) -> None:
    length = measures.max_line_length or 42
    for text in cue.texts:
        assert cues.width(text) <= length or " " not in text  # nothing can be parted
    words = cue.text.split()
    assert len(cue.lines) <= measures.max_lines or len(words) == 1


@settings(max_examples=60, deadline=None)
@given(TRANSCRIPTS)
def test_a_long_pause_is_never_bridged(transcript: Transcript) -> None:
    for cue in cut(transcript):
        pieces = [piece for line in cue.lines for piece in line]
        assert all(after.start_ms - before.end_ms <= cues.LONGEST_PAUSE_MS for before, after in pairwise(pieces))


# ---- as subtitlers do it --------------------------------------------------------------------------------------------------------------------


def test_sentences_end_cues() -> None:
    text = "Today we will talk about the weather. It was cold in the mountains last night. Nobody knew what to do."
    assert [" ".join(cue) for cue in lines(say(text))] == [
        "Today we will talk about the weather.",
        "It was cold in the mountains last night.",
        "Nobody knew what to do.",
    ]


def test_a_short_number_at_the_end_is_no_cue_of_its_own() -> None:
    text = "Please write this number down, because you are going to need it very soon, it is 40"
    assert all(len(" ".join(cue)) > 10 for cue in lines(say(text)))


def test_a_line_ends_after_punctuation_and_before_a_conjunction_and_not_after_an_article() -> None:
    assert lines(say("When the rain had stopped, we went to the harbour.")) == [["When the rain had stopped,", "we went to the harbour."]]
    assert lines(say("She wanted to go home early but they asked for more")) == [["She wanted to go home early", "but they asked for more"]]
    for text in ("Somebody was walking slowly along the river bank", "We were looking at all of these from a mountain"):
        for cue in lines(say(text)):
            assert not any(line.endswith((" the", " a", " of", " these", " from")) for line in cue[:-1])


def test_a_cue_stands_for_a_second_and_as_long_as_it_takes_to_read_where_there_is_room() -> None:
    hurried = say("Unbelievable circumstances notwithstanding everybody", each=200, gap=0)
    [cue] = cut(Transcript(utterances=(hurried,)))
    assert cue.end_ms == 51 * 1000 // 20
    [short] = cut(Transcript(utterances=(say("Yes.", each=200),)))
    assert (short.start_ms, short.end_ms) == (0, 1000)

    first, _ = cut(Transcript(utterances=(say("Yes.", each=200), say("No.", start=700, channel=1))))
    assert first.end_ms == 700


def test_utterances_of_one_voice_share_a_cue_where_alone_they_could_not_be_read() -> None:
    counted = [say(f"{number}", start=300 * number, each=250) for number in range(40, 44)]
    assert lines(*counted) == [["40 41 42 43"]]


def test_without_times_of_words_an_utterance_is_cut_in_proportion() -> None:
    text = "This is a sentence of forty characters.. " * 8
    shown = cut(Transcript(utterances=(Utterance(start_ms=1000, end_ms=33_000, text=text.strip()),)))
    assert len(shown) >= 5
    assert all(abs((cue.heard_until_ms - cue.start_ms) - 100 * len(cue.text)) < 300 for cue in shown)
    assert shown[0].start_ms == 1000
    assert shown[-1].heard_until_ms == 33_000


def test_full_width_scripts_have_lines_of_16() -> None:
    text = "今天天气很好,我们去公园散步吧。明天可能会下雨,所以请带上雨伞。"
    for cue in lines(Utterance(start_ms=0, end_ms=9000, text=text), language="zh"):
        assert all(len(line) <= 16 for line in cue)
        assert not any(line.startswith(tuple(",。")) for line in cue)
    korean = "오늘은 산의 날씨에 대해 이야기하겠습니다 그리고 내일은 비가 올 것입니다"
    for cue in lines(say(korean), language="ko"):
        assert all(len(line) <= 16 for line in cue)
        assert set(" ".join(cue).split()) <= set(korean.split())


def test_right_to_left_text_stays_whole() -> None:
    text = "مرحبا بكم في الاجتماع الذي سنتحدث فيه عن الطقس في الجبال اليوم"
    assert " ".join(line for cue in lines(say(text), language="ar") for line in cue) == text


def test_a_word_longer_than_a_line_stands_whole() -> None:
    address = "https://example.org/" + "x" * 60
    assert [address] in [[line for line in cue if line == address] for cue in lines(say(f"Look at {address} today"))]


def test_words_that_are_not_those_of_the_text_are_set_apart() -> None:
    said = Utterance(start_ms=0, end_ms=2000, text="Forty-two!", words=(Word(0, 900, "forty"), Word(1000, 1900, "two")))
    assert lines(said) == [["forty two"]]


# ---- who speaks -----------------------------------------------------------------------------------------------------------------------------

CALL = Transcript(
    utterances=(say("Good morning.", channel=0), say("Hello & <hi>.", start=1500, channel=1), say("How are you?", start=3000, channel=0)),
    language="en",
)


def test_several_voices_are_told_apart() -> None:
    assert formats.to_txt(CALL) == "Speaker 1: Good morning.\nSpeaker 2: Hello & <hi>.\nSpeaker 1: How are you?\n"
    assert "\nSpeaker 2: Hello & <hi>.\n" in formats.to_srt(CALL)
    assert "\n<v Speaker 2>Hello &amp; &lt;hi&gt;.</v>\n" in formats.to_vtt(CALL)


def test_voices_are_not_told_where_nobody_asks_or_there_is_one() -> None:
    one = Transcript(utterances=(CALL.utterances[0], CALL.utterances[2]), language="en")
    for transcript, writing in ((CALL, formats.Writing(speakers=False)), (one, formats.Writing())):
        for write in (formats.to_txt, formats.to_srt, formats.to_vtt):
            assert "Speaker" not in write(transcript, writing)
            assert "<v" not in write(transcript, writing)


def test_speakers_of_one_channel_are_voices_too() -> None:
    said = Transcript(utterances=(say("Yes.", speaker="7"), say("No.", start=2000, speaker="3")))
    assert formats.to_txt(said) == "Speaker 1: Yes.\nSpeaker 2: No.\n"


@pytest.mark.parametrize(
    ("speaker", "name"), [("Anna & Co", "Anna & Co"), ("A", "Speaker 2"), ("speaker_0", "Speaker 2"), ("Спикер Иван", "Спикер Иван")]
)
def test_a_voice_with_a_name_is_called_by_it(speaker: str, name: str) -> None:
    said = Transcript(utterances=(say("Yes."), say("No.", start=2000, speaker=speaker)))
    assert formats.to_txt(said) == f"Speaker 1: Yes.\n{name}: No.\n"
    assert f"\n{name}: No.\n" in formats.to_srt(said)
    assert f"<v {name.replace('&', '&amp;')}>No.</v>" in formats.to_vtt(said)


def test_words_have_their_moments_in_vtt() -> None:
    written = formats.to_vtt(Transcript(utterances=(say("Good <morning> everybody."),)), formats.Writing(words=True))
    assert "<c>Good</c> <00:00:00.400><c>&lt;morning&gt;</c> <00:00:00.800><c>everybody.</c>" in written


def test_braces_are_text() -> None:
    assert "{\\i1} is how it begins" in formats.to_srt(Transcript(utterances=(say("{\\i1} is how it begins"),)))


# ---- real speech ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", TALKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["srt", "vtt", "txt"])
def test_a_real_talk_reads_as_it_did(talk: Path, kind: str) -> None:
    contents = json.loads(talk.read_text())
    write = {"srt": formats.to_srt, "vtt": formats.to_vtt, "txt": formats.to_txt}[kind]
    assert write(formats.from_structure(contents)) == talk.with_suffix(f".{kind}").read_text()
