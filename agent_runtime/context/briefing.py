"""The first message of a run: goal, quotes, orientation. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.task import Task

_TRACEBACK = re.compile(r'File "(?P<path>[^"\n]{1,300})", line (?P<line>\d{1,7})')
_PATH = re.compile(r"(?<![\w/.-])(?P<path>(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7})(?::(?P<line>\d{1,7}))?")
_IDENTIFIER = re.compile(r"`(?P<name>[A-Za-z_][\w.]{2,80})(?:\(\))?`")


@dataclass(frozen=True, slots=True)
class Mention:
    """A place in the workspace that a text seems to name; whether it exists is for the caller to find out.

    Attributes:
        path: as written.
        line: 1-based, or None.
    """

    path: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Some numbered lines of a file that the task names."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Orientation:
    """What the model would otherwise spend its first step on.

    Attributes:
        facts: one line each: working directory, HEAD, interpreter, likely test command, limits.
        tree: two levels of the workspace.
        excerpts: files and lines that the task names.
    """

    facts: tuple[str, ...] = ()
    tree: str = ""
    excerpts: tuple[Excerpt, ...] = ()


def mentions(text: str, limit: int = 40) -> list[Mention]:
    """Paths, with lines where given, that `text` names: tracebacks first (innermost first), then the rest."""
    found = [Mention(m["path"], int(m["line"])) for m in _TRACEBACK.finditer(text)][::-1]
    found += [Mention(m["path"], int(m["line"]) if m["line"] else None) for m in _PATH.finditer(text)]
    return list(dict.fromkeys(found))[:limit]


def identifiers(text: str, limit: int = 10) -> list[str]:
    """Names in backticks that look like code, the last part of dotted ones."""
    names = (m["name"].rstrip(".").rpartition(".")[2] for m in _IDENTIFIER.finditer(text))
    return [name for name in dict.fromkeys(names) if name.isidentifier()][:limit]


def opening(task: Task, orientation: Orientation, *, nonce: str) -> str:
    """Render the first message.

    Args:
        task: the goal and the quotes; each quote is fenced by `nonce`, which its author could not know.
        orientation: facts about the workspace.
        nonce: random, new for each run.
    """
    parts = [f"# Task\n{task.goal.strip()}"]
    parts += [
        f"[quote {nonce} from {_one_line(quote.source)}]\n{quote.text.strip()}\n[end of quote {nonce}]"
        for quote in task.quotes
    ]
    if orientation.facts:
        parts.append("# Workspace\n" + "\n".join(orientation.facts))
    if orientation.tree:
        parts.append(f"```text\n{orientation.tree}\n```")
    if orientation.excerpts:
        named = "\n\n".join(f"{excerpt.path}\n{excerpt.text}" for excerpt in orientation.excerpts)
        parts.append(f"# Named in the task\n{named}")
    return "\n\n".join(parts)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def clip_tree(lines: Sequence[str], max_chars: int) -> str:
    """As many lines as fit, and a count of the rest."""
    kept: list[str] = []
    used = 0
    for line in lines:
        used += len(line) + 1
        if used > max_chars - 30:
            return "\n".join([*kept, f"... and {len(lines) - len(kept)} more"])
        kept.append(line)
    return "\n".join(kept)
