"""What must be set before Django's settings are read: an early plugin (`-p tests.environment`).

The run gets a data folder of its own. `TEST_DATABASE=postgres` runs it on a PostgreSQL server that it starts and stops itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.postgres import Server, find_binaries

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

_server: Server | None = None
_data: str | None = None

if "PYTEST_XDIST_WORKER" not in os.environ:
    for name in [name for name in os.environ if name.startswith("TRANSCRIBER_")]:
        del os.environ[name]
    _data = tempfile.mkdtemp(prefix="transcriber-tests-")
    os.environ["TRANSCRIBER_DATA"] = _data
    # A config.toml in the checkout is its owner's, not the tests'.
    empty = Path(_data) / "empty.toml"
    empty.touch()
    os.environ["TRANSCRIBER_CONFIG"] = str(empty)
    if os.environ.get("TEST_DATABASE") == "postgres":
        binaries = find_binaries()
        if binaries is None:
            pytest.exit("no PostgreSQL binaries (initdb, postgres) on this machine: its tests are skipped", returncode=0)
        _server = Server(binaries)
        _server.start()
        os.environ["DATABASE_URL"] = _server.url
    else:
        os.environ.pop("DATABASE_URL", None)
else:
    # What one test sweeps away must not be another's scratch.
    os.environ["TRANSCRIBER_DATA"] += f"/{os.environ['PYTEST_XDIST_WORKER']}"


def pytest_unconfigure() -> None:
    if _server is not None:
        _server.stop()
    if _data is not None:
        shutil.rmtree(_data, ignore_errors=True)
