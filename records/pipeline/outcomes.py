"""All that a step may return. The worker alone writes it (`records.pipeline.transitions`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Model

from records.states import HaltReason


@dataclass(frozen=True)
class Advance:
    """The state after this one has been reached.

    `links` maps a link of the record (`normalized_file`, `structure`, …) to the unsaved row it shall lead to; `facts` maps columns of the record
    that are no queue columns to values; `original` the same for the row of the original file. All are written in the transaction of the move,
    behind its guard, or not at all; the bytes of a file row that is not written are removed.
    """

    links: Mapping[str, Model] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Postpone:
    """Come back later; no failure and no transition.

    `foreign`: it is the provider that is waited for, whatever the stage (busy, misconfigured), so the foreign limit counts. `paced`: our own
    pacing holds it back (a quota's slot), which is never a reason to be stuck. `code` and `text` say what is waited for, where it is more than
    the usual.
    """

    delay: timedelta
    foreign: bool = False
    paced: bool = False
    code: str = ""
    text: str = ""


@dataclass(frozen=True)
class Halt:
    """Stand still until a person says otherwise."""

    reason: HaltReason
    code: str
    text: str


Outcome = Advance | Postpone | Halt
