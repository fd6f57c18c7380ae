"""A real OpenID Connect provider in a process of its own, on loopback: oidc-provider-mock, made to insist on PKCE.

`python -m tests.fakes.openid_provider PORT` writes a line once it listens. Who is asked for may be anybody: the page takes any name, and `tell`
says what is claimed of them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import requests

ROOT = Path(__file__).resolve().parents[2]


class OpenIDProvider:
    """A context. `stop` and `start` make it go away and come back at the same address, which is kept for it all the while: in between
    connections to it are refused, and nobody else can get it."""

    def __init__(self) -> None:
        self.port = 0
        self._place: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> OpenIDProvider:
        self._place = bound_to(0)
        self.port = self._place.getsockname()[1]
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._place is not None:
            self._place.close()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.fakes.openid_provider", str(self.port)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "AUTHLIB_INSECURE_TRANSPORT": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n", "it did not start"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def tell(self, subject: str, **claims: object) -> None:
        """What it claims of somebody from now on, beside the subject."""
        requests.put(f"{self.url}/users/{subject}", json=claims, timeout=60).raise_for_status()


def bound_to(port: int) -> socket.socket:
    """A socket that shares its port with those alone that are made here; 0: any that is free."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def insist_on_pkce(app: object) -> None:
    """A code is given only upon a challenge, and changed for a token only with its verifier."""
    import flask

    assert isinstance(app, flask.Flask)
    challenges: dict[str, str] = {}

    @app.before_request
    def _check() -> tuple[str, int] | None:
        if flask.request.path == "/oauth2/authorize" and flask.request.args.get("code_challenge_method") != "S256":
            return "PKCE is wanted", 400
        if flask.request.path == "/oauth2/token":
            verifier = flask.request.form.get("code_verifier", "")
            challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
            if challenges.pop(flask.request.form.get("code", ""), "none") != challenge:
                return '{"error": "invalid_grant"}', 400
        return None

    @app.after_request
    def _remember(response: flask.Response) -> flask.Response:
        if flask.request.path == "/oauth2/authorize" and response.location:
            for code in parse_qs(urlsplit(response.location).query).get("code", []):
                challenges[code] = flask.request.args["code_challenge"]
        return response


def main(port: int) -> None:
    import oidc_provider_mock
    from werkzeug.serving import make_server

    app = oidc_provider_mock.app()
    insist_on_pkce(app)
    with bound_to(port) as place:
        place.listen()
        server = make_server("127.0.0.1", port, app, threaded=True, fd=place.fileno())
        print("listening", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
