from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recognition.contract import Audio, Misconfigured, Provider, Refused, Transcript, Transient
from recognition.providers.whisper import WhisperProvider, provider
from tests.audio import RATE, noise, silence, tone, write_wav
from tests.recognition.providers.whisper_engine import DEMO, DEMO_TEXT, SHARED, Stop, Stopping, Watching, attempt, opened
from tests.speech import join, read, say, why_not, write

shared_audio = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not on this machine")

pytestmark = pytest.mark.no_database


def recognized(whisper: WhisperProvider, path: Path, *, language: str = "", channels: int = 1, **options: Any) -> Transcript:
    frozen = {**whisper.options(language=language, channels=channels), **options}
    return whisper.parse(whisper.poll(attempt(path, frozen), Watching()))


def demo_samples() -> list[int]:
    import av

    with av.open(str(DEMO)) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        return [
            int(sample)
            for frame in [*container.decode(audio=0), None]
            for resampled in resampler.resample(frame)
            for sample in resampled.to_ndarray()[0]
        ]


def test_importing_loads_no_heavy_library():
    code = "import sys, recognition.providers.whisper; print([m for m in ('faster_whisper', 'ctranslate2', 'av', 'numpy', 'onnxruntime', 'django') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_keeps_the_contract(whisper: WhisperProvider):
    assert isinstance(whisper, Provider)
    assert not whisper.costs_money
    audio = Audio("normalized/1.ogg", 1, 1, 1, lambda: opened("nowhere"))
    assert whisper.upload(audio) == "normalized/1.ogg"
    asked = attempt(Path("normalized/1.ogg"), {})
    assert whisper.submit(asked, Watching()) != whisper.submit(asked, Watching())


def test_the_demo_recording_is_understood(whisper: WhisperProvider):
    heartbeat = Watching()
    transcript = whisper.parse(whisper.poll(attempt(DEMO, whisper.options(language="", channels=1), duration_ms=7806), heartbeat))
    assert transcript.text.split() == DEMO_TEXT.split()
    assert [utterance.text for utterance in transcript.utterances] == [sentence + "." for sentence in DEMO_TEXT[:-1].split(". ")]
    assert transcript.language == "en"
    words = [word for utterance in transcript.utterances for word in utterance.words]
    assert [word.text for word in words] == DEMO_TEXT.split()
    assert all(0 <= word.start_ms <= word.end_ms <= 7806 for word in words)
    assert [word.start_ms for word in words] == sorted(word.start_ms for word in words)
    assert heartbeat.told == sorted(heartbeat.told)
    assert heartbeat.told[-1] == 1.0


def test_the_same_options_give_the_same_answer(whisper: WhisperProvider):
    frozen = json.loads(json.dumps(whisper.options(language="en", channels=1)))
    assert whisper.poll(attempt(DEMO, frozen), Watching()) == whisper.poll(attempt(DEMO, frozen), Watching())


def test_what_was_frozen_is_obeyed_and_not_the_present_config(models_dir: Path, whisper: WhisperProvider):
    frozen = whisper.options(language="", channels=1)
    other = WhisperProvider(model="another", models_dir=models_dir, threads=1, compute_type="float32", open_source=opened)
    answer = json.loads(other.poll(attempt(DEMO, frozen), Watching()))
    assert answer["model"] == "base"
    assert answer["parameters"]["compute_type"] == "int8"


def melody(seconds: int, octave: int) -> list[int]:
    """Two notes a second."""
    scale = (262, 330, 392, 330, 294, 349, 440, 349)
    return [sample for n in range(2 * seconds) for sample in tone(0.5, hz=scale[n % len(scale)] * octave / 2, volume=0.15)]


