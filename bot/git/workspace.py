"""Workspaces of jobs: a directory of mirrors, and one private directory for each job that is always cleaned up.

The files of a job that waits are kept on the machine, and stored in a snapshot for other machines. A generation names
each state of them, so that a job's newest files are told from older ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bot.domain.errors import QueueError, StorageError
from bot.git.baseline import Baseline, entries_of, load, save
from bot.git.errors import WorkspaceError, WorkspaceGoneError
from bot.git.filesystem import (
    DEEPEST,
    LONGEST_PATH,
    SET_ASIDE,
    discard,
    in_thread,
    is_too_deep,
    lock_if_free,
    locked,
    parents,
    write_atomically,
)
from bot.git.mirror import Blob, Mirror, MirrorLimits, Pristine, Source, Upkeep
from bot.git.process import PAUSES, Git, ProcessBounds
from bot.git.snapshots import Snapshots, baseline_of, note, rebuild
from bot.git.tree import Tree

log = logging.getLogger(__name__)
INDEX = "snapshot.json"
"""The file, beside the trusted git directory, with what is stored already."""
_GENERATIONS = "generation"
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

# Files are checked out to the byte, whatever `.gitattributes` says: no filter, no line-ending conversion, no keyword.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff !merge !eol\n"
Current = Callable[[str, str], Awaitable[bool]]
"""Asks whether a job's files are still those of a generation: another worker may have taken the job over meanwhile.

