"""What the pipeline relies on, of every provider and of the fakes that stand for one in other tests."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from recognition.contract import (
    Answered,
    Attempt,
    Busy,
    Limits,
    MakesCopies,
    Misconfigured,
    NotAccepted,
    OutcomeUnknown,
    Provider,
    ProviderError,
    Refused,
    Transcript,
    Transient,
    Utterance,
    Word,
)
from recognition.providers import openai
from tests.contracts.conftest import LOCATION, OVER_HTTP, SUBJECTS, Beats, Subject
from tests.fakes.loopback import Body, Close, Cut, Fault, Reset, Status

pytestmark = pytest.mark.no_database

every = pytest.mark.parametrize("subject", SUBJECTS, indirect=True)
over_http = pytest.mark.parametrize("subject", OVER_HTTP, indirect=True)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and no socket can be made for the rest of the test."""

    def no_socket(*_: object, **__: object) -> None:
        raise AssertionError("a socket was made")

    return lambda: monkeypatch.setattr(socket, "socket", no_socket)


# ---- what is declared ---------------------------------------------------------------------------------------------------------------


@every
def test_declares_what_it_takes(subject: Subject) -> None:
    provider = subject.provider
    assert isinstance(provider, Provider)
    assert 0 < len(provider.name) <= 200
    assert len(provider.model) <= 200
    assert isinstance(provider.costs_money, bool)
    assert isinstance(provider.limits, Limits)
    assert all(limit is None or limit > 0 for limit in (provider.limits.max_duration_ms, provider.limits.max_size))
    assert set(provider.paces) <= {"submit", "poll"}
    assert all(seconds > 0 for seconds in provider.paces.values())


@every
def test_is_made_before_a_fork_without_connections_or_open_files(subject: Subject, closed: Callable[[], None]) -> None:
    subject.build()  # whatever is imported
    before = open_files()
    closed()
    assert subject.build().name == subject.provider.name
    assert open_files() == before


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@every
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("language", ["", "en", "pt-BR"])
def test_options_can_be_kept_and_are_the_same_each_time(subject: Subject, language: str, channels: int) -> None:
    options = subject.provider.options(language=language, channels=channels)
    assert json.loads(json.dumps(options)) == options
    assert subject.provider.options(language=language, channels=channels) == subject.build().options(language=language, channels=channels)
    if subject.secret:
        assert subject.secret not in json.dumps(options)


# ---- upload, submit, poll -----------------------------------------------------------------------------------------------------------


@every
def test_a_recording_is_put_where_it_is_read_once(subject: Subject) -> None:
    first = subject.provider.upload(subject.audio)
    sent, opened = subject.stored(), len(subject.opened)
    assert subject.provider.upload(subject.audio) == subject.build().upload(subject.audio) == first
    assert (subject.stored(), len(subject.opened)) == (sent, opened)
    assert sent <= 1
    assert 0 < len(first) <= 1000
    assert LOCATION in first
    # A copy must be known before it is made: else one whose record is removed at that moment stays for ever.
    assert isinstance(subject.provider, MakesCopies) == (sent == 1)
    if isinstance(subject.provider, MakesCopies):
        assert subject.provider.copy_of(subject.audio) == first


@every
def test_each_submission_has_an_id_of_its_own(subject: Subject) -> None:
    attempt = subject.attempt()
    accepted = [subject.provider.submit(attempt, Beats()) for _ in range(3)]
    ids = [one.external_id if isinstance(one, Answered) else one for one in accepted]
    assert len(set(ids)) == 3
    assert all(0 < len(one) <= 200 for one in ids)


@every
def test_an_answer_comes_and_the_heart_beats_until_it_does(subject: Subject) -> None:
    beats, attempt = Beats(), subject.attempt()
    subject.take_long()
    payload = subject.recognize(attempt, beats)
    assert isinstance(payload, bytes)
    assert subject.provider.parse(payload, attempt.options).text
    assert beats.count or subject.provider.name == "scripted"  # which beats where a test says so


@every
def test_a_repeat_with_the_frozen_options_gives_the_same_transcript(subject: Subject) -> None:
    payload, options = subject.answered()
    kept = replace(subject.attempt(), options=json.loads(json.dumps(options)))
    assert subject.provider.parse(subject.recognize(kept, Beats()), kept.options) == subject.provider.parse(payload, options)


class Stop(BaseException):
    """As the pipeline interrupts a step: no `Exception`."""


class Stopping:
    def beat(self, progress: float | None = None) -> None:
        raise Stop


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "scripted"], indirect=True)
def test_an_interruption_passes_through_work_that_beats(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai.client, "PATIENCE", 0)  # in which a paid answer may still come
    attempt = subject.attempt()
    subject.take_long()
    with pytest.raises(Stop):
        subject.recognize(attempt, Stopping())


# ---- parse --------------------------------------------------------------------------------------------------------------------------


@every
def test_parsing_is_pure(subject: Subject, closed: Callable[[], None]) -> None:
    payload, options = subject.answered()
    before = deepcopy(options)
    closed()
    first = subject.provider.parse(payload, options)
    assert subject.provider.parse(payload, options) == subject.build().parse(payload, options) == first
    assert options == before
    check(first)


