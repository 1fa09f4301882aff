"""Bare mirrors, one per repository id, shared by all jobs; their content can be fetched again.

A keep ref protects each commit while a job needs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from bot.domain.commands import is_safe_branch
from bot.domain.difference import ChangedFile
from bot.git.change import REGULAR_MODES, SYMLINK
from bot.git.compare import Comparison, compare, read_patch
from bot.git.errors import (
    REF_MISSING,
    BranchGoneError,
    CloneError,
    CommitGoneError,
    FetchTooLargeError,
    GitError,
    LinkError,
    RepositoryEmptyError,
    WorkspaceError,
)
from bot.git.filesystem import discard, hold_lock, lock_if_free, remove_tree, run_thread
from bot.git.process import PAUSES, UNKNOWN_AUTHORITY, Credential, Git, ProcessBounds, retry

log = logging.getLogger(__name__)
KEEP_REFS = "refs/keep/"
RECENT_REFS = "refs/recent/"
RECENT_SECONDS = 3600
"""Minimum age before an unused commit is pruned."""
_LONGEST_PATH = 4096
"""Bytes; the kernel's limit."""
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PULL = re.compile(r"refs/pull/\d+/head")
_FETCH = ("fetch", "--quiet", "--no-write-fetch-head", "--no-auto-maintenance")
_FETCH_REFS = "refs/mirror/"
_TAGS = "refs/tags"
HISTORY_DEPTH = 50
"""Commits of a history that is too large to be fetched."""
_LOCKS = ("*.lock", "refs/**/*.lock", "objects/*.lock", "objects/pack/*.lock", "objects/info/**/*.lock")
"""Locations of git's lock files; loose objects have none."""
_REMOVED = ".removed-"
_BLOCK = 512
_DAY_SECONDS = 24 * 3600.0
_LOOSE_END_BYTES = 64 * 1024**2

# A git may outlive the bot, and finish a fetch whose commit has no ref yet.
_GRACE_SECONDS = 3600

# After this time without use, a mirror has no recent commit.
_SETTLED_SECONDS = 2 * RECENT_SECONDS + 2 * _GRACE_SECONDS
_MAX_LOOSE_TAGS = 200

