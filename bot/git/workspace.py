"""Workspaces of jobs: shared mirrors, and a private directory for each job that is always cleaned up.

The files of a waiting job stay on the machine, and in a snapshot for other machines.
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

from bot.domain.difference import ChangedFile, Section, parse_patch
from bot.domain.errors import QueueError, StorageError
from bot.git.agent_repository import OBJECTS, AgentRepository, Refs, plan_repository
from bot.git.baseline import Baseline, load_baseline, save_baseline, scan_files
from bot.git.compare import Comparison
from bot.git.errors import CloneError, WorkspaceError, WorkspaceGoneError
from bot.git.filesystem import (
    MAX_DEPTH,
    MAX_PATH_BYTES,
    SET_ASIDE,
    discard,
    hold_lock,
    is_too_deep,
    lock_if_free,
    parent_folders,
    run_thread,
    write_atomically,
)
from bot.git.merge import Merge
from bot.git.merge_tree import merge_commits
from bot.git.mirror import Blob, CheckoutCache, Maintenance, Mirror, MirrorLimits, Source, create_repository
from bot.git.process import PAUSES, Git, ProcessBounds
from bot.git.snapshots import Snapshots, rebuild, restored_baseline, save_index
from bot.git.tree import Tree

log = logging.getLogger(__name__)
INDEX = "snapshot.json"
"""Cache of the stored snapshot, next to the trusted git directory."""
_GENERATIONS = "generation"
_PATCH_BYTES, _FILE_PATCH_BYTES, _MAX_LARGE_FILES = 4 * 1024 * 1024, 512 * 1024, 10
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
IsCurrent = Callable[[str, str], Awaitable[bool]]
"""Whether a generation of a job's files is still current; another worker may have taken over.

