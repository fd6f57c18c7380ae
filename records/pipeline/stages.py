"""The whole product on one page."""

from __future__ import annotations

from datetime import timedelta

from records.pipeline.stage import Stage, StageTable, Work
from records.pipeline.steps import finish, normalize, poll, submit
from records.states import State

STAGES = StageTable(
    Stage(
        State.UPLOADED,
        step=normalize,
        leads_to=State.NORMALIZED,
        work=Work.OWN,
        produces=("normalized_file",),
        deadline=timedelta(minutes=30),
        deadline_factor=1.0,
    ),
    Stage(
        State.NORMALIZED,
        step=submit,
        leads_to=State.SUBMITTED,
        work=Work.OWN,
        produces=("recognition",),
        # A service that answers on the same connection recognizes in here.
        deadline=timedelta(hours=1),
        deadline_factor=10.0,
    ),
    Stage(
        State.SUBMITTED,
        step=poll,
        leads_to=State.TRANSCRIBED,
        work=Work.FOREIGN,
        produces=("structure", "transcript_text"),
        # A large model on a small machine takes several times as long as the recording lasts.
        deadline=timedelta(hours=1),
        deadline_factor=10.0,
    ),
    Stage(
        State.TRANSCRIBED,
        step=finish,
        leads_to=State.DONE,
        work=Work.OWN,
        deadline=timedelta(minutes=10),
    ),
)
