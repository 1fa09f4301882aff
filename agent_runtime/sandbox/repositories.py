"""Protection of git repositories below a user's directory from sandboxed programs.

Git runs programs named in a repository's configuration, and `git status` enters any directory that looks like a
repository. Existing ones are mounted read-only; new ones cannot be prevented by seccomp, Landlock or mounts and are
moved away after each command and by patrols.
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

_MAX_MOUNTS = 300
"""Measured start of bubblewrap: 0.07 s for 100 mounts, 1.1 s for 500, 3.6 s for 1,000."""

_MAX_DIRECTORIES = 500_000

_MAX_DEPTH = 200

_TIMESTAMP_RESOLUTION = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most

_PATROL_PAUSE_FACTOR = 50
"""Pause after a patrol, as a multiple of its duration."""

_MAX_INDEX_BYTES = 512 * 1024**2

_MAX_NAMED = 10

_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class RepositoryGuard:
    """Stops programs from creating or changing git repositories in one directory. Linux and macOS; thread-safe.

    Call `begin` before the first program and `close` after the last.
    """

    def __init__(self, workspace: Path, *, notify: Callable[[str], None]) -> None:
        self._workspace = workspace.resolve()
        self._notify = notify
        self._lock = threading.Lock()
        self._survey: _Survey | None = None
        self._record: _Record | None = None
        self._listings: dict[tuple[int, int], _Listing] = {}
        self._moved: list[tuple[str, str]] = []
        self._next_patrol = 0.0

    def begin(self) -> tuple[FixedPath, ...]:
        """Find the existing repositories, once, and return their mounts.

        First moves away those that appeared since a killed process or this guard's last sandbox.
        """
        with self._lock:
            if self._survey is None:
                for survey in _Record.read_others(self._workspace):
                    self._sweep(survey)
                self._survey = self._find_repositories()
                self._record = _Record.write(self._workspace, self._survey)
            else:
                self._sweep(self._survey)
            return tuple(mount for mount in self._survey.mounts if _is_in_place(self._workspace, mount.path))

    def sweep(self) -> None:
        """Move away repositories that appeared since `begin`."""
        with self._lock:
            if self._survey is not None:
                self._sweep(self._survey)

    def patrol(self) -> None:
        """Sweep, using at most 2 % of a processor."""
        if time.monotonic() >= self._next_patrol:
            self.sweep()

    def report(self) -> str:
        """Report the repositories moved since the last report to the user, and return the text."""
        with self._lock:
            moved, self._moved = self._moved, []
        if not moved:
            return ""
        names = ", ".join(f"{_printable(path)} (now {_printable(place)})" for path, place in moved[:_MAX_NAMED])
        more = f" and {len(moved) - _MAX_NAMED} more" if len(moved) > _MAX_NAMED else ""
        text = (
            f"git repositories cannot be made here, because the user's git would run their programs. Set aside: {names}"
            f"{more}. Make repositories in /tmp; `runtime.git_writable: true` allows them here"
        )
        self._notify(text)
        return text

    def close(self) -> None:
        """Sweep a last time and forget the repositories; idempotent."""
        with self._lock:
            if self._survey is not None:
                self._sweep(self._survey)
            if self._record is not None:
                self._record.remove()
            self._survey = self._record = None
            self._listings = {}

    def _find_repositories(self) -> _Survey:
        links: dict[str, str | None] = {}
        fixed: set[str] = set()
        parents: set[str] = set()
        submodules = list(_gitlinks_above(self._workspace))
        with _open_directory(self._workspace) as root:
            for count, place in enumerate(_walk(root, {}, self._listings, skipped=None)):
                if place.too_deep or count > _MAX_DIRECTORIES:
                    raise SandboxError(
                        f"{self._workspace} has more than {_MAX_DIRECTORIES:,} directories, or {_MAX_DEPTH} below one "
                        "another, too many to protect the git repositories in it. Work in a directory below it, or "
                        "allow changes of repositories (`runtime.git_writable: true`, `SandboxSettings.git_writable`)."
                    )
                for name in place.listing.git:
                    path = _join(place.path, name)
                    links[path] = _link(name, place.descriptor)
                    if links[path] is None and path != ".git":  # that one is mounted for every program
                        fixed.add(path)
                    submodules += (_join(place.path, link) for link in _gitlinks(self._workspace / place.path, name))
                if place.listing.heads:
                    links[place.path] = None
                    fixed.update({place.path} - {""})
        for path in submodules:
            if path in links or f"{path}/.git" in links or not _is_in_place(self._workspace, path):
                continue
            with suppress(OSError), _open_directory(self._workspace / path) as directory:
                is_empty = not os.listdir(directory)  # noqa: PTH208 - a descriptor
                (fixed if is_empty else parents).add(path)
        for path in fixed | parents:
            parents.update(path[:end] for end, sign in enumerate(path) if sign == "/")
        ordered = sorted(fixed | parents, key=lambda path: path.split("/"))
        mounts = [FixedPath(path=path, writable=path not in fixed) for path in ordered]
        if len(mounts) > _MAX_MOUNTS:
            raise SandboxError(
                f"{self._workspace} has {len(fixed)} git repositories below it, too many to mount read-only. Work in a "
                "directory below it, or allow changes of repositories (`runtime.git_writable: true`, "
                "`SandboxSettings.git_writable`)."
            )
        return _Survey(links=links, mounts=tuple(mounts), unwritable=frozenset(fixed))

    def _sweep(self, survey: _Survey) -> None:
        start = time.monotonic()
        listings, self._listings = self._listings, {}
        skipped = {*survey.unwritable, *survey.links} - {""}
        with suppress(FileNotFoundError), _open_directory(self._workspace) as root:
            for place in _walk(root, listings, self._listings, skipped=skipped):
                if place.too_deep:
                    place.add_renamed(self._set_aside(place.descriptor, place.too_deep, place.path))
                for name in place.listing.git:
                    path = _join(place.path, name)
                    target = _link(name, place.descriptor)
                    if path in survey.links and (survey.links[path] is None or survey.links[path] == target):
                        continue
                    place.add_renamed(self._set_aside(place.descriptor, name, place.path))
                    if (former := survey.links.get(path)) is not None:
                        with suppress(FileExistsError):
                            os.symlink(former, name, dir_fd=place.descriptor)
                if place.path not in survey.links:
                    for name in place.listing.heads:
                        self._set_aside(place.descriptor, name, place.path)
        self._next_patrol = time.monotonic() + _PATROL_PAUSE_FACTOR * (time.monotonic() - start)

    def _set_aside(self, parent: int, name: str, path: str) -> str:
        """Move an entry out of the workspace, or rename it; return a new name in the same directory.

        Nothing is read or followed, since programs may change the contents meanwhile.
        """
        suffix = f"{time.strftime('%Y-%m-%d')}-{secrets.token_hex(4)}"
        local_name = f".set-aside-{suffix}"
        for attempt in (_move_out, _make_movable, _move_out, _rename):
            try:
                shelf = state_directory(self._workspace) / "set-aside" / suffix if attempt is _move_out else local_name
                place = attempt(parent, name, str(shelf))
            except FileNotFoundError:  # its maker was faster
                return ""
            except (OSError, RuntimeError):  # RuntimeError: this user has no home
                continue
            if place:
                self._moved.append((_join(path, name), place if place != local_name else _join(path, local_name)))
                return local_name if place == local_name else ""
        self._moved.append((_join(path, name), "still there: it could not be moved, remove it before you use git"))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """Repositories of a directory: links by path, mounts, and read-only paths, where only the user creates entries."""

    links: Mapping[str, str | None]
    mounts: tuple[FixedPath, ...] = ()
    unwritable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """Relevant entries of a directory, valid while its ctime equals `changed`."""

    changed: int
    folders: tuple[str, ...]
    git: tuple[str, ...]
    heads: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Directory:
    """A directory on a walk, open until the next."""

    descriptor: int
    path: str
    listing: _Listing
    too_deep: str = ""
    additional: list[str] = field(default_factory=list)

    def add_renamed(self, name: str) -> None:
        self.additional += [name] if name else []


_EMPTY_LISTING = _Listing(changed=0, folders=(), git=(), heads=())

_INACCESSIBLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM})
"""Removed, replaced, a link, or another user's."""