It raises `QueueError` if this is unknown.
"""


async def always_current(_job_id: str, _generation: str) -> bool:
    return True


def keep_nothing() -> bool:
    return False


class Workspaces:
    """All workspaces of this machine, shared by several worker processes; `root` may be read by no sandbox."""

    def __init__(
        self,
        root: Path,
        *,
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
        pauses: tuple[float, ...] = PAUSES,
        limits: MirrorLimits | None = None,
        snapshots: Snapshots | None = None,
        shows_objects: bool = True,
    ) -> None:
        """Create the directories.

        Args:
            shows_objects: whether sandboxes show a mirror's objects at `OBJECTS`; otherwise they are where they are.
        """
        self._mirrors = root / "mirrors"
        self._jobs = root / "jobs"
        self._environment = dict(environment or {})
        self._seconds = seconds
        self._pauses = pauses
        self._limits = limits or MirrorLimits()
        self._snapshots = snapshots
        self._shows_objects = shows_objects
        self._checkouts_taken: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._removed: asyncio.Queue[Path] = asyncio.Queue()
        self._defers_removal = False
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
        refs: Refs | None = None,
        has_files: bool = True,
        keep: Callable[[], bool] = keep_nothing,
        current: IsCurrent = always_current,
    ) -> AsyncIterator[Tree]:
        """Check out a commit for one job, and clean up on exit.

        Args:
            has_files: `Tree.edit` needs none.
            refs: of a repository for the agent; None makes none.
            keep: called on exit; whether the files stay for `reopen`.
            current: called before kept files are stored.

        Raises:
            CloneError: the commit could not be fetched; subclasses tell why.
            WorkspaceError: another process has this job.
        """
        folder, tree = self._folder(job_id), None
        async with hold_lock(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)
            try:
                mirror = await self._provide(folder, repo_id, source)
                commit = await self._init_trusted(folder, mirror, source.sha)
                index = folder / "trusted" / "checkout.index"
                if has_files:
                    await CheckoutCache(mirror).copy(self._git(folder), source.sha, folder / "files", index)
                    self._checkouts_taken.put_nowait((repo_id, source.sha))
                entries = await asyncio.to_thread(scan_files, folder / "files")
                baseline = replace(commit, entries=entries)
                await asyncio.to_thread(save_baseline, folder / "trusted", baseline)
                repository = await self._plan_repository(folder, mirror, source, refs)
                if repository is not None:
                    await repository.write(self._git(folder), source.sha, index=index)
                generation = await asyncio.to_thread(begin_generation, folder)
                tree = self._make_tree(folder, mirror, baseline, generation, repository)
                yield tree
            finally:
                # The shield lets the cleanup of a cancelled job finish.
                await asyncio.shield(self._close(folder, tree, keep, current))

    @asynccontextmanager
    async def reopen(
        self,
        job_id: str,
        ref: WorkspaceRef | None = None,
        *,
        refs: Refs | None = None,
        keep: Callable[[], bool] = keep_nothing,
        current: IsCurrent = always_current,
    ) -> AsyncIterator[Tree]:
        """Resume with the kept files of a job, from this machine or the snapshot; otherwise like `open`.

        Nothing that the agent can write is trusted. Without `ref`, any state on this machine will do.

        Raises:
            WorkspaceGoneError: the files exist nowhere.
            CloneError: the commit could not be fetched.
            StorageError: the store cannot be reached.
            WorkspaceError: another process has this job.
        """
        folder = self._folder(job_id)
        async with hold_lock(self._lock_of(folder), seconds=self._seconds, once=True):
            try:
                tree = await self._open_local(folder, ref, refs)
                if tree is None and ref is not None and self._snapshots is not None:
                    tree = await self._open_snapshot(folder, ref, refs, self._snapshots)
            except WorkspaceGoneError:
                await self._clean_up(folder)
                raise
            if tree is None:
                await self._clean_up(folder)
                raise WorkspaceGoneError(
                    f"The files of the waiting job {job_id} no longer exist.", "Give the command again."
                )
            # Other failures above may be transient, so the files stay for the next attempt.
            try:
                yield tree
            finally:
                await asyncio.shield(self._close(folder, tree, keep, current))

    async def discard(self, job_id: str) -> None:
        folder = self._folder(job_id)
        async with hold_lock(self._lock_of(folder), seconds=self._seconds, once=True):
            await self._remove(folder)
        if self._snapshots is not None:
            await delete_snapshot(self._snapshots, job_id)

    async def read(self, repo_id: int, source: Source, path: str, *, limit: int) -> Blob | None:
        """Read a file of a commit without a checkout; None if missing.

        Raises:
            CloneError: the commit could not be fetched.
            WorkspaceError: it is no regular file, or has more than `limit` bytes.
        """
        file = (await self.read_each(repo_id, source, (path,), limit=limit))[path]
        if isinstance(file, WorkspaceError):
            raise file
        return file

    async def read_each(
        self, repo_id: int, source: Source, paths: Collection[str], *, limit: int
    ) -> dict[str, Blob | WorkspaceError | None]:
        mirror = await self._fetch(repo_id, source)
        return await mirror.read(source.sha, paths, limit=limit)

    async def list_blobs(self, repo_id: int, source: Source) -> dict[str, str]:
        mirror = await self._fetch(repo_id, source)
        return await mirror.list_blobs(source.sha)

    async def read_many(
        self, repo_id: int, source: Source, patterns: Sequence[str], *, most: int, limit: int
    ) -> dict[str, Blob]:
        """Read up to `most` regular files that match globs; `*` does not match `/`, and files over `limit` are skipped.

        Raises:
            CloneError: the commit could not be fetched.
        """
        mirror = await self._fetch(repo_id, source)
        return await mirror.read_many(source.sha, patterns, most=most, limit=limit)

    async def read_titles(self, repo_id: int, source: Source, *, most: int) -> tuple[str, ...]:
        """Return the titles of the latest commits without merges, newest first."""
        mirror = await self._fetch(repo_id, source)
        return await mirror.read_titles(source.sha, most=most)

    async def compare(self, repo_id: int, base: Source, head: Source) -> Comparison:
        """Compare `head` with its merge base with `base`.

        Raises:
            CloneError: a commit could not be fetched.
        """
        mirror = await self._fetch(repo_id, base, head)
        return await mirror.compare(base.sha, head.sha)

    async def read_sections(
        self, repo_id: int, comparison: Comparison, files: Sequence[ChangedFile]
    ) -> tuple[Section, ...]:
        """Return the sections of some files' patch, in its order; long ones are cut."""
        mirror = self._mirror(repo_id)
        patch = await mirror.read_patch(comparison, files, limit=_PATCH_BYTES)
        sections = await asyncio.to_thread(_parse_sections, patch)
        if len(patch) < _PATCH_BYTES:
            return sections
        # A large file must not hide those that follow.
        whole = {section.path: section for section in sections[:-1]}
        missing = [file for file in files if file.lines and file.path not in whole]
        for file in missing[:_MAX_LARGE_FILES]:
            patch = await mirror.read_patch(comparison, [file], limit=_FILE_PATCH_BYTES)
            whole |= {section.path: section for section in await asyncio.to_thread(_parse_sections, patch)}
        return tuple(whole.values())

    async def merge(self, repo_id: int, head: Source, base: Source) -> Merge | None:
        """Merge the base branch's commit into `head`; None if `head` contains it. A workspace can open the result.

        Raises:
            CloneError: a commit could not be fetched.
            WorkspaceError: they have no common history.
        """
        mirror = await self._fetch(repo_id, head, base)
        merge = await merge_commits(mirror.git, head.sha, base.sha, branch=base.ref.removeprefix("refs/heads/"))
        if merge is not None:
            await mirror.protect(merge.commit)
        return merge

    async def sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove leftovers of killed workers, and return their job ids.

        Args:
            keep: jobs that have not ended, including those on other machines, which may begin to wait at any moment.
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

    async def store_pending(self, current: IsCurrent = always_current) -> None:
        for marker in sorted(self._jobs.glob("*/owed")):
            folder = marker.parent
            with lock_if_free(self._lock_of(folder)) as is_held:
                if is_held and marker.exists():
                    try:
                        await self._store(folder, await asyncio.to_thread(load_baseline, folder / "trusted"), current)
                    except (OSError, ValueError) as error:
                        log.warning("%s: the files of the job cannot be stored: %s", folder.name, error)

    async def tidy(self) -> None:
        await Maintenance(self._mirrors, self._mirror, self._limits).tidy()

    async def prepare_checkout(self) -> None:
        """Wait until a job has taken its files, and prepare those of the repository's next job."""
        repo_id, sha = await self._checkouts_taken.get()
        try:
            await CheckoutCache(self._mirror(repo_id)).prepare(sha)
        except (WorkspaceError, OSError) as error:
            log.warning("no checkout of repository %d was prepared, so its next job takes longer: %s", repo_id, error)

    async def remove_ended(self) -> None:
        """Wait for the end of a job, and remove its files. From the first call on, jobs end before that."""
        self._defers_removal = True
        folder = await self._removed.get()
        with lock_if_free(self._lock_of(folder)) as is_held:
            if is_held:
                await run_thread(discard, folder)

    def _mirror(self, repo_id: int) -> Mirror:
        return Mirror(
            path=self._mirrors / f"{repo_id}.git",
            lock=self._mirrors / f"{repo_id}.lock",
            environment=self._environment,
            seconds=self._seconds,
            pauses=self._pauses,
            limits=self._limits,
        )

    async def _fetch(self, repo_id: int, *sources: Source) -> Mirror:
        """Return the repository's mirror, which has the commits for now."""
        mirror = self._mirror(repo_id)
        for source in sources:
            await mirror.provide(source, keep=None)
        return mirror

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

    async def _plan_repository(
        self, folder: Path, mirror: Mirror, source: Source, refs: Refs | None
    ) -> AgentRepository | None:
        if refs is None:
            return None
        if refs.base is not None:
            try:
                await mirror.provide(refs.base, keep=_base_keep(folder))
            except CloneError as error:  # a branch that was deleted or moved just now
                log.warning("the agent's repository has no base branch: %s", error)
                refs = replace(refs, base=None)
        objects = OBJECTS if self._shows_objects else f"{mirror.path}/objects"
        return await plan_repository(folder / "files", mirror, source, refs, objects=objects)

    def _make_tree(
        self, folder: Path, mirror: Mirror, baseline: Baseline, generation: str, repository: AgentRepository | None
    ) -> Tree:
        keep_commit = partial(mirror.provide, keep=_replay_keep(folder))
        return Tree(
            path=folder / "files",
            git=self._git(folder),
            trusted=folder / "trusted",
            baseline=baseline,
            hold=keep_commit,
            pauses=self._pauses,
            generation=generation,
            code_index=mirror.path.with_suffix(".index") / "code.db",
            repository=repository,
            readable={OBJECTS: mirror.path / "objects"} if repository is not None and self._shows_objects else {},
        )

    async def _provide(self, folder: Path, repo_id: int, source: Source) -> Mirror:
        await asyncio.to_thread(folder.mkdir, 0o700)
        await asyncio.to_thread((folder / "repo").write_text, str(repo_id))
        mirror = self._mirror(repo_id)
        await mirror.provide(source, keep=folder.name)
        return mirror

    async def _init_trusted(self, folder: Path, mirror: Mirror, sha: str) -> Baseline:
        trusted, files = folder / "trusted", folder / "files"
        for directory in (trusted, files):
            directory.mkdir(mode=0o700)
        git = self._git(folder)
        await create_repository(git, mirror)
        listing = await git.run("ls-tree", "-r", "-z", "--full-tree", sha)
        modes, blobs = await asyncio.to_thread(parse_listing, sha, listing)  # a second for 200,000 files
        return Baseline(base_sha=sha, modes=modes, blobs=blobs, entries={})

    async def _open_local(self, folder: Path, ref: WorkspaceRef | None, refs: Refs | None) -> Tree | None:
        repo_id = await asyncio.to_thread(_read_repo_id, folder)
        names = await asyncio.to_thread(read_generations, folder)
        wanted = ref.generation if ref is not None else ""
        if repo_id is None or (wanted and wanted not in names):
            return None
        try:
            baseline = await asyncio.to_thread(load_baseline, folder / "trusted")
        except (OSError, ValueError):
            return None
        # A mirror that was deleted and fetched again has neither the ref nor, after a force-push, the commit.
        if not await self._mirror(repo_id).keep_commit(baseline.base_sha, keep=folder.name):
            if ref is None or ref.source.sha != baseline.base_sha:
                return None
            await self._mirror(repo_id).provide(ref.source, keep=folder.name)
        unchanged = names[-1] if ref is None and names else ""
        generation = unchanged or await asyncio.to_thread(begin_generation, folder, after=wanted)
        mirror = self._mirror(repo_id)
        repository = None if ref is None else await self._plan_repository(folder, mirror, ref.source, refs)
        return self._make_tree(folder, mirror, baseline, generation, repository)

    async def _open_snapshot(
        self, folder: Path, ref: WorkspaceRef, refs: Refs | None, snapshots: Snapshots
    ) -> Tree | None:
        job_id = folder.name
        snapshot = await asyncio.to_thread(snapshots.find, job_id, ref.generation)
        if snapshot is None or (snapshot.repo_id, snapshot.base_sha) != (ref.repo_id, ref.source.sha):
            return None
        manifest = await asyncio.to_thread(snapshots.manifest, job_id, snapshot)
        await self._remove(folder)
        mirror = await self._provide(folder, ref.repo_id, ref.source)
        commit = await self._init_trusted(folder, mirror, snapshot.base_sha)
        stamps = await rebuild(folder / "files", manifest, snapshots.vault(job_id), self._git(folder))
        baseline = restored_baseline(manifest, stamps, commit)
        await asyncio.to_thread(save_baseline, folder / "trusted", baseline)
        await asyncio.to_thread(save_index, folder / "trusted" / INDEX, snapshot.manifest, manifest, stamps)
        log.info("the files were restored from %s", snapshots.blobs.address)
        repository = await self._plan_repository(folder, mirror, ref.source, refs)
        if repository is not None:  # what the agent committed is lost, but in the files
            await repository.write(self._git(folder), snapshot.base_sha)
        generation = await asyncio.to_thread(begin_generation, folder, after=ref.generation)
        return self._make_tree(folder, mirror, baseline, generation, repository)

    async def _close(self, folder: Path, tree: Tree | None, keep: Callable[[], bool], current: IsCurrent) -> None:
        if tree is None:
            await self._clean_up(folder)
        elif keep():
            # Files truncated by a power cut must not be published as the agent's work.
            await asyncio.to_thread(os.sync)
            await self._store(folder, tree.baseline, current)
        else:
            await self._clean_up(folder, later=self._defers_removal)
            if self._snapshots is not None:
                await delete_snapshot(self._snapshots, folder.name, tree.generation, current)

    async def _store(self, folder: Path, baseline: Baseline, current: IsCurrent) -> None:
        if self._snapshots is not None:
            repo_id = await asyncio.to_thread(_read_repo_id, folder)
            await store_snapshot(self._snapshots, folder, baseline=baseline, repo_id=repo_id or 0, current=current)

    async def _clean_up(self, folder: Path, *, later: bool = False) -> None:
        try:
            await self._remove(folder, later=later)
        except (WorkspaceError, OSError) as error:
            log.warning("job %s: not cleaned up; the next sweep tries again: %s", folder.name, error)

    async def _remove(self, folder: Path, *, later: bool = False) -> None:
        repo_id = await asyncio.to_thread(_read_repo_id, folder)
        try:
            if repo_id is not None:
                await self._mirror(repo_id).release(folder.name, _replay_keep(folder), _base_keep(folder))
        finally:
            if later:
                self._removed.put_nowait(await run_thread(_rename_removed, folder))
            else:
                await run_thread(discard, folder)


