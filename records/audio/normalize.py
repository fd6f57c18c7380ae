"""Turn whatever was uploaded into Ogg/Opus at 48 kHz whose times are those of the original.

Two runs of ffmpeg in the ordinary case: one that opens the file and walks through its packets without decoding (what is it, how
long is it really), one that decodes once and encodes once, measuring loudness on the way. A further run is needed only
where the first result turns out to be wrong: channels that cancel each other, or sound that changes its form in the middle.

Time zero is where the container begins, so that a late sound track is preceded by silence, and an early end of the sound in a film
is followed by it.

Of several sound tracks the one is used that holds the most speech, and where none holds any, the loudest: a screen recorder's first track is
often a desktop on which nothing was played. Where two have as much, it is the one marked as default, then the first. To find out takes one
more run, and only where there are several that this ffmpeg can decode.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from records.audio import child, ffmpeg
from records.audio.errors import AudioFailed, AudioRejected
from records.audio.ffmpeg import AudioTrack, Report
from records.audio.ogg import read_opus
from records.audio.sniff import Sniffed, sniff

# Notes on a recording that was accepted.
TRUNCATED = "truncated"  # the file ends before it should; what there is was used
DAMAGED = "damaged"  # some of the sound could not be decoded and is missing
RESAMPLED = "resampled"  # sampling rate or channels change in the middle and were brought to one form
ONE_CHANNEL = "one_channel"  # the two channels cancel each other, so the first was used alone
OTHER_TRACKS = "other_tracks"  # there are more sound tracks; only one was used
OTHER_SPEECH = "other_speech"  # another of them holds speech as well
NOTES = (TRUNCATED, DAMAGED, RESAMPLED, ONE_CHANNEL, OTHER_TRACKS, OTHER_SPEECH)
TRACK = "track_{}"  # which of several was used, counted from one; the last note

WORKSPACE_PREFIX = ".audio-"  # of the folder made beside the target; one left by a killed worker may be swept
BITRATE = {1: "32k", 2: "48k"}
BYTES_PER_S = 32_000  # far above what these bit rates can give
LOSSLESS_BYTES_PER_S = 48_000 * 2 * 2 + 8_000
OVERRUN_S = 60.0  # so far past the limit ffmpeg goes before it stops by itself: reaching the limit must be seen, and a packet may last 10 s
TOLERANCE_S = 0.1
# A mix of two channels is 0 dB (same sound) to 3 dB (unrelated sounds) quieter than they are on average; more means they cancel.
CANCELLATION = 10 ** (-9 / 10)
WHOLE, MIXED = "whole", "mixed"  # names of the two meters among the filters
INAUDIBLE = 10 ** (-70 / 10)
CUT_ERRORS = 3  # complaints that a mere cut brings: half a packet, and what follows from it
LAST_PACKET_S = 0.25
LISTEN_S = 20 * 60.0  # so much of each of several tracks is listened to, all of it together no more than three times that
EAR_RATE = 16_000  # Hz, of the raw sound that is listened to
PART_S = 10.0  # in parts of this length, spread over a longer recording
SPEECH_S = 0.5  # less is none: a click, a cough
SAME_SPEECH = 0.95  # a film's languages: each a little more or less, and the one to take is the default
SAME_LEVEL = 10 ** (-3 / 10)
UNTOLD = ("wav", "mpegts")  # ffmpeg calls streamed WAV corrupt (we looked ourselves), and broadcasts begin and end anywhere
COPY_CHUNK = 4 * 1024 * 1024

Beat = Callable[[float | None], None]
Listen = Callable[[Path, Callable[[], None]], float]
"""Seconds of speech in a file of raw 16-bit samples, one channel at 16 kHz. Calls its second argument at least every half second."""


@dataclass(frozen=True)
class Normalized:
    """What came out, measured on the file itself; durations in milliseconds, `size` in bytes.

    `source_format` is a short name of what the original is (mp3, wav, mov, matroska, ogg, …), `source_duration_ms` how long
    its packets say it is, `notes` codes from `NOTES`.
    """

    duration_ms: int
    size: int
    channels: int
    format: str
    source_format: str
    source_duration_ms: int
    notes: tuple[str, ...]


def time_budget(*, duration_s: float, size: int) -> float:
    """Most seconds that normalizing may take: a slow machine's pace, with room; a hang is what it is meant to catch."""
    return 120 + duration_s / 2 + size / 2_000_000


