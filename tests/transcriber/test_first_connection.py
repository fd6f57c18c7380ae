"""A database that does not exist yet, met by several processes at once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROCESSES, DATABASES = 4, 60

# Each process says that it is ready, and then opens one new database after the other, each when it is told to.
OPENS = """
import sys
import django
django.setup()
from django.db import connection
print("ready", flush=True)
for line in sys.stdin:
    connection.settings_dict["NAME"] = line.strip()
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            print(cursor.fetchone()[0], flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    connection.close()
"""


@pytest.mark.no_database
@pytest.mark.processes
def test_of_processes_that_open_a_new_database_at_once_none_fails(tmp_path: Path) -> None:
    config = tmp_path / "none.toml"
    config.touch()
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | {
        "DJANGO_SETTINGS_MODULE": "transcriber.settings",
        "TRANSCRIBER_DATA": str(tmp_path),
        "TRANSCRIBER_CONFIG": str(config),
    }
    openers = [
        subprocess.Popen([sys.executable, "-c", OPENS], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        assert [opener.stdout.readline() for opener in openers] == ["ready\n"] * PROCESSES
        for number in range(DATABASES):
            for opener in openers:
                opener.stdin.write(f"{tmp_path / f'{number}.sqlite3'}\n")
            for opener in openers:
                opener.stdin.flush()
            assert [opener.stdout.readline() for opener in openers] == ["wal\n"] * PROCESSES
    finally:
        for opener in openers:
            opener.kill()
            opener.wait()
            opener.stdin.close()
            opener.stdout.close()
    with sqlite3.connect(tmp_path / "0.sqlite3") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
