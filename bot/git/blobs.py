"""The blob store: what another machine may need, in a directory or in a bucket that speaks S3.

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
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from bot.domain.errors import BlobTooLargeError, StorageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,7}")
_DAY_SECONDS = 24 * 3600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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


class DirectoryBlobs:
    """Blobs as files of the same names below a directory with mode 0700.

    Raises:
        StorageError: it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._partial = self._root / ".partial"
        with self._told():
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
        with self._told():
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
        with self._told():
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
        with self._told():
            path = self._path(name)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # there are others in it
                path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        with self._told():
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
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                self.address, f"{error.strerror or error}", "Check the directory's owner, its mode and the free space."
            ) from error


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
