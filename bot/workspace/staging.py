"""Copy what changed out of a workspace, and make it git's; nothing is held in memory whole."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from bot.workspace.changed import MOST_NAMED, Baseline, shown
from bot.workspace.errors import ChangeError
from bot.workspace.git import Git
from bot.workspace.removal import remove_tree
from bot.workspace.scan import ScannedFile, copy_file, opened_root

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
