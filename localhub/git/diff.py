"""Differences between commits of a bare repository, merging them, and the lines that comments are about.

Commits are named by their full SHAs. A patch of one file is a list of `Row`s, whose index is GitHub's `position`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localhub.git import plumbing as git
from localhub.state.model import Pull, Side

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_STATUS = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "C": "copied", "T": "changed"}
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file of a difference, as GitHub's `diff-entry` counts it; `patch` is None for a binary file."""

    path: str
    previous_path: str | None
    status: str
    sha: str
    additions: int
    deletions: int
    patch: str | None


def files(path: Path, base: str, head: str) -> list[FileDiff]:
    """The changed files, by path."""
    raw = (
        git.run_cached(path, *_diff("--raw", "-z", "--abbrev=40"), base, head)
        .decode(errors="surrogateescape")
        .split("\0")
    )
    counts, patches = _counts(path, base, head), _patches(path, base, head)
    found = []
    at = 0
    while at < len(raw) and raw[at]:
        _, _, old_sha, new_sha, letter = raw[at].split(" ")
        moved = letter[0] in "RC"
        previous = raw[at + 1] if moved else None
        name = raw[at + 2] if moved else raw[at + 1]
        at += 3 if moved else 2
        added, removed, binary = counts[name]
        # A file that became a link, or the other way round, is one removed and one added there.
        patch = "\n".join([next(patches) for _ in range(2 if letter[0] == "T" else 1)]).strip("\n")
        found.append(
            FileDiff(
                path=name,
                previous_path=previous,
                status=_STATUS[letter[0]],
                sha=old_sha if letter[0] == "D" else new_sha,
                additions=added,
                deletions=removed,
                patch=None if binary or not added + removed else patch,
            )
        )
    return found


def names(path: Path, base: str, head: str) -> list[tuple[str, str]]:
    """Status and path of each changed file; of one that was renamed, the new path."""
    parts = git.run_cached(path, *_diff("--name-status", "-z"), base, head).decode(errors="surrogateescape").split("\0")
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(parts) and parts[at]:
        moved = parts[at][0] in "RC"
        found.append((_STATUS[parts[at][0]], parts[at + 2 if moved else at + 1]))
        at += 3 if moved else 2
    return found


def unified(path: Path, base: str, head: str) -> str:
    """The difference as `git diff` writes it, binary parts included."""
    return git.run_cached(path, *_diff("--binary", "-p"), base, head).decode(errors="replace")


def mailbox(path: Path, *selection: str) -> str:
    """Commits as `git format-patch` writes them, e.g. `("old..new",)` or `("-1", "sha")`."""
    return git.run(path, "format-patch", "--stdout", "--root", *selection).decode(errors="replace")


def merge_base(path: Path, base: str, head: str) -> str | None:
    """The merge base of two commits, or None when their histories are unrelated."""
    try:
        return git.run_cached(path, "merge-base", base, head).decode().strip()
    except git.HubGitError:
        return None


def ahead_behind(path: Path, base: str, head: str) -> tuple[int, int]:
    """Count the commits that `head` has and `base` lacks, and the other way round."""
    behind, ahead = git.run_cached(path, "rev-list", "--left-right", "--count", f"{base}...{head}").split()
    return int(ahead), int(behind)


def pull_base(path: Path, pull: Pull) -> str:
    """The commit that a pull request's difference starts from: where its head left the base."""
    return merge_base(path, pull.base_sha, pull.head_sha) or EMPTY_TREE


def pull_files(path: Path, pull: Pull) -> list[FileDiff]:
    """The files that a pull request changes, by path."""
    return files(path, pull_base(path, pull), pull.head_sha)


def merge_tree(path: Path, base: str, head: str) -> str | None:
    """The tree of a clean merge, or None when there are conflicts."""
    try:
        return git.run_cached(path, "merge-tree", "--write-tree", base, head).decode().splitlines()[0]
    except git.HubGitError:
        return None


def _diff(*flags: str) -> list[str]:
    return ["diff-tree", "-r", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color", *flags]


def _counts(path: Path, base: str, head: str) -> dict[str, tuple[int, int, bool]]:
    parts = git.run_cached(path, *_diff("--numstat", "-z"), base, head).decode(errors="surrogateescape").split("\0")
    found: dict[str, tuple[int, int, bool]] = {}
    at = 0
    while at < len(parts) and parts[at]:
        added, removed, name = parts[at].split("\t", 2)
        if not name:  # a rename: old and new name follow as records of their own
            name = parts[at + 2]
            at += 2
        at += 1
        binary = added == "-"
        found[name] = (0, 0, True) if binary else (int(added), int(removed), False)
    return found


def _patches(path: Path, base: str, head: str) -> Iterator[str]:
    """The hunks of each file, in git's order: GitHub leaves out the header lines and the last newline."""
    whole = git.run_cached(path, *_diff("-p"), base, head).decode(errors="replace")
    for section in f"\n{whole}".split("\ndiff --git ")[1:]:  # every line of a hunk begins with another character
        start = section.find("\n@@")
        yield section[start + 1 :].removesuffix("\n") if start >= 0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the patch; a line number is None on the side where the line is not."""

    kind: Literal["hunk", "added", "removed", "same", "note"]
    old: int | None
    new: int | None
    text: str


def rows(patch: str) -> list[Row]:
    """The rows of one file's hunks, one for each line of the patch: the index of a row is GitHub's `position`."""
    found: list[Row] = []
    old = new = 0
    for line in patch.split("\n"):
        mark, text = line[:1], line[1:]
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
            found.append(Row(kind="hunk", old=None, new=None, text=line))
        elif mark == "+":
            found.append(Row(kind="added", old=None, new=new, text=text))
            new += 1
        elif mark == "-":
            found.append(Row(kind="removed", old=old, new=None, text=text))
            old += 1
        elif mark == "\\":
            found.append(Row(kind="note", old=None, new=None, text=line[2:]))
        else:
            found.append(Row(kind="same", old=old, new=new, text=text))
            old, new = old + 1, new + 1
    return found


def position(rows_of_patch: list[Row], line: int, side: Side) -> int | None:
    """The index of the row that shows this line on this side; None when the difference does not show it."""
    for at, row in enumerate(rows_of_patch):
        if line == (row.old if side == "LEFT" else row.new):
            return at
    return None


def hunk_start(rows_of_patch: list[Row], at: int) -> int:
    """The index of the header of the hunk that a row is in."""
    return max(index for index, row in enumerate(rows_of_patch[: at + 1]) if row.kind == "hunk")


def excerpt(patch: str, at: int) -> str:
    """A hunk from its header down to a row: GitHub's `diff_hunk`."""
    return "\n".join(patch.split("\n")[hunk_start(rows(patch), at) : at + 1])
