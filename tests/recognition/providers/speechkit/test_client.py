from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from recognition.contract import Busy, Misconfigured, NotAccepted, OutcomeUnknown, ProviderError, Refused, Transient
from recognition.providers.speechkit import client as module
from recognition.providers.speechkit.client import Operation, SpeechKitClient
from recognition.providers.speechkit.status import grpc_code
from tests.fakes.loopback import Answer, Close, Cut, Delay, Fault, Reset, json_answer
from tests.recognition.providers.speechkit.conftest import ID, KEY, Scripted

pytestmark = pytest.mark.no_database

BODY = {"uri": "https://storage.example/recordings/один.ogg"}
SUBMIT = "POST /stt/v3/recognizeFileAsync"


def client_of(url: str, key: str = KEY) -> SpeechKitClient:
    return SpeechKitClient(stt_url=url, operations_url=url, api_key=key)


# ---- the paid request ---------------------------------------------------------------------------------------------------------------


def test_the_request_is_what_the_service_expects(server: Scripted) -> None:
    assert client_of(f"{server.url}/").submit(BODY) == ID

    (call,) = server.requests
    assert call.route == SUBMIT
    assert json.loads(call.body) == BODY
    assert call.headers["authorization"] == f"Api-Key {KEY}"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["connection"] == "close"
    assert "x-folder-id" not in call.headers
    assert "transfer-encoding" not in call.headers


ANSWERS = [
    (400, Refused),
    (401, Misconfigured),
    (402, Misconfigured),
    (403, Misconfigured),
    (404, Refused),
    (408, OutcomeUnknown),
    (409, OutcomeUnknown),
    (410, Refused),
    (413, Refused),
    (415, Refused),
    (418, OutcomeUnknown),
    (421, OutcomeUnknown),
    (422, Refused),
    (423, OutcomeUnknown),
    (424, OutcomeUnknown),
    (425, OutcomeUnknown),
    (429, Busy),
    (499, OutcomeUnknown),
    (301, OutcomeUnknown),
    (302, OutcomeUnknown),
    (307, OutcomeUnknown),
    (308, OutcomeUnknown),
    (500, OutcomeUnknown),
    (501, OutcomeUnknown),
    (502, OutcomeUnknown),
    (503, OutcomeUnknown),
    (504, OutcomeUnknown),
]
BODIES = [
    b'{"code":3,"message":"said-by-the-vendor","details":[]}',
    b'{"error":"said-by-the-vendor","code":3,"message":"said-by-the-vendor","details":[]}',
    b'{"error":{"grpcCode":3,"httpCode":400,"message":"said-by-the-vendor","details":[]}}',
    b'{"error":{"code":3,"message":"said-by-the-vendor","details":[]}}',
    b"<html>said-by-the-vendor</html>",
    b"",
    b"\xff\xfe{",
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize(("status", "kind"), ANSWERS)
def test_a_refusal_is_what_its_status_says_and_comes_of_one_request(
    server: Scripted, caplog: pytest.LogCaptureFixture, status: int, kind: type[ProviderError], body: bytes
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answer_with = Answer(status, body, {"Location": f"{server.url}/elsewhere", "x-request-id": "11-22", "Retry-After": "0"})

    with pytest.raises(ProviderError) as raised:
        client_of(server.url).submit(BODY)

    assert type(raised.value) is kind
    assert server.requests.counts() == {SUBMIT: 1}
    for told in (str(raised.value), caplog.text):
        assert "said-by-the-vendor" not in told
        assert KEY not in told
    assert "11-22" in caplog.text


@pytest.mark.parametrize("fault", [Reset(acted=True), Close(acted=True), Cut(share=0.5), Cut(share=0.0)], ids=repr)
def test_a_connection_that_breaks_after_the_request_leaves_the_outcome_open(server: Scripted, fault: Fault) -> None:
    server.faults.next(SUBMIT, fault)

    with pytest.raises(OutcomeUnknown):
        client_of(server.url).submit(BODY)

    assert server.requests.counts() == {SUBMIT: 1}


def test_an_answer_that_comes_too_late_leaves_the_outcome_open(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBMIT_TIMEOUT", 0.3)
    server.faults.next(SUBMIT, Delay(seconds=30))

    with pytest.raises(OutcomeUnknown):
        client_of(server.url).submit(BODY)

    assert server.requests.counts() == {SUBMIT: 1}


def test_patience_is_as_long_as_the_vendor_asks_for() -> None:
    assert module.SUBMIT_TIMEOUT >= 60


@pytest.mark.parametrize(
    "answer",
    [
        json_answer({"done": False}),
        json_answer({"id": ""}),
        json_answer({"id": 5}),
        json_answer({"id": "x" * 51}),
        json_answer({"id": "a b"}),
        json_answer({"id": "a\n"}),
        json_answer([ID]),
        json_answer(None),
        Answer(200, b""),
        Answer(200, b"<html></html>"),
        Answer(200, b'{"id":"f8d'),
        Answer(204),
        Answer(200, b'{"id":"' + b"x" * (module.MAX_ANSWER + 1) + b'"}'),
    ],
    ids=range(13),
)
def test_an_acceptance_without_an_id_that_can_be_used_leaves_the_outcome_open(server: Scripted, answer: Answer) -> None:
    server.answer_with = answer

    with pytest.raises(OutcomeUnknown):
        client_of(server.url).submit(BODY)

    assert server.requests.counts() == {SUBMIT: 1}


def test_an_id_of_the_greatest_length_is_taken(server: Scripted) -> None:
    server.answer_with = json_answer({"id": "x" * 50})
    assert client_of(server.url).submit(BODY) == "x" * 50


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[int]]]:
    """Each connection goes to `serve`, one after the other; gives the address and a list that grows with each."""
    taken: list[int] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def run() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                taken.append(1)
                with connection:
                    connection.settimeout(10)
                    serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", taken
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith(b"}"):
        received += connection.recv(65536)
    return received


def test_each_submission_has_a_connection_of_its_own() -> None:
    """A kept-alive connection may be closed by the server the moment the next request goes out on it."""
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        received.append(read_request(connection))
        body = b'{"id":"%s"}' % ID.encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with raw_server(serve) as (url, taken):
        client = client_of(url)
        assert [client.submit(BODY), client.submit(BODY)] == [ID, ID]

    assert len(taken) == len(received) == 2


def test_an_answer_that_trickles_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    gone = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            while not gone.wait(0.02):
                connection.sendall(b" ")
        except OSError:
            return

    with raw_server(serve) as (url, taken):
        with pytest.raises(OutcomeUnknown):
            client_of(url).submit(BODY)
        gone.set()
    assert len(taken) == 1


# ---- what was for certain not accepted ----------------------------------------------------------------------------------------------


def test_a_port_where_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotAccepted):
        client_of(f"http://127.0.0.1:{port}").submit(BODY)


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **kwargs: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NotAccepted):
        client_of("https://stt.invalid").submit(BODY)


