"""What comes out of normalizing: form, times, sound, notes and refusals. Everywhere on sounds made on the spot."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from recognition import registry
from records.audio import FAILURES, NOTES, REJECTIONS, WORKSPACE_PREFIX, AudioFailed, AudioRejected, Normalized, normalize
from records.audio.ogg import read_opus
from tests.audio import noise, silence, tone, write_wav
from tests.recognition.providers.whisper_engine import DEMO
from tests.records.audio.conftest import Sound, make, packets, picture
from tests.speech import read

pytestmark = pytest.mark.no_database

Run = Callable[..., tuple[Normalized, Path]]


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """A second of silence, two of sound, one of silence."""
    return write_wav(tmp_path / "speech.wav", silence(1) + tone(2) + silence(1))


# ---- form


def test_wav_becomes_mono_opus(binary: str, speech: Path, normalized: Run):
    result, target = normalized(speech)

    opus = read_opus(target)
    assert opus is not None
    assert (opus.channels, opus.duration_ms) == (1, 4000)
    assert result == Normalized(
        duration_ms=4000,
        size=target.stat().st_size,
        channels=1,
        format="ogg",
        source_format="wav",
        source_duration_ms=4000,
        notes=(),
    )
    sound = Sound(target)
    assert sound.level(1.1, 2.9) == pytest.approx(Sound(speech).level(1.1, 2.9), abs=1.5)
    assert sound.level(0.1, 0.9) < -55
    assert sound.level(3.1, 3.9) < -55


def test_source_stays_as_it_was_and_nothing_else_is_left(binary: str, speech: Path, normalized: Run):
    before = speech.read_bytes()

    _, target = normalized(speech)

    assert speech.read_bytes() == before
    assert speech.stat().st_nlink == 1
    assert list(target.parent.iterdir()) == [target]


def test_source_on_another_file_system_is_copied(binary: str, speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to read from")
    source = elsewhere / f"{tmp_path.parent.name}-{tmp_path.name}.wav"
    shutil.copy(speech, source)
    try:
        result = normalize(source, tmp_path / "target.ogg", channels="mix", max_duration_s=60, beat=lambda progress: None)
    finally:
        source.unlink()

    assert result.duration_ms == 4000


def test_silence_is_a_valid_recording(binary: str, tmp_path: Path, normalized: Run):
    result, target = normalized(write_wav(tmp_path / "silence.wav", silence(3)))

    assert (result.duration_ms, result.notes) == (3000, ())
    assert Sound(target).level(0, 3) < -80


@pytest.mark.parametrize(
    ("arguments", "suffix", "source_format"),
    [
        (("-c:a", "flac"), "flac", "flac"),
        (("-c:a", "aac"), "m4a", "mov"),
        (("-c:a", "alac"), "caf", "caf"),
        (("-c:a", "aac"), "aac", "aac"),
        (("-c:a", "pcm_s24be"), "aiff", "aiff"),
        (("-c:a", "pcm_mulaw", "-ar", "8000"), "wav", "wav"),
        (("-c:a", "wmav2"), "wma", "asf"),
        (("-c:a", "mp2"), "mpg", "mpeg"),
        (("-c:a", "vorbis", "-strict", "-2", "-ac", "2"), "ogg", "ogg"),
        (("-c:a", "libopus"), "webm", "matroska"),
        (("-c:a", "ac3"), "ac3", "ac3"),
        (("-c:a", "wavpack"), "wv", "wv"),
    ],
)
def test_plain_formats_are_accepted(
    binary: str, speech: Path, tmp_path: Path, normalized: Run, arguments: tuple[str, ...], suffix: str, source_format: str
):
    made = make(tmp_path / f"made.{suffix}", "-i", speech, *arguments)
    source = made.rename(tmp_path / "upload")  # the name must not matter

    result, target = normalized(source)

    assert result.source_format == source_format
    assert result.duration_ms == pytest.approx(4000, abs=120)
    assert set(result.notes) == set()
    sound = Sound(target)
    assert sound.level(1.3, 2.7) > -20
    assert sound.level(0.1, 0.7) < -50


# ---- channels


def test_both_speakers_are_in_the_mix(binary: str, tmp_path: Path, normalized: Run):
    source = write_wav(tmp_path / "call.wav", tone(2) + silence(2), silence(2) + tone(2, hz=700))

    result, target = normalized(source)

    sound = Sound(target)
    assert result.channels == 1
    assert sound.level(0.2, 1.8) == pytest.approx(sound.level(2.2, 3.8), abs=2)
    assert sound.level(0.2, 1.8) > -25
    assert "one_channel" not in result.notes


def test_separate_channels_stay_apart(binary: str, tmp_path: Path, normalized: Run):
    source = write_wav(tmp_path / "call.wav", tone(2) + silence(2), silence(2) + tone(2, hz=700))

    result, target = normalized(source, channels="separate")

    sound = Sound(target, channels=2)
    assert result.channels == 2
    for channel, (loud, quiet) in enumerate([((0.2, 1.8), (2.2, 3.8)), ((2.2, 3.8), (0.2, 1.8))]):
        assert sound.level(*loud, channel=channel) > -20
        assert sound.level(*quiet, channel=channel) < sound.level(*loud, channel=channel) - 25


def test_separate_leaves_mono_alone_and_mixes_more_than_two(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    surround = make(tmp_path / "surround.wav", "-i", speech, "-af", "pan=5.1|FC=c0")

    assert normalized(speech, channels="separate")[0].channels == 1
    assert normalized(surround, channels="separate")[0].channels == 1


def test_speech_in_the_center_of_six_channels_is_heard(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "surround.ac3", "-i", speech, "-ar", "48000", "-af", "aresample=48000,pan=5.1(side)|FC=c0", "-c:a", "ac3")

    _, target = normalized(source)

    assert Sound(target).level(1.2, 2.8) > Sound(speech).level(1.2, 2.8) - 9


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 33])
def test_each_of_many_microphones_is_heard(binary: str, tmp_path: Path, normalized: Run, count: int):
    seconds = [silence(0.5 * number) + tone(0.5) for number in range(count)]

    result, target = normalized(write_wav(tmp_path / "microphones.wav", *seconds))

    assert (result.channels, result.notes) == (1, ())
    assert result.duration_ms == pytest.approx(500 * count, abs=20)
    sound = Sound(target)
    for number in range(count):
        assert sound.level(0.5 * number + 0.1, 0.5 * number + 0.4) > -20, number


def test_many_microphones_that_hear_the_same_stay_below_full_scale(binary: str, tmp_path: Path, normalized: Run):
    _, target = normalized(write_wav(tmp_path / "microphones.wav", *[tone(2)] * 12))

    assert -20 < Sound(target).level(0.5, 1.8) < -1


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le", "flac"])
def test_channels_in_antiphase_do_not_cancel(binary: str, tmp_path: Path, normalized: Run, codec: str):
    sound = tone(2, hz=300)
    plain = write_wav(tmp_path / "plain.wav", sound, [-sample for sample in sound])
    source = make(tmp_path / "upload.mka", "-i", plain, "-c:a", codec)

    result, target = normalized(source)

    assert result.notes == ("one_channel",)
    assert Sound(target).level(0.2, 1.8) > -20


def test_unrelated_channels_are_not_taken_for_antiphase(binary: str, tmp_path: Path, normalized: Run):
    result, _ = normalized(write_wav(tmp_path / "noise.wav", noise(3, seed=1), noise(3, seed=2)))

    assert result.notes == ()


def _two_tracks(tmp_path: Path, first: list[int], second: list[int], *, default: int = 0) -> Path:
    sounds = [write_wav(tmp_path / f"{name}.wav", samples) for name, samples in (("first", first), ("second", second))]
    return make(
        tmp_path / "two.mka",
        *("-i", sounds[0], "-i", sounds[1], "-map", "0", "-map", "1", "-c:a", "flac"),
        *("-disposition:a", "0", f"-disposition:a:{default}", "default"),
    )


@pytest.mark.parametrize("default", [0, 1])
def test_of_tracks_that_sound_alike_the_default_one_is_used(binary: str, default: int, tmp_path: Path, normalized: Run):
    result, target = normalized(_two_tracks(tmp_path, tone(1) + silence(1), silence(1) + tone(1), default=default))

    assert result.notes == ("other_tracks", f"track_{default + 1}")
    assert Sound(target).level(0.2 + default, 0.8 + default) > -20
    assert Sound(target).level(1.2 - default, 1.8 - default) < -50


@pytest.mark.parametrize("loud", [0, 1])
def test_without_speech_the_loudest_track_is_used(binary: str, loud: int, tmp_path: Path, normalized: Run):
    sounds = [noise(2, volume=0.0008), tone(2)]
    result, target = normalized(_two_tracks(tmp_path, sounds[1 - loud], sounds[loud], default=1 - loud), listen=lambda raw, beat: 0.0)

    assert result.notes == ("other_tracks", f"track_{loud + 1}")
    assert Sound(target).level(0.2, 1.8) > -20


@pytest.mark.parametrize("seconds", [{"0": 1.0, "1": 3.0}, {"0": 3.0, "1": 1.0}, {"0": 0.2, "1": 2.9}, {"0": 2.9, "1": 3.0}])
def test_the_track_with_the_most_speech_is_used(binary: str, seconds: dict[str, float], tmp_path: Path, normalized: Run):
    heard: list[str] = []

    def listen(raw: Path, beat: Callable[[], None]) -> float:
        beat()
        heard.append(raw.name)
        assert raw.stat().st_size == pytest.approx(2 * 16_000 * 3, rel=0.01)
        return seconds[raw.name]

    result, target = normalized(_two_tracks(tmp_path, tone(3, volume=0.5), tone(3, volume=0.05)), listen=listen)

    used = 1 if seconds["1"] > 1.1 * seconds["0"] else 0  # a tie goes to the default, here the first
    spoken = ("other_speech",) if seconds[str(1 - used)] >= 0.5 else ()
    assert result.notes == ("other_tracks", *spoken, f"track_{used + 1}")
    assert (Sound(target).level(0.2, 2.8) > -20) == (used == 0)
    assert heard == ["0", "1"]


def test_a_file_of_tracks_that_is_cut_off_is_noted(binary: str, tmp_path: Path, normalized: Run):
    whole = _two_tracks(tmp_path, noise(20), noise(15, seed=2))
    cut = tmp_path / "cut.mka"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])

    assert "truncated" not in normalized(whole)[0].notes
    assert "truncated" in normalized(cut)[0].notes


def test_speech_is_preferred_to_what_is_louder(binary: str, tmp_path: Path, normalized: Run):
    speech = [int(sample * 3000) for sample in read(DEMO).samples]

    result, _ = normalized(_two_tracks(tmp_path, noise(10, volume=0.5), speech), listen=registry.seconds_of_speech)

    assert result.notes == ("other_tracks", "track_2")


def test_of_a_long_recording_parts_are_listened_to(binary: str, tmp_path: Path, normalized: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(import_module("records.audio.normalize"), "LISTEN_S", 20.0)
    heard = {}

    def listen(raw: Path, beat: Callable[[], None]) -> float:
        heard[raw.name] = raw.read_bytes()
        return 0.0

    normalized(_two_tracks(tmp_path, silence(30) + tone(30), silence(60)), listen=listen)

    assert heard.keys() == {"0"}  # digital silence needs no listening
    assert len(heard["0"]) == pytest.approx(2 * 16_000 * 20, rel=0.06)
    middle = len(heard["0"]) // 2
    assert not any(heard["0"][: middle - 16_000])
    assert any(heard["0"][middle:])


# ---- times


def test_late_sound_stays_late(binary: str, tmp_path: Path, normalized: Run):
    sound = write_wav(tmp_path / "sound.wav", tone(2))
    source = make(
        tmp_path / "late.mp4", *picture(5), "-itsoffset", "2", "-i", sound, "-map", "0", "-map", "1", "-c:v", "mpeg4", "-c:a", "aac"
    )

    result, target = normalized(source)

    assert result.duration_ms == pytest.approx(5000, abs=150)
    assert Sound(target).level(0.1, 1.9) < -50
    assert Sound(target).level(2.2, 3.8) > -20
    assert Sound(target).level(4.2, 4.9) < -50


def test_times_count_from_where_the_container_starts(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "late.webm", "-i", speech, "-c:a", "libopus", "-output_ts_offset", "3600")

    result, target = normalized(source)

    assert result.duration_ms == pytest.approx(4000, abs=50)
    assert result.notes == ()
    assert Sound(target).level(1.2, 2.8) > -20


def _two_forms(tmp_path: Path) -> Path:
    """MPEG audio that is 44.1 kHz stereo for two seconds, then 22.05 kHz mono for two."""
    sound = write_wav(tmp_path / "part.wav", tone(1) + silence(1))
    first = make(tmp_path / "first.mp2", "-i", sound, "-ar", "44100", "-ac", "2")
    second = make(tmp_path / "second.mp2", "-i", sound, "-ar", "22050", "-ac", "1")
    source = tmp_path / "two_forms.mp2"
    source.write_bytes(first.read_bytes() + second.read_bytes())
    return source


def test_sound_that_changes_its_form_goes_on(binary: str, tmp_path: Path, normalized: Run):
    result, target = normalized(_two_forms(tmp_path))

    assert result.notes == ("resampled",)
    assert result.duration_ms == pytest.approx(4000, abs=250)
    sound = Sound(target)
    for start in (0, 2):
        assert sound.level(start + 0.25, start + 0.85) > -20
        assert sound.level(start + 1.25, start + 1.85) < -50


def test_late_sound_that_changes_its_form_stays_late(binary: str, tmp_path: Path, normalized: Run):
    source = make(
        tmp_path / "late.mkv",
        *picture(7),
        *("-itsoffset", "2", "-i", str(_two_forms(tmp_path))),
        *("-map", "0", "-map", "1", "-c:v", "mpeg4", "-c:a", "copy"),
    )

    result, target = normalized(source)

    assert result.notes == ("resampled",)
    assert result.duration_ms == pytest.approx(7000, abs=150)
    assert Sound(target).level(0.1, 1.9) < -50
    for start in (2, 4):
        assert Sound(target).level(start + 0.25, start + 0.85) > -20


# ---- Opus that is kept


def test_opus_in_ogg_keeps_its_packets(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "voice.ogg", "-i", speech, "-c:a", "libopus", "-b:a", "24k", "-metadata", "title=A private matter")

    result, target = normalized(source)

    assert packets(target) == packets(source)
    assert len(packets(target)) > 190
    assert result.duration_ms == 4000
    assert b"private" in source.read_bytes()
    assert b"private" not in target.read_bytes()
    assert not target.samefile(source)


def test_stereo_opus_is_kept_only_when_channels_stay_apart(binary: str, tmp_path: Path, normalized: Run):
    wav = write_wav(tmp_path / "call.wav", tone(1), tone(1, hz=700))
    source = make(tmp_path / "call.ogg", "-i", wav, "-c:a", "libopus")

    apart, kept = normalized(source, channels="separate")
    mixed, encoded = normalized(source)

    assert (apart.channels, packets(kept)) == (2, packets(source))
    assert mixed.channels == 1
    assert packets(encoded) != packets(source)


def test_damaged_opus_is_encoded_again(binary: str, tmp_path: Path, normalized: Run):
    wav = write_wav(tmp_path / "noise.wav", noise(6, volume=0.5))
    source = make(tmp_path / "voice.ogg", "-i", wav, "-c:a", "libopus", "-b:a", "48k")
    data = bytearray(source.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = random.Random(1).randbytes(300)
    source.write_bytes(data)

    result, target = normalized(source)

    assert result.notes == ("damaged",)
    assert result.duration_ms == pytest.approx(6000, abs=50)
    assert packets(target) != packets(source)
    assert Sound(target).level(0.5, 1.5) > -20
    assert Sound(target).level(5, 5.9) > -20


def test_chained_opus_is_read_to_its_end(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    parts = [make(tmp_path / f"part{number}.ogg", "-i", speech, "-c:a", "libopus") for number in range(2)]  # serials differ
    source = tmp_path / "chained.ogg"
    source.write_bytes(b"".join(part.read_bytes() for part in parts))

    result, _ = normalized(source)

    assert result.duration_ms == pytest.approx(8000, abs=100)


# ---- what is incomplete


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff", "mka", "ogg", "wma", "avi", "caf", "w64"])
def test_cut_recording_is_used_as_far_as_it_goes(binary: str, tmp_path: Path, normalized: Run, suffix: str):
    wav = write_wav(tmp_path / "noise.wav", noise(8, volume=0.3))
    codec = {"ogg": ["-c:a", "libopus"], "mka": ["-c:a", "aac"]}.get(suffix, [])
    source = make(tmp_path / f"made.{suffix}", "-i", wav, *codec)
    data = source.read_bytes()
    source.write_bytes(data[: len(data) * 6 // 10 + 1])

    result, target = normalized(source)

    assert result.notes == ("truncated",)
    assert 3500 < result.duration_ms < 6000
    assert Sound(target).level(0.5, result.duration_ms / 1000 - 0.5) > -30


def test_index_in_front_saves_a_cut_mp4(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "made.m4a", "-i", speech, "-c:a", "aac", "-movflags", "+faststart")
    data = source.read_bytes()
    source.write_bytes(data[: len(data) * 8 // 10])

    result, _ = normalized(source)

    assert result.notes == ("truncated",)
    assert 2000 < result.duration_ms < 3800


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_mp4_without_its_index_is_refused(binary: str, tmp_path: Path, normalized: Run, share: float):
    wav = write_wav(tmp_path / "noise.wav", noise(10, volume=0.3))
    source = make(tmp_path / "made.m4a", "-i", wav, "-c:a", "aac")
    data = source.read_bytes()
    source.write_bytes(data[: int(data.index(b"moov") * share)])

    assert _code(normalized, source) == "truncated"


def _code(normalized: Run, source: Path, **options: float) -> str:
    with pytest.raises(AudioRejected) as raised:
        normalized(source, **options)
    return raised.value.code


# ---- what is refused


def test_film_without_sound(binary: str, tmp_path: Path, normalized: Run):
    assert _code(normalized, make(tmp_path / "mute.mkv", *picture(2), "-c:v", "mpeg4")) == "no_audio"


def test_wav_without_samples(binary: str, tmp_path: Path, normalized: Run):
    assert _code(normalized, write_wav(tmp_path / "empty.wav", [])) == "no_audio"


def test_noise_behind_a_good_header(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "made.m4a", "-i", speech, "-c:a", "aac", "-movflags", "+faststart")
    data = bytearray(source.read_bytes())
    start = data.index(b"mdat") + 4
    data[start:] = random.Random(2).randbytes(len(data) - start)
    source.write_bytes(data)

    assert _code(normalized, source) == "undecodable"


def test_header_alone(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = tmp_path / "header"
    source.write_bytes(speech.read_bytes()[:20])

    assert _code(normalized, source) == "undecodable"


def test_random_bytes(binary: str, tmp_path: Path, normalized: Run):
    source = tmp_path / "random"
    source.write_bytes(b"\0" + random.Random(3).randbytes(200_000))

    assert _code(normalized, source) == "not_media"


def test_length_is_measured_not_believed(binary: str, speech: Path, tmp_path: Path, normalized: Run):
    source = make(tmp_path / "made.flac", "-i", speech)
    data = bytearray(source.read_bytes())
    data[21:26] = bytes([data[21] & 0xF0 | 0x0F]) + b"\xff\xff\xff\xff"  # total samples: 50 days
    source.write_bytes(data)

    result, _ = normalized(source)

    assert result.duration_ms == 4000
    assert result.notes == ("truncated",)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "webm"])
def test_limit_on_duration(binary: str, tmp_path: Path, normalized: Run, suffix: str):
    wav = write_wav(tmp_path / "noise.wav", noise(10))
    source = make(tmp_path / f"made.{suffix}", "-i", wav, *(["-c:a", "libopus"] if suffix in ("ogg", "webm") else []))

    assert normalized(source, max_duration_s=10)[0].duration_ms == pytest.approx(10_000, abs=30)
    with pytest.raises(AudioRejected) as raised:
        normalized(source, max_duration_s=9)
    assert raised.value.code == "too_long"
    assert raised.value.message == "The recording is longer than allowed (9 s)."


NEIGHBOURS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:4.0,\n{name}\n#EXT-X-ENDLIST\n",
    "hls_behind_a_tag": "ID3\x04\0\0\0\0\0\0#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:4.0,\n{name}\n#EXT-X-ENDLIST\n",
    "hls_with_control_characters": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#\x01\n#EXTINF:4.0,\n{name}\n#EXT-X-ENDLIST\n",
    "ffconcat": "ffconcat version 1.0\nfile '{name}'\n",
    "ffconcat_with_control_characters": "ffconcat version 1.0\n#\x01\nfile '{name}'\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet><Representation id="0">'
    "<BaseURL>{name}</BaseURL></Representation></AdaptationSet></Period></MPD>\x01",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n\x01",
}


@pytest.mark.parametrize("style", ["relative", "absolute", "url"])
@pytest.mark.parametrize("text", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_nothing_but_the_upload_is_read(binary: str, speech: Path, tmp_path: Path, normalized: Run, text: str, style: str):
    """The neighbour has the one extension that HLS accepts; a control character gets the text past our own look at it."""
    neighbour = make(tmp_path / "neighbour.ts", "-i", speech, "-c:a", "mp2", "-f", "mpegts")
    name = {"relative": "neighbour.ts", "absolute": str(neighbour), "url": neighbour.as_uri()}[style]
    source = tmp_path / "upload"
    source.write_text(text.format(name=name), "utf-8")

    assert _code(normalized, source) in ("playlist", "not_media")


def test_texts_are_whole_sentences():
    for message in [*REJECTIONS.values(), *FAILURES.values()]:
        assert message[0].isupper()
        assert message.endswith(".")
    assert len(set(NOTES)) == len(NOTES)


# ---- what fails


def test_full_disk_is_the_machines_fault(binary: str, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    source = write_wav(tmp_path / "noise.wav", noise(60, volume=0.5))
    path = {"PATH": os.defpath}  # the fixture may have taken ours
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    if subprocess.run(mount, env=path, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        with pytest.raises(AudioFailed) as raised:
            normalize(source, small / "target.ogg", channels="mix", max_duration_s=100, beat=lambda progress: None)
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], env=path, check=True)
    assert raised.value.code == "disk_full"


def test_no_ffmpeg_at_all(speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from records.audio import ffmpeg_binary

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    ffmpeg_binary.cache_clear()
    try:
        with pytest.raises(AudioFailed) as raised:
            normalize(speech, tmp_path / "target.ogg", channels="mix", max_duration_s=60, beat=lambda progress: None)
    finally:
        ffmpeg_binary.cache_clear()
    assert raised.value.code == "ffmpeg_missing"


def test_progress_grows_to_one(binary: str, tmp_path: Path):
    source = write_wav(tmp_path / "noise.wav", noise(20), noise(20, seed=2), rate=48_000)
    seen: list[float | None] = []

    normalize(source, tmp_path / "target.ogg", channels="mix", max_duration_s=600, beat=seen.append)

    known = [progress for progress in seen if progress is not None]
    assert seen[0] is None
    assert known[-1] == 1
    assert known == sorted(known)
    assert all(0 <= progress <= 1 for progress in known)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_what_the_beat_raises_comes_through_and_leaves_nothing(speech: Path, tmp_path: Path, error: type[BaseException]):
    folder = tmp_path / "out"
    folder.mkdir()
    calls = 0

    def beat(progress: float | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:  # ffmpeg runs by now
            assert [entry.name[: len(WORKSPACE_PREFIX)] for entry in folder.iterdir()] == [WORKSPACE_PREFIX]
            raise error

    with pytest.raises(error):
        normalize(speech, folder / "target.ogg", channels="mix", max_duration_s=60, beat=beat)

    assert list(folder.iterdir()) == []
