"""What browsers are told about HTTPS, by a process with that configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_database

ASK = """
import django
django.setup()
from django.test import Client
answer = Client(SERVER_NAME="localhost").get("/healthz", headers={"X-Forwarded-Proto": "https"})
print(answer.status_code, answer.headers.get("Strict-Transport-Security"))
"""


@pytest.mark.parametrize(
    ("web", "said"),
    [
        ({}, "None"),
        ({"HTTPS": "true"}, "max-age=31536000"),
        ({"HTTPS": "true", "HSTS": "1h"}, "max-age=3600"),
        ({"HTTPS": "true", "HSTS": "0s"}, "None"),
        ({"HTTPS": "true", "HSTS_SUBDOMAINS": "true"}, "max-age=31536000; includeSubDomains"),
        ({"HTTPS": "true", "HSTS_SUBDOMAINS": "true", "HSTS_PRELOAD": "true"}, "max-age=31536000; includeSubDomains; preload"),
        ({"HSTS": "1h", "HSTS_SUBDOMAINS": "true"}, "None"),
    ],
)
def test_no_more_than_was_asked_for(web: dict[str, str], said: str, tmp_path: Path):
    config = tmp_path / "none.toml"
    config.touch()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRANSCRIBER_")}
    env = {
        **ours,
        **{f"TRANSCRIBER_WEB_{key}": value for key, value in web.items()},
        "TRANSCRIBER_CONFIG": str(config),
        "TRANSCRIBER_DATA": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "transcriber.settings",
    }

    answer = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == f"200 {said}"
