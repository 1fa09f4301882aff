"""Find directories that git takes for repositories although they are not called `.git`. Pure.

Whoever runs git in such a directory of a clone runs what its `config` names (`core.fsmonitor`, `core.pager`): git looks
for `HEAD`, `objects` and `refs`, or for `HEAD` and `commondir`, wherever it is started.
https://git-scm.com/docs/git-config#Documentation/git-config.txt-safebareRepository
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from bot.workspace.listing import folded

_REPOSITORIES = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
_MARKS = frozenset().union(*_REPOSITORIES)


def repositories_in(paths: Collection[bytes]) -> set[bytes]:
    """The directories below the root that git would take for repositories, were these files checked out.

    The root is none: git finds the `.git` there first.
    """
    # Each of them has a `HEAD`, and hardly any other directory has; so most paths need no second look.
    headed = {
        folder
        for path in paths
        if (b"head" in path.lower() or not path.isascii())
        for folder, name in _steps(path)
        if folded(name) == "head"
    }
    marks: defaultdict[bytes, set[str]] = defaultdict(set)
    for path in paths if headed else ():
        for folder, name in _steps(path):
            if folder in headed and (mark := folded(name)) in _MARKS:
                marks[folder].add(mark)
    return {folder for folder, found in marks.items() if any(each <= found for each in _REPOSITORIES)}


def outermost(path: bytes, folders: Collection[bytes]) -> bytes | None:
    """The outermost of some directories that a path is below; None when it is below none."""
    end = path.find(b"/") if folders else -1
    while end != -1:
        if path[:end] in folders:
            return path[:end]
        end = path.find(b"/", end + 1)
    return None


def _steps(path: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each directory on the way to a file, but for the root, and the name of what comes next."""
    end = path.find(b"/")
    while end != -1:
        start, end = end + 1, path.find(b"/", end + 1)
        yield path[: start - 1], path[start : end if end != -1 else len(path)]