def _walk(
    root: int,
    previous: Mapping[tuple[int, int], _Listing],
    listings: dict[tuple[int, int], _Listing],
    *,
    skipped: Collection[str] | None,
) -> Generator[_Directory]:
    """Open every directory except `.git`, relative to its parent and without links; None skips bare repositories."""
    pending: list[tuple[int, str, list[str]]] = []
    try:
        place = _Directory(descriptor=root, path="", listing=_scan(root, previous, listings))
        yield place
        pending.append((os.dup(root), "", [*place.listing.folders, *place.additional]))
        while pending:
            parent, above, names = pending[-1]
            if not names:
                os.close(pending.pop()[0])
                continue
            name = names.pop()
            path = _join(above, name)
            if skipped is not None and path in skipped:
                continue
            if len(pending) >= _MAX_DEPTH:
                yield _Directory(descriptor=parent, path=above, listing=_EMPTY_LISTING, too_deep=name)
                continue
            try:
                with _open_subdirectory(parent, name) as descriptor:
                    place = _Directory(descriptor=descriptor, path=path, listing=_scan(descriptor, previous, listings))
                    yield place
                    if (skipped is not None or not place.listing.heads) and (place.listing.folders or place.additional):
                        pending.append((os.dup(descriptor), path, [*place.listing.folders, *place.additional]))
            except OSError as error:
                if error.errno not in _INACCESSIBLE:
                    raise
    finally:
        for descriptor, _, _ in pending:
            os.close(descriptor)


