"""Blob store in a directory or an S3 bucket, for data that other machines may need.

All calls block, with timeouts; call them in a thread. `put` is atomic and durable.
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
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ONE_REQUEST = 16 * 1024 * 1024
"""Largest object stored without a multipart upload."""
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    "timeout": timedelta(minutes=5),
}
_RETRIES: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_MAX_REASON = 300


class BlobStore(Protocol):
    """Store of blobs by name, such as `patches/JOB.patch`.

    Every method raises StorageError if the store fails, and ValueError for an invalid name.
    """

    @property
    def address(self) -> str: ...

    def put(self, name: str, content: bytes) -> None: ...

    def get(self, name: str, *, limit: int) -> bytes | None:
        """Return the content; None if missing.

        Raises:
            BlobTooLargeError: it has more than `limit` bytes.
        """

    def delete(self, name: str) -> None: ...

    def list(self, prefix: str) -> Iterator[BlobInfo]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    name: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobAccess:
    """Access to an S3 service; empty fields fall back to the `AWS_` variables or the machine's role.

    Attributes:
        endpoint: of a service other than Amazon's.
    """

    access_key_id: str = ""
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str = ""
    endpoint: str = ""


def open_blobs(url: str, access: BlobAccess | None = None) -> BlobStore:
    """Open the store at `file:///directory` or `s3://bucket/prefix`, without connecting.

    Raises:
        ConfigError: a dependency is not installed.
        StorageError: the directory cannot be created.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryBlobs(Path(unquote(parts.path)))
    try:
        return S3Blobs(parts.netloc, parts.path.strip("/"), access or BlobAccess())
    except ModuleNotFoundError as error:
        raise ConfigError(
            (f"CODEPILOT_STORAGE_URL={url} needs the extra `service`; install codepilot-bot[service]",)
        ) from error


class DirectoryBlobs:
    """Blobs as files below a directory with mode 0700.

    Raises:
        StorageError: the directory cannot be created.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._partial = self._root / ".partial"
        with self._storage_errors():
            for folder in (self._root, self._partial):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            # Leftovers of killed processes.
            for path in self._partial.iterdir():
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < time.time() - _DAY_SECONDS:
                        path.unlink()

    @property
    def address(self) -> str:
        return f"file://{self._root}"

    def put(self, name: str, content: bytes) -> None:
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
                while True:  # a concurrent `delete` may remove the directory
                    try:
                        self._make_folder(path.parent)
                        partial.replace(path)
                        break
                    except FileNotFoundError:
                        if not partial.exists():
                            raise
            except BaseException:  # nothing else refers to the file
                partial.unlink(missing_ok=True)
                raise
            _sync(path.parent)

    def get(self, name: str, *, limit: int) -> bytes | None:
        with self._storage_errors():
            try:
                with self._path(name).open("rb") as file:
                    content = file.read(limit + 1)
            except FileNotFoundError:
                self._check_root()
                return None
        if len(content) > limit:
            raise BlobTooLargeError(name, limit)
        return content

    def delete(self, name: str) -> None:
        with self._storage_errors():
            path = self._path(name)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # there are others in it
                path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        with self._storage_errors():
            self._check_root()
            for folder, _, names in os.walk(self._path(prefix), onerror=_ignore_missing):
                for path in (Path(folder, name) for name in names):
                    try:
                        status = path.stat()
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    name = path.relative_to(self._root).as_posix()
                    yield BlobInfo(name=name, size=status.st_size, modified=status.st_mtime)

    def _path(self, name: str) -> Path:
        return self._root / validate_name(name)

    def _check_root(self) -> None:
        """Fail if the directory is gone, which must not look like missing blobs."""
        if not self._partial.is_dir():
            raise NotADirectoryError(None, "the directory is gone, or is not mounted")

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
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
        return self._address

    def put(self, name: str, content: bytes) -> None:
        with self._storage_errors():
            self._store.put(self._key(name), content, use_multipart=len(content) > _ONE_REQUEST)

    def get(self, name: str, *, limit: int) -> bytes | None:
        with self._storage_errors():
            try:
                blob = self._store.get(self._key(name))
            except FileNotFoundError as error:
                # A missing bucket must not look as if all of its objects were gone.
                if "<Code>NoSuchBucket</Code>" in str(error):
                    raise self._storage_error(error) from error
                return None
            if blob.meta["size"] > limit:
                raise BlobTooLargeError(name, limit)
            return bytes(blob.bytes())

    def delete(self, name: str) -> None:
        with self._storage_errors():
            self._store.delete(self._key(name))

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        with self._storage_errors():
            for page in self._store.list(self._key(prefix), chunk_size=1000):
                for item in page:
                    name = item["path"].removeprefix(self._prefix)
                    yield BlobInfo(name=name, size=item["size"], modified=item["last_modified"].timestamp())

    def _key(self, name: str) -> str:
        return self._prefix + validate_name(name)

    def _storage_error(self, error: Exception) -> StorageError:
        text = str(error).partition("\n\nDebug source")[0]
        code = _CODE.search(text)
        reason = code[1] if code else " ".join(text.split())[:_MAX_REASON]
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
            raise self._storage_error(error) from error


def validate_name(name: str) -> str:
    """Validate a name: at most 8 parts separated by `/`, of letters, digits and `._-`.

    Raises:
        ValueError: it is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a blob: use letters, digits, `.`, `_`, `-` and `/`")
    return name


def _ignore_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, _OPEN_FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
