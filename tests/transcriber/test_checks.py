from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.test import override_settings

from transcriber import checks
from transcriber.config import Config


def with_config(section: str, **keys: Any) -> Config:
    config: Config = settings.TRANSCRIBER
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **keys)})


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


@pytest.mark.django_db
def test_the_defaults_pass() -> None:
    assert run_checks(databases=["default"]) == []


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"max_attempts": 9}, []),  # 51 min with the jitter
        ({"max_attempts": 10}, ["transcriber.E001"]),
        ({"own_work_limit": timedelta(minutes=4)}, []),
        ({"own_work_limit": timedelta(minutes=3)}, ["transcriber.E001"]),
    ],
)
def test_all_pauses_together_must_be_shorter_than_the_limit(keys: dict[str, Any], found: list[str]) -> None:
    with override_settings(TRANSCRIBER=with_config("pipeline", **keys)):
        assert ids(checks.check_limits(None)) == found


@pytest.mark.parametrize("key", ["workers", "broker_class", "recycle", "save_limit"])
def test_what_the_seats_rely_on_is_checked(key: str) -> None:
    with override_settings(Q_CLUSTER={**settings.Q_CLUSTER, key: 99}):
        assert ids(checks.check_cluster(None)) == ["transcriber.E002"]


@pytest.mark.django_db
def test_sqlite_must_be_durable_and_wait_for_locks() -> None:
    from django.db import connection

    if connection.vendor != "sqlite":
        pytest.skip("another database")
    assert checks.check_sqlite(None, databases=["default"]) == []
    options = {**connection.settings_dict["OPTIONS"], "transaction_mode": "DEFERRED"}
    connection.settings_dict["OPTIONS"], kept = options, connection.settings_dict["OPTIONS"]
    try:
        assert ids(checks.check_sqlite(None, databases=["default"])) == ["transcriber.E003"]
    finally:
        connection.settings_dict["OPTIONS"] = kept


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"debug": True}, []),
        ({"debug": True, "listen": "0.0.0.0"}, ["transcriber.W001"]),
        ({"debug": True, "allowed_hosts": ("*",)}, ["transcriber.W001"]),
        ({"debug": False, "listen": "0.0.0.0"}, []),
    ],
)
def test_error_details_are_not_for_strangers(keys: dict[str, Any], found: list[str]) -> None:
    with override_settings(TRANSCRIBER=with_config("web", **keys)):
        assert ids(checks.check_debug(None)) == found
