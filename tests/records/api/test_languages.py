"""Every error comes in the asker's language: Accept-Language chooses, and programs see the same codes whatever it says."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation
from knox.models import get_token_model
from rest_framework.test import APIClient

from records.models import AudioRecord, RecordEvent
from records.operations import intake
from records.states import EventOutcome, HaltReason, Origin, State
from tests.factories import make_record, make_user
from tests.records.api.conftest import body_of
from tests.records.api.forms import BOUNDARY, RECORDS, form, part, post

pytestmark = pytest.mark.django_db

CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
SAME_EVERYWHERE = re.compile(
    r"X-CSRFToken|Content-[A-Za-z]+|Idempotency-Key|ASCII|JSON|UTF-8|UUID|BCP-47|boundary|filename|attachment|file\b|true|false"
    r"|[\"«][^\"«»]*[\"»]|\ben\b|\bpt-BR\b|asleep|ISO 8601|T12:30:00Z"
)
"""Names of headers, formats and fields, and what was sent, in quotes."""


def of(record: str) -> str:
    return f"{RECORDS}{record}/"


Call = Callable[..., Any]
CALLS: dict[str, Call] = {
    "nobody": lambda api, record, **more: APIClient().get(RECORDS, **more),
    "a bad token": lambda api, record, **more: APIClient().get(RECORDS, HTTP_AUTHORIZATION="Token é", **more),
    "an unknown token": lambda api, record, **more: APIClient().get(RECORDS, HTTP_AUTHORIZATION=f"Token {'0' * 64}", **more),
    "no credentials": lambda api, record, **more: APIClient().get(RECORDS, HTTP_AUTHORIZATION="Token", **more),
    "blanks in a token": lambda api, record, **more: APIClient().get(RECORDS, HTTP_AUTHORIZATION="Token a b", **more),
    "another's record": lambda api, record, **more: api.get(of(str(uuid.UUID(int=7))), **more),
    "no address": lambda api, record, **more: api.get("/api/v1/nothing/at/all/", **more),
    "no slash": lambda api, record, **more: api.post("/api/v1/records", **more),
    "no method": lambda api, record, **more: api.put(of(record), {}, format="json", **more),
    "no media type": lambda api, record, **more: api.patch(of(record), "x", content_type="text/plain", **more),
    "nothing acceptable": lambda api, record, **more: api.get(f"{of(record)}transcript/", HTTP_ACCEPT="image/png", **more),
    "no JSON": lambda api, record, **more: api.patch(of(record), "{", content_type="application/json", **more),
    "no text": lambda api, record, **more: api.patch(of(record), b"\xff", content_type="application/json", **more),
    "nested JSON": lambda api, record, **more: api.patch(of(record), "[" * 100_000, content_type="application/json", **more),
    "a list": lambda api, record, **more: api.patch(of(record), [1], format="json", **more),
    "a field that is none": lambda api, record, **more: api.patch(of(record), {"owner": "me"}, format="json", **more),
    "a title of 256": lambda api, record, **more: api.patch(of(record), {"title": "x" * 256}, format="json", **more),
    "a title that is a list": lambda api, record, **more: api.patch(of(record), {"title": [1]}, format="json", **more),
    "a null": lambda api, record, **more: api.patch(of(record), {"title": None}, format="json", **more),
    "a zero byte": lambda api, record, **more: api.patch(of(record), {"brief": "a\0b"}, format="json", **more),
    "a surrogate": lambda api, record, **more: api.patch(of(record), '{"title": "\\ud800"}', content_type="application/json", **more),
    "a filter that is none": lambda api, record, **more: api.get(RECORDS, {"colour": "red"}, **more),
    "a status that is none": lambda api, record, **more: api.get(RECORDS, {"status": "asleep"}, **more),
    "a boolean that is none": lambda api, record, **more: api.get(RECORDS, {"halted": "perhaps"}, **more),
    "a moment that is none": lambda api, record, **more: api.get(RECORDS, {"created_after": "yesterday"}, **more),
    "a cursor that is none": lambda api, record, **more: api.get(RECORDS, {"cursor": "x"}, **more),
    "a key that is none": lambda api, record, **more: post(api, form(part("file", b"x", filename="a")), HTTP_IDEMPOTENCY_KEY="é", **more),
    "nothing sent": lambda api, record, **more: post(api, form(part("file", b"", filename="")), **more),
    "an empty file": lambda api, record, **more: post(api, form(part("file", b"", filename="a.wav")), **more),
    "an empty body": lambda api, record, **more: post(api, b"", **more),
    "no file": lambda api, record, **more: post(api, form(part("title", b"x")), **more),
    "two files": lambda api, record, **more: post(api, form(part("file", b"x", filename="a"), part("file", b"y", filename="b")), **more),
    "many parts": lambda api, record, **more: post(api, form(*(part(f"f{n}", b"x") for n in range(30))), **more),
    "a long field": lambda api, record, **more: post(api, form(part("title", b"x" * 20_000)), **more),
    "a field that is no UTF-8": lambda api, record, **more: post(api, form(part("title", b"\xff")), **more),
    "a part without a name": lambda api, record, **more: post(api, form(b"--" + BOUNDARY.encode() + b"\r\nX: y\r\n\r\nz\r\n"), **more),
    "base64": lambda api, record, **more: post(api, form(part("file", b"x", filename="a", Content_Transfer_Encoding="base64")), **more),
    "an open form": lambda api, record, **more: post(api, part("file", b"x", filename="a"), **more),
    "a damaged boundary": lambda api, record, **more: post(api, f"--{BOUNDARY}xx".encode(), **more),
    "no boundary": lambda api, record, **more: post(api, b"x", content_type="multipart/form-data", **more),
    "cut off": lambda api, record, **more: post(api, form(part("file", b"x", filename="a")), announced=5000, **more),
    "no name": lambda api, record, **more: post(api, b"x", content_type="audio/wav", **more),
    "no length": lambda api, record, **more: post(api, b"x", **{**more, "CONTENT_LENGTH": ""}),
    "a length that is none": lambda api, record, **more: post(api, b"x", **{**more, "CONTENT_LENGTH": "-1"}),
    "a language that is none": lambda api, record, **more: post(
        api, form(part("file", b"x", filename="a"), part("language", "по-русски".encode())), **more
    ),
    "too large": lambda api, record, **more: post(api, b"x", announced=10**17, **more),
    "no recording": lambda api, record, **more: post(api, b"{}", content_type="application/json", **more),
    "not halted": lambda api, record, **more: api.post(f"{of(record)}resume/", **more),
    "no transcript yet": lambda api, record, **more: api.get(f"{of(record)}transcript.srt", **more),
    "no normalized copy yet": lambda api, record, **more: api.get(f"{of(record)}audio/normalized/", **more),
    "no such range": lambda api, record, **more: api.get(f"{of(record)}audio/original/", HTTP_RANGE="bytes=900-", **more),
    "no csrf token": lambda api, record, **more: _with_session().post(f"{of(record)}halt/", **more),
}


def _with_session() -> APIClient:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="anna"))
    return client


@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_said_in_the_askers_language(name, api, anna, now):
    record = str(make_record(owner=anna, now=now).pk)

    said = {language: CALLS[name](api, record, HTTP_ACCEPT_LANGUAGE=language) for language in ("en", "ru")}

    for language, answer in said.items():
        assert answer.status_code >= 400
        assert answer["Content-Language"] == language
        assert "Accept-Language" in answer["Vary"]
    errors = {language: answer.json()["errors"] for language, answer in said.items()}
    assert said["en"].status_code == said["ru"].status_code
    assert said["en"].json()["type"] == said["ru"].json()["type"]
    assert [(e["code"], e["attr"]) for e in errors["en"]] == [(e["code"], e["attr"]) for e in errors["ru"]]
    for error in errors["en"]:
        assert not CYRILLIC.search(error["detail"])
    for error in errors["ru"]:
        assert CYRILLIC.search(error["detail"]), error
        assert not re.findall("[A-Za-z]{2,}", SAME_EVERYWHERE.sub("", error["detail"])), error


@pytest.mark.parametrize(
    ("accepted", "spoken"),
    [
        ("ru", "ru"),
        ("ru-RU,ru;q=0.9,en;q=0.5", "ru"),
        ("de, ru;q=0.8", "ru"),
        ("en, ru;q=0.8", "en"),
        ("de", "en"),
        ("*", "en"),
        ("", "en"),
        ("x" * 5000, "en"),
        ("ru\udcff;q=é", "en"),
    ],
)
def test_who_names_no_language_of_ours_is_answered_in_english(api, accepted, spoken):
    answer = api.get(f"{RECORDS}{uuid.uuid4()}/", HTTP_ACCEPT_LANGUAGE=accepted)

    assert answer["Content-Language"] == spoken
    assert bool(CYRILLIC.search(answer.json()["errors"][0]["detail"])) == (spoken == "ru")


def test_refusals_of_the_intake(api, sound, monkeypatch):
    for refusal in intake.IntakeRefused.__subclasses__():

        def take_in(*args: Any, refusal: type[intake.IntakeRefused] = refusal, **more: Any) -> None:
            raise refusal

        monkeypatch.setattr(intake, "take_in", take_in)
        said = {
            language: post(api, form(part("file", sound, filename="a")), HTTP_ACCEPT_LANGUAGE=language).json()["errors"][0]
            for language in ("en", "ru")
        }
        assert said["en"]["code"] == said["ru"]["code"] == refusal.code
        assert CYRILLIC.search(said["ru"]["detail"])
        assert not CYRILLIC.search(said["en"]["detail"])


@pytest.mark.filterwarnings("ignore:Bad Request")
def test_what_is_refused_before_a_view_is_asked(api):
    """The thread still speaks the language of its last request; this one's own counts."""
    assert api.get(f"{RECORDS}{uuid.uuid4()}/", HTTP_ACCEPT_LANGUAGE="ru")["Content-Language"] == "ru"

    for language, detail in (("en", "The request can't be answered."), ("ru", "На этот запрос нельзя ответить.")):
        answer = Client(raise_request_exception=False).get(RECORDS, HTTP_HOST="elsewhere.example", HTTP_ACCEPT_LANGUAGE=language)
        assert answer.status_code == 400
        assert answer.json()["errors"][0] == {"code": "bad_request", "detail": detail, "attr": None}
        assert answer["Content-Language"] == language


