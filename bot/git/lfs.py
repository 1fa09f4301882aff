"""Files that belong in Git LFS: a pointer is in the commit, and the object is kept until it is uploaded.

https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
https://github.com/git-lfs/git-lfs/blob/main/docs/api/basic-transfers.md
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot.git.change import FileChange, LargeFile
from bot.git.errors import LargeFileError
from bot.git.process import PAUSES, AuthoritiesError, Credential, connector

SECONDS = 300.0
MAX_BYTES = 512 * 1024 * 1024
_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\n"
    rb"(?:ext-[0-9]-[\w.-]+ sha256:[0-9a-f]{64}\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\n"
    rb"size (?P<size>[0-9]{1,15})\n?"
)
_LONGEST_POINTER = 1024
_CHUNK = 1024 * 1024
_OVERLAP = 4096
_MEDIA_TYPE = "application/vnd.git-lfs+json"
_AT_ONCE = 100
_LONGEST_ANSWER = 1024 * 1024
_Json = Mapping[str, Any]


def put_aside(staging: Path, staged: Sequence[tuple[bytes, str]], large: Collection[bytes], objects: Path) -> None:
    """Put pointers in the place of files that belong in LFS.

    Args:
        staging: holds the numbered copies of the changed files.
        staged: path and mode of each, by number.
        large: the paths that belong in LFS.
        objects: where the contents go, each under its id.
    """
    for number, (path, mode) in enumerate(staged):
        copy = staging / str(number)
        if path not in large or mode == "120000":
            continue
        with copy.open("rb") as file:
            if not file.peek(1) or parse_pointer(file.peek(_LONGEST_POINTER)[:_LONGEST_POINTER]):
                continue  # git-lfs, too, leaves an empty file and a pointer as they are
            oid = hashlib.file_digest(file, "sha256").hexdigest()
        size = copy.stat().st_size
        os.replace(copy, objects / oid)  # noqa: PTH105 - the name is hexadecimal
        copy.write_bytes(pointer(oid, size))


def pointers(files: Iterable[FileChange]) -> list[LargeFile]:
    """Those of the changed files that are pointers now."""
    found = ((file.path, parse_pointer(file.content)) for file in files if file.new_mode != "120000")
    return [LargeFile(path=path, oid=read[0], size=read[1]) for path, read in found if read is not None]


def pointer(oid: str, size: int) -> bytes:
    """What is in the commit for an object."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()


def parse_pointer(content: bytes | None) -> tuple[str, int] | None:
    """The id and the size of the object that a pointer stands for; None for anything else."""
    if content is None or len(content) >= _LONGEST_POINTER:
        return None
    match = _POINTER.fullmatch(content)
    return (match["oid"].decode(), int(match["size"])) if match else None


def any_chunk(path: Path, holds: Callable[[str], bool]) -> bool:
    """Whether `holds` is true of a part of a file, of which a megabyte is read at a time; not of one that is absent."""
    if not path.is_file():
        return False
    before = ""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            text = chunk.decode("latin-1")
            if holds(before + text):
                return True
            before = text[-_OVERLAP:]
    return False


async def upload(
    files: Sequence[LargeFile],
    *,
    objects: Path,
    url: str,
    token: str,
    branch: str,
    pauses: Sequence[float] = PAUSES,
    ca_file: Path | None = None,
) -> None:
    """Have the server keep the objects of these files; those that it has already are not sent.

    Args:
        files: what is in a commit as pointers.
        objects: where the contents are, each under its id.
        url: the clone address.
        token: may write to it.
        branch: where the commit will go.
        pauses: before what failed in passing is tried again.
        ca_file: authorities that are trusted beside the system's.

    Raises:
        LargeFileError: one of them is not there now.
    """
    if sum(file.size for file in files) > MAX_BYTES:
        raise LargeFileError([file.path for file in files], f"they are larger than {MAX_BYTES // 1024**2} MiB together")
    unsent = {file.oid: file for file in files}
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(connector=connector(ca_file), trust_env=True) as session,
        ):
            server = _Server(session, objects=objects, url=url, token=token, branch=branch, pauses=pauses)
            asked = list(unsent.values())
            for first in range(0, len(asked), _AT_ONCE):
                await server.keep(asked[first : first + _AT_ONCE])
    except TimeoutError as error:
        raise LargeFileError([f.path for f in files], f"the upload took longer than {SECONDS:.0f} s") from error
    except AuthoritiesError as error:
        raise LargeFileError([file.path for file in files], str(error)) from error


