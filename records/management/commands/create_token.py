from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from knox.models import get_token_model


def span(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([dhm])", text)
    if not match or not int(match[1]):
        raise ArgumentTypeError("must look like 30d, 12h or 90m")
    return timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[match[2]]: int(match[1])})


class Command(BaseCommand):
    help = "Make a token for the API and print it. It can't be shown again: only its hash is kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the user's name; the user is made if there is none (without a password)")
        parser.add_argument("--expires", type=span, metavar="30d", help="after how long it ends (default: never)")

    def handle(self, *, name: str, expires: timedelta | None, **options: Any) -> None:
        with transaction.atomic():
            user = User.objects.filter(username=name).first() or self._make_user(name)
            if not user.is_active:
                raise CommandError("this user is not active")
            _, token = get_token_model().objects.create(user=user, expiry=expires)
        self.stdout.write(token)

    def _make_user(self, name: str) -> User:
        user = User(username=name)
        user.set_unusable_password()
        try:
            user.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        user.save()
        return user
