from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone
from knox.models import get_token_model
from rest_framework.test import APIClient

from tests.factories import make_user

pytestmark = pytest.mark.django_db


def create_token(*arguments: str) -> str:
    out = io.StringIO()
    call_command("create_token", *arguments, stdout=out)
    return out.getvalue()


def test_a_token_for_somebody_new():
    printed = create_token("anna")

    token = printed.removesuffix("\n")
    assert token.isalnum()
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    assert client.get("/api/v1/records/").status_code == 200
    user = User.objects.get()
    assert (user.username, user.has_usable_password(), user.is_staff) == ("anna", False, False)
    assert get_token_model().objects.get().expiry is None


def test_another_token_for_somebody_there_is():
    user = make_user("anna", password="secret")

    first, second = create_token("anna"), create_token("anna", "--expires", "30d")

    assert first != second
    assert User.objects.get().has_usable_password()
    expiry = get_token_model().objects.filter(user=user, expiry__isnull=False).get().expiry
    assert abs(expiry - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "arguments", [("anna", "--expires", "soon"), ("anna", "--expires", "0d"), ("a b",), ("",), ("x" * 200,), ("inactive",)]
)
def test_what_can_t_be_made(arguments):
    make_user("inactive", is_active=False)

    with pytest.raises(CommandError):
        create_token(*arguments)

    assert not get_token_model().objects.exists()
    assert User.objects.count() == 1
