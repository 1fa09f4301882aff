"""Describe what leads from one tree to another, and hold no more of it in memory than is shown and sent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bot.workspace.change import SYMLINK, Change, FileChange
from bot.workspace.changed import GITLINK
from bot.workspace.errors import ChangeError, GitError
from bot.workspace.git import Git
from bot.workspace.staging import MAX_COMMIT_BYTES, NO_BLOB

MAX_DIFF_BYTES = 48 * 1024 * 1024
"""Of a change as a patch, which people are to read and the bot holds in memory."""


Kind = Literal["added", "modified", "deleted"]
_KINDS: dict[bytes, Kind] = {b"A": "added", b"M": "modified", b"T": "modified", b"D": "deleted"}
_ABSENT = "000000"


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
    bounded = replace(git, bounds=replace(git.bounds, file_bytes=MAX_DIFF_BYTES))
    try:
        await bounded.run(*command, "--patch", "--binary", "--full-index", base, tree, stdout=whole)
    except GitError as error:
        if error.exit_code not in {None, -signal.SIGXFSZ}:
            raise
        raise ChangeError(
            f"The diff is larger than {MAX_DIFF_BYTES // 1024**2} MiB, or takes too long to compute.",
            "Split the task; add build results and downloads to `.gitignore`.",
        ) from error
    patch = await asyncio.to_thread(lambda: whole.read_bytes().decode("utf-8", errors="surrogateescape"))
    wanted = [each.blob for each in raw if each.blob != NO_BLOB and each.new_mode != GITLINK]
    contents = await _contents(git, folder / "contents", wanted)
    files = []
    for each in raw:
        lines = counts.get(each.path, (0, 0))
        added, removed = lines or (0, 0)
        files.append(
            FileChange(
                path=os.fsdecode(each.path),
                status=each.status,
                old_mode=each.old_mode,
                new_mode=each.new_mode,
                added=added,
                removed=removed,
                binary=lines is None,
                content=contents.get(each.blob),
            )
        )
    change = Change(
        base_sha=base,
        tree_sha=tree,
        files=tuple(files),
        patch=patch,
        patch_file=whole,
    )
    if not change.changed_links:
        return change
    # Where the symbolic links of the tree point to.
    listed = (await git.run("ls-tree", "-r", "-z", "--full-tree", tree)).split(b"\0")
    found = [each.partition(b"\t") for each in listed if each.startswith(SYMLINK.encode())]
    blobs = {path: entry.split(b" ")[2].decode() for entry, _, path in found}
    targets = await _contents(git, folder / "links", sorted(set(blobs.values())))
    return replace(change, links={os.fsdecode(path): os.fsdecode(targets[blob]) for path, blob in blobs.items()})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RawChange:
    """One record of `--raw`.

    Attributes:
        path: as git stores it.
        status: what happened; a change of type (file to link) is a modification.
        old_mode: empty when added.
        new_mode: empty when deleted.
        blob: the new content's id, zeros when deleted.
    """

    path: bytes
    status: Kind
    old_mode: str
    new_mode: str
    blob: str


def parse_raw(output: bytes) -> list[RawChange]:
    """Parse `git diff-tree -r -z --raw` between two trees, in git's order.

    The format is in git-diff-tree(1), "Raw output format": `:mode mode id id status NUL path NUL`.
    """
    fields = output.split(b"\0")[:-1]
    changes: list[RawChange] = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old, new, _, blob, status = meta.removeprefix(b":").split(b" ")
        changes.append(
            RawChange(
                path=path,
                status=_KINDS[status[:1]],
                old_mode=_mode(old),
                new_mode=_mode(new),
                blob=blob.decode(),
            )
        )
    return changes


def parse_numstat(output: bytes) -> dict[bytes, tuple[int, int] | None]:
    """Parse `git diff-tree -r -z --numstat`: lines added and removed by path, None for a binary file."""
    counts: dict[bytes, tuple[int, int] | None] = {}
    for record in output.split(b"\0")[:-1]:
        added, removed, path = record.split(b"\t", 2)
        counts[path] = None if added == b"-" else (int(added), int(removed))
    return counts


def _mode(field: bytes) -> str:
    mode = field.decode()
    return "" if mode == _ABSENT else mode
