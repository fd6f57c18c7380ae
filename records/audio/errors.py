"""Why a recording could not be normalized: what is wrong with it for good, and what may pass."""

from __future__ import annotations

# Codes of AudioRejected and the sentence a person reads. The first ones are those of the shared expectations.
REJECTIONS = {
    "empty": "The file is empty.",
    "not_media": "This is not an audio or video recording.",
    "playlist": "The file only points at other files or addresses; send the recording itself.",
    "no_audio": "There is no sound in this file.",
    "truncated": "The file is incomplete and cannot be read; please send it again.",
    "undecodable": "The sound in this file cannot be decoded.",
    "encrypted": "The recording is protected against copying and cannot be read.",
    "too_long": "The recording is longer than allowed.",
    "too_large": "The recording takes more space than allowed.",
}

# Codes of AudioFailed: the recording may be fine, the machine was not.
FAILURES = {
    "ffmpeg_missing": "No usable ffmpeg was found on the server.",
    "crashed": "The audio converter ended unexpectedly.",
    "timeout": "Converting the recording took too long.",
    "out_of_memory": "The audio converter ran out of memory.",
    "disk_full": "There is not enough disk space to convert the recording.",
}


class AudioRejected(Exception):
    """The recording itself is the reason, so trying again cannot help.

    `code` is a key of `REJECTIONS`; `message` one sentence for a person, free of names and of ffmpeg's words.
    """

    def __init__(self, code: str, message: str = "") -> None:
        self.code = code
        self.message = message or REJECTIONS[code]
        super().__init__(f"{code}: {self.message}")


class AudioFailed(Exception):
    """The machine is the reason; trying again may help. `code` is a key of `FAILURES`, `message` as in AudioRejected."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.message = FAILURES[code]
        super().__init__(f"{code}: {self.message}")
