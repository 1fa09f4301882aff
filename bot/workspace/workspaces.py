"""Workspaces of jobs: a directory of mirrors and one private directory for each job, always cleaned up."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bot.workspace.changed import Baseline, entries_of
from bot.workspace.errors import WorkspaceError, WorkspaceGoneError
from bot.workspace.git import Git
from bot.workspace.keeping import Given, load, save
from bot.workspace.listing import listed
from bot.workspace.locks import locked, release, try_lock
from bot.workspace.mirror import Blob, Mirror, MirrorLimits, Source
from bot.workspace.pristine import Pristine
from bot.workspace.process import ProcessBounds
from bot.workspace.remote import PAUSES
from bot.workspace.removal import SET_ASIDE, discard
from bot.workspace.tree import Tree
from bot.workspace.upkeep import Upkeep

log = logging.getLogger(__name__)


def never() -> bool:
    """Nothing is kept."""
    return False


_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

# Files are checked out to the byte, whatever `.gitattributes` says: no filter, no line-ending conversion, no keyword.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff !merge !eol\n"


class Workspaces:
    """All workspaces of this machine, below one directory that several worker processes may share.

    Args:
        root: a directory of the bot's own; made with mode 0700. No sandbox may read it, but for a job's own `files`.
        environment: variables the operator grants git, e.g. `HTTPS_PROXY` or `GIT_SSL_CAINFO`.
        seconds: time limit of a fetch, and of waiting for another one to end.
        pauses: before a git server whose trouble may pass is asked again; see `patiently`.
        limits: how large mirrors may become.
    """

    def __init__(
        self,
        root: Path,
        *,
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
        pauses: tuple[float, ...] = PAUSES,
        limits: MirrorLimits | None = None,
    ) -> None:
        self._mirrors = root / "mirrors"
        self._jobs = root / "jobs"
        self._environment = dict(environment or {})
        self._seconds = seconds
        self._pauses = pauses
        self._limits = limits or MirrorLimits()
        for folder in (root, self._mirrors, self._jobs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)

    @asynccontextmanager
    async def open(
        self, job_id: str, repo_id: int, source: Source, *, keep: Callable[[], bool] = never
    ) -> AsyncIterator[Tree]:
        """Check a commit out for one job, and clean up whatever happens.

        Args:
            job_id: names the directory; letters, digits, `-` and `_`.
            repo_id: GitHub's numeric id, which survives renames.
            source: the commit, where it is, and what may fetch it; used for the fetch alone.
            keep: asked as the body ends, however it does: whether the files stay, for `reopen`.

        Raises:
            CloneError: it could not be fetched; `RepositoryEmptyError`, `BranchGoneError`, `CommitGoneError` say why.
            WorkspaceError: another process works on this job.
        """
        folder, tree = self._folder(job_id), None
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)
            try:
                folder.mkdir(mode=0o700)
                (folder / "repo").write_text(str(repo_id))
                mirror = self._mirror(repo_id)
                await mirror.provide(source, keep=job_id)
                sha = source.sha
                trusted, files = folder / "trusted", folder / "files"
                for each in (trusted, files):
                    each.mkdir(mode=0o700)
                git = self._git(folder)
                await git.run("init", "--bare", "--quiet", "--template=", trusted / "repo.git")
                info = trusted / "repo.git" / "info"
                info.mkdir(exist_ok=True)
                (info / "attributes").write_text(_ATTRIBUTES)
                # What `clone --shared` does: the mirror's objects are read in place, and the keep ref holds them there.
                (trusted / "repo.git" / "objects" / "info" / "alternates").write_text(f"{mirror.path}/objects\n")
                listing = await git.run("ls-tree", "-r", "-z", "--full-tree", sha)
                modes, blobs = await asyncio.to_thread(listed, sha, listing)  # a second for 200,000 files
                await self._pristine(mirror).copy(git, sha, files)
                baseline = Baseline(modes=modes, entries=await asyncio.to_thread(entries_of, files))
                given = Given(base_sha=sha, blobs=blobs, baseline=baseline)
                await asyncio.to_thread(save, trusted, given)
                tree = self._tree(folder, mirror, given)
                yield tree
            finally:
                # A cancelled job is cleaned up too: the shield lets the cleaning finish first.
                await asyncio.shield(self._leave(folder, kept=tree is not None and keep()))

    @asynccontextmanager
    async def reopen(self, job_id: str, *, keep: Callable[[], bool] = never) -> AsyncIterator[Tree]:
        """Go on with the files of a job that were kept, as they were left; else as `open`, but nothing is fetched.

        Nothing of what the agent can write is believed: the commit, and what was given of it, are read from beside the
        trusted git directory.

        Args:
            job_id: the one that they were opened for.
            keep: see `open`.

        Raises:
            WorkspaceGoneError: they are not there any more; what was left of them is removed.
            WorkspaceError: another process works on this job.
        """
        folder = self._folder(job_id)
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            tree = None
            try:
                # The workspace as it was left.
                repo_id = await asyncio.to_thread(_noted_repo, folder)
                try:
                    given = await asyncio.to_thread(load, folder / "trusted")
                except (OSError, ValueError) as error:
                    raise _gone(folder) from error
                # A mirror that was deleted and fetched again has neither the ref nor, after a force-push, the commit.
                if repo_id is None or not await self._mirror(repo_id).hold(given.base_sha, keep=folder.name):
                    raise _gone(folder)
                tree = self._tree(folder, self._mirror(repo_id), given)
                yield tree
            finally:
                await asyncio.shield(self._leave(folder, kept=tree is not None and keep()))

    async def discard(self, job_id: str) -> None:
        """Remove the files that were kept of a job; nothing to do when there are none.

        Raises:
            WorkspaceError: another process works on this job.
        """
        folder = self._folder(job_id)
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)

    async def read(self, repo_id: int, source: Source, path: str, *, limit: int) -> Blob | None:
        """A file as a commit has it, without a checkout; None when it has none there.

        Args:
            repo_id: GitHub's numeric id.
            source: the commit, where it is, and what may fetch it.
            path: from the repository's root.
            limit: bytes that are read; a longer file is not.

        Raises:
            CloneError: the commit could not be fetched.
            WorkspaceError: what is there is not a file, or is too long.
        """
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=None)
        return await mirror.read(source.sha, path, limit=limit)

    async def diff(self, repo_id: int, base: Source, head: Source, limit: int) -> str:
        """What a branch changed since it left another one, as `git diff` writes it, without binary parts.

        Args:
            repo_id: GitHub's numeric id of the repository that the pull request is in.
            base: the branch it is for.
            head: the branch it is from.
            limit: characters that are shown at most; a note says when there are more.

        Raises:
            CloneError: one of the commits could not be fetched.
        """
        mirror = self._mirror(repo_id)
        for source in (base, head):
            await mirror.provide(source, keep=None)
        # A character has at most four bytes.
        shown = (await mirror.diff(base.sha, head.sha, limit=4 * (limit + 1))).decode(errors="replace")
        if len(shown) <= limit:
            return shown
        whole_lines = shown[:limit].rpartition("\n")[0]
        return f"{whole_lines}\n[The rest of the diff was omitted: at most {limit:,} characters are shown.]\n"

    async def sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove what killed workers left; give back the ids of the jobs that were removed.

        Args:
            keep: ids of jobs that have not ended, whose files stay. Those that run elsewhere belong to them: one may
                begin to wait at any moment.
        """
        removed: list[str] = []
        for folder in sorted(self._jobs.iterdir()):
            if not folder.is_dir() or folder.name in keep or folder.name.startswith(SET_ASIDE):
                continue
            descriptor = try_lock(self._lock_of(folder))
            if descriptor is None:
                continue
            try:
                await self._clean_up(folder)
                removed.append(folder.name)
            finally:
                release(self._lock_of(folder), descriptor)
        return tuple(removed)

    async def tidy(self) -> None:
        """Have mirrors hold no more than is needed, and no more together than they may; can take minutes."""
        await Upkeep(self._mirrors, self._mirror, self._limits).tidy()

    def _mirror(self, repo_id: int) -> Mirror:
        return Mirror(
            path=self._mirrors / f"{repo_id}.git",
            lock=self._mirrors / f"{repo_id}.lock",
            environment=self._environment,
            seconds=self._seconds,
            pauses=self._pauses,
            limits=self._limits,
        )

    def _pristine(self, mirror: Mirror) -> Pristine:
        return Pristine(
            folder=mirror.path.with_suffix(".files"),
            lock=mirror.path.with_suffix(".files.lock"),
            seconds=self._seconds,
        )

    def _folder(self, job_id: str) -> Path:
        if not _JOB_ID.fullmatch(job_id):
            raise WorkspaceError(f"{job_id!r} cannot name a job's directory.", "Use letters, digits, - and _.")
        return self._jobs / job_id

    def _lock_of(self, folder: Path) -> Path:
        return folder.with_suffix(".lock")

    def _git(self, folder: Path) -> Git:
        return Git(
            git_dir=folder / "trusted" / "repo.git",
            environment=self._environment,
            bounds=ProcessBounds(seconds=self._seconds),
        )

    def _tree(self, folder: Path, mirror: Mirror, given: Given) -> Tree:
        hold = partial(mirror.provide, keep=_onto(folder))
        return Tree(
            path=folder / "files",
            git=self._git(folder),
            trusted=folder / "trusted",
            given=given,
            hold=hold,
            pauses=self._pauses,
        )

    async def _leave(self, folder: Path, *, kept: bool) -> None:
        if kept:
            # Files that a power cut shortened would otherwise be published as the agent's work.
            await asyncio.to_thread(os.sync)
        else:
            await self._clean_up(folder)

    async def _clean_up(self, folder: Path) -> None:
        """As `_remove`, but what fails is logged: nothing that a job did is lost because of what it left behind."""
        try:
            await self._remove(folder)
        except (WorkspaceError, OSError) as error:
            log.warning("job %s: not cleaned up; the next sweep tries again: %s", folder.name, error)

    async def _remove(self, folder: Path) -> None:
        """Delete a job's directory and its keep refs; a job that never came so far leaves nothing to do."""
        repo_id = await asyncio.to_thread(_noted_repo, folder)
        try:
            if repo_id is not None:
                await self._mirror(repo_id).release(folder.name, _onto(folder))
        finally:
            await asyncio.to_thread(discard, folder)


def _onto(folder: Path) -> str:
    """Names the keep ref of the commit that a change is replayed on; no job is called so."""
    return f"{folder.name}.onto"


def _gone(folder: Path) -> WorkspaceGoneError:
    return WorkspaceGoneError(f"The files of the waiting job {folder.name} no longer exist.", "Give the command again.")


def _noted_repo(folder: Path) -> int | None:
    note = folder / "repo"
    text = note.read_text() if note.exists() else ""
    return int(text) if text.isdecimal() else None
