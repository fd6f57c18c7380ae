from __future__ import annotations

import errno
import io
import os
import shutil
from collections import namedtuple
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.http import UnreadablePostError
from django.test import Client
from rest_framework.test import APIClient

from records.models import AudioRecord, File, IntakeKey
from records.operations.intake import Arrival
from records.pipeline.dispatch import Worker
from tests.factories import make_user
from tests.records.api.conftest import client_of, code_of
from tests.records.api.forms import BOUNDARY, FORM, RECORDS, Unread, form, part, post

pytestmark = pytest.mark.django_db


UNREAD: dict[str, Any] = {"wsgi.input": Unread()}


def send(client: APIClient, contents: bytes, name: str = "a.wav", **fields: str):
    return client.post(RECORDS, {"file": SimpleUploadedFile(name, contents), **fields}, format="multipart")


# ---- what is accepted ---------------------------------------------------------------------------------------------------------------


def test_a_form_becomes_a_record(api, anna, sound, stored):
    answer = send(api, sound, "Talk.wav", title="The talk", language="pt-br")

    assert answer.status_code == 202
    record = AudioRecord.objects.get()
    assert answer.json()["id"] == str(record.pk)
    assert answer["Location"] == f"http://testserver/api/v1/records/{record.pk}/"
    assert answer["Retry-After"] == "1"
    assert (record.owner, record.title, record.language, record.state) == (anna, "The talk", "pt-BR", "uploaded")
    [path] = stored()
    assert path.read_bytes() == sound
    assert record.original_file.size == len(sound)
    assert path.as_posix().endswith(record.original_file.location)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_raw_body_becomes_a_record(api, sound, stored):
    answer = post(
        api,
        sound,
        content_type="audio/x-wav",
        HTTP_CONTENT_DISPOSITION="attachment; filename*=utf-8''%D0%A0%D0%B5%D1%87%D1%8C.wav",
        HTTP_CONTENT_LANGUAGE="ru",
    )

    assert answer.status_code == 202, answer.content
    assert (answer.json()["title"], answer.json()["language"]) == ("Речь", "ru")
    assert [path.read_bytes() for path in stored()] == [sound]


def test_a_raw_name_may_be_plain_utf8_and_the_declared_type_is_not_believed(api, sound):
    name = "Речь.wav".encode().decode("latin-1")  # as a WSGI server hands it out

    answer = post(api, sound, content_type="application/x-www-form-urlencoded", HTTP_CONTENT_DISPOSITION=f'attachment; filename="{name}"')

    assert answer.status_code == 202
    assert answer.json()["title"] == "Речь"


def test_what_was_uploaded_goes_through_the_pipeline(api, sound, scripted, clock):
    record_id = send(api, sound).json()["id"]
    clock.now = AudioRecord.objects.get().created

    while Worker(clock=clock).work_once():
        pass

    answer = api.get(f"{RECORDS}{record_id}/")
    assert answer.json()["status"] == "done"
    assert api.get(f"{RECORDS}{record_id}/transcript.txt").content.decode() == "Hello there.\nGoodbye.\n"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("PTT-20250101-WA0007.opus", "PTT-20250101-WA0007"),
        ("blob", "blob"),
        ("DICTAPHONE.WAV", "DICTAPHONE"),
        ("Новая запись 12.m4a", "Новая запись 12"),
        ("🎙️ идея 👩‍💻.oga", "🎙️ идея 👩‍💻"),
        ("تسجيل \u200f1.ogg", "تسجيل \u200f1"),
        ("-i -y.oga", "-i -y"),
        ("12:30 звонок.oga", "12:30 звонок"),
        ("Talk on 12.30", "Talk on 12.30"),
        ("100%d готово.oga", "100%d готово"),
        ("a" * 140 + ".oga", "a" * 140),
        ("x" * 300 + ".oga", "x" * 255),
        ("я" * 300, "я" * 255),
        ("🎙" * 300 + ".oga", "🎙" * 255),
        ("../../etc/passwd.wav", "passwd"),
        ("C:\\Recordings\\call.wav", "call"),
        ("..", ".."),
        (".wav", ".wav"),
        ("bell\x07tab\there\x00\u2028.wav", "belltabhere"),
        ("  spaces .wav", "spaces"),
        ("semi;colon.wav", "semi;colon"),
        ("&amp;.wav", "&amp;"),
    ],
)
def test_the_title_is_the_name_without_its_extension(api, sound, stored, name, title):
    answer = post(api, form(part("file", sound, filename=name, Content_Type="audio/ogg")))

    assert answer.status_code == 202, answer.content
    assert answer.json()["title"] == title
    assert AudioRecord.objects.get().title == title
    [path] = stored()
    assert path.name == "original"


