"""Users and tokens in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from knox.models import AuthToken

from tests.factories import make_record, make_user

pytestmark = pytest.mark.django_db


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> Client:
    return signed_in(make_user("olga", is_staff=True, is_superuser=True))


def test_a_user_with_records_stays_and_it_is_said_why(operator: Client, now: Any, django_assert_max_num_queries: Any) -> None:
    owner = make_user("anna")
    for _ in range(5):
        make_record(now=now, owner=owner, title="A title of somebody's")
    address = f"/admin/auth/user/{owner.pk}/delete/"

    with django_assert_max_num_queries(10):
        page = operator.get(address).content.decode()

    assert "anna owns 5 records: remove them first" in page
    assert f"?owner={owner.pk}" in page
    assert "A title of somebody" not in page
    operator.post(address, {"post": "yes"})
    operator.post("/admin/auth/user/", {"action": "delete_selected", "_selected_action": [owner.pk], "post": "yes"})
    assert User.objects.filter(pk=owner.pk).exists()


def test_a_user_without_records_is_removed_with_their_tokens(operator: Client) -> None:
    user = make_user("boris")
    AuthToken.objects.create(user)

    operator.post(f"/admin/auth/user/{user.pk}/delete/", {"post": "yes"})

    assert not User.objects.filter(pk=user.pk).exists()
    assert not AuthToken.objects.exists()


def test_a_token_is_shown_once_and_is_never_edited(operator: Client, client: Client) -> None:
    user = make_user("anna")

    page = operator.post("/admin/knox/authtoken/add/", {"user": user.pk}, follow=True).content.decode()

    token = page.partition("The token is ")[2].partition(":")[0]
    assert client.get("/api/v1/records/", headers={"Authorization": f"Token {token}"}).status_code == 200
    row = AuthToken.objects.get()
    assert token not in operator.get(f"/admin/knox/authtoken/{row.pk}/change/").content.decode()
    assert operator.post(f"/admin/knox/authtoken/{row.pk}/change/", {"user": make_user().pk}).status_code == 403


def test_who_is_no_superuser_makes_no_token_for_one() -> None:
    clerk = make_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__in=["add_authtoken", "view_authtoken"]))
    root = make_user("root", is_staff=True, is_superuser=True)
    anna = make_user("anna")
    browser = signed_in(clerk)

    assert browser.post("/admin/knox/authtoken/add/", {"user": root.pk}).status_code == 200
    assert not AuthToken.objects.exists()
    browser.post("/admin/knox/authtoken/add/", {"user": anna.pk})
    assert AuthToken.objects.get().user == anna


def test_nobody_types_in_a_function_to_be_run(operator: Client) -> None:
    assert operator.get("/admin/django_q/schedule/add/").status_code == 404
