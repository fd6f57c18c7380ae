"""Writes on attempts, and the gate before every call to a provider."""

from recognition.operations.attempts import (
    attempt_of,
    keep_external_id,
    keep_payload,
    new_recognition,
    others_of,
    read_payload,
    take_mark_off,
)
from recognition.operations.removals import request_removal, work_off_removals

__all__ = [
    "attempt_of",
    "keep_external_id",
    "keep_payload",
    "new_recognition",
    "others_of",
    "read_payload",
    "request_removal",
    "take_mark_off",
    "work_off_removals",
]
