"""What must not be in the tree: addresses of package registries, and paths of somebody's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Spelled so that this file doesn't find itself.
FORBIDDEN = re.compile(
    "|".join(
        (
            r"pypi" + r"\.org",
            r"pythonhosted" + r"\.org",
            r"registry\.npm" + r"js\.org",
            r"--(?:extra-)?index" + r"-url",
            r"/(?:home|Users)/" + r"[a-z]+/",
            r"(?<![\w.~])/(?:root|work|opt)/" + r"[a-z]+",
        )
    )
)
BINARY = {".ogg", ".png", ".bin", ".mo"}

pytestmark = pytest.mark.no_database


def tree() -> list[Path]:
    """Every file that belongs to the project: of the repository, or of an unpacked copy of it."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    if not names:
        skipped = {
            ".venv",
            "var",
            ".git",
            "__pycache__",
            ".hypothesis",
            ".mypy_cache",
            ".pytest_cache",
            ".ruff_cache",
            ".import_linter_cache",
        }
        return [path for path in ROOT.rglob("*") if path.is_file() and not skipped & set(path.relative_to(ROOT).parts)]
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_registry_and_no_machine_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in tree()
        if path.suffix not in BINARY
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := FORBIDDEN.search(line))
    ]
    assert found == []


@pytest.mark.parametrize("line", ["see https://pypi." + "org/x", "/ho" + "me/anna/x", "cd /wo" + "rk/main", "pip --index" + "-url=x"])
def test_a_planted_one_is_found(line: str) -> None:
    assert FORBIDDEN.search(line)


def test_files_are_text_in_utf8_or_known_to_be_none() -> None:
    unknown = []
    for path in tree():
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if path.suffix not in BINARY:
                unknown.append(path.name)
    assert unknown == []
