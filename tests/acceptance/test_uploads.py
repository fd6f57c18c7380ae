"""Recordings over the wire, to the real web server: whole, cut off, too large, slow, by clients that people use."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
import requests

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for
from tests.factories import wav_bytes

pytestmark = [pytest.mark.processes, pytest.mark.no_database]

MIB = 2**20
RECORDS = "/api/v1/records/"


class Web:
    """A service that accepts and keeps still, and somebody with a token."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.start("serve")
        self.token = service.manage("create_token", "anna").stdout.strip()
        self.headers = {"Authorization": f"Token {self.token}"}
        self.url = service.url + RECORDS

    def worker(self) -> psutil.Process:
        """The process that answers: the web server's own child."""
        webs = [process for process in self.service.processes() if "gunicorn" in " ".join([process.name(), *process.cmdline()])]
        [worker] = [process for process in webs if process.ppid() in {other.pid for other in webs}]
        return worker

    def stored(self) -> list[Path]:
        return [path for path in (self.service.data / "media").rglob("*") if path.is_file()]

    def records(self) -> list[dict[str, Any]]:
        return list(requests.get(self.url, headers=self.headers, timeout=10).json()["results"])

    def uploads_under_way(self) -> int:
        """Connections that the web server still has open."""
        connections = self.worker().net_connections("inet4")
        return sum(connection.status == "ESTABLISHED" and connection.laddr.port == self.service.port for connection in connections)

    def open(self, length: int, **headers: str) -> socket.socket:
        """A connection on which the headers of a raw upload have been sent."""
        lines = {
            "Host": "127.0.0.1",
            **self.headers,
            "Content-Type": "audio/wav",
            "Content-Disposition": "attachment; filename=a.wav",
            "Content-Length": str(length),
            **headers,
        }
        connection = socket.create_connection(("127.0.0.1", self.service.port))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        connection.sendall(f"POST {RECORDS} HTTP/1.1\r\n{head}\r\n".encode())
        return connection


MakeWeb = Callable[..., Web]


@pytest.fixture
def make_web(make_service: MakeService) -> MakeWeb:
    return lambda **environment: Web(make_service(TRANSCRIBER_PIPELINE_WORKERS="0", **environment))


@pytest.fixture
def web(make_web: MakeWeb) -> Web:
    return make_web()


def answer_on(connection: socket.socket) -> tuple[int, Any]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    body = response.read()
    return response.status, json.loads(body)


def code_of(body: Any) -> str:
    return str(body["errors"][0]["code"])


# ---- memory -------------------------------------------------------------------------------------------------------------------------


