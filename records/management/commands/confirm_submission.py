from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from records.models import AudioRecord
from records.operations import control
from records.operations.control import By
from records.states import Origin


class Command(BaseCommand):
    help = (
        "Answer for a record that stands as unconfirmed: its paid submission may or may not have been accepted. Look it up at the provider. "
        "If there is an operation, enter its id; if there is none, submit again, which is paid for."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", type=UUID)
        answer = parser.add_mutually_exclusive_group(required=True)
        answer.add_argument("--external-id", metavar="ID", help="The operation's id at the provider: it is polled, nothing is paid again.")
        answer.add_argument("--submit-again", action="store_true", help="Start a new recognition, which is paid for.")

    def handle(self, *, record: UUID, external_id: str | None, submit_again: bool, **options: Any) -> None:
        found = AudioRecord.objects.filter(pk=record).first()
        if found is None:
            raise CommandError("There is no such record.")
        if external_id is not None and not 0 < len(external_id.strip()) <= 50:
            raise CommandError("An operation's id has 1 to 50 characters.")
        try:
            control.confirm_submission(
                found, external_id=external_id.strip() if external_id else None, by=By(Origin.COMMAND), now=timezone.now()
            )
        except control.NotUnconfirmed:
            raise CommandError("That record does not stand as unconfirmed.") from None
        except control.AnswerKnown:
            raise CommandError("Its operation is known by now: resume the record, nothing needs to be paid again.") from None
        except control.IdKnownElsewhere:
            raise CommandError("That operation belongs to another recognition already.") from None
        self.stderr.write("It is submitted again." if submit_again else "The operation is polled.")
