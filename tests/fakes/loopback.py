"""What the HTTP stand-ins share: a threaded server on loopback, the ledger of what it was asked, and faults that tests switch on.

A request is written into the ledger before anything else happens with it, so that it counts although its sender dies or never hears of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, urlsplit

# ---- requests and answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A request as it arrived. `at` counts on the monotonic clock, `wall` is Unix time, `clock` the stand-in's own time (Unix too)."""

    number: int
    route: str
    method: str
    path: str
    at: float
    wall: float
    clock: float
    body_sha256: str
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What goes back. A list is sent chunk by chunk; `end` may be `whole`, `cut` (broken off in the middle), `reset` or `close` (nothing sent)."""

    status: int = 200
    body: bytes | list[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    end: str = "whole"

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)


def json_answer(value: object, status: int = 200, **headers: str) -> Answer:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(status, body, {"Content-Type": "application/json", **headers})


_KEPT = ("number", "route", "method", "path", "query", "at", "wall", "clock", "body_sha256")
"""What of a request goes into the ledger's file: no key and no sound."""

# ---- the ledger ---------------------------------------------------------------------------------------------------------------------


class Ledger:
    """All requests, in order, and notes about what came of them; in a file of JSON lines as well, if one is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._file = path.open("ab", buffering=0) if path else None

    def record(self, call: Callable[[int], Call]) -> Call:
        with self._lock:
            made = call(len(self._calls) + 1)
            self._calls.append(made)
            self._write({"call": {name: getattr(made, name) for name in _KEPT}})
        return made

    def note(self, **what: object) -> None:
        """Keep in the file, for whoever counts after the death of this process, too."""
        with self._lock:
            self._write(what)

    def _write(self, entry: Mapping[str, object]) -> None:
        if self._file:
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        if self._file:
            self._file.close()

    def __iter__(self) -> Iterator[Call]:
        with self._lock:
            return iter(list(self._calls))

    def of(self, route: str) -> list[Call]:
        return [call for call in self if call.route == route]

    def count(self, route: str) -> int:
        return len(self.of(route))

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for call in self:
            found[call.route] = found.get(call.route, 0) + 1
        return found

    def most(self, route: str, seconds: float, *, by: str = "at") -> int:
        """The most calls of a route in any stretch of so many seconds (its end left out). `by`: `at`, `wall` or `clock`."""
        moments = sorted(getattr(call, by) for call in self.of(route))
        return most_within(moments, seconds)


def most_within(moments: list[float], seconds: float) -> int:
    first, most = 0, 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The entries of a ledger's file; a last line that its writer did not finish is left out."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


# ---- faults -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. `acted`: only on the way back, after the request had its effect."""

    acted: bool = False

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        raise NotImplementedError


@dataclass(frozen=True)
class Status(Fault):
    """Another status, with a body of the `shape` that the server knows (`html`, `empty` and `text` are known to all)."""

    status: int = 503
    shape: str = ""
    message: str = "stand-in: as asked"
    retry_after: str = ""

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        if self.acted:
            act()
        answer = server.failure(self.status, self.shape, self.message)
        return replace(answer, headers={**answer.headers, "Retry-After": self.retry_after}) if self.retry_after else answer


@dataclass(frozen=True)
class Body(Fault):
    """These bytes instead of the answer. `acted` is true: the request had its effect."""

    acted: bool = True
    body: bytes | str = b""
    status: int = 200
    content_type: str = "application/json"

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        if self.acted:
            act()
        body = self.body.encode() if isinstance(self.body, str) else self.body
        return Answer(self.status, body, {"Content-Type": self.content_type})


@dataclass(frozen=True)
class Reset(Fault):
    """The connection is reset (RST)."""

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        if self.acted:
            act()
        return Answer(end="reset")


@dataclass(frozen=True)
class Close(Fault):
    """The connection is closed without an answer."""

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        if self.acted:
            act()
        return Answer(end="close")


