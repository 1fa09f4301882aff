"""Git repositories below a user's directory: held in place while programs run there, set aside where one appears.

Git executes programs that a repository's own configuration names (`core.fsmonitor`, hooks, filters). It takes any
`.git` for a repository, and any directory with `HEAD`, `objects` and `refs`; `git status` enters each submodule. So a
program in a sandbox that makes one runs programs outside with the user's next `git status`.

`RepositoryGuard` finds the repositories that exist before the first program starts. A sandbox mounts these read-only
and mounts each directory above them over itself, because a mount point can be neither renamed nor replaced
(`FixedPath`). A new one cannot be prevented: no filter of system calls, Landlock rule or mount knows names that do not
exist yet. It is moved out of the directory at the end of each command, and by a patrol between.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.core.text import is_dot_git, is_git_directory
from agent_runtime.sandbox.protocol import FixedPath

_MOST_MOUNTS = 300
"""Measured: bubblewrap takes 0.07 s for 100, 1.1 s for 500 and 3.6 s for 1,000."""

_MOST_DIRECTORIES = 500_000

_DEEPEST = 200

_GRAIN = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most

_PATROL_SHARE = 50
"""A patrol rests this many times as long as it took."""

_LARGEST_INDEX = 512 * 1024**2

_NAMED = 10

_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class RepositoryGuard:
    """Keeps programs in sandboxes from making or changing git repositories in one directory. Linux and macOS.

    Its methods may be called from any thread. Begin before the first program starts, and close after the last ended.
    """

    def __init__(self, workspace: Path, *, tell: Callable[[str], None]) -> None:
        """Prepare; nothing is read yet.

        Args:
            workspace: the directory.
            tell: called by `report` with a text for the user.
        """
        self._workspace = workspace.resolve()
        self._tell = tell
        self._lock = threading.Lock()
        self._survey: _Survey | None = None
        self._record: _Record | None = None
        self._seen: dict[tuple[int, int], _Listing] = {}
        self._moved: list[tuple[str, str]] = []
        self._rested = 0.0

    def begin(self) -> tuple[FixedPath, ...]:
        """Find the repositories that exist, at the first call, and return the mounts that keep them as they are.

        What appeared while an earlier process worked here that was killed, or since this one's last sandbox, is set
        aside first.

        Raises:
            SandboxError: there are too many repositories or directories.
        """
        with self._lock:
            if self._survey is None:
                for earlier in _Record.of_others(self._workspace):
                    self._sweep(earlier)
                self._survey = self._look()
                self._record = _Record.write(self._workspace, self._survey)
            else:
                self._sweep(self._survey)
            return tuple(each for each in self._survey.mounts if _is_in_place(self._workspace, each.path))

    def sweep(self) -> None:
        """Set aside the repositories that appeared since `begin`; nothing before that."""
        with self._lock:
            if self._survey is not None:
                self._sweep(self._survey)

    def patrol(self) -> None:
        """Do the same, unless the last time was a moment ago: it takes a fiftieth of a processor at most."""
        if time.monotonic() >= self._rested:
            self.sweep()

    def report(self) -> str:
        """Tell the user of the repositories set aside since the last report; return the same text, empty for none."""
        with self._lock:
            moved, self._moved = self._moved, []
        if not moved:
            return ""
        names = ", ".join(f"{_in_line(path)} (now {_in_line(place)})" for path, place in moved[:_NAMED])
        more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
        text = (
            f"git repositories cannot be made here, because the user's git would run their programs. Set aside: {names}"
            f"{more}. Make repositories in /tmp; `runtime.git_writable: true` allows them here"
        )
        self._tell(text)
        return text

    def close(self) -> None:
        """Set aside what appeared until the last program ended, and forget the repositories; idempotent."""
        with self._lock:
            if self._survey is not None:
                self._sweep(self._survey)
            if self._record is not None:
                self._record.remove()
            self._survey = self._record = None
            self._seen = {}

    def _look(self) -> _Survey:
        """Find the repositories.

        Raises:
            SandboxError: there are too many.
        """
        links: dict[str, str | None] = {}
        fixed: set[str] = set()
        held: set[str] = set()
        submodules = list(_gitlinks_above(self._workspace))
        with _opened(self._workspace) as root:
            for count, place in enumerate(_walk(root, {}, self._seen, skipped=None)):
                if place.too_deep or count > _MOST_DIRECTORIES:
                    raise SandboxError(
                        f"{self._workspace} has more than {_MOST_DIRECTORIES:,} directories, or {_DEEPEST} below one "
                        "another, too many to protect the git repositories in it. Work in a directory below it, or "
                        "allow changes of repositories (`runtime.git_writable: true`, `SandboxSettings.git_writable`)."
                    )
                for name in place.listing.git:
                    path = _join(place.path, name)
                    links[path] = _link(name, place.descriptor)
                    if links[path] is None and path != ".git":  # that one is mounted for every program
                        fixed.add(path)
                    submodules += (_join(place.path, each) for each in _gitlinks(self._workspace / place.path, name))
                if place.listing.heads:
                    links[place.path] = None
                    fixed.update({place.path} - {""})
        for path in submodules:
            if path in links or f"{path}/.git" in links or not _is_in_place(self._workspace, path):
                continue
            with suppress(OSError), _opened(self._workspace / path) as directory:
                is_empty = not os.listdir(directory)  # noqa: PTH208 - a descriptor
                (fixed if is_empty else held).add(path)
        for path in fixed | held:
            held.update(path[:at] for at, sign in enumerate(path) if sign == "/")
        ordered = sorted(fixed | held, key=lambda path: path.split("/"))
        mounts = [FixedPath(path=path, writable=path not in fixed) for path in ordered]
        if len(mounts) > _MOST_MOUNTS:
            raise SandboxError(
                f"{self._workspace} has {len(fixed)} git repositories below it, too many to mount read-only. Work in a "
                "directory below it, or allow changes of repositories (`runtime.git_writable: true`, "
                "`SandboxSettings.git_writable`)."
            )
        return _Survey(links=links, mounts=tuple(mounts), unwritable=frozenset(fixed))

    def _sweep(self, survey: _Survey) -> None:
        begun = time.monotonic()
        seen, self._seen = self._seen, {}
        skipped = {*survey.unwritable, *survey.links} - {""}
        with suppress(FileNotFoundError), _opened(self._workspace) as root:
            for place in _walk(root, seen, self._seen, skipped=skipped):
                if place.too_deep:
                    place.replace(self._set_aside(place.descriptor, place.too_deep, place.path))
                for name in place.listing.git:
                    path = _join(place.path, name)
                    target = _link(name, place.descriptor)
                    if path in survey.links and (survey.links[path] is None or survey.links[path] == target):
                        continue
                    place.replace(self._set_aside(place.descriptor, name, place.path))
                    if (former := survey.links.get(path)) is not None:
                        with suppress(FileExistsError):
                            os.symlink(former, name, dir_fd=place.descriptor)
                if place.path not in survey.links:
                    for name in place.listing.heads:
                        self._set_aside(place.descriptor, name, place.path)
        self._rested = time.monotonic() + _PATROL_SHARE * (time.monotonic() - begun)

    def _set_aside(self, parent: int, name: str, path: str) -> str:
        """Move an entry of a directory out of the workspace; return its new name if it had to stay in the directory.

        The name is moved, and nothing is read or followed: its programs may change everything below it meanwhile.
        """
        word = f"{time.strftime('%Y-%m-%d')}-{secrets.token_hex(4)}"
        stays = f".set-aside-{word}"
        for attempt in (_move_out, _give_rights, _move_out, _rename):
            try:
                shelf = state_directory(self._workspace) / "set-aside" / word if attempt is _move_out else stays
                place = attempt(parent, name, str(shelf))
            except FileNotFoundError:  # its maker was faster
                return ""
            except (OSError, RuntimeError):  # RuntimeError: this user has no home
                continue
            if place:
                self._moved.append((_join(path, name), place if place != stays else _join(path, stays)))
                return stays if place == stays else ""
        self._moved.append((_join(path, name), "still there: it could not be moved, remove it before you use git"))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """The repositories of a directory.

    Attributes:
        links: the path of each `.git`, and of each directory that is a repository by its entries; with the target of
            one that is a symbolic link.
        mounts: keep them as they are.
        unwritable: the paths that are mounted read-only. What appears there the user has made.
    """

    links: Mapping[str, str | None]
    mounts: tuple[FixedPath, ...] = ()
    unwritable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """What matters of a directory: valid as long as its `changed` is the same, which nobody inside can set.

    Attributes:
        folders: names of its directories, but for `.git`.
        git: names that some file system takes for `.git`.
        heads: names of `HEAD`, if it is a repository by its entries.
    """

    changed: int
    folders: tuple[str, ...]
    git: tuple[str, ...]
    heads: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Place:
    """A directory on a walk, open until the next one is asked for.

    Attributes:
        too_deep: the name of a directory in it that is too deep to be entered, or empty.
        more: directories to enter that are not in the listing.
    """

    descriptor: int
    path: str
    listing: _Listing
    too_deep: str = ""
    more: list[str] = field(default_factory=list)

    def replace(self, name: str) -> None:
        """Enter a directory under its new name, if it has one."""
        self.more += [name] if name else []


_NOTHING = _Listing(changed=0, folders=(), git=(), heads=())

_NOT_ENTERED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM})
"""It is gone, has become something else or a link, or belongs to another user."""


def _walk(
    root: int,
    known: Mapping[tuple[int, int], _Listing],
    seen: dict[tuple[int, int], _Listing],
    *,
    skipped: Collection[str] | None,
) -> Generator[_Place]:
    """Enter every directory but `.git`, one from the other and never by way of a link.

    Args:
        root: descriptor of the first one.
        known: listings of an earlier walk, by device and inode.
        seen: takes the listings of this walk.
        skipped: paths that are not entered; None for every directory that is a repository by its entries.
    """
    pending: list[tuple[int, str, list[str]]] = []
    try:
        place = _Place(descriptor=root, path="", listing=_list(root, known, seen))
        yield place
        pending.append((os.dup(root), "", [*place.listing.folders, *place.more]))
        while pending:
            parent, above, names = pending[-1]
            if not names:
                os.close(pending.pop()[0])
                continue
            name = names.pop()
            path = _join(above, name)
            if skipped is not None and path in skipped:
                continue
            if len(pending) >= _DEEPEST:
                yield _Place(descriptor=parent, path=above, listing=_NOTHING, too_deep=name)
                continue
            try:
                with _entered(parent, name) as descriptor:
                    place = _Place(descriptor=descriptor, path=path, listing=_list(descriptor, known, seen))
                    yield place
                    if (skipped is not None or not place.listing.heads) and (place.listing.folders or place.more):
                        pending.append((os.dup(descriptor), path, [*place.listing.folders, *place.more]))
            except OSError as error:
                if error.errno not in _NOT_ENTERED:
                    raise
    finally:
        for descriptor, _, _ in pending:
            os.close(descriptor)


def _list(
    descriptor: int, known: Mapping[tuple[int, int], _Listing], seen: dict[tuple[int, int], _Listing]
) -> _Listing:
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino)
    listing = known.get(key)
    if listing is None or listing.changed != status.st_ctime_ns:
        now = time.time_ns()
        with os.scandir(descriptor) as entries:
            names = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
        git = tuple(name for name, _ in names if is_dot_git(name))
        heads = [name for name, _ in names if name.casefold() == "head"]
        listing = _Listing(
            # A change in the same tick of the kernel's clock would not show.
            changed=status.st_ctime_ns if now - status.st_ctime_ns > _GRAIN else 0,
            folders=tuple(name for name, is_folder in names if is_folder and name not in git),
            git=git,
            heads=tuple(heads) if heads and is_git_directory([name for name, _ in names]) else (),
        )
    if listing.changed:
        seen[key] = listing
    return listing


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, _OPEN)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _entered(parent: int, name: str) -> Iterator[int]:
    """Open a directory; one that may not be read gets the right for as long as it is looked at."""
    mode = None
    try:
        descriptor = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        if (mode := _change_mode(parent, name, stat.S_IRWXU)) is None:
            raise
        descriptor = os.open(name, _OPEN, dir_fd=parent)
    try:
        yield descriptor
    finally:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.close(descriptor)


def _change_mode(parent: int, name: str, rights: int) -> int | None:
    """Add rights to a directory, itself and not the target of a link; return the former ones, None if it has them."""
    if sys.platform != "linux":
        return None
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(held).st_mode)
        if not stat.S_ISDIR(os.fstat(held).st_mode) or mode & rights == rights:
            return None
        os.chmod(f"/proc/self/fd/{held}", mode | rights)  # noqa: PTH101 - a descriptor, not a path
        return mode
    finally:
        os.close(held)


def _give_rights(parent: int, name: str, _word: str) -> str:
    """Let an entry be moved: its directory must be writable, and so must a directory that is moved to another one."""
    os.fchmod(parent, stat.S_IMODE(os.fstat(parent).st_mode) | stat.S_IRWXU)
    _change_mode(parent, name, stat.S_IRWXU)
    return ""


def _move_out(parent: int, name: str, directory: str) -> str:
    """Move an entry to a directory of its own that cannot be entered, so that no git discovers a repository there."""
    shelf = Path(directory)
    shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.rename(name, shelf / "entry", src_dir_fd=parent)
    except OSError:
        shelf.rmdir()
        raise
    shelf.chmod(0)
    return str(shelf)


def _rename(parent: int, name: str, stays: str) -> str:
    """Give an entry a name that means nothing to git, where it cannot be moved out."""
    os.rename(name, stays, src_dir_fd=parent, dst_dir_fd=parent)
    return stays


def state_directory(workspace: Path) -> Path:
    """Return this user's directory for state that is to outlive a process.

    Raises:
        OSError, RuntimeError: this user has no home, or programs in the workspace can write there.
    """
    place = Path.home().resolve(strict=True) / ".codepilot"
    if place.resolve().is_relative_to(workspace):
        raise OSError(f"{place} lies in the workspace {workspace}")
    return place


class _Record:
    """The repositories that a directory had before programs ran there, on the disk for as long as they may run.

    Its owner holds a lock on it. One that nobody holds is of a process that was killed.
    """

    def __init__(self, file: Path, lock: int) -> None:
        self._file = file
        self._lock = lock

    @classmethod
    def write(cls, workspace: Path, survey: _Survey) -> _Record | None:
        """Write and lock a record; None where this user has no place for it."""
        import fcntl  # noqa: PLC0415 - Windows lacks it

        try:
            directory = state_directory(workspace) / "repositories"
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = directory / f"{_key(workspace)}-{secrets.token_hex(4)}.json"
            lock = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.fdopen(os.dup(lock), "w", encoding="utf-8") as writer:
                fields = {"links": dict(survey.links), "unwritable": sorted(survey.unwritable)}
                json.dump({"workspace": _identity(workspace), **fields}, writer)
        except (OSError, RuntimeError):  # see `state_directory`
            return None
        return cls(file, lock)

    @classmethod
    def of_others(cls, workspace: Path) -> Iterator[_Survey]:
        """Yield the records of other processes for a directory; those of dead ones are removed afterwards."""
        import fcntl  # noqa: PLC0415 - Windows lacks it

        with suppress(OSError, RuntimeError):
            for file in sorted((state_directory(workspace) / "repositories").glob(f"{_key(workspace)}-*.json")):
                with suppress(OSError), file.open(encoding="utf-8") as reader:
                    try:
                        record = json.load(reader)
                    except ValueError:  # its writer was killed, before any program started
                        record = {}
                    if record.get("workspace") == _identity(workspace):
                        yield _Survey(links=record["links"], unwritable=frozenset(record["unwritable"]))
                    fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.unlink()

    def remove(self) -> None:
        """Remove it."""
        self._file.unlink(missing_ok=True)
        os.close(self._lock)


def _identity(workspace: Path) -> list[str | int]:
    """Return the facts that tell a directory from a later one at the same path."""
    status = workspace.stat()
    return [str(workspace), status.st_dev, status.st_ino]


def _key(workspace: Path) -> str:
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:24]


def _is_in_place(workspace: Path, path: str) -> bool:
    """Whether a path exists below the workspace, without a link or a way up in it."""
    return os.path.realpath(workspace / path) == f"{workspace}/{path}" and (workspace / path).exists()


def _link(name: str, parent: int) -> str | None:
    """Return the target of a symbolic link, None for anything else."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _in_line(path: str) -> str:
    return path if path.isprintable() else repr(path)