def _scan(
    descriptor: int, previous: Mapping[tuple[int, int], _Listing], listings: dict[tuple[int, int], _Listing]
) -> _Listing:
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino)
    listing = previous.get(key)
    if listing is None or listing.changed != status.st_ctime_ns:
        now = time.time_ns()
        with os.scandir(descriptor) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        git = tuple(name for name, _ in names if is_dot_git(name))
        heads = [name for name, _ in names if name.casefold() == "head"]
        listing = _Listing(
            # A change in the same tick of the kernel's clock would not show.
            changed=status.st_ctime_ns if now - status.st_ctime_ns > _TIMESTAMP_RESOLUTION else 0,
            folders=tuple(name for name, is_folder in names if is_folder and name not in git),
            git=git,
            heads=tuple(heads) if heads and is_git_directory([name for name, _ in names]) else (),
        )
    if listing.changed:
        listings[key] = listing
    return listing


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, _OPEN)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_subdirectory(parent: int, name: str) -> Iterator[int]:
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
    if sys.platform != "linux":
        return None
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode) or mode & rights == rights:
            return None
        os.chmod(f"/proc/self/fd/{descriptor}", mode | rights)  # noqa: PTH101 - a descriptor, not a path
        return mode
    finally:
        os.close(descriptor)


def _make_movable(parent: int, name: str, _word: str) -> str:
    """Make an entry movable: its directory, and a directory that is moved, must be writable."""
    os.fchmod(parent, stat.S_IMODE(os.fstat(parent).st_mode) | stat.S_IRWXU)
    _change_mode(parent, name, stat.S_IRWXU)
    return ""


def _move_out(parent: int, name: str, directory: str) -> str:
    """Move an entry to an inaccessible directory, where git discovers no repository."""
    shelf = Path(directory)
    shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.rename(name, shelf / "entry", src_dir_fd=parent)
    except OSError:
        shelf.rmdir()
        raise
    shelf.chmod(0)
    return str(shelf)


def _rename(parent: int, name: str, new_name: str) -> str:
    os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=parent)
    return new_name