def normalize(
    source: Path,
    target: Path,
    *,
    channels: Literal["mix", "separate"],
    max_duration_s: float,
    beat: Beat,
    listen: Listen | None = None,
) -> Normalized:
    """Write the normalized copy of `source` to `target`, which appears whole or not at all.

    "mix" gives one channel; "separate" keeps two apart, and mixes where there are more. Opus in Ogg that already has this form
    and decodes without an error keeps its packets.

    `listen` tells how much speech there is, where there are several tracks to choose from; without it the loudest is used. `beat` is called at least every half second with the progress (0..1, None while unknown); whatever it raises, BaseException
    included, ends the work at once and comes through. Raises AudioRejected or AudioFailed.
    """
    sniffed = sniff(source)
    beat(None)
    try:
        with tempfile.TemporaryDirectory(prefix=WORKSPACE_PREFIX, dir=target.parent, ignore_cleanup_errors=True) as folder:
            job = _Job(Path(folder), sniffed, channels == "separate", max_duration_s, beat, listen)
            job.take_in(source)
            result = job.work()
            beat(1.0)
            with job.made.open("rb") as file:
                os.fsync(file.fileno())
            job.made.replace(target)
        return result
    except OSError as error:
        target.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise AudioFailed("disk_full") from error
        raise
    except BaseException:
        target.unlink(missing_ok=True)
        raise


