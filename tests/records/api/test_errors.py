"""Whatever goes wrong: one shape, and nothing said that is nobody's business."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from knox.models import get_token_model
from rest_framework.test import APIClient

from records.models import AudioRecord
from records.operations import intake
from records.states import State
from tests.factories import make_record, make_user
from tests.records.api.conftest import body_of, code_of
from tests.records.api.forms import RECORDS, form, part, post

pytestmark = pytest.mark.django_db

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")


def routes(resolver: URLResolver, prefix: str = "") -> dict[str, str]:
    """Every address under /api/v1/ and its name."""
    found: dict[str, str] = {}
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            found |= routes(entry, route)
        elif isinstance(entry, URLPattern) and route.startswith("api/v1/"):
            found[f"/{route}"] = entry.name or ""
    return found


OF_A_RECORD = {
    "record": ("get", "head", "patch", "delete"),
    "record-resume": ("post",),
    "record-halt": ("post",),
    "record-events": ("get", "head"),
    "record-transcript": ("get", "head"),
    "record-transcript-as": ("get", "head"),
    "record-audio-original": ("get", "head"),
    "record-audio-normalized": ("get", "head"),
}
OF_A_PERSON = {"records": ("get", "head", "post"), "topics": ("get", "head")}
PUBLIC = {"schema": ("get", "head"), "docs": ("get", "head")}
ROUTES = routes(get_resolver())


def test_every_address_is_in_these_lists():
    assert sorted(ROUTES.values()) == sorted(OF_A_RECORD | OF_A_PERSON | PUBLIC)
    for route, name in ROUTES.items():
        assert ("<uuid:pk>" in route) == (name in OF_A_RECORD), route


def call(client: APIClient, method: str, address: str):
    return getattr(client, method)(address, **({"data": {}, "format": "json"} if method in ("patch", "put", "post") else {}))


@pytest.mark.parametrize("route", [route for route, name in ROUTES.items() if name in OF_A_RECORD])
def test_anothers_record_is_no_record(route, api, stranger, anna, now):
    """Every call of every address, as another person and for an id that nobody has: the answers can't be told apart."""
    record = make_record(State.DONE, owner=anna, now=now)
    before = AudioRecord.objects.values().get()
    allowed = OF_A_RECORD[ROUTES[route]]

    def address(pk: uuid.UUID) -> str:
        return str(route).replace("<uuid:pk>", str(pk)).replace("<transcript_kind:kind>", "txt")

    for method in METHODS:
        other, nobodys = call(stranger, method, address(record.pk)), call(stranger, method, address(uuid.uuid4()))
        assert other.status_code == nobodys.status_code == (404 if method in allowed else 405), method
        assert other.content == nobodys.content
        if method != "head":
            assert code_of(other) == ("not_found" if method in allowed else "method_not_allowed")
    assert AudioRecord.objects.values().get() == before
    # And the addresses are right: to the owner they answer.
    answer = call(api, allowed[0], address(record.pk))
    body_of(answer)
    assert answer.status_code in (200, 409)


@pytest.mark.parametrize("route", [route for route, name in ROUTES.items() if name not in PUBLIC])
def test_who_is_not_known_is_told_nothing(route, anna, now):
    record = make_record(owner=anna, now=now)
    address = route.replace("<uuid:pk>", str(record.pk)).replace("<transcript_kind:kind>", "txt")
    ended = get_token_model().objects.create(user=anna, expiry=timedelta(seconds=-1))[1]
    revoked_row, revoked = get_token_model().objects.create(user=anna)
    revoked_row.delete()
    gone = make_user(is_active=False)
    inactive = get_token_model().objects.create(user=gone)[1]

    for authorization in (None, f"Token {ended}", f"Token {revoked}", f"Token {inactive}", "Token x", "Bearer x", "Token a b", "Token é"):
        client = APIClient(raise_request_exception=False)
        if authorization:
            client.credentials(HTTP_AUTHORIZATION=authorization)
        for method in METHODS:
            answer = call(client, method, address)
            assert answer.status_code == 401, (method, authorization)
            assert answer["WWW-Authenticate"] == "Token"


def test_a_token_works_until_it_ends(anna):
    token = get_token_model().objects.create(user=anna, expiry=timedelta(days=30))[1]
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")

    assert client.get(RECORDS).status_code == 200
    get_token_model().objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert client.get(RECORDS).status_code == 401


