"""Compare two commits as GitHub compares a pull request: from the merge base, with renames.

Names, attributes and contents are a stranger's, so each git command is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.domain.difference import ATTRIBUTES, ChangedFile, FileStatus
from bot.git.baseline import GITLINK
from bot.git.diff import NO_BLOB, Attributes
from bot.git.errors import ChangeError, GitError
from bot.git.process import Git, ProcessBounds

log = logging.getLogger(__name__)
_DIFF = ("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
# Git's defaults, which GitHub is assumed to use: see docs/decisions/0096.
_RENAMES = ("--find-renames=50%", "-l1000")
# Pairs of a thousand large files, and hostile patterns, take minutes.
_BOUNDS = ProcessBounds(seconds=60.0, cpu_seconds=20)
_ATTRIBUTE_BOUNDS = ProcessBounds(seconds=20.0, cpu_seconds=5)
_STATUS: dict[str, FileStatus] = {"A": "added", "M": "modified", "T": "modified", "D": "deleted", "R": "renamed"}
_ABSENT = "000000"
_MAX_NAME_BYTES = 200_000
"""Of the paths on one command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The changed files between the merge base `fork` and `head`, by path."""

    fork: str
    head: str
    files: tuple[ChangedFile, ...]
    renames: tuple[str, ...] = _RENAMES


async def compare(git: Git, base: str, head: str) -> Comparison:
    """Compare two present commits; the attributes are those of `base`."""
    merge_base = await git.run("merge-base", base, head, expect=(0, 1))
    fork = merge_base.decode().split()[0] if merge_base else base
    command = (*_DIFF, "-z", "--raw", "--numstat", "--abbrev=40")
    renames: tuple[str, ...] = _RENAMES
    try:
        output = await replace(git, bounds=_BOUNDS).run(*command, *renames, fork, head)
    except GitError as error:
        if error.exit_code is not None:
            raise
        log.warning("renames are not looked for: %s", error)
        renames = ("--no-renames",)
        output = await git.run(*command, *renames, fork, head)
    entries = await asyncio.to_thread(lambda: list(_parse_files(output)))
    sizes = await _read_sizes(git, [blob for _, blob in entries])
    attributes: dict[bytes, dict[str, str]] = {}
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="codepilot-attributes-"))
    try:
        reader = Attributes(git=git, folder=folder, bounds=_ATTRIBUTE_BOUNDS)
        attributes = await reader.query(base, [os.fsencode(file.path) for file, _ in entries], *ATTRIBUTES)
    except ChangeError as error:
        log.warning("no attributes are read: %s", error)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)

    def mark_files() -> tuple[ChangedFile, ...]:
        sized = (replace(file, size=sizes.get(blob, 0)) for file, blob in entries)
        return tuple(file.with_mark(attributes.get(os.fsencode(file.path), {})) for file in sized)

    return Comparison(fork=fork, head=head, files=await asyncio.to_thread(mark_files), renames=renames)


async def read_patch(git: Git, comparison: Comparison, files: Iterable[ChangedFile], *, limit: int) -> bytes:
    """Return the patch of some of the files, as far as `limit` bytes and a command line reach."""
    paths: dict[bool, list[bytes]] = {True: [], False: []}
    room = _MAX_NAME_BYTES
    for file in files:
        names = [*map(os.fsencode, file.paths)]
        if (room := room - sum(map(len, names))) < 0:
            break
        paths[bool(file.previous)] += names
    patch = b""
    for is_renamed, names in paths.items():
        # Among fewer files git can find renames that it did not look for among all.
        renames = comparison.renames if is_renamed else ("--no-renames",)
        command = ("--literal-pathspecs", *_DIFF, "--patch", *renames, comparison.fork, comparison.head)
        if names and len(patch) < limit:
            patch += await replace(git, bounds=_BOUNDS).read_head(limit - len(patch), *command, "--", *names)
    return patch


def _parse_files(output: bytes) -> Iterator[tuple[ChangedFile, str]]:
    """Yield each file with its blob: the new one, or that of a deletion.

    The formats are in git-diff-tree(1), "Raw output format" and `--numstat`; a rename has two paths.
    """
    fields, files = output.split(b"\0")[:-1], dict[bytes, tuple[ChangedFile, str]]()
    at = 0
    while at < len(fields) and fields[at].startswith(b":"):
        old, new, old_blob, new_blob, letter = fields[at][1:].decode().split(" ")
        paths = fields[at + 1 : at + 3] if letter[0] == "R" else fields[at + 1 : at + 2]
        file = ChangedFile(
            path=os.fsdecode(paths[-1]),
            previous=os.fsdecode(paths[0]) if len(paths) > 1 else "",
            status=_STATUS[letter[0]],
            old_mode="" if old == _ABSENT else old,
            new_mode="" if new == _ABSENT else new,
        )
        blob = new_blob if new_blob != NO_BLOB else old_blob
        files[paths[-1]] = file, "" if GITLINK in {old, new} else blob
        at += 1 + len(paths)
    while at < len(fields):
        added, removed, path = fields[at].split(b"\t", 2)
        if not path:
            at += 2
            path = fields[at]
        file, blob = files.pop(path)
        counts = {"binary": True} if added == b"-" else {"added": int(added), "removed": int(removed)}
        yield replace(file, **counts), blob
        at += 1
    yield from files.values()


async def _read_sizes(git: Git, blobs: Sequence[str]) -> dict[str, int]:
    names = sorted({blob for blob in blobs if blob})
    if not names:
        return {}
    stdin = "".join(f"{name}\n" for name in names).encode()
    output = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=stdin)
    return await asyncio.to_thread(_parse_sizes, output)


def _parse_sizes(output: bytes) -> dict[str, int]:
    lines = (line.split(" ") for line in output.decode().splitlines())
    return {name: int(size) for name, size in lines if size.isdecimal()}
