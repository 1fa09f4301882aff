"""Copies of a workspace for child runs: made within bounds, compared, and merged back.

`merge` is a three-way merge of whole files, all or nothing: a file is taken where the parent has it as it was when the
child run began; one that both have changed, and not to the same, is a conflict. No link is followed.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.core.text import is_git
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import files as files_module
from agent_runtime.workspace.diffs import decode, unified
from agent_runtime.workspace.files import StagedFile, Workspace, in_line
from agent_runtime.workspace.state import Manifest

_MOST_FILE = 10_000_000  # bytes, as for every file that is replaced in one step
_MOST_BYTES = 100_000_000
_DIFF_CHARS = 100_000
_SECONDS = 60.0
_MEMORY = 300 * 1024**2
_MOST_LEVELS = 100
_CHUNK = 8 * 1024**2
_NO_RANGES = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF})
"""Errors of copy_file_range(2) where the kernel, or a file system, cannot copy by itself."""
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})
"""Errors of one name of the source: it went or became another kind of thing meanwhile, or is not ours to read."""


async def copy_workspace(source: Workspace, target: Path, names: Sequence[str] | None, bounds: CopyBounds) -> None:
    """Copy a workspace in a thread, or parts of it; cancelled, it ends at once and leaves what it has copied.

    Where the file system can, the copies share their bytes with the originals until either is changed. Files that git
    ignores are copied, because builds and tests need them (`.venv`, `node_modules`), and so are directories named
    `.git`, for `git log` and `git diff`. A file or link named `.git` is not: it leads to a git directory that both
    would share.

    Args:
        source: the workspace.
        target: an empty directory.
        names: canonical paths of what to copy; None for everything.
        bounds: how much.

    Raises:
        ToolError: it is too large, there is no room for it, or nothing stands under one of the names.
    """
    stop = threading.Event()
    copying = asyncio.ensure_future(asyncio.to_thread(partial(_copy, source, target, names, bounds, stop)))
    try:
        await asyncio.shield(copying)
    except asyncio.CancelledError:
        stop.set()
        while not copying.done():
            with suppress(asyncio.CancelledError):  # it ends with the file that it is at
                await asyncio.wait([copying])
        copying.exception()
        raise


@dataclass(slots=True, kw_only=True)
class CopyBounds:
    """What is left of the bounds of a copy.

    Attributes:
        size: bytes.
        files: files, links and directories.
        seconds: how long it may take.
        free: bytes that stay free on the disk.
    """

    size: int
    files: int
    seconds: float = 120.0
    free: int = 0


def _copy(
    source: Workspace, target: Path, names: Sequence[str] | None, bounds: CopyBounds, stop: threading.Event
) -> None:
    if missing := next((name for name in names or () if not source.exists(name)), None):
        raise ToolError(f"there is no {missing!r} in the workspace; name what is there", kind="FileNotFoundError")
    copy = _Copy(bounds=bounds, stop=stop, deadline=time.monotonic() + bounds.seconds)
    try:
        with files_module.held(_open(target, os.O_DIRECTORY)) as root:
            for name in ["."] if names is None else names:
                if name == ".":
                    with files_module.held(source.open_directory(".")) as directory:
                        copy.directory(directory, root, 1)
                    continue
                parent, _, last = name.rpartition("/")
                with (
                    files_module.held(source.open_directory(parent or ".")) as directory,
                    _make_directories(root, tuple(filter(None, parent.split("/")))) as beside,
                ):
                    copy.entry(directory, beside, last, 1)
    except OSError as error:
        raise ToolError(
            f"the workspace cannot be copied: {error.strerror or error}; free some space, or name the `files` that the "
            "task needs",
            kind="OSError",
        ) from error


@dataclass(slots=True, kw_only=True)
class _Copy:
    """One copy under way."""

    bounds: CopyBounds
    stop: threading.Event
    deadline: float

    def directory(self, source: int, target: int, level: int) -> None:
        """Copy what a directory holds."""
        room = os.fstatvfs(target)
        if room.f_bavail * room.f_frsize < self.bounds.free:
            raise _too_large(f"less than {self.bounds.free:,} bytes would stay free on the disk")
        if level > _MOST_LEVELS:
            raise _too_large(f"it has more than {_MOST_LEVELS} levels of directories")
        found: list[str] = []
        with os.scandir(source) as entries:
            for entry in entries:
                self.bounds.files -= 1
                if self.bounds.files < 0:
                    raise _too_large("it has too many files and directories")
                found.append(entry.name)
        for name in found:
            self.entry(source, target, name, level)

    def entry(self, source: int, target: int, name: str, level: int) -> None:
        """Copy what stands under a name."""
        self._check_bounds()
        try:
            found = _open_entry(source, name)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        if isinstance(found, str):
            os.symlink(found, name, dir_fd=target)
        if not isinstance(found, int):
            return
        with files_module.held(found) as old:
            status = os.fstat(old)
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(name, 0o700, dir_fd=target)
                with files_module.held(_open(name, os.O_DIRECTORY, within=target)) as new:
                    self.directory(old, new, level + 1)
                    os.fchmod(new, 0o700 | mode)
            elif stat.S_ISREG(status.st_mode):
                with files_module.held(_open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, within=target)) as new:
                    self._copy_content(old, new)
                    os.fchmod(new, mode)
                    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _copy_content(self, old: int, new: int) -> None:
        """Copy a file's bytes; of one that somebody goes on writing, no more than there is room for."""
        while count := _copy_chunk(old, new):
            self.bounds.size -= count
            if self.bounds.size < 0:
                raise _too_large("its files are too large")
            self._check_bounds()

    def _check_bounds(self) -> None:
        """Check the bounds that nothing counts down.

        Raises:
            ToolError: the time is over, or the copy is wanted no more.
        """
        if self.stop.is_set() or time.monotonic() > self.deadline:
            raise _too_large(f"copying it takes longer than {self.bounds.seconds:.0f} seconds")