class _Server:
    """One repository's LFS."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        objects: Path,
        url: str,
        token: str,
        branch: str,
        pauses: Sequence[float],
    ) -> None:
        self._session = session
        self._objects = objects
        self._address = f"{url.removesuffix('/')}/info/lfs/objects/batch"
        self._authorization = f"Basic {Credential(url=url, token=token).basic()}"
        self._branch = branch
        self._pauses = pauses

    async def keep(self, files: Sequence[LargeFile]) -> None:
        """Ask which objects the server lacks, and send those."""
        asked = {
            "operation": "upload",
            "transfers": ["basic"],
            "ref": {"name": f"refs/heads/{self._branch}"},
            "objects": [{"oid": file.oid, "size": file.size} for file in files],
            "hash_algo": "sha256",
        }
        headers = {"Authorization": self._authorization}
        answer = await self._patiently(files, lambda: self._post(self._address, asked, headers))
        objects = answer.get("objects")
        known = objects if isinstance(objects, list) else []
        told = {each.get("oid"): each for each in known if isinstance(each, dict)}
        for file in files:
            if (said := told.get(file.oid)) is None:
                raise LargeFileError([file.path], "the server did not say whether it accepts it")
            if isinstance(said.get("error"), dict):
                raise LargeFileError([file.path], str(said["error"].get("message") or "the server does not accept it"))
            actions = _dict(said.get("actions"))
            if "upload" not in actions:
                continue
            if not await asyncio.to_thread((self._objects / file.oid).is_file):
                raise LargeFileError([file.path], "neither the server nor this job has the object that it points to")
            await self._patiently([file], partial(self._put, file, _dict(actions["upload"])))
            if "verify" in actions:
                await self._patiently([file], partial(self._verify, file, _dict(actions["verify"])))

    async def _put(self, file: LargeFile, action: _Json) -> _Json:
        headers = {"Content-Type": "application/octet-stream", **_headers(action)}
        address = self._checked(file, action)
        with (self._objects / file.oid).open("rb") as content:
            async with self._session.put(address, data=content, headers=headers, allow_redirects=False) as answer:
                _check(answer.status)
        return {}

    async def _verify(self, file: LargeFile, action: _Json) -> _Json:
        said = {"oid": file.oid, "size": file.size}
        return await self._post(self._checked(file, action), said, _headers(action), silent=True)

    async def _post(self, address: str, said: _Json, headers: Mapping[str, str], *, silent: bool = False) -> _Json:
        ours = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **headers}
        body = json.dumps(said).encode()
        async with self._session.post(address, data=body, headers=ours, allow_redirects=False) as answer:
            _check(answer.status)
            if silent:
                return {}
            content = bytearray()
            async for chunk in answer.content.iter_chunked(64 * 1024):
                content += chunk
                if len(content) > _LONGEST_ANSWER:
                    raise ValueError("the server's answer is too long")
        try:
            return _dict(json.loads(content))
        except ValueError as error:
            raise ValueError("the server's answer is not JSON") from error

    def _checked(self, file: LargeFile, action: _Json) -> str:
        """The address of an action."""
        address = str(action.get("href", ""))
        if not is_as_safe(address, self._address):
            raise LargeFileError([file.path], "the server gave no safe upload address")
        return address

    async def _patiently(self, files: Sequence[LargeFile], ask: Callable[[], Awaitable[_Json]]) -> _Json:
        for pause in (*self._pauses, None):
            try:
                return await ask()
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, _PassingError) as error:
                if pause is None:
                    raise LargeFileError([file.path for file in files], _said(error)) from error
                await asyncio.sleep(pause)
            except (aiohttp.ClientError, ValueError) as error:
                raise LargeFileError([file.path for file in files], _said(error)) from error
        raise AssertionError("the last try returns or raises")


class _PassingError(Exception):
    """The server may do it the next time."""


def is_as_safe(address: str, ours: str) -> bool:
    """Whether a connection to an address is no worse than ours to the server that named it; the host may be any."""
    return urlsplit(address).scheme in {"https", urlsplit(ours).scheme} and bool(urlsplit(address).hostname)


def _check(status: int) -> None:
    """Raise what an answer without success means."""
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return
    said = f"the server answered {status}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        raise _PassingError(said)
    raise ValueError(f"{said}; is Git LFS enabled for the repository, and is there quota left?")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _headers(action: _Json) -> dict[str, str]:
    return {str(name): str(value) for name, value in _dict(action.get("header")).items()}


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
