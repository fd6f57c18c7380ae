"""Any interleaving of workers, people and clocks keeps the promises of the queue (hypothesis, stateful, against a small model)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from records.models import AudioRecord, RecordEvent
from records.operations import control
from records.operations.control import By
from records.pipeline import transitions
from records.pipeline.acquire import Acquisition, acquire
from records.pipeline.heartbeat import Heartbeat, LeaseLost
from records.pipeline.outcomes import Advance, Halt, Postpone
from records.pipeline.stage import Work
from records.pipeline.transitions import Rules, Run
from records.states import FINAL, HaltReason, Origin, State
from tests.conftest import Clock
from tests.factories import make_record, make_user
from tests.fakes.steps import ScriptedTable

ORDER = list(State)
LIMITS = {Work.OWN: timedelta(hours=1), Work.FOREIGN: timedelta(hours=4)}
BY = By(Origin.COMMAND)


@dataclass
class Model:
    """What must be true of one record, kept by hand."""

    state: State = State.UPLOADED
    halted: bool = False
    attempts: int = 0
    holder: uuid.UUID | None = None
    due: datetime | None = None
    lease_ends: object = None
    events: list[str] = field(default_factory=list)


@dataclass
class Held:
    acquisition: Acquisition
    run: Run
    heartbeat: Heartbeat


class Queue(RuleBasedStateMachine):
    workers = st.integers(0, 3)

    @initialize()
    def begin(self) -> None:
        AudioRecord.objects.all().delete()
        self.clock = Clock()
        self.table = ScriptedTable()
        self.rules_ = Rules(max_attempts=3, limits=LIMITS, jitter=0)
        owner = make_user()
        self.models: dict[uuid.UUID, Model] = {}
        for _ in range(2):
            record = make_record(now=self.clock.now, owner=owner)
            self.models[record.pk] = Model(due=self.clock.now)
        self.hands: dict[int, Held] = {}

    def model_of(self, held: Held) -> Model:
        return self.models[held.acquisition.record_id]

    def holds(self, held: Held) -> bool:
        return self.model_of(held).holder == held.acquisition.id

    # ---- workers --------------------------------------------------------------------------------------------------------------------

    @rule(worker=workers)
    def take(self, worker: int) -> None:
        now = self.clock.now
        acquisition = acquire(self.table, now=now)
        due = [model for model in self.models.values() if not model.halted and model.state != FINAL and model.due <= now]
        assert (acquisition is not None) == bool(due)
        if acquisition is None:
            return
        model = self.models[acquisition.record_id]
        assert model in due
        assert acquisition.taken_over == (model.holder is not None)
        record = AudioRecord.objects.select_related("recognition").get(pk=acquisition.record_id)
        stage = self.table[record.state]
        run = Run(acquisition=acquisition, record=record, stage=stage, rules=self.rules_, started_at=now)
        model.holder, model.due, model.lease_ends = acquisition.id, now + stage.lease, now + stage.lease
        if acquisition.taken_over:
            model.attempts += 1
            goes_on = transitions.taken_over(run, now=now)
            assert goes_on == (model.attempts < self.rules_.max_attempts)
            model.events.append("failed" if goes_on else "halted")
            if not goes_on:
                model.halted, model.holder = True, None
                return
        heartbeat = Heartbeat(acquisition, lease=stage.lease, deadline=timedelta(days=1), clock=self.clock)
        self.hands[worker] = Held(acquisition, run, heartbeat)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        held = self.hands[data.draw(st.sampled_from(sorted(self.hands)))]
        held.heartbeat._renew(self.clock.now)
        if self.holds(held):
            self.model_of(held).due = self.clock.now + held.run.stage.lease
            held.heartbeat.beat()
        else:
            with pytest.raises(LeaseLost):
                held.heartbeat.beat()

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), how=st.sampled_from(["advance", "postpone", "fail", "halt", "release"]), wait=st.integers(0, 90))
    def end(self, data: st.DataObject, how: str, wait: int) -> None:
        worker = data.draw(st.sampled_from(sorted(self.hands)))
        held = self.hands.pop(worker)
        now, run, model = self.clock.now, held.run, self.model_of(held)
        holds = self.holds(held)
        try:
            if how == "advance":
                transitions.advance(run, Advance(), now=now)
            elif how == "postpone":
                transitions.postpone(run, Postpone(timedelta(minutes=wait)), now=now)
            elif how == "fail":
                transitions.fail(run, code="boom", text="It broke.", now=now)
            elif how == "halt":
                transitions.halt(run, Halt(HaltReason.REJECTED, "no", "No."), now=now)
            else:
                transitions.release(run, now=now)
        except LeaseLost:
            assert not holds
            return
        assert holds
        record = AudioRecord.objects.get(pk=held.acquisition.record_id)
        assert run.record.work_started_at is not None
        over = now - run.record.work_started_at > LIMITS[run.stage.work]
        model.holder = None
        if how == "advance":
            model.state, model.attempts, model.due = run.stage.leads_to, 0, now
            model.events.append("advanced")
        elif how == "postpone":
            model.halted = over
            model.events += ["halted"] * over
            if not over:
                model.attempts, model.due = 0, now + timedelta(minutes=wait)
        elif how == "fail":
            model.attempts += 1
            model.halted = over or model.attempts >= self.rules_.max_attempts
            model.events.append("halted" if model.halted else "failed")
            if not model.halted:
                model.due = now + self.rules_.pause(model.attempts)
        elif how == "halt":
            model.halted = True
            model.events.append("halted")
        else:
            model.due = now
        assert (record.halted_at is not None) == model.halted

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.hands.pop(data.draw(st.sampled_from(sorted(self.hands))))

    # ---- people ---------------------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def person_halts(self, data: st.DataObject) -> None:
        pk = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[pk]
        report = control.halt(AudioRecord.objects.filter(pk=pk), by=BY, now=self.clock.now)
        assert report.changed == (not model.halted and model.state != FINAL)
        if report.changed:
            model.halted, model.holder = True, None
            model.events.append("halted")

    @rule(data=st.data())
    def person_resumes(self, data: st.DataObject) -> None:
        pk = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[pk]
        report = control.resume(AudioRecord.objects.filter(pk=pk), by=BY, now=self.clock.now)
        assert report.changed == model.halted
        if report.changed:
            model.halted, model.holder, model.attempts, model.due = False, None, 0, self.clock.now
            model.events.append("resumed")

    @rule(data=st.data(), state=st.sampled_from([state for state in ORDER if state != FINAL]))
    def person_restarts(self, data: st.DataObject, state: State) -> None:
        pk = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[pk]
        report = control.restart(AudioRecord.objects.filter(pk=pk), state, by=BY, now=self.clock.now)
        assert report.changed == (ORDER.index(state) <= ORDER.index(model.state))
        if report.changed:
            model.state, model.halted, model.holder, model.attempts, model.due = state, False, None, 0, self.clock.now
            model.events.append("restarted")

    # ---- time -----------------------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 10, 30, 61, 600, 4000, 20000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.step(seconds=seconds)

    # ---- what must hold at every moment -----------------------------------------------------------------------------------------------

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        if not hasattr(self, "models"):
            return
        rows = {row.pk: row for row in AudioRecord.objects.all()}
        assert set(rows) == set(self.models)  # none lost
        for pk, model in self.models.items():
            row = rows[pk]
            assert (row.state, row.halted_at is not None, row.attempts) == (model.state, model.halted, model.attempts)
            assert row.acquisition_id == model.holder
            if not model.halted and model.state != FINAL:
                assert row.delay_time == model.due
        journal: dict[uuid.UUID, list[str]] = {pk: [] for pk in self.models}
        for pk, outcome in RecordEvent.objects.order_by("id").values_list("record_id", "outcome"):
            journal[pk].append(outcome)
        assert journal == {pk: model.events for pk, model in self.models.items()}

    @invariant()
    def no_record_is_held_twice(self) -> None:
        holders = [held.acquisition.record_id for held in getattr(self, "hands", {}).values() if self.holds(held)]
        assert len(holders) == len(set(holders))


@pytest.mark.django_db
def test_any_interleaving_keeps_the_promises():
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=True
        ),
    )
