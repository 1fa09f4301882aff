"""The first message of a run: goal, quotes, instructions, and facts that would cost the model its first step.

`orient` examines the workspace, `describe_toolchain` the sandbox; `render_opening` renders one text, in which others'
words are framed by a nonce.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from agent_runtime.context.code_map import MAP_CHARS, CodeMap, render_map
from agent_runtime.context.instructions import clean_source
from agent_runtime.context.relevant_code import (
    Excerpt,
    Grep,
    Passage,
    printable,
    rank_files,
    rank_passages,
    read_clues,
    render_excerpts,
)
from agent_runtime.context.unindexed import parse_sources
from agent_runtime.core.errors import ToolError
from agent_runtime.core.events import BaselineTaken
from agent_runtime.core.values import Skill, Task
from agent_runtime.index.index import CodeIndex, Outline
from agent_runtime.processes.spawn import end, start_program
from agent_runtime.prompts import notes
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.workspace.diffs import Text, decode
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import IgnoreFile

CODE_CHARS = 6_000
"""Characters of the map and the code in the first message."""
CODE_SECONDS = 5.0
"""Limit for gathering the code."""
WORKSPACE = "# Workspace"
TREE_CHARS = 300
"""Characters of the names at the top of the workspace."""
_BLANK_LINES = "\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orientation:
    """Facts about the workspace; `excerpts` are code that the task names or is about.

    Attributes:
        files: paths, best first.
        reads_names: `read_file` shows the names of the map.
        is_late: the code was not ready in time.
    """

    facts: tuple[str, ...] = ()
    tree: str = ""
    map: CodeMap = field(default_factory=CodeMap)
    excerpts: tuple[Excerpt, ...] = ()
    files: tuple[str, ...] = ()
    indexed: bool = False
    reads_names: bool = True
    is_late: bool = False
    python_path: str = ""
    baseline: BaselineTaken | None = None


def render_opening(
    task: Task,
    orientation: Orientation,
    *,
    nonce: str,
    number: int = 1,
    instructions: str = "",
    skills: Iterable[Skill] = (),
) -> str:
    """Render the first message.

    Args:
        nonce: random and new for each run; frames quotes, names and lines of files, whose authors cannot know it.
        number: of the task in its session, from 1.
        instructions: the maintainers' texts, framed; see `InstructionSet.open`.
        skills: readable on demand; from trusted places too.
    """
    parts = [f"[Task {number}]\n{task.goal.strip()}"]
    if task.output_schema is not None:
        schema = json.dumps(task.output_schema, ensure_ascii=False, separators=(",", ":"))
        parts.append(f"{notes.OUTPUT}\n{schema}")
    if task.images:  # before the long parts: a text that does not fit loses its middle
        # Strangers may have written the images' sources.
        sources = [
            f"Image {index}: from {clean_source(image.source)}" for index, image in enumerate(task.images, start=1)
        ]
        framed = _frame_quote(nonce, "the images: where each is from", "\n".join(sources))
        parts.append(f"{notes.IMAGES}\n{framed}")
    parts += [_frame_quote(nonce, clean_source(quote.source), quote.text) for quote in task.quotes]
    if instructions:
        parts.append(instructions)
    if listed := [f"- {skill.name}: {skill.description}" for skill in skills]:
        parts.append("\n".join([notes.SKILLS, *listed]))
    if orientation.facts:
        parts.append("\n".join([WORKSPACE, *orientation.facts]))
    if orientation.baseline is not None:
        failures = f"Fail already before any change: {notes.list_tests([*orientation.baseline.failures])}"
        parts.append(_frame_quote(nonce, "the workspace: its tests", failures))
    if orientation.tree:
        parts.append(_frame_quote(nonce, "the workspace: its files", orientation.tree))
    parts += _frame_code(nonce, orientation)
    return "\n\n".join(parts)


def _frame_code(nonce: str, orientation: Orientation) -> Iterator[str]:
    """Yield the framed map and excerpts."""
    if orientation.map.text:
        yield notes.describe_map(is_complete=orientation.map.is_complete, reads_names=orientation.reads_names)
        yield _frame_quote(nonce, "the workspace: its map", orientation.map.text)
    elif orientation.is_late:
        yield notes.NO_CODE
    if orientation.excerpts:
        code = "\n\n".join(f"{excerpt.path}\n{excerpt.text}" for excerpt in orientation.excerpts)
        yield _frame_quote(nonce, "the workspace: what the task names", code)


def _frame_quote(nonce: str, source: str, text: str) -> str:
    """Frame text that others wrote, including names and lines of files."""
    return f"[quote {nonce} from {source}]\n{text.strip(_BLANK_LINES)}\n[end of quote {nonce}]"


_LEAST_MAP_CHARS = 2_400
"""Characters of a map that cannot name everything."""
_GUESSED_CHARS = 2_000
"""Characters of definitions that only the search found."""
_HEAD_START = 0.2
"""Seconds after which the sources are parsed beside the index."""
_INDEX_SECONDS = 3.0
_GREP_SECONDS = 1.0
_READ_BYTES = 1_000_000
_CHILDREN = (25, 10, 4, 0)
"""Names shown of each directory: the largest number that fits for all."""
_LOOK_INTO = 100
_MAX_NAMES = 1_000


async def orient(
    workspace: Workspace,
    task: Task,
    facts: Sequence[str],
    *,
    index: CodeIndex,
    grep: Grep,
    hides: Callable[[str], bool] = lambda _path: False,
    seconds: float = 1.0,
    trial: asyncio.Future[Any] | None = None,
) -> Orientation:
    """Gather layout, map and definitions within `CODE_SECONDS`.

    Args:
        seconds: least wait for the code index.
        trial: of the test command; the index may take as long.
    """
    texts = [task.goal, *(quote.text for quote in task.quotes)]
    tree, clues = await asyncio.gather(
        asyncio.to_thread(_list_tree, workspace, hides), asyncio.to_thread(read_clues, texts[0], texts[1:])
    )

    async def find_messages(messages: Sequence[str]) -> list[tuple[str, int]]:
        try:
            async with asyncio.timeout(_GREP_SECONDS):
                return await grep(messages)
        except TimeoutError:
            return []

    async def select(source: CodeIndex) -> Orientation:
        passages = await rank_passages(workspace, source, clues, find_messages)
        files = [path for path in rank_files(passages) if not hides(path)]
        outlines, failure = await source.outline_files(files), source.failure
        read = partial(_read_text, workspace, hides)
        code_map, excerpts = await asyncio.to_thread(_divide_room, passages, outlines, read)
        layout = _render_tree(tree)
        if code_map.text:  # it shows the directories of sources
            line = "  ".join(printable(name) for name in tree if not name.endswith((".egg-info/", "PKG-INFO")))
            layout = line if len(line) <= TREE_CHARS else f"{line[: TREE_CHARS - 2]} …"
        return Orientation(
            facts=tuple(facts),
            tree=layout,
            map=replace(code_map, is_complete=code_map.is_complete and not failure),
            excerpts=excerpts,
            files=tuple(files),
            indexed=source is index,
            is_late=not code_map.text and (bool(failure) or any(outline.names is None for outline in outlines)),
        )

    found = None
    with suppress(TimeoutError):
        async with asyncio.timeout(CODE_SECONDS):
            found = await _select_code(
                index, partial(parse_sources, workspace, clues, hides), select, seconds=seconds, trial=trial
            )
    return found or Orientation(facts=tuple(facts), tree=_render_tree(tree), is_late=True)


async def _select_code(
    index: CodeIndex,
    parse: Callable[[], Coroutine[Any, Any, CodeIndex]],
    select: Callable[[CodeIndex], Awaitable[Orientation]],
    *,
    seconds: float,
    trial: asyncio.Future[Any] | None,
) -> Orientation:
    """Select from the index if it answers in time, else from parsed sources."""

    async def select_indexed() -> Orientation | None:
        return await select(index) if await index.wait_ready(_INDEX_SECONDS) else None

    tasks = list[asyncio.Task[Any]]()
    try:
        if seconds > 0:
            tasks.append(indexed := asyncio.create_task(select_indexed()))
            await asyncio.wait([indexed], timeout=_HEAD_START)
            if not indexed.done():
                tasks.append(asyncio.create_task(parse()))
                await asyncio.wait([indexed], timeout=seconds)
            if not indexed.done() and trial is not None:
                await asyncio.wait([indexed, trial], timeout=_INDEX_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if indexed.done() and (orientation := indexed.result()):
                return orientation
        orientation = await select(await (tasks[1] if len(tasks) > 1 else parse()))
        if orientation.is_late and tasks:  # the index may still be ready before `CODE_SECONDS` end
            return await tasks[0] or orientation
        return orientation
    finally:
        for task in tasks:
            task.cancel()


def _divide_room(
    passages: Sequence[Passage], outlines: Sequence[Outline], read: Callable[[str], Text | None]
) -> tuple[CodeMap, tuple[Excerpt, ...]]:
    """Return the map and the definitions that the task names."""
    ranked = [(passage.path, passage.definition.qualified) for passage in passages if passage.definition]
    code_map = render_map(outlines, ranked, MAP_CHARS)
    room = CODE_CHARS - len(code_map.text) if code_map.is_complete else CODE_CHARS - _LEAST_MAP_CHARS
    excerpts = render_excerpts([passage for passage in passages if passage.is_named], read, room)
    if code_map.is_complete and not excerpts:
        excerpts = render_excerpts(passages, read, min(room, _GUESSED_CHARS))
    if not code_map.is_complete:
        left = CODE_CHARS - sum(len(excerpt.path) + len(excerpt.text) for excerpt in excerpts)
        code_map = render_map(outlines, ranked, left)
    return code_map, excerpts


def _list_tree(workspace: Workspace, hides: Callable[[str], bool]) -> dict[str, list[str]]:
    """List two levels, directories first, without hidden and ignored paths."""
    ignored = IgnoredPaths(lambda path: workspace.read_or_empty(path, _READ_BYTES).decode(errors="replace"))
    names = [name for name in _list_directory(workspace, "", ignored) if not hides(name.rstrip("/"))]
    return {
        name: [child for child in _list_directory(workspace, name, ignored) if not hides(name + child.rstrip("/"))]
        if name.endswith("/") and place < _LOOK_INTO
        else []
        for place, name in enumerate(names)
    }


def _render_tree(tree: Mapping[str, Sequence[str]]) -> str:
    """Render two levels if they fit, else one."""
    drawn = (list(_draw_entries(tree, most)) for most in _CHILDREN)
    fitting = next((lines for lines in drawn if len("\n".join(lines)) <= TREE_CHARS), None)
    return "\n".join(fitting) if fitting else clip_tree(list(_draw_entries(tree, 0)), TREE_CHARS)


def _draw_entries(tree: Mapping[str, Sequence[str]], most: int) -> Iterator[str]:
    for name, inside in tree.items():
        names_inside = "  ".join(printable(child) for child in inside[:most])
        more = f"  ... ({len(inside)} in all)" if len(inside) > most else ""
        yield f"{printable(name)}: {names_inside}{more}" if names_inside else printable(name)


def _list_directory(workspace: Workspace, directory: str, ignored: IgnoredPaths) -> list[str]:
    try:
        names = workspace.list_directory(directory or ".")
    except ToolError:  # not readable, or gone in this moment
        return []
    entries = [
        n for n in names[:_MAX_NAMES] if not (n.startswith(".") and n.endswith("/")) and not ignored(directory + n)
    ]
    return sorted(entries, key=lambda name: (not name.endswith("/"), name))


def clip_tree(lines: Sequence[str], max_chars: int) -> str:
    clipped: list[str] = []
    used = 0
    for line in lines:
        used += len(line) + 1
        if used > max_chars - 30:
            return "\n".join([*clipped, f"... and {len(lines) - len(clipped)} more"])
        clipped.append(line)
    return "\n".join(clipped)


def _read_text(workspace: Workspace, hides: Callable[[str], bool], path: str) -> Text | None:
    """Return a file's text; None if it is hidden or no text."""
    try:
        return None if hides(workspace.resolve(path)) else decode(workspace.read_bytes(path, _READ_BYTES))
    except ToolError:  # gone in this moment, or too large
        return None


