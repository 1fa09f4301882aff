"""Submodules that a change takes out of `.gitmodules`: the commit that stands in their place goes with the entry."""

from __future__ import annotations

from bot.workspace.errors import GitError
from bot.workspace.git import Git

LIST = ".gitmodules"


async def taken_out(git: Git, before: str | None, after: str | None) -> set[bytes]:
    """The paths that one version of `.gitmodules` names and the next does not; none where it cannot be read.

    Args:
        git: git on a directory that has both.
        before: the blob of the base commit; None when there is none.
        after: the blob as it is to be committed; None when it is removed.
    """
    try:
        return await _named(git, before) - await _named(git, after)
    except GitError:  # not even git can say what a broken list names, so nothing follows from it
        return set()


async def _named(git: Git, blob: str | None) -> set[bytes]:
    if blob is None:
        return set()
    # Asked for some keys, git gives the same exit code for a broken file as for none of them.
    said = await git.run("config", "--no-includes", f"--blob={blob}", "--null", "--list")
    entries = (record.partition(b"\n") for record in said.split(b"\0"))
    return {path.rstrip(b"/") for key, _, path in entries if key.startswith(b"submodule.") and key.endswith(b".path")}
