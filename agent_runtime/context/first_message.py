"""The first message of a run: goal, quotes, instructions, and what the model would otherwise look up in its first step.

`orient` looks at the workspace once and `toolchain` at the sandbox; `opening` renders all of it as one text, in which
everything that others wrote is framed by a nonce. `read_instructions` and `read_skills` read what the repository's
maintainers ask of agents. `step_status` is the line that ends every request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from agent_runtime.context.relevant_code import Excerpt, Grep, clues, excerpts, named_files, passages, printable
from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import MAX_SKILLS, Skill, Task
from agent_runtime.index.index import CodeIndex
from agent_runtime.processes.spawn import end, started
from agent_runtime.prompts import notes
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.workspace.diffs import Text, decode
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import IgnoreFile

INSTRUCTION_CHARS = 8_000
"""What the instruction files of a repository may take of the first message, all together."""
MESSAGE_CHARS = 6_000
"""What the first message is to come to, as far as the task itself leaves room."""
TREE_CHARS = 300
"""A name of every entry at the top; more of the tree would take the place of a function."""
_SOURCE_CHARS = 200
_WORTH_SHOWING = 200
_BLANK_LINES = "\r\n"


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
    found = await passages(workspace, known, named, grep)
    used = sum(map(len, [*given, *facts, tree])) + _FRAME_CHARS
    budget = max(_LEAST_EXCERPT_CHARS, MESSAGE_CHARS - used)
    shown = await asyncio.to_thread(excerpts, found, partial(_text, workspace, hides), budget)
    return Orientation(facts=tuple(facts), tree=tree, excerpts=shown, indexed=indexed)


async def _ready(index: CodeIndex, seconds: float) -> bool:
    return seconds > 0 and await index.wait_ready(seconds)


def _tree(workspace: Workspace, hides: Callable[[str], bool]) -> str:
    """Two levels, directories first; what `.gitignore` files name and hidden directories are left out."""
    ignored = IgnoredPaths(lambda path: workspace.read_if_any(path, _READ_BYTES).decode(errors="replace"))
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


def _text(workspace: Workspace, hides: Callable[[str], bool], path: str) -> Text | None:
    """A file as `read_file` gives it; None where that is not to be shown, or no text."""
    try:
        return None if hides(workspace.resolve(path)) else decode(workspace.read_bytes(path, _READ_BYTES))
    except ToolError:  # gone in this moment, or too large
        return None


_MOST_IGNORE_FILES = 50
_MOST_IGNORE_LINES = 500
_MATCHING_SECONDS = 2.0


class IgnoredPaths:
    """Whether git would leave out a path, by the `.gitignore` of the root and of each directory above the path.

    The deepest file that says something about a path decides, as in gitignore(5). A stranger's tree must not cost more
    than a bounded time: of more than 50 such files, or 500 lines in all, the rest is not looked at, and once matching
    has taken two seconds, all other paths count as left out.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        """Look at nothing yet.

        Args:
            read: gives the text of a file by its path from the root, empty where it cannot be read.
        """
        self._read = read
        self._files: dict[str, tuple[tuple[int, IgnoreFile], ...]] = {}
        self._left_out: dict[str, bool] = {"": False}
        self._files_left = _MOST_IGNORE_FILES
        self._lines_left = _MOST_IGNORE_LINES
        self._seconds_left = _MATCHING_SECONDS

    def __call__(self, path: str) -> bool:
        """Whether a path from the root is left out; one of a directory ends in a slash."""
        if self._seconds_left <= 0:
            return True
        begun = time.monotonic()
        plain = path.rstrip("/")
        left_out = self._directory(plain) if plain != path else self._says(plain, directory=False)
        self._seconds_left -= time.monotonic() - begun
        return left_out

    def _directory(self, path: str) -> bool:
        if path not in self._left_out:
            self._left_out[path] = self._says(path, directory=True)
        return self._left_out[path]

    def _says(self, path: str, *, directory: bool) -> bool:
        parent = path.rpartition("/")[0]
        if self._directory(parent):
            return True
        said = (file.says(path[start:], directory=directory) for start, file in self._above(parent))
        return next((each for each in said if each is not None), False)

    def _above(self, directory: str) -> tuple[tuple[int, IgnoreFile], ...]:
        """What holds in a directory, deepest first: where the path begins that a file speaks of, and its patterns."""
        if directory not in self._files:
            outer = self._above(directory.rpartition("/")[0]) if directory else ()
            self._files[directory] = outer
            if self._files_left:
                prefix = f"{directory}/" if directory else ""
                data = self._read(f"{prefix}.gitignore").encode("utf-8", "surrogateescape")
                file = IgnoreFile(data, most=self._lines_left)
                if file.patterns:
                    self._files_left -= 1
                    self._lines_left -= len(file.patterns)
                    self._files[directory] = ((len(prefix), file), *outer)
        return self._files[directory]


INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Where repositories tell agents how to work in them."""
SKILL_FOLDERS = (".claude/skills", ".github/skills", ".codepilot/skills")
"""Where repositories keep skills, each in a folder of its own."""
_INSTRUCTION_BYTES = 64_000


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
                text = files.read_bytes(name, _INSTRUCTION_BYTES).decode("utf-8", errors="replace").strip()
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
            with Workspace(root) as files:  # follows no link out
                names = [each.rstrip("/") for each in files.names(folder)][:MAX_SKILLS]
        except (OSError, ToolError):  # there is no such folder
            continue
        found |= read_instructions(root, [f"{folder}/{name}/SKILL.md" for name in names])
    return found


_TOOLCHAIN_SECONDS = 10.0
_TOOLCHAIN_BYTES = 10_000
_TOOLCHAIN_SCRIPT = r"""
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
    launch = sandbox.launch(["bash", "-c", _TOOLCHAIN_SCRIPT], workspace=workspace)
    process = await started(launch.argv, env=launch.env)
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    answer = b""
    try:
        async with asyncio.timeout(_TOOLCHAIN_SECONDS):
            await process.stdout.readexactly(_TOOLCHAIN_BYTES)  # only a program of the workspace says so much
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