_MAX_IGNORE_FILES = 50
_MAX_IGNORE_LINES = 500
_MATCHING_SECONDS = 2.0


class IgnoredPaths:
    """A test for paths that git ignores, by the `.gitignore` of each directory on the path; the deepest match decides.

    The cost is bounded: 50 files, 500 lines, two seconds of matching, after which every path counts as ignored.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._files: dict[str, tuple[tuple[int, IgnoreFile], ...]] = {}
        self._ignored: dict[str, bool] = {"": False}
        self._files_left = _MAX_IGNORE_FILES
        self._lines_left = _MAX_IGNORE_LINES
        self._seconds_left = _MATCHING_SECONDS

    def __call__(self, path: str) -> bool:
        """Whether git ignores a path from the root; a directory's ends in a slash."""
        if self._seconds_left <= 0:
            return True
        start = time.monotonic()
        plain = path.rstrip("/")
        is_ignored = self._is_ignored_directory(plain) if plain != path else self._is_ignored(plain, directory=False)
        self._seconds_left -= time.monotonic() - start
        return is_ignored

    def _is_ignored_directory(self, path: str) -> bool:
        if path not in self._ignored:
            self._ignored[path] = self._is_ignored(path, directory=True)
        return self._ignored[path]

    def _is_ignored(self, path: str, *, directory: bool) -> bool:
        parent = path.rpartition("/")[0]
        if self._is_ignored_directory(parent):
            return True
        verdicts = (file.verdict(path[start:], directory=directory) for start, file in self._ignore_files_of(parent))
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def _ignore_files_of(self, directory: str) -> tuple[tuple[int, IgnoreFile], ...]:
        """Return the files that apply to a directory, deepest first, with the index where their paths begin."""
        if directory not in self._files:
            outer = self._ignore_files_of(directory.rpartition("/")[0]) if directory else ()
            self._files[directory] = outer
            if self._files_left:
                prefix = f"{directory}/" if directory else ""
                data = self._read(f"{prefix}.gitignore").encode("utf-8", "surrogateescape")
                file = IgnoreFile(data, max_lines=self._lines_left)
                if file.patterns:
                    self._files_left -= 1
                    self._lines_left -= len(file.patterns)
                    self._files[directory] = ((len(prefix), file), *outer)
        return self._files[directory]


