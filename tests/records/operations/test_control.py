from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.files.storage import default_storage
from django.db import connection
from django.test.utils import CaptureQueriesContext

from recognition.models import Recognition
from records.models import AudioRecord, File, RecordEvent, Structure, Text
from records.operations import control
from records.operations.control import By
from records.pipeline.acquire import acquire
from records.pipeline.dispatch import Worker
from records.states import FINAL, HaltReason, Origin, State
from tests.factories import make_record, make_user
from tests.fakes.steps import ScriptedTable

pytestmark = pytest.mark.django_db

UNFINISHED = [state for state in State if state != FINAL]
NEXT = {State.UPLOADED: "normalize", State.NORMALIZED: "submit", State.SUBMITTED: "poll", State.TRANSCRIBED: "finish"}
ALL = AudioRecord.objects.all


def halted(now, state=State.UPLOADED, reason=HaltReason.EXHAUSTED, **more):
    return make_record(
        state,
        now=now,
        halted_at=now,
        halt_reason=reason,
        error_code="boom",
        error_text="It broke.",
        attempts=5,
        work_started_at=now,
        **more,
    )


@pytest.mark.parametrize("state", UNFINISHED)
def test_a_resumed_record_goes_on_from_where_it_stood(state, now, clock, rules):
    record = halted(now, state)
    later = clock.step(days=2)

    report = control.resume(ALL(), by=By(Origin.COMMAND), now=later)

    assert (report.changed, report.passed_over) == (1, {})
    record.refresh_from_db()
    assert (record.state, record.halted_at, record.halt_reason, record.error_code, record.error_text) == (state, None, "", "", "")
    assert (record.attempts, record.acquisition_id, record.work_started_at, record.delay_time) == (0, None, None, later)
    assert record.state_entered_at == later
    table = ScriptedTable()
    worker = Worker(table=table, clock=clock, rules=rules)
    assert worker.work_once()
    assert {step.__name__ for step in table.steps.values() if step.runs} == {NEXT[state]}


def test_who_did_what_and_where_stands_in_the_journal(now):
    person = make_user("olga")
    record = make_record(State.SUBMITTED, now=now)

    control.halt(ALL(), by=By(Origin.ADMIN, person), now=now)
    control.resume(ALL(), by=By(Origin.API, person), now=now)
    control.restart(ALL(), State.NORMALIZED, by=By(Origin.COMMAND), now=now)

    assert [(e.outcome, e.origin, e.actor, e.step, e.outcome_text) for e in record.events.order_by("id")] == [
        ("halted", "admin", person, "poll", "at submitted"),
        ("resumed", "api", person, "poll", "at submitted"),
        ("restarted", "command", None, "submit", "submitted → normalized"),
    ]


def test_resuming_passes_over_what_does_not_stand_and_what_needs_an_answer(now):
    halted(now)
    make_record(now=now)
    unanswered = halted(now, State.NORMALIZED, HaltReason.UNCONFIRMED)
    unanswered.recognition = Recognition.objects.create(record=unanswered, provider="speechkit", submit_started_at=now)
    unanswered.save()
    answered = halted(now, State.NORMALIZED, HaltReason.UNCONFIRMED)
    answered.recognition = Recognition.objects.create(record=answered, provider="speechkit", submit_started_at=now, external_id="f8d")
    answered.save()

    report = control.resume(ALL(), by=By(Origin.COMMAND), now=now)

    assert (report.changed, report.passed_over) == (2, {"not_halted": 1, "unconfirmed": 1})
    unanswered.refresh_from_db()
    assert unanswered.halted_at is not None
    assert RecordEvent.objects.count() == 2


def test_halting_takes_the_record_from_whoever_holds_it(now):
    record = make_record(now=now)
    acquire(ScriptedTable(), now=now)

    report = control.halt(ALL(), by=By(Origin.API), now=now)

    assert report.changed == 1
    record.refresh_from_db()
    assert (record.halt_reason, record.acquisition_id, record.acquire_expires_at) == (HaltReason.STOPPED, None, None)
    assert acquire(ScriptedTable(), now=now + timedelta(hours=1)) is None


