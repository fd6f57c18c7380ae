from __future__ import annotations

import pytest

from records.pipeline.dispatch import Worker
from records.pipeline.transitions import Rules
from tests.conftest import Clock
from tests.fakes.steps import ScriptedTable


@pytest.fixture
def table() -> ScriptedTable:
    return ScriptedTable()


@pytest.fixture
def engine(table: ScriptedTable, clock: Clock, rules: Rules) -> Worker:
    """A worker whose steps are scripted."""
    return Worker(table=table, clock=clock, rules=rules)
