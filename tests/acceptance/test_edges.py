"""What the web server refuses before the service sees it."""

from __future__ import annotations

import json
import socket

import pytest

from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.processes


def answer(service: Service, request: bytes) -> tuple[int, str, dict[str, object]]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), json.loads(body)


@pytest.fixture
def web(service: Service) -> Service:
    service.environment["TRANSCRIBER_PIPELINE_WORKERS"] = "0"
    service.launch("serve")
    wait_for(service.is_healthy, within=40)
    return service


def test_what_the_web_server_refuses_has_the_shape_of_all_errors(web: Service) -> None:
    end = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    refused = {
        b"GET /api/v1/records/?search=" + b"x" * 9000 + end + b"\r\n": (414, "uri_too_long"),
        b"GET /api/v1/records/" + end + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n": (431, "headers_too_large"),
        b"GET /api/v1/records/ HTTP/one\r\n\r\n": (400, "malformed"),
        b"POST /api/v1/records/" + end + b"Content-Length: many\r\n\r\n": (400, "malformed"),
        b"POST /api/v1/records/" + end + b"Transfer-Encoding: secret\r\n\r\n": (501, "not_implemented"),
    }
    for request, (status, code) in refused.items():
        found, head, body = answer(web, request)
        errors = body["errors"]
        assert isinstance(errors, list)
        assert (found, errors[0]["code"], body["type"]) == (status, code, "client_error" if status < 500 else "server_error")
        assert "content-type: application/json" in head
        assert set(errors[0]) == {"code", "detail", "attr"}
        assert "secret" not in str(body)


def test_an_address_of_8000_bytes_is_read(web: Service) -> None:
    request = b"GET /api/v1/records/?search=" + b"x" * 8000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    assert answer(web, request)[0] == 401
