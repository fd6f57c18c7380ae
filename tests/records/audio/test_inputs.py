"""The shared set of difficult recordings, each against what is expected of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from records.audio import AudioRejected, Normalized
from tests.inputs import NEIGHBOUR, Expectation, load_expectations, recordings
from tests.records.audio.conftest import Sound

pytestmark = pytest.mark.no_database

AUDIBLE_DB, QUIET_DB = -40.0, -55.0


@pytest.mark.parametrize("name", recordings())
def test_recording_is_treated_as_expected(
    inputs_dir: Path, binary: str, name: str, tmp_path: Path, normalized: Callable[..., tuple[Normalized, Path]]
):
    expectation = load_expectations(inputs_dir)[name]
    source = tmp_path / "upload"
    shutil.copy(inputs_dir / name, source)
    shutil.copy(inputs_dir / NEIGHBOUR, tmp_path / NEIGHBOUR)

    try:
        result, target = normalized(source)
    except AudioRejected as rejected:
        code = rejected.code
    else:
        code = ""
    if code:
        assert expectation.expect in ("reject", "either")
        assert code in expectation.codes
        return

    assert expectation.expect in ("accept", "either")
    assert result.duration_ms / 1000 == pytest.approx(expectation.duration_s, abs=expectation.tolerance_s)
    assert result.size == target.stat().st_size
    assert result.channels == 1
    if expectation.partial:
        assert set(result.notes) & {"truncated", "damaged"}
    if not expectation.silent:
        sound = Sound(target)
        assert any(_matches(sound, expectation, said) for said in expectation.said_options)


def _matches(sound: Sound, expectation: Expectation, said: tuple[dict[str, Any], ...]) -> bool:
    """Sound in each span, and none before, between and after them."""
    slack = expectation.slack_s
    edges = [0.0]
    for span in said:
        if sound.level(span["from"] + slack, span["to"] - slack) < AUDIBLE_DB:
            return False
        edges += [span["from"] - slack, span["to"] + slack]
    edges.append(expectation.duration_s - expectation.tolerance_s)
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return all(sound.level(start, end) < QUIET_DB for start, end in gaps if end - start > 0.1)