def _parse_sections(patch: bytes) -> tuple[Section, ...]:
    """Parse a patch; a file that becomes a link has two sections there, and one here."""
    sections: dict[str, Section] = {}
    for section in parse_patch(patch.decode("utf-8", "surrogateescape")):
        earlier = sections.get(section.path)
        hunks = (*(earlier.hunks if earlier is not None else ()), *section.hunks)
        sections[section.path] = replace(section, hunks=hunks)
    return tuple(sections.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRef:
    """Files of a job as its last attempt left them, on any machine."""

    generation: str
    repo_id: int
    source: Source


def begin_generation(folder: Path, *, after: str = "") -> str:
    """Start a new generation of a job's files.

    Both names are stored: until the new one is recorded elsewhere, the files still count as the previous generation.
    """
    generation = secrets.token_hex(8)
    write_atomically(folder / _GENERATIONS, "\n".join(filter(None, (after, generation))))
    return generation


def read_generations(folder: Path) -> list[str]:
    note = folder / _GENERATIONS
    return note.read_text().split() if note.exists() else []


async def store_snapshot(
    snapshots: Snapshots, folder: Path, *, baseline: Baseline, repo_id: int, current: IsCurrent
) -> None:
    """Store a snapshot of a job's files, if they are current.

    Failures are logged, since the files exist on this machine; a marker file requests a retry of transient ones.
    """
    marker, job_id = folder / "owed", folder.name
    [*_, generation] = await asyncio.to_thread(read_generations, folder)
    await asyncio.to_thread(marker.touch)
    take = partial(snapshots.take, baseline=baseline, repo_id=repo_id, generation=generation)
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
    await asyncio.to_thread(marker.unlink, missing_ok=True)


async def delete_snapshot(
    snapshots: Snapshots, job_id: str, generation: str = "", current: IsCurrent = always_current
) -> None:
    """Delete a job's snapshot, if the generation is current; a sweep retries failures."""
    try:
        if await current(job_id, generation):
            await asyncio.to_thread(snapshots.delete, job_id)
    except (QueueError, StorageError) as error:
        log.warning("%s: the snapshot of the job was not removed; a sweep tries again: %s", job_id, error)


def parse_listing(sha: str, listing: bytes) -> tuple[dict[bytes, str], dict[str, str]]:
    """Parse a listing into modes and blob ids by path.

    Raises:
        WorkspaceError: a path is too deep, or occurs as both a file and a directory.
    """
    modes: dict[bytes, str] = {}
    blobs: dict[str, str] = {}
    records = listing.split(b"\0")[:-1]
    for record in records:
        facts, _, path = record.partition(b"\t")
        modes[path], _, blobs[os.fsdecode(path)] = facts.decode().split(" ")
    doubled = next((path for path in parent_folders(modes) if path in modes), None)
    if doubled is not None or len(modes) < len(records):
        name = f"`{os.fsdecode(doubled)}`" if doubled is not None else "a name"
        raise WorkspaceError(
            f"Commit {sha[:10]} contains {name} twice in one directory, so it cannot be checked out.",
            "Remove the directory and add it again, in a new commit.",
        )
    if any(map(is_too_deep, modes)):
        raise WorkspaceError(
            f"Commit {sha[:10]} has files nested more than {MAX_DEPTH} directories deep, or paths over "
            f"{MAX_PATH_BYTES:,} bytes.",
            "Move them up.",
        )
    return modes, blobs


def _replay_keep(folder: Path) -> str:
    return f"{folder.name}.onto"


def _base_keep(folder: Path) -> str:
    return f"{folder.name}.base"


def _rename_removed(folder: Path) -> Path:
    """Rename a job's directory, so that its name can be used again; a sweep removes it after a crash."""
    (folder / "repo").unlink(missing_ok=True)  # the mirror has released its commits
    return folder.rename(folder.with_name(f".removed-{folder.name}-{secrets.token_hex(4)}"))


def _read_repo_id(folder: Path) -> int | None:
    note = folder / "repo"
    text = note.read_text() if note.exists() else ""
    return int(text) if text.isdecimal() else None
