"""`manage.py resume_records`, `halt_records`, `restart_records`: which records they find, what they tell, and what they ask before money is spent."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from recognition import registry
from recognition.contract import Misconfigured
from records.models import AudioRecord, RecordEvent
from records.states import HaltReason, Origin, State
from tests.factories import make_record, make_user
from tests.rows import fill

pytestmark = pytest.mark.django_db


@pytest.fixture
def now():
    """The commands go by the clock on the wall."""
    return timezone.now()


def run(*arguments: str) -> list[str]:
    told = io.StringIO()
    call_command(*arguments, stdout=told)
    return told.getvalue().splitlines()


def halted(now, state=State.UPLOADED, reason=HaltReason.EXHAUSTED, **more):
    return make_record(state, now=now, halted_at=now, halt_reason=reason, **{"error_code": "boom", **more})


def standing() -> set:
    return set(AudioRecord.objects.filter(halted_at__isnull=False).values_list("pk", flat=True))


FILTERS = {
    "state": (("--state", "normalized"), lambda now: halted(now, State.NORMALIZED)),
    "two states": (("--state", "normalized", "--state", "submitted"), lambda now: halted(now, State.SUBMITTED)),
    "reason": (("--reason", "stuck"), lambda now: halted(now, reason=HaltReason.STUCK)),
    "owner": (("--owner", "olga"), lambda now: halted(now, owner=make_user("olga"))),
    "age": (("--older-than", "2h"), lambda now: halted(now - timedelta(hours=3))),
    "code": (("--error-code", "disk_full"), lambda now: halted(now, error_code="disk_full")),
    "provider": (("--provider", "scripted"), lambda now: halted(now, State.SUBMITTED)),
    "all of them": (
        ("--state", "submitted", "--reason", "stuck", "--older-than", "90m", "--provider", "scripted"),
        lambda now: halted(now - timedelta(hours=2), State.SUBMITTED, HaltReason.STUCK),
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_its_records_and_leaves_the_others(name, now):
    arguments, make = FILTERS[name]
    found, other = make(now), halted(now)

    assert run("resume_records", *arguments) == ["resumed: 1"]

    assert standing() == {other.pk}
    assert RecordEvent.objects.get().record_id == found.pk


def test_single_records_are_named(now):
    first, second, third = (halted(now) for _ in range(3))

    run("resume_records", "--record", str(first.pk), "--record", str(second.pk))

    assert standing() == {third.pk}


def test_what_was_passed_over_is_told_with_its_reason(now):
    halted(now)
    halted(now, State.NORMALIZED, HaltReason.UNCONFIRMED)
    make_record(State.NORMALIZED, now=now)
    make_record(State.DONE, now=now)

    assert run("resume_records", "--older-than", "0s") == [
        "resumed: 1",
        "passed over: 2, not halted",
        "passed over: 1, unconfirmed: look them up at the provider, then answer with confirm_submission",
    ]
    assert run("halt_records", "--older-than", "0s") == ["halted: 2", "passed over: 1, done already", "passed over: 1, halted already"]


def test_an_act_without_a_filter_wants_all_and_all_wants_no_filter(now):
    record = halted(now)

    for command in (["resume_records"], ["halt_records"], ["restart_records", "uploaded"]):
        with pytest.raises(CommandError, match="--all"):
            run(*command)
        with pytest.raises(CommandError, match="--all"):
            run(*command, "--all", "--state", "uploaded")
    assert standing() == {record.pk}

    assert run("resume_records", "--all") == ["resumed: 1"]


def test_all_that_can_be_halted_leaves_out_what_is_done(now):
    make_record(State.DONE, now=now)
    record = make_record(now=now)

    assert run("halt_records", "--all") == ["halted: 1"]
    assert standing() == {record.pk}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--owner", "nobody"),
        ("--record", "01a22de5-60dc-7098-9724-e9be5a4982ad"),
        ("--record", "not-an-id"),
        ("--state", "asleep"),
        ("--older-than", "soon"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(arguments, now):
    record = halted(now)

    with pytest.raises(CommandError):
        run("resume_records", *arguments)

    assert standing() == {record.pk}


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(now):
    halted(now)
    halted(now)
    halted(now, State.SUBMITTED, HaltReason.STUCK)
    make_record(State.SUBMITTED, now=now)
    before = list(AudioRecord.objects.order_by("pk").values())

    told = run("resume_records", "--state", "uploaded", "--state", "submitted", "--dry-run")

    assert [line.split() for line in told[:3]] == [
        ["2", "uploaded,", "halted:", "exhausted"],
        ["1", "submitted"],
        ["1", "submitted,", "halted:", "stuck"],
    ]
    assert told[3:] == ["would be resumed: 3", "passed over: 1, not halted"]
    assert list(AudioRecord.objects.order_by("pk").values()) == before
    assert not RecordEvent.objects.exists()


def test_who_acted_stands_in_the_journal_as_the_command(now):
    make_record(State.SUBMITTED, now=now)

    run("halt_records", "--all")
    run("resume_records", "--all")
    run("restart_records", "submitted", "--all")

    assert list(RecordEvent.objects.order_by("id").values_list("outcome", "origin", "actor")) == [
        (outcome, Origin.COMMAND, None) for outcome in ("halted", "resumed", "restarted")
    ]


# ---- what costs money ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def paid(scripted, now):
    scripted.costs_money = True
    return make_record(State.DONE, now=now)


def states() -> list[str]:
    return list(AudioRecord.objects.values_list("state", flat=True))


def test_a_restart_that_is_paid_for_is_refused_where_nobody_can_be_asked(paid, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    with pytest.raises(CommandError, match="--yes"):
        run("restart_records", "normalized", "--all")
    assert states() == ["done"]

    assert run("restart_records", "normalized", "--all", "--yes") == ["new recognitions that are paid for: 1", "restarted: 1"]
    assert states() == ["normalized"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "state"), [("y\n", "uploaded"), ("n\n", "done"), ("\n", "done")])
def test_a_person_at_a_terminal_is_asked(answer, state, paid, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    with nullcontext() if state == "uploaded" else pytest.raises(CommandError, match="Nothing was changed"):
        run("restart_records", "uploaded", "--all")

    assert "Go on?" in capsys.readouterr().out
    assert states() == [state]


def test_a_dry_run_tells_the_cost_and_asks_nobody(paid, now, monkeypatch):
    make_record(State.UPLOADED, now=now)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    told = run("restart_records", "normalized", "--older-than", "0s", "--dry-run")

    assert told[0] == "new recognitions that are paid for: 1"
    assert told[-2:] == ["would be restarted: 1", "passed over: 1, never reached that state"]
    assert sorted(states()) == ["done", "uploaded"]


def test_what_costs_nothing_is_done_at_once(scripted, now, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    scripted.costs_money = False
    make_record(State.DONE, now=now)

    assert run("restart_records", "uploaded", "--all") == ["restarted: 1"]


def test_from_submitted_on_nothing_is_paid_again(paid, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert run("restart_records", "submitted", "--all") == ["restarted: 1"]


def test_a_provider_that_can_not_be_asked_is_taken_for_one_that_costs(now, monkeypatch):
    def default():
        raise Misconfigured("provider_unknown", "There is none.")

    monkeypatch.setattr(registry, "default", default)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    make_record(State.DONE, now=now)

    with pytest.raises(CommandError, match="--yes"):
        run("restart_records", "uploaded", "--all")


# ---- numbers ------------------------------------------------------------------------------------------------------------------------


def test_the_number_of_queries_does_not_depend_on_the_number_of_records(now):
    counted = []
    for waiting in (3, 300):
        fill(now, done=1, waiting=waiting)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert run("halt_records", "--state", "uploaded", "--older-than", "0s") == [f"halted: {waiting}"]
        counted.append(len(queries))
    assert counted[0] == counted[1] < 20
