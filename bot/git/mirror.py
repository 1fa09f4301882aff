"""One bare mirror for each repository id, shared by all jobs; all that is in it can be fetched again.

A `Mirror` fetches a commit once, under an exclusive lock, and a ref holds it for as long as a job needs it. `Pristine`
keeps the files of the last checkout, so that jobs copy instead of unpacking. `Upkeep` prunes and packs mirrors, and
removes those used longest ago.
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
from bot.git.errors import (
    BranchGoneError,
    CloneError,
    CommitGoneError,
    FetchTooLargeError,
    GitError,
    RepositoryEmptyError,
    WorkspaceError,
)
from bot.git.filesystem import cp, discard, in_thread, locked, remove_tree
from bot.git.process import (
    FOREIGN_CERTIFICATE,
    PAUSES,
    Credential,
    Git,
    ProcessBounds,
    is_about_certificates,
    patiently,
)

log = logging.getLogger(__name__)
KEPT = "refs/keep/"
RECENT = "refs/recent/"
RECENT_SECONDS = 3600
"""For at least as long a commit stays that was asked for, whether or not a job holds it."""
_FILES = frozenset({"100644", "100755"})
_LONGEST_PATH = 4096
"""Bytes, as the kernel has it."""
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PULL = re.compile(r"refs/pull/\d+/head")
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
_FETCHED = "refs/mirror/"
_REF_MISSING = "couldn't find remote ref"
_LOCKS = ("*.lock", "refs/**/*.lock", "objects/*.lock", "objects/pack/*.lock", "objects/info/**/*.lock")
"""Where git keeps its locks; among its many loose objects it has none."""
_REMOVED = ".removed-"
_BLOCK = 512
_DAY_SECONDS = 24 * 3600.0
_LOOSE_END_BYTES = 64 * 1024**2

# A git may outlive the bot that started it, and finish a fetch whose commit no ref holds yet.
_GRACE_SECONDS = 3600

# So long after its last use nothing of a mirror is recent any more.
_SETTLED_SECONDS = 2 * RECENT_SECONDS + 2 * _GRACE_SECONDS
_MAX_NAMES = 5_000
"""More would not fit on a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """How large mirrors may become.

    Attributes:
        fetch_bytes: that one fetch may bring.
        pull_bytes: the same for a pull request's head, beyond what is there; anybody may open one from a fork.
        total_bytes: of all mirrors together; see `Upkeep`.
        unused_seconds: after which one is removed.
    """

    fetch_bytes: int = 1024 * 1024**2
    pull_bytes: int = 256 * 1024**2
    total_bytes: int = 20 * 1024**3
    unused_seconds: float = 90 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to fetch, from where.

    Attributes:
        url: the clone address, from GitHub's API, never from a payload's text.
        token: a token that may read this repository; empty for a path of this machine.
        ref: the full name of a branch (`refs/heads/main`) or a pull request's head (`refs/pull/7/head`).
        sha: the commit wanted.
    """

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
        """Whether it is a pull request's head, which may come from a fork."""
        return _PULL.fullmatch(self.ref) is not None

    @property
    def credential(self) -> Credential:
        """What it may be fetched with."""
        return Credential(url=self.url, token=self.token)

    @property
    def name(self) -> str:
        """`owner/name` of the repository."""
        return "/".join(urlsplit(self.url).path.strip("/").removesuffix(".git").split("/")[-2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file of a commit.

    Attributes:
        id: git's id of its content.
        content: the same, as it is stored.
    """

    id: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The bare mirror of one repository.

    Attributes:
        path: its git directory.
        lock: the file whose lock guards it.
        environment: see `Git.environment`.
        seconds: how long to wait for the lock, and for a fetch.
        pauses: before the server is asked again; see `patiently`.
        limits: how large it may become.
    """

    path: Path
    lock: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 600.0
    pauses: tuple[float, ...] = PAUSES
    limits: MirrorLimits = field(default_factory=MirrorLimits)

    @property
    def git(self) -> Git:
        """Git on the mirror."""
        return Git(git_dir=self.path, environment=self.environment, bounds=ProcessBounds(seconds=self.seconds))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock; what a git that was killed has left unfinished is gone then.

        Raises:
            WorkspaceError: another process held it for too long.
        """
        async with locked(self.lock, seconds=self.seconds):
            self._clear()
            yield

    async def provide(self, source: Source, *, keep: str | None) -> None:
        """Have `source.sha` in the mirror, held by the keep ref `keep` until `release`; None for a look at once.

        A commit that is here already costs no network at all. What nothing holds goes with the upkeep.

        Raises:
            FetchTooLargeError: more came than one fetch may bring.
            RepositoryEmptyError: it has no commit.
            BranchGoneError: `source.ref` no longer exists.
            CommitGoneError: the server does not hand out `source.sha` any more.
            CloneError: everything else, with what the server said.
        """
        async with self.held():
            # HEAD is the last thing `init` writes, so a mirror whose making was cut short is made again.
            if not (self.path / "HEAD").exists():
                await self.git.run("init", "--bare", "--quiet", "--template=", self.path)
            # This ref is made below, when all of the commit is here, and nothing that a ref holds is removed.
            held = (self.path / _recent_ref(source.sha)).exists()
            if not held and not await self._has(source.sha):
                await self._fetch(source)
            os.utime(self.lock)  # when it was last used, for the upkeep
            if keep is not None:
                await self.git.run("update-ref", _keep_ref(keep), source.sha)
            if not held and (keep is None or source.is_pull):
                await self.git.run("update-ref", _recent_ref(source.sha), source.sha)

    async def read(self, sha: str, paths: Collection[str], *, limit: int) -> dict[str, Blob | WorkspaceError | None]:
        """Files as a commit has them, which is here already.

        Args:
            sha: the commit.
            paths: from the repository's root; neither wildcards nor pathspec magic mean anything in them.
            limit: bytes that are read of each; a longer file is not.

        Returns:
            For each path the file, None when there is none, or what is wrong with what is there.
        """
        found: dict[str, Blob | WorkspaceError | None] = dict.fromkeys(paths)
        named = {wanted: path for path in paths if (wanted := _asked(path))}
        if not named:
            return found
        for name, mode, blob, size in await self._list_entries(sha, named):
            if (path := named.get(name)) is None:
                continue
            what, remedy = f"`{path}` of commit {sha[:10]}", "Commit a regular file there, or nothing."
            if mode not in _FILES:
                kind = "a symbolic link" if mode == "120000" else "no file"
                found[path] = WorkspaceError(f"{what} is {kind}.", remedy)
            elif size > limit:
                found[path] = WorkspaceError(f"{what} has {size:,} bytes; the limit is {limit:,}.", "Make it shorter.")
            else:
                found[path] = Blob(id=blob, content=await self.git.run("cat-file", "blob", blob))
        return found

    async def read_many(self, sha: str, patterns: Sequence[str], *, most: int, limit: int) -> dict[str, Blob]:
        """The regular files of a commit that match; see `Workspaces.read_many`."""
        roots = sorted({pattern.partition("*")[0].rstrip("/") for pattern in patterns})
        found: dict[str, Blob] = {}
        for name, mode, blob, size in await self._list_entries(sha, roots, "-r"):
            path = os.fsdecode(name)
            if len(found) == most:
                break
            is_wanted = any(path.count("/") == each.count("/") and fnmatchcase(path, each) for each in patterns)
            if is_wanted and mode in _FILES and size <= limit:
                found[path] = Blob(id=blob, content=await self.git.run("cat-file", "blob", blob))
        return found

    async def _list_entries(
        self, sha: str, paths: Iterable[str | bytes], *options: str
    ) -> list[tuple[bytes, str, str, int]]:
        """Name, mode, blob id and size of each entry of a commit that `git ls-tree` finds."""
        command = ("--literal-pathspecs", "ls-tree", "-z", "--long", "--full-tree")
        listing = await self.git.run(*command, *options, sha, "--", *paths)
        entries = []
        for line in listing.split(b"\0")[:-1]:
            facts, _, name = line.partition(b"\t")
            mode, _, blob, size = facts.decode().split()
            entries.append((name, mode, blob, 0 if size == "-" else int(size)))
        return entries

    async def hold(self, sha: str, *, keep: str) -> bool:
        """Have a keep ref hold a commit; False when that is not here, and nothing may be fetched."""
        async with self.held():
            if not self.path.exists() or not await self._has(sha):
                return False
            os.utime(self.lock)
            await self.git.run("update-ref", _keep_ref(keep), sha)
            return True

    async def release(self, *keeps: str) -> None:
        """Drop keep refs; no error when they are gone already."""
        async with self.held():
            if self.path.exists():
                os.utime(self.lock)
                deleted = "".join(f"delete {_keep_ref(keep)}\n" for keep in keeps)
                await self.git.run("update-ref", "--stdin", stdin=deleted.encode())

    async def diff(self, base: str, head: str, *, limit: int) -> bytes:
        """The first `limit` bytes of what leads to `head` from where it left `base`; both are here already."""
        found = await self.git.run("merge-base", base, head, expect=(0, 1))
        fork = found.decode().split()[0] if found else base
        command = ("diff-tree", "-r", "--patch", "--no-ext-diff", "--no-textconv", "--no-renames", fork, head)
        return await self.git.first(limit, *command)

    async def _has(self, sha: str) -> bool:
        """Whether a commit is here with all that belongs to it: its removal may have been cut short."""
        try:
            await self.git.run("rev-list", "--quiet", "--objects", f"{sha}^{{commit}}", "--not", "--all")
        except GitError:
            return False
        return True

    async def _fetch(self, source: Source) -> None:
        try:
            if source.is_pull:
                await self._fetch_default(source)
                await self._bring(source, source.ref)
            else:
                await self._bring(source, f"+{source.ref}:{_fetched(source.ref)}")
        except GitError as error:
            raise await self._reason(source, error) from error
        if await self._has(source.sha):
            return
        try:
            await self._bring(source, source.sha)
        except GitError as error:
            raise CommitGoneError(
                f"Commit {source.sha[:10]} is no longer on `{_short(source.ref)}`.",
                "It was removed by a force-push: give the command again.",
            ) from error

    async def _fetch_default(self, source: Source) -> None:
        """Have the default branch here, so that a pull request's head brings only what is its own."""
        if await self.git.run("for-each-ref", "--count=1", _FETCHED):
            return
        try:
            await self._bring(replace(source, ref="refs/heads/HEAD"), f"+HEAD:{_fetched('HEAD')}")
        except GitError as error:
            if _REF_MISSING not in error.stderr:
                raise

    async def _bring(self, source: Source, refspec: str) -> None:
        """Fetch one thing, again while the server's trouble may pass; nothing is left of a fetch that failed.

        All of it is one pack, and the kernel ends the git that writes a longer one.
        """
        most = self.limits.pull_bytes if source.is_pull else self.limits.fetch_bytes
        git = replace(self.git, bounds=ProcessBounds(seconds=self.seconds, file_bytes=most))

        async def fetch() -> bytes:
            try:
                return await git.run(*_FETCH, "--", source.url, refspec, credential=source.credential)
            except GitError as error:
                largest = max((left.stat().st_size for left in self._unfinished()), default=0)
                if largest >= most // 512 * 512:  # as the limit is counted
                    setting = "CODEPILOT_PULL_FETCH_MB" if source.is_pull else "CODEPILOT_FETCH_MB"
                    raise FetchTooLargeError(source.name, _short(source.ref), most, setting) from error
                raise
            finally:
                self._clear()

        await patiently(fetch, self.pauses)

    def _clear(self) -> None:
        # What looks locked could not be written any more: a ref, or what packing makes.
        locks = (left for place in _LOCKS for left in self.path.glob(place))
        for left in (*self._unfinished(), *locks):
            left.unlink(missing_ok=True)

    def _unfinished(self) -> list[Path]:
        return list(self.path.glob("objects/pack/tmp_*"))

    async def _reason(self, source: Source, error: GitError) -> CloneError:
        if _REF_MISSING not in error.stderr:
            lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
            # What fsck found stands before what git then says about it.
            lines = [line for line in lines if line.startswith("error: object ")] or lines
            said = lines[-1].rstrip(".") if lines else f"git ended with exit code {error.exit_code}"
            return CloneError(f"The repository could not be fetched: {said}.", _remedy(error.stderr))
        listing = ("ls-remote", "--", source.url)
        if not await patiently(lambda: self.git.run(*listing, credential=source.credential), self.pauses):
            return RepositoryEmptyError("The repository is empty.", "Push a first commit, then give the command again.")
        return BranchGoneError(
            f"`{_short(source.ref)}` no longer exists.", "Push the branch again, or give the command elsewhere."
        )


def _keep_ref(keep: str) -> str:
    return f"{KEPT}{keep}"


def _asked(path: str) -> bytes:
    """A path as git is asked for it; nothing where no file is called so, and no program can be asked for it."""
    try:
        wanted = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"" if b"\0" in wanted or len(wanted) > _LONGEST_PATH else wanted


def _recent_ref(sha: str) -> str:
    return f"{RECENT}{int(time.time()) // RECENT_SECONDS}/{sha}"


def _fetched(ref: str) -> str:
    # The branch's name is hashed: `a` deleted and `a/b` created meanwhile would collide as refs.
    return f"{_FETCHED}{hashlib.sha256(ref.encode()).hexdigest()[:32]}"


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/")


def _remedy(stderr: str) -> str:
    text = stderr.lower()
    if "fsck error" in text:
        return "Git reports the repository as malformed or hostile; fix that object first."
    if "authentication failed" in text or "could not read username" in text or "returned error: 403" in text:
        return (
            "Grant the bot read access to the repository's contents: the App in its settings, a workflow's job with "
            "`permissions: { contents: write }`."
        )
    if "not found" in text or "does not exist" in text or "redirect" in text:
        return "Check whether it was deleted, renamed or made private, and whether the App is still installed."
    if is_about_certificates(stderr):
        return FOREIGN_CERTIFICATE
    if "could not resolve" in text or "unable to access" in text or "connection" in text:
        return "Check that the server is reachable from the bot's machine, then give the command again."
    return "Give the command again; if it fails again, report this to the bot's operator."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pristine:
    """One repository's files as last checked out.

    Unpacking a commit costs the decompression of every file, a copy only the bytes. From one commit to the next only
    the difference is written. No sandbox ever sees these files.

    Attributes:
        folder: holds the files, git's index of them, and a note of the commit that they are.
        lock: the file whose lock guards them.
        seconds: how long to wait for the lock.
    """

    folder: Path
    lock: Path
    seconds: float

    async def copy(self, git: Git, sha: str, target: Path) -> None:
        """Put the files of a commit into an empty directory.

        Args:
            git: a git directory that has the commit; its attributes decide how files are written.
            sha: the commit.
            target: an existing, empty directory.

        Raises:
            WorkspaceError: git or the copying failed, for lack of disk space for example.
        """
        async with locked(self.lock, seconds=self.seconds):
            files, note = self.folder / "files", self.folder / "commit"
            # New after each start of the machine: a power cut may take files that were not synced, and leave the note.
            boot = _read(Path("/proc/sys/kernel/random/boot_id")).strip()
            noted = await asyncio.to_thread(_read, note)
            if noted != f"{sha} {boot}":
                if not noted.endswith(f" {boot}"):
                    await in_thread(_start_anew, self.folder)
                # Write what differs between the noted commit and `sha`; there is no note while the files are neither.
                note.unlink(missing_ok=True)
                writer = Git(
                    git_dir=git.git_dir,
                    work_tree=files,
                    index=self.folder / "index",
                    environment=git.environment,
                    bounds=git.bounds,
                )
                await writer.run("read-tree", "--reset", "-u", sha)
                note.write_text(f"{sha} {boot}")
            # With `cp`, which knows how to have the file system share the bytes, twice at once.
            source, target, names = await asyncio.to_thread(_first_fork, files, target)
            halves = [half for half in (names[::2], names[1::2]) if half]
            if len(names) > _MAX_NAMES:
                halves = [["."]]
            results = await asyncio.gather(*(cp(source, target, half) for half in halves))
            if said := next(filter(None, results), ""):
                raise WorkspaceError(f"The files could not be copied: {said}", "Check whether the disk is full.")


def _read(note: Path) -> str:
    return note.read_text() if note.exists() else ""


def _start_anew(folder: Path) -> None:
    remove_tree(folder)
    (folder / "files").mkdir(mode=0o700, parents=True)


def _first_fork(source: Path, target: Path) -> tuple[Path, Path, list[str]]:
    """The first level below `source` with more than one name on it; what leads there is made in `target`."""
    names = _names(source)
    while len(names) == 1 and (source / names[0]).is_dir() and not (source / names[0]).is_symlink():
        source, target = source / names[0], target / names[0]
        target.mkdir()
        names = _names(source)
    return source, target, names


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Upkeep:
    """The care for all mirrors below one directory.

    A mirror is a cache: all that is in it can be fetched again. What a job needs is held by its keep refs, and what was
    asked for lately by a ref that has the hour in its name. Nothing is touched without the mirror's lock.

    Args:
        folder: holds the mirrors.
        mirror: makes the one of a repository.
        limits: how large all of them may be together, and how long one stays unused.
    """

    def __init__(self, folder: Path, mirror: Callable[[int], Mirror], limits: MirrorLimits) -> None:
        self._folder = folder
        self._mirror = mirror
        self._limits = limits

    async def tidy(self) -> None:
        """Prune and pack each mirror that needs it; then remove unused ones, and others while all are too large."""
        for left in sorted(self._folder.glob(f"{_REMOVED}*")):
            await asyncio.to_thread(discard, left)
        for repo_id in self._ids():
            try:
                await self._prune(self._mirror(repo_id))
            except (WorkspaceError, OSError) as error:
                # One damaged mirror must not keep the others from it; its own jobs will say so.
                place = self._mirror(repo_id).path
                log.warning("mirror %s was not packed; if it is damaged, delete it: %s", place, error)
        sizes = [await asyncio.to_thread(self._size, repo_id) for repo_id in self._ids()]
        total = sum(each.size for each in sizes)
        allowed, oldest = self._limits.total_bytes, time.time() - self._limits.unused_seconds
        for each in sorted(sizes, key=lambda size: size.used):
            too_much = total > allowed or each.used < oldest
            if too_much and await self._removed(self._mirror(each.repo_id)):
                log.info("mirror %s was removed: all mirrors had %s bytes of %s", each.repo_id, total, allowed)
                total -= each.size
        if total > allowed:
            log.warning("the mirrors that jobs need have %s bytes; the limit is %s", total, allowed)

    def _ids(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.git") if path.stem.isdecimal())

    def _size(self, repo_id: int) -> _Size:
        mirror = self._mirror(repo_id)
        size = sum(map(_disk_bytes, _places(mirror)))
        return _Size(used=_changed_at(mirror.lock), size=size, repo_id=repo_id)

    async def _prune(self, mirror: Mirror) -> None:
        async with mirror.held():
            oldest = int(time.time()) // RECENT_SECONDS - 1
            listed = (await mirror.git.run("for-each-ref", "--format=%(refname)", RECENT)).decode().split()
            old = [ref for ref in listed if int(ref.removeprefix(RECENT).partition("/")[0]) < oldest]
            if old:
                await mirror.git.run("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in old).encode())
            if not await asyncio.to_thread(_is_due, mirror):
                return
            expiry = f"--prune={int(time.time()) - _GRACE_SECONDS}"
            # Unreachable objects go with their whole pack, and those of the last hour stay in one of their own.
            await mirror.git.run("gc", "--quiet", "--cruft", expiry)
            _note(mirror).touch()

    async def _removed(self, mirror: Mirror) -> bool:
        """Remove a mirror that no job holds and that was not asked lately; whether it was."""
        async with mirror.held():
            try:
                if await mirror.git.run("for-each-ref", "--count=1", KEPT, RECENT):
                    return False
            except WorkspaceError:  # it is damaged, and may still be in use; it was logged above
                return False
            # Renamed first: half a mirror would be taken for a whole one.
            for path in _places(mirror):
                if path.exists():
                    place = self._folder / f"{_REMOVED}{path.name}-{secrets.token_hex(4)}"
                    path.rename(place)
                    await asyncio.to_thread(discard, place)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """A mirror with the files of its last checkout.

    Attributes:
        used: when it was last used.
        size: bytes on the disk.
        repo_id: whose it is.
    """

    used: float
    size: int
    repo_id: int


def _places(mirror: Mirror) -> tuple[Path, Path, Path]:
    """The mirror, the files of its last checkout, and their code index."""
    return mirror.path, mirror.path.with_suffix(".files"), mirror.path.with_suffix(".index")


def _is_due(mirror: Mirror) -> bool:
    """Whether much lies outside the main pack, or there is something to prune that was not when it was last packed."""
    packs = sorted(pack.stat().st_size for pack in (mirror.path / "objects" / "pack").glob("*.pack"))
    if sum(packs[:-1]) > _LOOSE_END_BYTES:
        return True
    packed = _changed_at(_note(mirror)) or _changed_at(mirror.path / "HEAD")
    return time.time() - packed > _DAY_SECONDS and packed < _changed_at(mirror.lock) + _SETTLED_SECONDS


def _note(mirror: Mirror) -> Path:
    return mirror.path / "packed"


def _changed_at(path: Path) -> float:
    """When a file was last written; the beginning of time for one that is not there."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _disk_bytes(folder: Path) -> int:
    """What a directory takes on the disk, of any depth; what vanishes meanwhile counts for nothing."""
    total = 0
    with suppress(FileNotFoundError):
        for _, _, files, descriptor in os.fwalk(folder):
            for name in files:
                with suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * _BLOCK
    return total