It raises `QueueError` when nobody can tell now."""


async def always_current(_job_id: str, _generation: str) -> bool:
    """No other worker works on these jobs."""
    return True


def never() -> bool:
    """Nothing is kept."""
    return False


class Workspaces:
    """All workspaces of this machine, below one directory that several worker processes may share.

    Args:
        root: a directory of the bot's own; made with mode 0700. No sandbox may read it, but for a job's own `files`.
        environment: variables the operator grants git, e.g. `HTTPS_PROXY` or `GIT_SSL_CAINFO`.
        seconds: time limit of a fetch, and of waiting for another one to end.
        pauses: before a git server whose trouble may pass is asked again; see `patiently`.
        limits: how large mirrors may become.
        snapshots: where files that are kept are stored as well, for other machines; None where there are none.
    """

    def __init__(
        self,
        root: Path,
        *,
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
        pauses: tuple[float, ...] = PAUSES,
        limits: MirrorLimits | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._mirrors = root / "mirrors"
        self._jobs = root / "jobs"
        self._environment = dict(environment or {})
        self._seconds = seconds
        self._pauses = pauses
        self._limits = limits or MirrorLimits()
        self._snapshots = snapshots
        for folder in (root, self._mirrors, self._jobs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)

    @asynccontextmanager
    async def open(
        self,
        job_id: str,
        repo_id: int,
        source: Source,
        *,
        keep: Callable[[], bool] = never,
        current: Current = always_current,
    ) -> AsyncIterator[Tree]:
        """Check a commit out for one job, and clean up whatever happens.

        Args:
            job_id: names the directory; letters, digits, `-` and `_`.
            repo_id: GitHub's numeric id, which survives renames.
            source: the commit, where it is, and what may fetch it; used for the fetch alone.
            keep: asked as the body ends, however it does: whether the files stay, for `reopen`.
            current: asked before files that stay are stored.

        Raises:
            CloneError: it could not be fetched; `RepositoryEmptyError`, `BranchGoneError`, `CommitGoneError` say why.
            WorkspaceError: another process works on this job.
        """
        folder, tree = self._folder(job_id), None
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)
            try:
                mirror = await self._provide(folder, repo_id, source)
                commit = await self._bare(folder, mirror, source.sha)
                copied = Pristine(
                    folder=mirror.path.with_suffix(".files"),
                    lock=mirror.path.with_suffix(".files.lock"),
                    seconds=self._seconds,
                )
                await copied.copy(self._git(folder), source.sha, folder / "files")
                entries = await asyncio.to_thread(entries_of, folder / "files")
                given = replace(commit, entries=entries)
                await asyncio.to_thread(save, folder / "trusted", given)
                tree = self._tree(folder, mirror, given, await asyncio.to_thread(begin_generation, folder))
                yield tree
            finally:
                # A cancelled job is cleaned up too: the shield lets the cleaning finish first.
                await asyncio.shield(self._leave(folder, tree, keep, current))

    @asynccontextmanager
    async def reopen(
        self,
        job_id: str,
        left: Left | None = None,
        *,
        keep: Callable[[], bool] = never,
        current: Current = always_current,
    ) -> AsyncIterator[Tree]:
        """Go on with the files of a job that were kept, as they were left; else as `open`.

        Nothing of what the agent can write is believed: the commit, and what was given of it, are read from beside the
        trusted git directory, or from the snapshot.

        Args:
            job_id: the one that they were opened for.
            left: which state of the files is wanted, and what a machine needs that does not have it; None for what is
                here, whatever it is.
            keep: see `open`.
            current: see `open`.

        Raises:
            WorkspaceGoneError: they are nowhere any more; what was left of them here is removed.
            CloneError: they are stored, but their commit could not be fetched.
            StorageError: they may be stored, but the store cannot be reached.
            WorkspaceError: another process works on this job.
        """
        folder = self._folder(job_id)
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            try:
                tree = await self._kept_here(folder, left)
                if tree is None and left is not None and self._snapshots is not None:
                    tree = await self._from_snapshot(folder, left, self._snapshots)
            except WorkspaceGoneError:
                await self._clean_up(folder)
                raise
            if tree is None:
                await self._clean_up(folder)
                raise WorkspaceGoneError(
                    f"The files of the waiting job {job_id} no longer exist.", "Give the command again."
                )
            # Whatever else fails until here may pass, and the files stay for the next attempt.
            try:
                yield tree
            finally:
                await asyncio.shield(self._leave(folder, tree, keep, current))

    async def discard(self, job_id: str) -> None:
        """Remove the files that were kept of a job; nothing to do when there are none.

        Raises:
            WorkspaceError: another process works on this job.
        """
        folder = self._folder(job_id)
        async with locked(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)
        if self._snapshots is not None:
            await forget(self._snapshots, job_id)

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
        found = (await self.read_each(repo_id, source, (path,), limit=limit))[path]
        if isinstance(found, WorkspaceError):
            raise found
        return found

    async def read_each(
        self, repo_id: int, source: Source, paths: Collection[str], *, limit: int
    ) -> dict[str, Blob | WorkspaceError | None]:
        """Several files, as `read` reads one; in place of raising, what is wrong with one stands in its place.

        Raises:
            CloneError: the commit could not be fetched.
        """
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=None)
        return await mirror.read(source.sha, paths, limit=limit)

    async def read_many(
        self, repo_id: int, source: Source, patterns: Sequence[str], *, most: int, limit: int
    ) -> dict[str, Blob]:
        """The regular files of a commit whose paths match globs in which `*` stays in a folder, without a checkout.

        Args:
            repo_id: GitHub's numeric id.
            source: the commit, where it is, and what may fetch it.
            patterns: the globs.
            most: how many files are read; further ones are left out, as are longer ones.
            limit: bytes of one file.

        Raises:
            CloneError: the commit could not be fetched.
        """
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=None)
        return await mirror.read_many(source.sha, patterns, most=most, limit=limit)

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
            with lock_if_free(self._lock_of(folder)) as is_held:
                if is_held:
                    await self._clean_up(folder)
                    removed.append(folder.name)
        if self._snapshots is not None:
            try:
                await asyncio.to_thread(self._snapshots.sweep, keep)
            except StorageError as error:
                log.warning("snapshots of ended jobs were not removed; the next sweep tries again: %s", error)
        return tuple(removed)

    async def store_owed(self, current: Current = always_current) -> None:
        """Store the files of jobs that could not be stored when they came to wait.

        Args:
            current: see `open`.
        """
        for owed in sorted(self._jobs.glob("*/owed")):
            folder = owed.parent
            with lock_if_free(self._lock_of(folder)) as is_held:
                if is_held and owed.exists():
                    try:
                        await self._store(folder, await asyncio.to_thread(load, folder / "trusted"), current)
                    except (OSError, ValueError) as error:
                        log.warning("%s: the files of the job cannot be stored: %s", folder.name, error)

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

    def _tree(self, folder: Path, mirror: Mirror, given: Baseline, generation: str) -> Tree:
        hold = partial(mirror.provide, keep=_onto(folder))
        return Tree(
            path=folder / "files",
            git=self._git(folder),
            trusted=folder / "trusted",
            baseline=given,
            hold=hold,
            pauses=self._pauses,
            generation=generation,
            kept_index=mirror.path.with_suffix(".index") / "code.db",
        )

    async def _provide(self, folder: Path, repo_id: int, source: Source) -> Mirror:
        """Make a job's directory, and have its commit in the mirror."""
        await asyncio.to_thread(folder.mkdir, 0o700)
        await asyncio.to_thread((folder / "repo").write_text, str(repo_id))
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=folder.name)
        return mirror

    async def _bare(self, folder: Path, mirror: Mirror, sha: str) -> Baseline:
        """Make the trusted git directory, and one for the files with nothing in it; give back what the commit lists."""
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
        return Baseline(base_sha=sha, modes=modes, blobs=blobs, entries={})

    async def _kept_here(self, folder: Path, left: Left | None) -> Tree | None:
        """The workspace as it was left on this machine; None when it is not here, or another state of it is."""
        repo_id = await asyncio.to_thread(_noted_repo, folder)
        names = await asyncio.to_thread(generations, folder)
        wanted = left.generation if left is not None else ""
        if repo_id is None or (wanted and wanted not in names):
            return None
        try:
            given = await asyncio.to_thread(load, folder / "trusted")
        except (OSError, ValueError):
            return None
        # A mirror that was deleted and fetched again has neither the ref nor, after a force-push, the commit.
        if not await self._mirror(repo_id).hold(given.base_sha, keep=folder.name):
            if left is None or left.source.sha != given.base_sha:
                return None
            await self._mirror(repo_id).provide(left.source, keep=folder.name)
        same = names[-1] if left is None and names else ""
        generation = same or await asyncio.to_thread(begin_generation, folder, after=wanted)
        return self._tree(folder, self._mirror(repo_id), given, generation)

    async def _from_snapshot(self, folder: Path, left: Left, snapshots: Snapshots) -> Tree | None:
        """The workspace as another machine left it; None when it stored none, or another state of it."""
        job_id = folder.name
        found = await asyncio.to_thread(snapshots.find, job_id, left.generation)
        if found is None or (found.repo_id, found.base_sha) != (left.repo_id, left.source.sha):
            return None
        manifest = await asyncio.to_thread(snapshots.manifest, job_id, found)
        await self._remove(folder)
        mirror = await self._provide(folder, left.repo_id, left.source)
        commit = await self._bare(folder, mirror, found.base_sha)
        stamps = await rebuild(folder / "files", manifest, snapshots.vault(job_id), self._git(folder))
        given = baseline_of(manifest, stamps, commit)
        await asyncio.to_thread(save, folder / "trusted", given)
        await asyncio.to_thread(note, folder / "trusted" / INDEX, found.manifest, manifest, stamps)
        log.info("the files were restored from %s", snapshots.blobs.address)
        generation = await asyncio.to_thread(begin_generation, folder, after=left.generation)
        return self._tree(folder, mirror, given, generation)

    async def _leave(self, folder: Path, tree: Tree | None, keep: Callable[[], bool], current: Current) -> None:
        if tree is None:
            await self._clean_up(folder)
        elif keep():
            # Files that a power cut shortened would otherwise be published as the agent's work.
            await asyncio.to_thread(os.sync)
            await self._store(folder, tree.baseline, current)
        else:
            await self._clean_up(folder)
            if self._snapshots is not None:
                await forget(self._snapshots, folder.name, tree.generation, current)

    async def _store(self, folder: Path, given: Baseline, current: Current) -> None:
        if self._snapshots is not None:
            repo_id = await asyncio.to_thread(_noted_repo, folder)
            await store(self._snapshots, folder, given=given, repo_id=repo_id or 0, current=current)

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
            await in_thread(discard, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The files of a job as its last attempt has left them, on whichever machine.

    Attributes:
        generation: names their state, as `Tree.generation` did; empty where that was not recorded.
        repo_id: GitHub's numeric id.
        source: the commit that they were taken from.
    """

    generation: str
    repo_id: int
    source: Source


def begin_generation(folder: Path, *, after: str = "") -> str:
    """Name the state of a job's files that begins now.

    Until somebody has recorded the new name, the files are still as the one before names them; so both are noted.
    """
    generation = secrets.token_hex(8)
    write_atomically(folder / _GENERATIONS, "\n".join(filter(None, (after, generation))))
    return generation


def generations(folder: Path) -> list[str]:
    """The names that the state of a job's files may have, the newest last; none where there are no files."""
    note = folder / _GENERATIONS
    return note.read_text().split() if note.exists() else []


async def store(snapshots: Snapshots, folder: Path, *, given: Baseline, repo_id: int, current: Current) -> None:
    """Take a snapshot of a job's files, if they are still the job's.

    What fails is logged: the files are on this machine, and where it may pass, a note says that they are to be stored.
    """
    owed, job_id = folder / "owed", folder.name
    [*_, generation] = await asyncio.to_thread(generations, folder)
    await asyncio.to_thread(owed.touch)
    take = partial(snapshots.take, given=given, repo_id=repo_id, generation=generation)
    try:
        if await current(job_id, generation):
            skipped = await asyncio.to_thread(take, job_id, folder / "files", folder / "trusted" / INDEX)
            if skipped:
                log.info("%s: %d pipes, sockets or devices were not stored", job_id, skipped)
    except (QueueError, StorageError) as error:
        log.warning("%s: only this machine can continue the job until its files are stored: %s", job_id, error)
        return
    except (WorkspaceError, OSError) as error:
        log.warning("%s: only this machine can continue the job: %s", job_id, error)
    await asyncio.to_thread(owed.unlink, missing_ok=True)


async def forget(snapshots: Snapshots, job_id: str, generation: str = "", current: Current = always_current) -> None:
    """Remove what is stored of a job, if its files are still those of a generation; what fails is left to a sweep."""
    try:
        if await current(job_id, generation):
            await asyncio.to_thread(snapshots.forget, job_id)
    except (QueueError, StorageError) as error:
        log.warning("%s: the snapshot of the job was not removed; a sweep tries again: %s", job_id, error)


def listed(sha: str, listing: bytes) -> tuple[dict[bytes, str], dict[str, str]]:
    """Path to mode, and path to blob id.

    Raises:
        WorkspaceError: a file is too deep; or a name stands for two things, of which checked out one could be a link
            and the other lie behind it.
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
            f"Commit {sha[:10]} contains {name} twice in one directory, so it cannot be checked out.",
            "Remove the directory and add it again, in a new commit.",
        )
    if any(map(is_too_deep, modes)):
        raise WorkspaceError(
            f"Commit {sha[:10]} has files nested more than {DEEPEST} directories deep, or paths over {LONGEST_PATH:,} "
            "bytes.",
            "Move them up.",
        )
    return modes, blobs


def _onto(folder: Path) -> str:
    """Names the keep ref of the commit that a change is replayed on; no job is called so."""
    return f"{folder.name}.onto"


def _noted_repo(folder: Path) -> int | None:
    note = folder / "repo"
    text = note.read_text() if note.exists() else ""
    return int(text) if text.isdecimal() else None
