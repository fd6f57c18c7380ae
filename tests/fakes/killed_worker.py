"""A worker in a process of its own that works until nothing is due, and that is killed with SIGKILL at the point named on its command line.

    python -m tests.fakes.killed_worker after:mark

A point is `before:` or `after:` a write or a call of the submit step; `sent` is the moment in which the paid request has reached the provider
and its answer has not been read. With no argument it just works. `IMPATIENT=0.5` in the environment: the paid request waits no longer for its
answer than that.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

PLACES = {
    "acquire": ("records.pipeline.dispatch", "acquire"),
    "row": ("records.pipeline.heartbeat", "Checkpoint.begin_recognition"),
    "upload": ("recognition.bucket", "Bucket.upload"),
    "uri": ("records.pipeline.heartbeat", "Checkpoint.write"),
    "slot": ("recognition.operations.gates", "take_slot"),
    "mark": ("records.pipeline.heartbeat", "Checkpoint.mark_submission"),
    "post": ("recognition.providers.speechkit.client", "SpeechKitClient.submit"),
    "id": ("recognition.operations", "keep_external_id"),
    "advance": ("records.pipeline.transitions", "advance"),
}
"""The writes and calls of the step, in their order."""

POINTS = [f"{when}:{name}" for name in PLACES for when in ("before", "after")]
POINTS.insert(POINTS.index("after:post"), "sent")


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    when, _, name = point.partition(":")
    if when == "sent":
        wait_until_it_was_accepted_then_die()
        return
    module_name, path = PLACES[name]
    holder: Any = importlib.import_module(module_name)
    *parents, attribute = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    real: Callable[..., Any] = getattr(holder, attribute)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        made = real(*arguments, **named)
        die()
        return made

    setattr(holder, attribute, wrapped)


def wait_until_it_was_accepted_then_die() -> None:
    """Read no answer to a POST: ask the stand-in whether it was accepted, and die when it was."""
    real = http.client.HTTPConnection.getresponse

    def getresponse(connection: Any) -> http.client.HTTPResponse:
        if connection._method == "POST":
            state = f"{os.environ['TRANSCRIBER_SPEECHKIT_STT_URL']}/_control/state"
            while True:
                with urlopen(state) as answer:
                    if json.load(answer)["paid"]:
                        die()
                time.sleep(0.01)
        return real(connection)

    http.client.HTTPConnection.getresponse = getresponse  # type: ignore[method-assign, assignment]


def main() -> None:
    import django

    django.setup()
    from records.pipeline.dispatch import Worker
    from records.states import State

    if "IMPATIENT" in os.environ:
        client: Any = importlib.import_module("recognition.providers.speechkit.client")
        client.SUBMIT_TIMEOUT = float(os.environ["IMPATIENT"])
    worker = Worker()
    if len(sys.argv) > 1:
        # Up to the submit step nothing is armed: the points are those of that step.
        from records.models import AudioRecord

        while AudioRecord.objects.filter(state=State.UPLOADED).exists():
            worker.work_once()
        arm(sys.argv[1])
    while worker.work_once():
        pass


if __name__ == "__main__":
    main()
