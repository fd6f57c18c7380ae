"""How long a server asks to be left alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from recognition.contract import Busy

MAX_PAUSE = 3600.0


def pause_of(retry_after: str) -> float:
    """Seconds, from a second to an hour; the header has them, or a date. `Busy.retry_after` where it says nothing that can be read."""
    seconds = Busy.retry_after
    if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", retry_after):
        seconds = float(retry_after)
    elif retry_after:
        try:
            date = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return seconds
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 1.0), MAX_PAUSE)