QUIET = {
    "silence": lambda: silence(8),
    "noise": lambda: noise(8, volume=0.3),
    "tone": lambda: tone(8),
    "hum": lambda: [sum(parts) for parts in zip(*(tone(8, hz=50 * k, volume=0.2 / k) for k in range(1, 8)), strict=True)],
    "chord": lambda: [
        int(sum(parts) * math.exp(-(i % (RATE // 2)) / 3000))
        for i, parts in enumerate(zip(*(tone(8, hz=hz, volume=0.2) for hz in (262, 330, 392)), strict=True))
    ],
    "music": lambda: [
        int(sum(parts) * math.exp(-(i % (RATE // 2)) / 3000))
        for i, parts in enumerate(zip(*(melody(20, octave) for octave in (1, 2, 4)), strict=True))
    ],
    "long noise": lambda: noise(200, volume=0.1),
    "click": lambda: [*silence(2), *noise(0.05, volume=0.9), *silence(2)],
    "click alone": lambda: noise(0.05, volume=0.9),
}


@pytest.mark.parametrize("sound", QUIET)
def test_without_speech_nothing_is_said(sound: str, whisper: WhisperProvider, tmp_path: Path):
    path = write_wav(tmp_path / "sound.wav", QUIET[sound]())
    assert recognized(whisper, path) == Transcript()
    assert recognized(whisper, path, language="ru") == Transcript(language="ru")


def said(transcript: Transcript) -> list[tuple[str, int, int]]:
    return [(word.text, word.start_ms, word.end_ms) for utterance in transcript.utterances for word in utterance.words]


def test_silence_before_and_after_changes_no_word(whisper: WhisperProvider, tmp_path: Path):
    alone = said(recognized(whisper, write(tmp_path / "alone.wav", read(DEMO))))
    assert [text for text, _, _ in alone] == DEMO_TEXT.split()
    for lead in (30, 120):
        late = said(recognized(whisper, write(tmp_path / "late.wav", join(float(lead), read(DEMO), 20.0))))
        # Nothing begins before the recording.
        assert [(text, max(start - lead * 1000, 0), end - lead * 1000) for text, start, end in late] == alone


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "espeak-ng is there")
def test_two_sentences_after_two_minutes_of_silence(whisper: WhisperProvider, tmp_path: Path):
    first, second = say("Please close the window before you leave the office."), say("The children are playing football behind the school.")
    for lead, pause in ((0.0, 1.0), (120.0, 1.0), (120.0, 15.0)):
        sound = join(lead, first, pause, second)
        words = said(recognized(whisper, write(tmp_path / "sound.wav", sound), language="en"))
        assert [_bare(text) for text, _, _ in words] == [_bare(word.text) for word in sound.words]
        late = sorted(abs(start / 1000 - word.start) for (_, start, _), word in zip(words, sound.words, strict=True))
        assert late[len(late) * 95 // 100] <= 0.3


def test_a_pause_inside_changes_no_word(whisper: WhisperProvider, tmp_path: Path):
    for pause in (1.0, 20.0):
        words = said(recognized(whisper, write(tmp_path / "sound.wav", join(read(DEMO), pause, read(DEMO))), language="en"))
        assert [_bare(text) for text, _, _ in words] == [_bare(text) for text in DEMO_TEXT.split()] * 2


def test_channels_are_recognized_apart_and_merged_in_order(whisper: WhisperProvider, tmp_path: Path):
    speech = demo_samples()
    path = write_wav(tmp_path / "stereo.wav", [*silence(3), *speech], speech)
    transcript = recognized(whisper, path, channels=2)
    assert {utterance.channel for utterance in transcript.utterances} == {0, 1}
    assert [u.start_ms for u in transcript.utterances] == sorted(u.start_ms for u in transcript.utterances)
    late, early = ([u for u in transcript.utterances if u.channel == channel] for channel in (0, 1))
    assert [_bare(u.text) for u in late] == [_bare(u.text) for u in early]
    assert [abs(a.start_ms - b.start_ms - 3000) < 400 for a, b in zip(late, early, strict=True)] == [True] * len(early)
    assert {u.channel for u in recognized(whisper, path, channels=1).utterances} <= {0}


def test_long_recordings_are_cut_into_pieces_and_times_stay_absolute(whisper: WhisperProvider, tmp_path: Path):
    speech = [*demo_samples(), *silence(1)]
    path = write_wav(tmp_path / "long.wav", [*silence(2), *speech * 3])
    transcript = recognized(whisper, path, piece_seconds=12)
    starts = [u.start_ms for u in transcript.utterances if u.text.startswith("Today")]
    assert SequenceMatcher(None, _bare(transcript.text).split(), _bare(DEMO_TEXT).split() * 3).ratio() > 0.9
    assert [abs(b - a - len(speech) * 1000 / RATE) < 300 for a, b in pairwise(starts)] == [True, True]


@pytest.mark.parametrize(("asked", "used"), [("en-US", "en"), ("EN", "en"), ("nb-NO", "no"), ("zh-Hant", "zh"), ("", "")])
def test_languages_are_asked_for_by_tag(asked: str, used: str, whisper: WhisperProvider):
    assert whisper.options(language=asked, channels=1)["language"] == used


def test_an_unknown_language_is_refused(whisper: WhisperProvider):
    with pytest.raises(Refused) as refused:
        whisper.options(language="tlh", channels=1)
    assert (refused.value.code, refused.value.knows_us) == ("language_unsupported", False)


def test_a_language_that_the_model_lacks_is_refused(whisper: WhisperProvider):
    with pytest.raises(Refused):  # Cantonese came with large-v3
        recognized(whisper, DEMO, language="yue")


@pytest.mark.parametrize("beat", [1, 3, 5])
def test_stops_when_the_heartbeat_says_so(beat: int, whisper: WhisperProvider):
    with pytest.raises(Stop):
        whisper.poll(attempt(DEMO, whisper.options(language="", channels=1)), Stopping(beat))


def test_stops_while_the_model_computes(whisper: WhisperProvider, monkeypatch: pytest.MonkeyPatch):
    begun, release = threading.Event(), threading.Event()

    def endless(*args: Any, **options: Any) -> list[Any]:
        begun.set()
        release.wait()
        return []

    class StoppingThen:
        def beat(self, progress: float | None = None) -> None:
            if begun.is_set():
                raise Stop

    monkeypatch.setattr(provider, "transcribe", endless)
    with pytest.raises(Stop):
        whisper.poll(attempt(DEMO, whisper.options(language="en", channels=1)), StoppingThen())
    release.set()


@pytest.mark.parametrize("error", [RuntimeError("engine"), MemoryError(), ValueError("shape")])
def test_a_failure_of_the_engine_may_be_tried_again(error: Exception, whisper: WhisperProvider, monkeypatch: pytest.MonkeyPatch):
    def failing(*args: Any, **options: Any) -> list[Any]:
        raise error

    monkeypatch.setattr(provider, "transcribe", failing)
    with pytest.raises(Transient) as failure:
        recognized(whisper, DEMO)
    assert failure.value.code == "engine_failed"


def test_a_file_that_does_not_decode_may_be_tried_again(whisper: WhisperProvider, tmp_path: Path):
    path = tmp_path / "broken.ogg"
    path.write_bytes(b"OggS" + bytes(1000))
    with pytest.raises(Transient) as failure:
        recognized(whisper, path)
    assert failure.value.code == "audio_unreadable"


def test_a_model_that_is_not_there_is_a_matter_of_configuration(whisper: WhisperProvider):
    with pytest.raises(Misconfigured) as failure:
        whisper.poll(attempt(DEMO, whisper.options(language="", channels=1), model="enormous"), Watching())
    assert failure.value.code == "model_unavailable"


def test_nothing_that_was_said_is_logged(whisper: WhisperProvider, caplog: pytest.LogCaptureFixture):
    caplog.set_level(0)
    recognized(whisper, DEMO)
    assert "meeting" not in caplog.text.lower()


@shared_audio
@pytest.mark.parametrize(
    ("name", "language", "channels", "expected"),
    [
        ("jfk.flac", "en", 1, "fellow americans ask not what your country can do for you"),
        ("ru_call.wav", "ru", 1, "наталья благодарю специалистов подразделения доброго свидания"),
        ("stereo_diarization.wav", "en", 2, "began complaint wizard behind curtain left horizon seems extremely distant"),
    ],
)
def test_words_and_times_match_a_sequential_run(
    name: str, language: str, channels: int, expected: str, whisper: WhisperProvider, models_dir: Path
):
    from faster_whisper.audio import decode_audio

    from recognition.providers.whisper.model import get_model

    path = SHARED / name
    transcript = recognized(whisper, path, channels=channels)
    assert transcript.language == language
    model = get_model("base", models_dir, compute_type="int8", threads=1)
    sound = decode_audio(str(path), split_stereo=channels == 2)
    compared = 0
    for channel, samples in enumerate(sound if channels == 2 else [sound]):
        segments, _ = model.transcribe(samples, language=language, word_timestamps=True, condition_on_previous_text=False)
        sequential = [(_bare(word.word), word.end * 1000) for segment in segments for word in segment.words]
        words = [word for utterance in transcript.utterances if utterance.channel == channel for word in utterance.words]
        blocks = SequenceMatcher(None, [_bare(word.text) for word in words], [text for text, _ in sequential], autojunk=False)
        for ours, theirs, length in blocks.get_matching_blocks():
            for word, (_, end) in zip(words[ours : ours + length], sequential[theirs : theirs + length], strict=True):
                assert abs(word.end_ms - end) <= 300, word  # ends, since it takes the pause before a word for a part of it
                compared += 1
    heard = [_bare(word.text) for utterance in transcript.utterances for word in utterance.words]
    assert set(expected.split()) <= set(heard)
    assert compared >= 0.6 * len(heard)


def _bare(word: str) -> str:
    return re.sub(r"[^\w\s]", "", word).strip().lower()