@dataclass(frozen=True)
class Cut(Fault):
    """The answer breaks off after this share of its bytes, its connection with it. `clean`: what came looks like all there is."""

    acted: bool = True
    share: float = 0.5
    clean: bool = False

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        answer = act()
        whole = answer.content
        part = whole[: int(len(whole) * self.share)]
        if self.clean:
            return replace(answer, body=[part] if isinstance(answer.body, list) else part)
        return replace(answer, body=[part], end="cut")


@dataclass(frozen=True)
class Delay(Fault):
    """The answer comes late, and what is asked is done before the wait (`acted`) or after it."""

    acted: bool = True
    seconds: float = 1.0

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        answer = act() if self.acted else None
        server.stopping.wait(self.seconds)
        return answer or act()


@dataclass(frozen=True)
class Hold(Fault):
    """The answer waits until the test lets it go: `arrived` is set once a request stands here, `release()` lets all through."""

    acted: bool = True
    arrived: threading.Event = field(default_factory=threading.Event, compare=False)
    _released: threading.Event = field(default_factory=threading.Event, compare=False)

    def apply(self, act: Callable[[], Answer], server: Loopback) -> Answer:
        answer = act() if self.acted else None
        self.arrived.set()
        while not self._released.wait(0.05) and not server.stopping.is_set():
            pass
        return answer or act()

    def release(self) -> None:
        self._released.set()


@dataclass
class _Switched:
    fault: Fault
    left: int | None
    skip: int


