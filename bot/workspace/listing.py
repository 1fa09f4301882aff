"""The files of a commit, as `git ls-tree -r -z` lists them. Pure."""

from __future__ import annotations

import os
from collections.abc import Collection

from bot.workspace.errors import WorkspaceError


def listed(sha: str, listing: bytes) -> tuple[dict[bytes, str], dict[str, str]]:
    """Path to mode, and path to blob id.

    Raises:
        WorkspaceError: a name stands for two things. Checked out, one could be a link and the other lie behind it.
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
            f"Commit {sha[:10]} has {name} twice in one directory, so it cannot be checked out.",
            "Remove the directory and add it again, in a new commit.",
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
