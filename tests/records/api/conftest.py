from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from knox.models import get_token_model
from rest_framework.test import APIClient

from tests.factories import make_user, wav_bytes


def client_of(user: User) -> APIClient:
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Token {get_token_model().objects.create(user=user)[1]}")
    return client


@pytest.fixture
def anna(db) -> User:
    return make_user("anna")


@pytest.fixture
def api(anna: User) -> APIClient:
    """Anna's client, with a token of hers."""
    return client_of(anna)


@pytest.fixture
def stranger(db) -> APIClient:
    return client_of(make_user("boris"))


@pytest.fixture
def sound(tmp_path: Path) -> bytes:
    return wav_bytes(tmp_path, 0.1)


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[], list[Path]]:
    """All the files there are in the storage, parts included."""
    return lambda: sorted(path for path in (tmp_path / "media").rglob("*") if path.is_file())


@pytest.fixture
def set_limit(settings) -> Callable[[int], None]:
    def set_to(size: int) -> None:
        config = settings.TRANSCRIBER
        settings.TRANSCRIBER = dataclasses.replace(config, intake=dataclasses.replace(config.intake, max_size=size))

    return set_to


def body_of(answer: Any) -> bytes:
    """All of an answer; read to its end, a stream lets go of its file."""
    return b"".join(answer.streaming_content) if answer.streaming else bytes(answer.content)


def code_of(answer: Any) -> str:
    """The code of an error, whose shape is checked on the way."""
    body = answer.json()
    assert set(body) == {"type", "errors"}, body
    assert body["type"] in ("client_error", "server_error", "validation_error")
    [error] = body["errors"]
    assert set(error) == {"code", "detail", "attr"}
    assert error["detail"]
    return str(error["code"])
