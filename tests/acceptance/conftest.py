from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.service import Database, Service

MakeService = Callable[..., Service]


@pytest.fixture(scope="session")
def server() -> str | None:
    """The PostgreSQL server of this run, if it has one."""
    return os.environ.get("DATABASE_URL")


@pytest.fixture(scope="session")
def migrated(server: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database with all tables and no rows, to be copied."""
    template = Service(tmp_path_factory.mktemp("template"), server)
    template.database.create()
    template.manage("migrate", "--verbosity", "0")
    yield template.database
    template.database.drop()


@pytest.fixture
def make_service(server: str | None, migrated: Database, tmp_path: Path) -> Iterator[MakeService]:
    """A service that is not started yet; `make_service(TRANSCRIBER_PIPELINE_WORKERS="4")`."""
    made: list[Service] = []

    def make(**environment: str) -> Service:
        service = Service(tmp_path / f"service{len(made)}", server, **environment)
        made.append(service)
        service.database.create(migrated)
        return service

    yield make
    for service in reversed(made):
        print(f"---- log of {service.data.name}\n{service.log}")
        service.end()


@pytest.fixture
def service(make_service: MakeService) -> Service:
    return make_service()
