"""What the contract suite does not see: the form that is sent, answers that come late, and what each status means here."""

from __future__ import annotations

import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from recognition.contract import (
    Answered,
    Busy,
    Misconfigured,
    NotAccepted,
    OutcomeUnknown,
    ProviderError,
    Refused,
    Transient,
)
from recognition.providers.openai import client
from recognition.providers.openai import provider as module
from tests.fakes.loopback import Answer, Body, Call, Hold, Status
from tests.fakes.openai_server import API_KEY, OpenAIServer, parse_form
from tests.recognition.providers.openai.conftest import MakeProvider, attempt_of

pytestmark = pytest.mark.no_database


class Beating:
    def beat(self, progress: float | None = None) -> None:
        pass


class Stop(BaseException):
    pass


class StopWhen:
    """A heartbeat that raises once the event is set."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event

    def beat(self, progress: float | None = None) -> None:
        if self.event.is_set():
            raise Stop


def form_of(call: Call) -> tuple[dict[str, list[str]], dict[str, list[bytes]]]:
    return parse_form(call.headers["content-type"], call.body)


# ---- what is asked ------------------------------------------------------------------------------------------------------------------


def test_the_form_has_what_was_frozen_and_the_file_under_a_name_of_ours(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path
) -> None:
    provider = provider_of()
    provider.submit(attempt_of(provider, recording, language="en-US"), Beating())

    (call,) = server.requests
    assert form_of(call) == (
        {
            "model": ["whisper-1"],
            "language": ["en"],
            "temperature": ["0"],
            "response_format": ["verbose_json"],
            "timestamp_granularities[]": ["word", "segment"],
        },
        {"file": [recording.read_bytes()]},
    )
    assert b'filename="recording.ogg"' in call.body
    assert b"0190" not in call.body
    assert call.headers["authorization"] == f"Bearer {API_KEY}"
    assert int(call.headers["content-length"]) == len(call.body)


def test_no_language_is_asked_for_where_none_is_named(server: OpenAIServer, provider_of: MakeProvider, recording: Path) -> None:
    provider = provider_of()
    provider.submit(attempt_of(provider, recording, language=""), Beating())
    assert "language" not in form_of(server.requests.of("transcriptions")[0])[0]


def test_a_model_that_was_configured_later_does_not_change_what_was_begun(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path
) -> None:
    attempt = attempt_of(provider_of(), recording)
    provider_of(model="whisper-2").submit(attempt, Beating())
    assert form_of(server.requests.of("transcriptions")[0])[0]["model"] == ["whisper-1"]


def test_a_server_that_wants_no_key_is_given_none(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.keys = set()
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    provider = provider_of(api_key="")
    assert isinstance(provider.submit(attempt_of(provider, recording), Beating()), Answered)
    provider_of().submit(attempt_of(provider, recording), Beating())
    assert [call.headers.get("authorization") for call in server.requests] == [None, f"Bearer {API_KEY}"]


def test_a_key_that_cannot_be_one_is_not_sent(server: OpenAIServer, provider_of: MakeProvider, recording: Path) -> None:
    provider = provider_of(api_key="invented\nkey")
    with pytest.raises(Misconfigured, match="TRANSCRIBER_OPENAI_API_KEY") as raised:
        provider.submit(attempt_of(provider, recording), Beating())
    assert "invented" not in str(raised.value)
    assert not list(server.requests)


def test_no_model_is_said_before_anything_is_sent(provider_of: MakeProvider) -> None:
    with pytest.raises(Misconfigured, match=r"\[openai\] model"):
        provider_of(model="").options(language="", channels=1)


def test_channels_are_mixed_and_the_options_say_so(provider_of: MakeProvider) -> None:
    options = [provider_of().options(language="", channels=channels) for channels in (1, 2)]
    assert [(found["channels"], found["channels_mixed"]) for found in options] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("base_url", "limit"),
    [
        ("https://api.openai.com/v1", 25 * 2**20),
        ("https://API.openai.com:443/v1/", 25 * 2**20),
        ("https://api.openai.com.example.org/v1", None),
        ("http://127.0.0.1:8000/v1", None),
    ],
)
def test_openais_own_limit_holds_there_alone(provider_of: MakeProvider, base_url: str, limit: int | None) -> None:
    assert provider_of(base_url=base_url).limits.max_size == limit


def test_a_long_recording_is_never_in_memory(server: OpenAIServer, provider_of: MakeProvider, tmp_path: Path) -> None:
    """The other side reads and answers, and keeps nothing either."""
    path = tmp_path / "long.ogg"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    with draining() as url:
        provider = provider_of(base_url=url)
        attempt = attempt_of(provider, path)
        tracemalloc.start()
        try:
            assert isinstance(provider.submit(attempt, Beating()), Answered)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 10 * 2**20


@contextmanager
def draining(*, pause: float = 0.0) -> Iterator[str]:
    """A server that takes one request, after a pause, reads it without keeping it, and hears nothing in it."""
    answer = b'{"text": ""}'

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            time.sleep(pause)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            head, _, rest = head.partition(b"\r\n\r\n")
            length = next(int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            left, chunk = length - len(rest), bytearray(2**20)
            while left:
                left -= connection.recv_into(chunk, min(left, len(chunk)))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join()


def test_a_server_that_is_busy_with_another_recording_is_waited_for(
    provider_of: MakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection, and reads nothing for longer than connecting may take."""
    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 0.2)
    path = tmp_path / "long.ogg"
    with path.open("wb") as file:
        file.truncate(30 * 2**20)
    with draining(pause=0.6) as url:
        provider = provider_of(base_url=url)
        assert isinstance(provider.submit(attempt_of(provider, path), Beating()), Answered)