def test_a_connection_that_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.2)
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with pytest.raises(NotAccepted):
            client_of(f"http://127.0.0.1:{full.getsockname()[1]}").submit(BODY)
        for one in waiting:
            one.close()


def test_a_server_that_speaks_no_tls(server: Scripted) -> None:
    with pytest.raises(NotAccepted):
        client_of(server.url.replace("http://", "https://")).submit(BODY)
    assert server.requests.counts() == {}


@pytest.mark.parametrize("ending", ["closes", "resets", "says nothing"])
def test_a_handshake_that_fails(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.3)
    monkeypatch.setattr(module, "SUBMIT_TIMEOUT", 0.3)
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(10)
        if ending == "closes":
            connection.shutdown(socket.SHUT_RDWR)
        elif ending == "says nothing":
            over.wait(10)

    with raw_server(serve) as (url, _):
        with pytest.raises(NotAccepted):
            client_of(url.replace("http://", "https://")).submit(BODY)
        over.set()


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                received.append(secured.recv(65536))
        except OSError:
            return

    with raw_server(serve) as (url, _), pytest.raises(NotAccepted) as raised:
        client_of(url.replace("http://", "https://")).submit(BODY)
    assert received == []
    assert KEY not in str(raised.value)


def self_signed(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


# ---- the key ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "ключ"])
def test_a_key_that_is_none_is_said_without_a_request(server: Scripted, key: str) -> None:
    with pytest.raises(Misconfigured, match="TRANSCRIBER_SPEECHKIT_API_KEY") as raised:
        client_of(server.url, key).submit(BODY)

    assert server.requests.counts() == {}
    assert not key.strip() or key not in str(raised.value)


def test_no_netrc_takes_the_place_of_the_key(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    client_of(server.url).submit(BODY)

    assert [call.headers["authorization"] for call in server.requests] == [f"Api-Key {KEY}"]


def test_the_key_is_in_no_representation(server: Scripted) -> None:
    client = client_of(server.url)
    assert KEY not in repr(client) + repr(vars(client))


# ---- coming back later --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 1), (" 12 ", 12), ("1.5", 1.5), ("99999999", 3600), ("soon", 60), ("", 60), ("-5", 60), (None, 60)],
)
def test_how_long_to_stay_away(server: Scripted, header: str | None, seconds: float) -> None:
    server.answer_with = json_answer({"code": 8}, 429, **({} if header is None else {"Retry-After": header}))

    for call in (lambda: client_of(server.url).submit(BODY), lambda: client_of(server.url).operation(ID)):
        with pytest.raises(Busy) as raised:
            call()
        assert raised.value.retry_after == seconds


@pytest.mark.parametrize(("away", "low", "high"), [(90, 80, 91), (-90, 1, 1), (10**6, 3600, 3600)])
def test_how_long_to_stay_away_by_a_date(server: Scripted, away: int, low: float, high: float) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=away), usegmt=True)
    server.answer_with = json_answer({"code": 8}, 429, **{"Retry-After": date})

    with pytest.raises(Busy) as raised:
        client_of(server.url).submit(BODY)

    assert low <= raised.value.retry_after <= high


