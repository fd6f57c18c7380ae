"""The SpeechKit stand-in against the reference: each route, shape and fault, without the product's client."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.audio import silence, write_wav
from tests.fakes.loopback import Body, Close, Cut, Delay, Fault, Hold, Reset, Status, most_within, read_ledger
from tests.fakes.recognizers import FixedText, NotAudio, Phrase, Silence, Sound, opus_file, sound_of
from tests.fakes.s3 import S3
from tests.fakes.speechkit_server import API_KEY, Clock, Plan, Reshape, SpeechKitServer, billed_seconds
from tests.fakes.speechkit_stream import Shape

pytestmark = pytest.mark.no_database

AUTH = {"Authorization": f"Api-Key {API_KEY}"}
CAMEL: dict[str, Any] = {
    "recognitionModel": {
        "model": "general",
        "audioFormat": {"containerAudio": {"containerAudioType": "OGG_OPUS"}},
        "textNormalization": {"textNormalization": "TEXT_NORMALIZATION_ENABLED", "profanityFilter": False, "literatureText": True},
        "languageRestriction": {"restrictionType": "WHITELIST", "languageCode": ["ru-RU"]},
        "audioProcessingType": "FULL_DATA",
    },
}
SNAKE: dict[str, Any] = {
    "recognition_model": {
        "model": "general",
        "audio_format": {"container_audio": {"container_audio_type": 2}},
        "text_normalization": {"text_normalization": 1, "profanity_filter": False, "literature_text": True},
        "language_restriction": {"restriction_type": 1, "language_code": ["ru-RU"]},
        "audio_processing_type": 2,
    },
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as store:
        yield store


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    return s3.make_bucket()


@pytest.fixture(scope="module")
def uri(s3: S3, bucket: str) -> str:
    return s3.put(bucket, "r/mono.ogg", opus_file(12.4))


@pytest.fixture(scope="module")
def stereo(s3: S3, bucket: str) -> str:
    return s3.put(bucket, "r/stereo.ogg", opus_file(12, channels=2))


@pytest.fixture
def server(s3: S3) -> Iterator[SpeechKitServer]:
    with SpeechKitServer(s3.url, clock=Clock(datetime(2026, 9, 14, 8, 11, 2, tzinfo=UTC))) as server:
        yield server


def submit(server: SpeechKitServer, uri: str, body: dict[str, Any] | None = None, **more: Any) -> requests.Response:
    arguments: dict[str, Any] = {"headers": AUTH, "timeout": 10, **more}
    return requests.post(f"{server.stt_url}/stt/v3/recognizeFileAsync", json={"uri": uri, **(body or CAMEL)}, **arguments)


def submitted(server: SpeechKitServer, uri: str, body: dict[str, Any] | None = None) -> str:
    answer = submit(server, uri, body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def operation(server: SpeechKitServer, name: str, **more: Any) -> requests.Response:
    arguments: dict[str, Any] = {"headers": AUTH, "timeout": 10, **more}
    return requests.get(f"{server.operations_url}/operations/{name}", **arguments)


def result(server: SpeechKitServer, name: str, **more: Any) -> requests.Response:
    arguments: dict[str, Any] = {"headers": AUTH, "timeout": 10, **more}
    return requests.get(f"{server.stt_url}/stt/v3/getRecognition", params={"operationId": name}, **arguments)


def delete(server: SpeechKitServer, name: str, **more: Any) -> requests.Response:
    arguments: dict[str, Any] = {"headers": AUTH, "timeout": 10, **more}
    return requests.delete(f"{server.stt_url}/stt/v3/deleteRecognition", params={"operationId": name}, **arguments)


def finished(server: SpeechKitServer, uri: str, body: dict[str, Any] | None = None) -> str:
    name = submitted(server, uri, body)
    server.finish(name)
    assert operation(server, name).json()["done"] is True
    return name


def results(answer: requests.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["result"] for line in answer.content.decode().splitlines()]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [
        next(key for key in event if key not in ("sessionUuid", "audioCursors", "responseWallTimeMs", "channelTag")) for event in events
    ]


def text(event: dict[str, Any]) -> str:
    kind = kinds([event])[0]
    inner = event[kind]["normalizedText"] if kind == "finalRefinement" else event[kind]
    return str(inner["alternatives"][0]["text"])


def call_any(server: SpeechKitServer, route: str, uri: str, name: str, **more: Any) -> requests.Response:
    calls = {
        "submit": lambda: submit(server, uri, **more),
        "operation": lambda: operation(server, name, **more),
        "cancel": lambda: operation(server, f"{name}:cancel", **more),
        "result": lambda: result(server, name, **more),
        "delete": lambda: delete(server, name, **more),
    }
    return calls[route]()


# ---- the way of a recording


def test_submission_is_answered_with_a_whole_operation(server: SpeechKitServer, uri: str):
    answer = submit(server, uri)

    op = answer.json()
    assert re.fullmatch(r"f8d[a-z0-9]{17}", op.pop("id"))
    assert op == {
        "description": "STT v3 async recognition",
        "createdAt": "2026-09-14T08:11:02Z",
        "createdBy": "ajestandin0000000001",
        "modifiedAt": "2026-09-14T08:11:02Z",
        "done": False,
        "metadata": None,
    }
    assert answer.headers["x-request-id"]
    assert answer.headers["x-server-trace-id"]


def test_operation_ends_after_looks(server: SpeechKitServer, uri: str):
    server.plan = Plan(polls=2)
    name = submitted(server, uri)

    looks = [operation(server, name).json() for _ in range(4)]

    assert [look.get("done") for look in looks] == [None, None, True, True]
    assert all("metadata" not in look and "response" not in look and "error" not in look for look in looks)


def test_operation_ends_after_time_of_the_clock(server: SpeechKitServer, uri: str):
    server.plan = Plan(polls=0, seconds=60)
    name = submitted(server, uri)
    assert "done" not in operation(server, name).json()
    server.clock.advance(59)
    assert "done" not in operation(server, name).json()
    server.clock.advance(1)

    op = operation(server, name).json()

    assert op["done"] is True
    assert op["modifiedAt"] == "2026-09-14T08:12:02Z"


def test_operation_that_never_ends_can_be_finished(server: SpeechKitServer, uri: str):
    server.plan = Plan(polls=0, never=True)
    name = submitted(server, uri)
    server.clock.advance(days=2)
    assert "done" not in operation(server, name).json()

    server.finish()

    assert operation(server, name).json()["done"] is True


def test_operations_host_can_print_defaults_and_an_empty_response(server: SpeechKitServer, uri: str):
    server.switches.omit_empty, server.switches.response_on_done = False, True
    name = submitted(server, uri)

    running, done = operation(server, name).json(), operation(server, name).json()

    assert (running["done"], running["metadata"], "response" in running) == (False, None, False)
    assert done["response"]["@type"] == "type.googleapis.com/google.protobuf.Empty"


@pytest.mark.parametrize("parameter", ["operationId", "operation_id"])
def test_result_is_a_stream_of_objects_one_a_line(server: SpeechKitServer, uri: str, parameter: str):
    name = finished(server, uri)

    answer = requests.get(f"{server.stt_url}/stt/v3/getRecognition", params={parameter: name}, headers=AUTH, timeout=10)

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert answer.content.endswith(b"}\n")
    events = results(answer)
    assert kinds(events) == ["final", "finalRefinement", "eouUpdate"] * 3  # a phrase for each 5 s begun
    first = events[0]
    assert set(first) == {"sessionUuid", "audioCursors", "responseWallTimeMs", "final", "channelTag"}
    assert first["audioCursors"] == {
        "receivedDataMs": "12400",
        "resetTimeMs": "0",
        "partialTimeMs": "12400",
        "finalTimeMs": "5000",
        "finalIndex": "0",
        "eouTimeMs": "0",
    }
    alternative = first["final"]["alternatives"][0]
    assert alternative["confidence"] == 0
    assert alternative["languages"] == []
    assert (alternative["startTimeMs"], alternative["endTimeMs"]) == ("0", "5000")
    assert [word["text"] for word in alternative["words"]] == ["добрый", "день", "заказ", "готов"]
    assert int(alternative["words"][0]["startTimeMs"]) > 0
    assert (text(first), text(events[1])) == ("добрый день заказ готов", "Добрый день, заказ готов.")
    assert [event["finalRefinement"]["finalIndex"] for event in events if "finalRefinement" in event] == ["0", "1", "2"]
    assert answer.content == result(server, name).content  # as often as one likes


def test_result_spans_the_real_duration_and_the_words_are_in_order(server: SpeechKitServer, uri: str):
    events = results(result(server, finished(server, uri)))

    words = [word for event in events if "final" in event for word in event["final"]["alternatives"][0]["words"]]
    times = [int(word[edge]) for word in words for edge in ("startTimeMs", "endTimeMs")]
    assert times == sorted(times)
    assert 10_000 < times[-1] <= 12_400


def test_channels_are_counted_from_the_file_and_numbered_from_0(server: SpeechKitServer, stereo: str):
    events = results(result(server, finished(server, stereo)))

    finals = [event for event in events if "final" in event]
    assert [event["channelTag"] for event in finals] == ["0", "1"] * 3
    assert [event["audioCursors"]["finalIndex"] for event in finals] == ["0", "0", "1", "1", "2", "2"]
    assert text(finals[0]) != text(finals[1])


def test_labels_are_speakers_on_mono(server: SpeechKitServer, uri: str, stereo: str):
    body = {**CAMEL, "speakerLabeling": {"speakerLabeling": "SPEAKER_LABELING_ENABLED"}}

    mono = results(result(server, finished(server, uri, body)))
    both = results(result(server, finished(server, stereo, body)))

    assert [event["channelTag"] for event in mono if "final" in event] == ["0", "1", "0"]
    assert [event["channelTag"] for event in both if "final" in event] == ["0", "1"] * 3  # channels still
    server.switches.labels_on_stereo = "refused"
    assert submit(server, stereo, body).status_code == 400


def test_silence_has_no_text(server: SpeechKitServer, uri: str):
    server.recognizer = Silence()

    events = results(result(server, finished(server, uri)))

    assert kinds(events) == ["statusCode", "eouUpdate"]


def test_detected_language_comes_without_refinements(server: SpeechKitServer, uri: str):
    model = {**CAMEL["recognitionModel"], "languageRestriction": {"restrictionType": "WHITELIST", "languageCode": ["auto"]}}

    events = results(result(server, finished(server, uri, {"recognitionModel": model})))

    assert "finalRefinement" not in kinds(events)
    assert events[0]["final"]["alternatives"][0]["languages"] == [{"languageCode": "ru-RU", "probability": 0.98}]


def test_refinement_without_normalization_repeats_the_final(server: SpeechKitServer, uri: str):
    model = {key: value for key, value in CAMEL["recognitionModel"].items() if key != "textNormalization"}

    events = results(result(server, finished(server, uri, {"recognitionModel": model})))

    assert text(events[0]) == text(events[1])


def test_language_decides_the_text(server: SpeechKitServer, uri: str):
    model = {**CAMEL["recognitionModel"], "languageRestriction": {"restrictionType": "WHITELIST", "languageCode": ["en-US"]}}

    events = results(result(server, finished(server, uri, {"recognitionModel": model})))

    assert text(events[1]) == "Good morning, the order is ready."


def test_deleted_result_is_gone(server: SpeechKitServer, uri: str):
    name = finished(server, uri)

    first, second = delete(server, name), delete(server, name)

    assert (first.status_code, first.json()) == (200, {})
    assert (second.status_code, second.json()["code"]) == (404, 5)
    assert result(server, name).status_code == 404
    assert operation(server, name).json()["done"] is True


def test_result_is_kept_for_3_days_from_creation(server: SpeechKitServer, uri: str):
    name = finished(server, uri)
    server.clock.advance(days=3, seconds=-1)
    assert result(server, name).status_code == 200
    server.clock.advance(1)

    assert result(server, name).status_code == 404
    assert operation(server, name).status_code == 200
    server.switches.operations_expire = True
    assert operation(server, name).status_code == 404


def test_running_result_is_404_in_the_old_streaming_shape(server: SpeechKitServer, uri: str):
    answer = result(server, submitted(server, uri))

    assert answer.status_code == 404
    error = {"grpcCode": 5, "httpCode": 404, "message": "operation is not found", "httpStatus": "Not Found", "details": []}
    assert answer.json() == {"error": error}
    server.switches.stream_errors = "stream"
    assert result(server, "f8dnosuch00000000001").json() == {"error": {"code": 5, "message": "operation is not found", "details": []}}


def test_unknown_operation_is_404_in_the_unary_shape(server: SpeechKitServer):
    answer = operation(server, "f8dnosuch00000000001")

    assert answer.status_code == 404
    assert (answer.json()["code"], answer.json()["message"]) == (5, "operation is not found")
    assert "error" not in answer.json()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_cancel_changes_nothing(server: SpeechKitServer, uri: str, method: str):
    name = submitted(server, uri)

    answer = requests.request(method, f"{server.operations_url}/operations/{name}:cancel", headers=AUTH, timeout=10)

    assert answer.status_code == 200
    assert answer.json()["id"] == name
    server.switches.cancel_status = 501
    assert requests.request(method, f"{server.operations_url}/operations/{name}:cancel", headers=AUTH, timeout=10).status_code == 501


def test_each_host_knows_its_own_calls_alone(server: SpeechKitServer, uri: str):
    name = finished(server, uri)

    wrong = [
        requests.get(f"{server.stt_url}/operations/{name}", headers=AUTH, timeout=10),
        requests.get(f"{server.operations_url}/stt/v3/getRecognition?operationId={name}", headers=AUTH, timeout=10),
        requests.post(f"{server.operations_url}/stt/v3/recognizeFileAsync", json={"uri": uri, **CAMEL}, headers=AUTH, timeout=10),
    ]

    assert [answer.status_code for answer in wrong] == [404, 404, 404]
    assert server.paid == 1


# ---- money


def test_every_accepted_submission_is_paid_even_of_the_same_body(server: SpeechKitServer, uri: str):
    for _ in range(2):
        submitted(server, uri)
    submitted(server, uri, SNAKE)
    submit(server, uri, {"recognitionModel": {}})

    assert server.paid == 3
    assert sorted(server.paid_per_body.values()) == [1, 2]
    assert server.paid_per_uri == {uri: 3}
    assert server.requests.count("submit") == 4
    assert server.billed_seconds == 3 * 15


@pytest.mark.parametrize(
    ("seconds", "channels", "billed"), [(1, 1, 15), (1, 2, 15), (1, 3, 30), (15.5, 2, 16), (15.5, 4, 32), (3600, 1, 3600)]
)
def test_price_is_that_of_the_list(seconds: float, channels: int, billed: int):
    assert billed_seconds(round(seconds * 1000), channels) == billed


def test_internal_error_is_not_billed(server: SpeechKitServer, uri: str):
    server.next_plans = [Plan(polls=0, error=13, message="internal error")]
    name = submitted(server, uri)
    operation(server, name)

    assert (server.paid, server.billed_seconds) == (1, 0)


# ---- who may


@pytest.mark.parametrize("route", ["submit", "operation", "cancel", "result", "delete"])
def test_every_call_wants_a_key(server: SpeechKitServer, uri: str, route: str):
    name = finished(server, uri)
    server.without_role = {"roleless"}
    server.keys["roleless"] = "aje"

    missing = call_any(server, route, uri, name, headers={})
    wrong = call_any(server, route, uri, name, headers={"Authorization": "Api-Key wrong"})
    roleless = call_any(server, route, uri, name, headers={"Authorization": "Api-Key roleless"})
    lower = call_any(server, route, uri, name, headers={"Authorization": f"api-key {API_KEY}"})

    codes = [(answer.json().get("error", answer.json())) for answer in (missing, wrong, roleless)]
    assert [answer.status_code for answer in (missing, wrong, roleless, lower)] == [401, 401, 403, 200]
    assert [code.get("grpcCode", code.get("code")) for code in codes] == [16, 16, 7]


def test_folder_of_another_is_refused(server: SpeechKitServer, uri: str):
    own = submit(server, uri, headers={**AUTH, "x-folder-id": "b1gstandin0000000001"})
    other = submit(server, uri, headers={**AUTH, "x-folder-id": "b1gother00000000001"})
    server.switches.foreign_folder = 400
    switched = submit(server, uri, headers={**AUTH, "x-folder-id": "b1gother00000000001"})

    assert (own.status_code, other.status_code, switched.status_code) == (200, 403, 400)


def test_operation_of_another_account_is_unknown(server: SpeechKitServer, uri: str):
    name = finished(server, uri)
    server.keys["other"] = "ajeother000000000001"

    assert operation(server, name, headers={"Authorization": "Bearer other"}).status_code == 404
    server.switches.foreign_operation = 403
    assert result(server, name, headers={"Authorization": "Bearer other"}).status_code == 403


# ---- what is accepted


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("body", [CAMEL, SNAKE, {"recognition_model": CAMEL["recognitionModel"]}], ids=["camel", "snake", "mixed"])
def test_both_spellings_are_understood(server: SpeechKitServer, uri: str, body: dict[str, Any], strict: bool):
    server.switches.strict = strict

    assert kinds(results(result(server, finished(server, uri, body))))[:2] == ["final", "finalRefinement"]


def changed(path: str, value: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(CAMEL))
    *way, last = path.split(".")
    place = body
    for name in way:
        place = place.setdefault(name, {})
    place[last] = value
    return body


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"recognitionModel": {"model": "general"}},
        changed("recognitionModel.model", "best"),
        changed("recognitionModel.audioFormat", {"containerAudio": {"containerAudioType": "OGG_VORBIS"}}),
        changed("recognitionModel.audioFormat.rawAudio", {"audioEncoding": "LINEAR16_PCM", "sampleRateHertz": 8000}),
        changed("recognitionModel.audioFormat", {"rawAudio": {"audioEncoding": "LINEAR16_PCM", "sampleRateHertz": "44100"}}),
        changed("recognitionModel.textNormalization.literatureText", "yes"),
        changed("recognitionModel.languageRestriction.languageCode", "ru-RU"),
        changed("recognitionModel.recognition_model", CAMEL),
        changed("recognition_model", CAMEL["recognitionModel"]),
        changed("speakerLabeling.enable", True),
        changed("speechAnalysis.conversationOptions", {}),
        changed("content", base64.b64encode(b"OggS").decode()),
    ],
)
def test_bad_body_is_400(server: SpeechKitServer, uri: str, body: dict[str, Any]):
    answer = submit(server, uri, body or {"speakerLabeling": {}})

    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert server.paid == 0


@pytest.mark.parametrize("body", [changed("speakerLabeling.enable", True), changed("speakerLabelling", {}), changed("maxSpeakers", 2)])
def test_unknown_field_is_ignored_unless_strict(server: SpeechKitServer, uri: str, body: dict[str, Any]):
    assert submit(server, uri, body).status_code == 400
    server.switches.strict = False
    assert submit(server, uri, body).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        changed("speechAnalysis", {"enableSpeakerAnalysis": True, "converstationOptions": {"simultaneousSilenceThresholdMs": "500"}}),
        changed("speech_analysis", {"converstation_options": {"simultaneous_speech_threshold_ms": 500}}),
        changed("recognitionClassifier", {"classifiers": [{"classifier": "insult", "triggers": ["ON_FINAL"]}]}),
        changed("summarization", {"modelUri": "gpt://b1g/model", "properties": [{"instruction": "Short.", "jsonObject": False}]}),
    ],
)
def test_optional_blocks_are_taken(server: SpeechKitServer, uri: str, body: dict[str, Any]):
    assert submit(server, uri, body).status_code == 200


def test_no_json_is_400(server: SpeechKitServer):
    answer = requests.post(f"{server.stt_url}/stt/v3/recognizeFileAsync", data=b"{", headers=AUTH, timeout=10)

    assert (answer.status_code, answer.json()["code"]) == (400, 3)


@pytest.mark.parametrize(
    "link", ["https://elsewhere.example/b/k.ogg", "http://recordings.127.0.0.1/k.ogg", "/b/k.ogg", "{base}/bucket-alone"]
)
def test_link_that_is_not_path_style_is_400(server: SpeechKitServer, s3: S3, link: str):
    assert submit(server, link.format(base=s3.url)).status_code == 400


def test_query_of_a_link_is_ignored(server: SpeechKitServer, uri: str):
    assert submit(server, f"{uri}?X-Amz-Signature=nonsense").status_code == 200


def test_missing_object_shows_at_submission_or_in_the_operation(server: SpeechKitServer, uri: str):
    answer = submit(server, f"{uri}.missing")
    assert (answer.status_code, answer.json()["code"], server.paid) == (404, 5, 0)

    server.switches.missing_object = "operation"
    name = submitted(server, f"{uri}.missing")
    operation(server, name)
    assert operation(server, name).json()["error"]["code"] == 5


@pytest.mark.parametrize(
    "data", [b"", b"text", b"OggS" + bytes(60) + b"vorbis", b"RIFF" + bytes(4) + b"WAVEfmt ", opus_file(3601, 4), opus_file(14401)]
)
def test_audio_that_cannot_be_recognized_shows_in_the_operation_or_at_submission(s3: S3, bucket: str, server: SpeechKitServer, data: bytes):
    link = s3.put(bucket, f"bad/{len(data)}-{hash(data)}", data)

    name = submitted(server, link)
    operation(server, name)
    op = operation(server, name).json()

    assert (op["done"], op["error"]["code"]) == (True, 3)
    assert result(server, name).status_code == 404
    server.switches.bad_audio = "submit"
    assert submit(server, link).status_code == 400


def test_container_must_be_what_is_declared(server: SpeechKitServer, uri: str):
    server.switches.bad_audio = "submit"

    wrong = submit(server, uri, changed("recognitionModel.audioFormat.containerAudio.containerAudioType", "MP3"))

    assert wrong.status_code == 400


def test_wav_and_raw_are_taken_inline(server: SpeechKitServer, tmp_path: Path):
    wav = write_wav(tmp_path / "a.wav", silence(3), silence(3)).read_bytes()

    def inline(audio_format: dict[str, Any], data: bytes) -> requests.Response:
        body = {"content": base64.b64encode(data).decode(), "recognitionModel": {"model": "general", "audioFormat": audio_format}}
        return requests.post(f"{server.stt_url}/stt/v3/recognizeFileAsync", json=body, headers=AUTH, timeout=10)

    raw = {"rawAudio": {"audioEncoding": "LINEAR16_PCM", "sampleRateHertz": "16000", "audioChannelCount": 1}}
    sounds = [server.operations[inline(form, wav).json()["id"]].sound for form in ({"containerAudio": {"containerAudioType": "WAV"}}, raw)]
    assert [(sound.kind, sound.channels, sound.duration_ms) for sound in sounds if sound] == [("WAV", 2, 3000), ("RAW", 1, 6001)]


def test_body_over_60_mb_is_413(server: SpeechKitServer):
    answer = requests.post(f"{server.stt_url}/stt/v3/recognizeFileAsync", data=bytes((60 << 20) + 1), headers=AUTH, timeout=30)

    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "text/html"


def test_quotas_can_be_enforced(server: SpeechKitServer, uri: str):
    server.switches.polls_a_second, server.switches.submits_an_hour = 5, 1
    name = submitted(server, uri)

    assert [operation(server, name).status_code for _ in range(6)] == [200] * 5 + [429]
    assert submit(server, uri).json()["code"] == 8
    server.clock.advance(3600)
    assert operation(server, name).status_code == 200
    assert submit(server, uri).status_code == 200


# ---- the ledger


def test_ledger_tells_the_most_calls_in_any_stretch():
    assert most_within([0.0, 0.4, 0.9, 1.0, 1.1, 5.0], 1.0) == 4
    assert most_within([], 1.0) == 0


def test_requests_are_in_the_ledger_in_order_from_many_threads(server: SpeechKitServer, uri: str):
    name = submitted(server, uri)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: operation(server, name).status_code, range(40)))

    calls = list(server.requests)
    assert [call.number for call in calls] == list(range(1, 42))
    assert server.requests.counts() == {"submit": 1, "operation": 40}
    assert server.requests.most("operation", 3600) == 40
    assert calls[0].headers["authorization"] == f"Api-Key {API_KEY}"


def test_ledger_file_counts_what_was_paid_whoever_died(s3: S3, uri: str, tmp_path: Path):
    command = [sys.executable, "-m", "tests.fakes.speechkit_server", "--s3", s3.url, "--ledger", str(tmp_path / "ledger")]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        try:
            assert process.stdout is not None
            about = json.loads(process.stdout.readline())
            link = about["url"]
            faults = {"route": "submit", "fault": "reset", "acted": True}
            assert requests.post(f"{link}/_control/fault", json=faults, timeout=10).status_code == 200
            with pytest.raises(requests.ConnectionError):
                requests.post(f"{link}/stt/v3/recognizeFileAsync", json={"uri": uri, **CAMEL}, headers=AUTH, timeout=10)
            state = requests.get(f"{link}/_control/state", timeout=10).json()
            assert (state["paid"], state["requests"]) == (1, {"submit": 1})
            assert requests.get(f"{link}/_control/most?route=submit&seconds=1", timeout=10).json() == 1
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()

    entries = read_ledger(tmp_path / "ledger")
    assert [entry["call"]["route"] for entry in entries if "call" in entry] == ["submit"]
    assert [entry["uri"] for entry in entries if "accepted" in entry] == [uri]


def test_control_steers_everything(server: SpeechKitServer, uri: str):
    def control(what: str, **said: Any) -> requests.Response:
        return requests.post(f"{server.url}/_control/{what}", json=said, timeout=10)

    control("plan", never=True)
    control("shape", pretty=True)
    control("switches", omit_empty=False)
    name = submitted(server, uri)
    assert operation(server, name).json()["done"] is False
    control("finish", id=name)
    assert operation(server, name).json()["done"] is True
    assert result(server, name).text.startswith('{\n  "result"')
    control("keys", keys={"another": "aje"})
    assert operation(server, name).status_code == 401
    control("fault", route="operation", fault="status", times=None, status=503, shape="html")
    assert operation(server, name).headers["Content-Type"] == "text/html"
    control("clear")
    control("advance", seconds=60)
    assert server.clock.now() == datetime(2026, 9, 14, 8, 12, 2, tzinfo=UTC)
    assert control("fault", route="operation", fault="no-such").status_code == 400


# ---- faults


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("shape", ["status", "status_old", "stream_old", "stream", "html", "empty", "text"])
def test_status_in_every_shape_starts_nothing(server: SpeechKitServer, uri: str, status: int, shape: str):
    server.faults.next("submit", Status(status=status, shape=shape, retry_after="7"))

    answer = submit(server, uri)

    assert answer.status_code == status
    assert answer.headers["Retry-After"] == "7"
    assert answer.headers["x-request-id"]
    if shape in ("html", "empty", "text"):
        with pytest.raises(requests.exceptions.JSONDecodeError):
            answer.json()
    else:
        wrapped = answer.json().get("error")
        assert type(wrapped) is {"status": type(None), "status_old": str}.get(shape, dict)
    assert server.paid == 0
    assert submit(server, uri).status_code == 200


@pytest.mark.parametrize("acted", [False, True])
@pytest.mark.parametrize("fault", [Reset, Close])
@pytest.mark.parametrize("route", ["submit", "operation", "result", "delete"])
def test_connection_ends_before_or_after_the_effect(server: SpeechKitServer, uri: str, route: str, fault: type[Fault], acted: bool):
    name = finished(server, uri)
    server.faults.next(route, fault(acted=acted))

    with pytest.raises(requests.ConnectionError) as raised:
        call_any(server, route, uri, name)

    assert ("reset by peer" in str(raised.value)) == (fault is Reset)
    assert server.paid == 1 + (route == "submit" and acted)
    assert server.operations[name].deleted == (route == "delete" and acted)
    assert server.requests.count(route) == 1 + (route in ("submit", "operation"))


def test_gateway_error_after_the_operation_is_created(server: SpeechKitServer, uri: str):
    server.faults.next("submit", Status(status=502, shape="html", acted=True))

    assert submit(server, uri).status_code == 502
    assert server.paid == 1


@pytest.mark.parametrize(("acted", "paid"), [(True, 1), (False, 0)])
def test_answer_later_than_the_timeout(server: SpeechKitServer, uri: str, acted: bool, paid: int):
    hold = Hold(acted=acted)
    server.faults.next("submit", hold)

    with pytest.raises(requests.ReadTimeout):
        submit(server, uri, timeout=0.3)

    assert hold.arrived.wait(5)
    assert server.paid == paid


def test_delay_is_waited_for(server: SpeechKitServer, uri: str):
    server.faults.next("submit", Delay(seconds=0.05))

    assert submit(server, uri).elapsed.total_seconds() >= 0.05


def test_garbage_after_acceptance(server: SpeechKitServer, uri: str):
    server.faults.next("submit", Body(body="<html>"))

    assert submit(server, uri).text == "<html>"
    assert server.paid == 1


def test_faults_come_in_their_order_so_many_times_and_after_so_many(server: SpeechKitServer, uri: str):
    name = submitted(server, uri)
    server.faults.next("operation", Status(status=503), times=2, skip=1)
    server.faults.always("operation", Status(status=429), skip=1)

    assert [operation(server, name).status_code for _ in range(6)] == [200, 503, 503, 429, 429, 429]
    server.faults.clear("operation")
    assert operation(server, name).status_code == 200


@pytest.mark.parametrize("rolling_back", [False, True])
def test_operation_fails(server: SpeechKitServer, uri: str, rolling_back: bool):
    server.next_plans = [Plan(polls=1, error=3, rolling_back=rolling_back)]
    name = submitted(server, uri)
    operation(server, name)

    op = operation(server, name).json()

    assert op["error"] == {"code": 3, "message": "audio cannot be decoded", "details": []}
    assert op.get("done", False) is not rolling_back
    assert result(server, name).status_code == 404


def test_failed_operation_may_repeat_its_error_as_the_result(server: SpeechKitServer, uri: str):
    server.switches.failed_result = "same"
    server.next_plans = [Plan(polls=0, error=3)]
    name = submitted(server, uri)
    operation(server, name)

    assert (result(server, name).status_code, result(server, name).json()["error"]["grpcCode"]) == (400, 3)


def test_result_is_hidden_for_a_while(server: SpeechKitServer, uri: str):
    server.plan = Plan(hidden=2)
    name = finished(server, uri)

    assert [result(server, name).status_code for _ in range(3)] == [404, 404, 200]


def test_empty_result(server: SpeechKitServer, uri: str):
    name = finished(server, uri)
    server.faults.next("result", Body(body=b""))

    first, second = result(server, name), result(server, name)

    assert (first.status_code, first.content) == (200, b"")
    assert second.content


def test_stream_breaks_off_in_an_object(server: SpeechKitServer, uri: str):
    name = finished(server, uri)
    whole = result(server, name).content
    server.faults.next("result", Cut(share=0.5))
    server.faults.next("result", Cut(share=0.5, clean=True))

    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        result(server, name)
    assert result(server, name).content == whole[: len(whole) // 2]


def test_late_error_in_the_stream(server: SpeechKitServer, uri: str):
    name = finished(server, uri)
    server.faults.next("result", Reshape.of(error_after=2))

    lines = result(server, name).text.splitlines()

    assert len(lines) == 3
    assert json.loads(lines[-1]) == {
        "error": {"grpcCode": 13, "httpCode": 500, "message": "internal error", "httpStatus": "Internal Server Error", "details": []}
    }
    assert len(result(server, name).text.splitlines()) == 9


# ---- shapes


def shaped(server: SpeechKitServer, uri: str, **shape: Any) -> requests.Response:
    server.shape = Shape(**shape)
    return result(server, finished(server, uri))


def test_pretty_objects(server: SpeechKitServer, uri: str):
    text = shaped(server, uri, pretty=True).text
    assert '\n  "result": {\n' in text
    decoder, at, found = json.JSONDecoder(), 0, 0
    while at < len(text.rstrip()):
        _, end = decoder.raw_decode(text, at)
        at, found = end + 1, found + 1
    assert found == 9


def test_several_objects_on_a_line_and_no_last_newline(server: SpeechKitServer, uri: str):
    text = shaped(server, uri, per_line=4, trailing_newline=False).text

    assert text.count("\n") == 2
    assert text.count('}{"result"') == 6
    assert text.endswith("}")


def test_objects_without_their_wrapper(server: SpeechKitServer, uri: str):
    assert "final" in json.loads(shaped(server, uri, bare_objects=True).text.splitlines()[0])


@pytest.mark.parametrize(
    ("refinements", "expected"),
    [
        ("late", ["final", "eouUpdate"] * 3 + ["finalRefinement"] * 3),
        ("none", ["final", "eouUpdate"] * 3),
        ("some", ["final", "finalRefinement", "eouUpdate", "final", "eouUpdate", "final", "finalRefinement", "eouUpdate"]),
        ("alone", ["finalRefinement", "eouUpdate"] * 3),
    ],
)
def test_refinements_late_or_missing(server: SpeechKitServer, uri: str, refinements: str, expected: list[str]):
    events = results(shaped(server, uri, refinements=refinements))

    assert kinds(events) == expected
    if refinements == "late":  # the cursor is ahead by then, and does not name their final
        assert [(event["finalRefinement"]["finalIndex"], event["audioCursors"]["finalIndex"]) for event in events[-3:]] == [
            ("0", "2"),
            ("1", "2"),
            ("2", "2"),
        ]


@pytest.mark.parametrize(
    ("shape", "tags", "indices"),
    [
        ({"channel_order": "blocks"}, "000111", "012012"),
        ({"channel_order": "reversed"}, "101010", "221100"),
        ({"final_index": "global"}, "010101", "012345"),
    ],
)
def test_channels_in_another_order(server: SpeechKitServer, stereo: str, shape: dict[str, Any], tags: str, indices: str):
    finals = [event for event in results(shaped(server, stereo, **shape)) if "final" in event]

    assert "".join(event["channelTag"] for event in finals) == tags
    assert "".join(event["audioCursors"]["finalIndex"] for event in finals) == indices


@pytest.mark.parametrize(
    ("tags", "outer", "inner"), [("both", True, True), ("outer", True, False), ("inner", False, True), ("none", False, False)]
)
def test_channel_tag_outside_or_inside(server: SpeechKitServer, uri: str, tags: str, outer: bool, inner: bool):
    events = results(shaped(server, uri, tags=tags))

    assert [("channelTag" in event) for event in events[:2]] == [outer, outer]
    assert [("channelTag" in events[0]["final"]), ("channelTag" in events[1]["finalRefinement"]["normalizedText"])] == [inner, inner]


def test_duplicates_unknown_events_partials_and_status_codes(server: SpeechKitServer, uri: str):
    shape = {"duplicate_finals": True, "unknown_events": True, "partials": True, "status_codes": True}

    assert kinds(results(shaped(server, uri, **shape))) == [
        "statusCode",
        *["partial", "final", "final", "finalRefinement", "moodUpdate", "eouUpdate"] * 3,
        "statusCode",
    ]


def test_numbers_instead_of_strings(server: SpeechKitServer, uri: str):
    text = shaped(server, uri, numbers=True).text

    assert not re.search(r'"\w+(Ms|Index)":"', text)
    assert '"endTimeMs":5000' in text


def test_absent_defaults(server: SpeechKitServer, uri: str):
    events = results(shaped(server, uri, omit_defaults=True))

    assert "finalIndex" not in events[0]["audioCursors"]
    assert "finalIndex" not in events[1]["finalRefinement"]
    assert set(events[0]["final"]["alternatives"][0]) == {"words", "text", "endTimeMs"}


def test_finals_without_a_cursor(server: SpeechKitServer, uri: str):
    assert all("finalIndex" not in event["audioCursors"] for event in results(shaped(server, uri, cursor=False)))


def test_analysis_and_summary(server: SpeechKitServer, stereo: str):
    events = results(shaped(server, stereo, analysis=True, summary=True))

    assert kinds(events)[-5:] == ["classifierUpdate", "speakerAnalysis", "speakerAnalysis", "conversationAnalysis", "summarization"]
    assert [event["speakerAnalysis"]["speakerTag"] for event in events[-4:-2]] == ["0", "1"]
    assert events[-1]["channelTag"] == ""


def test_four_hours_are_tens_of_megabytes(server: SpeechKitServer, s3: S3, bucket: str):
    server.recognizer = FixedText(every_ms=1500)

    name = finished(server, s3.put(bucket, "r/long.ogg", opus_file(4 * 3600)))

    assert len(result(server, name, timeout=60).content) > 15_000_000


# ---- what it stands on


def test_recognizer_that_is_slow_keeps_its_operation_running(s3: S3, uri: str):
    release = threading.Event()

    class Slow:
        slow = True

        def __call__(self, sound: Sound, language: str) -> list[Phrase]:
            release.wait(20)
            return FixedText()(sound, language)

    with SpeechKitServer(s3.url, recognizer=Slow()) as server:
        name = submitted(server, uri)
        server.finish()
        assert "done" not in operation(server, name).json()
        release.set()
        assert server.operations[name].heard.wait(10)
        assert operation(server, name).json()["done"] is True
        assert "final" in kinds(results(result(server, name)))


def test_failure_of_the_stand_in_itself_fails_the_test(s3: S3, uri: str):
    class Broken:
        slow = False

        def __call__(self, sound: Sound, language: str) -> list[Phrase]:
            raise ZeroDivisionError

    with pytest.raises(AssertionError, match="stand-in failed"), SpeechKitServer(s3.url, recognizer=Broken()) as server:
        finished(server, uri)


def test_server_stops_while_connections_idle_and_requests_hang(s3: S3, uri: str):
    with SpeechKitServer(s3.url) as server, requests.Session() as session:
        session.get(f"{server.operations_url}/operations/x", headers=AUTH, timeout=10)
        server.faults.next("submit", Delay(seconds=60))
        with pytest.raises(requests.ReadTimeout):
            submit(server, uri, timeout=0.2)
        port = int(server.stt_url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


@pytest.mark.parametrize(("seconds", "channels"), [(0.5, 1), (12.4, 2), (14400, 1)])
def test_made_opus_files_are_read_as_they_say(seconds: float, channels: int):
    sound = sound_of(opus_file(seconds, channels, pages=3))

    assert (sound.kind, sound.duration_ms, sound.channels) == ("OGG_OPUS", round(seconds * 1000), channels)


def test_renamed_files_are_no_audio():
    for data in (b"", b"\x1aE\xdf\xa3webm", b"OggS" + bytes(100)):
        with pytest.raises(NotAudio):
            sound_of(data)
