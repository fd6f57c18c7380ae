"""Steps whose outcomes are scripted, in the real stage table's places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from recognition.models import Recognition
from records.models import AudioRecord, File, Structure, Text, TextKind
from records.pipeline.heartbeat import Checkpoint, Heartbeat
from records.pipeline.outcomes import Advance, Outcome
from records.pipeline.stage import StageTable
from records.pipeline.stages import STAGES
from records.states import State
from tests.factories import make_file

Act = Outcome | BaseException | Callable[..., Outcome]


class ScriptedStep:
    """Does what stands in `acts`, one a run, the last one for ever; with nothing there it advances with what the real step produces."""

    def __init__(self, name: str, state: State) -> None:
        self.__name__ = name
        self.state = state
        self.acts: list[Act] = []
        self.runs = 0

    def __call__(self, record: AudioRecord, *, heartbeat: Heartbeat, checkpoint: Checkpoint, now: datetime) -> Outcome:
        self.runs += 1
        if not self.acts:
            return self.success(record, checkpoint, now)
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        if isinstance(act, BaseException):
            raise act
        if callable(act):
            return act(record=record, heartbeat=heartbeat, checkpoint=checkpoint, now=now)
        return act

    def success_later(self) -> Callable[..., Outcome]:
        """Succeed, as an act of a script."""
        return lambda record, checkpoint, now, **_: self.success(record, checkpoint, now)

    def success(self, record: AudioRecord, checkpoint: Checkpoint, now: datetime) -> Advance:
        if self.state == State.UPLOADED:
            file = make_file(b"OggS", format="ogg")
            unsaved = File(location=file.location, size=4, format="ogg", duration_ms=2000)
            file.delete()
            return Advance(links={"normalized_file": unsaved})
        if self.state == State.NORMALIZED and record.recognition is None:
            checkpoint.begin_recognition(Recognition(record_id=record.pk, provider="scripted", started_at=now))
        if self.state == State.SUBMITTED:
            return Advance(
                links={
                    "structure": Structure(version=1, contents={"language": None, "speakers": [], "utterances": []}),
                    "transcript_text": Text(kind=TextKind.TRANSCRIPT, contents="What was said."),
                }
            )
        return Advance()


class ScriptedTable(StageTable):
    """The real table with scripted steps; `table.steps[State.UPLOADED].acts = [...]`."""

    def __init__(self) -> None:
        self.steps = {stage.state: ScriptedStep(stage.name, stage.state) for stage in STAGES}
        super().__init__(*(replace(stage, step=self.steps[stage.state]) for stage in STAGES))

    def script(self, state: State, *acts: Act) -> ScriptedStep:
        self.steps[state].acts = list(acts)
        return self.steps[state]