def peak(process: psutil.Process) -> int:
    """The most memory the process ever had since `forget_peak`, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def forget_peak(process: psutil.Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


class Generated:
    """So many bytes, made as they are read."""

    def __init__(self, size: int) -> None:
        self.left = size
        self._block = os.urandom(MIB)

    def __len__(self) -> int:
        return self.left

    def read(self, size: int = -1) -> bytes:
        count = min(self.left, MIB if size < 0 else size, MIB)
        self.left -= count
        return self._block[:count]


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_memory_does_not_grow_with_the_recording(web: Web, tmp_path: Path) -> None:
    size = 400 * MIB
    raw = {**web.headers, "Content-Disposition": "attachment; filename=a.wav", "Content-Type": "audio/wav"}
    curl = ["curl", "-sS", "-H", f"Authorization: Token {web.token}", "-F", f"file=@{sparse(tmp_path / 'long.wav', size)}", web.url]
    requests.post(web.url, headers=raw, data=b"warm", timeout=60)
    subprocess.run([*curl[:-2], f"file=@{sparse(tmp_path / 'short.wav', 1000)}", web.url], check=True, capture_output=True)
    worker = web.worker()

    forget_peak(worker)
    before = peak(worker)
    assert requests.post(web.url, headers=raw, data=Generated(size), timeout=120).status_code == 202
    after_raw = peak(worker)
    sent = json.loads(subprocess.run(curl, check=True, capture_output=True).stdout)
    after_form = peak(worker)
    for chunk in requests.get(sent["files"]["original"]["url"], headers=web.headers, stream=True, timeout=60).iter_content(MIB):
        assert not any(chunk)
    after_download = peak(worker)

    assert sent["files"]["original"]["size"] == size
    grown = [round((value - before) / MIB, 1) for value in (after_raw, after_form, after_download)]
    print(f"peak memory grew by {grown} MiB (raw, form, download) for {size // MIB} MiB")
    assert max(grown) < 30


# ---- cut off ------------------------------------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_leaves_nothing(web: Web) -> None:
    for sent, rudely in product((0, 1, 3 * MIB), (False, True)):
        connection = web.open(length=10 * MIB)
        connection.sendall(b"x" * sent)
        if sent > MIB:
            wait_for(lambda: sum(path.stat().st_size for path in web.stored()) > MIB, within=10)
        if rudely:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of a farewell
        connection.close()
        wait_for(lambda: not web.stored() and not web.uploads_under_way(), within=10)

    assert web.service.is_healthy()
    assert web.records() == []


def test_what_is_refused_is_said_to_who_still_listens(web: Web) -> None:
    with web.open(length=1000) as connection:
        connection.sendall(b"x" * 999)
        connection.shutdown(socket.SHUT_WR)
        status, body = answer_on(connection)
    assert (status, code_of(body)) == (400, "cut_off")

    # Before a byte was sent.
    with web.open(length=2 * MIB, Authorization="Token nobody") as connection:
        status, body = answer_on(connection)
    assert (status, code_of(body)) == (401, "authentication_failed")

    answer = requests.post(web.url, headers={**web.headers, "Content-Disposition": "x; filename=a"}, data=iter([b"x" * 1000]), timeout=10)
    assert (answer.status_code, code_of(answer.json())) == (411, "length_required")

    assert (web.records(), web.stored()) == ([], [])


def test_a_killed_server_leaves_a_part_at_most(web: Web) -> None:
    with web.open(length=10 * MIB) as connection:
        connection.sendall(b"x" * 3 * MIB)
        wait_for(web.stored, within=10)
        web.worker().kill()
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            answer_on(connection)

    wait_for(web.service.is_healthy, within=20)
    assert web.records() == []
    assert [path.suffix for path in web.stored()] == [".part"]


# ---- too large ----------------------------------------------------------------------------------------------------------------------


def test_ordinary_clients_see_that_it_is_too_large(make_web: MakeWeb, tmp_path: Path) -> None:
    """At once, from the header; and not a reset connection, however much they were about to send."""
    web = make_web(TRANSCRIBER_INTAKE_MAX_SIZE="1MiB")
    large = sparse(tmp_path / "large.wav", 300 * MIB)
    slightly = sparse(tmp_path / "slightly.wav", MIB + 1)
    raw = {**web.headers, "Content-Disposition": "attachment; filename=a.wav"}
    seen: list[tuple[str, int, str]] = []

    def see(client: str, status: int, body: str | bytes) -> None:
        seen.append((client, status, code_of(json.loads(body))))

    for path in (large, slightly):
        with path.open("rb") as file:
            answer = requests.post(web.url, headers=raw, data=file, timeout=60)
        see("requests", answer.status_code, answer.content)
        for arguments in (["-F", f"file=@{path}"], ["--data-binary", f"@{path}", "-H", "Content-Disposition: x; filename=a"]):
            command = ["curl", "-sS", "-w", "\n%{http_code}", "-H", f"Authorization: Token {web.token}", *arguments, web.url]
            text, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rsplit("\n", 1)
            see("curl", int(status), text)
    with slightly.open("rb") as file:
        answer = requests.post(web.url, headers=web.headers, files={"file": file}, timeout=60)
    see("requests, form", answer.status_code, answer.content)
    with pytest.raises(HTTPError) as raised:
        urlopen(Request(web.url, data=slightly.read_bytes(), headers=raw), timeout=60)
    see("urllib", raised.value.code, raised.value.read())
    raised.value.close()
    with web.open(length=2 * MIB) as connection:  # before a byte was sent
        code, body = answer_on(connection)
    see("socket", code, json.dumps(body))

    assert [entry for entry in seen if entry[1:] != (413, "too_large")] == []
    assert (web.records(), web.stored()) == ([], [])


# ---- a full disk --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(make_service: MakeService) -> Iterator[Service]:
    """A service whose recordings lie on a disk of 8 MiB."""
    service = make_service(TRANSCRIBER_PIPELINE_WORKERS="0")
    media = service.data / "media"
    media.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(media)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    yield service
    service.end()
    subprocess.run(["umount", "-l", str(media)], check=True)


def test_a_full_disk(small_disk: Service) -> None:
    web = Web(small_disk)
    raw = {**web.headers, "Content-Disposition": "attachment; filename=a.wav"}

    def send(size: int) -> requests.Response:
        return requests.post(web.url, headers=raw, data=b"x" * size, timeout=30)

    # It can't fit, and that is said at once.
    answer = send(10 * MIB)
    assert (answer.status_code, code_of(answer.json())) == (507, "disk_full")
    # It would have fitted, but for another that arrives at the same time.
    with web.open(length=6 * MIB) as slow, web.open(length=6 * MIB) as other:
        for connection in (slow, other):
            connection.sendall(b"x" * MIB)
        wait_for(lambda: len(web.stored()) == 2, within=10)
        outcomes: list[tuple[int, Any]] = []
        for connection in (slow, other):
            with suppress(ConnectionError):
                connection.sendall(b"x" * (5 * MIB))
            outcomes.append(answer_on(connection))
    assert sorted(status for status, _ in outcomes) == [202, 507]
    assert len(web.records()) == len(web.stored()) == 1
    # And once there is space again, it goes on.
    assert requests.delete(web.records()[0]["links"]["self"], headers=web.headers, timeout=10).status_code == 204
    assert send(6 * MIB).status_code == 202


# ---- several at once ----------------------------------------------------------------------------------------------------------------


@contextmanager
def dripping(web: Web, clients: int) -> Iterator[list[socket.socket]]:
    """Clients that send a byte now and then until the context ends."""
    connections = [web.open(length=MIB) for _ in range(clients)]
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.2):
            for connection in connections:
                connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield connections
    finally:
        ended.set()
        thread.join()
        for connection in connections:
            connection.close()


def test_slow_clients_hold_nobody_up(web: Web, tmp_path: Path) -> None:
    sound = wav_bytes(tmp_path)
    with dripping(web, clients=6):
        wait_for(lambda: len(web.stored()) == 6, within=10)
        waited = []
        for _ in range(10):
            began = time.monotonic()
            answer = requests.post(web.url, headers=web.headers, files={"file": ("a.wav", sound)}, timeout=10)
            assert answer.status_code == 202
            assert requests.get(answer.headers["Location"], headers=web.headers, timeout=10).json()["status"] == "uploaded"
            waited.append(time.monotonic() - began)

    assert sorted(waited)[len(waited) // 2] < 0.5
    wait_for(lambda: len(web.stored()) == 10, within=10)
    assert len(web.records()) == 10


def test_the_same_request_many_times_at_once(web: Web, tmp_path: Path) -> None:
    sound = wav_bytes(tmp_path)
    answers: list[requests.Response] = []

    def send() -> None:
        headers = {**web.headers, "Idempotency-Key": "once"}
        answers.append(requests.post(web.url, headers=headers, files={"file": ("a.wav", sound)}, timeout=30))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [answer.status_code for answer in answers] == [202] * 8
    assert len({answer.json()["id"] for answer in answers}) == len(web.records()) == len(web.stored()) == 1


# ---- names --------------------------------------------------------------------------------------------------------------------------


def test_names_come_through_and_never_reach_the_log(web: Web, tmp_path: Path) -> None:
    sound = wav_bytes(tmp_path)
    names = {"🎙️ идея 👩‍💻.oga": "🎙️ идея 👩‍💻", "שיחה.mp3": "שיחה", "x" * 240 + ".wav": "x" * 240, "Zanzibar; 100%d.wav": "Zanzibar; 100%d"}

    for client, (name, title) in product(("requests", "curl", "raw"), names.items()):
        if client == "requests":
            answer = requests.post(web.url, headers=web.headers, files={"file": (name, sound)}, timeout=10).json()
        elif client == "raw":
            headers: dict[str, str | bytes] = {**web.headers, "Content-Disposition": f'attachment; filename="{name}"'.encode()}
            answer = requests.post(web.url, headers=headers, data=sound, timeout=10).json()
        else:
            path = tmp_path / "sound"
            path.write_bytes(sound)
            command = ["curl", "-sS", "-H", f"Authorization: Token {web.token}", "-F", f'file=@{path};filename="{name}"', web.url]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert answer["title"] == title, client
        assert (
            requests.get(answer["files"]["original"]["url"], headers={**web.headers, "Range": "bytes=-4"}, timeout=10).content == sound[-4:]
        )

    assert len(web.records()) == 3 * len(names)
    web.service.stop()
    assert not any(word in web.service.log for word in ("идея", "שיחה", "xxxxx", "Zanzibar"))
