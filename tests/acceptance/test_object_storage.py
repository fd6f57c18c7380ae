"""A recording goes in and its transcript comes out with the files in a bucket: a real service, the S3 protocol over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.acceptance.conftest import MakeService
from tests.acceptance.service import Service, wait_for
from tests.factories import wav_bytes
from tests.fakes.s3 import REGION, S3

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("s3")]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def bucket(s3: S3) -> str:
    s3.clear()
    return s3.make_bucket()


@pytest.fixture
def service(make_service: MakeService, s3: S3, bucket: str) -> Service:
    return make_service(
        TRANSCRIBER_STORAGE_BACKEND="s3",
        TRANSCRIBER_STORAGE_ENDPOINT_URL=s3.url,
        TRANSCRIBER_STORAGE_REGION=REGION,
        TRANSCRIBER_STORAGE_NAME=bucket,
        TRANSCRIBER_STORAGE_ACCESS_KEY_ID=s3.access_key_id,
        TRANSCRIBER_STORAGE_SECRET_ACCESS_KEY=s3.secret_access_key,
    )


@pytest.fixture
def caller(service: Service) -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"Token {service.manage('create_token', 'anna').stdout.strip()}"
    return session


def test_the_whole_way_over_a_bucket(service: Service, caller: requests.Session, s3: S3, bucket: str, tmp_path: Path):
    service.start("serve")
    sent = wav_bytes(tmp_path, 2.0)

    answer = caller.post(f"{service.url}/api/v1/records/", files={"file": ("talk.wav", sent)}, timeout=30)
    assert answer.status_code == 202, answer.text
    record = f"{service.url}{answer.headers['Location']}" if answer.headers["Location"].startswith("/") else answer.headers["Location"]
    # Accepted means: the object is there.
    original = [key for key in s3.keys(bucket) if key.endswith("/original")]
    assert [s3.get(bucket, key) for key in original] == [sent]

    wait_for(lambda: caller.get(record, timeout=10).json()["status"] == "done", within=60)
    assert caller.get(f"{record}transcript.txt", timeout=10).text == "Quick.\n"
    kinds = sorted(key.partition("/")[0] for key in s3.keys(bucket))
    assert kinds == ["payloads", "records", "records"]

    whole = caller.get(f"{record}audio/original/", timeout=10)
    assert whole.content == sent
    part = caller.get(f"{record}audio/original/", headers={"Range": "bytes=100-199"}, timeout=10)
    assert (part.status_code, part.content) == (206, sent[100:200])
    assert caller.get(f"{record}audio/normalized/", timeout=10).content.startswith(b"OggS")

    assert caller.delete(record, timeout=10).status_code == 204
    wait_for(lambda: s3.keys(bucket) == [], within=10)
    service.stop()


def test_a_bucket_that_does_not_take_it_is_no_acceptance(service: Service, caller: requests.Session, s3: S3, bucket: str, tmp_path: Path):
    service.start("serve", TRANSCRIBER_PIPELINE_WORKERS="0")
    s3.fail("put", status=503, times=None)
    try:
        answer = caller.post(f"{service.url}/api/v1/records/", files={"file": ("talk.wav", wav_bytes(tmp_path))}, timeout=60)
    finally:
        s3.clear()
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (503, "storage_unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert service.records() == []
    assert s3.keys(bucket) == []
    assert list((service.data / "scratch").rglob("*.part")) == []
    service.stop()


def test_a_half_configured_storage_stops_the_start(make_service: MakeService):
    refused = make_service().run("-m", "django", "check", check=False)
    assert refused.returncode == 0
    broken = make_service(TRANSCRIBER_STORAGE_BACKEND="s3").run("manage.py", "check", check=False)
    assert broken.returncode == 1
    assert broken.stderr.strip() == "Configuration: [storage] backend = s3 needs TRANSCRIBER_STORAGE_NAME as well."
