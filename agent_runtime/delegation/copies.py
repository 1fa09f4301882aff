"""Workspace copies for child runs: copy within limits, compare, and merge back. No symbolic link is followed."""

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
from agent_runtime.core.text import is_dot_git
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import files as files_module
from agent_runtime.workspace.diffs import decode, unified_hunks
from agent_runtime.workspace.files import StagedFile, Workspace, quote_path
from agent_runtime.workspace.state import Manifest

_MAX_FILE_BYTES = 10_000_000  # bytes, as for every file that is replaced in one step
_MAX_MERGE_BYTES = 100_000_000
_DIFF_CHARS = 100_000
_DIFF_SECONDS = 60.0
_DIFF_MEMORY = 300 * 1024**2
_MAX_DEPTH = 100
_CHUNK_BYTES = 8 * 1024**2
_UNSUPPORTED = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF})
"""Errors of copy_file_range(2) when the kernel or the file system cannot copy by itself."""
_ENTRY_UNAVAILABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})
"""Errors of an entry that was removed or replaced during the copy, or that this user cannot read."""


async def copy_workspace(source: Workspace, target: Path, paths: Sequence[str] | None, bounds: CopyBounds) -> None:
    """Copy a workspace, or some of its canonical paths, into an empty directory.

    Includes files that git ignores, because builds need them, and `.git` directories. A file or link named `.git` is
    left out: both workspaces would share its repository. On cancellation, a partial copy remains.
    """
    stop = threading.Event()
    copy_task = asyncio.ensure_future(asyncio.to_thread(partial(_copy, source, target, paths, bounds, stop)))
    try:
        await asyncio.shield(copy_task)
    except asyncio.CancelledError:
        stop.set()
        while not copy_task.done():
            with suppress(asyncio.CancelledError):  # the thread stops after its current file
                await asyncio.wait([copy_task])
        copy_task.exception()
        raise


@dataclass(slots=True, kw_only=True)
class CopyBounds:
    """Remaining limits of a copy."""

    bytes_left: int
    files_left: int
    """Files, links and directories."""
    seconds: float = 120.0
    reserved_bytes: int = 0
    """Bytes that stay free on the disk."""


def _copy(
    source: Workspace, target: Path, paths: Sequence[str] | None, bounds: CopyBounds, stop: threading.Event
) -> None:
    if missing := next((path for path in paths or () if not source.exists(path)), None):
        raise ToolError(f"there is no {missing!r} in the workspace; name what is there", kind="FileNotFoundError")
    copier = _TreeCopier(bounds=bounds, stop=stop, deadline=time.monotonic() + bounds.seconds)
    try:
        with files_module.closing(_open(target, os.O_DIRECTORY)) as root:
            for path in ["."] if paths is None else paths:
                if path == ".":
                    with files_module.closing(source.open_directory(".")) as directory:
                        copier.copy_directory(directory, root, 1)
                    continue
                parent, _, name = path.rpartition("/")
                with (
                    files_module.closing(source.open_directory(parent or ".")) as directory,
                    _make_directories(root, tuple(filter(None, parent.split("/")))) as target_parent,
                ):
                    copier.copy_entry(directory, target_parent, name, 1)
    except OSError as error:
        raise ToolError(
            f"the workspace cannot be copied: {error.strerror or error}; free some space, or name the `files` that the "
            "task needs",
            kind="OSError",
        ) from error


@dataclass(slots=True, kw_only=True)
class _TreeCopier:
    bounds: CopyBounds
    stop: threading.Event
    deadline: float

    def copy_directory(self, source: int, target: int, level: int) -> None:
        file_system = os.fstatvfs(target)
        if file_system.f_bavail * file_system.f_frsize < self.bounds.reserved_bytes:
            raise _copy_error(f"less than {self.bounds.reserved_bytes:,} bytes would stay free on the disk")
        if level > _MAX_DEPTH:
            raise _copy_error(f"it has more than {_MAX_DEPTH} levels of directories")
        names: list[str] = []
        with os.scandir(source) as entries:
            for entry in entries:
                self.bounds.files_left -= 1
                if self.bounds.files_left < 0:
                    raise _copy_error("it has too many files and directories")
                names.append(entry.name)
        for name in names:
            self.copy_entry(source, target, name, level)

    def copy_entry(self, source: int, target: int, name: str, level: int) -> None:
        self._check_bounds()
        try:
            opened = _open_entry(source, name)
        except OSError as error:
            if error.errno in _ENTRY_UNAVAILABLE:
                return
            raise
        if isinstance(opened, str):
            os.symlink(opened, name, dir_fd=target)
        if not isinstance(opened, int):
            return
        with files_module.closing(opened) as old:
            status = os.fstat(old)
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(name, 0o700, dir_fd=target)
                with files_module.closing(_open(name, os.O_DIRECTORY, directory=target)) as new:
                    self.copy_directory(old, new, level + 1)
                    os.fchmod(new, 0o700 | mode)
            elif stat.S_ISREG(status.st_mode):
                with files_module.closing(_open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, directory=target)) as new:
                    self._copy_content(old, new)
                    os.fchmod(new, mode)
                    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _copy_content(self, old: int, new: int) -> None:
        while count := _copy_chunk(old, new):
            self.bounds.bytes_left -= count
            if self.bounds.bytes_left < 0:
                raise _copy_error("its files are too large")
            self._check_bounds()

    def _check_bounds(self) -> None:
        if self.stop.is_set() or time.monotonic() > self.deadline:
            raise _copy_error(f"copying it takes longer than {self.bounds.seconds:.0f} seconds")


