"""The recordings from hell of ../shared/inputs: made once per run, with what a correct service must do with each.

    from tests.inputs import Expectation, expectations, inputs_dir, load_expectations, recordings

`inputs_dir` is a fixture (import it where it is used, or into a conftest); `expectations()` parametrizes a test over the set
at collection, when nothing is made yet.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.environment import SHARED

MAKERS = tuple(SHARED / "inputs" / name for name in ("make_inputs.py", "make_more_inputs.py"))
NEIGHBOUR = "neighbour_private.mp3"  # to be laid beside the playlist, never uploaded


@dataclass(frozen=True)
class Expectation:
    """What must happen to one recording; `how_to_read` in expectations.json explains the fields."""

    name: str
    expect: str  # accept, reject or either
    codes: tuple[str, ...]  # right ones for a rejection
    duration_s: float
    tolerance_s: float
    said_options: tuple[tuple[dict[str, Any], ...], ...]  # any of these lists of spans is right
    silent: bool
    partial: bool
    slack_s: float
    must_not_say: tuple[str, ...]


def load_expectations(folder: Path) -> dict[str, Expectation]:
    """By file name, of both sets, without the neighbour."""
    found = {}
    for raw in (raw for maker in MAKERS for raw in json.loads((folder / f"{maker.stem}.json").read_text("utf-8"))["files"]):
        if raw["expect"] == "neighbour":
            continue
        found[raw["name"]] = Expectation(
            name=raw["name"],
            expect=raw["expect"],
            codes=tuple(code for code in (raw.get("reason"), *raw.get("also_ok", ())) if code),
            duration_s=raw.get("duration", 0.0),
            tolerance_s=raw.get("tolerance", 0.0),
            said_options=tuple(tuple(said) for said in raw.get("said_options", [raw.get("said", [])])),
            silent=raw.get("silent", False),
            partial=raw.get("partial", False),
            slack_s=raw.get("time_slack", 0.4),
            must_not_say=tuple(raw.get("must_not_say", ())),
        )
    return found


def _why_not() -> str:
    """Why the set cannot be made here; empty where it can."""
    if not all(maker.is_file() for maker in MAKERS):
        return "../shared/inputs is not there"
    if shutil.which("espeak-ng") is None:
        return "espeak-ng is not installed"
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return "ffmpeg is not installed (the set is made with the system's)"
    encoders = subprocess.run([ffmpeg, "-hide_banner", "-encoders"], capture_output=True, text=True, check=False).stdout
    missing = [name for name in ("libmp3lame", "libopus") if f" {name} " not in encoders]
    return f"ffmpeg has no {' and no '.join(missing)}" if missing else ""


why_not = lru_cache(maxsize=1)(_why_not)


def recordings() -> list[Any]:
    """Names for `pytest.mark.parametrize`, read from the maker's source: collection must not make anything."""
    if not all(maker.is_file() for maker in MAKERS):
        return [pytest.param("", marks=pytest.mark.skip(reason=why_not()), id="absent")]
    names: list[Any] = [name for maker in MAKERS for name in re.findall(r'm\.note\("([^"]+)"', maker.read_text("utf-8"))]
    return [name for name in names if name != NEIGHBOUR]


@pytest.fixture(scope="session")
def inputs_dir(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of the whole set, one for all processes of the run. Read only."""
    if reason := why_not():
        pytest.skip(reason)
    root = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # under xdist each process has its own folder in that of the run
        root = root.parent
    folder = root / "inputs"
    with (root / "inputs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for maker in MAKERS:
            if not (folder / f"{maker.stem}.json").exists():
                subprocess.run([sys.executable, str(maker), str(folder)], check=True, capture_output=True)
                (folder / "expectations.json").rename(folder / f"{maker.stem}.json")  # each maker writes it last
    return folder