def _open_entry(source: int, name: str) -> int | str | None:
    """What stands under a name: a descriptor of a file or directory, or where a link leads; None for all else.

    Raises:
        OSError: it cannot be opened.
    """
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return _open(name, os.O_DIRECTORY, within=source)
    if is_git(name):
        return None
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=source)
    return _open(name, os.O_NONBLOCK | os.O_NOCTTY, within=source) if stat.S_ISREG(mode) else None


def _copy_chunk(old: int, new: int) -> int:
    """Copy some more of a file; gives how many bytes, 0 at its end."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(old, new, _CHUNK)
        except OSError as error:
            if error.errno not in _NO_RANGES:
                raise
    data = memoryview(os.read(old, _CHUNK))
    size = len(data)
    while data:
        data = data[os.write(new, data) :]
    return size


@contextmanager
def _make_directories(root: int, parts: Sequence[str]) -> Iterator[int]:
    """The directory of a path beneath `root`, made where it is missing; no link is followed."""
    with ExitStack() as stack:
        here = root
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=here)
            here = stack.enter_context(files_module.held(_open(part, os.O_DIRECTORY, within=here)))
        yield here


def _open(name: str | Path, flags: int, *, within: int | None = None) -> int:
    """Open without following a link; what is new is its owner's alone."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=within)


def _too_large(why: str) -> ToolError:
    return ToolError(f"the workspace cannot be copied: {why}; name the `files` that the task needs", kind="ValueError")


async def read_state(files: Workspace, also: Collection[str] = ()) -> Manifest:
    """What all files of a copy hold.

    Args:
        files: the copy.
        also: files that are looked at although git ignores them, as far as they are regular ones that are there.

    Raises:
        ToolError: there are too many to be compared.
        BoundExceededError: looking takes too long.
    """
    manifest = await Manifest.bounded(files)
    if manifest.unlisted:
        raise ToolError(
            f"the copy has more than {len(manifest.entries):,} files that git does not ignore, and their changes could "
            "not be told; name the `files` that the task needs",
            kind="ValueError",
        )
    ignored = await asyncio.to_thread(lambda: dict(_states_of(files, sorted(set(also) - manifest.entries.keys()))))
    return replace(manifest, entries={**manifest.entries, **ignored})