class Faults:
    """Which fault a route has next. The first that was switched on goes first; `None` times means always."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_route: dict[str, list[_Switched]] = {}

    def next(self, route: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """For the next calls of a route, once `skip` of them went well."""
        self._add(route, _Switched(fault, times, skip))

    def always(self, route: str, fault: Fault, *, skip: int = 0) -> None:
        self._add(route, _Switched(fault, None, skip))

    def clear(self, route: str | None = None) -> None:
        with self._lock:
            for name in [route] if route else list(self._by_route):
                self._by_route.pop(name, None)

    def _add(self, route: str, switched: _Switched) -> None:
        with self._lock:
            self._by_route.setdefault(route, []).append(switched)

    def take(self, route: str) -> Fault | None:
        with self._lock:
            waiting = self._by_route.get(route, [])
            for switched in waiting:
                if switched.skip:
                    switched.skip -= 1
                    continue
                if switched.left is not None:
                    switched.left -= 1
                    if not switched.left:
                        waiting.remove(switched)
                return switched.fault
        return None


# ---- the server ---------------------------------------------------------------------------------------------------------------------


class Loopback:
    """A server on a loopback port: a context manager. Subclasses say what the routes are and what they do.

    A request that the stand-in itself fails on (a bug in it, not a fault that was asked for) is kept and raised when the context ends.
    """

    FAULTS: ClassVar[dict[str, type[Fault]]] = {
        "status": Status,
        "body": Body,
        "reset": Reset,
        "close": Close,
        "cut": Cut,
        "delay": Delay,
    }
    SHAPES: ClassVar[tuple[str, ...]] = ("html", "empty", "text")

    def __init__(self, *, port: int = 0, ledger: Path | None = None) -> None:
        self.requests = Ledger(ledger)
        self.faults = Faults()
        self.stopping = threading.Event()
        self.crashes: list[BaseException] = []
        self._listeners = [Listener(self, port)]

    # What a subclass says.

    def route(self, method: str, path: str, listener: int) -> str:
        """The name of the route that a request goes to; "" where there is none."""
        raise NotImplementedError

    def respond(self, call: Call) -> Answer:
        """What the real service would do."""
        raise NotImplementedError

    def failure(self, status: int, shape: str, message: str) -> Answer:
        """An error as the real service, or what stands before it, would put it."""
        if shape == "html":
            page = f"<html><head><title>{status}</title></head><body><center><h1>{status}</h1></center><hr></body></html>"
            return Answer(status, page.encode(), {"Content-Type": "text/html"})
        if shape == "empty":
            return Answer(status)
        assert shape == "text", f"no shape {shape!r}"
        return Answer(status, message.encode(), {"Content-Type": "text/plain"})

    def headers(self) -> dict[str, str]:
        """What every answer carries."""
        return {}

    def clock_now(self) -> float:
        return time.time()

    def control(self, method: str, what: str, query: Mapping[str, str], said: Mapping[str, Any]) -> object:
        """`/_control/…`: the switches for tests in another process. JSON in, JSON out."""
        if method == "GET" and what == "requests":
            return [
                {"number": c.number, "route": c.route, "method": c.method, "path": c.path, "at": c.at, "wall": c.wall, "clock": c.clock}
                for c in self.requests
            ]
        if method == "GET" and what == "most":
            return self.requests.most(query["route"], float(query["seconds"]), by=query.get("by", "at"))
        if method == "POST" and what == "fault":
            arguments = dict(said)
            route, kind, times, skip = (arguments.pop("route"), arguments.pop("fault"), arguments.pop("times", 1), arguments.pop("skip", 0))
            fault = self.FAULTS[kind](**arguments)
            if times is None:
                self.faults.always(route, fault, skip=skip)
            else:
                self.faults.next(route, fault, times=times, skip=skip)
            return {}
        if method == "POST" and what == "clear":
            self.faults.clear(said.get("route"))
            return {}
        raise LookupError(what)

    # What all do.

    @property
    def url(self) -> str:
        return self._listeners[0].url

    def __enter__(self) -> Self:
        for listener in self._listeners:
            listener.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if self.crashes and error is None:
            raise AssertionError("the stand-in failed while it answered") from self.crashes[0]

    def stop(self) -> None:
        self.stopping.set()
        for listener in self._listeners:
            listener.stop()
        self.requests.close()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes, listener: int) -> Answer:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path.startswith("/_control/"):
            try:
                return json_answer(self.control(method, parts.path.removeprefix("/_control/"), query, json.loads(body or b"{}")))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                return json_answer({"error": f"{type(error).__name__}: {error}"}, 400)
        call = self.requests.record(
            lambda number: Call(
                number=number,
                route=self.route(method, parts.path, listener),
                method=method,
                path=parts.path,
                at=time.monotonic(),
                wall=time.time(),
                clock=self.clock_now(),
                body_sha256=hashlib.sha256(body).hexdigest(),
                headers=headers,
                query=query,
                body=body,
            )
        )
        fault = self.faults.take(call.route)
        answer = fault.apply(lambda: self.respond(call), self) if fault else self.respond(call)
        return replace(answer, headers={**self.headers(), **answer.headers})


class Listener:
    def __init__(self, owner: Loopback, port: int, number: int = 0) -> None:
        self._server = _Server(owner, port, number)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="stand-in", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.end_connections()
        self._server.server_close()  # waits for the requests at work


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # or closing would not wait for them
    request_queue_size = 128

    def __init__(self, owner: Loopback, port: int, number: int) -> None:
        self.owner, self.number = owner, number
        self._open: set[socket.socket] = set()
        self._opening = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's would ask the resolver for this machine's name
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._opening:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._opening:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._opening:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.owner.crashes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The `Date` of answers: by the stand-in's own clock."""
        return super().date_time_string(self.server.owner.clock_now() if timestamp is None else timestamp)

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # its sender is gone: no request
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.owner.answer(self.command, self.path, headers, body, self.server.number)
        if answer.end in ("reset", "close"):
            self._hang_up(reset=answer.end == "reset")
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if isinstance(answer.body, list):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer.body:
                if chunk:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if answer.end == "cut":
                self._hang_up(reset=False)
            else:
                self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815 - the library's names

    def _hang_up(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())  # shutting it down first would say a polite goodbye

    def log_message(self, *args: object) -> None:
        pass
