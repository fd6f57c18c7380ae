"""A provider for real processes: answers at once, or after the time that the environment says."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from recognition.contract import Attempt, Audio, Heartbeat, Limits, Pending, Transcript, Transient, Utterance, Word

PAYLOAD = b"quick"


class QuickProvider:
    """`QUICK_SECONDS`: how long it works, beating. `QUICK_DEAF_SECONDS`: how long it then works without a beat, as C code may."""

    name = "tests.fakes.quick.QuickProvider"
    costs_money = False
    model = "quick"
    limits = Limits()
    paces: Mapping[str, float] = {}

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        return {"language": language, "channels": channels}

    def upload(self, audio: Audio) -> str:
        return audio.location

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str:
        return f"quick-{uuid.uuid4()}"

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> Pending | bytes:
        seconds = float(os.environ.get("QUICK_SECONDS", "0"))
        ends_at = time.monotonic() + seconds
        heartbeat.beat(0)
        while (left := ends_at - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            heartbeat.beat(1 - max(left, 0) / seconds)
        deaf = time.monotonic() + float(os.environ.get("QUICK_DEAF_SECONDS", "0"))
        while (left := deaf - time.monotonic()) > 0:
            time.sleep(left)
        return PAYLOAD

    def parse(self, payload: bytes, options: Mapping[str, Any]) -> Transcript:
        if payload != PAYLOAD:
            raise Transient("answer_unreadable", "The answer could not be read.")
        return Transcript(language="en", utterances=(Utterance(0, 500, "Quick.", words=(Word(0, 500, "Quick."),)),))

    def remove_source(self, source_uri: str) -> None:
        pass

    def remove_result(self, external_id: str) -> None:
        pass