def _open_entry(source: int, name: str) -> int | str | None:
    """Open a file or directory, or read a link's target; None for anything else."""
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return _open(name, os.O_DIRECTORY, directory=source)
    if is_dot_git(name):
        return None
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=source)
    return _open(name, os.O_NONBLOCK | os.O_NOCTTY, directory=source) if stat.S_ISREG(mode) else None


def _copy_chunk(old: int, new: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(old, new, _CHUNK_BYTES)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    data = memoryview(os.read(old, _CHUNK_BYTES))
    size = len(data)
    while data:
        data = data[os.write(new, data) :]
    return size


@contextmanager
def _make_directories(root: int, parts: Sequence[str]) -> Iterator[int]:
    with ExitStack() as stack:
        current = root
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=current)
            current = stack.enter_context(files_module.closing(_open(part, os.O_DIRECTORY, directory=current)))
        yield current


def _open(name: str | Path, flags: int, *, directory: int | None = None) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)


def _copy_error(reason: str) -> ToolError:
    return ToolError(
        f"the workspace cannot be copied: {reason}; name the `files` that the task needs", kind="ValueError"
    )


async def read_manifest(workspace: Workspace, extra: Collection[str] = ()) -> Manifest:
    """Hash the files of a copy, including `extra` paths that git ignores."""
    manifest = await Manifest.scan_bounded(workspace)
    if manifest.unlisted:
        raise ToolError(
            f"the copy has more than {len(manifest.entries):,} files that git does not ignore, and their changes could "
            "not be determined; name the `files` that the task needs",
            kind="ValueError",
        )
    ignored = await asyncio.to_thread(
        lambda: dict(_file_summaries(workspace, sorted(set(extra) - manifest.entries.keys())))
    )
    return replace(manifest, entries={**manifest.entries, **ignored})


