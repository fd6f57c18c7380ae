from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from records.models import AudioRecord, RecordEvent, Structure, Text
from records.operations import control
from records.operations.control import By
from records.states import HaltReason, Origin, State
from tests.factories import make_file, make_record, make_user
from tests.records.api.conftest import body_of, code_of
from tests.records.api.forms import RECORDS
from topics.models import Topic

pytestmark = pytest.mark.django_db


def address(record: AudioRecord, tail: str = "") -> str:
    return f"{RECORDS}{record.pk}/{tail}"


# ---- one record ---------------------------------------------------------------------------------------------------------------------


def test_a_fresh_record(api, anna, now):
    record = make_record(owner=anna, now=now, title="Talk")

    answer = api.get(address(record))

    assert answer.status_code == 200
    url = f"http://testserver/api/v1/records/{record.pk}/"
    assert answer.json() == {
        "id": str(record.pk),
        "status": "uploaded",
        "status_entered_at": "2026-01-02T03:04:05Z",
        "progress": 0.0,
        "halted": False,
        "halt_reason": None,
        "error": None,
        "waiting_for": None,
        "title": "Talk",
        "brief": "",
        "language": None,
        "detected_language": None,
        "topics": [],
        "notes": [],
        "duration_ms": 2000,
        "files": {"original": {"url": f"{url}audio/original/", "size": 5, "format": None, "duration_ms": 2000}, "normalized": None},
        "links": {"self": url, "events": f"{url}events/", "transcript": None},
        "created": "2026-01-02T03:04:05Z",
    }


def test_a_finished_record(api, anna, now):
    record = make_record(State.DONE, owner=anna, now=now, language="en-GB", notes=["truncated"])
    for name in ("work", "garden"):
        record.topics.add(Topic.objects.create(owner=anna, name=name))

    answer = api.get(address(record))

    body = answer.json()
    assert (body["status"], body["progress"], body["topics"]) == ("done", 1.0, ["garden", "work"])
    assert (body["language"], body["detected_language"], body["notes"]) == ("en-GB", "en", ["truncated"])
    assert body["files"]["normalized"]["format"] == "ogg"
    for kind, url in body["links"]["transcript"].items():
        assert url.endswith(f"/transcript.{kind}")
        assert api.get(url).status_code == 200
    assert set(body["links"]["transcript"]) == {"json", "txt", "srt", "vtt"}
    assert "Retry-After" not in answer


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"error_code": "no_audio", "error_text": "There is no sound."}, {"code": "no_audio", "message": "There is no sound."}),
        ({"error_code": "", "error_text": ""}, {"code": "rejected", "message": "This recording can't be transcribed."}),
    ],
)
def test_a_halted_record_says_why(api, anna, now, columns, error):
    record = make_record(owner=anna, now=now, halted_at=now, halt_reason=HaltReason.REJECTED, **columns)

    answer = api.get(address(record))

    body = answer.json()
    assert (body["status"], body["halted"], body["halt_reason"]) == ("uploaded", True, "rejected")
    assert (body["error"], body["waiting_for"]) == (error, None)
    assert "Retry-After" not in answer


def test_every_halt_has_a_sentence(api, anna, now):
    for reason in HaltReason:
        record = make_record(owner=anna, now=now, halted_at=now, halt_reason=reason)
        assert api.get(address(record)).json()["error"]["message"].endswith("."), reason


def test_a_waiting_record_says_what_for_and_when_to_ask_again(api, anna, now, clock, monkeypatch):
    monkeypatch.setattr("records.api.views.timezone.now", clock)
    record = make_record(State.SUBMITTED, owner=anna, now=now, error_code="busy", error_text="Later.")

    def retry_after(**columns) -> str:
        AudioRecord.objects.filter(pk=record.pk).update(**columns)
        return str(api.get(address(record))["Retry-After"])

    body = api.get(address(record)).json()
    assert (body["error"], body["waiting_for"]) == (None, {"code": "busy", "message": "Later."})
    assert retry_after() == "1"
    assert retry_after(delay_time=now + timedelta(seconds=7)) == "7"
    assert retry_after(delay_time=now + timedelta(hours=1)) == "30"
    held = {"acquisition_id": uuid.uuid4(), "acquire_expires_at": now + timedelta(seconds=60), "delay_time": now + timedelta(seconds=60)}
    assert retry_after(**held) == "1"
    clock.step(seconds=100)
    assert retry_after() == "5"
    clock.step(hours=1)
    assert retry_after() == "30"


