"""Look at a workspace once, before the first step, so that the model need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from agent_runtime.context import passages
from agent_runtime.context.briefing import Orientation, clip_tree, printable
from agent_runtime.context.clues import clues
from agent_runtime.context.excerpts import excerpts
from agent_runtime.context.ignored import IgnoredPaths
from agent_runtime.context.passages import Grep
from agent_runtime.context.unindexed import named_files
from agent_runtime.core.errors import ToolError
from agent_runtime.core.task import Task
from agent_runtime.index.model import CodeIndex
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.text import Text, decode

MESSAGE_CHARS = 6_000
"""What the first message is to come to, as far as the task itself leaves room."""
TREE_CHARS = 300
"""A name of every entry at the top; more of the tree would take the place of a function."""
_LEAST_EXCERPT_CHARS = 3_000
_FRAME_CHARS = 500
_READ_BYTES = 1_000_000
_CHILDREN = (25, 10, 4, 0)
"""How many names of each directory are shown: the most with which all directories are."""
_LOOK_INTO = 100
_MOST_NAMES = 1_000


async def orient(
    workspace: Workspace,
    task: Task,
    facts: Sequence[str],
    *,
    index: CodeIndex,
    grep: Grep,
    hides: Callable[[str], bool] = lambda _path: False,
    seconds: float = 1.0,
) -> Orientation:
    """Gather the layout, and the definitions that the task is about.

    Args:
        workspace: where the agent works.
        task: what it was asked; goal and quotes are searched for what they name and what they are about.
        facts: what the caller knows already, one line each.
        index: of the workspace.
        grep: finds lines by the texts in them.
        hides: whether a file or directory, by its canonical path, is not to be shown or named.
        seconds: how long the index is waited for; 0 goes without.
    """
    given = [task.goal, *(quote.text for quote in task.quotes)]
    ready = asyncio.create_task(_ready(index, seconds))
    try:
        tree, named, _ = await asyncio.gather(
            asyncio.to_thread(_tree, workspace, hides),
            asyncio.to_thread(clues, given[0], given[1:]),
            asyncio.wait([ready], timeout=seconds / 2),
        )
        known: CodeIndex = index
        # For the rest of the time it is waited for while what it would be asked is looked for without it.
        without = None if ready.done() and ready.result() else await named_files(workspace, named)
        if not (indexed := await ready) and without is not None:
            known = without
    finally:
        ready.cancel()
    found = await passages.passages(workspace, known, named, grep)
    used = sum(map(len, [*given, *facts, tree])) + _FRAME_CHARS
    budget = max(_LEAST_EXCERPT_CHARS, MESSAGE_CHARS - used)
    shown = await asyncio.to_thread(excerpts, found, partial(_text, workspace, hides), budget)
    return Orientation(facts=tuple(facts), tree=tree, excerpts=shown, indexed=indexed)


async def _ready(index: CodeIndex, seconds: float) -> bool:
    return seconds > 0 and await index.ready(seconds)


def _tree(workspace: Workspace, hides: Callable[[str], bool]) -> str:
    """Two levels, directories first; what `.gitignore` files name and hidden directories are left out."""
    ignored = IgnoredPaths(partial(_read, workspace))
    names = [name for name in _listed(workspace, "", ignored) if not hides(name.rstrip("/"))]
    children = {
        name: [child for child in _listed(workspace, name, ignored) if not hides(name + child.rstrip("/"))]
        for name in names[:_LOOK_INTO]
        if name.endswith("/")
    }
    drawn = (list(_drawn(names, children, most)) for most in _CHILDREN)
    fitting = next((lines for lines in drawn if len("\n".join(lines)) <= TREE_CHARS), None)
    return "\n".join(fitting) if fitting else clip_tree(list(_drawn(names, children, 0)), TREE_CHARS)


def _drawn(names: Sequence[str], children: Mapping[str, Sequence[str]], most: int) -> Iterator[str]:
    """A line of each entry at the top, with some of what is in it."""
    for name in names:
        inside = children.get(name, ())
        shown = "  ".join(printable(child) for child in inside[:most])
        more = f"  ... ({len(inside)} in all)" if len(inside) > most else ""
        yield f"{printable(name)}: {shown}{more}" if shown else printable(name)


def _listed(workspace: Workspace, directory: str, ignored: IgnoredPaths) -> list[str]:
    try:
        names = workspace.names(directory or ".")
    except ToolError:  # not readable, or gone in this moment
        return []
    kept = [
        n for n in names[:_MOST_NAMES] if not (n.startswith(".") and n.endswith("/")) and not ignored(directory + n)
    ]
    return sorted(kept, key=lambda name: (not name.endswith("/"), name))


def _text(workspace: Workspace, hides: Callable[[str], bool], path: str) -> Text | None:
    """A file as `read_file` gives it; None where that is not to be shown, or no text."""
    try:
        return None if hides(workspace.resolve(path)) else decode(workspace.read_bytes(path, _READ_BYTES))
    except ToolError:  # gone in this moment, or too large
        return None


def _read(workspace: Workspace, path: str) -> str:
    """A file's text, or nothing where it cannot be read as such; an orientation is a courtesy, never a failure."""
    try:
        return workspace.read_bytes(path, _READ_BYTES).decode("utf-8", errors="replace")
    except ToolError:
        return ""