def test_halting_passes_over_what_is_done_or_stands_already(now):
    make_record(State.DONE, now=now)
    stands = halted(now)

    report = control.halt(ALL(), by=By(Origin.API), now=now)

    assert (report.changed, report.passed_over) == (0, {"done": 1, "halted_already": 1})
    stands.refresh_from_db()
    assert stands.halt_reason == HaltReason.EXHAUSTED


CLEARED = {
    State.UPLOADED: {"normalized_file", "recognition", "structure", "transcript_text"},
    State.NORMALIZED: {"recognition", "structure", "transcript_text"},
    State.SUBMITTED: {"structure", "transcript_text"},
    State.TRANSCRIBED: set(),
}


@pytest.mark.parametrize("state", UNFINISHED)
@pytest.mark.django_db(transaction=True)
def test_restarting_clears_what_came_after_and_keeps_history(state, now, clock):
    record = make_record(State.DONE, now=now, attempts=0)
    old = {link: getattr(record, link) for link in ("normalized_file", "recognition", "structure", "transcript_text")}
    bytes_of_copy = old["normalized_file"].location

    later = clock.step(hours=1)
    report = control.restart(ALL(), state, by=By(Origin.ADMIN), now=later)

    assert report.changed == 1
    record.refresh_from_db()
    assert (record.state, record.state_entered_at, record.progress, record.delay_time) == (state, later, 0, later)
    assert {link for link in old if getattr(record, link) is None} == CLEARED[state]
    assert Recognition.objects.filter(pk=old["recognition"].pk).exists()
    for link, model in (("normalized_file", File), ("structure", Structure), ("transcript_text", Text)):
        assert model.objects.filter(pk=old[link].pk).exists() == (link not in CLEARED[state])
    assert default_storage.exists(bytes_of_copy) == (state != State.UPLOADED)
    assert default_storage.exists(record.original_file.location)


@pytest.mark.parametrize(
    ("state", "recognitions"), [(State.UPLOADED, 2), (State.NORMALIZED, 2), (State.SUBMITTED, 1), (State.TRANSCRIBED, 1)]
)
def test_a_restart_starts_a_new_recognition_when_it_must(state, recognitions, now, clock, rules, scripted, tmp_path):
    from tests.factories import wav_bytes

    record = make_record(now=now, contents=wav_bytes(tmp_path))
    worker = Worker(clock=clock, rules=rules)
    while worker.work_once():
        pass
    record.refresh_from_db()
    assert record.state == State.DONE
    first = record.recognition_id

    control.restart(ALL(), state, by=By(Origin.COMMAND), now=clock.now)
    while worker.work_once():
        pass

    record.refresh_from_db()
    assert record.state == State.DONE
    assert record.recognitions.count() == scripted.submitted == recognitions
    assert (record.recognition_id == first) == (recognitions == 1)
    assert record.transcript_text.contents == "Hello there.\nGoodbye."
    assert Text.objects.count() == Structure.objects.count() == 1
    assert File.objects.count() == 2


def test_what_never_reached_the_state_is_passed_over(now):
    make_record(now=now)
    report = control.restart(ALL(), State.SUBMITTED, by=By(Origin.COMMAND), now=now)
    assert (report.changed, report.passed_over) == (0, {"not_reached": 1})


def test_nothing_restarts_from_the_end(now):
    with pytest.raises(ValueError, match="final"):
        control.restart(ALL(), State.DONE, by=By(Origin.COMMAND), now=now)


@pytest.mark.parametrize("act", ["halt", "resume", "restart"])
def test_the_number_of_queries_does_not_depend_on_the_number_of_records(act, now):
    owner = make_user()

    def queries(count: int) -> int:
        AudioRecord.objects.all().delete()
        for _ in range(count):
            record = make_record(State.TRANSCRIBED, now=now, owner=owner)
            if act == "resume":
                AudioRecord.objects.filter(pk=record.pk).update(halted_at=now, halt_reason=HaltReason.STOPPED)
        with CaptureQueriesContext(connection) as captured:
            arguments = (ALL(), State.NORMALIZED) if act == "restart" else (ALL(),)
            report = getattr(control, act)(*arguments, by=By(Origin.ADMIN, owner), now=now)
        assert report.changed == count
        assert RecordEvent.objects.filter(actor=owner).count() == count
        return len(captured)

    assert queries(1) == queries(40)