# ---- answers that come late, or to nobody -------------------------------------------------------------------------------------------


def test_patience_grows_with_the_recording(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORTEST_PATIENCE", 0.1)
    monkeypatch.setattr(module, "PATIENCE_FACTOR", 0.01)
    hold = Hold()
    server.faults.next("transcriptions", hold)
    provider = provider_of()
    with pytest.raises(OutcomeUnknown):
        provider.submit(attempt_of(provider, recording), Beating())
    hold.release()
    assert server.accepted == 1  # by the stand-in's count it was paid for; it was made once


def test_whoever_is_stopped_leaves_no_connection_and_no_thread(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.0)
    hold = Hold(acted=False)
    server.faults.next("transcriptions", hold)
    for paid in (True, False):
        provider = provider_of(paid=paid)
        attempt = attempt_of(provider, recording)
        with pytest.raises(Stop):
            provider.submit(attempt, StopWhen(hold.arrived)) if paid else provider.poll(attempt, StopWhen(hold.arrived))
        for thread in threading.enumerate():
            if thread.name == "transcription":
                thread.join(5)
                assert not thread.is_alive()
        hold.arrived.clear()
        server.faults.next("transcriptions", hold)
    hold.release()


def test_a_paid_answer_that_is_about_to_come_is_waited_for_though_we_must_stop(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path
) -> None:
    hold = Hold()
    server.faults.next("transcriptions", hold)

    class ReleaseAndStop(StopWhen):
        def beat(self, progress: float | None = None) -> None:
            if self.event.is_set():
                hold.release()
            super().beat(progress)

    provider = provider_of()
    accepted = provider.submit(attempt_of(provider, recording), ReleaseAndStop(hold.arrived))
    assert isinstance(accepted, Answered)
    assert provider.parse(accepted.payload, {}).text


def test_a_connection_that_breaks_while_the_recording_is_sent_has_bought_nothing(provider_of: MakeProvider, tmp_path: Path) -> None:
    path = tmp_path / "long.ogg"
    with path.open("wb") as file:
        file.truncate(50 * 2**20)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)  # and hang up, with the rest unread

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        provider = provider_of(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        with pytest.raises(NotAccepted):
            provider.submit(attempt_of(provider, path), Beating())
        thread.join()


@pytest.mark.parametrize("paid", [True, False])
def test_a_recording_that_cannot_be_read_has_not_been_sent(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, paid: bool
) -> None:
    provider = provider_of(paid=paid)
    attempt = attempt_of(provider, recording)
    recording.unlink()
    with pytest.raises(NotAccepted) as raised:
        provider.submit(attempt, Beating()) if paid else provider.poll(attempt, Beating())
    assert recording.name not in str(raised.value)
    assert not list(server.requests)


def test_a_recording_that_ends_early_has_not_been_sent(recording: Path) -> None:
    form = client.Form(recording, [("model", "whisper-1")])
    with recording.open("r+b") as file:
        file.truncate(10)
    with pytest.raises(OSError, match="ended early"):
        b"".join(form)
    assert not form.is_sent


# ---- what a status means ------------------------------------------------------------------------------------------------------------


def error(status: int, **said: str) -> Body:
    inner = ", ".join(f'"{key}": "{value}"' for key, value in {"message": "invented words", **said}.items())
    return Body(acted=False, status=status, body=f'{{"error": {{{inner}}}}}')


@pytest.mark.parametrize(
    ("fault", "expected", "code"),
    [
        (Status(status=404), Misconfigured, "provider_model"),
        (error(404, code="model_not_found"), Misconfigured, "provider_model"),
        (Status(status=405), Misconfigured, "provider_model"),
        (Status(status=402), Misconfigured, "provider_quota_spent"),
        (Status(status=407), Misconfigured, "proxy_key"),
        (Status(status=308), Misconfigured, "provider_address"),
        (error(429, code="insufficient_quota"), Misconfigured, "provider_quota_spent"),
        (error(429, code="rate_limit_exceeded"), Busy, "provider_busy"),
        (error(400, param="response_format", code="unsupported_value"), Misconfigured, "provider_model"),
        (error(400, param="file"), Refused, "provider_refused"),
        (Status(status=415), Refused, "provider_refused"),
        (Status(status=422, shape="detail"), Refused, "provider_refused"),
        (Status(status=409), OutcomeUnknown, "submission_unconfirmed"),
        (Status(status=425), OutcomeUnknown, "submission_unconfirmed"),
        (Status(status=408), OutcomeUnknown, "submission_unconfirmed"),
        (Status(status=504, shape="html"), OutcomeUnknown, "submission_unconfirmed"),
        (Status(status=503, retry_after="30"), OutcomeUnknown, "submission_unconfirmed"),
        (Body(body='{"error": {"message": "invented words"}, "text": ""}'), OutcomeUnknown, "submission_unconfirmed"),
        (Body(body='["text"]'), OutcomeUnknown, "submission_unconfirmed"),
        (Body(body="[" * 100_000), OutcomeUnknown, "submission_unconfirmed"),
    ],
    ids=str,
)
def test_what_an_answer_means(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, fault: Status | Body, expected: type[ProviderError], code: str
) -> None:
    server.faults.next("transcriptions", fault)
    provider = provider_of()
    with pytest.raises(ProviderError) as raised:
        provider.submit(attempt_of(provider, recording), Beating())
    assert (type(raised.value), raised.value.code) == (expected, code)
    assert not re.search("stand-in|invented", str(raised.value))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0.2", 1),
        ("999999", 3600),
        ("soon", 60),
        ("", 60),
        (format_datetime(datetime(2100, 1, 1, tzinfo=UTC), usegmt=True), 3600),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 1),
    ],
)
def test_how_long_a_busy_server_is_left_alone(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, header: str, seconds: float
) -> None:
    server.faults.next("transcriptions", Status(status=429, retry_after=header))
    provider = provider_of()
    with pytest.raises(Busy) as raised:
        provider.submit(attempt_of(provider, recording), Beating())
    assert raised.value.retry_after == seconds


