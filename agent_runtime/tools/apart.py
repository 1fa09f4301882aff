"""Work out writes of large files in a worker process, within a bound of time and one of memory.

Most of what finds old text, places hunks and compares versions is linear in the lines of a file, but not all of it in
every case: a stranger chose the file, and perhaps what the model writes to it, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.tools.changes import FileWrite, Planner
from agent_runtime.tools.write_preview import of_writes
from agent_runtime.workspace.changes import StaleError, WriteCall
from agent_runtime.workspace.overlay import Overlay
from agent_runtime.workspace.patches import parse_patch
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import StagedFile
from agent_runtime.workspace.text import Text

_LIGHT_BYTES = 256_000
_LIGHT_WORK = 100_000  # lines, times hunks
_SECONDS = 10.0
_MEMORY = 200 * 1024**2


def is_light(change: WriteCall, files: Overlay) -> bool:
    """Whether a write is quickly worked out, whatever is in the file.

    Raises:
        ToolError: it cannot be made.
    """
    paths = [change.path]
    hunks = 1
    if change.mode == "patch":
        sections = parse_patch(change.contents[0])
        paths = [each.path for each in sections]
        hunks = 1 + change.contents[0].count("\n@@")
    olds = [files.bytes_of(path) for path in paths if files.is_readable(path)]
    size = sum(map(len, olds)) + sum(map(len, change.contents))
    lines = sum(old.count(b"\n") for old in olds) + sum(content.count("\n") for content in change.contents)
    light = size <= _LIGHT_BYTES and lines * hunks <= _LIGHT_WORK
    if not light and (far := next(filter(files.is_temporary, paths), None)):  # no worker process can open it
        told = f"{far!r} not written: outside the workspace only small files are changed here; use a shell command"
        raise ToolError(told, kind="ValueError")
    return light


def plan(change: WriteCall, files: Overlay, seen: Seen) -> list[FileWrite]:
    """`Planner.plan` in a worker process.

    Raises:
        ToolError: it cannot be done, or takes too long.
    """
    known = seen.copy(only=files.resolve(change.path)) if change.path else Seen()
    what = "Working out what to write"
    try:
        packed = call_bounded(_packed, change, files, known, seconds=_SECONDS, memory=_MEMORY, what=what)
    except BoundExceededError as error:
        raise ToolError(f"{change.path or 'patch'!r} not written: {error}", kind="TimeoutError") from error
    size = int.from_bytes(packed[:8], "big")
    told = json.loads(packed[8 : 8 + size])
    if isinstance(told, str):
        raise StaleError(told, kind="ValueError")
    at = 8 + size
    writes: list[FileWrite] = []
    for each in told:
        data = None if each["size"] is None else packed[at : at + each["size"]]
        at += each["size"] or 0
        writes.append(_unpacked(each, data, files))
    return writes


def preview(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    """`of_writes`, of large files in a worker process; empty where that takes too long."""
    size = sum(len(data) for each in writes for data in (each.change.old, each.change.data) if data is not None)
    if size <= _LIGHT_BYTES:
        return of_writes(writes, replaced)
    try:
        return call_bounded(of_writes, writes, replaced, seconds=_SECONDS, memory=_MEMORY, what="Showing a change")
    except BoundExceededError:  # nobody can be shown it whole
        return ""


def _packed(change: WriteCall, files: Overlay, seen: Seen) -> bytes:
    """In the worker: the writes as JSON, and the new contents behind it; a text for line numbers that are stale."""
    with closing(files):
        try:
            writes = Planner().plan(change, files, seen)
        except StaleError as error:
            head = json.dumps(str(error)).encode()
            return len(head).to_bytes(8, "big") + head
    headers = [
        {
            "canonical": write.canonical,
            "path": write.change.path,
            "old": None if write.change.old is None else hashlib.sha256(write.change.old).hexdigest(),
            "mode": write.change.mode,
            "unread": write.change.unread,
            "size": None if write.change.data is None else len(write.change.data),
            "encoding": write.text.encoding if write.text else None,
            "bom": len(write.text.bom) if write.text else 0,
            "version": write.version,
            "whole": write.whole,
            "origin": write.origin,
            "told": write.told,
        }
        for write in writes
    ]
    head = json.dumps(headers).encode()
    return b"".join([len(head).to_bytes(8, "big"), head, *(each.change.data or b"" for each in writes)])


def _unpacked(header: Mapping[str, object], data: bytes | None, files: Overlay) -> FileWrite:
    """A write as it was before it was packed; the old content is the file's own, read again.

    Raises:
        ToolError: the file has changed meanwhile.
    """
    path, bom, encoding = str(header["path"]), int(str(header["bom"])), header["encoding"]
    old = files.bytes_of(path) if header["old"] is not None else None
    if old is not None and hashlib.sha256(old).hexdigest() != header["old"]:
        raise ToolError(f"{path!r} was changed by someone else in this very moment; nothing was written.")
    text = Text(data[bom:].decode(str(encoding)), str(encoding), data[:bom]) if encoding and data is not None else None
    mode, unread, origin, told = header["mode"], header["unread"] is True, header["origin"], header["told"]
    return FileWrite(
        canonical=str(header["canonical"]),
        change=StagedFile(path=path, data=data, old=old, mode=mode if isinstance(mode, int) else None, unread=unread),
        text=text,
        version=str(header["version"]),
        whole=header["whole"] is True,
        origin=origin if isinstance(origin, str) else None,
        told=[str(line) for line in told] if isinstance(told, list) else [],
    )
