"""Read the `.gitattributes` of a commit with git, in a directory with nothing else in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.workspace.errors import ChangeError, GitError
from bot.workspace.git import Git
from bot.workspace.process import ProcessBounds

# Git's patterns can take time without end; a process can be ended.
_BOUNDS = ProcessBounds(seconds=60.0, cpu_seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes of one commit.

    The files are read from git's index, never from the workspace. The job's own git directory cannot be asked: it says
    of every path that nothing is to be converted.

    Attributes:
        git: git on a directory that has the commit.
        folder: private; made when it is needed.
        bounds: what git may take for one question.
    """

    git: Git
    folder: Path
    bounds: ProcessBounds = _BOUNDS

    async def of(self, commit: str, paths: Sequence[bytes], *names: str) -> dict[bytes, dict[str, str]]:
        """The values of attributes by name, for each path; `unspecified`, `set` and `unset` are git's own words.

        Raises:
            ChangeError: git takes too long over the patterns.
        """
        if not paths:
            return {}
        await asyncio.to_thread(make_repository, self.folder, self.git)
        git = replace(self.git, git_dir=self.folder, work_tree=None, index=self.folder / "index", bounds=self.bounds)
        await git.run("read-tree", commit)
        try:
            said = await git.run("check-attr", "--cached", "-z", "--stdin", *names, stdin=b"\0".join((*paths, b"")))
        except GitError as error:
            if error.exit_code is not None:
                raise
            raise ChangeError(
                f"Git takes more than {self.bounds.cpu_seconds} s for the patterns in `.gitattributes`.",
                "Simplify them.",
            ) from error
        fields = said.split(b"\0")
        found: dict[bytes, dict[str, str]] = {}
        for i in range(0, len(fields) - 2, 3):
            found.setdefault(fields[i], {})[fields[i + 1].decode()] = fields[i + 2].decode(errors="replace")
        return found


def make_repository(folder: Path, other: Git) -> None:
    """A repository is these few things, and the objects of the other one."""
    if other.git_dir is None:
        raise ValueError("attributes need a git directory")
    for part in ("objects/info", "refs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "objects" / "info" / "alternates").write_text(f"{other.git_dir}/objects\n")