def test_a_free_server_that_asks_for_patience_is_given_it(server: OpenAIServer, provider_of: MakeProvider, recording: Path) -> None:
    provider = provider_of(paid=False)
    server.faults.next("transcriptions", Status(status=503, retry_after="30"))
    with pytest.raises(Busy):
        provider.poll(attempt_of(provider, recording), Beating())
    server.faults.next("transcriptions", Status(status=503))
    with pytest.raises(Transient):
        provider.poll(attempt_of(provider, recording), Beating())
    assert provider.parse(provider.poll(attempt_of(provider, recording), Beating()), {}).text


def test_an_answer_that_is_lost_is_told_without_a_word_to_the_server(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path
) -> None:
    """So it says nothing of our access, and ends no pause."""
    provider = provider_of(paid=True)
    with pytest.raises(Refused) as refused:
        provider.poll(attempt_of(provider, recording), Beating())
    assert (refused.value.code, refused.value.knows_us) == ("answer_missing", False)
    assert server.requests.count("transcriptions") == 0


def test_an_answer_beyond_all_measure_is_not_taken_into_memory(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 100)
    provider = provider_of()
    with pytest.raises(OutcomeUnknown):
        provider.submit(attempt_of(provider, recording), Beating())


def test_an_answer_may_come_in_pieces(
    server: OpenAIServer, provider_of: MakeProvider, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server.respond

    def chunked(call: Call) -> Answer:
        whole = answer(call).content
        return Answer(200, [whole[at : at + 50] for at in range(0, len(whole), 50)], {"Content-Type": "application/json"})

    monkeypatch.setattr(server, "respond", chunked)
    provider = provider_of()
    accepted = provider.submit(attempt_of(provider, recording), Beating())
    assert isinstance(accepted, Answered)
    assert provider.parse(accepted.payload, {}).text
