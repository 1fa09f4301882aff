"""Where jobs get their files: a directory of mirrors and one private directory a job, always cleaned up."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bot.workspace.changed import Baseline, entries_of
from bot.workspace.copying import remove_tree
from bot.workspace.errors import WorkspaceError
from bot.workspace.git import Git
from bot.workspace.locks import locked, release, try_lock
from bot.workspace.mirror import Blob, Mirror, Source
from bot.workspace.pristine import Pristine
from bot.workspace.tree import Tree

log = logging.getLogger(__name__)

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

# Files are their blobs to the byte, whatever `.gitattributes` says: no filter, no line-ending conversion, no keyword.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff !merge !eol\n"


class Workspaces:
    """All workspaces of this machine, below one directory that several worker processes may share.

    Args:
        root: a directory of the bot's own; made with mode 0700. No sandbox may read it, but for a job's own `files`.
        environment: variables the operator grants git, e.g. `HTTPS_PROXY` or `GIT_SSL_CAINFO`.
        seconds: time limit of a fetch, and of waiting for another one to end.
    """

    def __init__(
        self, root: Path, *, environment: Mapping[str, str] | None = None, seconds: float = Git.DEFAULT_SECONDS
    ) -> None:
        self._mirrors = root / "mirrors"
        self._jobs = root / "jobs"
        self._environment = dict(environment or {})
        self._seconds = seconds
        for folder in (root, self._mirrors, self._jobs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)

    @asynccontextmanager
    async def open(self, job_id: str, repo_id: int, source: Source) -> AsyncIterator[Tree]:
        """Check a commit out for one job, and clean up whatever happens.

        Args:
            job_id: names the directory; letters, digits, `-` and `_`.
            repo_id: GitHub's numeric id, which survives renames.
            source: the commit, where it is, and what may fetch it; used for the fetch alone.

        Raises:
            CloneError: it could not be fetched; `RepositoryEmptyError`, `BranchGoneError`, `CommitGoneError` say why.
            WorkspaceError: another process works on this job.
        """
        if not _JOB_ID.fullmatch(job_id):
            raise WorkspaceError(f"{job_id!r} cannot name a job's directory.", "Use letters, digits, - and _.")
        folder = self._jobs / job_id
        async with locked(self._lock_of(folder), seconds=0, once=True):
            await self._remove(folder)
            try:
                folder.mkdir(mode=0o700)
                (folder / "repo").write_text(str(repo_id))
                mirror = self._mirror(repo_id)
                await mirror.provide(source, keep=job_id)
                yield await self._check_out(folder, mirror, source.sha)
            finally:
                # A cancelled job is cleaned up too: the shield lets the cleaning finish first.
                await asyncio.shield(self._remove(folder))

    async def read(self, repo_id: int, source: Source, path: str, *, limit: int) -> Blob | None:
        """A file as a commit has it, without a checkout; None when it has none there.

        Args:
            repo_id: GitHub's numeric id.
            source: the commit, where it is, and what may fetch it.
            path: from the repository's root.
            limit: bytes that are read; a longer file is not.

        Raises:
            CloneError: the commit could not be fetched.
            WorkspaceError: what stands there is no file, or too long.
        """
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=None)
        return await mirror.read(source.sha, path, limit=limit)

    async def sweep(self) -> tuple[str, ...]:
        """Remove what killed workers left, and pack the mirrors; give back the ids of the jobs that were removed."""
        removed: list[str] = []
        for folder in sorted(self._jobs.iterdir()):
            if not folder.is_dir():
                continue
            descriptor = try_lock(self._lock_of(folder))
            if descriptor is None:
                continue
            try:
                await self._remove(folder)
                removed.append(folder.name)
            finally:
                release(self._lock_of(folder), descriptor)
        for path in sorted(self._mirrors.glob("*.git")):
            try:
                await self._mirror(int(path.stem)).tidy()
            except WorkspaceError as error:
                # One damaged mirror must not keep the bot from starting; its own jobs will say so.
                log.warning("mirror %s was not packed; if it is damaged, delete it: %s", path, error)
        return tuple(removed)

    def _mirror(self, repo_id: int) -> Mirror:
        return Mirror(
            path=self._mirrors / f"{repo_id}.git",
            lock=self._mirrors / f"{repo_id}.lock",
            environment=self._environment,
            seconds=self._seconds,
        )

    def _pristine(self, mirror: Mirror) -> Pristine:
        return Pristine(
            folder=mirror.path.with_suffix(".files"),
            lock=mirror.path.with_suffix(".files.lock"),
            seconds=self._seconds,
        )

    def _lock_of(self, folder: Path) -> Path:
        return folder.with_suffix(".lock")

    async def _check_out(self, folder: Path, mirror: Mirror, sha: str) -> Tree:
        trusted, files = folder / "trusted", folder / "files"
        for each in (trusted, files):
            each.mkdir(mode=0o700)
        git = Git(git_dir=trusted / "repo.git", environment=self._environment, seconds=self._seconds)
        await git.run("init", "--bare", "--quiet", "--template=", trusted / "repo.git")
        info = trusted / "repo.git" / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_ATTRIBUTES)
        # What `clone --shared` does: the mirror's objects are read in place, and the keep ref holds them there.
        (trusted / "repo.git" / "objects" / "info" / "alternates").write_text(f"{mirror.path}/objects\n")
        listing = await git.run("ls-tree", "-r", "-z", "--full-tree", sha)
        await self._pristine(mirror).copy(git, sha, files)
        modes, blobs = _listed(listing)
        baseline = Baseline(modes=modes, entries=await asyncio.to_thread(entries_of, files))
        return Tree(path=files, base_sha=sha, git=git, trusted=trusted, baseline=baseline, blobs=blobs)

    async def _remove(self, folder: Path) -> None:
        """Delete a job's directory and its keep ref; a job that never came so far leaves nothing to do."""
        repo_id = await asyncio.to_thread(_noted_repo, folder)
        if repo_id is not None:
            await self._mirror(repo_id).release(folder.name)
        await asyncio.to_thread(remove_tree, folder)


def _noted_repo(folder: Path) -> int | None:
    note = folder / "repo"
    text = note.read_text() if note.exists() else ""
    return int(text) if text.isdecimal() else None


def _listed(listing: bytes) -> tuple[dict[bytes, str], dict[str, str]]:
    """Path to mode, and path to blob id."""
    modes: dict[bytes, str] = {}
    blobs: dict[str, str] = {}
    for record in listing.split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        modes[path], _, blobs[os.fsdecode(path)] = facts.decode().split(" ")
    return modes, blobs
