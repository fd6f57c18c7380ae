"""Whoever lost the record writes nothing, leaves nothing behind, and tells nobody."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import OperationalError

from recognition.contract import Transient
from recognition.models import Recognition
from records.models import AudioRecord, File, RecordEvent, Structure, Text
from records.operations import control
from records.operations.control import By
from records.pipeline.acquire import acquire
from records.pipeline.dispatch import Worker
from records.pipeline.heartbeat import LeaseLost
from records.pipeline.outcomes import Advance, Halt, Postpone
from records.states import FINAL, HaltReason, Origin, State
from tests.factories import make_record

pytestmark = pytest.mark.django_db

BY = By(Origin.ADMIN)


def taken_by_another(table, clock) -> None:
    clock.step(minutes=2)
    assert acquire(table, now=clock.now) is not None


def halted_by_a_person(table, clock) -> None:
    assert control.halt(AudioRecord.objects.all(), by=BY, now=clock.now).changed == 1


def halted_and_resumed(table, clock) -> None:
    control.halt(AudioRecord.objects.all(), by=BY, now=clock.now)
    assert control.resume(AudioRecord.objects.all(), by=BY, now=clock.now).changed == 1


def restarted(table, clock) -> None:
    state = State(AudioRecord.objects.values_list("state", flat=True).get())
    assert control.restart(AudioRecord.objects.all(), state, by=BY, now=clock.now).changed == 1


def resumed_and_taken_again(table, clock) -> None:
    halted_and_resumed(table, clock)
    assert acquire(table, now=clock.now) is not None


WAYS = [taken_by_another, halted_by_a_person, halted_and_resumed, restarted, resumed_and_taken_again]


def snapshot() -> dict[str, Any]:
    return {
        model.__name__: list(model.objects.order_by("pk").values())
        for model in (AudioRecord, File, Text, Structure, RecordEvent, Recognition)
    }


def files_in_storage() -> set[str]:
    found: set[str] = set()

    def walk(folder: str) -> None:
        folders, files = default_storage.listdir(folder)
        found.update(f"{folder}/{name}" for name in files)
        for name in folders:
            walk(f"{folder}/{name}")

    walk("records")
    return found


def ending(outcome: Any) -> Callable[..., Any]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", [state for state in State if state != FINAL])
@pytest.mark.parametrize(
    "outcome",
    ["success", Postpone(timedelta(seconds=5)), Halt(HaltReason.REJECTED, "no", "No."), Transient("boom", "It broke."), ValueError("?")],
    ids=["advance", "postpone", "halt", "fail", "raise"],
)
def test_a_loser_leaves_nothing(outcome, state, way, engine: Worker, table, clock, delivered):
    make_record(state, now=clock.now)
    step = table.steps[state]
    before: dict[str, Any] = {}

    def lose_then_end(**given: Any) -> Any:
        # A recognition begun while the record was held stays as history; it is made before the record is lost.
        outcome_ = step.success(given["record"], given["checkpoint"], given["now"]) if outcome == "success" else outcome
        way(table, clock)
        before.update(snapshot())
        before["files"] = files_in_storage() - {row.location for row in getattr(outcome_, "links", {}).values() if isinstance(row, File)}
        return ending(outcome_)

    table.script(state, lose_then_end)

    assert engine.work_once()

    assert {**snapshot(), "files": files_in_storage()} == before
    assert delivered == []


def test_each_done_is_delivered_once(engine: Worker, table, clock, delivered):
    record = make_record(State.TRANSCRIBED, now=clock.now)
    loser_says = []

    def lose(**_: Any) -> Advance:
        taken_by_another(table, clock)
        winner = Worker(table=table, clock=clock, rules=engine.rules)
        clock.step(minutes=2)
        table.script(State.TRANSCRIBED, Advance())
        assert winner.work_once()
        loser_says.append(len(delivered))
        return Advance()

    table.script(State.TRANSCRIBED, lose)

    engine.work_once()
    while engine.work_once():
        pass

    record.refresh_from_db()
    assert record.state == State.DONE
    assert loser_says == [1]
    assert [finished.record_id for finished in delivered] == [record.pk]


def test_a_record_deleted_under_way_is_let_go(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    step = table.steps[State.UPLOADED]

    def vanish(**given: Any) -> Advance:
        made = step.success(given["record"], given["checkpoint"], given["now"])
        AudioRecord.objects.filter(pk=record.pk).delete()
        return made

    table.script(State.UPLOADED, vanish)
    before = files_in_storage()

    assert engine.work_once()

    assert not AudioRecord.objects.exists()
    assert not File.objects.exclude(pk=record.original_file_id).exists()
    assert files_in_storage() == before


def test_checkpoints_are_refused_to_a_loser(engine: Worker, table, clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    refused = []

    def try_all(record, checkpoint, **_: Any) -> Advance:
        recognition = Recognition(record_id=record.pk, provider="scripted")
        checkpoint.begin_recognition(recognition)
        taken_by_another(table, clock)
        for write in (
            lambda: checkpoint.begin_recognition(Recognition(record_id=record.pk, provider="late")),
            lambda: checkpoint.write(recognition, source_uri="late"),
            lambda: checkpoint.mark_submission(recognition),
        ):
            with pytest.raises(LeaseLost):
                write()
            refused.append(1)
        return Advance()

    table.script(State.NORMALIZED, try_all)

    engine.work_once()

    assert len(refused) == 3
    kept = Recognition.objects.get()
    assert (kept.provider, kept.source_uri, kept.submit_started_at) == ("scripted", "", None)
    record.refresh_from_db()
    assert (record.recognition_id, record.state) == (kept.pk, State.NORMALIZED)


def test_the_mark_is_set_once(engine: Worker, table, clock):
    make_record(State.NORMALIZED, now=clock.now)
    marks = []

    def mark_twice(record, checkpoint, **_: Any) -> Advance:
        recognition = Recognition(record_id=record.pk, provider="scripted")
        checkpoint.begin_recognition(recognition)
        marks.extend([checkpoint.mark_submission(recognition), checkpoint.mark_submission(recognition)])
        return Advance()

    table.script(State.NORMALIZED, mark_twice)

    engine.work_once()

    assert marks == [True, False]
    assert Recognition.objects.get().submit_started_at == clock.now


def test_a_write_the_database_refuses_counts_as_a_failure_and_leaves_no_file(engine: Worker, table, clock):
    record = make_record(now=clock.now)
    step = table.steps[State.UPLOADED]

    def twice_the_same_place(**given: Any) -> Advance:
        made = step.success(given["record"], given["checkpoint"], given["now"])
        file = made.links["normalized_file"]
        assert isinstance(file, File)
        taken = default_storage.save(f"records/test/{uuid.uuid4()}", ContentFile(b"x"))
        File.objects.create(location=taken, size=1)
        default_storage.delete(file.location)
        file.size = -1  # against a constraint
        return made

    table.script(State.UPLOADED, twice_the_same_place)

    engine.work_once()

    record.refresh_from_db()
    assert (record.state, record.attempts, record.error_code, record.normalized_file) == (State.UPLOADED, 1, "internal_error", None)


def test_a_commit_whose_answer_was_lost_keeps_the_file_it_wrote(engine: Worker, table, clock, monkeypatch):
    from records.pipeline import transitions

    record = make_record(now=clock.now)
    advance = transitions.advance

    def commit_and_lose(*arguments: Any, **named: Any) -> None:
        advance(*arguments, **named)
        raise OperationalError("the connection was lost in COMMIT")

    monkeypatch.setattr(transitions, "advance", commit_and_lose)

    engine.work_once()

    record.refresh_from_db()
    assert record.state == State.NORMALIZED
    assert default_storage.exists(record.normalized_file.location)
