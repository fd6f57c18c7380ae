"""Object storage (S3) from which a provider reads recordings: a copy is put there, its link is given to the provider, the copy is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from recognition.contract import Audio, Busy, Misconfigured, ProviderError, Refused, Transient

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

CONNECT_TIMEOUT = 10
READ_TIMEOUT = 60
TRIES = 3
"""Of one request. Storing the same bytes under the same name twice costs nothing, so the library may repeat itself here."""
PART_SIZE = 8 * 2**20
"""Larger files are sent in parts of this size, which are read from the disk while they are sent."""
PARTS_AT_ONCE = 4


class Bucket:
    """One bucket, reached with path-style addresses (`{endpoint_url}/{name}/{key}`): the form that providers read.

    Nothing is checked and no connection is opened before the first call. Errors of all calls: `Misconfigured` where the configuration is
    incomplete or the storage refuses us, `Busy` where it asks for patience, `Transient` for its faults and the network's.
    """

    def __init__(self, *, endpoint_url: str, region: str, name: str, access_key_id: str, secret_access_key: str) -> None:
        self._endpoint_url = endpoint_url.rstrip("/")
        self._region = region
        self._name = name
        self._access_key_id = access_key_id
        self._secret_access_key = secret_access_key
        self._made: tuple[int, Any] | None = None

    def upload(self, audio: Audio) -> str:
        """Put a copy of the audio under its `location` and give the bare link to it. A copy of the right size is not sent again.

        The size is what tells, as the ETag of an object that came in parts is no checksum. Raises `Transient` if the file is not as long as
        its row says: half a recording must not be paid for.
        """
        client = self._client()
        key = audio.location
        with _typed_errors():
            if self._size_of(client, key) != audio.size:
                with audio.local_path() as path:
                    if path.stat().st_size != audio.size:
                        raise Transient("source_damaged", "The normalized recording is not as long as it was when it was made.")
                    self._send(client, str(path), key, audio.size)
        return self.link_to(key)

    def link_to(self, location: str) -> str:
        """The bare link to a copy, whether it is there or not."""
        return f"{self._endpoint_url}/{self._name}/{quote(location)}"

    def remove(self, link: str) -> None:
        """Remove the object behind a link that :meth:`upload` gave, and what a broken upload left of it. Nothing happens if it is gone, or lies
        in another storage by now."""
        if not link.startswith(f"{self._endpoint_url}/"):
            return
        name, _, key = link.removeprefix(f"{self._endpoint_url}/").partition("/")
        from botocore.exceptions import ClientError

        client = self._client()
        with _typed_errors():
            self._abort_leftovers(client, unquote(key), bucket=name)
            try:
                client.delete_object(Bucket=name, Key=unquote(key))
            except ClientError as error:
                if _status(error) != 404:
                    raise

    def _size_of(self, client: Any, key: str) -> int | None:
        from botocore.exceptions import ClientError

        try:
            return int(client.head_object(Bucket=self._name, Key=key)["ContentLength"])
        except ClientError as error:
            # Not there, or something is wrong: an answer to HEAD has no body that says what. The answer to the upload will say.
            if 400 <= _status(error) < 500:
                return None
            raise

    def _send(self, client: Any, path: str, key: str, size: int) -> None:
        """Store the file. Parts that were sent are taken back if it fails."""
        from s3transfer.manager import TransferConfig, TransferManager

        if size >= PART_SIZE:
            self._abort_leftovers(client, key, bucket=self._name)
        config = TransferConfig(multipart_threshold=PART_SIZE, multipart_chunksize=PART_SIZE, max_request_concurrency=PARTS_AT_ONCE)
        with TransferManager(client, config) as manager:
            manager.upload(path, self._name, key, extra_args={"ContentType": "audio/ogg"}).result()

    def _abort_leftovers(self, client: Any, key: str, *, bucket: str) -> None:
        """Take back the parts that a killed process left of this object: the storage bills for them. The key may lack the right to see them."""
        from botocore.exceptions import ClientError

        with suppress(ClientError):
            for upload in client.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", ()):
                if upload["Key"] == key:
                    client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])

    def _client(self) -> Any:
        """The S3 client of this process: connections must not be shared over a fork."""
        if self._made is None or self._made[0] != os.getpid():
            self._check_configuration()
            self._made = (os.getpid(), self._new_client())
        return self._made[1]

    def _check_configuration(self) -> None:
        if not self._name:
            raise Misconfigured("bucket_not_configured", "No bucket is configured: set [bucket] name.")
        for key, value in (("ACCESS_KEY_ID", self._access_key_id), ("SECRET_ACCESS_KEY", self._secret_access_key)):
            if not value:
                raise Misconfigured(
                    "bucket_not_configured", f"There is no key for the bucket: set TRANSCRIBER_BUCKET_{key} in the environment."
                )

    def _new_client(self) -> Any:
        from boto3.session import Session
        from botocore.config import Config

        try:
            return Session().client(
                "s3",
                endpoint_url=self._endpoint_url,
                region_name=self._region,
                aws_access_key_id=self._access_key_id,
                aws_secret_access_key=self._secret_access_key,
                config=Config(
                    signature_version="s3v4",
                    s3={"addressing_style": "path"},
                    # Storages other than Amazon's may refuse the checksum headers that the library sends unasked.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    connect_timeout=CONNECT_TIMEOUT,
                    read_timeout=READ_TIMEOUT,
                    retries={"total_max_attempts": TRIES, "mode": "standard"},
                ),
            )
        except ValueError as error:
            raise Misconfigured("bucket_address", "The address in [bucket] endpoint_url can't be used.") from error


@contextmanager
def _typed_errors() -> Iterator[None]:
    """The library's errors as the contract's. Their texts are not passed on: they hold file names, and whatever a server put into them."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _of_answer(error) from None
    except BotoCoreError as error:
        raise _of_library(error) from None


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


