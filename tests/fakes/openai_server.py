"""A stand-in for a server with OpenAI's `/v1/audio/transcriptions`, on loopback.

    with OpenAIServer() as server:
        ...
        assert server.accepted == 1

The base URL for the config is `server.base_url`. Routes, for faults and for the ledger: `transcriptions`, `models`. Answers are those of
`whisper-1` (bare words, the language's English name, segments with punctuation); servers of others differ, and `Manners` says how.

As a program: `python -m tests.fakes.openai_server [--port N] [--recognizer fixed|silence|whisper]`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.fakes.loopback import Answer, Call, Loopback, json_answer
from tests.fakes.recognizers import FixedText, LocalWhisper, NotAudio, Phrase, Recognizer, Silence, bare, sound_of

API_KEY = "stand-in-key"
MAX_SIZE = 25 << 20
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
NAMES = {"en": "english", "ru": "russian", "de": "german", "fr": "french", "es": "spanish"}
TYPES = {
    401: "invalid_request_error",
    403: "invalid_request_error",
    404: "invalid_request_error",
    429: "requests",
    400: "invalid_request_error",
}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class Refusal(Exception):
    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param


@dataclass(frozen=True)
class Manners:
    """How this server answers. `words`: bare (`the`), spaced (` The`, with punctuation, as faster-whisper gives them), none (asked for or not).

    `language`: name (`english`), code (`en`), none. `segments`: false leaves them out. `limits_size`: 25 MB. `errors`: openai, or detail (as
    FastAPI puts them).
    """

    words: str = "bare"
    language: str = "name"
    segments: bool = True
    limits_size: bool = True
    errors: str = "openai"


class OpenAIServer(Loopback):
    """A context manager. With no `keys`, everybody may ask (as a server at home)."""

    SHAPES = (*Loopback.SHAPES, "openai", "detail")

    def __init__(self, *, recognizer: Recognizer | None = None, port: int = 0, ledger: Path | None = None) -> None:
        super().__init__(port=port, ledger=ledger)
        self.recognizer: Recognizer = recognizer or FixedText()
        self.manners = Manners()
        self.keys = {API_KEY}
        self.forbidden: set[str] = set()
        """Keys that are known but may not transcribe: 403."""
        self.models = {"whisper-1"}
        self.accepted = 0
        """Transcriptions that were made; at OpenAI each is charged."""
        self.accepted_per_file: Counter[str] = Counter()
        self.seconds = 0
        """Of sound, rounded up for each."""
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def environment(self, key: str = API_KEY) -> dict[str, str]:
        """What makes the service use this stand-in."""
        return {
            "TRANSCRIBER_RECOGNITION_PROVIDER": "openai",
            "TRANSCRIBER_OPENAI_BASE_URL": self.base_url,
            "TRANSCRIBER_OPENAI_API_KEY": key,
            "TRANSCRIBER_OPENAI_MODEL": "whisper-1",
        }

    def route(self, method: str, path: str, listener: int) -> str:
        return {("POST", "/v1/audio/transcriptions"): "transcriptions", ("GET", "/v1/models"): "models"}.get((method, path), "")

    def headers(self) -> dict[str, str]:
        return {"x-request-id": f"req_{os.urandom(16).hex()}"}

    def respond(self, call: Call) -> Answer:
        try:
            scheme, _, key = call.headers.get("authorization", "").partition(" ")
            known = self.keys | self.forbidden
            if known and (scheme.lower() != "bearer" or key not in known):
                raise Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
            if key in self.forbidden:
                raise Refusal(403, "You have insufficient permissions for this operation.")
            if call.route == "models":
                return json_answer({"object": "list", "data": [{"id": model, "object": "model"} for model in sorted(self.models)]})
            if call.route == "":
                raise Refusal(404, f"Invalid URL ({call.method} {call.path})", code="unknown_url")
            return self._transcribe(call)
        except Refusal as refusal:
            return self.failure(refusal.status, "", refusal.message, code=refusal.code, param=refusal.param)

    def failure(self, status: int, shape: str, message: str, *, code: str | None = None, param: str | None = None) -> Answer:
        """Shapes: `openai`, `detail`, `html`, `empty`, `text`; "" is that of the manners."""
        shape = shape or self.manners.errors
        if shape == "openai":
            error = {"message": message, "type": TYPES.get(status, "server_error"), "param": param, "code": code or CODES.get(status)}
            return json_answer({"error": error}, status)
        if shape == "detail":
            return json_answer({"detail": message}, status)
        return super().failure(status, shape, message)

    def _transcribe(self, call: Call) -> Answer:
        fields, files = parse_form(call.headers.get("content-type", ""), call.body)
        if "file" not in files:
            raise Refusal(400, "you must provide a file parameter", param="file")
        data = files["file"][0]
        if self.manners.limits_size and len(data) > MAX_SIZE:
            raise Refusal(413, f"413: Maximum content size limit ({MAX_SIZE}) exceeded ({len(data)} bytes read)")
        model = fields.get("model", [""])[0]
        if not model:
            raise Refusal(400, "you must provide a model parameter", param="model")
        if model not in self.models:
            raise Refusal(404, f"The model `{model}` does not exist or you do not have access to it.", code="model_not_found")
        form = fields.get("response_format", ["json"])[0]
        if form not in FORMATS:
            raise Refusal(400, f"response_format: one of {', '.join(FORMATS)}", param="response_format")
        granularities = set(fields.get("timestamp_granularities[]", ["segment"]))
        if granularities - {"word", "segment"}:
            raise Refusal(400, "timestamp_granularities: word or segment", param="timestamp_granularities")
        language = fields.get("language", [""])[0]
        if language and not re.fullmatch(r"[a-z]{2,3}", language):
            raise Refusal(
                400, f"Invalid language '{language}'. Language parameter must be specified in ISO-639-1 format.", param="language"
            )
        try:
            sound = sound_of(data)
        except NotAudio as error:
            raise Refusal(
                400, "Invalid file format. Supported formats: ['flac', 'm4a', 'mp3', 'mp4', 'mpeg', 'mpga', 'oga', 'ogg', 'wav', 'webm']"
            ) from error
        # One channel: the real one mixes them, whatever was sent.
        phrases = [replace(phrase, channel=0) for phrase in self.recognizer(replace(sound, channels=1), language)]
        with self._lock:
            self.accepted += 1
            self.accepted_per_file[hashlib.sha256(data).hexdigest()] += 1
            self.seconds += math.ceil(sound.duration_ms / 1000)
            self.requests.note(accepted=self.accepted, request=call.number)
        if form == "json":
            return json_answer({"text": _text(phrases)})
        if form != "verbose_json":
            return Answer(
                200,
                (_text(phrases) if form == "text" else _subtitles(phrases, form)).encode(),
                {"Content-Type": "text/plain; charset=utf-8"},
            )
        return json_answer(self._verbose(phrases, sound.duration_ms, language or _guess(phrases), granularities))

    def _verbose(self, phrases: list[Phrase], duration_ms: int, language: str, granularities: set[str]) -> dict[str, Any]:
        answer: dict[str, Any] = {"task": "transcribe", "duration": duration_ms / 1000, "text": _text(phrases)}
        if self.manners.language != "none":
            answer["language"] = NAMES.get(language, language) if self.manners.language == "name" else language
        if "word" in granularities and self.manners.words != "none":
            answer["words"] = [
                {"word": bare(word) if self.manners.words == "bare" else f" {word}", "start": start / 1000, "end": end / 1000}
                for phrase in phrases
                for word, start, end in phrase.words
                if bare(word) or self.manners.words != "bare"
            ]
        if "segment" in granularities and self.manners.segments:
            answer["segments"] = [
                {
                    "id": number,
                    "seek": 0,
                    "start": phrase.start_ms / 1000,
                    "end": phrase.end_ms / 1000,
                    "text": f" {phrase.text}",
                    "tokens": [50364, *range(100, 100 + len(phrase.words))],
                    "temperature": 0.0,
                    "avg_logprob": -0.21,
                    "compression_ratio": 1.1,
                    "no_speech_prob": 0.01,
                }
                for number, phrase in enumerate(phrases)
            ]
        answer["usage"] = {"type": "duration", "seconds": math.ceil(duration_ms / 1000)}
        return answer

    def control(self, method: str, what: str, query: Mapping[str, str], said: Mapping[str, Any]) -> object:
        if method == "GET" and what == "state":
            return {"accepted": self.accepted, "accepted_per_file": self.accepted_per_file, "requests": self.requests.counts()}
        if method == "POST" and what == "manners":
            self.manners = Manners(**{**asdict(self.manners), **said})
            return {}
        if method == "POST" and what == "keys":
            self.keys = set(said["keys"])
            return {}
        return super().control(method, what, query, said)


def parse_form(content_type: str, body: bytes) -> tuple[dict[str, list[str]], dict[str, list[bytes]]]:
    """Fields and files of a multipart form. Raises Refusal."""
    boundary = re.search(r'boundary="?([^";]+)"?', content_type)
    if not content_type.startswith("multipart/form-data") or not boundary:
        raise Refusal(400, "Could not parse multipart form")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise Refusal(400, "Could not parse multipart form")
    fields: dict[str, list[str]] = {}
    files: dict[str, list[bytes]] = {}
    for part in parts[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(r'[; ]name="([^"]*)"', head.decode("utf-8", "replace"))
        if not name:
            raise Refusal(400, "Could not parse multipart form")
        if b"filename" in head:
            files.setdefault(name[1], []).append(value)
        else:
            fields.setdefault(name[1], []).append(value.decode())
    return fields, files


def _text(phrases: list[Phrase]) -> str:
    return " ".join(phrase.text for phrase in phrases)


def _guess(phrases: list[Phrase]) -> str:
    return "ru" if re.search("[а-яё]", _text(phrases).lower()) else "en"


def _subtitles(phrases: list[Phrase], form: str) -> str:
    point = "," if form == "srt" else "."

    def moment(ms: int) -> str:
        return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"

    cues = [
        (f"{number}\n" if form == "srt" else "") + f"{moment(phrase.start_ms)} --> {moment(phrase.end_ms)}\n{phrase.text}\n"
        for number, phrase in enumerate(phrases, 1)
    ]
    return ("WEBVTT\n\n" if form == "vtt" else "") + "\n".join(cues)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A stand-in for a server with OpenAI's /v1/audio/transcriptions, on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--recognizer", choices=("fixed", "silence", "whisper"), default="fixed")
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("TRANSCRIBER_DATA", "var")) / "models", help="folder of models")
    parser.add_argument("--ledger", type=Path, help="file of JSON lines that all requests are written to")
    said = parser.parse_args(arguments)
    fixed: dict[str, Recognizer] = {"fixed": FixedText(), "silence": Silence()}
    heard = fixed.get(said.recognizer) or LocalWhisper(said.models.absolute())
    with OpenAIServer(recognizer=heard, port=said.port, ledger=said.ledger) as server:
        print(json.dumps({"url": server.url, "environment": server.environment()}), flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