def test_the_admins_session_may_look_and_change_with_the_csrf_header(now):
    user = make_user()
    record = make_record(owner=user, now=now)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    address = f"{RECORDS}{record.pk}/halt/"

    answer = client.get(f"{RECORDS}{record.pk}/audio/original/")
    body_of(answer)
    assert answer.status_code == 200
    assert client.post(address).status_code == 403
    assert client.post(address, {"csrfmiddlewaretoken": "x" * 32}).status_code == 403
    client.cookies["csrftoken"] = "x" * 32
    assert client.post(address, HTTP_X_CSRFTOKEN="x" * 32).status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/api/",
        "/api/v1/",
        "/api/v2/records/",
        "/api/v1/records",
        "/api/v1/records/00000000-0000-7000-8000-000000000000",
        "/api/v1/records/1/",
        "/api/v1/records/A/x",
    ],
)
def test_an_address_where_nothing_is(api, address):
    for client in (api, APIClient()):
        for method in METHODS:
            answer = call(client, method, address)
            assert answer.status_code == 404, method
            if method != "head":
                assert code_of(answer) == "not_found"
                is_nearly_one = address in ("/api/v1/records", "/api/v1/records/00000000-0000-7000-8000-000000000000")
                assert ("slash" in answer.json()["errors"][0]["detail"]) == is_nearly_one


def test_what_nobody_foresaw_says_nothing(api, anna, monkeypatch, caplog):
    monkeypatch.setattr("records.queries.shown", _raise_with("secret"))

    answer = api.get(RECORDS)

    assert (answer.status_code, code_of(answer)) == (500, "error")
    assert "secret" not in answer.content.decode() + caplog.text
    assert "unexpected RuntimeError in Records" in caplog.text
    assert "test_errors.py" in caplog.text  # and where


def test_what_django_refuses_and_what_breaks_outside_the_views(api, monkeypatch):
    answer = api.get(RECORDS, HTTP_HOST="evil.example.com")
    assert (answer.status_code, code_of(answer)) == (400, "bad_request")
    assert Client().get("/admin/", HTTP_HOST="evil.example.com")["Content-Type"].startswith("text/html")

    monkeypatch.setattr("records.api.errors.UnknownAddress.dispatch", _raise_with("secret"))
    answer = api.get("/api/v1/nothing/")
    assert (answer.status_code, code_of(answer)) == (500, "error")


def test_the_service_says_that_it_serves(client):
    assert client.get("/healthz").status_code == 200


def test_names_and_titles_never_reach_the_logs(api, sound, caplog, scripted, monkeypatch):
    for logger in ("", "records", "recognition", "django", "knox"):
        caplog.set_level(logging.DEBUG, logger=logger)
    name, title = "Zanzibar.wav", "Timbuktu"
    secrets = ("Zanzibar", "Timbuktu", "Hello there")

    def send(contents: bytes, *more: bytes):
        return post(api, form(part("file", contents, filename=name), part("title", title.encode()), *more))

    done = send(sound).json()["id"]
    assert send(b"").status_code == 400
    assert send(sound, part("language", b"Timbuktu!")).status_code == 400
    assert send(sound, part("Timbuktu", b"x")).status_code == 400
    assert (
        post(api, sound, content_type="audio/wav", announced=len(sound) + 1, HTTP_CONTENT_DISPOSITION=f"x; filename={name}").status_code
        == 400
    )
    not_sound = send(b"Zanzibar is no sound").json()["id"]
    from records.pipeline.dispatch import Worker

    worker = Worker()
    while worker.work_once():
        pass
    for address in (f"{done}/", f"{done}/transcript.txt", f"{done}/audio/original/", f"?search={title}", f"{not_sound}/"):
        answer = api.get(RECORDS + address)
        assert answer.status_code == 200
        assert any(secret.encode() in body_of(answer) for secret in secrets) or answer.streaming
    assert api.patch(f"{RECORDS}{done}/", {"title": title + "\0"}, format="json").status_code == 400
    with monkeypatch.context() as patched:
        patched.setattr(intake, "_keep", _raise_with(title))
        assert send(sound).status_code == 500
    assert api.delete(f"{RECORDS}{done}/").status_code == 204

    log = caplog.text + "".join(str(record.__dict__.get("args")) for record in caplog.records)
    assert f"record {done} taken in" in log
    assert [secret for secret in secrets if secret in log] == []


def _raise_with(text: str):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(text)

    return broken


def test_tokens_are_kept_as_hashes(anna):
    row, token = get_token_model().objects.create(user=anna)

    assert token not in (row.digest, row.token_key)
