"""Blobs of one job that nobody but the bot can read, change or make: compressed, encrypted and named by a keyed digest.

Somebody who can write to the store can remove a blob, or put an older one of the same name in its place, and nothing
else: each is bound to its job and its name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from types import TracebackType
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bot.domain.errors import BlobTooLargeError
from bot.workspace.blobs import BlobStore
from bot.workspace.errors import WorkspaceGoneError

PACK_BYTES = 8 * 1024 * 1024
"""How much of the files' content one blob holds: few requests for many small files."""
_NONCE = 12
_OVERHEAD = 64 * 1024
_SAMPLE = 64 * 1024
_DEFLATED, _PLAIN = b"z", b"p"
_WRITERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """The blobs of one job.

    Attributes:
        blobs: the store.
        folder: begins their names.
        key: a key of the bot's for this purpose.
    """

    blobs: BlobStore
    folder: str
    key: bytes = field(repr=False)

    def name_of(self, content: bytes) -> str:
        """The name that some content has."""
        return hmac.digest(self._key("names"), content, hashlib.sha256).hex()

    def put(self, content: bytes) -> str:
        """Store some content; give back its name.

        Raises:
            StorageError: the store failed.
        """
        name = self.name_of(content)
        self.write(name, content)
        return name

    def write(self, name: str, content: bytes) -> None:
        """Store some content under another name than its digest.

        Raises:
            StorageError: the store failed.
        """
        # What is compressed already costs much time and becomes no smaller.
        sample = content[:_SAMPLE]
        deflates = len(zlib.compress(sample, 1)) < 0.9 * len(sample)
        packed = _DEFLATED + zlib.compress(content, 1) if deflates else _PLAIN + content
        nonce = os.urandom(_NONCE)
        self.blobs.put(f"{self.folder}/{name}", nonce + self._cipher.encrypt(nonce, packed, self._bound(name)))

    def get(self, name: str, *, limit: int = PACK_BYTES) -> bytes:
        """The content that has its digest for a name.

        Raises:
            WorkspaceGoneError: it is missing, or is not what was stored.
            StorageError: the store failed.
        """
        content = self.read(name, limit=limit)
        if content is None or not hmac.compare_digest(self.name_of(content), name):
            raise _unusable(self, name)
        return content

    def read(self, name: str, *, limit: int) -> bytes | None:
        """What was written under a name; None when there is nothing.

        Raises:
            WorkspaceGoneError: it was not written by the bot with this key, or has more than `limit` bytes.
            StorageError: the store failed.
        """
        try:
            sealed = self.blobs.get(f"{self.folder}/{name}", limit=limit + _OVERHEAD)
        except BlobTooLargeError as error:
            raise _unusable(self, name) from error
        if sealed is None:
            return None
        try:
            packed = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._bound(name))
        except (InvalidTag, ValueError) as error:  # ValueError: too short
            raise _unusable(self, name) from error
        if packed[:1] == _PLAIN:
            return packed[1:]
        inflating = zlib.decompressobj()
        content = inflating.decompress(packed[1:], limit)
        if not inflating.eof and inflating.unconsumed_tail:
            raise _unusable(self, name)
        return content

    @property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._key("content"))

    def _key(self, purpose: str) -> bytes:
        return hmac.digest(self.key, f"{purpose} of {self.folder}".encode(), hashlib.sha256)

    def _bound(self, name: str) -> bytes:
        return f"{self.folder}/{name}".encode()


class Packs:
    """Writes content to packs, some at the same time; the stored names are complete when the body ends.

    Args:
        vault: where to.
        names: the packs that there are already, by number; further ones are added.
    """

    def __init__(self, vault: Vault, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self._vault = vault
        self._number = max(names, default=-1) + 1
        self._content = bytearray()
        self._pool = ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="packs")
        self._room = BoundedSemaphore(_WRITERS + 1)
        self._pending: dict[int, Future[str]] = {}

    def add(self, content: bytes) -> list[tuple[int, int, int]]:
        """Take some content; give back where it is: pack, offset and length of each piece."""
        pieces = []
        view = memoryview(content)
        while view:
            taken = view[: PACK_BYTES - len(self._content)]
            pieces.append((self._number, len(self._content), len(taken)))
            self._content += taken
            view = view[len(taken) :]
            if len(self._content) == PACK_BYTES:
                self._flush()
        return pieces

    def _flush(self) -> None:
        if not self._content:
            return
        self._room.acquire()
        future = self._pool.submit(self._vault.put, bytes(self._content))
        future.add_done_callback(lambda _: self._room.release())
        self._pending[self._number] = future
        self._number += 1
        self._content = bytearray()
        for number in [number for number, each in self._pending.items() if each.done()]:
            self.names[number] = self._pending.pop(number).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is being stored; raises StorageError when some of it could not be."""
        try:
            if kind is None:
                self._flush()
                for number, future in self._pending.items():
                    self.names[number] = future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)


def _unusable(vault: Vault, name: str) -> WorkspaceGoneError:
    return WorkspaceGoneError(
        f"The stored files of the job cannot be used: {vault.folder}/{name} in {vault.blobs.address} is missing, was "
        "changed, or was written with another key.",
        "Give the command again.",
    )
