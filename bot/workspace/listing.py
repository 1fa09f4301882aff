"""The files of a commit, as `git ls-tree -r -z` lists them. Pure."""

from __future__ import annotations

import os
from collections.abc import Collection

from bot.workspace.errors import WorkspaceError

DEEPEST = 100
"""Directories below one another; nobody's project comes near it, and each is opened on the way to the next."""
_LONGEST = 3_000
"""Bytes of a path: Linux takes 4,095, and the place where it is checked out comes before it."""

# Code points that HFS+ ignores in names, so that `.g<U+200C>it` is `.git` there; git refuses the same ones.
_IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)


def folded(name: bytes) -> str:
    """A name as the least careful file system reads it: without case, invisible characters, and dots at its end."""
    return os.fsdecode(name).translate(_IGNORED_BY_HFS).rstrip(". ").casefold()


def is_too_deep(path: bytes) -> bool:
    """Whether a path is longer, or leads further down, than the bot goes."""
    return len(path) > _LONGEST or path.count(b"/") >= DEEPEST


def listed(sha: str, listing: bytes) -> tuple[dict[bytes, str], dict[str, str]]:
    """Path to mode, and path to blob id.

    Raises:
        WorkspaceError: a file is too deep; or a name stands for two things, of which checked out one could be a link
            and the other lie behind it.
    """
    modes: dict[bytes, str] = {}
    blobs: dict[str, str] = {}
    records = listing.split(b"\0")[:-1]
    for record in records:
        facts, _, path = record.partition(b"\t")
        modes[path], _, blobs[os.fsdecode(path)] = facts.decode().split(" ")
    doubled = next((path for path in parents(modes) if path in modes), None)
    if doubled is not None or len(modes) < len(records):
        name = f"`{os.fsdecode(doubled)}`" if doubled is not None else "a name"
        raise WorkspaceError(
            f"Commit {sha[:10]} contains {name} twice in one directory, so it cannot be checked out.",
            "Remove the directory and add it again, in a new commit.",
        )
    if any(map(is_too_deep, modes)):
        raise WorkspaceError(
            f"Commit {sha[:10]} has files nested more than {DEEPEST} directories deep, or paths over {_LONGEST:,} "
            "bytes.",
            "Move them up.",
        )
    return modes, blobs


def parents(paths: Collection[bytes]) -> set[bytes]:
    """Every directory that one of the paths is in."""
    found: set[bytes] = set()
    for path in paths:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition(b"/")[0]
    return found