# ---- looking ------------------------------------------------------------------------------------------------------------------------

DONE = {
    "done": True,
    "id": ID,
    "description": "STT v3 async recognition",
    "createdAt": "2026-09-14T08:11:02Z",
    "createdBy": "ajeexample0000000001",
    "modifiedAt": "2026-09-14T08:11:19.123456789Z",
}
CREATED = datetime(2026, 9, 14, 8, 11, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "operation"),
    [
        ({"id": ID}, Operation(done=False)),
        ({"id": ID, "done": False, "metadata": None}, Operation(done=False)),
        ({"id": ID, "done": "yes"}, Operation(done=False)),
        (DONE, Operation(done=True, created_at=CREATED, modified_at=CREATED.replace(second=19, microsecond=123456))),
        ({"id": ID, "done": True, "response": {}, "error": None, "createdAt": "now"}, Operation(done=True)),
        ({"id": ID, "done": True, "error": {"code": 3, "message": "no"}}, Operation(done=True, failed=True, error_code=3)),
        ({"id": ID, "done": False, "error": {"code": 13}}, Operation(done=False, failed=True, error_code=13)),
        ({"id": ID, "done": True, "error": {"message": "no"}}, Operation(done=True, failed=True)),
    ],
)
def test_how_an_operation_stands(server: Scripted, said: object, operation: Operation) -> None:
    server.answer_with = json_answer(said)

    assert client_of(server.url).operation(ID) == operation

    (call,) = server.requests
    assert (call.method, call.path) == ("GET", f"/operations/{ID}")
    assert call.headers["authorization"] == f"Api-Key {KEY}"


def test_an_id_that_a_person_typed_stays_one_part_of_the_path(server: Scripted) -> None:
    server.answer_with = json_answer({"id": "../a?b#c"})
    client_of(server.url).operation("../a?b#c")
    assert [call.path for call in server.requests] == ["/operations/..%2Fa%3Fb%23c"]


@pytest.mark.parametrize(
    "answer",
    [Answer(200), Answer(200, b"<html>"), json_answer([]), json_answer({}), json_answer({"id": "another"}), json_answer({"code": 5})],
    ids=range(6),
)
def test_an_answer_about_an_operation_that_is_none(server: Scripted, answer: Answer) -> None:
    server.answer_with = answer
    with pytest.raises(Transient):
        client_of(server.url).operation(ID)


