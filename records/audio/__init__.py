"""The only caller of ffmpeg: turns whatever was uploaded into Ogg/Opus. Knows files and numbers, and nothing else of ours."""

from records.audio.errors import FAILURES, REJECTIONS, AudioFailed, AudioRejected
from records.audio.ffmpeg import ffmpeg_binary
from records.audio.normalize import NOTES, WORKSPACE_PREFIX, Normalized, normalize, time_budget

__all__ = [
    "FAILURES",
    "NOTES",
    "REJECTIONS",
    "WORKSPACE_PREFIX",
    "AudioFailed",
    "AudioRejected",
    "Normalized",
    "ffmpeg_binary",
    "normalize",
    "time_budget",
]