def test_a_poll_reads_no_content_and_asks_the_database_little(api, anna, now):
    record = make_record(State.DONE, owner=anna, now=now)
    api.get(address(record))

    with CaptureQueriesContext(
        connection,
    ) as queries:
        api.get(address(record))

    assert len(queries) == 4  # two for the token, the record, its topics
    assert not [query["sql"] for query in queries if "contents" in query["sql"]]


# ---- the list -----------------------------------------------------------------------------------------------------------------------


def test_the_list_is_ones_own_newest_first(api, anna, now):
    mine = [make_record(owner=anna, now=now) for _ in range(3)]
    make_record(now=now)

    body = api.get(RECORDS).json()

    assert [row["id"] for row in body["results"]] == [str(record.pk) for record in reversed(mine)]
    assert (body["next"], body["previous"]) == (None, None)
    assert body["results"][0] == api.get(address(mine[2])).json()


def test_the_list_comes_in_pages_that_stay_right(api, anna, now):
    mine = [str(make_record(owner=anna, now=now).pk) for _ in range(5)]

    first = api.get(RECORDS, {"limit": 2}).json()
    make_record(owner=anna, now=now)  # in the meantime
    second = api.get(first["next"]).json()
    third = api.get(second["next"]).json()

    assert [row["id"] for page in (first, second, third) for row in page["results"]] == mine[::-1]
    assert third["next"] is None
    assert [row["id"] for row in api.get(third["previous"]).json()["results"]] == [row["id"] for row in second["results"]]


def test_a_page_has_at_most_200_rows(api, anna, now):
    file = make_file()
    AudioRecord.objects.bulk_create(
        AudioRecord(owner=anna, original_file=make_file_row(file), state_entered_at=now, delay_time=now) for _ in range(201)
    )

    assert len(api.get(RECORDS, {"limit": 1000}).json()["results"]) == 200


def make_file_row(like):
    return type(like).objects.create(location=str(uuid.uuid4()), size=1)


@pytest.mark.parametrize("cursor", ["x", "cD1ub3RhbmlkIQ==", "cD0lMDA=", "bz0tMQ==", "cj0xJnA9MQ=="])
def test_a_cursor_that_is_none(api, cursor):
    answer = api.get(f"{RECORDS}?cursor={quote(cursor)}")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_a_list_asks_the_database_as_often_for_one_as_for_many(api, anna, now):
    make_record(State.DONE, owner=anna, now=now)

    with CaptureQueriesContext(connection) as for_one:
        api.get(RECORDS)
    for state in State:
        make_record(state, owner=anna, now=now)
    with CaptureQueriesContext(connection) as for_many:
        api.get(RECORDS)

    assert len(for_one) == len(for_many) == 4
    assert not [query["sql"] for query in for_many if "contents" in query["sql"]]


def test_the_list_can_be_narrowed_down(api, anna, now):
    old = make_record(owner=anna, now=now - timedelta(days=2), title="Old")
    halted = make_record(State.NORMALIZED, owner=anna, now=now, halted_at=now, halt_reason=HaltReason.STUCK, title="Halted 100%")
    done = make_record(State.DONE, owner=anna, now=now + timedelta(days=1), title="Done (a.b)")

    def found(**query: str) -> set[AudioRecord]:
        answer = api.get(RECORDS, query)
        assert answer.status_code == 200, answer.content
        return {AudioRecord.objects.get(pk=row["id"]) for row in answer.json()["results"]}

    assert found(status="done") == {done}
    assert found(halted="true") == {halted}
    assert found(halted="false") == {old, done}
    assert found(created_after=now.isoformat()) == {halted, done}
    assert found(created_before=now.isoformat()) == {old}
    assert found(created_after=now.isoformat(), status="normalized", halted="true") == {halted}
    assert found(search="oL") == {old}
    assert found(search="0%") == {halted}
    assert found(search="(A.B") == {done}
    assert found(search="a_b") == found(search=".*") == set()
    assert found(search="") == {old, halted, done}


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL knows the letters of its own locale")
def test_the_search_knows_the_case_of_all_letters(api, anna, now):
    record = make_record(owner=anna, now=now, title="Совещание Ёжиков")

    assert [row["id"] for row in api.get(RECORDS, {"search": "ёЖИК"}).json()["results"]] == [str(record.pk)]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("status=finished", "invalid_choice"),
        ("halted=perhaps", "invalid"),
        ("created_after=yesterday", "invalid"),
        ("search=%00", "null_characters_not_allowed"),
        ("search=" + "x" * 300, "max_length"),
        ("sttaus=done", "unknown_field"),
        ("halted=", "invalid"),
        ("halted=null", "invalid"),
        ("status=", "invalid_choice"),
        ("created_before=", "invalid"),
        ("status=done&status=uploaded", "repeated"),
        ("limit=null", "invalid"),
        ("limit=", "invalid"),
        ("limit=0", "invalid"),
        ("limit=-1", "invalid"),
        ("limit=1.5", "invalid"),
        ("limit=٣", "invalid"),
        ("limit=1&limit=2", "invalid"),
    ],
)
def test_a_filter_that_is_none(api, query, code):
    answer = api.get(f"{RECORDS}?{query}")

    assert (answer.status_code, code_of(answer)) == (400, code)


