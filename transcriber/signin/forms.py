from __future__ import annotations

import math

from django.core.exceptions import ValidationError
from django.utils.translation import ngettext
from unfold.forms import AuthenticationForm


class LoginForm(AuthenticationForm):  # type: ignore[misc]  # unfold ships no types
    """The admin's, with a sentence of its own for an attempt that was put off: whether the password was right is not known then."""

    def get_invalid_login_error(self) -> ValidationError:
        wait = getattr(self.request, "retry_after", None)
        if wait is None:
            return super().get_invalid_login_error()  # type: ignore[no-any-return]
        minutes = math.ceil(wait.total_seconds() / 60)
        return ValidationError(
            ngettext(
                "There were too many attempts to sign in. Try again in %(minutes)d minute.",
                "There were too many attempts to sign in. Try again in %(minutes)d minutes.",
                minutes,
            ),
            code="too_many",
            params={"minutes": minutes},
        )
