from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import translation

from recognition import registry
from records.delivery import Finished, receivers
from records.pipeline.dispatch import Worker
from records.pipeline.stage import Work
from records.pipeline.transitions import Rules
from tests.environment import SHARED
from tests.fakes.provider import ScriptedProvider

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a script, where Ctrl-C is ignored, and what is started by us would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Clock:
    """Time as the test says it is."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def step(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Before the database is dropped, end what still has hold of it: a live server keeps a thread for each connection that a client kept."""
    yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def now(clock: Clock) -> datetime:
    return clock.now


@pytest.fixture
def rules() -> Rules:
    """The default rules, with pauses that can be computed."""
    return Rules(max_attempts=5, limits={Work.OWN: timedelta(hours=1), Work.FOREIGN: timedelta(hours=24)}, jitter=0)


@pytest.fixture
def worker(clock: Clock, rules: Rules) -> Worker:
    return Worker(clock=clock, rules=rules)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedProvider]:
    """A scripted provider, under its name in the registry and as the one that new recordings go to."""
    provider = ScriptedProvider()
    registry.get.cache_clear()
    monkeypatch.setitem(registry.BUILT_IN, "scripted", lambda: provider)
    monkeypatch.setattr(registry, "default", lambda: provider)
    yield provider
    registry.get.cache_clear()


@pytest.fixture
def delivered() -> Iterator[list[Finished]]:
    """What was delivered."""
    told: list[Finished] = []
    receivers.append(told.append)
    yield told
    receivers.remove(told.append)


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    """A request leaves its viewer's language active in its thread, which here is the next test's as well."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _own_media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own files, so that it can see what was left behind."""
    from django.core.files.storage import default_storage

    location = tmp_path / "media"
    configured: Any = settings.STORAGES
    options = configured["default"]["OPTIONS"]
    monkeypatch.setitem(options, "location", str(location))
    for name in ("base_location", "location"):
        default_storage.__dict__.pop(name, None)
    if hasattr(default_storage, "_wrapped"):
        from django.utils.functional import empty

        default_storage._wrapped = empty
        from django.core.files.storage import storages

        vars(storages)["_storages"].pop("default", None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED
