"""The state of a workspace when the agent got it, and the files that differ from it now.

A `Baseline` records each file of the checked-out commit as it was written. It is kept on disk beside the trusted git
directory, where no sandbox can reach it. Ignored files, and directories that git would take for repositories, are no
part of the differences.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.git.errors import ChangeError, GitError
from bot.git.filesystem import (
    DEEPEST,
    ScannedFile,
    Stamp,
    folded,
    is_too_deep,
    join,
    opened_root,
    parents,
    read_file,
    read_folder,
    walk,
    write_atomically,
)
from bot.git.process import Git, ProcessBounds

GITLINK = "160000"
MOST_NAMED, _MOST_SHOWN = 10, 200
_FILE = "given.json"
_MAX_RULES_BYTES = 1024 * 1024
_IGNORE_SECONDS = 10
_NOT_IGNORED = "The patterns in `.gitignore` take too long to match, so this change may contain ignored files."
_EMBEDDED = (
    "Git would treat these directories as repositories and execute their configuration. They are not part of this "
    "change:"
)
_TOO_DEEP = f"Files in new directories nested more than {DEEPEST} deep are not part of this change."
_REPOSITORIES = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
_MARKS = frozenset().union(*_REPOSITORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was checked out.

    Attributes:
        base_sha: the commit.
        blobs: path to blob id of every file in it.
        modes: path to git's mode, of every path in the commit.
        entries: path to what was written for it, and for what else was given to the agent; a path that is missing here,
            or has another entry now, counts as changed.
        left_out: directories and files that are no part of any change; nothing of the commit is in them.
        taken: paths in the commit that were gone when the agent was given the files.
        restored: of the files that the host wrote again for a job that continues: path to the stamp that they got, and
            to the time, in ns, at which their content or mode had last changed. Only the host's records say it.
    """

    base_sha: str = ""
    blobs: dict[str, str] = field(default_factory=dict)
    modes: dict[bytes, str]
    entries: dict[bytes, ScannedFile]
    left_out: frozenset[bytes] = frozenset()
    taken: frozenset[bytes] = frozenset()
    restored: dict[bytes, tuple[Stamp, int]] = field(default_factory=dict)

    def changed_ns(self, path: bytes, stamp: Stamp) -> int:
        """When the content or the mode of a file last changed, in ns since the epoch; no program can set it."""
        restored, changed = self.restored.get(path, (None, 0))
        return changed if stamp == restored else stamp[3]

    def reset(self, root: Path, left_out: Iterable[str]) -> Baseline:
        """The same commit, with the directory as it is at this moment; nothing may write to it meanwhile."""
        paths = frozenset(map(os.fsencode, left_out))
        entries = entries_of(root, paths)
        missing = frozenset(self.entries.keys() & self.modes.keys()) - entries.keys()
        return replace(self, entries=entries, left_out=paths, taken=missing)


def save(trusted: Path, baseline: Baseline) -> None:
    """Write it to a directory that no sandbox may reach, whole or not at all.

    Call it before the agent starts, not when the job begins to wait: the process may die at any time.
    """
    # JSON spells the half surrogate pairs by which Python writes bytes that are no UTF-8.
    document = {
        "base_sha": baseline.base_sha,
        "blobs": baseline.blobs,
        "modes": {os.fsdecode(path): mode for path, mode in baseline.modes.items()},
        "entries": {os.fsdecode(path): [entry.mode, *entry.stamp] for path, entry in baseline.entries.items()},
        "left_out": sorted(map(os.fsdecode, baseline.left_out)),
        "taken": sorted(map(os.fsdecode, baseline.taken)),
        "restored": {os.fsdecode(path): [*stamp, changed] for path, (stamp, changed) in baseline.restored.items()},
    }
    write_atomically(trusted / _FILE, json.dumps(document))


def load(trusted: Path) -> Baseline:
    """Read it again.

    Raises:
        OSError: it is not there.
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
            left_out=frozenset(map(os.fsencode, document["left_out"])),
            taken=frozenset(map(os.fsencode, document["taken"])),
            restored={
                os.fsencode(path): (_stamp(stamp), int(changed))
                for path, (*stamp, changed) in document["restored"].items()
            },
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{trusted / _FILE} is incomplete: {error}") from error


def _stamp(values: list[object]) -> Stamp:
    inode, size, modified, changed, mode = (int(str(each)) for each in values)
    return inode, size, modified, changed, mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The workspace against its baseline.

    Attributes:
        present: files that are new or may have changed.
        gone: tracked paths that are no files any more.
        notes: what a reviewer should know of how they were compared, as Markdown.
    """

    present: dict[bytes, ScannedFile]
    gone: tuple[bytes, ...]
    notes: tuple[str, ...] = ()


