"""The blob store: a directory, or a bucket that speaks S3, with what another machine may need.

All calls block and are bounded in time; call them in a thread. What was put is durable when `put` returns, and appears
whole or not at all.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from bot.domain.errors import BlobTooLargeError, ConfigError, StorageError

if TYPE_CHECKING:  # these are in the library's stubs only
    from obstore.store import ClientConfig, RetryConfig, S3Config

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,7}")
_DAY_SECONDS = 24 * 3600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
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


class BlobStore(Protocol):
    """Keeps blobs by name, such as `patches/JOB.patch`.

    Every method raises StorageError when the store cannot be reached or refuses, and ValueError for a name that it
    cannot have.
    """

    @property
    def address(self) -> str:
        """Where it is, without credentials."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Keep some content in place of what had the name."""
        ...

    def get(self, name: str, *, limit: int) -> bytes | None:
        """The content; None when there is none of that name.

        Raises:
            BlobTooLargeError: it has more than `limit` bytes.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove one; nothing to do when there is none."""
        ...

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """Every blob whose name begins with `prefix` and a `/`, in no order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """One stored blob.

    Attributes:
        name: parts separated by `/`.
        size: in bytes.
        modified: when it was last put, in seconds since the epoch.
    """

    name: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobAccess:
    """How to reach an S3 service; what is empty, the usual `AWS_` variables of the process or its machine's role say.

    Attributes:
        access_key_id: the key's name.
        secret_access_key: the key.
        session_token: the token of a key that is valid for a while.
        region: where the bucket is.
        endpoint: the address of a service other than Amazon's.
    """

    access_key_id: str = ""
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str = ""
    endpoint: str = ""


def open_blobs(url: str, access: BlobAccess | None = None) -> BlobStore:
    """The store at `file:///directory` or `s3://bucket/prefix`; nothing is asked of a service yet.

    Raises:
        ConfigError: the address needs what is not installed.
        StorageError: the directory cannot be made.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryBlobs(Path(unquote(parts.path)))
    try:
        return S3Blobs(parts.netloc, parts.path.strip("/"), access or BlobAccess())
    except ModuleNotFoundError as error:
        raise ConfigError(
            (f"CODEPILOT_STORAGE_URL={url} needs the extra `service`; run: pip install 'codepilot-bot[service]'",)
        ) from error


class DirectoryBlobs:
    """Blobs as files of the same names below a directory with mode 0700.

    Raises:
        StorageError: it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._partial = self._root / ".partial"
        with self._storage_errors():
            for folder in (self._root, self._partial):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            # Processes that were killed left these.
            for path in self._partial.iterdir():
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < time.time() - _DAY_SECONDS:
                        path.unlink()

    @property
    def address(self) -> str:
        """Where it is."""
        return f"file://{self._root}"

    def put(self, name: str, content: bytes) -> None:
        """See `BlobStore`."""
        path = self._path(name)
        with self._storage_errors():
            self._check_root()
            descriptor, name = tempfile.mkstemp(dir=self._partial)  # with mode 0600
            partial = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as target:
                    target.write(content)
                    target.flush()
                    os.fsync(target.fileno())
                self._move(partial, path)
            except BaseException:  # whatever it was, nobody else knows of the file
                partial.unlink(missing_ok=True)
                raise
            _sync(path.parent)

    def get(self, name: str, *, limit: int) -> bytes | None:
        """See `BlobStore`."""
        with self._storage_errors():
            try:
                with self._path(name).open("rb") as file:
                    content = file.read(limit + 1)
            except FileNotFoundError:
                self._check_root()
                return None
        if len(content) > limit:
            raise BlobTooLargeError(name, self.address, limit)
        return content

    def delete(self, name: str) -> None:
        """See `BlobStore`."""
        with self._storage_errors():
            path = self._path(name)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # there are others in it
                path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        with self._storage_errors():
            self._check_root()
            for folder, _, names in os.walk(self._path(prefix), onerror=_failed):
                for path in (Path(folder, name) for name in names):
                    try:
                        status = path.stat()
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    name = path.relative_to(self._root).as_posix()
                    yield BlobInfo(name=name, size=status.st_size, modified=status.st_mtime)

    def _path(self, name: str) -> Path:
        return self._root / checked(name)

    def _check_root(self) -> None:
        """A blob may be missing; a directory that is gone must not look as if all of its blobs were."""
        if not self._partial.is_dir():
            raise NotADirectoryError(None, "the directory is gone, or is not mounted")

    def _move(self, partial: Path, path: Path) -> None:
        """Give a whole file its name, in a directory that a `delete` may be removing."""
        while True:
            try:
                self._make(path.parent)
                partial.replace(path)
            except FileNotFoundError:
                if not partial.exists():
                    raise
            else:
                return

    def _make(self, folder: Path) -> None:
        """Make a directory below the root, with mode 0700 and durably, and those above it."""
        if not folder.is_dir():
            self._make(folder.parent)
            with suppress(FileExistsError):  # not `exist_ok`, which fails where it is removed just now
                folder.mkdir(mode=0o700)
            _sync(folder.parent)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                self.address, f"{error.strerror or error}", "Check the directory's owner, its mode and the free space."
            ) from error


class S3Blobs:
    """Blobs as objects of the same names, below a prefix.

    Args:
        bucket: its name; it must exist.
        prefix: before every name; may be empty.
        access: how to reach it.
    """

    def __init__(self, bucket: str, prefix: str, access: BlobAccess) -> None:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - a workflow's step does not install it
        from obstore.store import S3Store  # noqa: PLC0415 - the same

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
        self._errors = (BaseError, FileNotFoundError)  # the latter: the bucket
        with self._storage_errors():
            self._store = S3Store(bucket, config=config, client_options=client, retry_config=_RETRIES)

    @property
    def address(self) -> str:
        """Where it is, without credentials."""
        return self._address

    def put(self, name: str, content: bytes) -> None:
        """See `BlobStore`."""
        with self._storage_errors():
            self._store.put(self._key(name), content, use_multipart=len(content) > _ONE_REQUEST)

    def get(self, name: str, *, limit: int) -> bytes | None:
        """See `BlobStore`."""
        with self._storage_errors():
            try:
                found = self._store.get(self._key(name))
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
        with self._storage_errors():
            self._store.delete(self._key(name))

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        with self._storage_errors():
            for page in self._store.list(self._key(prefix), chunk_size=1000):
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
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise self._failed(error) from error


def checked(name: str) -> str:
    """The name, if it is one: at most 8 parts separated by `/`, of letters, digits and `._-`.

    Raises:
        ValueError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a blob: use letters, digits, `.`, `_`, `-` and `/`")
    return name


def _failed(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync(folder: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
