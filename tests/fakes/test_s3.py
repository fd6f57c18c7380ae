"""The storage stand-in: what it counts, and what it does wrong when asked to."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.fakes.s3 import S3

pytestmark = pytest.mark.no_database

MEGABYTES = 1 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as store:
        yield store


@pytest.fixture
def bucket(s3: S3) -> str:
    s3.clear()
    return s3.make_bucket()


@pytest.fixture(scope="module")
def client(s3: S3) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3.url,
        region_name="ru-central1",
        aws_access_key_id=s3.access_key_id,
        aws_secret_access_key=s3.secret_access_key,
        config=Config(retries={"max_attempts": 0}),
    )


def upload(client: Any, bucket: str, size: int) -> None:
    config = TransferConfig(multipart_threshold=8 * MEGABYTES, multipart_chunksize=8 * MEGABYTES, max_concurrency=1)
    client.upload_fileobj(io.BytesIO(bytes(size)), bucket, "k", Config=config)


def test_requests_are_counted_by_kind_and_ours_are_not(s3: S3, client: Any, bucket: str):
    client.put_object(Bucket=bucket, Key="a/b", Body=b"abc")
    client.head_object(Bucket=bucket, Key="a/b")
    client.get_object(Bucket=bucket, Key="a/b")["Body"].read()
    upload(client, bucket, 20 * MEGABYTES)
    client.list_objects_v2(Bucket=bucket)
    client.delete_object(Bucket=bucket, Key="a/b")

    counts = s3.counts()

    assert s3.keys(bucket) == ["k"]
    assert s3.get(bucket, "k") == bytes(20 * MEGABYTES)
    assert counts == s3.counts() == {"put": 1, "head": 1, "get": 1, "create": 1, "part": 3, "complete": 1, "list": 1, "delete": 1}


def test_part_that_fails_is_the_one_asked_for(s3: S3, client: Any, bucket: str):
    s3.fail("part", status=500, skip=1)

    with pytest.raises(ClientError):
        upload(client, bucket, 20 * MEGABYTES)

    assert s3.counts()["part"] == 2
    assert s3.counts()["abort"] == 1  # boto3 itself did
    assert s3.open_uploads(bucket) == []
    upload(client, bucket, 20 * MEGABYTES)
    assert s3.keys(bucket) == ["k"]


def test_upload_that_is_not_aborted_is_seen(s3: S3, client: Any, bucket: str):
    client.create_multipart_upload(Bucket=bucket, Key="half")

    assert s3.open_uploads(bucket) == ["half"]


@pytest.mark.parametrize(("acted", "kept"), [(False, []), (True, ["k"])])
def test_reset_before_or_after_the_object_is_kept(s3: S3, client: Any, bucket: str, acted: bool, kept: list[str]):
    s3.fail("put", status=None, acted=acted)

    with pytest.raises(BotoCoreError):
        client.put_object(Bucket=bucket, Key="k", Body=b"abc")

    assert s3.keys(bucket) == kept


def test_status_and_always(s3: S3, client: Any, bucket: str):
    s3.fail("head", status=403, times=None)

    for _ in range(2):
        with pytest.raises(ClientError) as raised:
            client.head_object(Bucket=bucket, Key="k")
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    s3.clear()
    with pytest.raises(ClientError, match="404"):
        client.head_object(Bucket=bucket, Key="k")


def test_environment_names_the_bucket(s3: S3, bucket: str):
    assert s3.environment(bucket)["TRANSCRIBER_BUCKET_NAME"] == bucket
    assert s3.environment(bucket)["TRANSCRIBER_BUCKET_ENDPOINT_URL"] == s3.url