def test_topics_are_ones_own(api, anna):
    for name in ("work", "garden"):
        Topic.objects.create(owner=anna, name=name)
    Topic.objects.create(owner=make_user(), name="secret")

    body = api.get("/api/v1/topics/", {"limit": 1}).json()

    assert [topic["name"] for topic in body["results"]] == ["garden"]
    assert [topic["name"] for topic in api.get(body["next"]).json()["results"]] == ["work"]


# ---- acts ---------------------------------------------------------------------------------------------------------------------------


def test_title_and_brief_can_be_changed_while_it_is_worked_on(api, anna, now):
    held = {"acquisition_id": uuid.uuid4(), "acquire_expires_at": now + timedelta(seconds=60)}
    record = make_record(owner=anna, now=now, title="Old", **held)

    answer = api.patch(address(record), {"title": " New\ntitle 🎙️ ", "brief": "Two\nlines"}, format="json")

    assert (answer.status_code, answer.json()["title"], answer.json()["brief"]) == (200, "Newtitle 🎙️", "Two\nlines")
    record.refresh_from_db()
    assert (record.title, record.brief, record.acquisition_id) == ("Newtitle 🎙️", "Two\nlines", held["acquisition_id"])
    assert api.patch(address(record), {"brief": ""}, format="json").json()["title"] == "Newtitle 🎙️"
    assert api.patch(address(record), {}, format="json").json()["brief"] == ""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"title": "x\\u0000"}', "null_characters_not_allowed"),
        ('{"title": "x\\ud800"}', "surrogate_characters_not_allowed"),
        ('{"title": NaN}', "parse_error"),
        ('{"title": null}', "null"),
        ('{"title": ["x"]}', "invalid"),
        ('{"title": 7}', "invalid"),
        ('{"title": 7.5}', "invalid"),
        ('{"brief": 0}', "invalid"),
        ('{"brief": true}', "invalid"),
        ('{"brief": "' + "x" * 1001 + '"}', "max_length"),
        ('{"title": "' + "x" * 256 + '"}', "max_length"),
        ('{"status": "done"}', "unknown_field"),
        ("[]", "invalid"),
        ('{"title": ', "parse_error"),
        ("\xff", "parse_error"),
        ("[" * 100_000, "parse_error"),
    ],
)
def test_a_change_that_can_t_be_made(api, anna, now, body, code):
    record = make_record(owner=anna, now=now, title="Old")

    answer = api.patch(address(record), body.encode("latin-1"), content_type="application/json")

    assert (answer.status_code, code_of(answer)) == (400, code)
    record.refresh_from_db()
    assert record.title == "Old"


def test_a_change_must_be_json_and_small(api, anna, now):
    record = make_record(owner=anna, now=now)

    answer = api.patch(address(record), b"<title/>", content_type="application/xml")
    assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")
    answer = api.patch(address(record), b'{"title": "' + b"x" * 3_000_000 + b'"}', content_type="application/json")
    assert (answer.status_code, code_of(answer)) == (413, "too_large")


def test_halting_and_resuming(api, anna, now):
    record = make_record(State.NORMALIZED, owner=anna, now=now)

    halted = api.post(address(record, "halt/"))
    again = api.post(address(record, "halt/"))
    resumed = api.post(address(record, "resume/"))
    not_halted = api.post(address(record, "resume/"))

    assert (halted.status_code, halted.json()["halt_reason"]) == (200, "stopped")
    assert halted.json()["error"] == {"code": "stopped", "message": "A person halted it; resume it to go on."}
    assert (again.status_code, code_of(again)) == (409, "halted_already")
    assert (resumed.status_code, resumed.json()["halted"], resumed.json()["status"]) == (200, False, "normalized")
    assert (not_halted.status_code, code_of(not_halted)) == (409, "not_halted")
    events = api.get(address(record, "events/")).json()["results"]
    assert [(event["outcome"], event["origin"], event["actor"], event["step"]) for event in events] == [
        ("halted", "api", "anna", "submit"),
        ("resumed", "api", "anna", "submit"),
    ]


