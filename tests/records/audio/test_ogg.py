"""The reader of Ogg pages against files of known length, against ffprobe where there is one, and against rubbish."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from records.audio.ogg import ends_in_a_page, packet_samples, read_opus
from tests.audio import noise, tone, write_wav
from tests.records.audio.conftest import Sound, make

pytestmark = pytest.mark.no_database


@pytest.mark.parametrize("frame_ms", [2.5, 10, 20, 60])
@pytest.mark.parametrize("seconds", [0.05, 1.0, 3.21])
def test_duration_is_that_of_the_sound(tmp_path: Path, seconds: float, frame_ms: float):
    wav = write_wav(tmp_path / "sound.wav", noise(seconds))
    path = make(tmp_path / "sound.ogg", "-i", wav, "-c:a", "libopus", "-frame_duration", str(frame_ms))

    opus = read_opus(path)

    assert opus is not None
    assert opus.duration_ms == round(seconds * 1000)
    assert opus.starts_at_zero
    assert opus.channels == 1
    assert ends_in_a_page(path)


def test_duration_agrees_with_ffprobe_and_a_decoder(tmp_path: Path):
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("no ffprobe is installed")
    wav = write_wav(tmp_path / "sound.wav", noise(7.77), noise(7.77, seed=2))
    path = make(tmp_path / "sound.ogg", "-i", wav, "-c:a", "libopus")
    command = [ffprobe, "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", str(path)]
    probed = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    opus = read_opus(path)

    assert opus is not None
    assert opus.channels == 2
    assert opus.duration_ms == pytest.approx(probed * 1000, abs=8)  # ffprobe counts the encoder's delay of 6.5 ms, too
    assert opus.duration_ms == pytest.approx(len(Sound(path).channels[0]) / 16, abs=1)


def test_start_is_seen(tmp_path: Path):
    path = make(tmp_path / "whole.ogg", "-i", write_wav(tmp_path / "a.wav", tone(6)), "-c:a", "libopus")
    data = path.read_bytes()
    pages = [b"OggS" + page for page in data.split(b"OggS")[1:]]
    late = tmp_path / "late.ogg"
    late.write_bytes(b"".join(pages[:2] + pages[4:]))  # two pages of sound, of a second each, are missing in front

    opus = read_opus(late)

    assert opus is not None
    assert not opus.starts_at_zero
    assert opus.duration_ms == pytest.approx(4000, abs=15)


def test_several_streams_are_none_of_ours(tmp_path: Path):
    wav = write_wav(tmp_path / "a.wav", tone(1))
    one, two = (make(tmp_path / f"{name}.ogg", "-i", wav, "-c:a", "libopus") for name in "ab")
    chained = tmp_path / "chained.ogg"
    chained.write_bytes(one.read_bytes() + two.read_bytes())
    side_by_side = make(tmp_path / "both.ogg", "-i", one, "-i", two, "-map", "0", "-map", "1", "-c", "copy")

    assert read_opus(chained) is None
    assert read_opus(side_by_side) is None


def test_other_codecs_and_rubbish_are_none_of_ours(tmp_path: Path):
    wav = write_wav(tmp_path / "a.wav", tone(1))
    flac = make(tmp_path / "a.oga", "-i", wav, "-c:a", "flac")
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"OggS" + bytes(range(256)))

    for path in (wav, flac, rubbish):
        assert read_opus(path) is None
    assert not ends_in_a_page(rubbish)


def test_half_page_at_the_end_is_seen(tmp_path: Path):
    path = make(tmp_path / "a.ogg", "-i", write_wav(tmp_path / "a.wav", noise(5)), "-c:a", "libopus")
    cut = tmp_path / "cut.ogg"
    cut.write_bytes(path.read_bytes()[:-100])

    opus = read_opus(cut)

    assert not ends_in_a_page(cut)
    assert opus is not None
    assert 3500 < opus.duration_ms < 5000


@pytest.mark.parametrize(
    ("packet", "samples"),
    [
        (b"", 0),
        (bytes([0 << 3]), 480),  # SILK, 10 ms
        (bytes([3 << 3]), 2880),  # SILK, 60 ms
        (bytes([13 << 3]), 960),  # hybrid, 20 ms
        (bytes([16 << 3]), 120),  # CELT, 2.5 ms
        (bytes([31 << 3 | 1]), 1920),  # CELT, two of 20 ms
        (bytes([31 << 3 | 2]), 1920),
        (bytes([31 << 3 | 3, 6]), 5760),  # any number: here six
        (bytes([31 << 3 | 3]), 0),
    ],
)
def test_length_of_a_packet(packet: bytes, samples: int):
    assert packet_samples(packet) == samples
