from __future__ import annotations

import multiprocessing
import os
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from recognition import bucket as module
from recognition.bucket import Bucket
from recognition.contract import Audio, Busy, Misconfigured, ProviderError, Transient
from tests.fakes.loopback import Answer, Call, Loopback
from tests.fakes.s3 import S3

pytestmark = pytest.mark.no_database

KEY = "2026/01/0197a1/normalized.ogg"
SECRET = "an-invented-secret"


@pytest.fixture(scope="module")
def storage() -> Iterator[S3]:
    with S3(secret_access_key=SECRET) as running:
        yield running


@pytest.fixture
def s3(storage: S3) -> S3:
    storage.clear()
    return storage


@pytest.fixture
def name(s3: S3) -> str:
    return s3.make_bucket()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits a second or more between its tries."""
    from botocore.retries import standard

    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0)


def bucket_at(url: str, name: str, **changes: str) -> Bucket:
    told = {"access_key_id": "stand-in-id", "secret_access_key": SECRET, **changes}
    return Bucket(endpoint_url=url, region="ru-central1", name=name, **told)


def audio(path: Path, size: int | None = None, *, location: str = KEY) -> Audio:
    opened: list[Path] = []

    @contextmanager
    def local_path() -> Iterator[Path]:
        opened.append(path)
        yield path

    return Audio(location=location, size=path.stat().st_size if size is None else size, duration_ms=1000, channels=1, local_path=local_path)


def small(folder: Path, content: bytes = b"OggS and so on") -> Path:
    path = folder / "sound.ogg"
    path.write_bytes(content)
    return path


def large(folder: Path, size: int = 3 * module.PART_SIZE + 5) -> Path:
    path = folder / "long.ogg"
    path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    return path


# ---- what is there afterwards -------------------------------------------------------------------------------------------------------


def test_the_copy_lies_behind_a_bare_link_in_path_style(s3: S3, name: str, tmp_path: Path) -> None:
    link = bucket_at(f"{s3.url}/", name).upload(audio(small(tmp_path)))

    assert link == f"{s3.url}/{name}/{KEY}"
    assert s3.get(name, KEY) == b"OggS and so on"
    assert s3.client().head_object(Bucket=name, Key=KEY)["ContentType"] == "audio/ogg"
    assert s3.counts() == {"head": 1, "put": 1}


def test_what_is_there_already_is_not_sent_or_opened_again(s3: S3, name: str, tmp_path: Path) -> None:
    bucket = bucket_at(s3.url, name)
    link = bucket.upload(audio(small(tmp_path)))
    s3.clear()

    def never() -> Any:
        raise AssertionError("opened")

    again = Audio(location=KEY, size=14, duration_ms=1000, channels=1, local_path=never)
    assert bucket.upload(again) == link
    assert bucket_at(s3.url, name).upload(again) == link
    assert s3.counts() == {"head": 2}


def test_a_copy_of_another_size_is_replaced(s3: S3, name: str, tmp_path: Path) -> None:
    s3.put(name, KEY, b"half")
    bucket_at(s3.url, name).upload(audio(small(tmp_path)))
    assert s3.get(name, KEY) == b"OggS and so on"


def test_a_large_file_goes_in_parts_and_is_not_sent_again_though_its_etag_is_no_checksum(s3: S3, name: str, tmp_path: Path) -> None:
    path = large(tmp_path)
    bucket = bucket_at(s3.url, name)

    bucket.upload(audio(path))
    bucket.upload(audio(path))

    assert s3.get(name, KEY) == path.read_bytes()
    assert "-" in s3.client().head_object(Bucket=name, Key=KEY)["ETag"]
    counts = s3.counts()
    assert (counts["part"], counts["complete"], counts["put"], counts["create"]) == (4, 1, 0, 1)
    assert s3.open_uploads(name) == []


def test_a_part_that_fails_once_is_sent_again(s3: S3, name: str, tmp_path: Path) -> None:
    path = large(tmp_path)
    s3.fail("part", status=500, skip=1)
    s3.fail("part", status=None, skip=1)

    bucket_at(s3.url, name).upload(audio(path))

    assert s3.get(name, KEY) == path.read_bytes()


@pytest.mark.parametrize(("status", "kind"), [(500, Transient), (503, Busy), (403, Misconfigured), (None, Transient)])
def test_parts_are_taken_back_when_the_rest_fails(s3: S3, name: str, tmp_path: Path, status: int | None, kind: type[ProviderError]) -> None:
    s3.fail("part", status=status, times=None, skip=2)

    with pytest.raises(ProviderError) as raised:
        bucket_at(s3.url, name).upload(audio(large(tmp_path)))

    assert type(raised.value) is kind
    assert s3.counts()["abort"] >= 1
    assert s3.open_uploads(name) == []
    assert s3.keys(name) == []


def test_parts_that_a_killed_process_left_are_taken_back_and_others_are_not(s3: S3, name: str, tmp_path: Path) -> None:
    for key in (KEY, KEY, KEY + "2"):
        s3.client().create_multipart_upload(Bucket=name, Key=key)

    bucket_at(s3.url, name).upload(audio(large(tmp_path)))

    assert s3.open_uploads(name) == [KEY + "2"]


def test_a_key_that_may_not_see_such_parts_uploads_all_the_same(s3: S3, name: str, tmp_path: Path) -> None:
    s3.fail("list", status=403, times=None)
    bucket_at(s3.url, name).upload(audio(large(tmp_path)))
    assert s3.keys(name) == [KEY]


def test_a_key_that_may_only_write_uploads_all_the_same(s3: S3, name: str, tmp_path: Path) -> None:
    s3.fail("head", status=403, times=None)
    bucket_at(s3.url, name).upload(audio(small(tmp_path)))
    assert s3.keys(name) == [KEY]


def test_a_file_that_lost_its_end_is_not_sent(s3: S3, name: str, tmp_path: Path) -> None:
    with pytest.raises(Transient) as raised:
        bucket_at(s3.url, name).upload(audio(small(tmp_path), size=15))
    assert raised.value.code == "source_damaged"
    assert s3.counts() == {"head": 1}


def test_a_file_that_is_gone_is_said_to_be(s3: S3, name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        bucket_at(s3.url, name).upload(audio(tmp_path / "gone.ogg", size=1))


def test_a_key_with_characters_of_addresses_is_escaped_in_the_link_alone(s3: S3, name: str, tmp_path: Path) -> None:
    bucket = bucket_at(s3.url, name)

    link = bucket.upload(audio(small(tmp_path), location="a b/ё?.ogg"))

    assert link == f"{s3.url}/{name}/a%20b/%D1%91%3F.ogg"
    assert s3.keys(name) == ["a b/ё?.ogg"]
    bucket.remove(link)
    assert s3.keys(name) == []


# ---- removal ------------------------------------------------------------------------------------------------------------------------


def test_a_copy_is_removed_once_and_again(s3: S3, name: str, tmp_path: Path) -> None:
    bucket = bucket_at(s3.url, name)
    link = bucket.upload(audio(small(tmp_path)))

    bucket.remove(link)
    bucket.remove(link)

    assert s3.keys(name) == []


def test_what_a_broken_upload_left_goes_with_the_copy(s3: S3, name: str, tmp_path: Path) -> None:
    """Its worker was killed, and its record removed before anybody came back to it."""
    for key in (KEY, KEY + "2"):
        s3.client().create_multipart_upload(Bucket=name, Key=key)
    bucket = bucket_at(s3.url, name)

    bucket.remove(bucket.link_to(KEY))

    assert s3.open_uploads(name) == [KEY + "2"]


def test_copies_elsewhere_are_none_of_our_business(s3: S3, name: str, tmp_path: Path) -> None:
    link = bucket_at(s3.url, name).upload(audio(small(tmp_path)))

    bucket_at("http://127.0.0.1:9", name).remove(link)

    assert s3.keys(name) == [KEY]


def test_a_copy_in_the_bucket_of_an_earlier_configuration_is_removed_there(s3: S3, name: str, tmp_path: Path) -> None:
    link = bucket_at(s3.url, name).upload(audio(small(tmp_path)))
    bucket_at(s3.url, s3.make_bucket()).remove(link)
    assert s3.keys(name) == []


def test_a_bucket_that_is_gone_holds_no_copy(s3: S3, name: str) -> None:
    bucket_at(s3.url, name).remove(f"{s3.url}/never-made/{KEY}")


def test_a_role_that_may_not_remove_is_named(s3: S3, name: str) -> None:
    s3.fail("delete", status=403, times=None)
    with pytest.raises(Misconfigured, match=r"storage\.editor"):
        bucket_at(s3.url, name).remove(f"{s3.url}/{name}/{KEY}")


# ---- what is wrong ------------------------------------------------------------------------------------------------------------------


class Refusing(Loopback):
    status, code = 403, ""

    def route(self, method: str, path: str, listener: int) -> str:
        return method

    def respond(self, call: Call) -> Answer:
        if call.method == "HEAD":
            return Answer(self.status)
        body = f"<Error><Code>{self.code}</Code><Message>said-by-the-storage {SECRET}</Message></Error>"
        return Answer(self.status, body.encode(), {"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (404, "NoSuchBucket", Misconfigured, "[bucket] name"),
        (400, "InvalidBucketName", Misconfigured, "[bucket] name"),
        (403, "AccessDenied", Misconfigured, "storage.uploader"),
        (401, "Unauthorized", Misconfigured, "TRANSCRIBER_BUCKET_ACCESS_KEY_ID"),
        (403, "InvalidAccessKeyId", Misconfigured, "TRANSCRIBER_BUCKET_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", Misconfigured, "TRANSCRIBER_BUCKET_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", Misconfigured, "clock"),
        (400, "AuthorizationHeaderMalformed", Misconfigured, "[bucket] region"),
        (429, "TooManyRequests", Busy, "later"),
        (400, "BadDigest", Transient, "HTTP 400"),
        (500, "InternalError", Transient, "HTTP 500"),
        (503, "ServiceUnavailable", Transient, "HTTP 503"),
    ],
)
def test_each_refusal_says_what_to_look_at_and_nothing_else(
    tmp_path: Path, status: int, code: str, kind: type[ProviderError], told: str
) -> None:
    with Refusing() as server:
        server.status, server.code = status, code
        with pytest.raises(ProviderError) as raised:
            bucket_at(server.url, "recordings").upload(audio(small(tmp_path)))

    assert type(raised.value) is kind
    assert told in raised.value.message
    assert raised.value.__suppress_context__
    for never in ("said-by-the-storage", SECRET, str(tmp_path), KEY):
        assert never not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "[bucket] name"),
        ({"access_key_id": ""}, "TRANSCRIBER_BUCKET_ACCESS_KEY_ID"),
        ({"secret_access_key": ""}, "TRANSCRIBER_BUCKET_SECRET_ACCESS_KEY"),
        ({"name": "not a name"}, "[bucket] name"),
        ({"endpoint_url": "https://"}, "[bucket] endpoint_url"),
    ],
)
def test_a_configuration_that_is_incomplete_is_said_by_its_key(tmp_path: Path, changes: dict[str, str], told: str) -> None:
    whole = {"endpoint_url": "http://127.0.0.1:9", "region": "ru-central1", "name": "b", "access_key_id": "i", "secret_access_key": "s"}
    bucket = Bucket(**{**whole, **changes})  # nothing is checked before it is used

    with pytest.raises(Misconfigured) as raised:
        bucket.upload(audio(small(tmp_path)))

    assert told in raised.value.message


def test_a_storage_that_nobody_reaches_is_tried_again(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Transient) as raised:
        bucket_at(f"http://127.0.0.1:{port}", "recordings").upload(audio(small(tmp_path)))
    assert raised.value.code == "bucket_unreachable"


def test_a_storage_that_falls_silent_is_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_TIMEOUT", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, pytest.raises(Transient):
        bucket_at(f"http://127.0.0.1:{silent.getsockname()[1]}", "recordings").upload(audio(small(tmp_path)))


# ---- resources ----------------------------------------------------------------------------------------------------------------------


class Swallowing(Loopback):
    """Takes parts and forgets them."""

    def route(self, method: str, path: str, listener: int) -> str:
        return method

    def respond(self, call: Call) -> Answer:
        if call.method == "HEAD":
            return Answer(404)
        if "uploads" in call.query and call.method == "POST":
            return Answer(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
        if call.method == "POST":
            return Answer(200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")
        if call.method == "GET":
            return Answer(200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>")
        return Answer(200, headers={"ETag": '"1"'})


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The stand-in runs in another process, as it holds what it is sent."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=swallow, args=(theirs,))
    process.start()
    try:
        url = ours.recv()
        bucket = bucket_at(url, "recordings")
        path = tmp_path / "hours.ogg"
        with path.open("wb") as file:
            file.truncate(20 * module.PART_SIZE)
        bucket.upload(audio(small(tmp_path), location="warm"))
        tracemalloc.start()
        try:
            bucket.upload(audio(path))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        ours.send("end")
        assert ours.recv() == 20, "parts"
        assert peak < 4 * module.PART_SIZE, "of twenty; what other threads of this process hold is counted too"
    finally:
        process.join(20)
        process.kill()


def swallow(pipe: Any) -> None:
    with Swallowing() as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send(sum("partNumber" in call.query for call in server.requests))


def test_the_connections_of_the_parent_are_not_used_after_a_fork(s3: S3, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = bucket_at(s3.url, name)
    before = bucket._client()
    assert bucket._client() is before

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert bucket._client() is not before


def test_headers_that_other_storages_refuse_are_not_sent(tmp_path: Path) -> None:
    with Refusing() as server:
        with pytest.raises(ProviderError):
            bucket_at(server.url, "recordings").upload(audio(small(tmp_path)))
        (put,) = server.requests.of("PUT")
    assert not [header for header in put.headers if "checksum" in header]
    assert "/ru-central1/s3/aws4_request" in put.headers["authorization"]
