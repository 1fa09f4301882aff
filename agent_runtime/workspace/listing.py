"""The files of a workspace, newest first; what git ignores is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from agent_runtime.core.errors import ToolError
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import confined
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.gitignore import IgnoreFile
from agent_runtime.workspace.globs import Include
from agent_runtime.workspace.paths import is_git

_MOST_SEEN = 100_000
_MAX_RULES = 1_000_000  # bytes of one .gitignore
_MOST_CHARS = 10_000_000  # of all names of a listing
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files found.

    Attributes:
        files: their paths from the workspace's root, newest first.
        complete: whether everything was looked at.
    """

    files: list[str]
    complete: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """One `.gitignore`: its directory's prefix, and what it says."""

    prefix: str
    file: IgnoreFile


async def list_bounded(workspace: Workspace, pattern: str, path: str) -> Listing:
    """`list_files` in a worker process: a stranger chose the names, their number, and what git ignores.

    Raises:
        ToolError: as for `list_files`.
        BoundExceededError: it takes too long.
    """
    packed = await run_bounded(_packed, workspace, pattern, path, seconds=_SECONDS, what="Listing the files")
    complete, *files = packed.split("\0")
    return Listing(files=files, complete=bool(complete))


def _packed(workspace: Workspace, pattern: str, path: str) -> str:
    with workspace:
        found = list_files(workspace, pattern, path)
    return "\0".join(["complete" if found.complete else "", *found.files])


def list_files(workspace: Workspace, pattern: str, path: str) -> Listing:
    """List regular files beneath a directory; links are not followed.

    Args:
        workspace: where.
        pattern: a glob; without a slash it is about names in any directory, else about paths from `path`.
        path: the directory.

    Raises:
        ToolError: the directory does not exist, or the pattern is no glob of files beneath it.
    """
    start = workspace.resolve(path)
    if not workspace.is_directory(path):
        kind = "does not exist" if not workspace.exists(path) else "is not a directory"
        raise ToolError(f"path={path!r} {kind}; name a directory of the workspace", kind="NotADirectoryError")
    wanted = Include.parse(pattern, name="pattern")
    base = "" if start == "." else f"{start}/"
    found: list[tuple[int, str]] = []
    chars = 0
    for seen, (modified, name) in enumerate(walk(workspace, base, rules_above(workspace, base)), 1):
        chars += len(name)
        if seen > _MOST_SEEN or chars > _MOST_CHARS:
            return Listing(files=[name for _, name in sorted(found)], complete=False)
        if wanted.matches(name.removeprefix(base)):
            found.append((-modified, name))
    return Listing(files=[name for _, name in sorted(found)], complete=True)


def walk(workspace: Workspace, prefix: str, rules: tuple[Rules, ...]) -> Iterator[tuple[int, str]]:
    """Times of modification and paths of the files that are not ignored.

    Args:
        workspace: where.
        prefix: the directory to begin in, `""` for the root, else with a slash at its end.
        rules: what the directories above it say; see `rules_above`.
    """
    for _, place, entry in entries(workspace, prefix, rules):
        if entry is not None and entry.is_file(follow_symlinks=False):
            try:
                modified = entry.stat(follow_symlinks=False).st_mtime_ns
            except OSError:  # gone in this moment
                modified = 0
            yield modified, place + entry.name


def entries(
    workspace: Workspace, prefix: str = "", rules: tuple[Rules, ...] = ()
) -> Iterator[tuple[int, str, os.DirEntry[str] | None]]:
    """Everything but directories that is not ignored, git's own left out; no link is followed.

    Args:
        workspace: where.
        prefix: the directory to begin in; see `walk`.
        rules: what the directories above it say.

    Yields:
        The directory, as a descriptor that is open until the next one is asked for, and as a prefix; and the entry. One
        that is gone in this moment, or cannot be read, comes as -1, its path, and None.
    """
    pending = [(prefix, rules)]
    while pending:
        prefix, rules = pending.pop()
        try:
            descriptor = workspace.open_directory(prefix or ".")
        except (OSError, ToolError):
            yield -1, prefix or ".", None
            continue
        with confined.held(descriptor), os.scandir(descriptor) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
            if any(entry.name == ".gitignore" for entry in names):
                rules = (*rules, *rules_in(workspace, prefix))
            for entry in names:
                name = prefix + entry.name
                if is_git(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not is_ignored(rules, name, directory=True):
                        pending.append((f"{name}/", rules))
                elif not is_ignored(rules, name, directory=False):
                    yield descriptor, prefix, entry


def rules_above(workspace: Workspace, prefix: str) -> tuple[Rules, ...]:
    """What the directories above say."""
    parts = [] if prefix.startswith("/") else prefix.split("/")[:-1]
    above = ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]
    return tuple(rule for directory in above for rule in rules_in(workspace, directory))


def rules_in(workspace: Workspace, prefix: str) -> tuple[Rules, ...]:
    """What the `.gitignore` of a directory says, if it has one."""
    try:
        return (Rules(prefix, IgnoreFile(workspace.read_bytes(f"{prefix}.gitignore", _MAX_RULES))),)
    except ToolError:  # none there, or none that can be read
        return ()


def is_ignored(rules: tuple[Rules, ...], name: str, *, directory: bool) -> bool:
    """Whether git ignores a path: the innermost `.gitignore` that says something about it decides."""
    for rule in reversed(rules):
        verdict = rule.file.says(name.removeprefix(rule.prefix), directory=directory)
        if verdict is not None:
            return verdict
    return False
