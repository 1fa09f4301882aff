"""A merge of a base branch into a pull request's head: its conflicts, and the judgement of a resolution. Pure.

A job works on `Merge.commit`, git's result with conflict markers, as on any commit, so its change is exactly what the
agent changed of git's own merge.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.domain.difference import list_names
from bot.git.change import Change, FileChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A version of a conflicted path."""

    mode: str
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A conflict as git reports it.

    Attributes:
        kind: `content`, `add/add`, `mode`, or git's own type, such as `modify/delete`.
        paths: all files that it is about.
    """

    kind: str
    paths: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Git's merge of a base branch into a head.

    Attributes:
        branch: the base branch's name.
        commit: git's result; its parents are `head` and `base`.
        stages: versions of each conflicted path by git's number: 1 is of the common ancestor, 2 of the head, 3 of the
            base.
        markers: the marker lines that git wrote into each file, and how many equal lines its sides have.
        excerpts: the text of each conflict that has one: its hunks, or the change of the file that the other side
            deleted.
        tree: the tree of `commit`.
        writes_workflows: whether git combined both sides of a workflow file; one of the base's own is on that branch.
    """

    head: str
    base: str
    branch: str
    commit: str
    tree: str
    conflicts: tuple[Conflict, ...] = ()
    stages: Mapping[str, Mapping[int, Stage]] = field(default_factory=dict)
    markers: Mapping[str, Mapping[bytes, int]] = field(default_factory=dict)
    excerpts: Mapping[str, str] = field(default_factory=dict)
    writes_workflows: bool = False

    @property
    def label(self) -> str:
        """The base's name in conflict markers; the head's is `HEAD`."""
        return f"origin/{self.branch}"

    @property
    def conflicted(self) -> frozenset[str]:
        return frozenset(self.stages).union(*(conflict.paths for conflict in self.conflicts))

    def find_markers(self, change: Change) -> tuple[str, ...]:
        """Return the files that still have conflict markers; lines that a side had before are none."""
        contents = {file.path: file.content or b"" for file in change.files}
        left = [
            path
            for path, lines in self.markers.items()
            if path not in contents or any(count > lines[line] for line, count in _count(contents[path], lines).items())
        ]
        # A file that was moved has them elsewhere. Its middle line also underlines headings.
        deleted = [self.markers.get(file.path, ()) for file in change.files if file.content is None]
        moved = {line for lines in deleted for line in lines if line.startswith((b"<", b">"))}
        added = [file for file in change.files if moved and file.status == "added"]
        return (*left, *(file.path for file in added if not moved.isdisjoint(split_lines(contents[file.path]))))

    def find_deviations(self, change: Change) -> tuple[str, ...]:
        """Return the files that had no conflict and are not as git merged them."""
        return tuple(file.path for file in change.files if file.path not in self.conflicted)

    def find_untouched(self, change: Change) -> tuple[Conflict, ...]:
        """Return the conflicts without markers whose files are all as git left them."""
        changed = {file.path for file in change.files} | self.markers.keys()
        return tuple(conflict for conflict in self.conflicts if changed.isdisjoint(conflict.paths))

    def without_sides(self, change: Change) -> Change:
        """Return the change without the files that are now as the head or the base has them."""
        return replace(change, files=tuple(file for file in change.files if not self._is_of_side(file)))

    def _is_of_side(self, file: FileChange) -> bool:
        stages = self.stages.get(file.path, {})
        if file.content is None:
            return bool(stages) and not {2, 3} <= stages.keys()
        return Stage(mode=file.new_mode, blob=hash_blob(file.content)) in {stages.get(2), stages.get(3)}

    def find_problems(self, change: Change, completion: str) -> tuple[str, ...]:
        """Return what keeps a resolution from being accepted, as sentences."""
        unnamed = [path for path in self.find_deviations(change) if not explain(path, completion)]
        untouched = [
            f"{_names(conflict.paths)} ({conflict.kind})"
            for conflict in self.find_untouched(change)
            if not any(explain(path, completion) for path in conflict.paths)
        ]
        problems = (
            ("Conflict markers are left in", _names(self.find_markers(change)), "."),
            ("These files had no conflict and are not as git merged them:", _names(unnamed), _NAME_THEM),
            ("These conflicts are as git left them:", ", ".join(untouched), _NAME_THEM),
        )
        return tuple(f"{beginning} {names}{end}" for beginning, names, end in problems if names)


_MAX_NAMES = 50
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_NAME_THEM = ". The completion must name each by its path, with the reason on the same line."


def explain(path: str, completion: str) -> str:
    """Return the first line of a completion that names a file; empty if none does."""
    # Bytes that are no UTF-8 cannot be named. One bounded gap for all of them, as several could be tried for ever.
    shown = re.sub(f"{_UNKNOWN}(?:.*{_UNKNOWN})?", ".{1,200}?", re.escape(show_path(path)), flags=re.DOTALL)
    name = re.compile(rf"(?<![\w./-]){shown}(?![\w/-]|\.\w)")
    return next((line.strip(" -*") for line in completion.splitlines() if name.search(line)), "")


def show_path(path: str) -> str:
    """Return a path as text that can be encoded."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def hash_blob(content: bytes) -> str:
    """Return git's id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _names(paths: Sequence[str]) -> str:
    return list_names([f"`{show_path(path)}`" for path in paths], _MAX_NAMES)


def _count(content: bytes, lines: Mapping[bytes, int]) -> Counter[bytes]:
    return Counter(line for line in split_lines(content) if line in lines)


def split_lines(content: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]