def _file_summaries(workspace: Workspace, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        try:
            summary = _FileState.read(workspace, path).summary
        except ToolError:  # a link, a directory or a very large file
            continue
        if summary is not None:
            yield path, summary


@dataclass(frozen=True, slots=True)
class _FileState:
    data: bytes | None = None
    mode: int = 0

    @classmethod
    def read(cls, workspace: Workspace, path: str) -> _FileState:
        if workspace.resolve(path) != path:
            raise ToolError("it is behind a symbolic link, which is not collected")
        if not workspace.exists(path):
            return cls()
        return cls(workspace.read_bytes(path, _MAX_FILE_BYTES), (workspace.mode(path) or 0) & 0o777)

    @property
    def is_executable(self) -> bool:
        return bool(self.mode & 0o111)

    @property
    def summary(self) -> str | None:
        if self.data is None:
            return None
        return f"{'program' if self.is_executable else 'file'} {hashlib.sha256(self.data).hexdigest()}"


def canonical_paths(workspace: Workspace, paths: Iterable[str]) -> list[str]:
    """Resolve paths of a workspace, without those below another one."""
    names = {workspace.resolve(path) for path in paths}
    if outside := next((path for path in sorted(names) if path.startswith("/")), None):
        raise ToolError(f"{outside!r} does not lie in the workspace; name files of the workspace", kind="ValueError")
    return ["."] if "." in names else sorted(path for path in names if names.isdisjoint(_parent_directories(path)))


def changed_paths(base: Manifest, current: Manifest, paths: Iterable[str] | None = None) -> list[str]:
    """Return the paths that differ between two manifests, at or below `paths` if given."""
    selected = None if paths is None else frozenset(path.rstrip("/") for path in paths)
    return [
        path
        for path in sorted(base.entries.keys() | current.entries.keys())
        if base.entries.get(path) != current.entries.get(path)
        and (selected is None or not selected.isdisjoint((".", path, *_parent_directories(path))))
    ]


def _parent_directories(path: str) -> Iterator[str]:
    return (path[:at] for at, char in enumerate(path) if char == "/")


def plan_merge(child: Workspace, parent: Workspace, base: Mapping[str, str], paths: Sequence[str]) -> Merge:
    """Plan the merge of changed paths of a child's copy; `base` has the manifest entries of the original."""
    writes: list[StagedFile] = []
    conflicts: list[str] = []
    bytes_left = _MAX_MERGE_BYTES
    for number, path in enumerate(paths, 1):
        try:
            theirs, ours = _FileState.read(child, path), _FileState.read(parent, path)
        except ToolError as error:
            conflicts.append(f"{quote_path(path)}: {error}")
            continue
        bytes_left -= len(theirs.data or b"") + len(ours.data or b"")
        if bytes_left < 0:  # any number of files may follow: do not read them
            files = f"{quote_path(path)} and the {len(paths) - number:,} files after it"
            conflicts.append(
                f"{files}: beyond {_MAX_MERGE_BYTES:,} bytes in one call; name some of the files in `paths`"
            )
            break
        if theirs.summary == ours.summary:
            continue
        if ours.summary != base.get(path):
            change = "created" if base.get(path) is None else "deleted" if ours.data is None else "changed"
            conflicts.append(f"{quote_path(path)}: {change} in the workspace since the task began")
            continue
        mode = None if theirs.is_executable == ours.is_executable or theirs.data is None else theirs.mode
        writes.append(StagedFile(path=path, data=theirs.data, old=ours.data, mode=mode))
    return Merge(writes=tuple(writes), conflicts=tuple(conflicts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    writes: tuple[StagedFile, ...]
    conflicts: tuple[str, ...] = ()


async def render_diff(
    child: Workspace, parent: Workspace, paths: Sequence[str], is_hidden: Callable[[str], bool] = lambda _path: False
) -> tuple[str, int | None]:
    """Return the unified diff of a copy, and the number of changed lines; None for a cut diff or a binary file."""
    hidden = [path for path in paths if is_hidden(path)]
    encoded = await run_bounded(
        _diff, child, parent, paths, hidden, seconds=_DIFF_SECONDS, memory=_DIFF_MEMORY, task="Comparing files"
    )
    text, lines = json.loads(encoded)
    return text, lines


def _diff(child: Workspace, parent: Workspace, paths: Sequence[str], hidden: Collection[str]) -> str:
    with child, parent:
        lines: list[str] = []
        chars_left, changed_lines = _DIFF_CHARS, 0
        is_counted = True
        for number, path in enumerate(paths):
            head, hunks = _file_diff(child, parent, path)
            is_counted = is_counted and hunks is not None
            changed_lines += sum(line.startswith(("+", "-")) for line in hunks or ())
            if path in hidden:
                continue
            for line in (*head, *(hunks or ())):
                chars_left -= len(line) + 1
                if chars_left < 0:
                    cut = f"… cut; {len(paths) - number} of {len(paths)} files are not shown whole"
                    return json.dumps(["\n".join([*lines, cut]), None])
                lines.append(line)
        return json.dumps(["\n".join(lines), changed_lines if is_counted else None])


def _file_diff(child: Workspace, parent: Workspace, path: str) -> tuple[list[str], list[str] | None]:
    try:
        new, old = _FileState.read(child, path), _FileState.read(parent, path)
    except ToolError as error:
        return [f"{quote_path(path)}: {error}"], None
    if new.summary == old.summary:
        return [], []
    texts = [None if state.data is None else decode(state.data) for state in (old, new)]
    head = [
        f"--- {quote_path(f'a/{path}') if old.data is not None else '/dev/null'}",
        f"+++ {quote_path(f'b/{path}') if new.data is not None else '/dev/null'}",
    ]
    if any(text is None and state.data is not None for text, state in zip(texts, (old, new), strict=True)):
        sizes = f"Binary files differ: {len(old.data or b''):,} bytes before, {len(new.data or b''):,} after"
        return [*head, sizes], None
    before, after = ([] if text is None else list(text.lines) for text in texts)
    return head, unified_hunks(before, after)