Look = Callable[[SpeechKitClient], object]
LOOKS: list[tuple[str, Look]] = [
    (f"GET /operations/{ID}", lambda client: client.operation(ID)),
    ("GET /stt/v3/getRecognition", lambda client: client.result(ID, beat=lambda: None)),
    ("DELETE /stt/v3/deleteRecognition", lambda client: client.delete(ID)),
]


@pytest.mark.parametrize(("route", "look"), LOOKS, ids=["operation", "result", "delete"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (401, Misconfigured),
        (403, Misconfigured),
        (409, Refused),
        (429, Busy),
        (302, Transient),
        (499, Transient),
        (500, Transient),
        (501, Refused),
        (502, Transient),
        (503, Transient),
        (504, Transient),
    ],
)
def test_what_goes_wrong_while_looking(server: Scripted, route: str, look: Look, status: int, kind: type[ProviderError]) -> None:
    server.answer_with = Answer(status, BODIES[0], {"Location": f"{server.url}/elsewhere"})

    with pytest.raises(ProviderError, match=r"^(?!.*said-by-the-vendor)") as raised:
        look(client_of(server.url))

    assert type(raised.value) is kind
    assert server.requests.counts() == {route: 1}


def test_a_busy_server_that_says_when_is_no_failure(server: Scripted) -> None:
    server.answer_with = Answer(503, headers={"Retry-After": "20"})
    with pytest.raises(Busy) as raised:
        client_of(server.url).operation(ID)
    assert raised.value.retry_after == 20


@pytest.mark.parametrize("fault", [Reset(), Close(), Cut(share=0.5)], ids=repr)
@pytest.mark.parametrize(("route", "look"), LOOKS, ids=["operation", "result", "delete"])
def test_a_connection_that_breaks_while_looking(server: Scripted, route: str, look: Look, fault: Fault) -> None:
    server.faults.next(route, fault)
    with pytest.raises(Transient):
        look(client_of(server.url))
    assert server.requests.counts() == {route: 1}


def test_a_silent_server_is_given_up_on(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_TIMEOUT", 0.2)
    server.faults.always(f"GET /operations/{ID}", Delay(seconds=30))
    with pytest.raises(Transient):
        client_of(server.url).operation(ID)


# ---- the result ---------------------------------------------------------------------------------------------------------------------


def test_a_result_comes_as_it_was_sent_and_the_heart_beats_meanwhile(server: Scripted) -> None:
    server.answer_with = Answer(200, [b'{"result":{}}\n', '{"result":{"ё":1}}\n'.encode(), b"\n\n"])
    beats: list[int] = []

    raw = client_of(server.url).result(ID, beat=lambda: beats.append(1))

    assert raw == server.answer_with.content
    assert beats
    (call,) = server.requests
    assert call.query == {"operationId": ID}
    assert call.headers["accept-encoding"] == "identity"


def test_nothing_to_give_is_no_error(server: Scripted) -> None:
    server.answer_with = json_answer({"error": {"grpcCode": 5, "httpCode": 404}}, 404)
    client = client_of(server.url)

    assert client.result(ID, beat=lambda: None) is None
    assert client.operation(ID) is None
    client.delete(ID)

    assert server.requests.counts()["DELETE /stt/v3/deleteRecognition"] == 1


def test_a_result_is_let_go_when_the_work_must_stop() -> None:
    class Stop(BaseException):
        pass

    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        over.wait(10)  # and no more comes

    def stop() -> None:
        raise Stop

    with raw_server(serve) as (url, _):
        with pytest.raises(Stop):
            client_of(url).result(ID, beat=stop)
        over.set()


def test_a_result_beyond_all_measure_is_not_taken_into_memory(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RESULT", 1000)
    server.answer_with = Answer(200, [b" " * 400] * 3)
    with pytest.raises(Transient):
        client_of(server.url).result(ID, beat=lambda: None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"code": 16, "message": "m", "details": []}, 16),
        ({"error": "m", "code": 16, "message": "m"}, 16),
        ({"error": {"grpcCode": 5, "httpCode": 404}}, 5),
        ({"error": {"grpc_code": 5}}, 5),
        ({"error": {"code": 5}}, 5),
        ({"error": {"code": "5"}}, None),
        ({"code": True}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_the_code_of_an_error_in_any_of_its_shapes(body: object, code: int | None) -> None:
    assert grpc_code(body) == code