def test_what_can_t_be_halted_or_resumed(api, anna, now):
    done = make_record(State.DONE, owner=anna, now=now)
    unconfirmed = make_record(State.NORMALIZED, owner=anna, now=now, halted_at=now, halt_reason=HaltReason.UNCONFIRMED)

    answer = api.post(address(done, "halt/"))
    assert (answer.status_code, code_of(answer)) == (409, "done")
    answer = api.post(address(unconfirmed, "resume/"))
    assert (answer.status_code, code_of(answer)) == (409, "unconfirmed")


def test_the_journal_comes_in_pages_oldest_first(api, anna, now):
    record = make_record(owner=anna, now=now)
    for _ in range(2):
        control.halt(AudioRecord.objects.all(), by=By(Origin.COMMAND), now=now)
        control.resume(AudioRecord.objects.all(), by=By(Origin.ADMIN, anna), now=now)

    first = api.get(address(record, "events/"), {"limit": 3}).json()
    second = api.get(first["next"]).json()

    rows = first["results"] + second["results"]
    assert [row["outcome"] for row in rows] == ["halted", "resumed"] * 2
    assert rows[0] == {
        "id": str(RecordEvent.objects.earliest("id").pk),
        "created": "2026-01-02T03:04:05Z",
        "origin": "command",
        "actor": None,
        "step": "normalize",
        "outcome": "halted",
        "duration_ms": None,
        "outcome_text": "at uploaded",
    }


def test_removing_leaves_nothing(api, anna, now, stored, django_capture_on_commit_callbacks):
    record = make_record(State.DONE, owner=anna, now=now)

    with django_capture_on_commit_callbacks(execute=True):
        answer = api.delete(address(record))

    assert (answer.status_code, answer.content) == (204, b"")
    assert stored() == []
    assert not Structure.objects.exists()
    assert api.get(address(record)).status_code == 404
    assert api.delete(address(record)).status_code == 404


# ---- transcripts --------------------------------------------------------------------------------------------------------------------

SPOKEN = {
    "language": "ru",
    "speakers": ["1"],
    "utterances": [
        {"start_ms": 0, "end_ms": 1500, "text": "Привет <b>", "channel": 0, "speaker": "1", "words": []},
        {"start_ms": 61_000, "end_ms": 62_000, "text": "Пока", "channel": 0, "speaker": None, "words": []},
    ],
}


@pytest.fixture
def spoken(anna, now) -> AudioRecord:
    record = make_record(State.DONE, owner=anna, now=now)
    Structure.objects.update(contents=SPOKEN)
    Text.objects.update(contents="Привет <b>\nПока")
    return record


def test_transcripts_in_all_forms(api, spoken):
    def get(kind: str):
        answer = api.get(f"{RECORDS}{spoken.pk}/transcript.{kind}")
        assert answer.status_code == 200
        return answer["Content-Type"], answer.content.decode()

    assert get("txt") == ("text/plain; charset=utf-8", "Speaker 1: Привет <b>\nSpeaker 2: Пока\n")
    content_type, text = get("srt")
    assert content_type == "application/x-subrip; charset=utf-8"
    assert "00:01:01,000 --> 00:01:02,000\nSpeaker 2: Пока" in text
    content_type, text = get("vtt")
    assert content_type == "text/vtt; charset=utf-8"
    assert text.startswith("WEBVTT")
    answer = api.get(f"{RECORDS}{spoken.pk}/transcript.json")
    assert answer["Content-Type"] == "application/json"
    assert answer.json() == {"version": 1, **SPOKEN}
    assert "Привет" in answer.content.decode()


@pytest.mark.parametrize(
    ("asked", "kind", "lines"),
    [
        ("speakers=false", "txt", ["Привет <b>", "Пока"]),
        ("speakers=false", "srt", ["Пока"]),
        ("max_line_length=8&max_lines=1&speakers=false", "srt", ["Привет", "<b>"]),
        ("words=true", "vtt", ["<v Speaker 1><c>Привет</c> <00:00:01.050><c>&lt;b&gt;</c></v>"]),
        ("max_duration=1", "vtt", ["00:00:00.000 --> 00:00:01.000"]),
    ],
)
def test_how_a_transcript_is_written_can_be_chosen(api, spoken, asked, kind, lines):
    written = api.get(f"{RECORDS}{spoken.pk}/transcript.{kind}?{asked}").content.decode()
    assert [line for line in lines if line not in written] == [], written


