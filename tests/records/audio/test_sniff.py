"""What the first look at an upload says, without ffmpeg."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from records.audio import AudioRejected
from records.audio.sniff import sniff
from tests.audio import tone, write_wav
from tests.records.audio.conftest import make

pytestmark = pytest.mark.no_database

ID3 = b"ID3\x03\0\0\0\0\0\x14" + b"TIT2\0\0\0\x0a\0\0\0Anything!"


def _refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "upload"
    path.write_bytes(data)
    with pytest.raises(AudioRejected) as raised:
        sniff(path)
    return raised.value.code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        ("Протокол встречи.\n".encode(), "not_media"),
        ("Протокол встречи.\n".encode("cp1251"), "not_media"),
        ("Протокол встречи.\n".encode("utf-16"), "not_media"),
        (b"<!doctype html><html><body>404</body></html>", "not_media"),
        (b'{"error": "not found"}', "not_media"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nHello\n", "not_media"),
        (b"PK\x03\x04" + bytes(100), "not_media"),
        (b"%PDF-1.7\n" + bytes(100), "not_media"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not_media"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + bytes(100), "not_media"),
        (b"\0\0\0\x18ftypheic" + bytes(100), "not_media"),
        (b"#EXTM3U\nhttp://127.0.0.1/a.mp3\n", "playlist"),
        (b"\xef\xbb\xbf\r\n  #EXTM3U\n", "playlist"),
        ("#EXTM3U\n".encode("utf-16"), "playlist"),
        (ID3 + b"#EXTM3U\nother.mp3\n", "playlist"),
        (b"ffconcat version 1.0\nfile other.wav\n", "playlist"),
        (b"file '/srv/other.wav'\n", "playlist"),
        (b"[playlist]\nFile1=other.mp3\n", "playlist"),
        (b"http://127.0.0.1:9/a\nhttps://example.org/b\n", "playlist"),
        (b"/srv/media/other.mp3\nC:\\other.wav\n", "playlist"),
        (b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", "playlist"),
        (b'<?xml version="1.0"?>\n<playlist version="1"><trackList/></playlist>', "playlist"),
        (b'<?xml version="1.0"?>\n<MPD type="static"></MPD>', "playlist"),
        (b"<asx version='3.0'><entry/></asx>", "playlist"),
        (ID3[:6] + b"\0\0\x7f\x7f" + b"TIT2", "truncated"),
        (b"\0\0\0\x10ftypM4A \0\0\0\0" + struct.pack(">I4s", 5000, b"mdat") + bytes(100), "truncated"),
        (b"\0\0\0\x10ftypM4A \0\0\0\0" + struct.pack(">I4s", 108, b"mdat") + bytes(100), "truncated"),
    ],
)
def test_plain_refusals(tmp_path: Path, data: bytes, code: str):
    assert _refusal(tmp_path, data) == code


@pytest.mark.parametrize("entry", [b"drms", b"enca", b"aavd"])
def test_protected_sound_is_named(tmp_path: Path, entry: bytes):
    data = make(tmp_path / "a.m4a", "-i", write_wav(tmp_path / "a.wav", tone(1)), "-c:a", "aac").read_bytes()
    at = data.index(b"mp4a", data.index(b"stsd"))

    assert _refusal(tmp_path, data[:at] + entry + data[at + 4 :]) == "encrypted"


def test_recordings_pass(tmp_path: Path):
    wav = write_wav(tmp_path / "a.wav", tone(1))
    for suffix, codec in [("flac", "flac"), ("m4a", "aac"), ("ogg", "libopus"), ("mka", "aac"), ("wma", "wmav2"), ("aiff", "pcm_s16be")]:
        sniffed = sniff(make(tmp_path / f"a.{suffix}", "-i", wav, "-c:a", codec))
        assert sniffed.is_media
        assert not sniffed.is_cut
    assert not sniff(wav).is_cut


def test_unknown_bytes_are_left_to_ffmpeg(tmp_path: Path):
    path = tmp_path / "upload"
    path.write_bytes(random.Random(1).randbytes(5000))

    assert not sniff(path).is_media


@pytest.mark.parametrize(("claimed", "is_cut"), [(2000, False), (2001, True), (0, False), (0xFFFF_FFFF, False), (0x7FFF_FFFF, False)])
def test_wav_is_cut_when_its_sound_is_shorter_than_said(tmp_path: Path, claimed: int, is_cut: bool):
    data = write_wav(tmp_path / "a.wav", [0] * 1000).read_bytes()
    path = tmp_path / "upload"
    path.write_bytes(data.replace(b"data" + struct.pack("<I", 2000), b"data" + struct.pack("<I", claimed)))

    assert sniff(path).is_cut is is_cut
