"""The first message of a run: goal, quotes, orientation. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.core.skills import Skill
from agent_runtime.core.task import Task
from agent_runtime.prompts import notes

INSTRUCTION_CHARS = 8_000
"""What the instruction files of a repository may take of the first message, all together."""

_SOURCE_CHARS = 200
_WORTH_SHOWING = 200
_BLANK_LINES = "\r\n"


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
        excerpts: what the task names and is about.
        indexed: whether the code index was ready.
        python_path: see `Started`.
    """

    facts: tuple[str, ...] = ()
    tree: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    indexed: bool = False
    python_path: str = ""


def opening(
    task: Task,
    orientation: Orientation,
    *,
    nonce: str,
    number: int = 1,
    instructions: Mapping[str, str] | None = None,
    skills: Iterable[Skill] = (),
) -> str:
    """Render the first message.

    Args:
        task: the goal, the output schema, the quotes, and the images, of which only the sources are told here.
        orientation: facts about the workspace.
        nonce: frames everything that the person who asks did not write: quotes, names and lines of files. Their
            authors cannot know it, since it is random, new for each run.
        number: of the task in its session, from 1; by it the agent names the task later on.
        instructions: texts, by file name, of what the project's maintainers ask of those who work in it. Only from
            where the caller trusts them as much as that: an agent follows them.
        skills: what can be read on demand, from where the caller trusts it as much as instructions.
    """
    parts = [f"[Task {number}]\n{task.goal.strip()}"]
    if task.output_schema is not None:
        schema = json.dumps(task.output_schema, ensure_ascii=False, separators=(",", ":"))
        parts.append(f"{notes.OUTPUT}\n{schema}")
    if task.images:  # before what may be long: a text that does not fit loses its middle
        # Who named the pictures wrote where each is from, so it is framed.
        sources = [f"Image {each}: from {_one_line(image.source)}" for each, image in enumerate(task.images, start=1)]
        framed = _quoted(nonce, "the images: where each is from", "\n".join(sources))
        parts.append(f"{notes.IMAGES}\n{framed}")
    parts += [_quoted(nonce, _one_line(quote.source), quote.text) for quote in task.quotes]
    if instructions:
        parts.append(_instructions(nonce, instructions))
    if listed := [f"- {skill.name}: {skill.description}" for skill in skills]:
        parts.append("\n".join([notes.SKILLS, *listed]))
    if orientation.facts:
        parts.append("# Workspace\n" + "\n".join(orientation.facts))
    if orientation.tree:
        parts.append(_quoted(nonce, "the workspace: its files", orientation.tree))
    if orientation.excerpts:
        named = "\n\n".join(f"{excerpt.path}\n{excerpt.text}" for excerpt in orientation.excerpts)
        parts.append(_quoted(nonce, "the workspace: what the task names", named))
    return "\n\n".join(parts)


def _instructions(nonce: str, texts: Mapping[str, str]) -> str:
    """Frame the maintainers' instructions, each text once; at most `INSTRUCTION_CHARS` together."""
    parts = [notes.INSTRUCTIONS]
    left = INSTRUCTION_CHARS
    once: dict[str, str] = {}
    for name, text in texts.items():
        once.setdefault(text, name)
    for text, name in once.items():
        if left < _WORTH_SHOWING:
            break
        shown = notes.cut(text.strip(_BLANK_LINES), left)
        left -= len(shown)
        parts.append(f"[instructions {nonce} from {_one_line(name)}]\n{shown}\n[end of instructions {nonce}]")
    return "\n".join(parts)


def _quoted(nonce: str, source: str, text: str) -> str:
    """Frame material that others wrote; names and lines of files count as such, too."""
    return f"[quote {nonce} from {source}]\n{text.strip(_BLANK_LINES)}\n[end of quote {nonce}]"


def _one_line(text: str) -> str:
    """A source as it is in a frame's first line, which it can neither leave nor close."""
    return " ".join(printable(text).split()).replace("[", "(").replace("]", ")")[:_SOURCE_CHARS]


def printable(name: str) -> str:
    """A name in which every character can be seen and none ends the line."""
    return name if name.isprintable() else repr(name)[1:-1]


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
