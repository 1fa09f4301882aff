"""Describe what leads from one tree to another, and hold no more of it in memory than is shown and sent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bot.git.baseline import GITLINK, MOST_NAMED, Baseline, shown
from bot.git.change import SYMLINK, Change, FileChange
from bot.git.errors import ChangeError, GitError
from bot.git.filesystem import ScannedFile, copy_file, opened_root, remove_tree
from bot.git.process import Git

# ---- Copy what changed out of a workspace, and make it git's; nothing is held in memory whole.


MAX_FILE_BYTES = 100 * 1024 * 1024
"""GitHub refuses larger files: https://docs.github.com/repositories/working-with-files/managing-large-files"""
MAX_CHANGE_BYTES = 512 * 1024 * 1024
MAX_COMMIT_BYTES = 36 * 1024 * 1024
"""Of what is in the commit itself, and is looked through for secrets in memory."""
MAX_CHANGED_FILES = 10_000
NO_BLOB = "0" * 40

_IGNORE_IT = "Add build results and downloads to `.gitignore`."


def fresh(folder: Path) -> None:
    """Have an empty private directory there."""
    remove_tree(folder)
    folder.mkdir(mode=0o700)


def check_sizes(present: dict[bytes, ScannedFile]) -> None:
    """See whether files are as few and as small as can be published.

    Raises:
        ChangeError: they are not.
    """
    if len(present) > MAX_CHANGED_FILES:
        raise ChangeError(f"The agent left {len(present)} changed files; the limit is {MAX_CHANGED_FILES}.", _IGNORE_IT)
    sizes = {path: entry.stamp[1] for path, entry in present.items()}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    if largest is not None and sizes[largest] > MAX_FILE_BYTES:
        raise _too_large(largest)
    if sum(sizes.values()) > MAX_CHANGE_BYTES:
        raise _too_much(MAX_CHANGE_BYTES)


def _too_much(limit: int) -> ChangeError:
    return ChangeError(f"The changed files are larger than {limit // 1024**2} MiB together.", _IGNORE_IT)


def without_large(
    present: Mapping[bytes, ScannedFile], known: Container[bytes]
) -> tuple[dict[bytes, ScannedFile], tuple[str, ...]]:
    """A change without its largest new files, as many as are too much for a commit; and a note that names them.

    Args:
        present: the changed files.
        known: paths that the commit has; these are never left out.
    """
    kept = dict(present)
    total = sum(entry.stamp[1] for entry in kept.values())
    new = sorted((path for path in kept if path not in known), key=lambda path: kept[path].stamp[1])
    left_out: list[str] = []
    while total > MAX_COMMIT_BYTES and new:
        path = new.pop()
        size = kept.pop(path).stamp[1]
        total -= size
        left_out.append(f"{shown(path)} ({size / 1024**2:,.0f} MiB)")
    if not left_out:
        return kept, ()
    names, most = ", ".join(left_out[:MOST_NAMED]), MAX_COMMIT_BYTES // 1024**2
    return kept, (f"{len(left_out)} new files were left out, because a commit may have {most} MiB at most: {names}.",)


def _too_large(path: bytes) -> ChangeError:
    return ChangeError(f"`{os.fsdecode(path)}` is larger than {MAX_FILE_BYTES // 1024**2} MiB.", _IGNORE_IT)


def stage(
    root: Path, present: dict[bytes, ScannedFile], staging: Path
) -> tuple[list[tuple[bytes, str]], tuple[bytes, ...]]:
    """Copy each file to a numbered one; give back path and mode in that order, and the paths that vanished.

    Raises:
        ChangeError: a file, or all of them, became too large meanwhile.
    """
    staged: list[tuple[bytes, str]] = []
    vanished: list[bytes] = []
    left = MAX_CHANGE_BYTES
    with opened_root(root) as descriptor:
        for path, entry in sorted(present.items()):
            with (staging / str(len(staged))).open("wb") as copy:
                size = copy_file(descriptor, path, entry.mode, copy, limit=MAX_FILE_BYTES)
            if size is None:
                vanished.append(path)
                continue
            if size > MAX_FILE_BYTES:
                raise _too_large(path)
            left -= size
            if left < 0:
                raise _too_much(MAX_CHANGE_BYTES)
            staged.append((path, entry.mode))
    return staged, tuple(vanished)


async def store(git: Git, staging: Path, staged: list[tuple[bytes, str]]) -> list[tuple[bytes, str, str]]:
    """Write the copies as blobs; give back path, mode and blob id.

    Raises:
        ChangeError: they are more than the bot commits.
    """
    if not staged:
        return []
    if sum((staging / str(number)).stat().st_size for number in range(len(staged))) > MAX_COMMIT_BYTES:
        raise _too_much(MAX_COMMIT_BYTES)
    names = "".join(f"{staging}/{number}\n" for number in range(len(staged)))
    answer = await git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names.encode())
    return [(path, mode, blob) for (path, mode), blob in zip(staged, answer.decode().split(), strict=True)]


def index_records(blobs: Iterable[tuple[bytes, str, str]], gone: Iterable[bytes], baseline: Baseline) -> bytes:
    """The lines for `git update-index --index-info`."""
    # Removals first: a file may stand where a directory stood, and the other way round.
    removed = [b"0 " + NO_BLOB.encode() + b"\t" + path for path in gone if path in baseline.modes]
    added = [f"{mode} {blob}\t".encode() + path for path, mode, blob in blobs]
    return b"".join(record + b"\0" for record in [*removed, *added])


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