_TOOLCHAIN_SECONDS = 10.0
_TOOLCHAIN_BYTES = 10_000
_TOOLCHAIN_SCRIPT = r"""
# A program counts when it says its version: one whose interpreter or library is not in the sandbox is found, too.
export GOTOOLCHAIN=local
limit=$(command -v timeout) && limit="$limit 5"
asked=() wanted=(); shopt -s nullglob
names=(* */*); names=" ${names[*]##*/} "
add() { if [[ $names =~ $1 ]]; then wanted+=("${@:2}"); fi; }
add '\.py |pyproject\.toml |setup\.cfg |tox\.ini |requirements[^ ]*\.txt ' python3 python pytest uv
add 'package\.json |\.[cm]?[jt]sx? ' node npm
add 'go\.mod |\.go ' go; add 'Cargo\.toml |\.rs ' cargo; add '[Mm]akefile |\.mk |CMakeLists\.txt ' make
add '\.(c|cc|cpp|cxx|h|hpp) |CMakeLists\.txt ' gcc
[ ${#wanted[@]} -gt 0 ] || wanted=(python3 python pytest uv node npm go cargo make gcc)
for program in "${wanted[@]}" git; do
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


async def describe_toolchain(sandbox: Sandbox, workspace: Path) -> str:
    """Return a line of installed programs that files in the first two levels suggest, and git; of all for no such file.

    Example: `Programs: python3 (3.11.7) pytest make git`.
    """
    launch = sandbox.launch(["bash", "-c", _TOOLCHAIN_SCRIPT], workspace=workspace)
    process = await start_program(launch.argv, env=launch.env)
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    answer = b""
    try:
        async with asyncio.timeout(_TOOLCHAIN_SECONDS):
            await process.stdout.readexactly(_TOOLCHAIN_BYTES)  # only a program of the workspace prints so much
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
    """Render the step counter and the time; more urgent near the limit."""
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