_SENTENCES = {
    "NoSuchBucket": ("bucket_missing", "The object storage has no bucket of the name in [bucket] name."),
    "InvalidBucketName": ("bucket_missing", "The object storage does not take the name in [bucket] name."),
    "PermanentRedirect": ("bucket_address", "The bucket is not at [bucket] endpoint_url and in [bucket] region."),
    "AuthorizationHeaderMalformed": ("bucket_address", "The object storage expects another [bucket] region."),
    "InvalidAccessKeyId": ("bucket_key", "The object storage does not know the key in TRANSCRIBER_BUCKET_ACCESS_KEY_ID."),
    "SignatureDoesNotMatch": ("bucket_key", "TRANSCRIBER_BUCKET_SECRET_ACCESS_KEY is not the secret of TRANSCRIBER_BUCKET_ACCESS_KEY_ID."),
    "RequestTimeTooSkewed": ("clock_wrong", "The object storage refuses us because this machine's clock is wrong."),
}


def _of_answer(error: ClientError) -> ProviderError:
    status, code = _status(error), str(error.response.get("Error", {}).get("Code", ""))
    if code in _SENTENCES:
        return Misconfigured(*_SENTENCES[code])
    if status in (401, 403):
        return Misconfigured(
            "bucket_forbidden",
            "The service account of TRANSCRIBER_BUCKET_ACCESS_KEY_ID lacks a role on the bucket in [bucket] name: "
            "storage.uploader to write and read, storage.editor to remove copies as well.",
        )
    if status == 413 or code == "EntityTooLarge":
        return Refused("too_large", "The object storage does not take an object of this size.")
    if status == 429 or code == "SlowDown":
        return Busy("bucket_busy", "The object storage asks to come back later.")
    return Transient("bucket_failed", f"The object storage answered with an error (HTTP {status}).")


def _of_library(error: BotoCoreError) -> ProviderError:
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return Misconfigured("bucket_missing", "[bucket] name is not a name that a bucket can have.")
    return Transient("bucket_unreachable", f"The object storage could not be reached ({type(error).__name__}).")
