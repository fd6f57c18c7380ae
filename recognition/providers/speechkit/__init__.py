"""Yandex SpeechKit v3: files are read from a bucket, recognized against payment, and their results fetched within three days."""

from __future__ import annotations

from recognition.providers.speechkit.provider import SpeechKitProvider

__all__ = ["SpeechKitProvider"]
