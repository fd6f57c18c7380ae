"""What the bytes of an upload say about it before ffmpeg is started: a clear answer for what is plainly no recording.

Everything here is a shortcut to a better sentence. What is let through is still opened by ffmpeg with a list of plain media
formats, so that a playlist which this module does not know is refused all the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from records.audio.errors import AudioRejected
from records.audio.ogg import ends_in_a_page

HEAD = 64 * 1024
MOOV_MAX = 64 * 1024 * 1024

NOT_MEDIA = (
    b"%PDF",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\0",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
    b"\x28\xb5\x2f\xfd",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"\x7fELF",
    b"MZ",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    b"SQLite format 3\0",
    b"MThd",
    b"{\\rtf",
)
MEDIA = (
    b"RIFF",
    b"RF64",
    b"fLaC",
    b"\x1aE\xdf\xa3",
    b"ID3",
    b"FORM",
    b"caff",
    b"#!AMR",
    b"FLV",
    b".snd",
    b"wvpk",
    b"TTA1",
    b"MAC ",
)
ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
ASF_ENCRYPTION = (
    bytes.fromhex("fbb3112223bdd211b4b700a0c955fc6e"),  # content encryption
    bytes.fromhex("14e68a292226174cb935dae07ee9289c"),  # extended content encryption
)
STILL_BRANDS = (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis")
# Sample entries of protected sound: iTunes, common encryption, Audible.
PROTECTED = (b"drms", b"enca", b"aavd")
PLACEHOLDER = 0x7FFF_0000  # sizes in RIFF from here on mean "was not known when the header was written"

# The first line that is not blank, in lower case.
PLAYLIST = re.compile(rb"#ext|\[playlist\]|\[reference\]|ffconcat|file +['\"]|v=0\s|rtsptext|smiltext")
XML_PLAYLIST = re.compile(rb"<(playlist|smil|mpd|asx|smoothstreamingmedia)[\s>]")
ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]*://.+|.*\.(?:mp3|m4a|mp4|aac|ogg|opus|oga|wav|flac|m3u8?|ts|webm|mkv|wma)(?:\?.*)?")


@dataclass(frozen=True)
class Sniffed:
    """`is_media`: it begins like a format we know. `is_cut`: by its own account more should follow than there is."""

    is_media: bool
    is_cut: bool


def sniff(path: Path) -> Sniffed:
    """Look at the bytes.

    Raises AudioRejected (empty, not_media, playlist, truncated, encrypted) where they leave no doubt.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            raise AudioRejected("empty")
        file.seek(0)
        head = file.read(HEAD)
        if head.startswith(ASF):
            return _asf(head, size)
        if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"styp", b"moof"):
            return _mp4(file, head, size)
        if head.startswith(b"RIFF"):
            if head[8:12] == b"WEBP":
                raise AudioRejected("not_media")
            return Sniffed(is_media=True, is_cut=_riff_is_cut(file, size))
        tag = _id3_size(head)
        if tag > size:
            raise AudioRejected("truncated")
        if tag:
            file.seek(tag)
            _text(file.read(HEAD))
        if head.startswith(b"OggS"):
            return Sniffed(is_media=True, is_cut=not ends_in_a_page(path))
        if head.startswith(MEDIA):
            return Sniffed(is_media=True, is_cut=False)
        if head.startswith(NOT_MEDIA):
            raise AudioRejected("not_media")
        _text(head)
        # MPEG audio and ADTS have a sync word only, which anything may start with
        return Sniffed(is_media=False, is_cut=False)


def _text(head: bytes) -> None:
    """Refuse text: no sound worth the name does without control characters."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if head.startswith(mark):
            decoded = head[2 : len(head) // 2 * 2].decode(encoding, errors="replace")
            if not decoded or sum(c.isprintable() or c.isspace() for c in decoded) < 0.9 * len(decoded):
                return
            head = decoded.encode()
    if not head or any(c < 0x20 and c not in b"\t\n\v\f\r\x1a\x1b" for c in head):
        return
    text = head.removeprefix(b"\xef\xbb\xbf").strip().lower()
    lines = [line.strip() for line in text.splitlines()[:100]]
    lines = [line for line in lines if line and not line.startswith(b"#ext") and not line.startswith(b"#playlist")]
    is_list = PLAYLIST.match(text) or XML_PLAYLIST.search(text[:4096]) or (lines and all(ADDRESS.fullmatch(line) for line in lines))
    raise AudioRejected("playlist" if is_list else "not_media")


def _id3_size(head: bytes) -> int:
    """Length of the ID3v2 tag in front; 0 without one."""
    if not head.startswith(b"ID3") or len(head) < 10:
        return 0
    a, b, c, d = head[6:10]
    return 10 + ((a & 127) << 21 | (b & 127) << 14 | (c & 127) << 7 | d & 127)


def _riff_is_cut(file: BinaryIO, size: int) -> bool:
    """WAV and AVI: the chunk with the sound (WAV: data, AVI: the outermost one) claims more bytes than there are."""
    file.seek(0)
    _, total, kind = struct.unpack("<4sI4s", file.read(12).ljust(12, b"\0"))
    if kind != b"WAVE":
        return 0 < int(total) < PLACEHOLDER and int(total) + 8 > size
    at = 12
    for _ in range(1000):
        file.seek(at)
        header = file.read(8)
        if len(header) < 8:
            break
        name, length = struct.unpack("<4sI", header)
        if name == b"data":
            return int(length) < PLACEHOLDER and at + 8 + int(length) > size
        at += 8 + length + (length & 1)
    return True  # ended before the sound


def _asf(head: bytes, size: int) -> Sniffed:
    if any(guid in head for guid in ASF_ENCRYPTION):
        raise AudioRejected("encrypted")
    at = head.find(ASF_FILE_PROPERTIES)
    is_cut = False
    if at >= 0 and len(head) >= at + 92:
        (claimed,) = struct.unpack_from("<Q", head, at + 40)
        (flags,) = struct.unpack_from("<I", head, at + 88)
        is_cut = not flags & 1 and claimed > size  # bit 0: broadcast, sizes mean nothing
    return Sniffed(is_media=True, is_cut=is_cut)


def _mp4(file: BinaryIO, head: bytes, size: int) -> Sniffed:
    """MP4 and QuickTime: refuse still pictures, files without an index, and protected sound."""
    if head[4:8] == b"ftyp" and head[8:12] in STILL_BRANDS:
        raise AudioRejected("not_media")
    is_cut = has_index = has_sound_data = False
    for kind, body, end in _boxes(file, size):
        is_cut = is_cut or end > size
        if kind == b"moov" and end <= size:
            has_index = True
            file.seek(body)
            _refuse_protected(file.read(min(end - body, MOOV_MAX)))
        has_sound_data = has_sound_data or kind in (b"mdat", b"moof")
    if not has_index and (is_cut or has_sound_data):
        raise AudioRejected("truncated")
    return Sniffed(is_media=True, is_cut=is_cut)


def _boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Top-level boxes: kind, offset of the body, end as claimed (which may lie beyond the file)."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        header = file.read(16)
        length, kind = struct.unpack(">I4s", header[:8])
        body = at + 8
        if length == 1 and len(header) == 16:
            (length,) = struct.unpack(">Q", header[8:])
            body = at + 16
        elif length == 0:
            length = size - at
        if length < body - at:
            return
        yield kind, body, at + length
        at += length


def _refuse_protected(index: bytes) -> None:
    at = index.find(b"stsd")
    while at >= 0:
        if index[at + 16 : at + 20] in PROTECTED:
            raise AudioRejected("encrypted")
        at = index.find(b"stsd", at + 4)