async def differences(root: Path, baseline: Baseline, ignores: Ignores) -> Differences:
    """Compare the directory `root` with what was checked out, level by level.

    Raises:
        ChangeError: it is gone.
    """
    found = await asyncio.to_thread(_Walk, root, baseline)
    level = [b""]
    while level:
        asked = await asyncio.to_thread(found.look, level, ignores)
        level = found.settle(await ignores.ignored(asked))
    gone = baseline.modes.keys() - baseline.taken - found.seen - found.links
    tracked = baseline.modes.keys() - gone
    present, embedded = await asyncio.to_thread(_without_repositories, found.present, tracked)
    notes = (_NOT_IGNORED if ignores.given_up else "", _TOO_DEEP if found.too_deep else "", embedded)
    return Differences(present=present, gone=tuple(gone), notes=tuple(filter(None, notes)))


def _without_repositories(
    present: dict[bytes, ScannedFile], tracked: set[bytes]
) -> tuple[dict[bytes, ScannedFile], str]:
    """Leave out what is new or changed in directories that git takes for repositories; and say so."""
    folders = repositories_in(present.keys() | tracked)
    within = {path: outermost(path, folders) for path in present}
    kept = {path: entry for path, entry in present.items() if within[path] is None}
    left_out = sorted({folder for folder in within.values() if folder is not None})
    names = ", ".join(map(shown, left_out[:MOST_NAMED]))
    return kept, f"{_EMBEDDED} {names}." if left_out else ""


class Ignores:
    """The workspace's own ignore rules, judged by git over a copy of the `.gitignore` files alone.

    A pattern with many stars keeps git busy for as good as ever on one long name. Where git takes too long, nothing is
    taken for ignored any more: the agent's work is published with too many files rather than lost.

    Args:
        git: git on the trusted directory.
        shadow: an empty private directory to copy them to.
        cpu_seconds: of processor time that git may take for one level of directories.

    Attributes:
        given_up: whether git took too long.
    """

    def __init__(self, git: Git, shadow: Path, *, cpu_seconds: int = _IGNORE_SECONDS) -> None:
        self._git = replace(
            git, work_tree=shadow, bounds=ProcessBounds(seconds=6.0 * cpu_seconds, cpu_seconds=cpu_seconds)
        )
        self._shadow = shadow
        self._deadline = time.monotonic() + 12.0 * cpu_seconds
        self.given_up = False

    def learn(self, folder: bytes, rules: bytes | None, names: tuple[bytes, ...]) -> None:
        """Copy one directory's rules, and make its untracked subdirectories (`build/` only matches directories)."""
        if rules is None and not names:
            return
        place = self._shadow / os.fsdecode(folder)
        place.mkdir(parents=True, exist_ok=True)
        if rules is not None:
            (place / ".gitignore").write_bytes(rules)
        for name in names:
            (place / os.fsdecode(name)).mkdir(exist_ok=True)

    async def ignored(self, paths: list[bytes]) -> set[bytes]:
        """Those of `paths` that the rules ignore."""
        if not paths or self.given_up:
            return set()
        # `./` keeps a name such as `:(top)x` from being read as pathspec magic. Exit code 1: none is ignored.
        asked = b"".join(b"./" + path + b"\0" for path in paths)
        try:
            answer = await self._git.run("check-ignore", "--no-index", "-z", "--stdin", stdin=asked, expect=(0, 1))
        except GitError as error:
            if error.exit_code is not None:
                raise
            self.given_up = True
            return set()
        self.given_up = time.monotonic() > self._deadline
        return {path.removeprefix(b"./") for path in answer.split(b"\0") if path}