def test_a_fault_of_ours(api, monkeypatch):
    def fail(*args: Any, **more: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("records.queries.shown", fail)
    for language, detail in (("en", "Server Error (500)"), ("ru", "Ошибка сервера (500)")):
        answer = api.get(RECORDS, HTTP_ACCEPT_LANGUAGE=language)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (500, "error")
        assert answer.json()["errors"][0]["detail"] == detail


# ---- what was written long ago ----------------------------------------------------------------------------------------------------------


def halted(anna: User, now: Any, **more: Any) -> AudioRecord:
    return make_record(owner=anna, now=now, **{"halted_at": now, "halt_reason": HaltReason.REJECTED, **more})


def test_what_a_worker_wrote_in_english_is_read_in_russian(api, anna, now):
    text = "Waited for the provider longer than 1 day, 0:00:00. SpeechKit answered with an error (HTTP 503, gRPC 14)."
    record = halted(anna, now, halt_reason=HaltReason.STUCK, error_code="provider_failed", error_text=text)

    read = {language: api.get(of(str(record.pk)), HTTP_ACCEPT_LANGUAGE=language).json() for language in ("en", "ru")}

    assert read["en"]["error"] == {"code": "provider_failed", "message": text}
    assert read["ru"]["error"] == {
        "code": "provider_failed",
        "message": "Ожидание провайдера длилось дольше предела (1 дн., 0:00:00). SpeechKit ответил ошибкой (HTTP 503, gRPC 14).",
    }
    assert {**read["en"], "error": None} == {**read["ru"], "error": None}, "nothing else depends on the language"


def test_a_halt_without_a_text_has_a_sentence_by_its_reason(api, anna, now):
    for reason in HaltReason:
        record = halted(anna, now, halt_reason=reason)
        read = {language: api.get(of(str(record.pk)), HTTP_ACCEPT_LANGUAGE=language).json()["error"] for language in ("en", "ru")}
        assert read["en"]["code"] == read["ru"]["code"] == reason.value
        assert CYRILLIC.search(read["ru"]["message"])
        assert not CYRILLIC.search(read["en"]["message"])


def test_what_is_waited_for(api, anna, now):
    record = make_record(
        State.NORMALIZED, owner=anna, now=now, error_code="provider_quota", error_text="Waits for its turn within the provider's quota."
    )

    said = api.get(of(str(record.pk)), HTTP_ACCEPT_LANGUAGE="ru").json()["waiting_for"]

    assert said == {"code": "provider_quota", "message": "Ждёт своей очереди в пределах квоты провайдера."}


def test_a_text_that_nobody_knows_stays_as_it_is(api, anna, now):
    for text in ("A third party's own words: %s {braces} \\d.", "The recording is longer than allow", "x. " * 300 + "x"):
        record = halted(anna, now, error_code="odd", error_text=text)
        assert api.get(of(str(record.pk)), HTTP_ACCEPT_LANGUAGE="ru").json()["error"]["message"] == text


def test_the_journal_is_read_in_the_readers_language(api, anna, now):
    record = make_record(owner=anna, now=now)
    for outcome, text in [
        (EventOutcome.FAILED, "disk_full: There is no space left on the disk."),
        (EventOutcome.HALTED, "exhausted: disk_full: There is no space left on the disk. Tried 8 times."),
        (EventOutcome.RESUMED, "at uploaded"),
        (EventOutcome.ADVANCED, "uploaded → normalized"),
    ]:
        RecordEvent.objects.create(record=record, origin=Origin.WORKER, outcome=outcome, outcome_text=text)

    rows = api.get(f"{of(str(record.pk))}events/", HTTP_ACCEPT_LANGUAGE="ru").json()["results"]

    assert [row["outcome_text"] for row in rows] == [
        "disk_full: На диске кончилось место.",
        "exhausted: disk_full: На диске кончилось место. Попыток: 8.",
        "в состоянии uploaded",
        "uploaded → normalized",
    ]
    assert [row["outcome"] for row in rows] == ["failed", "halted", "resumed", "advanced"]


def test_what_is_written_in_a_russian_request_is_english(api, anna, now):
    record = make_record(owner=anna, now=now)

    api.post(f"{of(str(record.pk))}halt/", HTTP_ACCEPT_LANGUAGE="ru")
    api.post(f"{of(str(record.pk))}resume/", HTTP_ACCEPT_LANGUAGE="ru")

    assert list(record.events.order_by("id").values_list("outcome_text", flat=True)) == ["at uploaded", "at uploaded"]


def test_a_worker_writes_english_whatever_its_thread_speaks(worker, anna, now):
    record = make_record(owner=anna, now=now, contents=b"no sound at all")

    with translation.override("ru"):
        assert worker.work_once(record.pk)

    record.refresh_from_db()
    assert (record.halt_reason, record.error_code) == ("rejected", "not_media")
    assert record.error_text == "This is not an audio or video recording."
    assert record.events.get().outcome_text == "rejected: not_media: This is not an audio or video recording."


# ---- the language of an answer ----------------------------------------------------------------------------------------------------------


def test_sound_and_transcripts_are_in_their_own_language(api, anna, now):
    record = make_record(State.DONE, owner=anna, now=now)

    for kind in ("json", "txt", "srt", "vtt"):
        answer = api.get(f"{of(str(record.pk))}transcript.{kind}", HTTP_ACCEPT_LANGUAGE="ru")
        assert answer["Content-Language"] == "en", "what was spoken"
    chosen = api.get(f"{of(str(record.pk))}transcript/", HTTP_ACCEPT_LANGUAGE="ru")
    assert {"Accept", "Accept-Language"} <= set(re.split(r",\s*", chosen["Vary"]))
    record.structure.language = ""
    record.structure.save()
    assert "Content-Language" not in api.get(f"{of(str(record.pk))}transcript.srt").headers
    sound = api.get(f"{of(str(record.pk))}audio/original/", HTTP_ACCEPT_LANGUAGE="ru")
    assert body_of(sound) == b"sound"
    assert "Content-Language" not in sound.headers


def test_moments_stay_utc_whatever_the_viewers_clock_says(anna, now):
    client = APIClient()
    client.force_login(anna)
    client.cookies["timezone"] = "Asia/Tokyo"
    record = make_record(owner=anna, now=now, acquire_expires_at=None)

    assert client.get(of(str(record.pk))).json()["created"] == "2026-01-02T03:04:05Z"
    filtered = client.get(RECORDS, {"created_after": (now + timedelta(seconds=1)).isoformat()}).json()["results"]
    assert filtered == []


def test_the_specification_is_english_and_says_how_to_ask(client: Client):
    written = {language: client.get("/api/v1/schema/", HTTP_ACCEPT_LANGUAGE=language).content for language in ("en", "ru")}

    assert written["en"] == written["ru"]
    assert b"Accept-Language" in written["en"]
    assert not CYRILLIC.search(written["en"].decode().replace("Русский", ""))


@pytest.mark.django_db(transaction=True)
def test_over_http_two_askers_at_once_are_each_answered_in_their_own(live_server):
    token = get_token_model().objects.create(user=make_user())[1]
    headers = {"Authorization": f"Token {token}"}
    with requests.Session() as english, requests.Session() as russian:
        english.trust_env = russian.trust_env = False
        for _time in range(3):
            for session, language, detail in ((english, "en-GB", "No AudioRecord"), (russian, "ru-RU", "")):
                answer = session.get(f"{live_server.url}{RECORDS}{uuid.uuid4()}/", headers={**headers, "Accept-Language": language})
                assert answer.status_code == 404
                assert answer.headers["Content-Language"] == language[:2]
                assert answer.headers["Content-Type"] == "application/json"
                assert bool(CYRILLIC.search(answer.json()["errors"][0]["detail"])) == (language == "ru-RU"), detail
