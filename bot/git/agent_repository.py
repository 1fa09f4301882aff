"""The agent's own git repository: the `.git` of a workspace, which the sandbox may change and the host never reads.

Its index, refs and configuration are files of the workspace. Its objects are those of the mirror, which every sandbox
of the job shows read-only at `OBJECTS`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bot.git.diff import NO_BLOB
from bot.git.errors import GitError
from bot.git.filesystem import discard, grant_owner, open_root
from bot.git.merge import Merge
from bot.git.mirror import HISTORY_DEPTH, Mirror, Source
from bot.git.process import Git

OBJECTS = "/run/codepilot/objects"
"""Where a sandbox shows the mirror's objects."""
MAX_TAGS_BYTES = 2 * 1024**2
"""Bytes of the list of tags, about 20,000: the first in alphabetical order."""
_PEELED = "^{}"
# Of files that a program copies, only size and modification time are as the index has them.
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	logallrefupdates = true
	checkStat = minimal
	trustctime = false
[user]
	name = codepilot[bot]
	email = codepilot[bot]@users.noreply.github.com
[commit]
	gpgSign = false
[gc]
	auto = 0
[maintenance]
	auto = false
[remote "origin"]
	url = {url}
	fetch = +refs/heads/*:refs/remotes/origin/*
"""
_UPSTREAM = """\
[branch {branch}]
	remote = origin
	merge = {ref}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """The names of the commits in a repository.

    Attributes:
        branch: the branch of HEAD.
        base: the tip of the branch that a pull request is to be merged into; None for HEAD's own branch.
        is_of_fork: whether only a fork has the branch of HEAD.
        merge: the merge under way, of which the files are the result.
    """

    branch: str
    base: Source | None = None
    is_of_fork: bool = False
    merge: Merge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRepository:
    """The repository of one workspace.

    Attributes:
        folder: the `.git`.
        objects: the mirror's objects, as the sandbox sees them.
        refs: lines of `packed-refs` for the remote branches and tags.
        shallow: the commits whose parents the mirror lacks, a line each.
        base: the remote branch to compare with; empty for none.
        merge_base: of HEAD and `base`; empty if they have no common history.
    """

    folder: Path
    objects: str
    branch: str
    base: str
    merge_base: str
    config: str
    refs: tuple[str, ...]
    tags: int
    shallow: str = ""
    merge: Merge | None = None

    @property
    def summary(self) -> str:
        """Content of the repository, for the agent."""
        tags = [f"{self.tags:,} tag{'s' if self.tags > 1 else ''}"] if self.tags else []
        history = f"its last commits ({HISTORY_DEPTH} or more)" if self.shallow else "its history"
        parts = [history, *tags]
        if self.base:
            fork = f"merge base {self.merge_base[:10]}" if self.merge_base else "no common history"
            parts.append(f"{self.base} ({fork})")
        return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]

    async def write(self, git: Git, sha: str, *, index: Path | None = None, objects: bytes = b"") -> None:
        """Write the repository anew with HEAD at a commit; no program may run in the workspace.

        Args:
            git: of the trusted directory.
            index: of the workspace's files, with their sizes and times; None if git is to read them.
            objects: a pack of objects that the mirror lacks.
        """
        fresh = self.folder.parent.with_name("fresh.git")
        await asyncio.to_thread(self._write_files, fresh, sha)
        if index is None:
            await replace(git, index=fresh / "index").run("read-tree", sha)
        else:
            await asyncio.to_thread(shutil.copy2, index, fresh / "index")  # git compares its time with the files'
        if self.merge is not None and sha == self.merge.commit:
            records = [f"0 {NO_BLOB}\t{path}" for path in self.merge.stages]
            for path, stages in self.merge.stages.items():
                records += [f"{stage.mode} {stage.blob} {number}\t{path}" for number, stage in stages.items()]
            stdin = b"".join(os.fsencode(record) + b"\0" for record in records)
            await replace(git, index=fresh / "index").run("update-index", "-z", "--index-info", stdin=stdin)
        if objects:
            await replace(git, git_dir=fresh).run("unpack-objects", "-q", stdin=objects)
        await asyncio.to_thread(_install, fresh, self.folder)

    def _write_files(self, folder: Path, sha: str) -> None:
        discard(folder)  # of a process that died
        for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (folder / name).mkdir(parents=True)
        merge, contents = self.merge, dict[str, str]()
        if merge is not None and sha == merge.commit:  # as `git merge` leaves it
            sha = merge.head
            message = f"Merge branch '{merge.branch}' into {self.branch}\n"
            contents = {"MERGE_HEAD": f"{merge.base}\n", "MERGE_MSG": message, "MERGE_MODE": ""}
        contents |= {
            "HEAD": f"ref: refs/heads/{self.branch}\n",
            "config": self.config,
            "packed-refs": "".join(f"{line}\n" for line in (f"{sha} refs/heads/{self.branch}", *self.refs)),
            "objects/info/alternates": f"{self.objects}\n",
            **({"shallow": self.shallow} if self.shallow else {}),
        }
        for name, text in contents.items():
            (folder / name).write_bytes(os.fsencode(text))


def _install(fresh: Path, folder: Path) -> None:
    earlier = folder.parent.with_name("earlier.git")
    discard(earlier)
    with open_root(earlier.parent) as job:
        grant_owner(job, os.fsencode(folder.parent.name))
    with open_root(folder.parent) as files, suppress(FileNotFoundError):
        grant_owner(files, os.fsencode(folder.name))  # required for moving
        folder.rename(earlier)  # a link itself, if programs left one
    fresh.rename(folder)
    discard(earlier)


async def plan_repository(files: Path, mirror: Mirror, source: Source, refs: Refs, *, objects: str) -> AgentRepository:
    """Read the mirror for the repository of a workspace; the commits of `source` and `refs` are present."""
    tags = await _list_tags(mirror.git)
    base, merge_base = "", ""
    head = source.sha if refs.merge is None else refs.merge.head
    remote = [] if refs.is_of_fork else [(refs.branch, head)]
    if refs.base is not None:
        name = refs.base.ref.removeprefix("refs/heads/")
        base, remote = f"origin/{name}", [*remote, (name, refs.base.sha)]
        answer = await mirror.git.run("merge-base", refs.base.sha, head, expect=(0, 1))
        merge_base = answer.decode().strip()
    return AgentRepository(
        folder=files / ".git",
        objects=objects,
        branch=refs.branch,
        base=base,
        merge_base=merge_base,
        config=_config(source.url, refs),
        refs=(*(f"{sha} refs/remotes/origin/{name}" for name, sha in dict(remote).items()), *tags),
        tags=sum(not line.startswith("^") for line in tags),
        shallow=await asyncio.to_thread(mirror.shallow.read_text) if mirror.shallow.exists() else "",
        merge=refs.merge,
    )


async def _list_tags(git: Git) -> list[str]:
    """Return lines of `packed-refs`; that of an annotated tag is followed by its commit's."""
    try:
        listing = await git.read_head(MAX_TAGS_BYTES, "show-ref", "--tags", "--dereference")
    except GitError as error:
        if error.exit_code != 1:  # there is no tag
            raise
        return []
    lines = os.fsdecode(listing).split("\n")[:-1]
    return [f"^{line.split()[0]}" if line.endswith(_PEELED) else line for line in lines]


def _config(url: str, refs: Refs) -> str:
    config = _CONFIG.format(url=_quote(url))
    if refs.is_of_fork:
        return config
    return config + _UPSTREAM.format(branch=_quote(refs.branch), ref=_quote(f"refs/heads/{refs.branch}"))


def _quote(text: str) -> str:
    """Quote a value or subsection; see git-config(1), "Syntax"."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
