"""The stage table is total: it, the enumeration and the database's constraint know the same states, and a bad declaration is refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import IntegrityError, models, transaction

from records.models import AudioRecord
from records.pipeline.outcomes import Advance
from records.pipeline.stage import MAX_LEASE, Stage, StageTable, Work
from records.pipeline.stages import STAGES
from records.pipeline.steps import finish, normalize, poll, submit
from records.pipeline.transitions import Rules
from records.states import FINAL, State
from tests.factories import make_record


def test_every_state_but_the_final_one_has_a_stage() -> None:
    assert [stage.state for stage in STAGES] == [state for state in State if state != FINAL]


def test_the_final_state_is_reached_from_the_first_one() -> None:
    state, passed = next(iter(State)), 0
    while state != FINAL:
        state, passed = STAGES[state].leads_to, passed + 1
        assert passed <= len(State)


def test_each_step_goes_by_the_name_in_the_design() -> None:
    assert [stage.step for stage in STAGES] == [normalize, submit, poll, finish]


@pytest.mark.django_db
def test_the_database_takes_each_state_of_the_enumeration_and_no_other(now: datetime) -> None:
    record = make_record(now=now)
    for state in State:
        AudioRecord.objects.filter(pk=record.pk).update(state=state)
    with pytest.raises(IntegrityError, match="audio_records_state_known"), transaction.atomic():
        AudioRecord.objects.filter(pk=record.pk).update(state="normalizing")


def test_links_that_a_step_produces_are_links_of_the_record_and_each_is_produced_once() -> None:
    produced = [link for stage in STAGES for link in stage.produces]
    assert len(produced) == len(set(produced))
    for link in produced:
        assert isinstance(AudioRecord._meta.get_field(link), models.ForeignKey)
    assert STAGES.produced_from(State.UPLOADED) == tuple(produced)
    assert STAGES.produced_from(State.SUBMITTED) == STAGES[State.SUBMITTED].produces


def test_a_lease_is_short_enough_to_be_back_at_work_within_two_minutes() -> None:
    assert all(timedelta(0) < stage.lease <= MAX_LEASE <= timedelta(minutes=1) for stage in STAGES)


def test_all_pauses_together_stay_below_the_limit_of_our_own_work(rules: Rules) -> None:
    assert rules.longest_pauses() < rules.limits[Work.OWN]


# ---- bad declarations ---------------------------------------------------------------------------------------------------------------


def step(*_: Any, **__: Any) -> Advance:
    return Advance()


def a_stage(state: State, leads_to: State, **more: Any) -> Stage:
    return Stage(**{"state": state, "step": step, "leads_to": leads_to, "work": Work.OWN, "deadline": timedelta(hours=1), **more})


def stages() -> dict[State, Stage]:
    order = list(State)
    return {state: a_stage(state, after) for state, after in pairwise(order)}


def test_a_good_declaration_is_taken() -> None:
    assert len(list(StageTable(*stages().values()))) == len(State) - 1


def test_two_stages_for_a_state_are_refused() -> None:
    with pytest.raises(ValueError, match="two stages for uploaded"):
        StageTable(*stages().values(), a_stage(State.UPLOADED, State.DONE))


@pytest.mark.parametrize("state", [state for state in State if state != FINAL])
def test_a_state_without_a_stage_is_refused(state: State) -> None:
    with pytest.raises(ValueError, match=f"no stage for {state.value}"):
        StageTable(*(stage for known, stage in stages().items() if known != state))


def test_a_stage_for_the_final_state_is_refused() -> None:
    with pytest.raises(ValueError, match="final state"):
        StageTable(*stages().values(), a_stage(FINAL, FINAL))


@pytest.mark.parametrize("leads_to", [State.UPLOADED, State.NORMALIZED, State.SUBMITTED])
def test_a_move_back_or_to_itself_is_refused(leads_to: State) -> None:
    with pytest.raises(ValueError, match="submitted leads back"):
        StageTable(*(stages() | {State.SUBMITTED: a_stage(State.SUBMITTED, leads_to)}).values())


@pytest.mark.parametrize(
    "spans",
    [{"lease": MAX_LEASE + timedelta(seconds=1)}, {"lease": timedelta(seconds=30), "deadline": timedelta(seconds=20)}],
    ids=["longer than a minute", "longer than its deadline"],
)
def test_a_lease_that_is_too_long_is_refused(spans: dict[str, timedelta]) -> None:
    with pytest.raises(ValueError, match="lease of normalized"):
        StageTable(*(stages() | {State.NORMALIZED: a_stage(State.NORMALIZED, State.SUBMITTED, **spans)}).values())


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="normalizing"):
        STAGES["normalizing"]
