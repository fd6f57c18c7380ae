"""What a person sees where something went wrong outside the admin's own pages: a page that looks like one, in their language."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from records.states import State
from tests.factories import make_record, make_user

pytestmark = pytest.mark.django_db

LIST = "/admin/records/audiorecord/"


def signed_in(language: str, *, csrf: bool = False, is_superuser: bool = False) -> Client:
    client = Client(headers={"accept-language": language}, raise_request_exception=False, enforce_csrf_checks=csrf)
    client.force_login(make_user(is_staff=True, is_superuser=is_superuser))
    return client


def page_of(answer) -> str:
    """The text of a page, once it has been seen to be a whole one."""
    html = answer.content.decode()
    assert answer["Content-Type"].startswith("text/html")
    assert html.count("<h1>") == html.count("</html>") == 1
    assert "<style>" in html
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL))


@pytest.mark.parametrize(("language", "said"), [("en", "There is nothing here"), ("ru", "Здесь ничего нет")])
def test_no_such_page(language, said):
    answer = signed_in(language).get("/admin/nothing/at/all/")

    assert answer.status_code == 404
    assert said in page_of(answer)
    assert f'<html lang="{language}">' in answer.content.decode()


@pytest.mark.parametrize(("language", "said"), [("en", "You may not do that"), ("ru", "Это вам не разрешено")])
def test_no_right(language, said, now):
    answer = signed_in(language).post(f"{LIST}{make_record(State.DONE, now=now).pk}/halt/")

    assert answer.status_code == 403
    assert said in page_of(answer)


@pytest.mark.parametrize(("language", "said"), [("en", "That was not sent"), ("ru", "Отправить не удалось")])
def test_a_form_without_its_token(language, said, now):
    answer = signed_in(language, csrf=True).post(f"{LIST}{make_record(State.DONE, now=now).pk}/halt/")

    assert answer.status_code == 403
    assert said in page_of(answer)


@pytest.mark.parametrize(("language", "said"), [("en", "Something went wrong"), ("ru", "Что-то пошло не так")])
def test_a_fault_of_ours_tells_nothing_of_itself(language, said, monkeypatch):
    def fail(*args: object, **more: object) -> None:
        raise ZeroDivisionError("a secret")

    client = signed_in(language, is_superuser=True)
    monkeypatch.setattr("records.admin.listing.search", fail)
    answer = client.get(f"{LIST}?q=x")

    assert answer.status_code == 500
    assert said in page_of(answer)
    assert "secret" not in answer.content.decode()


@pytest.mark.parametrize(("language", "said"), [("en", "This request can't be answered"), ("ru", "На этот запрос нельзя ответить")])
def test_what_django_refuses(language, said):
    answer = signed_in(language).get("/admin/", headers={"host": "elsewhere.example"})

    assert answer.status_code == 400
    assert said in page_of(answer).replace("&#x27;", "'")