@pytest.mark.parametrize(
    ("asked", "code", "name"),
    [
        ("max_line_length=7", "min_value", "max_line_length"),
        ("max_line_length=201", "max_value", "max_line_length"),
        ("max_line_length=wide", "invalid", "max_line_length"),
        ("max_lines=0", "min_value", "max_lines"),
        ("max_lines=5", "max_value", "max_lines"),
        ("max_duration=0.5", "min_value", "max_duration"),
        ("max_duration=61", "max_value", "max_duration"),
        ("max_duration=nan", "invalid", "max_duration"),
        ("max_duration=inf", "invalid", "max_duration"),
        ("speakers=perhaps", "invalid", "speakers"),
        ("words=", "invalid", "words"),
        ("colour=red", "unknown_field", "colour"),
        ("words=true&words=false", "repeated", "words"),
    ],
)
@pytest.mark.parametrize("form", ["/transcript/", "/transcript.txt", "/transcript.vtt", "/transcript.json"])
def test_a_wrong_choice_is_refused(api, spoken, form, asked, code, name):
    answer = api.get(f"{RECORDS}{spoken.pk}{form}?{asked}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["code"] == code
    assert answer.json()["errors"][0]["attr"] == name


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/*", "text/plain; charset=utf-8"),
        ("text/vtt", "text/vtt; charset=utf-8"),
        ("text/html, application/x-subrip;q=0.5, application/json;q=0.4", "application/x-subrip; charset=utf-8"),
    ],
)
def test_the_form_follows_the_accept_header(api, spoken, accept, content_type):
    answer = api.get(f"{RECORDS}{spoken.pk}/transcript/", **({"HTTP_ACCEPT": accept} if accept else {}))

    assert (answer.status_code, answer["Content-Type"]) == (200, content_type)
    assert "Accept" in answer["Vary"]


def test_no_form_that_is_accepted(api, spoken):
    answer = api.get(f"{RECORDS}{spoken.pk}/transcript/", HTTP_ACCEPT="image/png")

    assert (answer.status_code, code_of(answer)) == (406, "not_acceptable")


def test_silence_is_an_empty_transcript(api, anna, now):
    record = make_record(State.DONE, owner=anna, now=now)

    assert api.get(f"{RECORDS}{record.pk}/transcript.txt").content == b""
    assert api.get(f"{RECORDS}{record.pk}/transcript.json").json()["utterances"] == []
    assert api.get(f"{RECORDS}{record.pk}/transcript.srt").content == b""
    assert api.get(f"{RECORDS}{record.pk}/transcript.vtt").content.startswith(b"WEBVTT")


@pytest.mark.parametrize("kind", ["/transcript/", "/transcript.txt", "/transcript.json", "/transcript.srt", "/transcript.vtt"])
def test_a_transcript_that_is_not_there_yet(api, anna, now, kind):
    record = make_record(State.NORMALIZED, owner=anna, now=now)
    answer = api.get(f"{RECORDS}{record.pk}{kind}", HTTP_ACCEPT="text/plain")
    assert (answer.status_code, code_of(answer)) == (409, "not_ready")
    assert int(answer["Retry-After"]) >= 1

    control.halt(AudioRecord.objects.all(), by=By(Origin.ADMIN), now=now)
    answer = api.get(f"{RECORDS}{record.pk}{kind}")
    assert (answer.status_code, code_of(answer)) == (409, "halted")
    assert "Retry-After" not in answer


def test_a_transcript_in_no_form_there_is(api, spoken):
    answer = api.get(f"{RECORDS}{spoken.pk}/transcript.pdf")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


# ---- sound --------------------------------------------------------------------------------------------------------------------------

BYTES = bytes(range(256)) * 3000  # longer than a chunk


@pytest.fixture
def heard(anna, now) -> AudioRecord:
    record = make_record(State.DONE, owner=anna, now=now, contents=BYTES, title='Звук: "1/2"')
    type(record.original_file).objects.filter(pk=record.original_file_id).update(format="mp3")
    return record


def test_a_whole_file(api, heard):
    answer = api.get(address(heard, "audio/original/"))

    assert (answer.status_code, body_of(answer) == BYTES) == (200, True)
    assert answer["Content-Type"] == "audio/mpeg"
    assert answer["Content-Length"] == str(len(BYTES))
    assert answer["Content-Disposition"] == "attachment; filename*=utf-8''" + quote('Звук: "1_2".mp3', safe="")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"].startswith("private")
    assert answer["Accept-Ranges"] == "bytes"


def test_the_normalized_copy(api, heard, anna, now):
    answer = api.get(address(heard, "audio/normalized/"))
    assert (answer.status_code, body_of(answer), answer["Content-Type"]) == (200, b"OggS", "audio/ogg")

    answer = api.get(address(make_record(owner=anna, now=now), "audio/normalized/"))
    assert (answer.status_code, code_of(answer)) == (409, "not_ready")


def test_a_title_cannot_break_the_header(api, anna, now):
    record = make_record(owner=anna, now=now, title='a\r\nX-Evil: "1\\')

    answer = api.get(address(record, "audio/original/"))

    assert answer.status_code == 200
    assert answer["Content-Disposition"] == 'attachment; filename="aX-Evil: \\"1_.bin"'
    assert answer["Content-Type"] == "application/octet-stream"
    body_of(answer)


SIZE = len(BYTES)


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=100-", 100, SIZE),
        ("bytes=-5", SIZE - 5, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
        (f"bytes=5-{SIZE * 2}", 5, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        ("bytes=1-600000", 1, 600001),
    ],
)
def test_a_range(api, heard, asked, start, end):
    answer = api.get(address(heard, "audio/original/"), HTTP_RANGE=asked)

    assert answer.status_code == 206
    assert answer["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert answer["Content-Length"] == str(end - start)
    assert body_of(answer) == BYTES[start:end]


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 5}", "bytes=-0"])
def test_a_range_beyond_the_file(api, heard, asked):
    answer = api.get(address(heard, "audio/original/"), HTTP_RANGE=asked)

    assert (answer.status_code, code_of(answer)) == (416, "range_not_satisfiable")
    assert answer["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "asked", ["bytes=-", "bytes=5-4", "bytes=a-b", "items=0-1", "bytes=0-1,5-6", "bytes 0-1", "bytes=" + "9" * 30 + "-"]
)
def test_what_is_no_range_gives_the_whole_file(api, heard, asked):
    answer = api.get(address(heard, "audio/original/"), HTTP_RANGE=asked)

    assert (answer.status_code, len(body_of(answer))) == (200, SIZE)


def test_a_head_has_the_headers_alone(api, heard):
    answer = api.head(address(heard, "audio/original/"))
    assert (answer.status_code, answer["Content-Length"], answer.content) == (200, str(SIZE), b"")

    answer = api.head(address(heard, "audio/original/"), HTTP_RANGE="bytes=0-9")
    assert (answer.status_code, answer["Content-Length"]) == (206, "10")


def test_a_range_of_what_has_not_changed(api, heard):
    whole = api.get(address(heard, "audio/original/"))
    body_of(whole)

    for condition, code in [
        (whole["ETag"], 206),
        (whole["Last-Modified"], 206),
        ('"other"', 200),
        (f"W/{whole['ETag']}", 200),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 200),
    ]:
        answer = api.get(address(heard, "audio/original/"), HTTP_RANGE="bytes=0-9", HTTP_IF_RANGE=condition)
        body_of(answer)
        assert answer.status_code == code, condition
    assert api.get(address(heard, "audio/original/"), HTTP_IF_NONE_MATCH=whole["ETag"]).status_code == 304
    assert api.get(address(heard, "audio/original/"), HTTP_IF_MODIFIED_SINCE=whole["Last-Modified"]).status_code == 304
    assert api.get(address(heard, "audio/original/"), HTTP_IF_MATCH='"other"').status_code == 412


def test_a_file_whose_bytes_are_gone(api, heard, tmp_path: Path):
    (tmp_path / "media" / heard.original_file.location).unlink()

    answer = api.get(address(heard, "audio/original/"))

    assert (answer.status_code, code_of(answer)) == (404, "file_missing")


def test_files_of_a_storage_that_is_no_disk(api, anna, now, settings):
    settings.STORAGES = {**settings.STORAGES, "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"}}
    record = make_record(owner=anna, now=now, contents=BYTES)

    answer = api.get(address(record, "audio/original/"), HTTP_RANGE="bytes=100-299")

    assert (answer.status_code, body_of(answer)) == (206, BYTES[100:300])
