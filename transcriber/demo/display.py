"""One progress display: a bar that moves on a terminal, a line for each state elsewhere."""

from __future__ import annotations

from typing import Protocol

WIDTH = 30


class Screen(Protocol):
    """What of a text stream is needed here."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class Display:
    def __init__(self, out: Screen) -> None:
        self._out = out
        self._moving = out.isatty()
        self._bar = False
        self._state = ""

    def line(self, text: str) -> None:
        """A line that stays."""
        self._out.write(("\r\033[K" if self._bar else "") + text + "\n")
        self._out.flush()
        self._bar = False

    def progress(self, state: str, fraction: float, seconds: float) -> None:
        """How far the work is: the state reached, 0 to 1 of the step at work, and the seconds since all of it began."""
        if state != self._state:
            self._state = state
            self.line(f"  {state}")
        if self._moving and state != "done":
            full = round(WIDTH * min(max(fraction, 0.0), 1.0))
            self._out.write(f"\r\033[K  {'█' * full}{'░' * (WIDTH - full)} {fraction:4.0%} {seconds:4.0f} s")
            self._out.flush()
            self._bar = True
