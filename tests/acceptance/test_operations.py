"""What docs/operations.md tells to type does what it says: a backup is restored, and everything moves to PostgreSQL."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import ROOT, Service, wait_for

pytestmark = pytest.mark.processes

TABLES = ("audio_records", "recognitions", "record_events", "texts", "structures", "files", "auth_user", "auth_group", "knox_authtoken")

FILL = """
import django
django.setup()
from django.contrib.auth.models import Group, User
from records.models import AudioRecord
from topics.models import Topic
owner = User.objects.get(username="anna")
owner.set_password("a long password")
owner.save()
owner.groups.add(Group.objects.create(name="operators"))
AudioRecord.objects.update(owner=owner)
AudioRecord.objects.first().topics.add(Topic.objects.create(owner=owner, name="work"))
"""
MAY_SIGN_IN = """
import django
django.setup()
from django.contrib.auth.models import User
anna = User.objects.get(username="anna")
print(anna.check_password("a long password"), [group.name for group in anna.groups.all()])
"""


def told(beginning: str) -> list[str]:
    """The line of docs/operations.md that begins so after the interpreter, as arguments."""
    found = re.findall(rf"^\.venv/bin/python ({re.escape(beginning)}.*)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert len(found) == 1
    return shlex.split(found[0])


def fill(service: Service) -> str:
    """Two finished records, their owner with a password, a group and a topic. Gives her token."""
    token = service.manage("create_token", "anna").stdout.strip()
    service.put(2)
    service.run("-c", FILL)
    service.start("qcluster")
    wait_for(lambda: service.states() == {"done": 2}, within=60)
    service.stop()
    return token


def counts(service: Service) -> dict[str, int]:
    return {table: service.database.query(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def can_be_used(service: Service, token: str) -> None:
    """The web server alone: the token opens records, texts and recordings; the password and the group are there."""
    assert service.run("-c", MAY_SIGN_IN).stdout.strip() == "True ['operators']"
    service.start("serve", TRANSCRIBER_PIPELINE_WORKERS="0")
    caller = requests.Session()
    caller.headers["Authorization"] = f"Token {token}"
    found = caller.get(f"{service.url}/api/v1/records/", timeout=30).json()["results"]
    assert len(found) == 2
    for record in found:
        address = f"{service.url}/api/v1/records/{record['id']}/"
        assert caller.get(f"{address}transcript.txt", timeout=30).text == "Quick.\n"
        assert caller.get(f"{address}audio/original/", timeout=30).content.startswith(b"RIFF")
    service.stop()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Service]:
    """A service on SQLite, whatever database the other tests use."""
    service = Service(tmp_path / "old", None)
    service.manage("migrate", "--verbosity", "0")
    yield service
    service.end()


def test_a_backup_is_restored(old: Service, tmp_path: Path) -> None:
    token = fill(old)
    old.start("serve")
    backup = [argument.replace("var/db.sqlite3", str(old.database.path)) for argument in told("-c")]
    backup = [argument.replace("backup.sqlite3", str(tmp_path / "backup.sqlite3")) for argument in backup]
    old.run(*backup)
    shutil.copytree(old.data / "media", tmp_path / "media")
    shutil.copy(old.data / "secret_key", tmp_path / "secret_key")
    old.put(1)  # unknown to the backup
    old.stop()

    restored = Service(tmp_path / "restored", None)
    shutil.copy(tmp_path / "backup.sqlite3", restored.database.path)
    shutil.copytree(tmp_path / "media", restored.data / "media")
    shutil.copy(tmp_path / "secret_key", restored.data / "secret_key")
    try:
        assert counts(restored)["audio_records"] == 2
        can_be_used(restored, token)
    finally:
        restored.end()


def test_everything_moves_to_postgresql(old: Service, server: str | None, make_service: MakeService, tmp_path: Path) -> None:
    if server is None:
        pytest.skip("these tests run on SQLite alone; with TEST_DATABASE=postgres there is a server to move to")
    token = fill(old)
    file = str(tmp_path / "all.json")
    old.run(*[argument.replace("all.json", file) for argument in told("manage.py dumpdata")])

    new = make_service()
    new.manage("migrate", "--verbosity", "0")
    new.run(*[argument.replace("all.json", file) for argument in told("manage.py loaddata")])
    shutil.copytree(old.data / "media", new.data / "media")

    assert counts(new) == counts(old)
    can_be_used(new, token)
    new.put(1)
    new.start("qcluster")
    wait_for(lambda: new.states() == {"done": 3}, within=60)
    new.stop()
