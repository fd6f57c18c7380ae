from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.loopback import Answer, Call, Loopback, json_answer

KEY = "AQVN-invented-key"
ID = "f8dexample0000000001"


class Scripted(Loopback):
    """Gives the same answer to everything, and counts what was asked."""

    answer_with: Answer = json_answer({"id": ID, "done": False, "metadata": None})

    def route(self, method: str, path: str, listener: int) -> str:
        return f"{method} {path}"

    def respond(self, call: Call) -> Answer:
        return self.answer_with


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as running:
        yield running
