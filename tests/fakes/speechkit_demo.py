"""`make demo-speechkit`: the demo with SpeechKit as the provider, without an account and without a network.

The stand-in and its object storage run as a process of their own and hear with the local model; the service is the same as ever and is told
their addresses by its environment. At the end it is said how many submissions would have been paid for: one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from transcriber import processes
from transcriber.config import ConfigError, load
from transcriber.demo import __main__ as demo
from transcriber.demo.display import Display

STOP_LIMIT = 10.0


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    display = Display(sys.stderr)
    try:
        models = load(demo.ROOT).data / "models"
        display.line("Starting the stand-ins for SpeechKit and its object storage")
        with stand_in(models) as about:
            os.environ.update(about["environment"])
            # The bundled recording is English, and the demo looks often, since the stand-in's day is short.
            os.environ.update({"TRANSCRIBER_SPEECHKIT_LANGUAGE": "en-US", "TRANSCRIBER_SPEECHKIT_POLL_INTERVAL": "1s"})
            status = demo.main()
            with urlopen(f"{about['url']}/_control/state", timeout=10) as answer:
                state = json.load(answer)
    except KeyboardInterrupt:
        display.line("Stopped.")
        return 130
    except (demo.DemoFailed, ConfigError, OSError) as error:
        display.line(f"The demo failed: {error}")
        return 1
    if status == 0:
        sys.stdout.write(f"Paid submissions: {state['paid']} ({state['billed_seconds']} seconds billed)\n")
    return status or int(state["paid"] != 1)


@contextmanager
def stand_in(models: Path) -> Iterator[dict[str, Any]]:
    """The stand-in as a process that ends with this one; gives what it says about itself. Raises DemoFailed."""
    with demo.interrupts_held_back():
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.speechkit_server", "--with-s3", "--recognizer", "whisper", "--models", str(models)],
            cwd=demo.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            process_group=0,
            preexec_fn=processes.tied_to_us(),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # empty once it has ended
        if not line:
            raise demo.DemoFailed("the stand-in for SpeechKit ended while it was starting; what it said stands above.")
        about: dict[str, Any] = json.loads(line)
        yield about
    finally:
        with demo.interrupts_held_back():
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_LIMIT)
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
