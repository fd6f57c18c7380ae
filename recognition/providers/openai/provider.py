"""The provider: what is frozen, where its one request is made, and how long it may take."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from recognition.contract import Answered, Attempt, Audio, Heartbeat, Limits, Misconfigured, NotAccepted, Refused, Transcript
from recognition.providers.openai.client import Form, OpenAIClient
from recognition.providers.openai.parse import parse

OPENAI_HOST = "api.openai.com"
OPENAI_MAX_SIZE = 25 * 2**20
SHORTEST_PATIENCE = 1800.0
PATIENCE_FACTOR = 10.0
"""A large model on a small machine takes several times as long as the recording lasts, and others may be before us."""


class OpenAIProvider:
    """`open_source` gives a local file for a `source_uri`, which is the `location` of the normalized copy.

    The request is the recognition, and its answer comes on the same connection. Where it is paid for, it is made in `submit`, which is never
    repeated by itself; else in `poll`, as the work of a local engine is. Recordings whose channels were kept apart are mixed by the server.
    """

    name = "openai"
    paces: Mapping[str, float] = MappingProxyType({})

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        model: str,
        paid: bool,
        open_source: Callable[[str], AbstractContextManager[Path]],
    ) -> None:
        self.model = model
        self.costs_money = paid
        self.limits = Limits(max_size=OPENAI_MAX_SIZE if urlsplit(base_url).hostname == OPENAI_HOST else None)
        self._client = OpenAIClient(base_url=base_url, api_key=api_key, paid=paid)
        self._open_source = open_source

    def options(self, *, language: str, channels: int) -> dict[str, Any]:
        """Raises `Misconfigured` if no model is set. The API takes a language without its region."""
        if not self.model:
            raise Misconfigured("provider_model", "No model is configured: set [openai] model.")
        return {
            "model": self.model,
            "language": language.replace("_", "-").split("-")[0].lower(),
            "channels": channels,
            "channels_mixed": channels > 1,
            "temperature": 0,
            "response_format": "verbose_json",
            "timestamp_granularities": ["word", "segment"],
        }

    def upload(self, audio: Audio) -> str:
        return audio.location

    def submit(self, attempt: Attempt, heartbeat: Heartbeat) -> str | Answered:
        """Errors: those of `OpenAIClient.transcribe` where the request is paid for, else none."""
        if not self.costs_money:
            return f"local-{uuid.uuid4()}"
        return Answered(f"answered-{uuid.uuid4()}", self._transcribe(attempt, heartbeat))

    def poll(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        """Make the request, where it costs nothing. Raises `Refused` where it would: the answer came with the submission, or is lost."""
        if self.costs_money:
            raise Refused(
                "answer_missing",
                "The server answers a request at once and keeps nothing, so there is no answer to be fetched: "
                "restart the record from `normalized`, which is a new paid request.",
                knows_us=False,
            )
        return self._transcribe(attempt, heartbeat)

    def parse(self, payload: bytes, options: Mapping[str, Any]) -> Transcript:
        return parse(payload, options)

    def remove_source(self, source_uri: str) -> None:
        pass  # it read the record's own file

    def remove_result(self, external_id: str) -> None:
        pass

    def _transcribe(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        with ExitStack() as stack:
            try:
                form = Form(stack.enter_context(self._open_source(attempt.source_uri)), _fields(attempt.options))
            except Exception as error:  # whatever the storage raises: nothing has been sent yet
                raise NotAccepted("source_missing", f"The normalized recording could not be read ({type(error).__name__}).") from error
            return self._client.transcribe(
                form,
                seconds=SHORTEST_PATIENCE + PATIENCE_FACTOR * attempt.duration_ms / 1000,
                beat=heartbeat.beat,
            )


def _fields(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The form, made of what was frozen alone."""
    fields = [(name, str(options[name])) for name in ("model", "language", "temperature", "response_format") if options[name] != ""]
    return fields + [("timestamp_granularities[]", granularity) for granularity in options["timestamp_granularities"]]
