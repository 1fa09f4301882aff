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

from bot.domain.errors import certainty_of
from bot.git.change import FileChange, LargeFile
from bot.git.errors import LargeFileError
from bot.git.process import PAUSES, AuthoritiesError, Credential, make_connector, proxy_options

SECONDS = 900.0
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
_LONGEST_REFUSAL = 4096
_Json = Mapping[str, Any]


def put_pointers(staging: Path, staged: Sequence[tuple[bytes, str]], large: Collection[bytes], objects: Path) -> None:
    """Replace numbered copies of files that belong in LFS by pointers, and move their contents to `objects`."""
    for number, (path, mode) in enumerate(staged):
        copy = staging / str(number)
        if path not in large or mode == "120000":
            continue
        with copy.open("rb") as file:
            if not file.peek(1) or parse_pointer(file.peek(_LONGEST_POINTER)[:_LONGEST_POINTER]):
                continue  # like git-lfs, keep empty files and pointers
            oid = hashlib.file_digest(file, "sha256").hexdigest()
        size = copy.stat().st_size
        os.replace(copy, objects / oid)  # noqa: PTH105 - the name is hexadecimal
        copy.write_bytes(format_pointer(oid, size))


def find_pointers(files: Iterable[FileChange]) -> list[LargeFile]:
    parsed = ((file.path, parse_pointer(file.content)) for file in files if file.new_mode != "120000")
    return [LargeFile(path=path, oid=pointer[0], size=pointer[1]) for path, pointer in parsed if pointer is not None]


def format_pointer(oid: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()


def parse_pointer(content: bytes | None) -> tuple[str, int] | None:
    if content is None or len(content) >= _LONGEST_POINTER:
        return None
    match = _POINTER.fullmatch(content)
    return (match["oid"].decode(), int(match["size"])) if match else None


def any_chunk_matches(path: Path, matches: Callable[[str], bool]) -> bool:
    if not path.is_file():
        return False
    before = ""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            text = chunk.decode("latin-1")
            if matches(before + text):
                return True
            before = text[-_OVERLAP:]
    return False


async def upload_objects(
    files: Sequence[LargeFile],
    *,
    objects: Path,
    url: str,
    token: str,
    branch: str,
    pauses: Sequence[float] = PAUSES,
    ca_file: Path | None = None,
) -> None:
    """Upload objects that the server lacks.

    Raises:
        LargeFileError: an object was rejected or is missing.
    """
    if sum(file.size for file in files) > MAX_BYTES:
        raise LargeFileError([file.path for file in files], f"they are larger than {MAX_BYTES // 1024**2} MiB together")
    unsent = {file.oid: file for file in files}
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(connector=make_connector(ca_file)) as session,
        ):
            server = _Server(session, objects=objects, url=url, token=token, branch=branch, pauses=pauses)
            queue = list(unsent.values())
            for first in range(0, len(queue), _AT_ONCE):
                await server.upload_missing(queue[first : first + _AT_ONCE])
    except TimeoutError as error:
        raise LargeFileError([f.path for f in files], f"the upload took longer than {SECONDS:.0f} s") from error
    except AuthoritiesError as error:
        raise LargeFileError([file.path for file in files], str(error)) from error


class _Server:
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
        self._authorization = f"Basic {Credential(url=url, token=token).basic_auth()}"
        self._branch = branch
        self._pauses = pauses

    async def upload_missing(self, files: Sequence[LargeFile]) -> None:
        request = {
            "operation": "upload",
            "transfers": ["basic"],
            "ref": {"name": f"refs/heads/{self._branch}"},
            "objects": [{"oid": file.oid, "size": file.size} for file in files],
            "hash_algo": "sha256",
        }
        headers = {"Authorization": self._authorization}
        answer = await self._retry(files, lambda: self._post(self._address, request, headers))
        objects = answer.get("objects")
        listed = objects if isinstance(objects, list) else []
        replies = {item.get("oid"): item for item in listed if isinstance(item, dict)}
        for file in files:
            if (reply := replies.get(file.oid)) is None:
                raise LargeFileError([file.path], "the server did not say whether it accepts it")
            if isinstance(reply.get("error"), dict):
                raise LargeFileError([file.path], str(reply["error"].get("message") or "the server does not accept it"))
            actions = _dict(reply.get("actions"))
            if "upload" not in actions:
                continue
            if not await asyncio.to_thread((self._objects / file.oid).is_file):
                raise LargeFileError([file.path], "neither the server nor this job has the object that it points to")
            await self._retry([file], partial(self._put, file, _dict(actions["upload"])))
            if "verify" in actions:
                await self._retry([file], partial(self._verify, file, _dict(actions["verify"])))

    async def _put(self, file: LargeFile, action: _Json) -> _Json:
        headers = {"Content-Type": "application/octet-stream", **_headers(action)}
        address = self._action_url(file, action)
        with (self._objects / file.oid).open("rb") as content:
            async with self._session.put(
                address, data=content, headers=headers, allow_redirects=False, **proxy_options(address)
            ) as answer:
                await _check_answer(answer)
        return {}

    async def _verify(self, file: LargeFile, action: _Json) -> _Json:
        body = {"oid": file.oid, "size": file.size}
        return await self._post(self._action_url(file, action), body, _headers(action), silent=True)

    async def _post(self, address: str, request: _Json, headers: Mapping[str, str], *, silent: bool = False) -> _Json:
        all_headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **headers}
        body = json.dumps(request).encode()
        async with self._session.post(
            address, data=body, headers=all_headers, allow_redirects=False, **proxy_options(address)
        ) as answer:
            await _check_answer(answer)
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

    def _action_url(self, file: LargeFile, action: _Json) -> str:
        address = str(action.get("href", ""))
        if not is_safe_address(address, self._address):
            raise LargeFileError([file.path], "the server gave no safe upload address")
        return address

    async def _retry(self, files: Sequence[LargeFile], call: Callable[[], Awaitable[_Json]]) -> _Json:
        for pause in (*self._pauses, None):
            try:
                return await call()
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, _TransientError) as error:
                if pause is None:
                    raise LargeFileError([file.path for file in files], _error_text(error)) from error
                await asyncio.sleep(pause)
            except (aiohttp.ClientError, ValueError) as error:
                raise LargeFileError([file.path for file in files], _error_text(error)) from error
        raise AssertionError("the last try returns or raises")


class _TransientError(Exception):
    pass


def is_safe_address(address: str, ours: str) -> bool:
    """Whether an address is as secure as ours; the host may differ."""
    return urlsplit(address).scheme in {"https", urlsplit(ours).scheme} and bool(urlsplit(address).hostname)


async def _check_answer(answer: aiohttp.ClientResponse) -> None:
    if answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    text = (await answer.content.read(_LONGEST_REFUSAL)).decode(errors="replace")
    message, certainty = f"the server answered {answer.status}", certainty_of(answer.status, text)
    if certainty != "passing":
        message = f"{message}; is Git LFS enabled for the repository, and is there quota left?"
    raise ValueError(message) if certainty == "definite" else _TransientError(message)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _headers(action: _Json) -> dict[str, str]:
    return {str(name): str(value) for name, value in _dict(action.get("header")).items()}


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
