"""Which files of a workspace differ from the commit that was checked out, ignored files left out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bot.workspace.errors import ChangeError
from bot.workspace.git import Git
from bot.workspace.listing import parents
from bot.workspace.scan import Entry, join, read_file, read_folder, walk

GITLINK = "160000"
_MAX_RULES_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was checked out.

    Attributes:
        modes: path to git's mode, of every path in the commit.
        entries: path to what was written for it, and for what else was given to the agent; a path that is missing here,
            or has another entry now, counts as changed.
        left_out: directories and files that are no part of any change; nothing of the commit is in them.
        taken: paths in the commit that were gone when the agent was given the files.
    """

    modes: dict[bytes, str]
    entries: dict[bytes, Entry]
    left_out: frozenset[bytes] = frozenset()
    taken: frozenset[bytes] = frozenset()

    def given(self, root: Path, left_out: Iterable[str]) -> Baseline:
        """The same commit, with the directory as it is at this moment; nothing may write to it meanwhile."""
        paths = frozenset(map(os.fsencode, left_out))
        entries = entries_of(root, paths)
        missing = frozenset(self.entries.keys() & self.modes.keys()) - entries.keys()
        return replace(self, entries=entries, left_out=paths, taken=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The workspace against its baseline.

    Attributes:
        present: files that are new or may have changed.
        gone: tracked paths that are no files any more.
    """

    present: dict[bytes, Entry]
    gone: tuple[bytes, ...]


class Ignores:
    """The workspace's own ignore rules, judged by git over a copy of the `.gitignore` files alone.

    Args:
        git: git on the trusted directory.
        shadow: an empty private directory to copy them to.
    """

    def __init__(self, git: Git, shadow: Path) -> None:
        self._git = Git(git_dir=git.git_dir, work_tree=shadow, index=git.index, environment=git.environment)
        self._shadow = shadow

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
        if not paths:
            return set()
        # `./` keeps a name such as `:(top)x` from being read as pathspec magic. Exit code 1: none is ignored.
        asked = b"".join(b"./" + path + b"\0" for path in paths)
        answer = await self._git.run("check-ignore", "--no-index", "-z", "--stdin", stdin=asked, expect=(0, 1))
        return {path.removeprefix(b"./") for path in answer.split(b"\0") if path}


def entries_of(root: Path, left_out: frozenset[bytes] = frozenset()) -> dict[bytes, Entry]:
    """Everything that lies in a directory, but for what is left out."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return dict(walk(descriptor, left_out))
    finally:
        os.close(descriptor)


async def differences(root: Path, baseline: Baseline, ignores: Ignores) -> Differences:
    """Compare the directory `root` with what was checked out, level by level.

    Raises:
        ChangeError: it is gone.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ChangeError(
            f"The workspace {root} cannot be read: {error.strerror}.", "Give the command again."
        ) from error
    try:
        found = _Walk(descriptor, baseline)
        level = [b""]
        while level:
            asked = await asyncio.to_thread(found.look, level, ignores)
            level = found.settle(await ignores.ignored(asked))
        gone = baseline.modes.keys() - baseline.taken - found.seen - found.links
        return Differences(present=found.present, gone=tuple(gone))
    finally:
        os.close(descriptor)


class _Walk:
    """The state of one comparison: what was seen, and what still awaits git's word on whether it is ignored."""

    def __init__(self, root: int, baseline: Baseline) -> None:
        self.root = root
        self.baseline = baseline
        self.present: dict[bytes, Entry] = {}
        self.seen: set[bytes] = set()
        self.links = {path for path, mode in baseline.modes.items() if mode == GITLINK}
        self.tracked_folders = parents(baseline.modes)
        self._files: dict[bytes, Entry] = {}
        self._folders: list[bytes] = []
        self._next: list[bytes] = []

    def look(self, level: list[bytes], ignores: Ignores) -> list[bytes]:
        """List every directory of a level; give back the untracked paths in them."""
        self._files, self._folders, self._next = {}, [], []
        for path in level:
            folder = read_folder(self.root, path)
            if folder is None:
                continue
            rules = folder.files.get(b".gitignore")
            untracked = tuple(n for n in folder.folders if join(path, n) not in self.tracked_folders)
            ignores.learn(path, self._read_rules(path, rules), untracked)
            for name, entry in folder.files.items():
                self._sort(join(path, name), entry)
            for name in folder.folders:
                below = join(path, name)
                if below not in self.links and below not in self.baseline.left_out:
                    (self._next if below in self.tracked_folders else self._folders).append(below)
        return [*self._files, *self._folders]

    def settle(self, ignored: set[bytes]) -> list[bytes]:
        """Keep what is not ignored; give back the next level."""
        self.present.update({path: entry for path, entry in self._files.items() if path not in ignored})
        return self._next + [path for path in self._folders if path not in ignored]

    def _read_rules(self, folder: bytes, rules: Entry | None) -> bytes | None:
        if rules is None or rules.mode == "120000":  # git follows no link here either
            return None
        return read_file(self.root, join(folder, b".gitignore"), rules.mode, limit=_MAX_RULES_BYTES)

    def _sort(self, path: bytes, entry: Entry) -> None:
        if path not in self.baseline.modes:
            if path not in self.baseline.left_out and self.baseline.entries.get(path) != entry:
                self._files[path] = entry
            return
        self.seen.add(path)
        if path not in self.links and self.baseline.entries.get(path) != entry:
            self.present[path] = entry