def test_an_act_on_nothing_changes_nothing(now):
    assert control.halt(AudioRecord.objects.none(), by=By(Origin.API), now=now).changed == 0
    assert RecordEvent.objects.count() == 0


def test_a_narrowed_and_ordered_choice_is_kept_to(now):
    chosen = halted(now, title="this one")
    other = halted(now, title="not this one")

    control.resume(AudioRecord.objects.filter(title="this one").order_by("-created"), by=By(Origin.ADMIN), now=now)

    chosen.refresh_from_db()
    other.refresh_from_db()
    assert (chosen.halted_at, other.halted_at) == (None, now)


@pytest.mark.parametrize(
    ("state", "reason", "code", "payload", "dead"),
    [
        (State.SUBMITTED, HaltReason.REJECTED, "result_expired", "", True),
        (State.SUBMITTED, HaltReason.REJECTED, "recognition_refused", "", True),
        (State.SUBMITTED, HaltReason.EXHAUSTED, "recognition_failed", "", True),
        (State.SUBMITTED, HaltReason.EXHAUSTED, "provider_failed", "", False),
        (State.SUBMITTED, HaltReason.REJECTED, "source_unreadable", "", True),
        (State.SUBMITTED, HaltReason.REJECTED, "operation_forbidden", "", False),
        (State.SUBMITTED, HaltReason.REJECTED, "provider_refused", "", False),
        (State.SUBMITTED, HaltReason.REJECTED, "code_of_somebody_elses_provider", "", False),
        # A name that was kept, of a file that is lost: else nobody would have asked.
        (State.SUBMITTED, HaltReason.REJECTED, "result_expired", "payloads/answer.raw", True),
        (State.SUBMITTED, HaltReason.REJECTED, "answer_missing", "payloads/answer.raw", True),
        (State.SUBMITTED, HaltReason.EXHAUSTED, "recognition_failed", "payloads/answer.raw", False),
        (State.SUBMITTED, HaltReason.STOPPED, "", "", False),
        (State.NORMALIZED, HaltReason.REJECTED, "too_long", "", False),
        (State.TRANSCRIBED, HaltReason.EXHAUSTED, "recognition_failed", "", False),
    ],
)
def test_a_dead_operation_is_known_in_a_query_and_of_one_record(state, reason, code, payload, dead, now):
    record = make_record(state, now=now, halted_at=now, halt_reason=reason, error_code=code)
    if record.recognition:
        record.recognition.payload = payload
        record.recognition.save()
    assert AudioRecord.objects.filter(control.DEAD_OPERATION).exists() is dead
    assert control.operation_is_dead(record) is dead


def test_a_resume_of_many_takes_what_another_key_will_bring_and_leaves_what_is_gone(now):
    """The one is paid for and intact; the other needs a new recognition. Whoever insists may ask for that one again, too."""
    forbidden = make_record(State.SUBMITTED, now=now, halted_at=now, halt_reason=HaltReason.REJECTED, error_code="operation_forbidden")
    gone = make_record(State.SUBMITTED, now=now, halted_at=now, halt_reason=HaltReason.REJECTED, error_code="answer_missing")
    assert gone.recognition is not None
    gone.recognition.payload = "payloads/lost.raw"
    gone.recognition.save()

    report = control.resume(ALL(), by=By(Origin.ADMIN), now=now, dead_too=False)

    assert (report.changed, report.passed_over) == (1, {"dead": 1})
    forbidden.refresh_from_db()
    assert (forbidden.halted_at, forbidden.state) == (None, State.SUBMITTED)
    assert control.resume(ALL(), by=By(Origin.ADMIN), now=now).changed == 1