class _Walk:
    """The state of one comparison: what was seen, and what still awaits git's word on whether it is ignored."""

    def __init__(self, root: Path, baseline: Baseline) -> None:
        self.root = root
        self.baseline = baseline
        self.present: dict[bytes, ScannedFile] = {}
        self.seen: set[bytes] = set()
        self.links = {path for path, mode in baseline.modes.items() if mode == GITLINK}
        self.tracked_folders = parents(baseline.modes)
        self._files: dict[bytes, ScannedFile] = {}
        self._folders: list[bytes] = []
        self._next: list[bytes] = []
        self.too_deep = False

    def look(self, level: list[bytes], ignores: Ignores) -> list[bytes]:
        """List every directory of a level; give back the untracked paths in them.

        Raises:
            ChangeError: the root is gone.
        """
        # Opened and closed here: who is cancelled does not wait for the thread that this is called in.
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ChangeError(
                f"The workspace {self.root} cannot be read: {error.strerror}.", "Give the command again."
            ) from error
        try:
            return self._look(root, level, ignores)
        finally:
            os.close(root)

    def _look(self, root: int, level: list[bytes], ignores: Ignores) -> list[bytes]:
        self._files, self._folders, self._next = {}, [], []
        for path in level:
            folder = read_folder(root, path)
            if folder is None:
                continue
            rules = folder.files.get(b".gitignore")
            below = {name: join(path, name) for name in folder.folders}
            untracked = tuple(n for n, p in below.items() if p not in self.tracked_folders and not is_too_deep(p))
            told = None
            if rules is not None and rules.mode != "120000":  # git follows no link here either
                told = read_file(root, join(path, b".gitignore"), rules.mode, limit=_MAX_RULES_BYTES)
            ignores.learn(path, told, untracked)
            for name, entry in folder.files.items():
                place = join(path, name)
                is_given = place in self.baseline.modes
                if is_given:
                    self.seen.add(place)
                left = self.links if is_given else self.baseline.left_out
                if place not in left and self.baseline.entries.get(place) != entry:
                    (self.present if is_given else self._files)[place] = entry
            for place in below.values():
                if is_too_deep(place):
                    self.too_deep = True
                elif place not in self.links and place not in self.baseline.left_out:
                    (self._next if place in self.tracked_folders else self._folders).append(place)
        return [*self._files, *self._folders]

    def settle(self, ignored: set[bytes]) -> list[bytes]:
        """Keep what is not ignored; give back the next level."""
        self.present.update({path: entry for path, entry in self._files.items() if path not in ignored})
        return self._next + [path for path in self._folders if path not in ignored]


def entries_of(root: Path, left_out: frozenset[bytes] = frozenset()) -> dict[bytes, ScannedFile]:
    """Everything that lies in a directory, but for what is left out."""
    with opened_root(root) as descriptor:
        return dict(walk(descriptor, left_out))


def repositories_in(paths: Collection[bytes]) -> set[bytes]:
    """The directories below the root that git would take for repositories, though they are not called `.git`.

    Running git in such a directory of a clone runs what its `config` names (`core.fsmonitor`, `core.pager`): git
    looks for `HEAD`, `objects` and `refs`, or for `HEAD` and `commondir`, wherever it is started.
    https://git-scm.com/docs/git-config#Documentation/git-config.txt-safebareRepository
    The root is none: git finds the `.git` there first.
    """
    # Each of them has a `HEAD`, and hardly any other directory has; so most paths need no second look.
    headed = {
        folder
        for path in paths
        if (b"head" in path.lower() or not path.isascii())
        for folder, name in _steps(path)
        if folded(name) == "head"
    }
    marks: defaultdict[bytes, set[str]] = defaultdict(set)
    for path in paths if headed else ():
        for folder, name in _steps(path):
            if folder in headed and (mark := folded(name)) in _MARKS:
                marks[folder].add(mark)
    return {folder for folder, found in marks.items() if any(each <= found for each in _REPOSITORIES)}


def outermost(path: bytes, folders: Collection[bytes]) -> bytes | None:
    """The outermost of some directories that a path is below; None when it is below none."""
    end = path.find(b"/") if folders else -1
    while end != -1:
        if path[:end] in folders:
            return path[:end]
        end = path.find(b"/", end + 1)
    return None


def _steps(path: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each directory on the way to a file, but for the root, and the name of what comes next."""
    end = path.find(b"/")
    while end != -1:
        start, end = end + 1, path.find(b"/", end + 1)
        yield path[: start - 1], path[start : end if end != -1 else len(path)]


def shown(path: bytes) -> str:
    """A path as Markdown that does no harm."""
    text = path.decode(errors="replace")[:_MOST_SHOWN]
    return f"`{''.join(each if each.isprintable() and each != '`' else '?' for each in text)}`"
