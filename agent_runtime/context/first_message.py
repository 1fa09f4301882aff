"""Look at a workspace once, before the first step, so that the model need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from agent_runtime.context import relevant_code
from agent_runtime.context.relevant_code import (
    Grep,
    IgnoredPaths,
    Orientation,
    clip_tree,
    clues,
    excerpts,
    named_files,
    printable,
)
from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import MAX_SKILLS, Task
from agent_runtime.index.ranking import CodeIndex
from agent_runtime.processes.spawn import end, started
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.workspace.diffs import Text, decode
from agent_runtime.workspace.files import Workspace

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
    found = await relevant_code.passages(workspace, known, named, grep)
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


# ---- Reads what a repository's maintainers ask of agents that work in it.


INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Where repositories tell agents how to work in them."""

SKILL_FOLDERS = (".claude/skills", ".github/skills", ".codepilot/skills")
"""Where repositories keep skills, each in a folder of its own."""

_MOST_BYTES = 64_000


def read_instructions(root: Path, names: Sequence[str] = INSTRUCTION_FILES) -> dict[str, str]:
    """The instruction files of a directory whose maintainers are trusted; never call it for anybody else's files.

    A link is followed as long as it stays below `root`.

    Args:
        root: the repository.
        names: paths to look for, relative to `root`.

    Returns:
        Texts by name, in the order of `names`; without those that are missing, empty, or no readable file. Of a very
        long one only the beginning; `briefing.opening` cuts all of them to size.
    """
    found: dict[str, str] = {}
    with Workspace(root) as files:
        for name in names:
            try:
                text = files.read_bytes(name, _MOST_BYTES).decode("utf-8", errors="replace").strip()
            except ToolError:  # missing, a directory, outside, not permitted: there is no such file for us
                continue
            if text:
                found[name] = text
    return found


def read_skills(root: Path, folders: Sequence[str] = SKILL_FOLDERS) -> dict[str, str]:
    """The `SKILL.md` files of a directory whose maintainers are trusted; never call it for anybody else's files.

    Args:
        root: the repository.
        folders: where folders of skills are, relative to `root`.

    Returns:
        Texts by path, of at most 30 skills a folder.
    """
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = sorted(each.name for each in (root / folder).iterdir())[:MAX_SKILLS]
        except OSError:  # there is no such folder
            continue
        found |= read_instructions(root, [f"{folder}/{name}/SKILL.md" for name in names])
    return found


# ---- Find the programs that the agent has in its sandbox, once before the first step.


_SECONDS = 10.0
_MOST_BYTES_TOOLCHAIN = 10_000
_ASK = r"""
# A program counts when it says its version: one whose interpreter or library is not in the sandbox is found, too.
export GOTOOLCHAIN=local
limit=$(command -v timeout) && limit="$limit 5"
asked=()
for program in python3 python pytest uv node npm go cargo make git gcc; do
  path=$(command -v "$program") || continue
  version=--version
  [ "$program" = go ] && version=version
  $limit "$path" $version </dev/null >/dev/null 2>&1 &
  asked+=("$program:$!")
done
for program in "${asked[@]}"; do
  wait "${program#*:}" && printf '%s ' "${program%:*}"
done
# -I: a file of the workspace is not taken for the module.
printf '\n'; python3 -I -c 'import platform; print(platform.python_version())' 2>/dev/null
"""


async def toolchain(sandbox: Sandbox, workspace: Path) -> str:
    """One line for the orientation, e.g. `Programs: python3 (3.11.7) pytest make git`; empty when nothing answers.

    Raises:
        SandboxError: the sandbox cannot start programs at all.
    """
    launch = sandbox.launch(["bash", "-c", _ASK], workspace=workspace)
    process = await started(launch.argv, env=launch.env)
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    answer = b""
    try:
        async with asyncio.timeout(_SECONDS):
            await process.stdout.readexactly(_MOST_BYTES_TOOLCHAIN)  # only a program of the workspace says so much
    except asyncio.IncompleteReadError as error:
        answer = error.partial
    except TimeoutError:
        pass  # a courtesy is not worth waiting for
    finally:
        end(process)
        await process.communicate()  # `wait` never returns as long as reading stands still
    programs, _, version = answer.decode(errors="replace").strip().partition("\n")
    python = f"python3 ({version.strip()})" if version else "python3"
    return f"Programs: {programs.strip().replace('python3', python, 1)}" if programs else ""


# ---- Progress and urgency, as the model is told with every request. Pure.


_NOTABLE, _APPROACHING, _NEAR = 33, 75, 90
"""Per cent of the steps, the present one included."""


def step_status(step: int, max_steps: int, now: datetime) -> str:
    """One line with the step counter and the time; the closer the limit, the plainer.

    Args:
        step: the present step, from 1.
        max_steps: the run's limit.
        now: the time, aware of its zone.
    """
    used = 100 * step // max_steps
    if 100 * step >= _NEAR * max_steps:
        urgency = f" - {used}% agentic steps consumed! Hard Limit Near!"
    elif 100 * step >= _APPROACHING * max_steps:
        urgency = f" - {used}% agentic steps consumed. Approaching step limit!"
    elif 100 * step >= _NOTABLE * max_steps:
        urgency = f" - {used}% agentic steps consumed!"
    else:
        urgency = ""
    return f"[Agentic step {step} / {max_steps}{urgency}] {now:%Y-%m-%d %H:%M %Z}".rstrip()
