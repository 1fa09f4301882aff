"""Describe what leads from one tree to another, and hold no more of it in memory than is shown and sent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bot.workspace.change import Change, FileChange
from bot.workspace.changed import GITLINK
from bot.workspace.difference import RawChange, parse_numstat, parse_raw
from bot.workspace.errors import ChangeError, GitError
from bot.workspace.git import Git
from bot.workspace.staging import MAX_COMMIT_BYTES, NO_BLOB

MAX_DIFF_BYTES = 48 * 1024 * 1024
"""Of a change as a patch, which people are to read and the bot holds in memory."""


async def described(git: Git, folder: Path, base: str, tree: str) -> Change:
    """The change that makes `tree` of the commit `base`.

    Args:
        git: git on a directory that has both.
        folder: where files may be put; the one with the patch stays.
        base: the commit.
        tree: the tree.

    Raises:
        ChangeError: it is more than can be shown.
    """
    command = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")
    raw = parse_raw(await git.run(*command, "-z", "--raw", "--abbrev=40", base, tree))
    counts = parse_numstat(await git.run(*command, "-z", "--numstat", base, tree))
    whole = folder / "change.patch"
    await _write_patch(git, whole, *command, "--patch", "--binary", "--full-index", base, tree)
    patch = await asyncio.to_thread(lambda: whole.read_bytes().decode("utf-8", errors="surrogateescape"))
    wanted = [each.blob for each in raw if each.blob != NO_BLOB and each.new_mode != GITLINK]
    contents = await _contents(git, folder / "contents", wanted)
    return Change(
        base_sha=base,
        tree_sha=tree,
        files=tuple(_file_change(each, counts, contents) for each in raw),
        patch=patch,
        patch_file=whole,
    )


async def _write_patch(git: Git, target: Path, *command: str) -> None:
    try:
        await replace(git, bounds=replace(git.bounds, file_bytes=MAX_DIFF_BYTES)).run(*command, stdout=target)
    except GitError as error:
        if error.exit_code not in {None, -signal.SIGXFSZ}:
            raise
        raise ChangeError(
            f"The difference is larger than {MAX_DIFF_BYTES // 1024**2} MiB, or takes too long to work out.",
            "Ask for it in parts; add what was built or downloaded to `.gitignore`.",
        ) from error


async def _contents(git: Git, answer: Path, blobs: list[str]) -> dict[str, bytes]:
    """What is in some blobs: at most as much as `store` lets pass, and in memory once."""
    if not blobs:
        return {}
    asked = "\n".join(blobs).encode() + b"\n"
    bounds = replace(git.bounds, file_bytes=MAX_COMMIT_BYTES + 4 * len(asked))
    await replace(git, bounds=bounds).run("cat-file", "--batch", stdin=asked, stdout=answer)
    return await asyncio.to_thread(_read, answer, blobs)


def _read(answer: Path, blobs: Iterable[str]) -> dict[str, bytes]:
    """Read what `git cat-file --batch` has written, and remove it."""
    contents: dict[str, bytes] = {}
    with answer.open("rb") as file:
        for blob in blobs:
            contents[blob] = file.read(int(file.readline().split(b" ")[2]))
            file.read(1)
    answer.unlink()
    return contents


def _file_change(raw: RawChange, counts: dict[bytes, tuple[int, int] | None], contents: dict[str, bytes]) -> FileChange:
    lines = counts.get(raw.path, (0, 0))
    added, removed = lines or (0, 0)
    return FileChange(
        path=os.fsdecode(raw.path),
        status=raw.status,
        old_mode=raw.old_mode,
        new_mode=raw.new_mode,
        added=added,
        removed=removed,
        binary=lines is None,
        content=contents.get(raw.blob),
    )
