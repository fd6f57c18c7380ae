"""Acquire → step → outcome → write: one record, one step. The one place that maps exceptions to outcomes."""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import Error as DatabaseProblem
from django.utils import timezone

from recognition.contract import Busy, Misconfigured, OutcomeUnknown, Refused, Transient
from recognition.operations.gates import PROBE_EVERY
from records import audio
from records.delivery import Finished, deliver
from records.models import AudioRecord, File
from records.pipeline import transitions
from records.pipeline.acquire import Acquisition, acquire, is_ready
from records.pipeline.heartbeat import Checkpoint, Clock, DeadlinePassed, Heartbeat, Interrupted, LeaseLost, Stopping, check_connection
from records.pipeline.outcomes import Advance, Halt, Outcome, Postpone
from records.pipeline.stage import StageTable, Work
from records.pipeline.stages import STAGES
from records.pipeline.transitions import Rules, Run
from records.states import FINAL, HaltReason

logger = logging.getLogger(__name__)


def configured_rules() -> Rules:
    config = settings.TRANSCRIBER.pipeline
    return Rules(max_attempts=config.max_attempts, limits={Work.OWN: config.own_work_limit, Work.FOREIGN: config.foreign_work_limit})


@dataclass(frozen=True)
class Worker:
    """What a worker works with. All have defaults; tests set the clock, a process of a cluster says when to stop."""

    table: StageTable = STAGES
    rules: Rules = field(default_factory=configured_rules)
    clock: Clock = timezone.now
    stop: Callable[[], bool] = lambda: False
    end_process: Callable[[], None] | None = None
    """Ends this process at once, where a step can't be interrupted otherwise. None: it is waited for."""
    holding: Callable[[uuid.UUID | None], None] = lambda record_id: None
    """Told what is being worked on; None: nothing any more."""

    def work_once(self, record_id: uuid.UUID | None = None) -> bool:
        """Take one record that is due (or the given one, if it is) through one step. False if there was none."""
        if record_id is None and not is_ready(now=self.clock()):
            return False
        acquisition = acquire(self.table, now=self.clock(), record_id=record_id)
        if acquisition is None:
            return False
        self.holding(acquisition.record_id)
        try:
            self._work(acquisition)
        except LeaseLost:
            logger.info("record %s was lost to another or to a person; nothing written", acquisition.record_id)
        finally:
            self.holding(None)
        return True

    def _work(self, acquisition: Acquisition) -> None:
        links = ("original_file", "normalized_file", "recognition")
        record = AudioRecord.objects.select_related(*links).filter(pk=acquisition.record_id, acquisition_id=acquisition.id).first()
        if record is None:
            raise LeaseLost
        run = Run(acquisition=acquisition, record=record, stage=self.table[record.state], rules=self.rules, started_at=self.clock())
        if acquisition.taken_over and not transitions.taken_over(run, now=self.clock()):
            return
        checkpoint = Checkpoint(acquisition, clock=self.clock)
        heartbeat = Heartbeat(
            acquisition,
            lease=run.stage.lease,
            deadline=run.stage.deadline_for(self._duration_ms(record)),
            clock=self.clock,
            stop=self.stop,
            last_resort=self._last_resort(run),
        )
        try:
            with heartbeat:
                outcome = run.stage.step(record, heartbeat=heartbeat, checkpoint=checkpoint, now=run.started_at)
            self._write(run, outcome)
        except LeaseLost:
            raise
        except DeadlinePassed:
            transitions.fail(run, code="deadline", text="The step took longer than it may.", now=self.clock())
        except (Stopping, KeyboardInterrupt, SystemExit) as interruption:
            transitions.release(run, now=self.clock())
            if not isinstance(interruption, Stopping):
                raise
        except Exception as error:
            self._write_error(run, error)

    @staticmethod
    def _duration_ms(record: AudioRecord) -> int:
        """How long the recording is; before anybody has measured it, as long as one may be."""
        longest = int(settings.TRANSCRIBER.intake.max_duration.total_seconds() * 1000)
        return longest if record.original_file.duration_ms is None else record.original_file.duration_ms

    def _write(self, run: Run, outcome: Outcome) -> None:
        now = self.clock()
        match outcome:
            case Advance():
                try:
                    transitions.advance(run, outcome, now=now)
                except BaseException:
                    self._remove_unwritten(outcome)
                    raise
                logger.info("record %s: %s → %s", run.record.pk, run.stage.state.value, run.stage.leads_to.value)
                if run.stage.leads_to == FINAL:
                    deliver(Finished(record_id=run.record.pk))
            case Postpone():
                transitions.postpone(run, outcome, now=now)
            case Halt():
                transitions.halt(run, outcome, now=now)
                logger.warning("record %s halted at %s: %s (%s)", run.record.pk, run.stage.state.value, outcome.reason.value, outcome.code)

    @staticmethod
    def _remove_unwritten(outcome: Advance) -> None:
        """Remove the bytes of file rows that were not written. A connection lost in the commit leaves that open; what can't be known is left to
        the sweep of files that no row leads to."""
        for row in outcome.links.values():
            if not isinstance(row, File):
                continue
            try:
                check_connection()
                is_written = File.objects.filter(pk=row.pk).exists()
            except DatabaseProblem:
                continue
            if not is_written:
                default_storage.delete(row.location)

    def _write_error(self, run: Run, error: Exception) -> None:
        match error:
            case audio.AudioRejected() | Refused():
                self._write(run, Halt(HaltReason.REJECTED, error.code, error.message))
            case Busy():
                self._write(run, Postpone(timedelta(seconds=error.retry_after), foreign=True, code=error.code, text=error.message))
            case Misconfigured():
                logger.error("the provider does not work for us: %s", error)
                self._write(run, Postpone(PROBE_EVERY, foreign=True, paced=True, code=error.code, text=error.message))
            case audio.AudioFailed() | Transient() | OutcomeUnknown():
                self._fail(run, error.code, error.message)
            case FileNotFoundError():
                self._fail(run, "file_missing", "A file of this record is not in the storage.")
            case OSError(errno=28):
                self._fail(run, "disk_full", "There is no space left on the disk.")
            case _:
                # The message of an unforeseen error may hold anything, what was said included; its place in the code is enough to find it.
                frames = "".join(traceback.format_tb(error.__traceback__))
                logger.error("unexpected %s in %s of record %s\n%s", type(error).__name__, run.stage.name, run.record.pk, frames)
                self._fail(run, "internal_error", f"Unexpected {type(error).__name__}; the log says where.")

    def _fail(self, run: Run, code: str, text: str) -> None:
        transitions.fail(run, code=code, text=text, now=self.clock())
        logger.warning("record %s failed at %s: %s", run.record.pk, run.stage.state.value, code)

    def _last_resort(self, run: Run) -> Callable[[Interrupted], None] | None:
        """For the heartbeat's thread, when the step itself can't be reached: give the record back, then end the process and what it started."""
        end_process = self.end_process
        if end_process is None:
            return None

        def give_back_and_end(reason: Interrupted) -> None:
            try:
                if isinstance(reason, Stopping):
                    transitions.release(run, now=self.clock())
                elif isinstance(reason, DeadlinePassed):
                    transitions.fail(run, code="deadline", text="The step took longer than it may.", now=self.clock())
            except LeaseLost:
                pass
            finally:
                end_process()

        return give_back_and_end
