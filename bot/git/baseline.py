"""Baseline of a workspace, stored outside every sandbox, and its differences from that.

Ignored files, and directories that git would treat as repositories, are no differences.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.domain.difference import list_names
from bot.git.errors import ChangeError, GitError
from bot.git.filesystem import (
    MAX_DEPTH,
    MAX_PATH_BYTES,
    ScannedFile,
    Stamp,
    fold_name,
    is_too_deep,
    join_path,
    open_root,
    parent_folders,
    read_file,
    read_folder,
    walk_files,
    write_atomically,
)
from bot.git.leftovers import Leftover, find_leftovers
from bot.git.process import Git, ProcessBounds

GITLINK = "160000"
_MAX_PATH_CHARS = 200
_FILE = "given.json"
_MAX_TICK_SECONDS, _POLL_SECONDS = 4.0, 0.001
_MAX_RULES_BYTES = 1024 * 1024
_IGNORE_SECONDS = 10
_NOT_IGNORED = "The patterns in `.gitignore` take too long to match, so this change may contain ignored files."
_EMBEDDED = (
    "Git would treat these directories as repositories and execute their configuration. They are not part of this "
    "change:"
)
_LEFTOVERS = "Left out, since build and test tools leave such files:"
_INCLUDE = "To publish one, name it in `.gitignore` with `!`, or track a file of this kind."
_TOO_DEEP = (
    f"Files in new directories nested more than {MAX_DEPTH} deep, or with paths of more than {MAX_PATH_BYTES:,} bytes, "
    "are not part of this change."
)
_REPOSITORIES = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
_MARKS = frozenset().union(*_REPOSITORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Files of a workspace as given to the agent.

    Attributes:
        entries: every given file; a path with another or no entry counts as changed.
        excluded: untracked paths that are never part of a change.
        missing: paths of the commit that were absent when the agent started.
        restored: files rewritten for a resumed job: their stamp, and the original change time in ns.
    """

    base_sha: str = ""
    blobs: dict[str, str] = field(default_factory=dict)
    modes: dict[bytes, str]
    entries: dict[bytes, ScannedFile]
    excluded: frozenset[bytes] = frozenset()
    missing: frozenset[bytes] = frozenset()
    restored: dict[bytes, tuple[Stamp, int]] = field(default_factory=dict)

    def changed_ns(self, path: bytes, stamp: Stamp) -> int:
        """Return the change time of a file in ns since the epoch, which no program can set."""
        restored, changed = self.restored.get(path, (None, 0))
        return changed if stamp == restored else stamp[3]

    def reset(self, root: Path, excluded: Iterable[str]) -> Baseline:
        paths = frozenset(map(os.fsencode, excluded))
        entries = scan_files(root, paths)
        missing = frozenset(self.entries.keys() & self.modes.keys()) - entries.keys()
        return replace(self, entries=entries, excluded=paths, missing=missing)


def save_baseline(trusted: Path, baseline: Baseline) -> None:
    """Store atomically, outside every sandbox; return once a later write gets another stamp than any entry.

    Called before the agent starts, since the process may die at any time.
    """
    # JSON spells the half surrogate pairs by which Python writes bytes that are no UTF-8.
    document = {
        "base_sha": baseline.base_sha,
        "blobs": baseline.blobs,
        "modes": {os.fsdecode(path): mode for path, mode in baseline.modes.items()},
        "entries": {os.fsdecode(path): [entry.mode, *entry.stamp] for path, entry in baseline.entries.items()},
        "left_out": sorted(map(os.fsdecode, baseline.excluded)),
        "taken": sorted(map(os.fsdecode, baseline.missing)),
        "restored": {os.fsdecode(path): [*stamp, changed] for path, (stamp, changed) in baseline.restored.items()},
    }
    write_atomically(trusted / _FILE, json.dumps(document))
    # File systems round times, to 10 ms as a rule and to 2 s at most: within that, a file could be written again, with
    # the same size and time.
    newest = max((entry.stamp[3] for entry in baseline.entries.values()), default=0)
    deadline = time.monotonic() + _MAX_TICK_SECONDS
    while touch_file(trusted / _FILE) <= newest and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def touch_file(path: Path) -> int:
    """Update the times of a file, and return the new one in ns."""
    os.utime(path)
    return path.stat().st_ctime_ns


