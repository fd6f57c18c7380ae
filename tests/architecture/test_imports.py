"""Who may import whom: the contracts of pyproject.toml hold, and each of them notices a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("transcriber", "records", "recognition", "topics")

pytestmark = pytest.mark.no_database


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code, without its data, to plant breaches in."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.ogg", "migrations"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(folder: Path, module: str, line: str) -> None:
    path = folder / module
    path.write_text(path.read_text() + f"\n{line}\n")


def test_the_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("contract", "module", "line"),
    [
        ("Apps: ", "recognition/models.py", "import records.states"),
        ("Inside an app: ", "records/models/file.py", "import records.pipeline.acquire"),
        ("Inside the pipeline: ", "records/pipeline/acquire.py", "import records.pipeline.dispatch"),
        ("Steps never touch the queue", "records/pipeline/steps/poll.py", "import records.pipeline.transitions"),
        ("Adapters know values, not rows", "records/formats.py", "import records.models"),
        ("Only adapters speak to the outside", "records/operations/control.py", "import requests"),
        ("Queue columns are written by", "records/pipeline/steps/finish.py", "import records.pipeline.transitions"),
        ("Settings are read through django.conf", "records/storage/local.py", "import transcriber.settings"),
    ],
)
def test_a_planted_breach_is_seen(copy: Path, contract: str, module: str, line: str) -> None:
    plant(copy, module, line)

    done = lint_imports(copy)

    assert done.returncode == 1, done.stdout + done.stderr
    broken = [text for text in done.stdout.splitlines() if " BROKEN" in text]
    assert any(text.startswith(contract) for text in broken), done.stdout


def test_a_module_without_a_place_in_the_layers_is_seen(copy: Path) -> None:
    (copy / "records" / "utils.py").write_text("")

    done = lint_imports(copy)

    assert done.returncode == 1
    assert "records.utils" in done.stdout