def _gitlinks_above(workspace: Path) -> Iterator[str]:
    """Yield the submodules in a directory that lies in a repository."""
    for directory in workspace.parents:
        if (directory / ".git").exists():
            prefix = f"{workspace.relative_to(directory)}/"
            for path in _gitlinks(directory, ".git"):
                if path.startswith(prefix):
                    yield path.removeprefix(prefix)
            return


def _gitlinks(directory: Path, name: str) -> Iterable[str]:
    """Return the paths of submodules in the index of a repository, none where it cannot be read.

    Git itself is not asked, because it would obey the repository's configuration.
    """
    git = directory / name
    if (pointer := _read(git, 4096)).startswith(b"gitdir:"):
        git = directory / os.fsdecode(pointer.removeprefix(b"gitdir:").strip())
    index = _read(git / "index", _LARGEST_INDEX)
    has_sha256 = re.search(rb"(?i)objectformat\s*=\s*\"?sha256", _read(git / "config", 1024**2)) is not None
    try:
        return [os.fsdecode(path) for path in gitlinks_of(index, 32 if has_sha256 else 20)]
    except (struct.error, IndexError, ValueError):
        return []


def _read(file: Path, limit: int) -> bytes:
    """Return the content of a regular file; nothing for another, a missing or a larger one."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return b""
        with os.fdopen(os.dup(descriptor), "rb") as reader:
            return reader.read()
    finally:
        os.close(descriptor)


_GITLINK, _EXTENDED = 0o160000, 0x4000


def gitlinks_of(index: bytes, id_bytes: int) -> Iterator[bytes]:
    """Yield the paths of the submodules in an index file (gitformat-index(5)).

    Args:
        index: its content.
        id_bytes: the length of an object's id, 20 for SHA-1.

    Raises:
        struct.error, IndexError, ValueError: it is damaged.
    """
    if not index.startswith(b"DIRC") or struct.pack(">I", _GITLINK) not in index:
        return
    version, count = struct.unpack_from(">II", index, 4)
    at, path = 12, b""
    for _ in range(count):
        begun = at
        (mode,) = struct.unpack_from(">I", index, at + 24)
        at += 40 + id_bytes
        (flags,) = struct.unpack_from(">H", index, at)
        at += 4 if flags & _EXTENDED else 2
        if version == 4:  # noqa: PLR2004 - where a path shares its beginning with the one before
            cut, at = _varint(index, at)
            kept = path[: len(path) - cut]
        else:
            kept = b""
        end = index.index(b"\0", at)
        path = kept + index[at:end]
        at = end + 1 if version == 4 else begun + ((end - begun + 8) & ~7)  # noqa: PLR2004 - the same
        if mode == _GITLINK:
            yield path


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as git's packs hold offsets; return it and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
