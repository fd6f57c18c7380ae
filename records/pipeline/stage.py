"""What a stage is, and what follows from the table of them: acquire filter, dispatch, leases, limits, the graph in the docs, metric labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from records.states import FINAL, State

if TYPE_CHECKING:
    from records.models import AudioRecord
    from records.pipeline.heartbeat import Checkpoint, Heartbeat
    from records.pipeline.outcomes import Outcome


class Step(Protocol):
    """The work of one stage: thin, repeatable, touches no queue column."""

    __name__: str

    def __call__(self, record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome: ...


class Work(Enum):
    """Whose work is awaited; chooses the time limit."""

    OWN = "own"
    FOREIGN = "foreign"


MAX_LEASE = timedelta(minutes=1)


@dataclass(frozen=True)
class Stage:
    """How a record goes on from `state`.

    `lease`: how long an acquisition holds without a sign of life, renewed while the step runs. `deadline`: after which it is renewed no more;
    grows by `deadline_factor` seconds per second of the recording. `produces`: the record's links that the step sets; a restart from `state`
    clears them and those of the stages after it.
    """

    state: State
    step: Step
    leads_to: State
    work: Work
    deadline: timedelta
    deadline_factor: float = 0.0
    lease: timedelta = MAX_LEASE
    produces: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The step's name, for the journal and as a metric label."""
        return self.step.__name__

    def deadline_for(self, duration_ms: int | None) -> timedelta:
        return self.deadline + timedelta(milliseconds=self.deadline_factor * (duration_ms or 0))


class StageTable:
    """The whole pipeline. Refuses on construction what could strand a record."""

    def __init__(self, *stages: Stage) -> None:
        self._stages: dict[State, Stage] = {}
        for stage in stages:
            if stage.state in self._stages:
                raise ValueError(f"two stages for {stage.state.value}")
            if stage.state == FINAL:
                raise ValueError("the final state has no step")
            if stage.lease > MAX_LEASE or stage.lease > stage.deadline:
                raise ValueError(f"the lease of {stage.state.value} is longer than a minute, or than its deadline")
            self._stages[stage.state] = stage
        order = list(State)
        for state in order:
            if state != FINAL and state not in self._stages:
                raise ValueError(f"no stage for {state.value}: its records would stand for ever")
        for stage in stages:
            if order.index(stage.leads_to) <= order.index(stage.state):
                raise ValueError(f"{stage.state.value} leads back to {stage.leads_to.value}")

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._stages.values())

    def __getitem__(self, state: str) -> Stage:
        return self._stages[State(state)]

    def is_before(self, state: str, other: str) -> bool:
        """Whether `state` is reached earlier than `other`."""
        order = list(State)
        return order.index(State(state)) < order.index(State(other))

    def produced_from(self, state: str) -> tuple[str, ...]:
        """The links that the steps from this state on set."""
        return tuple(link for stage in self if not self.is_before(stage.state, state) for link in stage.produces)

    def graph(self) -> str:
        """The pipeline as a Mermaid flow chart (docs/pipeline.md)."""
        lines = ["flowchart LR"]
        lines += [f"    {stage.state.value} -->|{stage.name}| {stage.leads_to.value}" for stage in self]
        lines += [f"    {stage.state.value} -.->|postpone| {stage.state.value}" for stage in self if stage.work is Work.FOREIGN]
        return "\n".join(lines) + "\n"
