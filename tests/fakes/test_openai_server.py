"""The OpenAI stand-in, without the product's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.fakes.loopback import Body, Close, Cut, Fault, Hold, Reset, Status
from tests.fakes.openai_server import API_KEY, Manners, OpenAIServer
from tests.fakes.recognizers import Silence, opus_file

pytestmark = pytest.mark.no_database

SOUND = opus_file(9.3)
WORDS = [("response_format", "verbose_json"), ("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def post(
    server: OpenAIServer, *fields: tuple[str, str], file: bytes | None = SOUND, model: str = "whisper-1", **more: Any
) -> requests.Response:
    return requests.post(
        f"{server.base_url}/audio/transcriptions",
        data=[("model", model), *fields],
        files={"file": ("audio.ogg", file, "audio/ogg")} if file is not None else {"none": ("x", b"")},
        **{"headers": {"Authorization": f"Bearer {API_KEY}"}, "timeout": 20, **more},
    )


def test_verbose_json_has_text_segments_and_words(server: OpenAIServer):
    answer = post(server, *WORDS, ("language", "ru"))

    said = answer.json()
    assert answer.headers["Content-Type"] == "application/json"
    assert (said["task"], said["language"], said["duration"]) == ("transcribe", "russian", 9.3)
    assert said["text"] == "Добрый день, заказ готов. Номер двадцать пять, верно?"
    assert [segment["text"] for segment in said["segments"]] == [" Добрый день, заказ готов.", " Номер двадцать пять, верно?"]
    assert [word["word"] for word in said["words"]][:3] == ["добрый", "день", "заказ"]
    times = [word[edge] for word in said["words"] for edge in ("start", "end")]
    assert times == sorted(times)
    assert (server.accepted, server.seconds) == (1, 10)


def test_words_come_only_when_asked_for(server: OpenAIServer):
    said = post(server, ("response_format", "verbose_json")).json()

    assert "words" not in said
    assert said["segments"]


def test_other_formats(server: OpenAIServer):
    assert set(post(server).json()) == {"text"}
    assert post(server, ("response_format", "text"), ("language", "en")).text.startswith("Good morning,")
    assert post(server, ("response_format", "srt")).text.startswith("1\n00:00:00,000 --> 00:00:05,000\n")
    assert post(server, ("response_format", "vtt")).text.startswith("WEBVTT\n\n00:00:00.000 --> ")


@pytest.mark.parametrize(
    ("manners", "expected"),
    [
        (Manners(words="none"), {"words": None, "language": "russian", "segments": 2}),
        (Manners(words="spaced", language="code"), {"words": " Добрый", "language": "ru", "segments": 2}),
        (Manners(segments=False, language="none"), {"words": "добрый", "language": None, "segments": 0}),
    ],
)
def test_manners_of_other_servers(server: OpenAIServer, manners: Manners, expected: dict[str, Any]):
    server.manners = manners

    said = post(server, *WORDS).json()

    first = said["words"][0]["word"] if "words" in said else None
    assert {"words": first, "language": said.get("language"), "segments": len(said.get("segments", []))} == expected


def test_silence_is_an_empty_text(server: OpenAIServer):
    server.recognizer = Silence()

    said = post(server, *WORDS).json()

    assert (said["text"], said["words"], said["segments"]) == ("", [], [])


@pytest.mark.parametrize(
    ("status", "request_", "code"),
    [
        (401, {"headers": {}}, "invalid_api_key"),
        (401, {"headers": {"Authorization": "Bearer wrong"}}, "invalid_api_key"),
        (404, {"model": "whisper-9"}, "model_not_found"),
        (400, {"model": ""}, None),
        (400, {"file": None}, None),
        (400, {"file": b"no sound"}, None),
        (413, {"file": bytes((25 << 20) + 1)}, None),
    ],
)
def test_refusals_have_the_error_shape(server: OpenAIServer, status: int, request_: dict[str, Any], code: str | None):
    answer = post(server, **request_)

    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == code
    assert server.accepted == 0


@pytest.mark.parametrize("field", [("response_format", "xml"), ("timestamp_granularities[]", "letter"), ("language", "ru-RU")])
def test_bad_fields_are_400(server: OpenAIServer, field: tuple[str, str]):
    assert post(server, field).status_code == 400


def test_open_servers_and_forbidden_keys(server: OpenAIServer):
    server.forbidden = {"guest"}
    assert post(server, headers={"Authorization": "Bearer guest"}).status_code == 403
    server.keys, server.forbidden = set(), set()
    assert post(server, headers={}).status_code == 200


def test_size_is_not_limited_by_other_servers(server: OpenAIServer):
    server.manners = Manners(limits_size=False)

    assert post(server, file=SOUND + bytes(26 << 20)).status_code == 200


def test_models_are_listed_and_unknown_paths_are_404(server: OpenAIServer):
    headers = {"Authorization": f"Bearer {API_KEY}"}

    assert requests.get(f"{server.base_url}/models", headers=headers, timeout=10).json()["data"][0]["id"] == "whisper-1"
    assert requests.get(f"{server.base_url}/nothing", headers=headers, timeout=10).json()["error"]["code"] == "unknown_url"


@pytest.mark.parametrize("shape", ["openai", "detail", "html", "empty", "text"])
@pytest.mark.parametrize("acted", [False, True])
def test_status_in_every_shape(server: OpenAIServer, shape: str, acted: bool):
    server.faults.next("transcriptions", Status(status=503, shape=shape, acted=acted))

    assert post(server).status_code == 503
    assert server.accepted == acted
    assert post(server).status_code == 200


@pytest.mark.parametrize("fault", [Reset, Close])
@pytest.mark.parametrize("acted", [False, True])
def test_connection_ends(server: OpenAIServer, fault: type[Fault], acted: bool):
    server.faults.next("transcriptions", fault(acted=acted))

    with pytest.raises(requests.ConnectionError):
        post(server)
    assert (server.accepted, server.requests.count("transcriptions")) == (acted, 1)


def test_late_garbage_and_cut_answers(server: OpenAIServer):
    hold = Hold()
    server.faults.next("transcriptions", hold)
    server.faults.next("transcriptions", Body(body="{"))
    server.faults.next("transcriptions", Cut())

    with pytest.raises(requests.ReadTimeout):
        post(server, timeout=0.3)
    assert hold.arrived.is_set()
    assert post(server).text == "{"
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        post(server)
    assert (server.accepted, list(server.accepted_per_file.values())) == (3, [3])
    control = requests.get(f"{server.url}/_control/state", timeout=10).json()
    assert (control["accepted"], control["requests"]) == (3, {"transcriptions": 3})
