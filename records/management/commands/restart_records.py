from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from records.management.acting import BY, ActingCommand
from records.models import AudioRecord
from records.operations import control, selection
from records.pipeline.stages import STAGES
from records.states import State


class Command(ActingCommand):
    help = (
        "Move records back to a state, and remove what the steps from there on produced. From before `submitted` that is a new recognition, "
        "which is paid for where the provider costs money: then it asks, or wants --yes."
    )
    done = "restarted"
    all_of = "Every record, also those that are done"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("to", metavar="STATE", choices=[stage.state.value for stage in STAGES], help="One of %(choices)s.")
        super().add_arguments(parser)
        parser.add_argument("--yes", action="store_true", help="Do it although it costs money, without asking.")

    def handle(self, *, to: str, dry_run: bool, yes: bool, **options: Any) -> None:
        now, state = timezone.now(), State(to)
        records = self.chosen(options, AudioRecord.objects.all(), now=now)
        if paid := selection.new_paid_attempts(records, state):
            self.stdout.write(f"new recognitions that are paid for: {paid}")
            if not dry_run and not yes:
                self._ask()
        self.run(records, lambda chosen, at: control.restart(chosen, state, by=BY, now=at), dry_run=dry_run, now=now)

    def _ask(self) -> None:
        if not sys.stdin.isatty():
            raise CommandError("Nothing was changed: this may cost money. Say --yes if you mean it.")
        if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was changed.")
