"""What `resume_records`, `halt_records` and `restart_records` have in common: filters, the dry run and the report."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import QuerySet

from records.models import AudioRecord
from records.operations import selection
from records.operations.control import By, Report
from records.operations.selection import Selection
from records.states import HaltReason, Origin, State

BY = By(Origin.COMMAND)
Act = Callable[[QuerySet[AudioRecord], datetime], Report]

PASSED_OVER = {
    "done": "done already",
    "halted_already": "halted already",
    "not_halted": "not halted",
    "unconfirmed": "unconfirmed: look them up at the provider, then answer with confirm_submission",
    "not_reached": "never reached that state",
}


def span(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([dhms])", text)
    if not match:
        raise ArgumentTypeError("must look like 2d, 12h, 90m or 30s")
    return timedelta(**{{"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}[match[2]]: int(match[1])})


class ActingCommand(BaseCommand):
    """Finds the records, does one act on them, and tells what came of it. A dry run does the act and rolls it back, so it tells the truth."""

    done = ""
    all_of = ""
    """What `--all` means."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        chosen = parser.add_argument_group("which records (filters that are given must all hold)")
        chosen.add_argument("--state", choices=State.values, action="append", help="In this state (may be given several times).")
        chosen.add_argument("--reason", choices=HaltReason.values, action="append", help="Halted for this reason (likewise).")
        chosen.add_argument("--owner", metavar="NAME", help="Sent by this user.")
        chosen.add_argument("--older-than", type=span, metavar="2h", help="In their state for longer than that (2d, 12h, 90m, 30s).")
        chosen.add_argument("--error-code", metavar="CODE", help="With this code of the halt, or of what is waited for.")
        chosen.add_argument("--provider", metavar="NAME", help="Whose current recognition is that provider's.")
        chosen.add_argument("--record", type=UUID, action="append", metavar="ID", help="This record (may be given several times).")
        chosen.add_argument("--all", action="store_true", help=f"{self.all_of}. Needed where no filter is given.")
        parser.add_argument("--dry-run", action="store_true", help="Tell what would be done, and change nothing.")

    def chosen(self, options: dict[str, Any], every: QuerySet[AudioRecord], *, now: datetime) -> QuerySet[AudioRecord]:
        """The records that the filters leave; `every` is what `--all` stands for. Raises CommandError."""
        wanted = Selection(
            records=tuple(options["record"] or ()),
            states=tuple(map(State, options["state"] or ())),
            reasons=tuple(map(HaltReason, options["reason"] or ())),
            owner=options["owner"] or "",
            older_than=options["older_than"],
            error_code=options["error_code"] or "",
            provider=options["provider"] or "",
        )
        if options["all"]:
            if wanted:
                raise CommandError("--all goes with no filter.")
            return every
        if not wanted:
            raise CommandError(f"Say which records: by a filter, or with --all ({self.all_of.lower()}).")
        if wanted.owner and not User.objects.filter(username=wanted.owner).exists():
            raise CommandError("There is no user of that name.")
        known = set(AudioRecord.objects.filter(pk__in=wanted.records).values_list("pk", flat=True)) if wanted.records else set()
        if missing := [str(pk) for pk in wanted.records if pk not in known]:
            raise CommandError(f"There is no such record: {', '.join(missing)}.")
        return wanted.among(AudioRecord.objects.all(), now=now)

    def run(self, records: QuerySet[AudioRecord], act: Act, *, dry_run: bool, now: datetime) -> None:
        if not dry_run:
            self.tell(self.done, act(records, now))
            return
        for state, reason, number in selection.kinds(records):
            self.stdout.write(f"{number:>8}  {state}" + (f", halted: {reason}" if reason else ""))
        with transaction.atomic():
            report = act(records, now)
            transaction.set_rollback(True)
        self.tell(f"would be {self.done}", report)

    def tell(self, done: str, report: Report) -> None:
        self.stdout.write(f"{done}: {report.changed}")
        for reason, number in report.passed_over.items():
            self.stdout.write(f"passed over: {number}, {PASSED_OVER.get(reason, reason)}")
