from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.core.files.base import ContentFile

from records.storage.objects import ObjectStorage
from tests.fakes.s3 import REGION, S3

pytestmark = [pytest.mark.no_database, pytest.mark.xdist_group("s3")]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def storage(s3: S3) -> ObjectStorage:
    s3.clear()
    return ObjectStorage(
        endpoint_url=s3.url, region_name=REGION, bucket_name=s3.make_bucket(), access_key=s3.access_key_id, secret_key=s3.secret_access_key
    )


CONTENTS = os.urandom(3 * 2**20 + 17)


def test_what_is_saved_can_be_read_from_anywhere(storage: ObjectStorage):
    name = storage.save("records/ab/x/original", ContentFile(CONTENTS))

    with storage.open(name) as file:
        assert file.read() == CONTENTS
        assert file.seek(-10, os.SEEK_END) == len(CONTENTS) - 10
        assert file.read() == CONTENTS[-10:]
        file.seek(2**20 + 5)
        assert file.read(100) == CONTENTS[2**20 + 5 : 2**20 + 105]
        assert file.read(7) == CONTENTS[2**20 + 105 : 2**20 + 112]
        assert file.size == len(CONTENTS)


def test_the_end_of_a_file_does_not_cost_its_beginning(storage: ObjectStorage, s3: S3):
    name = storage.save("records/ab/x/original", ContentFile(CONTENTS))
    s3.clear()
    with storage.open(name) as file:
        file.seek(len(CONTENTS) - 5)
        assert file.read() == CONTENTS[-5:]
    assert s3.counts()["get"] == 1


def test_nothing_is_overwritten(storage: ObjectStorage):
    first = storage.save("a/original", ContentFile(b"first"))
    second = storage.save("a/original", ContentFile(b"second"))
    assert first != second
    with storage.open(first) as file:
        assert file.read() == b"first"


def test_an_absent_file_is_absent(storage: ObjectStorage):
    with pytest.raises(FileNotFoundError):
        storage.open("nobody/home")
    assert not storage.exists("nobody/home")
    storage.delete("nobody/home")


@pytest.mark.parametrize("kind", ["put", "head"])
def test_a_file_that_was_not_taken_for_certain_was_not_saved(kind: str, storage: ObjectStorage, s3: S3):
    s3.fail(kind, status=500, times=None)
    try:
        with pytest.raises(OSError, match="object storage"):
            storage.save("a/original", ContentFile(b"bytes"))
    finally:
        s3.clear()


def test_errors_hold_no_address_and_no_key(s3: S3):
    storage = ObjectStorage(
        endpoint_url=s3.url, region_name=REGION, bucket_name="nowhere", access_key=s3.access_key_id, secret_key=s3.secret_access_key
    )
    with pytest.raises(OSError, match="object storage") as caught:
        storage.save("a/original", ContentFile(b"bytes"))
    for hidden in (s3.url, s3.access_key_id, s3.secret_access_key, "nowhere"):
        assert hidden not in str(caught.value)


def test_a_large_file_goes_in_parts_and_a_failed_one_leaves_none(storage: ObjectStorage, s3: S3):
    large = os.urandom(12 * 2**20)
    name = storage.save("a/large", ContentFile(large))
    assert s3.counts()["part"] >= 2
    assert storage.size(name) == len(large)

    s3.clear()
    s3.fail("part", status=500, times=None)
    with pytest.raises(OSError, match="object storage"):
        storage.save("a/other", ContentFile(large))
    s3.clear()
    assert s3.open_uploads(storage.bucket_name) == []


def test_it_can_be_listed_and_told_by_age(storage: ObjectStorage):
    storage.save("records/ab/x/original", ContentFile(b"1"))
    storage.save("records/ab/y/original", ContentFile(b"2"))
    folders, files = storage.listdir("records/ab")
    assert (sorted(folders), files) == (["x", "y"], [])
    assert storage.get_modified_time("records/ab/x/original").tzinfo is not None
