"""The same change made on another commit: git's three-way merge of trees, which touches no file and no index."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bot.workspace.errors import ConflictError
from bot.workspace.git import Git

_NOBODY = {
    f"GIT_{who}_{part}": value
    for who in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "x"), ("EMAIL", "x"), ("DATE", "@0 +0000"))
}


async def merged(git: Git, *, base: str, tree: str, onto: str) -> str:
    """The tree that `onto` becomes by what leads from `base` to `tree`.

    `git merge-tree --write-tree` (2.38 and newer) finds the base of a merge in history, which a force-push may have
    taken away; so it is shown three commits of our own that have the right one.

    Raises:
        ConflictError: both changed the same lines, or the same file in ways that exclude each other.
    """
    root = await _commit(git, f"{base}^{{tree}}")
    mine = await _commit(git, tree, "-p", root)
    theirs = await _commit(git, f"{onto}^{{tree}}", "-p", root)
    answer = await git.run(
        "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", theirs, mine, expect=(0, 1)
    )
    result, *conflicts = answer.split(b"\0")[:-1]
    if conflicts:
        raise conflict(onto, map(os.fsdecode, conflicts))
    return result.decode()


def conflict(onto: str, paths: Iterable[str]) -> ConflictError:
    """The error for a change that does not fit on the commit `onto`."""
    remedy = f"See what commit {onto[:10]} has there, and give the command again."
    return ConflictError(tuple(dict.fromkeys(paths)), remedy)


async def _commit(git: Git, tree: str, *parents: str) -> str:
    answer = await git.run("commit-tree", "--no-gpg-sign", *parents, "-m", "A step of a merge", tree, variables=_NOBODY)
    return answer.decode().strip()