def state_directory(workspace: Path) -> Path:
    """Return the user's directory for persistent state; raise if it is unknown or in the workspace."""
    home = Path.home().resolve()
    if not home.is_dir():  # not FileNotFoundError, by which a vanished repository is known
        raise OSError(f"the home directory {home} does not exist")
    place = home / ".codepilot"
    if place.resolve().is_relative_to(workspace):
        raise OSError(f"{place} lies in the workspace {workspace}")
    return place


class _Record:
    """Repositories before programs ran, on disk for the next process; unlocked once its owner was killed."""

    def __init__(self, file: Path, lock: int) -> None:
        self._file = file
        self._lock = lock

    @classmethod
    def write(cls, workspace: Path, survey: _Survey) -> _Record | None:
        """Write and lock a record; None without a state directory."""
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
    def read_others(cls, workspace: Path) -> Iterator[_Survey]:
        """Yield the surveys of other processes, then delete those of dead ones."""
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
        self._file.unlink(missing_ok=True)
        os.close(self._lock)


def _identity(workspace: Path) -> list[str | int]:
    status = workspace.stat()
    return [str(workspace), status.st_dev, status.st_ino]


def _key(workspace: Path) -> str:
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:24]


def _is_in_place(workspace: Path, path: str) -> bool:
    return os.path.realpath(workspace / path) == f"{workspace}/{path}" and (workspace / path).exists()


def _link(name: str, parent: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _printable(path: str) -> str:
    return path if path.isprintable() else repr(path)


def _gitlinks_above(workspace: Path) -> Iterator[str]:
    for directory in workspace.parents:
        if (directory / ".git").exists():
            prefix = f"{workspace.relative_to(directory)}/"
            for path in _gitlinks(directory, ".git"):
                if path.startswith(prefix):
                    yield path.removeprefix(prefix)
            return


def _gitlinks(directory: Path, name: str) -> Iterable[str]:
    """Return the submodules in a repository's index, none if unreadable.

    Parsed here, since git itself obeys the repository's configuration.
    """
    git = directory / name
    if (pointer := _read(git, 4096)).startswith(b"gitdir:"):
        git = directory / os.fsdecode(pointer.removeprefix(b"gitdir:").strip())
    index = _read(git / "index", _MAX_INDEX_BYTES)
    has_sha256 = re.search(rb"(?i)objectformat\s*=\s*\"?sha256", _read(git / "config", 1024**2)) is not None
    try:
        return [os.fsdecode(path) for path in parse_gitlinks(index, 32 if has_sha256 else 20)]
    except (struct.error, IndexError, ValueError):
        return []


def _read(file: Path, limit: int) -> bytes:
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


def parse_gitlinks(index: bytes, id_bytes: int) -> Iterator[bytes]:
    """Yield the paths of submodules in an index, gitformat-index(5); `id_bytes` is 20 for SHA-1.

    Raises:
        struct.error, IndexError, ValueError: damaged index.
    """
    if not index.startswith(b"DIRC") or struct.pack(">I", _GITLINK) not in index:
        return
    version, count = struct.unpack_from(">II", index, 4)
    position, path = 12, b""
    for _ in range(count):
        start = position
        (mode,) = struct.unpack_from(">I", index, position + 24)
        position += 40 + id_bytes
        (flags,) = struct.unpack_from(">H", index, position)
        position += 4 if flags & _EXTENDED else 2
        if version == 4:  # noqa: PLR2004 - where a path shares its beginning with the one before
            cut, position = _varint(index, position)
            prefix = path[: len(path) - cut]
        else:
            prefix = b""
        end = index.index(b"\0", position)
        path = prefix + index[position:end]
        position = end + 1 if version == 4 else start + ((end - start + 8) & ~7)  # noqa: PLR2004 - the same
        if mode == _GITLINK:
            yield path


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position] & 0x7F
    while data[position] & 0x80:
        position += 1
        value = ((value + 1) << 7) | (data[position] & 0x7F)
    return value, position + 1
