"""What a provider's refusals mean for one record and for all: whose trouble it is, and when the others go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recognition import registry
from recognition.contract import Audio, Busy, Misconfigured, OutcomeUnknown, ProviderError, Refused, Transient
from recognition.models import ProviderGate, Recognition
from recognition.operations import gates
from recognition.operations.gates import PROBE_EVERY
from records.models import AudioRecord
from records.pipeline.dispatch import Worker
from records.pipeline.heartbeat import Checkpoint
from records.states import HaltReason, State
from tests.conftest import Clock
from tests.factories import make_record
from tests.fakes.provider import HELLO, ScriptedProvider, payload_of

pytestmark = pytest.mark.django_db

FORBIDDEN = Misconfigured("provider_forbidden", "The provider refuses us.")


def is_paused(provider: ScriptedProvider, clock: Clock) -> bool:
    return gates.pause_of(provider, now=clock.now) is not None


# ---- after a pause --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (Refused("recognition_refused", "Not this recording."), True),
        (Refused("answer_missing", "We know without asking.", knows_us=False), False),
        (Busy("provider_busy", "Later."), True),
        (Transient("recognition_failed", "It went wrong over there.", knows_us=True), True),
        (Transient("provider_unreachable", "Nobody answers."), False),
        (Busy("provider_unreachable", "Nobody answers.", knows_us=False), False),
        (FORBIDDEN, False),
    ],
)
def test_an_answer_that_takes_the_key_ends_the_pause(
    answer: ProviderError, goes_on: bool, worker: Worker, scripted: ScriptedProvider, clock: Clock
):
    first = make_record(State.SUBMITTED, now=clock.now)
    scripted.answers = [FORBIDDEN]
    worker.work_once(first.pk)
    assert is_paused(scripted, clock)
    clock.step(seconds=PROBE_EVERY.total_seconds())
    second = make_record(State.SUBMITTED, now=clock.now)
    scripted.answers = [answer, payload_of(HELLO)]

    worker.work_once(first.pk)

    assert is_paused(scripted, clock) is not goes_on
    worker.work_once(second.pk)
    second.refresh_from_db()
    assert (second.state == State.TRANSCRIBED) is goes_on


@pytest.mark.parametrize("answer", [Refused("too_large", "Too large."), Busy("provider_busy", "Later.")])
def test_the_refusal_of_a_submission_ends_it_as_well_and_nothing_was_paid(
    answer: ProviderError, worker: Worker, scripted: ScriptedProvider, clock: Clock
):
    scripted.costs_money = True
    record = make_record(State.NORMALIZED, now=clock.now)
    scripted.submissions = [FORBIDDEN, answer]
    worker.work_once(record.pk)
    clock.step(seconds=PROBE_EVERY.total_seconds())
    worker.work_once(record.pk)

    assert not is_paused(scripted, clock)
    assert Recognition.objects.get().submit_started_at is None


def test_a_submission_of_which_nobody_knows_ends_no_pause(worker: Worker, scripted: ScriptedProvider, clock: Clock):
    scripted.costs_money = True
    ProviderGate.objects.create(provider="scripted", kind="", paused_until=clock.now, pause_code="x", pause_text="y")
    record = make_record(State.NORMALIZED, now=clock.now)
    recognition = Recognition.objects.create(record=record, provider="scripted", source_uri="scripted:x")
    AudioRecord.objects.update(recognition=recognition)
    scripted.submissions = [OutcomeUnknown("submission_unconfirmed", "No answer.")]

    worker.work_once(record.pk)

    assert is_paused(scripted, clock)


class Copying(ScriptedProvider):
    """Has the audio put into a bucket, which takes whatever key the provider itself is given; `upload` gives or raises the first of `bucket`."""

    bucket: list[ProviderError]

    def copy_of(self, audio: Audio) -> str:
        return f"bucket:{audio.location}"

    def upload(self, audio: Audio) -> str:
        self.calls.append("upload")
        if self.bucket:
            raise self.bucket.pop(0)
        return self.copy_of(audio)


@pytest.fixture
def copying(scripted: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Copying:
    """Costs money, takes a submission an hour, and is paused for want of access; the time of the probe has come."""
    provider = Copying(costs_money=True, paces={"submit": 3600.0})
    provider.bucket = []
    registry.get.cache_clear()
    monkeypatch.setitem(registry.BUILT_IN, "scripted", lambda: provider)
    monkeypatch.setattr(registry, "default", lambda: provider)
    ProviderGate.objects.create(
        provider="scripted", kind="", paused_until=clock.now, pause_code="provider_forbidden", pause_text="The provider refuses us."
    )
    return provider


def pause_code() -> str:
    return ProviderGate.objects.get(kind="").pause_code


def test_the_probe_that_an_upload_won_is_kept_for_the_submission(worker: Worker, copying: Copying, clock: Clock):
    record = make_record(State.NORMALIZED, now=clock.now)
    other = make_record(State.NORMALIZED, now=clock.now)
    seen: list[tuple[str, bool]] = []

    def submit(attempt, heartbeat):
        seen.append((pause_code(), is_paused(copying, clock)))
        return "operation-1"

    copying.submit = submit  # type: ignore[method-assign]
    worker.work_once(record.pk)

    assert seen == [("provider_forbidden", True)], "until the provider answers, the others wait"
    assert pause_code() == ""
    record.refresh_from_db()
    assert record.state == State.SUBMITTED
    assert worker.work_once(other.pk)


def test_an_upload_ends_no_pause_where_no_submission_may_follow(worker: Worker, copying: Copying, clock: Clock):
    """The quota is used up: the key was not tried, so the provider stays paused, and the next one whose turn comes probes."""
    gates.take_slot(copying, "submit", has_booked=False, now=clock.now)
    record, running = make_record(State.NORMALIZED, now=clock.now), make_record(State.SUBMITTED, now=clock.now)

    worker.work_once(record.pk)

    record.refresh_from_db()
    assert (copying.calls, record.error_code) == (["upload"], gates.WAITING_FOR_SLOT)
    assert pause_code() == "provider_forbidden"
    copying.answers = [FORBIDDEN]
    worker.work_once(running.pk)
    assert copying.calls == ["upload", "poll"], "the probe was not used up"
    assert is_paused(copying, clock)


@pytest.mark.parametrize("answer", [Busy("bucket_busy", "Later."), Refused("too_large", "Too large.")])
def test_an_answer_of_the_bucket_ends_no_pause(answer: ProviderError, worker: Worker, copying: Copying, clock: Clock):
    copying.bucket = [answer]

    worker.work_once(make_record(State.NORMALIZED, now=clock.now).pk)

    assert is_paused(copying, clock)
    assert copying.calls == ["upload"]


def test_an_engine_that_starts_without_a_look_leaves_the_probe_to_its_poll(worker: Worker, copying: Copying, clock: Clock):
    copying.costs_money, copying.paces = False, {}
    record = make_record(State.NORMALIZED, now=clock.now)

    worker.work_once(record.pk)
    assert pause_code() == "provider_forbidden"
    worker.work_once(record.pk)

    record.refresh_from_db()
    assert (record.state, pause_code()) == (State.TRANSCRIBED, "")


def test_the_link_of_a_copy_is_written_once(worker: Worker, copying: Copying, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    written: list[dict[str, Any]] = []
    write = Checkpoint.write

    def watched(self: Checkpoint, recognition: Recognition, **facts: Any) -> None:
        written.append(facts)
        write(self, recognition, **facts)

    monkeypatch.setattr(Checkpoint, "write", watched)
    record = make_record(State.NORMALIZED, now=clock.now)
    worker.work_once(record.pk)

    record.refresh_from_db()
    assert record.state == State.SUBMITTED
    assert record.recognition is not None
    assert written == [{"source_uri": record.recognition.source_uri}]


# ---- one that is refused alone --------------------------------------------------------------------------------------------------------


class Discerning(ScriptedProvider):
    """Refuses the operations in `foreign`, and everything without a role."""

    foreign: set[str]
    has_role = True

    def poll(self, attempt, heartbeat):
        if not self.has_role or attempt.external_id in self.foreign:
            self.calls.append("poll")
            raise FORBIDDEN
        return super().poll(attempt, heartbeat)

    def answers_for(self, external_id: str) -> bool:
        self.calls.append("answers_for")
        if not self.has_role or external_id in self.foreign:
            raise FORBIDDEN
        return True


@pytest.fixture
def discerning(scripted: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> Discerning:
    provider = Discerning(paces={"poll": 0.0})
    provider.foreign = set()
    registry.get.cache_clear()
    monkeypatch.setitem(registry.BUILT_IN, "scripted", lambda: provider)
    return provider


@pytest.mark.parametrize("is_answered", [False, True], ids=["under way", "answered"])
def test_a_foreign_id_halts_its_record_and_nobody_else(is_answered: bool, worker: Worker, discerning: Discerning, clock: Clock):
    foreign, ours = (make_record(State.SUBMITTED, now=clock.now) for _ in range(2))
    discerning.foreign = {foreign.recognition.external_id}
    if is_answered:
        worker.work_once(ours.pk)

    worker.work_once(foreign.pk)

    foreign.refresh_from_db()
    assert (foreign.halt_reason, foreign.error_code, foreign.attempts) == (HaltReason.REJECTED, "operation_forbidden", 0)
    assert "another account" in foreign.error_text
    assert foreign.recognition.external_id in discerning.foreign, "what may have been paid for is not forgotten"
    assert not is_paused(discerning, clock)
    while worker.work_once(ours.pk):
        pass
    ours.refresh_from_db()
    assert ours.state == State.DONE


def test_a_missing_role_halts_nobody(worker: Worker, discerning: Discerning, clock: Clock):
    records = [make_record(State.SUBMITTED, now=clock.now) for _ in range(3)]
    discerning.has_role = False

    for record in records:
        worker.work_once(record.pk)

    assert is_paused(discerning, clock)
    assert discerning.calls.count("poll") == 1
    for record in records:
        record.refresh_from_db()
        assert (record.halted_at, record.attempts, record.error_code) == (None, 0, "provider_forbidden")


def test_where_there_is_nothing_to_compare_with_all_wait(worker: Worker, discerning: Discerning, clock: Clock):
    alone = make_record(State.SUBMITTED, now=clock.now)
    discerning.foreign = {alone.recognition.external_id}

    worker.work_once(alone.pk)

    alone.refresh_from_db()
    assert alone.halted_at is None
    assert is_paused(discerning, clock)
    # With the first other one it shows, and the pause is over.
    other = make_record(State.SUBMITTED, now=clock.now)
    clock.step(seconds=PROBE_EVERY.total_seconds())
    worker.work_once(alone.pk)
    alone.refresh_from_db()
    assert alone.error_code == "operation_forbidden"
    assert not is_paused(discerning, clock)
    assert worker.work_once(other.pk)


def test_to_compare_takes_a_turn_within_the_quota(worker: Worker, discerning: Discerning, clock: Clock):
    foreign, _ = (make_record(State.SUBMITTED, now=clock.now) for _ in range(2))
    discerning.foreign = {foreign.recognition.external_id}
    discerning.paces = {"poll": 0.25}
    began = clock.now

    Worker(clock=lambda: clock.step(seconds=0.01), rules=worker.rules).work_once(foreign.pk)

    assert discerning.calls == ["poll", "answers_for"]
    next_at = ProviderGate.objects.get(kind="poll").next_at
    assert next_at is not None
    assert next_at >= began + timedelta(seconds=0.5), "a look and a comparison are two calls"