def _states_of(files: Workspace, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            found = _FileState.of(files, path).summary
        except ToolError:  # a link, a directory or a very large file
            continue
        if found is not None:
            yield path, found


@dataclass(frozen=True, slots=True)
class _FileState:
    """A regular file, or that there is none."""

    data: bytes | None = None
    mode: int = 0

    @classmethod
    def of(cls, workspace: Workspace, path: str) -> _FileState:
        """What stands at a path.

        Raises:
            ToolError: something that is no regular file, is too large, or lies behind a link.
        """
        if workspace.resolve(path) != path:
            raise ToolError("it is behind a symbolic link, which is not collected")
        if not workspace.exists(path):
            return cls()
        return cls(workspace.read_bytes(path, _MOST_FILE), (workspace.mode(path) or 0) & 0o777)

    @property
    def executable(self) -> bool:
        """Whether it may be run."""
        return bool(self.mode & 0o111)

    @property
    def summary(self) -> str | None:
        """The state in the form of a manifest's entry; None for no file."""
        if self.data is None:
            return None
        return f"{'program' if self.executable else 'file'} {hashlib.sha256(self.data).hexdigest()}"


def canonical_paths(workspace: Workspace, paths: Iterable[str]) -> list[str]:
    """Paths of a workspace, without those that lie beneath others.

    Raises:
        ToolError: one lies elsewhere.
    """
    found = {workspace.resolve(path) for path in paths}
    if outside := next((path for path in sorted(found) if path.startswith("/")), None):
        raise ToolError(f"{outside!r} does not lie in the workspace; name files of the workspace", kind="ValueError")
    return ["."] if "." in found else sorted(path for path in found if found.isdisjoint(_above(path)))


def changed_paths(base: Manifest, now: Manifest, paths: Iterable[str] | None = None) -> list[str]:
    """The files that differ between two states of a child's copy.

    Args:
        base: as it began.
        now: as it is.
        paths: files and directories to look at, canonical; None for all.
    """
    wanted = None if paths is None else frozenset(path.rstrip("/") for path in paths)
    return [
        path
        for path in sorted(base.entries.keys() | now.entries.keys())
        if base.entries.get(path) != now.entries.get(path)
        and (wanted is None or not wanted.isdisjoint((".", path, *_above(path))))
    ]


def _above(path: str) -> Iterator[str]:
    """The directories above a canonical path, without the workspace itself."""
    return (path[:at] for at, char in enumerate(path) if char == "/")


def merge(child: Workspace, parent: Workspace, base: Mapping[str, str], paths: Sequence[str]) -> Merge:
    """Work out what collecting files would do; nothing is written.

    Args:
        child: the copy.
        parent: the workspace that it was made of.
        base: what the files were when it was made; see `Manifest.entries`.
        paths: the files.
    """
    writes: list[StagedFile] = []
    conflicts: list[str] = []
    room = _MOST_BYTES
    for number, path in enumerate(paths, 1):
        try:
            theirs, ours = _FileState.of(child, path), _FileState.of(parent, path)
        except ToolError as error:
            conflicts.append(f"{in_line(path)}: {error}")
            continue
        room -= len(theirs.data or b"") + len(ours.data or b"")
        if room < 0:  # what follows is not read: it may be any number of files
            which = f"{in_line(path)} and the {len(paths) - number:,} files after it"
            conflicts.append(f"{which}: beyond {_MOST_BYTES:,} bytes in one call; name some of the files in `paths`")
            break
        if theirs.summary == ours.summary:
            continue
        if ours.summary != base.get(path):
            fate = "created" if base.get(path) is None else "deleted" if ours.data is None else "changed"
            conflicts.append(f"{in_line(path)}: {fate} in the workspace since the task began")
            continue
        mode = None if theirs.executable == ours.executable or theirs.data is None else theirs.mode
        writes.append(StagedFile(path=path, data=theirs.data, old=ours.data, mode=mode))
    return Merge(writes=tuple(writes), conflicts=tuple(conflicts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What collecting a child's work would do.

    Attributes:
        writes: what becomes of which file of the parent.
        conflicts: why files cannot be taken, one line each; nothing is taken while there are any.
    """

    writes: tuple[StagedFile, ...]
    conflicts: tuple[str, ...] = ()


async def render_diff(
    child: Workspace, parent: Workspace, paths: Sequence[str], hides: Callable[[str], bool] = lambda _path: False
) -> tuple[str, int | None]:
    """What files of a child's copy would change in the parent's workspace, as a unified diff, cut at a bound.

    Beside it, how many lines are added and removed in all these files; None where that is not known, since the diff is
    cut or one of them is no text.

    Args:
        child: the copy.
        parent: the workspace.
        paths: the files.
        hides: whether nothing of a file's content is to be shown.

    Raises:
        BoundExceededError: it takes too long.
    """
    hidden = [path for path in paths if hides(path)]
    made = await run_bounded(
        _diff, child, parent, paths, hidden, seconds=_SECONDS, memory=_MEMORY, what="Comparing files"
    )
    text, lines = json.loads(made)
    return text, lines


def _diff(child: Workspace, parent: Workspace, paths: Sequence[str], hidden: Collection[str]) -> str:
    """`render_diff` in a worker process, as JSON."""
    with child, parent:
        lines: list[str] = []
        room, changed_lines = _DIFF_CHARS, 0
        is_counted = True
        for number, path in enumerate(paths):
            head, hunks = _file_diff(child, parent, path)
            is_counted = is_counted and hunks is not None
            changed_lines += sum(line.startswith(("+", "-")) for line in hunks or ())
            if path in hidden:
                continue
            for line in (*head, *(hunks or ())):
                room -= len(line) + 1
                if room < 0:
                    cut = f"… cut; {len(paths) - number} of {len(paths)} files are not shown whole"
                    return json.dumps(["\n".join([*lines, cut]), None])
                lines.append(line)
        return json.dumps(["\n".join(lines), changed_lines if is_counted else None])


def _file_diff(child: Workspace, parent: Workspace, path: str) -> tuple[list[str], list[str] | None]:
    """The first line about a file, and its hunks; None where these are unknown."""
    try:
        new, old = _FileState.of(child, path), _FileState.of(parent, path)
    except ToolError as error:
        return [f"{in_line(path)}: {error}"], None
    if new.summary == old.summary:
        return [], []
    texts = [None if each.data is None else decode(each.data) for each in (old, new)]
    head = [
        f"--- {in_line(f'a/{path}') if old.data is not None else '/dev/null'}",
        f"+++ {in_line(f'b/{path}') if new.data is not None else '/dev/null'}",
    ]
    if any(text is None and each.data is not None for text, each in zip(texts, (old, new), strict=True)):
        sizes = f"Binary files differ: {len(old.data or b''):,} bytes before, {len(new.data or b''):,} after"
        return [*head, sizes], None
    before, after = ([] if text is None else list(text.lines) for text in texts)
    return head, unified(before, after)