def load_baseline(trusted: Path) -> Baseline:
    """Load a stored baseline.

    Raises:
        ValueError: it is damaged.
    """
    document = json.loads((trusted / _FILE).read_text())
    try:
        return Baseline(
            base_sha=str(document["base_sha"]),
            blobs=dict(document["blobs"]),
            modes={os.fsencode(path): str(mode) for path, mode in document["modes"].items()},
            entries={
                os.fsencode(path): ScannedFile(str(mode), _stamp(stamp))
                for path, (mode, *stamp) in document["entries"].items()
            },
            excluded=frozenset(map(os.fsencode, document["left_out"])),
            missing=frozenset(map(os.fsencode, document["taken"])),
            restored={
                os.fsencode(path): (_stamp(stamp), int(changed))
                for path, (*stamp, changed) in document["restored"].items()
            },
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{trusted / _FILE} is incomplete: {error}") from error


def _stamp(values: list[object]) -> Stamp:
    inode, size, modified, changed, mode = (int(str(value)) for value in values)
    return inode, size, modified, changed, mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Differences of a workspace; `leftovers` of tools, here without caches, are not in `present`."""

    present: dict[bytes, ScannedFile]
    removed: tuple[bytes, ...]
    notes: tuple[str, ...] = ()
    leftovers: Mapping[bytes, ScannedFile] = field(default_factory=dict)


def is_never_wanted(_path: str) -> bool:
    return False


async def find_differences(
    root: Path, baseline: Baseline, ignores: IgnoreRules, is_wanted: Callable[[str], bool] = is_never_wanted
) -> Differences:
    """Compare a directory with its baseline, level by level.

    Args:
        is_wanted: whether a path is no leftover, whatever its name.

    Raises:
        ChangeError: the directory is gone.
    """
    comparison = await asyncio.to_thread(_Comparison, root, baseline)
    level = [b""]
    while level:
        untracked = await asyncio.to_thread(comparison.list_level, level, ignores)
        level = comparison.settle(await ignores.find_ignored(untracked))
    removed = baseline.modes.keys() - baseline.missing - comparison.tracked - comparison.links
    tracked = baseline.modes.keys() - removed
    present, embedded = await asyncio.to_thread(_exclude_repositories, comparison.present, tracked)
    new = await asyncio.to_thread(
        lambda: {path for path in present.keys() - baseline.modes.keys() if not is_wanted(os.fsdecode(path))}
    )
    leftovers = await asyncio.to_thread(find_leftovers, new, baseline.modes.keys(), present)
    names = [path for leftover in leftovers for path in {leftover.path, *leftover.files}]
    included = await ignores.find_included(names)
    files, listed = await asyncio.to_thread(_exclude_leftovers, present, leftovers, included)
    notes = (_NOT_IGNORED if ignores.timed_out else "", _TOO_DEEP if comparison.too_deep else "", embedded, listed)
    return Differences(
        present=present,
        removed=tuple(removed),
        notes=tuple(filter(None, notes)),
        leftovers=files,
    )


def _exclude_leftovers(
    present: dict[bytes, ScannedFile], leftovers: Iterable[Leftover], included: Collection[bytes]
) -> tuple[dict[bytes, ScannedFile], str]:
    """Remove files from `present`, and return those that are in no cache, and a note."""
    removed, names = dict[bytes, ScannedFile](), list[str]()
    for leftover in leftovers:
        paths = () if leftover.path in included else [path for path in leftover.files if path not in included]
        entries = {path: present.pop(path) for path in paths}
        if not leftover.is_cache:
            removed |= entries
        if entries:
            names.append(f"{format_path(leftover.path)}{f' ({len(entries):,} files)' if len(entries) > 1 else ''}")
    return removed, f"{_LEFTOVERS} {list_names(names)}. {_INCLUDE}" if names else ""


def _exclude_repositories(
    present: dict[bytes, ScannedFile], tracked: set[bytes]
) -> tuple[dict[bytes, ScannedFile], str]:
    folders = find_repositories(present.keys() | tracked)
    within = {path: outermost_folder(path, folders) for path in present}
    rest = {path: entry for path, entry in present.items() if within[path] is None}
    excluded = sorted({folder for folder in within.values() if folder is not None})
    return rest, f"{_EMBEDDED} {list_names([*map(format_path, excluded)])}." if excluded else ""


class IgnoreRules:
    """Ignore rules of the workspace, evaluated by git on copies of the `.gitignore` files in `shadow`.

    A pattern with many stars can keep git busy almost forever on one long name. After a timeout nothing is ignored:
    too many published files are better than lost work.
    """

    def __init__(self, git: Git, shadow: Path, *, cpu_seconds: int = _IGNORE_SECONDS) -> None:
        self._git = replace(
            git, work_tree=shadow, bounds=ProcessBounds(seconds=6.0 * cpu_seconds, cpu_seconds=cpu_seconds)
        )
        self._shadow = shadow
        self._deadline = time.monotonic() + 12.0 * cpu_seconds
        self.timed_out = False

    def add_folder(self, folder: bytes, rules: bytes | None, names: tuple[bytes, ...]) -> None:
        """Copy a directory's rules, and create its untracked subdirectories (`build/` matches only directories)."""
        if rules is None and not names:
            return
        place = self._shadow / os.fsdecode(folder)
        place.mkdir(parents=True, exist_ok=True)
        if rules is not None:
            (place / ".gitignore").write_bytes(rules)
        for name in names:
            (place / os.fsdecode(name)).mkdir(exist_ok=True)

    async def find_ignored(self, paths: list[bytes]) -> set[bytes]:
        return {path.removeprefix(b"./") for path in await self._check(paths)}

    async def find_included(self, paths: list[bytes]) -> set[bytes]:
        """Return the paths whose last match is a pattern with `!`."""
        # Source, line, pattern and path of each match.
        fields = await self._check(paths, "-v")
        matches = zip(fields[2::4], fields[3::4], strict=True)
        return {path.removeprefix(b"./") for pattern, path in matches if pattern.startswith(b"!")}

    async def _check(self, paths: list[bytes], *options: str) -> list[bytes]:
        if not paths or self.timed_out:
            return []
        command = ("check-ignore", "--no-index", *options, "-z", "--stdin")
        # `./` keeps a name such as `:(top)x` from being read as pathspec magic. Exit code 1: none is ignored.
        stdin = b"".join(b"./" + path + b"\0" for path in paths)
        try:
            answer = await self._git.run(*command, stdin=stdin, expect=(0, 1))
        except GitError as error:
            if error.exit_code is not None:
                raise
            self.timed_out = True
            return []
        self.timed_out = time.monotonic() > self._deadline
        return answer.split(b"\0")[:-1]


class _Comparison:
    def __init__(self, root: Path, baseline: Baseline) -> None:
        self.root = root
        self.baseline = baseline
        self.present: dict[bytes, ScannedFile] = {}
        self.tracked: set[bytes] = set()
        self.links = {path for path, mode in baseline.modes.items() if mode == GITLINK}
        self.tracked_folders = parent_folders(baseline.modes)
        self._files: dict[bytes, ScannedFile] = {}
        self._folders: list[bytes] = []
        self._next: list[bytes] = []
        self.too_deep = False

    def list_level(self, level: list[bytes], ignores: IgnoreRules) -> list[bytes]:
        # Opened and closed in this thread, since a cancelled caller does not wait for it.
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ChangeError(
                f"The workspace {self.root} cannot be read: {error.strerror}.", "Give the command again."
            ) from error
        try:
            return self._list_level(root, level, ignores)
        finally:
            os.close(root)

    def _list_level(self, root: int, level: list[bytes], ignores: IgnoreRules) -> list[bytes]:
        self._files, self._folders, self._next = {}, [], []
        for path in level:
            folder = read_folder(root, path)
            if folder is None:
                continue
            rules = folder.files.get(b".gitignore")
            below = {name: join_path(path, name) for name in folder.folders}
            untracked = tuple(n for n, p in below.items() if p not in self.tracked_folders and not is_too_deep(p))
            patterns = None
            if rules is not None and rules.mode != "120000":  # git follows no link here either
                patterns = read_file(root, join_path(path, b".gitignore"), rules.mode, limit=_MAX_RULES_BYTES)
            ignores.add_folder(path, patterns, untracked)
            for name, entry in folder.files.items():
                place = join_path(path, name)
                is_tracked = place in self.baseline.modes
                if is_tracked:
                    self.tracked.add(place)
                excluded = self.links if is_tracked else self.baseline.excluded
                if place not in excluded and self.baseline.entries.get(place) != entry:
                    (self.present if is_tracked else self._files)[place] = entry
            for place in below.values():
                if is_too_deep(place):
                    self.too_deep = True
                elif place not in self.links and place not in self.baseline.excluded:
                    (self._next if place in self.tracked_folders else self._folders).append(place)
        return [*self._files, *self._folders]

    def settle(self, ignored: set[bytes]) -> list[bytes]:
        self.present.update({path: entry for path, entry in self._files.items() if path not in ignored})
        return self._next + [path for path in self._folders if path not in ignored]


def scan_files(root: Path, excluded: frozenset[bytes] = frozenset()) -> dict[bytes, ScannedFile]:
    with open_root(root) as descriptor:
        return dict(walk_files(descriptor, excluded))


def find_repositories(paths: Collection[bytes]) -> set[bytes]:
    """Return the directories that git would treat as repositories though they are not named `.git`.

    In a directory with `HEAD`, `objects` and `refs`, or `HEAD` and `commondir`, git executes commands from `config`:
    https://git-scm.com/docs/git-config#Documentation/git-config.txt-safebareRepository
    """
    # Few other directories have a `HEAD`, so most paths need no second look.
    headed = {
        folder
        for path in paths
        if (b"head" in path.lower() or not path.isascii())
        for folder, name in _path_steps(path)
        if fold_name(name) == "head"
    }
    marks: defaultdict[bytes, set[str]] = defaultdict(set)
    for path in paths if headed else ():
        for folder, name in _path_steps(path):
            if folder in headed and (mark := fold_name(name)) in _MARKS:
                marks[folder].add(mark)
    return {folder for folder, present in marks.items() if any(required <= present for required in _REPOSITORIES)}


def outermost_folder(path: bytes, folders: Collection[bytes]) -> bytes | None:
    end = path.find(b"/") if folders else -1
    while end != -1:
        if path[:end] in folders:
            return path[:end]
        end = path.find(b"/", end + 1)
    return None


def _path_steps(path: bytes) -> Iterator[tuple[bytes, bytes]]:
    end = path.find(b"/")
    while end != -1:
        start, end = end + 1, path.find(b"/", end + 1)
        yield path[: start - 1], path[start : end if end != -1 else len(path)]


def format_path(path: bytes) -> str:
    text = path.decode(errors="replace")[:_MAX_PATH_CHARS]
    return f"`{''.join(character if character.isprintable() and character != '`' else '?' for character in text)}`"
