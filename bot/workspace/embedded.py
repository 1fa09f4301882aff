"""Find directories that git takes for repositories although they are not called `.git`. Pure.

Whoever runs git in such a directory of a clone runs what its `config` names (`core.fsmonitor`, `core.pager`): git looks
for `HEAD`, `objects` and `refs`, or for `HEAD` and `commondir`, wherever it is started.
https://git-scm.com/docs/git-config#Documentation/git-config.txt-safebareRepository
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from bot.workspace.listing import folded

_REPOSITORIES = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
_MARKS = frozenset().union(*_REPOSITORIES)


def repositories_in(paths: Iterable[bytes]) -> set[bytes]:
    """The directories below the root that git would take for repositories, were these files checked out.

    The root is none: git finds the `.git` there first.
    """
    marks: defaultdict[bytes, set[str]] = defaultdict(set)
    for path in paths:
        end = path.find(b"/")
        while end != -1:
            start, end = end + 1, path.find(b"/", end + 1)
            name = folded(path[start : end if end != -1 else len(path)])
            if name in _MARKS:
                marks[path[: start - 1]].add(name)
    return {folder for folder, found in marks.items() if any(each <= found for each in _REPOSITORIES)}


def lies_in(path: bytes, folders: Collection[bytes]) -> bool:
    """Whether a path is below one of some directories."""
    end = path.find(b"/")
    while end != -1:
        if path[:end] in folders:
            return True
        end = path.find(b"/", end + 1)
    return False
