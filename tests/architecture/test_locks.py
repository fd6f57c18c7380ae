"""The lock files follow pyproject.toml: every dependency is pinned, within its bounds and with hashes; both files pin the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.no_database


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(name: str) -> dict[str, set[str]]:
    """Package → versions pinned (several, where they depend on the Python version)."""
    pins: dict[str, set[str]] = {}
    entries = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    for entry in entries:
        if not entry.strip() or entry.startswith("#"):
            continue
        requirement, *hashes = re.split(r"\s+--hash=", entry)
        assert hashes, f"{requirement.strip()} has no hash"
        pinned = Requirement(requirement.strip())
        (specifier,) = pinned.specifier
        assert specifier.operator == "==", requirement
        pins.setdefault(canonicalize_name(pinned.name), set()).add(specifier.version)
    return pins


@pytest.mark.parametrize(("name", "extra"), [("requirements.lock", None), ("requirements-dev.lock", "dev")])
def test_every_dependency_is_pinned_within_its_bounds(name: str, extra: str | None) -> None:
    wanted = [*project()["dependencies"], *(project()["optional-dependencies"][extra] if extra else [])]
    pins = locked(name)
    for line in wanted:
        requirement = Requirement(line)
        versions = pins.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement.name} is not in {name}: run `make lock`"
        for version in versions:
            assert version in requirement.specifier, f"{requirement.name} {version} is outside {requirement.specifier}: run `make lock`"


def test_tests_run_with_the_versions_that_users_get() -> None:
    development = locked("requirements-dev.lock")
    for package, versions in locked("requirements.lock").items():
        assert development.get(package) == versions
