"""Compare two commits as GitHub compares a pull request: from the merge base, with renames.

Names, attributes and contents are a stranger's, so each git command is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bot.domain.difference import ATTRIBUTES, ChangedFile, FileStatus
from bot.git.diff import KINDS, NO_BLOB, Attributes, parse_entries, read_sizes
from bot.git.errors import ChangeError, GitError
from bot.git.process import Git, ProcessBounds

log = logging.getLogger(__name__)
_DIFF = ("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
# Git's defaults, which GitHub is assumed to use: see docs/decisions/0096.
_RENAMES = ("--find-renames=50%", "-l1000")
# Pairs of a thousand large files, and hostile patterns, take minutes.
_BOUNDS = ProcessBounds(seconds=60.0, cpu_seconds=20)
_ATTRIBUTE_BOUNDS = ProcessBounds(seconds=20.0, cpu_seconds=5)
_STATUS: dict[str, FileStatus] = {**KINDS, "R": "renamed"}
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
    entries = await asyncio.to_thread(parse_entries, output)
    blobs = [entry.blob if entry.blob != NO_BLOB else entry.old_blob for entry in entries]
    sizes = await read_sizes(git, {*blobs})
    attributes: dict[bytes, dict[str, str]] = {}
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="codepilot-attributes-"))
    try:
        reader = Attributes(git=git, folder=folder, bounds=_ATTRIBUTE_BOUNDS)
        attributes = await reader.query(base, [entry.path for entry in entries], *ATTRIBUTES)
    except ChangeError as error:
        log.warning("no attributes are read: %s", error)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)

    def list_files() -> Iterator[ChangedFile]:
        for entry, blob in zip(entries, blobs, strict=True):
            yield ChangedFile(
                path=os.fsdecode(entry.path),
                previous=os.fsdecode(entry.previous) if entry.previous != entry.path else "",
                status=_STATUS[entry.status],
                old_mode=entry.old_mode,
                new_mode=entry.new_mode,
                added=entry.added,
                removed=entry.removed,
                binary=entry.binary,
                size=sizes[blob],
            ).with_mark(attributes.get(entry.path, {}))

    files = await asyncio.to_thread(lambda: tuple(list_files()))
    return Comparison(fork=fork, head=head, files=files, renames=renames)


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
