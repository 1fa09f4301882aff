"""The blob store in a bucket that speaks S3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from bot.domain.errors import BlobTooLargeError, StorageError
from bot.git.blobs import BlobAccess, BlobInfo, checked

if TYPE_CHECKING:  # these are in the library's stubs only
    from obstore.store import ClientConfig, RetryConfig, S3Config

_ONE_REQUEST = 16 * 1024 * 1024
"""Bytes that are put without the three further requests of a multipart upload."""
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    "timeout": timedelta(minutes=5),
}
_RETRIES: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_MOST_REASON = 300


class S3Blobs:
    """Blobs as objects of the same names, below a prefix.

    Args:
        bucket: its name; it must exist.
        prefix: before every name; may be empty.
        access: how to reach it.
    """

    def __init__(self, bucket: str, prefix: str, access: BlobAccess) -> None:
        self._prefix = f"{prefix}/" if prefix else ""
        self._address = f"s3://{bucket}/{prefix}".rstrip("/") + (f" at {access.endpoint}" if access.endpoint else "")
        config: S3Config = {}
        if access.access_key_id and access.secret_access_key:
            config["access_key_id"] = access.access_key_id
            config["secret_access_key"] = access.secret_access_key.get_secret_value()
        if access.session_token:
            config["session_token"] = access.session_token.get_secret_value()
        if access.region:
            config["region"] = access.region
        client: ClientConfig = {**_CLIENT}
        if access.endpoint:
            config["endpoint"] = access.endpoint
            client["allow_http"] = access.endpoint.startswith("http:")  # the settings allow it on the loopback only
        with self._told():
            self._store = S3Store(bucket, config=config, client_options=client, retry_config=_RETRIES)

    @property
    def address(self) -> str:
        """Where it is, without credentials."""
        return self._address

    def put(self, name: str, content: bytes) -> None:
        """See `BlobStore`."""
        with self._told():
            obstore.put(self._store, self._key(name), content, use_multipart=len(content) > _ONE_REQUEST)

    def get(self, name: str, *, limit: int) -> bytes | None:
        """See `BlobStore`."""
        with self._told():
            try:
                found = obstore.get(self._store, self._key(name))
            except FileNotFoundError as error:
                # A missing bucket must not look as if all of its objects were gone.
                if "<Code>NoSuchBucket</Code>" in str(error):
                    raise self._failed(error) from error
                return None
            if found.meta["size"] > limit:
                raise BlobTooLargeError(name, self._address, limit)
            return bytes(found.bytes())

    def delete(self, name: str) -> None:
        """See `BlobStore`."""
        with self._told():
            obstore.delete(self._store, self._key(name))

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        with self._told():
            for page in obstore.list(self._store, self._key(prefix), chunk_size=1000):
                for each in page:
                    name = each["path"].removeprefix(self._prefix)
                    yield BlobInfo(name=name, size=each["size"], modified=each["last_modified"].timestamp())

    def _key(self, name: str) -> str:
        return self._prefix + checked(name)

    def _failed(self, error: Exception) -> StorageError:
        text = str(error).partition("\n\nDebug source")[0]
        code = _CODE.search(text)
        reason = code[1] if code else " ".join(text.split())[:_MOST_REASON]
        return StorageError(
            self._address,
            reason,
            "Check that the bucket exists, that CODEPILOT_STORAGE_URL, AWS_ENDPOINT_URL and AWS_REGION are right, and "
            "that the key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may read, write, list and delete there.",
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:  # the latter: the bucket
            raise self._failed(error) from error
