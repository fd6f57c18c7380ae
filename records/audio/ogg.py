"""Read the pages of an Ogg file: what is in it, and how long the Opus in it really plays.

Only page headers and the few packets that matter are read, so that an hour takes milliseconds. Sources: RFC 3533 (Ogg),
RFC 7845 (Opus in Ogg), RFC 6716 section 3 (Opus packets).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

OPUS_RATE = 48000  # granule positions of Opus count at this rate, whatever was recorded
NO_GRANULE = 0xFFFF_FFFF_FFFF_FFFF  # no packet ends on the page
HEADER = struct.Struct("<4sBBQIIIB")
CONTINUED, FIRST, LAST = 1, 2, 4


@dataclass(frozen=True)
class Page:
    """`at` is the offset of its body; `lacing` gives the lengths of the pieces in it."""

    flags: int
    granule: int
    serial: int
    at: int
    lacing: bytes

    @property
    def size(self) -> int:
        return sum(self.lacing)


@dataclass(frozen=True)
class OpusInOgg:
    """What an Ogg file with exactly one stream, of Opus, holds. `duration_ms` is what a player shows."""

    channels: int
    mapping_family: int
    duration_ms: int
    starts_at_zero: bool


def read_opus(path: Path) -> OpusInOgg | None:
    """None for anything else: another format or codec, several streams side by side or one after the other."""
    with path.open("rb") as file:
        pages = _pages(file)
        first = next(pages, None)
        if first is None or not first.flags & FIRST:
            return None
        head = _body(file, first)
        if head[:8] != b"OpusHead" or len(head) < 19:
            return None
        channels, pre_skip, family = head[9], int.from_bytes(head[10:12], "little"), head[18]
        start: int | None = None
        last_granule = 0
        headers_left = 1  # the comment packet, which may span pages
        for page in pages:
            if page.serial != first.serial or page.flags & FIRST:
                return None
            if headers_left:
                if page.lacing and page.lacing[-1] < 255:
                    headers_left = 0
                continue
            if page.granule == NO_GRANULE:
                continue
            if start is None:
                start = page.granule - _samples(file, page)
                if page.flags & LAST:  # a single page ends early to cut the padding of its last packet
                    start = max(start, 0)
            last_granule = max(last_granule, page.granule)
    samples = last_granule - max(start or 0, 0) - pre_skip
    return OpusInOgg(
        channels=channels,
        mapping_family=family,
        duration_ms=max(0, round(samples * 1000 / OPUS_RATE)),
        starts_at_zero=start is not None and start <= 0,
    )


def ends_in_a_page(path: Path) -> bool:
    """Whether pages follow one another to the very end: nothing between them, and no half page as after a cut."""
    end = 0
    with path.open("rb") as file:
        for page in _pages(file):
            end = page.at + page.size
    return end == path.stat().st_size


def _pages(file: BinaryIO) -> Iterator[Page]:
    """The whole pages from the start of the file, up to the first thing that is none."""
    size = file.seek(0, 2)
    at = 0
    while True:
        file.seek(at)
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        magic, version, flags, granule, serial, _number, _crc, count = HEADER.unpack(header)
        lacing = file.read(count)
        if magic != b"OggS" or version != 0 or len(lacing) < count:
            return
        page = Page(flags, granule, serial, at + HEADER.size + count, lacing)
        at = page.at + page.size
        if at > size:
            return
        yield page


def _body(file: BinaryIO, page: Page) -> bytes:
    file.seek(page.at)
    return file.read(page.size)


def _samples(file: BinaryIO, page: Page) -> int:
    """How much the packets that end on this page play, in samples."""
    body = _body(file, page)
    total = at = begun = 0
    for piece in page.lacing:
        at += piece
        if piece < 255:
            total += packet_samples(body[begun:at])
            begun = at
    return total


def packet_samples(packet: bytes) -> int:
    """How long one Opus packet plays, in samples at 48 kHz; 0 for an empty one."""
    if not packet:
        return 0
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:  # SILK
        frame = (480, 960, 1920, 2880)[config & 3]
    elif config < 16:  # hybrid
        frame = (480, 960)[config & 1]
    else:  # CELT
        frame = (120, 240, 480, 960)[config & 3]
    if code == 3:
        return frame * (packet[1] & 63) if len(packet) > 1 else 0
    return frame * (1 if code == 0 else 2)
