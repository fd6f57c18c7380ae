from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from records import formats
from records.models import AudioRecord
from records.operations import intake
from records.pipeline.clock import DatabaseClock
from records.pipeline.dispatch import Worker
from records.pipeline.stages import STAGES
from records.states import FINAL, HaltReason

FORMATS = ("txt", "json", "srt", "vtt")
BAD_INPUT, OTHER = 2, 1
STOPPED_BY_CTRL_C = 130
LONGEST_WAIT = timedelta(minutes=2)
"""What lies further off is not waited for: a key or a model that has to be mended first, as a rule."""


class StillWaiting(Exception):
    """The record can't go on now; the message says why."""


class Command(BaseCommand):
    help = (
        "Transcribe a file and print the result. It goes through the pipeline like any recording: this process works on it, and waits where a "
        "running worker was faster. Progress is shown on standard error. Exit status: 0 done, 2 the recording can't be transcribed, 1 anything "
        "else (the record stays and goes on when workers run)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--format", choices=FORMATS, default="txt")
        parser.add_argument(
            "--owner", default="command", metavar="NAME", help="Whose recording it is (default: command). Made if there is none."
        )
        parser.add_argument("--language", default="", help="What is spoken, as en or pt-BR (default: detected).")

    def handle(self, *, file: Path, format: str, owner: str, language: str, **options: Any) -> None:  # noqa: A002 - the option's name
        if options["verbosity"] < 2:  # the progress line and the result say all that the log would
            for name in ("records", "recognition"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        interruption = Interruption()
        interruption.listen()
        user = User.objects.get_or_create(username=owner)[0]
        try:
            with file.open("rb") as source:
                record = intake.take_in_stream(source, owner=user, name=file.name, language=language, now=timezone.now()).record
        except intake.IntakeRefused as refusal:
            raise CommandError(refusal.message, returncode=BAD_INPUT) from None
        except OSError as error:
            raise CommandError(f"The file can't be read: {error.strerror}.", returncode=BAD_INPUT) from None
        display = Progress(sys.stderr)
        try:
            reached = _work_until_it_stands(record.pk, display, interruption)
        except StillWaiting as wait:
            display.end()
            raise CommandError(str(wait), returncode=OTHER) from None
        except KeyboardInterrupt:
            _end_interrupted(record.pk, display)
        display.end()
        if reached.halted_at is not None:
            bad = reached.halt_reason == HaltReason.REJECTED
            raise CommandError(f"{reached.error_text or reached.halt_reason} (record {record.pk})", returncode=BAD_INPUT if bad else OTHER)
        # Bytes, whatever the terminal's encoding: a transcript is UTF-8.
        sys.stdout.buffer.write(_result(reached, format).encode())
        sys.stdout.flush()


class Interruption:
    """Ctrl-C, or SIGTERM. While a record may be held it is noted, and the worker gives the record back; else it is raised at once.

    An exception that could come between the taking of a record and the beginning of its step would leave a lease to run out, which counts as
    a failure.
    """

    def __init__(self) -> None:
        self._noted = False
        self._is_raised = True

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # also where whoever started us ignores them
            signal.signal(number, self._on_signal)

    def is_noted(self) -> bool:
        return self._noted

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note it inside, and raise it at the end."""
        self._is_raised = False
        try:
            yield
        finally:
            self._is_raised = True
        if self._noted:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._noted = True
        if self._is_raised:
            raise KeyboardInterrupt


def _end_interrupted(record_id: uuid.UUID, display: Progress) -> NoReturn:
    display.end()
    sys.stderr.write(f"Interrupted. Record {record_id} stays, and goes on when workers run.\n")
    sys.stderr.flush()
    os._exit(STOPPED_BY_CTRL_C)  # Python's own end would tear down the engine's threads in the middle of their work


def _work_until_it_stands(record_id: uuid.UUID, display: Progress, interruption: Interruption) -> AudioRecord:
    """Take the record through the pipeline, or wait for who has it. Gives it once it is done or halted."""
    end = partial(_end_interrupted, record_id, display)
    worker = Worker(clock=DatabaseClock(), stop=interruption.is_noted, end_process=end)
    while True:
        record = AudioRecord.objects.select_related("structure").get(pk=record_id)
        if record.state == FINAL or record.halted_at is not None:
            return record
        if record.acquisition_id is None and record.delay_time - timezone.now() > LONGEST_WAIT:
            why = record.error_text or "The provider asks to come back later."
            raise StillWaiting(f"{why} Record {record.pk} stays, and goes on when workers run.")
        display.show(record)
        with interruption.noted(), display.following(record_id):
            worked = worker.work_once(record_id)
        if not worked:
            time.sleep(0.2)


def _result(record: AudioRecord, format: str) -> str:  # noqa: A002
    structure = record.structure
    assert structure is not None
    if format == "json":
        return json.dumps({"version": structure.version, **structure.contents}, ensure_ascii=False, indent=2) + "\n"
    write = {"txt": formats.to_txt, "srt": formats.to_srt, "vtt": formats.to_vtt}[format]
    return write(formats.from_structure(structure.contents))


class Progress:
    """What the record is at: one line that is written over on a terminal, a line for each new state elsewhere."""

    WIDTH = 30
    EVERY_S = 0.5

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self._shown = ""

    def show(self, record: AudioRecord) -> None:
        step = STAGES[record.state].name
        if self.is_terminal:
            done = round(record.progress * self.WIDTH)
            line = f"{step:<9} [{'#' * done}{'.' * (self.WIDTH - done)}] {record.progress:4.0%}"
            if line != self._shown:
                self.stream.write(f"\r{line}")
        else:
            line = step
            if line != self._shown:
                self.stream.write(f"{line}\n")
        self._shown = line
        self.stream.flush()

    @contextmanager
    def following(self, record_id: uuid.UUID) -> Iterator[None]:
        """Show the record while this process is busy with it."""
        ended = threading.Event()

        def follow() -> None:
            try:
                while not ended.wait(self.EVERY_S):
                    record = AudioRecord.objects.filter(pk=record_id).exclude(state=FINAL).first()
                    if record is not None:
                        self.show(record)
            finally:
                connection.close()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def end(self) -> None:
        if self.is_terminal and self._shown:
            self.stream.write("\r\033[K")
            self.stream.flush()