def check(transcript: Transcript) -> None:
    """What everything that shows a transcript relies on."""
    assert transcript.utterances
    assert transcript.language is None or re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", transcript.language)
    for utterance in transcript.utterances:
        assert utterance.text == " ".join(utterance.text.split()) != ""
        assert type(utterance.channel) is int
        timed: list[Utterance | Word] = [utterance, *utterance.words]
        assert all(type(moment) is int for one in timed for moment in (one.start_ms, one.end_ms))
        assert all(0 <= one.start_ms <= one.end_ms for one in timed)
        assert all(utterance.start_ms <= word.start_ms and word.end_ms <= utterance.end_ms for word in utterance.words)
        assert all(first.start_ms <= second.start_ms for first, second in pairwise(utterance.words))
        assert all(word.text == word.text.strip() != "" for word in utterance.words)
    assert all(first.start_ms <= second.start_ms for first, second in pairwise(transcript.utterances))


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name not in ("quick", "documented")], indirect=True)
def test_silence_is_an_empty_transcript(subject: Subject) -> None:
    assert subject.hear_nothing is not None
    subject.hear_nothing()
    attempt = subject.attempt(language="")
    transcript = subject.provider.parse(subject.recognize(attempt, Beats()), attempt.options)
    assert (transcript.utterances, transcript.text) == ((), "")


@every
def test_what_is_no_whole_answer_is_not_taken_for_one(subject: Subject) -> None:
    payload, options = subject.answered()
    for damaged in (payload.rstrip()[:-1], b"\xff\x00" + payload, b"<html>"):
        with pytest.raises(Transient):
            subject.provider.parse(damaged, options)


# ---- what is left with it -----------------------------------------------------------------------------------------------------------


@every
def test_removing_twice_is_harmless(subject: Subject) -> None:
    attempt = subject.attempt()
    accepted = subject.provider.submit(attempt, Beats())
    external_id = accepted.external_id if isinstance(accepted, Answered) else accepted
    if external_id is not accepted or not subject.provider.costs_money:
        external_id = "never-heard-of"
    for _ in range(2):
        subject.provider.remove_source(attempt.source_uri)
        subject.provider.remove_result(external_id)
    subject.provider.remove_source(attempt.source_uri.replace("personal", "another"))


# ---- failures -----------------------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[Fault, type[ProviderError]]] = {
    "400": (Status(status=400), Refused),
    "413": (Status(status=413), Refused),
    "401": (Status(status=401), Misconfigured),
    "403": (Status(status=403), Misconfigured),
    "429": (Status(status=429, retry_after="7"), Busy),
    "500": (Status(status=500), OutcomeUnknown),
    "503, though it was accepted": (Status(status=503, acted=True), OutcomeUnknown),
    "gateway's page": (Status(status=502, shape="html", acted=True), OutcomeUnknown),
    "reset": (Reset(), OutcomeUnknown),
    "reset after acceptance": (Reset(acted=True), OutcomeUnknown),
    "closed after acceptance": (Close(acted=True), OutcomeUnknown),
    "cut off": (Cut(), OutcomeUnknown),
    "garbage": (Body(body="personal-name <html>"), OutcomeUnknown),
}


@over_http
@pytest.mark.parametrize("fault", FAULTS)
def test_failures_are_typed_tell_nothing_and_repeat_nothing(subject: Subject, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server, attempt = subject.server, subject.attempt()
    assert server is not None
    broken, expected = FAULTS[fault]
    server.faults.next(subject.paid_route, broken)
    if expected is OutcomeUnknown and not subject.provider.costs_money:
        expected = Transient  # asked again: it costs nothing

    with pytest.raises(ProviderError) as raised:
        subject.recognize(attempt, Beats())

    assert type(raised.value) is expected
    if isinstance(raised.value, Busy):
        assert raised.value.retry_after == 7
    assert server.requests.count(subject.paid_route) == 1
    assert_tells_nothing(subject, raised.value, caplog)


@over_http
def test_a_provider_that_is_not_there_has_certainly_not_accepted(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    attempt = subject.attempt()
    assert subject.server is not None
    subject.server.stop()
    with pytest.raises(NotAccepted) as raised:
        subject.recognize(attempt, Beats())
    assert_tells_nothing(subject, raised.value, caplog)


@over_http
def test_a_wrong_key_is_nobodys_fault_but_ours(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    attempt = subject.attempt()
    subject.server.keys = {"another"}  # type: ignore[attr-defined]
    with pytest.raises(Misconfigured) as raised:
        subject.recognize(attempt, Beats())
    assert_tells_nothing(subject, raised.value, caplog)


def assert_tells_nothing(subject: Subject, error: ProviderError, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the message nor a line of the log has the key, the name of the recording, or anything that was said."""
    assert error.code == error.code.lower()
    assert error.message.endswith(".")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("recognition"))
    for text in (str(error), error.message, ours):
        assert not re.search(rf"{subject.secret}|personal|name\.ogg|stand-in: as asked|morning|order|thank", text)


# ---- a paid answer that comes with the submission -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["openai, paid"], indirect=True)
def test_what_was_answered_with_the_submission_is_not_asked_for_again(subject: Subject) -> None:
    attempt = subject.attempt()
    accepted = subject.provider.submit(attempt, Beats())
    assert isinstance(accepted, Answered)
    with pytest.raises(Refused, match="new paid request"):
        subject.provider.poll(Attempt("1", "whisper-1", attempt.options, accepted.external_id, attempt.source_uri, 7806), Beats())
    assert subject.server is not None
    assert subject.server.requests.count("transcriptions") == 1