def test_a_percent_encoded_name_of_300_letters_fits(api, sound):
    encoded = "%D1%8F" * 300
    body = form(part("file", sound).replace(b'name="file"', f"name=\"file\"; filename*=utf-8''{encoded}.oga".encode()))

    answer = post(api, body)

    assert answer.status_code == 202, answer.content
    assert answer.json()["title"] == "я" * 255


def test_fields_may_come_after_the_file_and_the_name_may_be_missing(api, sound):
    answer = post(api, form(part("file", sound, filename=""), part("title", "Поздно".encode()), part("language", b" ")))

    assert answer.status_code == 202, answer.content
    assert (answer.json()["title"], answer.json()["language"]) == ("Поздно", None)


def test_bytes_that_look_like_boundaries_are_bytes(api, stored):
    contents = f"\r\n--{BOUNDARY[:-1]}\r\n\r\n--\r\n".encode() * 5000 + b"\r\n"

    answer = post(api, form(part("file", contents, filename="a")))

    assert answer.status_code == 202
    assert [path.read_bytes() for path in stored()] == [contents]


# ---- what is refused ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_stored(stored):
    """Afterwards there is neither a row nor a byte."""
    yield
    assert not AudioRecord.objects.exists()
    assert not File.objects.exists()
    assert not IntakeKey.objects.exists()
    assert stored() == []


