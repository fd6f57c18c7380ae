"""Writes on attempts, and the gate before every call to a provider."""

from recognition.operations.attempts import attempt_of, keep_external_id, keep_payload, new_recognition, read_payload, take_mark_off

__all__ = ["attempt_of", "keep_external_id", "keep_payload", "new_recognition", "read_payload", "take_mark_off"]