# Files are checked out to the byte, whatever `.gitattributes` says: no filter, no line-ending conversion, no keyword.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff !merge !eol\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Size limits of mirrors, per fetch and in total; anyone may open a pull request from a fork."""

    fetch_bytes: int = 1024 * 1024**2
    pull_bytes: int = 256 * 1024**2
    total_bytes: int = 20 * 1024**3
    unused_seconds: float = 90 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A commit to fetch; `url` comes from GitHub's API, never from an event payload."""

    url: str
    token: str = field(repr=False)
    ref: str
    sha: str

    def __post_init__(self) -> None:
        if not _SHA.fullmatch(self.sha):
            raise CloneError(f"{self.sha!r} is not a commit id.", "Pass the full hexadecimal id.")
        branch = self.ref.removeprefix("refs/heads/")
        if not (is_safe_branch(branch) if branch != self.ref else _PULL.fullmatch(self.ref)):
            raise CloneError(f"{self.ref!r} is not the name of a branch or pull request.", "Rename the branch.")

    @property
    def is_pull(self) -> bool:
        return _PULL.fullmatch(self.ref) is not None

    @property
    def credential(self) -> Credential:
        return Credential(url=self.url, token=self.token)

    @property
    def name(self) -> str:
        return "/".join(urlsplit(self.url).path.strip("/").removesuffix(".git").split("/")[-2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    id: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    path: Path
    lock: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 600.0
    pauses: tuple[float, ...] = PAUSES
    limits: MirrorLimits = field(default_factory=MirrorLimits)

    @property
    def git(self) -> Git:
        return Git(git_dir=self.path, environment=self.environment, bounds=ProcessBounds(seconds=self.seconds))

    @property
    def shallow(self) -> Path:
        """Git's list of the commits whose parents are left out, if the whole history is too large to be fetched."""
        return self.path / "shallow"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock, without leftovers of a killed git.

        Raises:
            WorkspaceError: timed out waiting for the lock.
        """
        async with hold_lock(self.lock, seconds=self.seconds):
            self._remove_leftovers()
            yield

    async def provide(self, source: Source, *, keep: str | None) -> None:
        """Ensure that the commit is in the mirror, under a keep ref until `release`, or only briefly without one.

        Raises:
            CloneError: the commit could not be fetched; subclasses tell why.
        """
        async with self.locked():
            # `init` writes HEAD last, so an incomplete mirror is created again.
            if not (self.path / "HEAD").exists():
                await self.git.run("init", "--bare", "--quiet", "--template=", self.path)
            # Created below once the commit is complete; refs protect against pruning.
            is_recent = (self.path / _recent_ref(source.sha)).exists()
            if not is_recent and not await self._has_commit(source.sha):
                await self._fetch(source)
            os.utime(self.lock)  # when it was last used, for the upkeep
            if keep is not None:
                await self.git.run("update-ref", _keep_ref(keep), source.sha)
            if not is_recent and (keep is None or source.is_pull):
                await self.git.run("update-ref", _recent_ref(source.sha), source.sha)

    async def read(self, sha: str, paths: Collection[str], *, limit: int) -> dict[str, Blob | WorkspaceError | None]:
        """Read files of a present commit.

        Paths are literal, without wildcards. The value is None for a missing file, and an error for one longer than
        `limit` bytes or not regular.
        """
        files: dict[str, Blob | WorkspaceError | None] = dict.fromkeys(paths)
        names = {encoded: path for path in paths if (encoded := _encode_path(path))}
        if not names:
            return files
        for name, mode, blob, size in await self._list_entries(sha, names):
            if (path := names.get(name)) is None:
                continue
            file, remedy = f"`{path}` of commit {sha[:10]}", "Commit a regular file there, or nothing."
            if mode == SYMLINK and size <= _LONGEST_PATH:
                target = await self.git.run("cat-file", "blob", blob)
                files[path] = LinkError(path, f"{file} is a symbolic link.", remedy, target)
            elif mode not in REGULAR_MODES:
                files[path] = WorkspaceError(f"{file} is no file.", remedy)
            elif size > limit:
                files[path] = WorkspaceError(f"{file} has {size:,} bytes; the limit is {limit:,}.", "Make it shorter.")
            else:
                files[path] = Blob(id=blob, content=await self.git.run("cat-file", "blob", blob))
        return files

    async def list_blobs(self, sha: str) -> dict[str, str]:
        """Return the ids of all files of a present commit, links included."""
        listing = await self.git.run("ls-tree", "-r", "-z", "--full-tree", sha)
        return await asyncio.to_thread(_parse_blobs, listing)

    async def read_many(self, sha: str, patterns: Sequence[str], *, most: int, limit: int) -> dict[str, Blob]:
        roots = sorted({pattern.partition("*")[0].rstrip("/") for pattern in patterns})
        files: dict[str, Blob] = {}
        for name, mode, blob, size in await self._list_entries(sha, roots, "-r"):
            path = os.fsdecode(name)
            if len(files) == most:
                break
            is_wanted = any(path.count("/") == glob.count("/") and fnmatchcase(path, glob) for glob in patterns)
            if is_wanted and mode in REGULAR_MODES and size <= limit:
                files[path] = Blob(id=blob, content=await self.git.run("cat-file", "blob", blob))
        return files

    async def read_titles(self, sha: str, *, most: int) -> tuple[str, ...]:
        command = ("log", "--no-merges", f"--max-count={most}", "--format=%<(500,trunc)%s", sha, "--")
        text = (await self.git.run(*command)).decode("utf-8", "replace")
        return tuple(line.rstrip() for line in text.splitlines())

    async def _list_entries(
        self, sha: str, paths: Iterable[str | bytes], *options: str
    ) -> list[tuple[bytes, str, str, int]]:
        command = ("--literal-pathspecs", "ls-tree", "-z", "--long", "--full-tree")
        listing = await self.git.run(*command, *options, sha, "--", *paths)
        entries = []
        for line in listing.split(b"\0")[:-1]:
            facts, _, name = line.partition(b"\t")
            mode, _, blob, size = facts.decode().split()
            entries.append((name, mode, blob, 0 if size == "-" else int(size)))
        return entries

    async def keep_commit(self, sha: str, *, keep: str) -> bool:
        async with self.locked():
            if not self.path.exists() or not await self._has_commit(sha):
                return False
            os.utime(self.lock)
            await self.git.run("update-ref", _keep_ref(keep), sha)
            return True

    async def protect(self, sha: str) -> None:
        """Protect a commit made here until a job keeps it."""
        async with self.locked():
            await self.git.run("update-ref", _recent_ref(sha), sha)

    async def release(self, *keeps: str) -> None:
        async with self.locked():
            if self.path.exists():
                os.utime(self.lock)
                deleted = "".join(f"delete {_keep_ref(keep)}\n" for keep in keeps)
                await self.git.run("update-ref", "--stdin", stdin=deleted.encode())

    async def compare(self, base: str, head: str) -> Comparison:
        return await compare(self.git, base, head)

    async def read_patch(self, comparison: Comparison, files: Iterable[ChangedFile], *, limit: int) -> bytes:
        return await read_patch(self.git, comparison, files, limit=limit)

    async def _has_commit(self, sha: str) -> bool:
        """Whether a commit is complete; its removal may have been interrupted."""
        try:
            await self.git.run("rev-list", "--quiet", "--objects", f"{sha}^{{commit}}", "--not", "--all")
        except GitError:
            return False
        return True

    async def _fetch(self, source: Source) -> None:
        try:
            if source.is_pull:
                await self._fetch_default(source)
                await self._fetch_ref(source, source.ref)
            else:
                await self._fetch_branch(source, source.ref)
        except GitError as error:
            raise await self._fetch_error(source, error) from error
        if await self._has_commit(source.sha):
            return
        try:
            await self._fetch_ref(source, source.sha)
        except GitError as error:
            if error.errno or error.certainty == "passing":
                raise await self._fetch_error(source, error) from error
            raise CommitGoneError(
                f"Commit {source.sha[:10]} is no longer on `{_short_ref(source.ref)}`.",
                "It was removed by a force-push: give the command again.",
            ) from error

    async def _fetch_branch(self, source: Source, ref: str) -> None:
        """Fetch a branch with the tags in its history."""
        refspec = f"+{ref}:{_fetched_ref(ref)}"
        try:
            await self._fetch_ref(source, refspec, tags=True)
        except GitError as error:
            is_blocked = f"{_TAGS}/" in error.stderr  # by a tag `a` of the mirror, if there is an `a/b` now
            if is_blocked:
                deleted = await self.git.run("for-each-ref", "--format=delete %(refname)", _TAGS)
                await self.git.run("update-ref", "--stdin", stdin=deleted)
            elif "fsck" not in error.stderr:
                raise
            await self._fetch_ref(source, refspec, tags=is_blocked)  # perhaps only an old tag is malformed
        if await asyncio.to_thread(self._count_loose_tags) > _MAX_LOOSE_TAGS:
            await self.git.run("pack-refs")  # of tags alone: a recent commit is known by its file

    def _count_loose_tags(self) -> int:
        return sum(len(files) for _, _, files in os.walk(self.path / "refs" / "tags"))

    async def _fetch_default(self, source: Source) -> None:
        """Fetch the default branch first, so that a pull request's head adds only its own objects."""
        if await self.git.run("for-each-ref", "--count=1", _FETCH_REFS):
            return
        try:
            await self._fetch_branch(replace(source, ref="refs/heads/HEAD"), "HEAD")
        except GitError as error:
            if REF_MISSING not in error.stderr:
                raise

    async def _fetch_ref(self, source: Source, refspec: str, *, tags: bool = False) -> None:
        """Fetch a refspec; of a branch whose history is too large, the last commits."""
        try:
            await self._fetch_pack(source, refspec, *(() if tags else ("--no-tags",)))
        except FetchTooLargeError:
            # A stranger's pull request is only small if the whole history is here.
            if source.is_pull and not self.shallow.exists():
                raise
            await self._fetch_pack(source, refspec, "--no-tags", f"--depth={HISTORY_DEPTH}")

    async def _fetch_pack(self, source: Source, refspec: str, *options: str) -> None:
        """Fetch a refspec with retries; a failed fetch leaves nothing.

        The objects arrive as one pack, so the kernel's file size limit bounds the fetch.

        Raises:
            FetchTooLargeError: the pack exceeds the limit.
        """
        max_bytes = self.limits.pull_bytes if source.is_pull else self.limits.fetch_bytes
        git = replace(self.git, bounds=ProcessBounds(seconds=self.seconds, file_bytes=max_bytes))

        async def fetch() -> bytes:
            try:
                return await git.run(*_FETCH, *options, "--", source.url, refspec, credential=source.credential)
            except GitError:
                largest = max((file.stat().st_size for file in self._unfinished()), default=0)
                if largest >= max_bytes // 512 * 512:  # as the limit is counted
                    setting = "CODEPILOT_PULL_FETCH_MB" if source.is_pull else "CODEPILOT_FETCH_MB"
                    # Without its cause: the limit looks like a broken connection to git.
                    raise FetchTooLargeError(source.name, _short_ref(source.ref), max_bytes, setting) from None
                raise
            finally:
                self._remove_leftovers()

        await retry(fetch, self.pauses)

    def _remove_leftovers(self) -> None:
        # Stale locks would block refs and packing.
        locks = (file for pattern in _LOCKS for file in self.path.glob(pattern))
        for file in (*self._unfinished(), *locks):
            file.unlink(missing_ok=True)

    def _unfinished(self) -> list[Path]:
        return list(self.path.glob("objects/pack/tmp_*"))

    async def _fetch_error(self, source: Source, error: GitError) -> CloneError:
        ref = {"ref": source.ref, "sha": source.sha}
        if REF_MISSING not in error.stderr:
            lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
            # fsck's finding precedes git's own message.
            lines = [line for line in lines if line.startswith("error: object ")] or lines
            message = lines[-1].rstrip(".") if lines else f"git ended with exit code {error.exit_code}"
            reason = f"The repository could not be fetched: {error.symptom or message}."
            return CloneError(reason, _remedy(error), **ref)
        listing = ("ls-remote", "--heads", "--", source.url)  # tags may be many
        if not await retry(lambda: self.git.run(*listing, credential=source.credential), self.pauses):
            remedy = "Push a first commit, then give the command again."
            return RepositoryEmptyError("The repository is empty.", remedy, **ref)
        remedy = "Push the branch again, or give the command elsewhere."
        return BranchGoneError(f"`{_short_ref(source.ref)}` no longer exists.", remedy, **ref)


def _parse_blobs(listing: bytes) -> dict[str, str]:
    lines = (line.partition(b"\t") for line in listing.split(b"\0")[:-1])
    return {os.fsdecode(name): facts.rpartition(b" ")[2].decode() for facts, _, name in lines}


def _keep_ref(keep: str) -> str:
    return f"{KEEP_REFS}{keep}"


def _encode_path(path: str) -> bytes:
    """Encode a path for git; empty if no file can have it."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"" if b"\0" in encoded or len(encoded) > _LONGEST_PATH else encoded


def _recent_ref(sha: str) -> str:
    return f"{RECENT_REFS}{int(time.time()) // RECENT_SECONDS}/{sha}"


def _fetched_ref(ref: str) -> str:
    # The branch's name is hashed: `a` deleted and `a/b` created meanwhile would collide as refs.
    return f"{_FETCH_REFS}{hashlib.sha256(ref.encode()).hexdigest()[:32]}"


def _short_ref(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/")


def _remedy(error: GitError) -> str:
    if "fsck error" in error.stderr.lower():
        return "Git reports the repository as malformed or hostile; fix that object first."
    if "certificate" in error.symptom:
        return UNKNOWN_AUTHORITY
    if error.certainty == "passing":
        return "Check that the server is reachable from the bot's machine, then give the command again."
    if error.status or error.certainty == "doubtful":
        return (
            "Check that it still exists, and that the bot may read its contents: the App in its settings, a workflow's "
            "job with `permissions: { contents: write }`."
        )
    return "Give the command again; if it fails again, report this to the bot's operator."


async def create_repository(git: Git, mirror: Mirror) -> None:
    """Create a git directory that checks a mirror's commits out to the byte."""
    if git.git_dir is None:
        raise ValueError("a repository needs a git directory")
    await git.run("init", "--bare", "--quiet", "--template=", git.git_dir)
    (git.git_dir / "info").mkdir(exist_ok=True)
    (git.git_dir / "info" / "attributes").write_text(_ATTRIBUTES)
    # Like `clone --shared`: objects are read from the mirror, where the keep ref protects them.
    (git.git_dir / "objects" / "info" / "alternates").write_text(f"{mirror.path}/objects\n")
    if mirror.shallow.exists():
        (git.git_dir / "shallow").write_bytes(mirror.shallow.read_bytes())


class CheckoutCache:
    """A repository's prepared checkout. A job takes it by renaming it, so that no two jobs ever share a file."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._folder = mirror.path.with_suffix(".files")
        self._note = self._folder / "commit"

    async def copy(self, git: Git, sha: str, target: Path, index: Path) -> None:
        """Write a commit's files into an empty directory, and git's index with their stat data to `index`.

        With a prepared checkout, only the files that differ from it are written.

        Raises:
            WorkspaceError: git failed, e.g. because the disk is full.
        """
        if await run_thread(self._take, target, index) != sha:
            writer = replace(git, work_tree=target, index=index)
            await writer.run("read-tree", "--reset", "-u", sha)

    async def prepare(self, sha: str) -> None:
        """Check a commit out for the next job, at low priority, unless a checkout is prepared or another worker does.

        Raises:
            WorkspaceError: git failed.
        """
        with lock_if_free(_files_lock(self._mirror)) as is_held:
            if not is_held or self._read_commit():
                return
            files = self._folder / "files"
            try:
                await run_thread(_reset_folder, files)
                git = replace(self._mirror.git, git_dir=self._folder / "repo.git", is_background=True)
                await create_repository(git, self._mirror)
                writer = replace(git, work_tree=files, index=self._folder / "index")
                await writer.run("read-tree", "--reset", "-u", sha)
                self._note.write_text(f"{sha} {_boot_id()}")
            except (WorkspaceError, OSError):
                await run_thread(discard, self._folder)
                raise

    def _take(self, target: Path, index: Path) -> str:
        """Move the prepared checkout, and return its commit; empty if there is none."""
        with lock_if_free(_files_lock(self._mirror)) as is_held:
            commit = self._read_commit() if is_held else ""
            if commit:
                self._note.unlink()  # first: a checkout without a note is never used
                (self._folder / "index").rename(index)
                (self._folder / "files").rename(target)
        return commit

    def _read_commit(self) -> str:
        # Valid for one boot: after a power cut, the note may survive without the unsynced files.
        with suppress(FileNotFoundError):
            commit, _, boot = self._note.read_text().partition(" ")
            return commit if boot == _boot_id() else ""
        return ""


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _reset_folder(files: Path) -> None:
    remove_tree(files.parent)
    files.mkdir(mode=0o700, parents=True)


class Maintenance:
    """Maintenance of all mirrors in one directory, each under its lock."""

    def __init__(self, folder: Path, mirror: Callable[[int], Mirror], limits: MirrorLimits) -> None:
        self._folder = folder
        self._mirror = mirror
        self._limits = limits

    async def tidy(self) -> None:
        """Prune and pack mirrors that need it; evict unused ones, and others while the total is too large."""
        for removed in sorted(self._folder.glob(f"{_REMOVED}*")):
            await asyncio.to_thread(discard, removed)
        for repo_id in self._ids():
            try:
                await self._prune(self._mirror(repo_id))
            except (WorkspaceError, OSError) as error:
                # A damaged mirror must not stop the others; its own jobs report it.
                path = self._mirror(repo_id).path
                log.warning("mirror %s was not packed; if it is damaged, delete it: %s", path, error)
        sizes = [await asyncio.to_thread(self._size, repo_id) for repo_id in self._ids()]
        total = sum(mirror_size.size for mirror_size in sizes)
        allowed, oldest = self._limits.total_bytes, time.time() - self._limits.unused_seconds
        for mirror_size in sorted(sizes, key=lambda size: size.used):
            is_excess = total > allowed or mirror_size.used < oldest
            if is_excess and await self._evict(self._mirror(mirror_size.repo_id)):
                log.info("mirror %s was removed: all mirrors had %s bytes of %s", mirror_size.repo_id, total, allowed)
                total -= mirror_size.size
        if total > allowed:
            log.warning("the mirrors that jobs need have %s bytes; the limit is %s", total, allowed)

    def _ids(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.git") if path.stem.isdecimal())

    def _size(self, repo_id: int) -> _MirrorSize:
        mirror = self._mirror(repo_id)
        size = sum(map(_disk_bytes, _mirror_paths(mirror)))
        return _MirrorSize(used=_changed_at(mirror.lock), size=size, repo_id=repo_id)

    async def _prune(self, mirror: Mirror) -> None:
        async with mirror.locked():
            oldest = int(time.time()) // RECENT_SECONDS - 1
            refs = (await mirror.git.run("for-each-ref", "--format=%(refname)", RECENT_REFS)).decode().split()
            old = [ref for ref in refs if int(ref.removeprefix(RECENT_REFS).partition("/")[0]) < oldest]
            if old:
                await mirror.git.run("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in old).encode())
            if not await asyncio.to_thread(_needs_packing, mirror):
                return
            expiry = f"--prune={int(time.time()) - _GRACE_SECONDS}"
            # Unreachable objects go with their whole pack, and those of the last hour stay in one of their own.
            await mirror.git.run("gc", "--quiet", "--cruft", expiry)
            _pack_marker(mirror).touch()

    async def _evict(self, mirror: Mirror) -> bool:
        async with mirror.locked():
            try:
                if await mirror.git.run("for-each-ref", "--count=1", KEEP_REFS, RECENT_REFS):
                    return False
            except WorkspaceError:  # it is damaged, and may still be in use; it was logged above
                return False
            with lock_if_free(_files_lock(mirror)) as is_held:
                if not is_held:  # the next checkout is being prepared
                    return False
                # Renamed first, since a partial mirror would look complete.
                for path in _mirror_paths(mirror):
                    if path.exists():
                        target = self._folder / f"{_REMOVED}{path.name}-{secrets.token_hex(4)}"
                        path.rename(target)
                        await asyncio.to_thread(discard, target)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _MirrorSize:
    used: float
    size: int
    repo_id: int


def _mirror_paths(mirror: Mirror) -> tuple[Path, Path, Path]:
    return mirror.path, mirror.path.with_suffix(".files"), mirror.path.with_suffix(".index")


def _files_lock(mirror: Mirror) -> Path:
    return mirror.path.with_suffix(".files.lock")


def _needs_packing(mirror: Mirror) -> bool:
    packs = sorted(pack.stat().st_size for pack in (mirror.path / "objects" / "pack").glob("*.pack"))
    if sum(packs[:-1]) > _LOOSE_END_BYTES:
        return True
    packed = _changed_at(_pack_marker(mirror)) or _changed_at(mirror.path / "HEAD")
    return time.time() - packed > _DAY_SECONDS and packed < _changed_at(mirror.lock) + _SETTLED_SECONDS


def _pack_marker(mirror: Mirror) -> Path:
    return mirror.path / "packed"


def _changed_at(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _disk_bytes(folder: Path) -> int:
    """Return the disk usage at any depth; ignores files that vanish meanwhile."""
    total = 0
    with suppress(FileNotFoundError):
        for _, _, files, descriptor in os.fwalk(folder):
            for name in files:
                with suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * _BLOCK
    return total