@pytest.mark.usefixtures("nothing_stored")
class TestRefused:
    def test_a_form_cut_off_at_any_byte(self, api):
        body = form(part("title", b"t"), part("file", b"RIFF....", filename="a.wav"), part("language", b"en"))
        whole = len(body) - len(b"\r\n")  # the last line break says nothing

        for length in range(1, whole):
            answer = post(api, body[:length], announced=len(body))
            assert (answer.status_code, code_of(answer)) == (400, "cut_off"), length
            answer = post(api, body[:length])  # and where something on the way has mended the length
            assert answer.status_code == 400, length
            assert code_of(answer) in ("malformed", "required"), length

    def test_a_raw_body_cut_off_at_any_byte(self, api, sound):
        for length in (0, 1, len(sound) // 2, len(sound) - 1):
            answer = post(api, sound[:length], announced=len(sound), content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a")
            assert (answer.status_code, code_of(answer)) == (400, "cut_off")

    def test_a_sender_who_goes_away(self, api, sound):
        class Gone(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise ConnectionResetError

        wire: dict[str, Any] = {"wsgi.input": Gone()}
        answer = post(api, sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **wire)

        assert (answer.status_code, code_of(answer)) == (400, "cut_off")

    def test_a_sender_who_falls_silent(self, api, sound):
        class Socket:
            timeouts: list[float | None] = []

            def settimeout(self, seconds: float | None) -> None:
                self.timeouts.append(seconds)

        class Silent(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise TimeoutError

        wire: dict[str, Any] = {"wsgi.input": Silent(), "gunicorn.socket": Socket()}
        answer = post(api, sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **wire)

        assert (answer.status_code, code_of(answer)) == (408, "too_slow")
        assert Socket.timeouts == [60.0, None]

    def test_an_empty_file(self, api):
        answer = post(api, form(part("file", b"", filename="a.wav")))

        assert (answer.status_code, code_of(answer)) == (400, "empty")
        assert answer.json()["errors"][0]["attr"] == "file"
        assert code_of(post(api, b"", content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a")) == "empty"

    @pytest.mark.parametrize(
        "body",
        [form(), form(part("title", b"t")), form(part("file", b"")), form(part("file", b"text")), form(part("file", b"", filename=""))],
    )
    def test_no_file(self, api, body):
        answer = post(api, body)

        assert (answer.status_code, code_of(answer)) == (400, "required")

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (form(part("file", b"x", filename="a"), part("file", b"y", filename="b")), "unexpected_file"),
            (form(part("audio", b"x", filename="a")), "unexpected_file"),
            (form(part("title", b"a"), part("title", b"b"), part("file", b"x", filename="a")), "repeated"),
            (form(part("file", b"x", filename="a"), part("lang", b"en")), "unknown_field"),
            (form(part("file", b"x", filename="a"), part("title", b"t" * 256)), "max_length"),
            (form(part("file", b"x", filename="a"), part("title", b"t\0")), "null_characters_not_allowed"),
            (form(part("file", b"x", filename="a"), part("title", b"\xff")), "malformed"),
            (form(part("file", b"x", filename="a"), part("title", b"t" * 20000)), "malformed"),
            (form(part("file", b"x", filename="a" * 20000)), "malformed"),
            (form(*[part(f"title{n}", b"t") for n in range(30)]), "malformed"),
            (form(part("file", b"eA==", filename="a", Content_Transfer_Encoding="base64")), "malformed"),
            (form(part("", b"x", filename="a")), "malformed"),
            (form(part("file", b"x", filename="a")) + b"x" * 20000, "malformed"),
            (form(part("file", b"x", filename="a"), part("language", b"english, please")), "bad_language"),
            (form(part("file", b"x", filename="a"), part("language", b"en_US")), "bad_language"),
            (form(part("file", b"x", filename="a"), part("language", b"../en")), "bad_language"),
        ],
    )
    def test_a_form_that_can_t_be_used(self, api, body, code):
        answer = post(api, body)

        assert (answer.status_code, code_of(answer)) == (400, code)

    def test_a_form_without_a_boundary(self, api):
        assert code_of(post(api, form(), content_type="multipart/form-data")) == "malformed"
        assert code_of(post(api, form(), content_type="multipart/form-data; boundary=x\x01")) == "malformed"

    def test_a_raw_body_without_a_name(self, api, sound):
        answer = post(api, sound, content_type="audio/wav")

        assert (answer.status_code, code_of(answer)) == (400, "name_missing")

    def test_json(self, api):
        answer = post(api, b'{"file": "x"}', content_type="application/json")

        assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")

    @pytest.mark.parametrize("headers", [{"CONTENT_LENGTH": ""}, {"HTTP_TRANSFER_ENCODING": "chunked"}])
    def test_no_length(self, api, sound, headers):
        answer = post(api, sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **headers)

        assert (answer.status_code, code_of(answer)) == (411, "length_required")

    @pytest.mark.parametrize("announced", ["-1", "1e3", "99999999999999999999"])
    def test_a_length_that_is_none(self, api, sound, announced):
        answer = post(api, sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", CONTENT_LENGTH=announced)

        assert (answer.status_code, code_of(answer)) == (400, "malformed")

    def test_too_large_by_the_header_alone(self, api, set_limit):
        set_limit(1000)
        unread = UNREAD

        answer = post(api, b"", announced=1001, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **unread)
        assert (answer.status_code, code_of(answer)) == (413, "too_large")
        answer = post(api, b"", announced=1000 + 2**20, **unread)
        assert (answer.status_code, code_of(answer)) == (413, "too_large")

    def test_too_large_while_it_arrives(self, api, set_limit):
        set_limit(1000)

        answer = post(api, form(part("file", b"x" * 1001, filename="a.wav")))

        assert (answer.status_code, code_of(answer)) == (413, "too_large")

    def test_a_disk_that_fills_up(self, api, sound, monkeypatch):
        real = os.fdopen

        def full(handle: int, *arguments, **more):
            file = real(handle, *arguments, **more)

            class Full:
                def write(self, chunk: bytes) -> int:
                    raise OSError(errno.ENOSPC, "No space left on device")

                close = file.close

            return Full()

        monkeypatch.setattr("records.operations.intake.os.fdopen", full)

        answer = send(api, sound)

        assert (answer.status_code, code_of(answer)) == (507, "disk_full")

    def test_a_disk_that_can_t_hold_it(self, api, sound, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6, 100))

        answer = post(api, sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **UNREAD)

        assert (answer.status_code, code_of(answer)) == (507, "disk_full")

    def test_a_fault_of_ours(self, api, sound, monkeypatch):
        def broken(self: Arrival, chunk: bytes) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(Arrival, "write", broken)

        answer = send(api, sound)

        assert (answer.status_code, code_of(answer)) == (500, "error")
        assert b"secret" not in answer.content

    def test_nobody_and_a_bad_token_before_a_byte_is_read(self, sound):
        unread = UNREAD
        for headers in ({}, {"HTTP_AUTHORIZATION": "Token 123"}, {"HTTP_AUTHORIZATION": "Token \xff\0"}, {"HTTP_AUTHORIZATION": "Token"}):
            answer = post(APIClient(raise_request_exception=False), b"", announced=1000, **headers, **unread)
            assert answer.status_code == 401, headers
            assert answer["WWW-Authenticate"] == "Token"
            code_of(answer)

    def test_a_session_without_the_csrf_header_before_a_byte_is_read(self):
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        client.force_login(make_user())

        answer = client.generic("POST", RECORDS, b"", content_type=FORM, CONTENT_LENGTH="1000", **UNREAD)

        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


def test_a_session_with_the_csrf_header_may_send(sound):
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user())
    token = "x" * 32
    client.cookies["csrftoken"] = token

    answer = client.post(RECORDS, {"file": SimpleUploadedFile("a.wav", sound)}, HTTP_X_CSRFTOKEN=token)

    assert answer.status_code == 202


# ---- sending again ------------------------------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_same_record(api, sound, stored):
    first = send_keyed(api, sound, "key-1")
    again = send_keyed(api, sound, "key-1")
    other = send_keyed(api, sound, "key-2")

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]
    assert again["Location"] == first["Location"]
    assert len(stored()) == 2


def test_the_same_key_with_other_bytes_is_refused(api, sound, stored):
    send_keyed(api, sound, "key-1")

    answer = send_keyed(api, sound + b"x", "key-1")

    assert (answer.status_code, code_of(answer)) == (422, "idempotency_key_reused")
    assert len(stored()) == 1


def test_keys_are_each_senders_own(api, stranger, sound):
    assert send_keyed(api, sound, "key-1").json()["id"] != send_keyed(stranger, sound, "key-1").json()["id"]


def test_a_removed_record_frees_its_key(api, sound):
    first = send_keyed(api, sound, "key-1").json()["id"]
    api.delete(f"{RECORDS}{first}/")

    answer = send_keyed(api, sound, "key-1")

    assert answer.status_code == 202
    assert answer.json()["id"] != first


@pytest.mark.parametrize("key", ["x" * 256, "a\tb", "ключ".encode().decode("latin-1")])
def test_a_key_that_is_none(api, sound, key):
    answer = send_keyed(api, sound, key)

    assert (answer.status_code, code_of(answer)) == (400, "bad_idempotency_key")


def send_keyed(client: APIClient, contents: bytes, key: str):
    return post(client, form(part("file", contents, filename="a.wav")), HTTP_IDEMPOTENCY_KEY=key)


def test_unreadable_bodies_of_other_calls_are_errors_of_the_same_shape(api, anna, now, monkeypatch):
    def unreadable(*_: object) -> None:
        raise UnreadablePostError

    monkeypatch.setattr("rest_framework.request.Request.data", property(unreadable))

    answer = api.patch(f"{RECORDS}00000000-0000-7000-8000-000000000000/", {}, format="json")

    assert (answer.status_code, code_of(answer)) == (400, "cut_off")


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="a file cannot hang up")
def test_a_database_that_hung_up_while_the_recording_came_is_called_again(anna, sound):
    class Slow(io.BytesIO):
        """While it is read, the server ends the connection that lies idle."""

        def read(self, size: int | None = -1, /) -> bytes:
            with psycopg.connect(settings.TRANSCRIBER.database_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
            return super().read(size)

    wire: dict[str, Any] = {"wsgi.input": Slow(sound)}
    answer = post(client_of(anna), sound, content_type="audio/wav", HTTP_CONTENT_DISPOSITION="x; filename=a", **wire)

    assert answer.status_code == 202
