"""ffmpeg itself: which binary, the arguments that every run shares, and what its messages mean."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import imageio_ffmpeg

from records.audio import child
from records.audio.errors import AudioFailed, AudioRejected

SOURCE = "source"  # the neutral name under which the recording lies alone in the folder where ffmpeg works

# Demuxers that read one plain file of sound or film. Never here: hls, dash, concat, sdp and whatever else opens other files
# or addresses; pictures; subtitles; raw formats that anything may pass for. Unknown names do no harm to a binary without them.
FORMATS = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,asf_o,au,avi,caf,dhav,dsf,dss,dts,dtshd,dv,eac3,flac,flv,gxf,iff,ircam,loas,matroska,webm,"
    "mlp,mov,mp4,m4a,3gp,3g2,mj2,mp3,mpc,mpc8,mpeg,mpegts,mxf,nistsphere,nut,ogg,oma,qcp,rm,sox,tak,truehd,tta,voc,w64,wav,wsd,wtv,wv,xwma"
)
INPUT = (
    # no network, no second file
    *("-protocol_whitelist", "file", "-format_whitelist", FORMATS),
    # how far it looks for streams, and how many it bears with
    *("-probesize", "50M", "-analyzeduration", "30M", "-max_streams", "100"),
    # six channels of which the file says nothing are six microphones, not a film's: ffmpeg would take the fourth for the bass, and leave it out
    *("-guess_layout_max", "2"),
    *("-threads", "1", "-i", f"file:{SOURCE}"),
)
STOPPED = 255  # exit status after a signal that ffmpeg handles itself
NO_EXTRAS = ("-vn", "-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1")


@lru_cache(maxsize=1)
def ffmpeg_binary() -> str:
    """Path of the ffmpeg to use: the system's where it starts and has libopus, else the wheel's. Raises AudioFailed(ffmpeg_missing)."""
    system = shutil.which("ffmpeg")
    if system is not None and _has_opus(system):
        return str(Path(system).absolute())
    try:
        wheel = str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:
        wheel = ""
    if not wheel or not _has_opus(wheel):
        raise AudioFailed("ffmpeg_missing")
    return wheel


def _has_opus(binary: str) -> bool:
    try:
        listing = subprocess.run(
            [binary, "-hide_banner", "-nostdin", "-encoders"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listing.returncode == 0 and b" libopus " in listing.stdout


@dataclass(frozen=True)
class AudioTrack:
    """One sound track as announced; `codec` is "none" where this ffmpeg has no decoder."""

    codec: str
    channels: int  # 1, 2, or 3 for any number above
    unplaced: int = 0  # how many there are, where nobody knows what stands where; 0: that is known, or there are two at most
    is_default: bool = False  # the file says that a player should take this one


@dataclass
class Level:
    """Loudness over everything that passed one point of the filters."""

    samples: int = 0
    power: float = 0.0  # summed over samples, full scale = 1

    @property
    def mean(self) -> float:
        return self.power / self.samples if self.samples else 0.0


STREAM = re.compile(r"  Stream #0:\d+\S*: (Audio|Video): (.*)")
DURATION = re.compile(r"  Duration: (\d+):(\d\d):(\d\d\.\d+)(?:, start: (\d+\.\d+))?")
DECODED = re.compile(r"Input stream #0:\d+ \(audio\): (\d+) packets read .*?; (\d+) frames decoded(?:; (\d+) decode errors)?")
LEVEL = re.compile(r"\[volumedetect@(\w+) @ .*\] \[info\] (n_samples|mean_volume): (-?[\d.]+)")
ONE = re.compile(r", (mono|1 channels)\b")
UNPLACED = re.compile(r", (\d+) channels\b")
TWO = re.compile(r", (stereo|downmix|2 channels)\b")
LINE = re.compile(r"(?:\[(?P<who>[^\]]*) @ [^\]]*\] )*\[(?P<level>fatal|error|warning|info|verbose)\] (?P<text>.*)")
CUT = (": partial file", "File ended prematurely", "filesize and duration do not match", "Packet corrupt (")


@dataclass
class Report:
    """What one run said, picked from its lines as they come. The lines themselves are not kept: there may be millions."""

    source_format: str = ""  # demuxer's name, empty until the input was opened
    tracks: list[AudioTrack] = field(default_factory=list)
    has_video: bool = False  # attached pictures are not video
    announced_s: float = 0.0  # the header's word; 0 where it has none or ffmpeg guessed
    end_s: float = 0.0  # how far the output got
    packets: int = 0
    frames: int = 0
    decode_errors: int = 0
    has_complained: bool = False
    other_errors: int = 0  # complaints after the work had begun, beside those about decoding
    is_cut: bool = False
    levels: dict[str, list[Level]] = field(default_factory=dict)  # by meter: one for each time the sound changed its form
    is_foreign: bool = False  # a format that is not on our list
    has_no_index: bool = False
    is_disk_full: bool = False
    is_out_of_memory: bool = False
    is_out_of_time: bool = False
    _is_working: bool = False
    _is_guess: bool = False

    def read_progress(self, line: str) -> None:
        name, _, value = line.partition("=")
        if name == "out_time_us" and value.lstrip("-").isdigit():
            self.end_s = max(self.end_s, int(value) / 1_000_000)

    def read_message(self, line: str) -> None:
        if found := LEVEL.match(line):
            self._read_level(*found.groups())
        elif found := LINE.match(line):
            self._read_line(found["level"], found["text"])

    def _read_level(self, meter: str, name: str, value: str) -> None:
        parts = self.levels.setdefault(meter, [])
        if name == "n_samples":
            if int(value):
                parts.append(Level(samples=int(value)))
        elif parts:
            parts[-1].power = parts[-1].samples * 10 ** (float(value) / 10)

    def _read_line(self, level: str, text: str) -> None:
        self.is_out_of_time = self.is_out_of_time or f"received signal {int(signal.SIGXCPU)}" in text
        if level == "info":
            if not self._is_working:
                self._read_description(text)
        elif level == "verbose":
            if found := DECODED.search(text):
                self.packets, self.frames = int(found[1]), int(found[2])
                self.decode_errors = max(self.decode_errors, int(found[3] or 0))
        else:
            self._read_complaint(level, text)

    def _read_description(self, text: str) -> None:
        if text.startswith("Input #0, "):
            self.source_format = text[len("Input #0, ") :].split(", from ")[0].split(",")[0]
        elif text.startswith(("Output #", "Stream mapping:")):
            self._is_working = True
        elif found := DURATION.match(text):
            hours, minutes, seconds, start = found.groups("0")
            if not self._is_guess:  # some containers count from zero, some from their start; the smaller is the safer
                self.announced_s = max(0.0, int(hours) * 3600 + int(minutes) * 60 + float(seconds) - float(start))
        elif found := STREAM.match(text):
            kind, description = found.groups()
            if kind == "Video":
                self.has_video = self.has_video or "(attached pic)" not in description
            else:
                channels = 1 if ONE.search(description) else 2 if TWO.search(description) else 3
                unplaced = UNPLACED.search(description) if channels > 2 else None
                codec = re.split(r"[ ,]", description)[0]
                self.tracks.append(AudioTrack(codec, channels, int(unplaced[1]) if unplaced else 0, "(default)" in description))

    def _read_complaint(self, level: str, text: str) -> None:
        self.has_complained = self.has_complained or level != "warning"
        if "Error while decoding stream" in text or "Error submitting packet to decoder" in text:
            self.decode_errors += 1
        elif level != "warning" and self._is_working:
            self.other_errors += 1
        self._is_guess = self._is_guess or text.startswith("Estimating duration from bitrate")
        self.is_cut = self.is_cut or any(sign in text for sign in CUT)
        self.is_foreign = self.is_foreign or "Format not on whitelist" in text
        self.has_no_index = self.has_no_index or "moov atom not found" in text
        self.is_disk_full = self.is_disk_full or "No space left on device" in text or "Disk quota exceeded" in text
        self.is_out_of_memory = self.is_out_of_memory or "Cannot allocate memory" in text


def run(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    folder: Path,
    limits: child.Limits,
    beat: Callable[[Report], None],
) -> tuple[Report, int]:
    """Run ffmpeg in `folder` and return what it said and its exit status, which proves nothing by itself.

    `beat` gets the report as it stands at least every half second; what it raises ends ffmpeg and comes through. Raises
    AudioFailed where the machine and not the recording was the reason, AudioRejected(too_large) past `limits.file_bytes`.
    """
    report = Report()
    command = [
        ffmpeg_binary(),
        *("-hide_banner", "-nostdin", "-nostats", "-y", "-loglevel", "repeat+level+verbose"),
        *("-progress", "pipe:1", "-stats_period", "0.2", "-max_error_rate", "1"),
        *(os.fspath(argument) for argument in arguments),
    ]
    status = child.run(
        command,
        cwd=folder,
        limits=limits,
        on_output=report.read_progress,
        on_message=report.read_message,
        beat=lambda: beat(report),
    )
    if report.is_disk_full:
        raise AudioFailed("disk_full")
    if report.is_out_of_memory:
        raise AudioFailed("out_of_memory")
    if report.is_out_of_time or status == -signal.SIGXCPU:
        raise AudioFailed("timeout")
    if status == -signal.SIGXFSZ:
        raise AudioRejected("too_large")
    if status < 0 or status == STOPPED:
        raise AudioFailed("crashed")
    return report, status
