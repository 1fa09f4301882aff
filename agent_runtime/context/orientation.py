"""Looks at a workspace once, before the first step, so that the model need not."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath

from agent_runtime.context.briefing import (
    Excerpt,
    Mention,
    Orientation,
    clip_tree,
    identifiers,
    mentions,
    printable,
)
from agent_runtime.context.ignored import IgnoredPaths
from agent_runtime.core.errors import ToolError
from agent_runtime.core.task import Task
from agent_runtime.workspace.files import Workspace

TREE_CHARS = 1_500
EXCERPT_CHARS = 4_000
_LINES_AROUND = 12
_HEAD_LINES = 40
_SCAN_FILES = 400
_SCAN_DIRECTORIES = 400
_SCAN_CHARS = 10_000_000
_READ_BYTES = 400_000
_CHILDREN = 25
_LOOK_INTO = 100
_MOST_NAMES = 1_000
_MOST_PARTS = 30

# First match wins: a file that says how the project is tested, a text in it, and the command.
_TEST_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("pyproject.toml", "pytest", "python -m pytest -q"),
    ("pytest.ini", "", "python -m pytest -q"),
    ("tox.ini", "pytest", "python -m pytest -q"),
    ("setup.cfg", "pytest", "python -m pytest -q"),
    ("conftest.py", "", "python -m pytest -q"),
    ("Cargo.toml", "", "cargo test --offline"),
    ("go.mod", "", "go test ./..."),
    ("package.json", '"test"', "npm test"),
    ("Makefile", "\ntest:", "make test"),
    ("tests", "", "python -m pytest -q"),
    ("test", "", "python -m pytest -q"),
)


def orient(
    workspace: Workspace, task: Task, facts: Sequence[str], hides: Callable[[str], bool] = lambda _path: False
) -> Orientation:
    """Gather the layout, the likely test command and the lines that the task names.

    Args:
        workspace: where the agent works.
        task: what it was asked; goal and quotes are searched for names of files and code.
        facts: what the caller knows already, one line each.
        hides: whether a file or directory, by its canonical path, is not to be shown or named.
    """
    commands = (
        command
        for name, needle, command in _TEST_COMMANDS
        if (needle in _read(workspace, name) if needle else workspace.exists(name))
    )
    test = next(commands, "")
    told = [*facts, f"Likely test command: {test}"] if test else list(facts)
    text = "\n".join([task.goal, *(quote.text for quote in task.quotes)])
    # The lines that a text names, until `EXCERPT_CHARS` are used up; each place once.
    wanted = identifiers(text)
    found = [place for mention in mentions(text) if (place := _find(workspace, mention))]
    places = [place if place.line else _use(workspace, place, wanted) for place in found]
    named = {mention.path for mention in places}
    if wanted:
        places += [place for place in _definitions(workspace, wanted) if place.path not in named]
    excerpts: list[Excerpt] = []
    left = EXCERPT_CHARS
    for place in dict.fromkeys(places):
        try:
            hidden = hides(workspace.resolve(place.path))
        except ToolError:  # gone in this moment
            continue
        excerpt = None if hidden else _excerpt(workspace, place)
        if excerpt and len(excerpt.text) <= left:
            left -= len(excerpt.text)
            excerpts.append(excerpt)
    return Orientation(
        facts=tuple(told),
        tree=clip_tree(list(_tree(workspace, hides)), TREE_CHARS),
        excerpts=tuple(excerpts),
    )


def _tree(workspace: Workspace, hides: Callable[[str], bool]) -> Iterator[str]:
    """Two levels, directories first; what `.gitignore` files name and hidden directories are left out."""
    ignored = IgnoredPaths(partial(_read, workspace))
    names = [name for name in _listed(workspace, "", ignored) if not hides(name.rstrip("/"))]
    for number, name in enumerate(names):
        if not name.endswith("/") or number >= _LOOK_INTO:
            yield printable(name)
            continue
        children = [child for child in _listed(workspace, name, ignored) if not hides(name + child.rstrip("/"))]
        more = f"  ... ({len(children)} in all)" if len(children) > _CHILDREN else ""
        shown = "  ".join(printable(child) for child in children[:_CHILDREN])
        yield f"{printable(name)}: {shown}{more}" if children else printable(name)


def _listed(workspace: Workspace, directory: str, ignored: IgnoredPaths) -> list[str]:
    try:
        names = workspace.names(directory or ".")
    except ToolError:  # not readable, or gone in this moment
        return []
    kept = [
        n for n in names[:_MOST_NAMES] if not (n.startswith(".") and n.endswith("/")) and not ignored(directory + n)
    ]
    return sorted(kept, key=lambda name: (not name.endswith("/"), name))


def _find(workspace: Workspace, mention: Mention) -> Mention | None:
    """The file that a text names, trying ever shorter ends of a path from another machine."""
    parts = PurePosixPath(mention.path.replace("\\", "/")).parts
    if "site-packages" in parts or len(parts) > _MOST_PARTS:
        return None
    for start in range(len(parts)):
        candidate = "/".join(part for part in parts[start:] if part != "/")
        try:
            if candidate and workspace.is_file(candidate):
                return Mention(candidate, mention.line)
        except ToolError:  # it names something outside the workspace
            continue
    return None


def _use(workspace: Workspace, place: Mention, names: list[str]) -> Mention:
    """Where a file that is named without a line uses one of `names`, its imports aside; else the file's head."""
    for number, line in enumerate(_read(workspace, place.path).split("\n"), 1):
        if any(name in line for name in names) and "import" not in line:
            return Mention(place.path, number)
    return place


def _definitions(workspace: Workspace, names: list[str]) -> Iterator[Mention]:
    """Where Python sources define one of `names`; looks at a bounded number of files."""
    defined = re.compile(rf"^\s*(?:async )?(?:def|class) (?:{'|'.join(map(re.escape, names))})\b", re.MULTILINE)
    left = _SCAN_CHARS
    for path in _sources(workspace):
        source = _read(workspace, path)
        left -= len(source)
        if left < 0:
            return
        if match := defined.search(source):
            start = match.end() - len(match[0].lstrip())
            yield Mention(path, source.count("\n", 0, start) + 1)


def _sources(workspace: Workspace) -> Iterator[str]:
    """Python files, outermost first, a bounded number of them."""
    ignored = IgnoredPaths(partial(_read, workspace))
    queue, left = deque([""]), _SCAN_FILES
    for _ in range(_SCAN_DIRECTORIES):
        if not queue:
            return
        directory = queue.popleft()
        for name in _listed(workspace, directory, ignored):
            if name.endswith("/"):
                queue.append(directory + name)
            elif name.endswith(".py"):
                left -= 1
                if left < 0:
                    return
                yield directory + name


def _excerpt(workspace: Workspace, place: Mention) -> Excerpt | None:
    text = _read(workspace, place.path)
    lines = text.split("\n")
    if not text:
        return None
    if place.line is None:
        first, last = 1, min(_HEAD_LINES, len(lines))
    else:
        first, last = max(1, place.line - _LINES_AROUND), min(len(lines), place.line + _LINES_AROUND)
    if first > last:
        return None
    numbered = "\n".join(f"{n:>5} | {lines[n - 1]}" for n in range(first, last + 1))
    return Excerpt(path=f"{printable(place.path)} (lines {first}-{last} of {len(lines)})", text=numbered)


def _read(workspace: Workspace, path: str) -> str:
    """A file's text, or nothing where it cannot be read as such; an orientation is a courtesy, never a failure."""
    try:
        return workspace.read_bytes(path, _READ_BYTES).decode("utf-8", errors="replace")
    except ToolError:
        return ""
