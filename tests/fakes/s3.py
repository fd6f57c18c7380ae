"""Object storage on loopback: moto's server in this process, with a count of its requests and faults.

    with S3() as s3:
        bucket = s3.make_bucket()
        s3.fail("part", status=500, skip=2)       # the third part of an upload is answered with 500
        ...
        assert s3.counts()["put"] == 1

Requests are counted by what they are: head, get, put, delete, create, part, complete, abort, list, bucket, other. Those of the stand-ins
themselves are left out. As a program: `python -m tests.fakes.s3 --bucket recordings`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import socket
import struct
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

REGION = "ru-central1"
OURS = "speechkit-stand-in"
"""User agent of the stand-ins' own reading."""


@dataclass(frozen=True)
class S3Call:
    """A request as it arrived. `at` counts on the monotonic clock."""

    kind: str
    method: str
    path: str
    query: str
    at: float


@dataclass
class _Fault:
    status: int | None
    skip: int
    left: int | None
    acted: bool


class S3:
    """A context manager. State is moto's and so of the whole process: buckets have names of their own and are removed at the end."""

    def __init__(self, *, port: int = 0, access_key_id: str = "stand-in-id", secret_access_key: str = "stand-in-secret") -> None:
        self.access_key_id = access_key_id
        self.secret_access_key = secret_access_key
        self._port = port
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._calls: list[S3Call] = []
        self._faults: dict[str, list[_Fault]] = {}
        self._buckets: list[str] = []
        self._names = itertools.count(1)

    def __enter__(self) -> Self:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                pass

        # Threads of werkzeug's server are daemons: none is waited for, and idle connections hold nothing up.
        application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", self._port, self._counting(application), threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="s3", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is None or self._thread is None:
            return
        self._faults.clear()
        for bucket in self._buckets:
            self.empty(bucket)
            self.client().delete_bucket(Bucket=bucket)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The endpoint, and the base of path-style links."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    def client(self) -> Any:
        """A client of its own, for looking at what is there; its requests are not counted."""
        return client(self.url, self.access_key_id, self.secret_access_key)

    def make_bucket(self, name: str = "") -> str:
        name = name or f"recordings-{uuid.uuid4().hex[:8]}-{next(self._names)}"
        self.client().create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self._buckets.append(name)
        return name

    def put(self, bucket: str, key: str, body: bytes) -> str:
        """Put an object; gives its path-style link."""
        self.client().put_object(Bucket=bucket, Key=key, Body=body)
        return f"{self.url}/{bucket}/{key}"

    def get(self, bucket: str, key: str) -> bytes:
        body: bytes = self.client().get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def keys(self, bucket: str) -> list[str]:
        return [item["Key"] for item in self.client().list_objects_v2(Bucket=bucket).get("Contents", [])]

    def open_uploads(self, bucket: str) -> list[str]:
        """Keys of multipart uploads that were neither completed nor aborted; they cost money."""
        return [upload["Key"] for upload in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def empty(self, bucket: str) -> None:
        ours = self.client()
        for upload in ours.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
            ours.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        for key in self.keys(bucket):
            ours.delete_object(Bucket=bucket, Key=key)

    # Counts and faults.

    @property
    def calls(self) -> list[S3Call]:
        with self._lock:
            return list(self._calls)

    def counts(self) -> Counter[str]:
        return Counter(call.kind for call in self.calls)

    def fail(self, kind: str, *, status: int | None = 500, times: int | None = 1, skip: int = 0, acted: bool = False) -> None:
        """The next requests of a kind fail, once `skip` went well: with a status, or with a reset where that is None. No `times`: always.

        `acted`: on the way back, after they had their effect.
        """
        with self._lock:
            self._faults.setdefault(kind, []).append(_Fault(status, skip, times, acted))

    def clear(self) -> None:
        """No more faults, and counts from nothing."""
        with self._lock:
            self._faults.clear()
            self._calls.clear()

    def environment(self, bucket: str) -> dict[str, str]:
        """What makes the service use this bucket."""
        return {
            "TRANSCRIBER_BUCKET_ENDPOINT_URL": self.url,
            "TRANSCRIBER_BUCKET_REGION": REGION,
            "TRANSCRIBER_BUCKET_NAME": bucket,
            "TRANSCRIBER_BUCKET_ACCESS_KEY_ID": self.access_key_id,
            "TRANSCRIBER_BUCKET_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def _counting(self, application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        def counted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            if OURS in environ.get("HTTP_USER_AGENT", ""):
                return application(environ, start_response)
            method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
            kind = _kind(method, path, query)
            with self._lock:
                self._calls.append(S3Call(kind, method, path, query, time.monotonic()))
                fault = self._take(kind)
            if fault is None:
                return application(environ, start_response)
            if fault.acted:
                b"".join(application(environ, lambda *_: None))
            else:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            if fault.status is None:
                connection: socket.socket = environ["werkzeug.socket"]
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(connection.detach())
                raise ConnectionResetError
            body = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>stand-in: as asked</Message></Error>" % _CODES.get(
                fault.status, b"InternalError"
            )
            start_response(f"{fault.status} As asked", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [] if method == "HEAD" else [body]

        return counted

    def _take(self, kind: str) -> _Fault | None:
        waiting = self._faults.get(kind, [])
        for fault in waiting:
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    waiting.remove(fault)
            return fault
        return None


_CODES = {403: b"AccessDenied", 404: b"NoSuchKey", 503: b"SlowDown"}


def _kind(method: str, path: str, query: str) -> str:
    if "/" not in path.strip("/"):
        return "list" if method == "GET" else "bucket"
    if "uploadId=" in query:
        return {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(method, "other")
    if method == "POST":
        return "create" if "uploads" in query else "other"
    return method.lower()


@cache
def client(url: str, access_key_id: str, secret_access_key: str) -> Any:
    """The client of the stand-ins, made once: making one takes half a second."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
        config=Config(user_agent=OURS, s3={"addressing_style": "path"}, retries={"max_attempts": 1, "mode": "standard"}),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Object storage on loopback, for tests and trying out.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bucket", action="append", default=[])
    said = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with S3(port=said.port) as s3:
        for name in said.bucket:
            s3.make_bucket(name)
        print(json.dumps({"url": s3.url, "access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key}), flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