class _Job:
    """One recording on its way, in a folder of its own."""

    def __init__(self, folder: Path, sniffed: Sniffed, separate: bool, max_duration_s: float, beat: Beat, listen: Listen | None) -> None:
        self.source = folder / "in" / ffmpeg.SOURCE
        self.made = folder / "made"
        self.sniffed = sniffed
        self.separate = separate
        self.max_duration_s = max_duration_s
        self.beat = beat
        self.listen = listen
        self.notes: set[str] = set()
        self.progress = 0.0
        self.deadline = 0.0
        self.errors = 0
        # Found out by _examine:
        self.number = 0  # of the sound track to use, among the sound tracks
        self.track = AudioTrack(codec="none", channels=1)
        self.taken: tuple[str, ...] = ()
        self.total_s = 0.0
        self.reached_s = 0.0  # the end of the longest track: a header tells the length of the whole
        self.announced_s = 0.0
        self.has_video = False
        self.is_cut = False
        # Set by _unify:
        self.is_unified = False

    def take_in(self, source: Path) -> None:
        """Lay the recording alone into a folder, under a name that means nothing."""
        self.source.parent.mkdir(mode=0o700)
        try:
            os.link(source.resolve(), self.source)
        except OSError:  # another file system, or one without hard links
            last_beat = time.monotonic()
            with source.open("rb") as original, self.source.open("wb") as copy:
                while chunk := original.read(COPY_CHUNK):
                    copy.write(chunk)
                    if time.monotonic() - last_beat > child.BEAT_EVERY_S:
                        self.beat(None)
                        last_beat = time.monotonic()
        self.size = self.source.stat().st_size
        self.deadline = time.monotonic() + time_budget(duration_s=0, size=self.size)

    def work(self) -> Normalized:
        source_format = self._examine()
        if not (source_format == "ogg" and self._keep()):
            self._encode()
        opus = read_opus(self.made)
        if opus is None or not opus.duration_ms:
            raise AudioRejected("no_audio")
        if opus.duration_ms > (self.max_duration_s + TOLERANCE_S) * 1000:
            raise self._too_long()
        self._judge(source_format, opus.duration_ms / 1000)
        return Normalized(
            duration_ms=opus.duration_ms,
            size=self.made.stat().st_size,
            channels=opus.channels,
            format="ogg",
            source_format=source_format,
            source_duration_ms=round(self.total_s * 1000),
            notes=(*(note for note in NOTES if note in self.notes), *self.taken),
        )

    def _examine(self) -> str:
        """Open the recording, walk through its packets, choose the sound track; returns the name of its format."""
        report = self._walk(0, with_video=True)
        if not report.tracks:
            raise AudioRejected("no_audio")
        decodable = [number for number, track in enumerate(report.tracks) if track.codec != "none"]
        if not decodable:
            raise AudioRejected("undecodable")
        self.number = decodable[0] if len(decodable) == 1 else self._choose(decodable, report)
        self.track = report.tracks[self.number]
        self.total_s, self.has_video = report.end_s, report.has_video
        if self.number or not self.total_s:  # that was another track, or there was no getting along with the video
            self.total_s = self._walk(self.number, with_video=self.total_s > 0).end_s
        if self.total_s > self.max_duration_s + TOLERANCE_S:
            raise self._too_long()
        if len(report.tracks) > 1:
            self.notes.add(OTHER_TRACKS)
            self.taken = (TRACK.format(self.number + 1),)
        self.reached_s = max(self.reached_s, report.end_s)
        if 0 < report.announced_s - self.total_s < LAST_PACKET_S:  # older versions report where the last packet begins
            self.total_s = report.announced_s
        self.announced_s = report.announced_s
        self.is_cut = self.sniffed.is_cut or (report.is_cut and report.source_format not in UNTOLD)
        self.deadline += time_budget(duration_s=self.total_s, size=0)
        return report.source_format

    def _choose(self, numbers: Sequence[int], walked: Report) -> int:
        """The number of the track to use: of those with the most speech, else of the loudest, the default one, then the first."""
        seconds = max(walked.announced_s, walked.end_s)
        self.deadline += time_budget(duration_s=len(numbers) * seconds, size=0)
        share = min(LISTEN_S, 3 * LISTEN_S / len(numbers))
        every = PART_S * seconds / share
        # Of a long recording parts from its whole length, not its beginning: people begin to speak when they begin.
        part = f"aselect='lt(mod(t,{every:.3f}),{PART_S})'," if every > PART_S else ""
        folder = self.made.with_name("heard")
        folder.mkdir()
        outputs: list[str] = []
        for number in numbers:
            heard = f"{self._shape(1, walked.tracks[number])},volumedetect@t{number},{part}aresample={EAR_RATE},aformat=sample_fmts=s16"
            sound = ("-map", f"0:a:{number}", *ffmpeg.NO_EXTRAS, "-af", heard, *self._cap())
            outputs += [*sound, "-f", "s16le", f"file:{folder / str(number)}"]
        most = int(EAR_RATE * 2 * (self.max_duration_s + OVERRUN_S))
        report, _ = self._run(*ffmpeg.INPUT, *outputs, file_bytes=most)
        self.reached_s = report.end_s

        speech: dict[int, float] = {}
        level: dict[int, float] = {}
        for number in numbers:
            raw = folder / str(number)
            parts = report.levels.get(f"t{number}", [])
            samples = sum(part.samples for part in parts)
            level[number] = sum(part.power for part in parts) / samples if samples else 0.0
            speech[number] = (
                self.listen(raw, lambda: self.beat(None)) if self.listen and raw.exists() and level[number] > INAUDIBLE else 0.0
            )
            raw.unlink(missing_ok=True)
        folder.rmdir()
        measured, same = (speech, SAME_SPEECH) if max(speech.values()) >= SPEECH_S else (level, SAME_LEVEL)
        best = [number for number in numbers if measured[number] >= same * max(measured.values())]
        chosen = next((number for number in best if walked.tracks[number].is_default), best[0])
        if any(seconds >= SPEECH_S for number, seconds in speech.items() if number != chosen):
            self.notes.add(OTHER_SPEECH)
        return chosen

    def _judge(self, source_format: str, made_s: float) -> None:
        """Note whether the recording was cut or damaged."""
        ends_early = self.announced_s - max(self.total_s, self.reached_s, made_s) > max(0.5, 0.02 * self.announced_s)
        # Damage in the middle shortens an MP3, too; elsewhere the times of what follows hold.
        if self.is_cut or (ends_early and not (source_format == "mp3" and self.errors)):
            self.notes.add(TRUNCATED)
        if self.errors > (CUT_ERRORS if TRUNCATED in self.notes else 0) or made_s < 0.98 * self.total_s - 0.5:
            self.notes.add(DAMAGED)

    def _walk(self, number: int, *, with_video: bool) -> Report:
        video = ("-map", "0:V:0?") if with_video else ()
        report, _ = self._run(*ffmpeg.INPUT, "-map", f"0:a:{number}?", *video, "-c", "copy", *self._cap(), "-f", "null", "-")
        if report.source_format:
            return report
        if not report.has_complained:  # it never came to look at the recording
            raise AudioFailed("crashed")
        if report.has_no_index:
            raise AudioRejected("truncated")
        raise AudioRejected("undecodable" if self.sniffed.is_media else "not_media")

    def _keep(self) -> bool:
        """Carry the packets over if they are what we would make ourselves, and decode them to see that they are sound."""
        opus = read_opus(self.source)
        if opus is None or opus.mapping_family or not opus.starts_at_zero or opus.channels > (2 if self.separate else 1):
            return False
        sound = ("-map", "0:a:0", *ffmpeg.NO_EXTRAS)
        report, status = self._run(
            *ffmpeg.INPUT,
            *(*sound, "-c:a", "copy", "-f", "ogg", f"file:{self.made}"),
            *(*sound, "-f", "null", "-"),
            file_bytes=self.size + self.size // 4 + 1_000_000,
            is_converting=True,
        )
        if status or report.decode_errors or report.other_errors or not report.frames:
            return False
        made = read_opus(self.made)
        return made is not None and abs(made.duration_ms - opus.duration_ms) <= 1

    def _encode(self) -> None:
        channels = 2 if self.separate and self.track.channels == 2 else 1
        report = self._convert(channels)
        if not report.frames:
            raise AudioRejected("undecodable" if report.packets else "no_audio")
        if report.decode_errors > report.frames:
            raise AudioRejected("undecodable")
        self.errors = report.decode_errors + report.other_errors
        if len(report.levels.get(WHOLE, ())) > 1:
            self.notes.add(RESAMPLED)
            self._unify()
            report = self._convert(channels)
        if channels == 1 and self.track.channels == 2 and _cancels(report):
            self.notes.add(ONE_CHANNEL)
            self._convert(channels, mix="pan=mono|c0=c0")

    def _convert(self, channels: int, *, mix: str = "") -> Report:
        """Decode, measure, bring to our form, encode. `mix` is the filter that turns the track's channels into ours."""
        filters = [
            # speech in films sits in one of six channels; half of the headroom kept for all six is enough
            "aresample=rematrix_maxval=2",
            self._shape(2 if self.track.channels == 2 else 1),  # said outright, else ffmpeg may mix before the first meter
            f"volumedetect@{WHOLE}",
            mix or _layout(channels),
            f"volumedetect@{MIXED}",
            # fill gaps, so that times stay those of the original, from the container's start on
            "aresample=48000:async=1:first_pts=0",
        ]
        if self.has_video:
            filters.append(f"apad=whole_dur={self.total_s:.3f}")
        report, status = self._run(
            *(("-copyts",) if self.is_unified else ()),
            *ffmpeg.INPUT,
            *("-map", f"0:a:{self.number}", *ffmpeg.NO_EXTRAS, "-af", ",".join(filters)),
            *("-c:a", "libopus", "-b:a", BITRATE[channels], "-application", "voip", "-apply_phase_inv", "0"),
            *(*self._cap(), "-f", "ogg", f"file:{self.made}"),
            file_bytes=int(BYTES_PER_S * (self.max_duration_s + 2 * OVERRUN_S)),
            is_converting=True,
        )
        if status and report.frames:
            opus = read_opus(self.made)
            if opus is None or opus.duration_ms < 1000 * self.total_s - 1000:
                raise AudioFailed("crashed")
        return report

    def _unify(self) -> None:
        """Replace the source by its sound in one form, lossless and with its times.

        ffmpeg rebuilds its filters when the form changes, and `first_pts` would then fill in everything from zero once more.
        """
        unified = self.made.with_name("unified")
        self._run(
            *ffmpeg.INPUT,
            *("-map", f"0:a:{self.number}", *ffmpeg.NO_EXTRAS, "-af", f"{self._shape(2)},aresample=48000:async=1"),
            *("-c:a", "flac", *self._cap(), "-f", "matroska", f"file:{unified}"),
            file_bytes=int(LOSSLESS_BYTES_PER_S * (self.max_duration_s + 2 * OVERRUN_S)),
            is_converting=True,
        )
        unified.replace(self.source)
        self.number, self.track, self.is_unified = 0, AudioTrack("flac", channels=2), True

    def _shape(self, channels: int, track: AudioTrack | None = None) -> str:
        """The filter that gives that many channels, one where ffmpeg can't mix them: it has no rule for channels whose places nobody knows.

        These are added up, for the one that holds the speech would be drowned by a mean of twelve.
        """
        unplaced = (track or self.track).unplaced
        if not unplaced:
            return _layout(channels)
        everything = "+".join(f"c{number}" for number in range(unplaced))
        return f"aformat=sample_fmts=fltp,pan=mono|c0={everything},alimiter=limit=0.9:level=0,{_layout(1)}"

    def _cap(self) -> tuple[str, str]:
        return "-t", f"{self.max_duration_s + OVERRUN_S:.3f}"

    def _run(self, *arguments: str, file_bytes: int = 1_000_000, is_converting: bool = False) -> tuple[Report, int]:
        wall_s = max(1.0, self.deadline - time.monotonic())

        def beat(report: Report) -> None:
            if report.end_s > self.max_duration_s + TOLERANCE_S:
                raise self._too_long()
            if is_converting and self.total_s:
                self.progress = max(self.progress, min(1.0, report.end_s / self.total_s))
            self.beat(self.progress or None)

        return ffmpeg.run(
            arguments,
            folder=self.source.parent,
            limits=child.Limits(wall_s=wall_s, file_bytes=file_bytes),
            beat=beat,
        )

    def _too_long(self) -> AudioRejected:
        return AudioRejected("too_long", f"The recording is longer than allowed ({_in_words(self.max_duration_s)}).")


def _cancels(report: Report) -> bool:
    whole, mixed = (report.levels.get(meter, [])[:1] for meter in (WHOLE, MIXED))
    return bool(whole and mixed) and whole[0].mean > INAUDIBLE and mixed[0].mean < CANCELLATION * whole[0].mean


def _layout(channels: int) -> str:
    return f"aformat=sample_fmts=s16:channel_layouts={'stereo' if channels == 2 else 'mono'}"


def _in_words(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return " ".join(f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if number) or "0 s"
