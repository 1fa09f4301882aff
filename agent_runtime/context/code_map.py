"""Map of a workspace's source: files with the names of classes, methods and functions. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agent_runtime.context.relevant_code import printable
from agent_runtime.index.index import Outline
from agent_runtime.index.parsing import is_copied

MAP_CHARS = 5_000
"""Most characters of a map that names everything."""
_DIRECTORY_CHARS = 500
_FILE_SHARE = 0.3
"""Share of the room that one file may take."""
_LEAST_FILE_CHARS = 240
_OMITTED = " … {} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMap:
    """Rendered map; `is_complete` if it has all names of sources."""

    text: str = ""
    is_complete: bool = False


def render_map(outlines: Sequence[Outline], ranked: Iterable[tuple[str, str]], max_chars: int) -> CodeMap:
    """Render sources with their names; if not all fit, those of the files that rank best. Of tests, render the number.

    Args:
        ranked: paths and qualified names of definitions, best first.
    """
    sources = [outline for outline in outlines if not outline.is_test and not is_copied(outline.path)]
    aside = _count_by_directory(outline.path for outline in outlines if outline.is_test or is_copied(outline.path))
    text = "\n".join([*(_render_file(outline) for outline in sources if outline.names), *aside])
    if sources and all(outline.names is not None for outline in sources) and len(text) <= max_chars:
        return CodeMap(text=text, is_complete=True)
    return CodeMap(text=_render_part(outlines, sources, list(ranked), max_chars))


def _render_part(
    outlines: Sequence[Outline], sources: Sequence[Outline], ranked: Sequence[tuple[str, str]], max_chars: int
) -> str:
    names_by_path: dict[str, dict[str, None]] = {}
    for path, name in ranked:
        names_by_path.setdefault(path, {})[name] = None
    by_path = {outline.path: outline for outline in outlines}
    # After the files that rank, those that stand outermost.
    others = sorted(sources, key=lambda outline: (outline.path.count("/"), outline.path))
    order = dict.fromkeys([*(path for path in names_by_path if path in by_path), *(outline.path for outline in others)])
    room = max_chars - _DIRECTORY_CHARS
    rendered: dict[str, str] = {}
    for path in order:
        if room < _LEAST_FILE_CHARS:
            break
        outline = by_path[path]
        if not outline.names:
            continue
        most = int(max(_LEAST_FILE_CHARS, _FILE_SHARE * room))
        text = _render_file(_select_names(outline, names_by_path.get(path, {}), min(room, most)))
        if len(text) < room:  # else its path is too long
            rendered[path] = text
            room -= len(text) + 1
    rest = _count_by_directory(outline.path for outline in outlines if rendered and outline.path not in rendered)
    ends = list(accumulate(len(line) + 1 for line in rest))
    fitting = bisect_right(ends, room + _DIRECTORY_CHARS)
    more = [f"… {len(rest) - fitting} more directories"] if fitting < len(rest) else []
    return "\n".join([*(rendered[path] for path in sorted(rendered)), *rest[:fitting], *more])


def _select_names(outline: Outline, ranked: Mapping[str, None], most: int) -> Outline:
    """Return an outline with the names that fit, best first."""
    names = outline.names or ()
    places = {name: place for place, name in enumerate(ranked)}
    by_worth = sorted(names, key=lambda name: (places.get(name, len(places)), _privacy(name)))
    chosen, left = set[str](), most - len(outline.path) - len(_OMITTED)
    for name in by_worth:
        left -= len(name.rpartition(".")[2]) + 1
        owner = name.rpartition(".")[0]
        if owner not in chosen:
            left -= len(owner) + 3
        if left < 0:
            break
        chosen |= {name, owner}
    return Outline(
        path=outline.path,
        is_test=outline.is_test,
        names=tuple(name for name in names if name in chosen),
        omitted=sum(name not in chosen for name in names),
    )


def _privacy(name: str) -> int:
    last = name.rpartition(".")[2]
    return 2 if last.startswith("_") and not last.endswith("__") else 1 if last.startswith("__") else 0


def _render_file(outline: Outline) -> str:
    """Render a path, a line for each class, and the functions; private names last."""
    members: dict[str, list[str]] = {}
    functions: list[str] = []
    for name in sorted(outline.names or (), key=_privacy):
        owner, _, last = name.rpartition(".")
        (members.setdefault(owner, []) if owner else functions).append(last)
    lines = [f" {owner}: {' '.join(names)}" for owner, names in members.items()]
    if alone := [name for name in functions if name not in members]:
        lines.append(f" {' '.join(alone)}")
    if outline.omitted:
        lines[-1:] = [f"{lines[-1] if lines else ''}{_OMITTED.format(outline.omitted)}"]
    return "\n".join([printable(outline.path), *map(printable, lines)])


def _count_by_directory(paths: Iterable[str]) -> list[str]:
    """Return a line for each directory with its number of files."""
    counts: dict[str, int] = {}
    for path in paths:
        directory = path.rpartition("/")[0]
        counts[directory] = counts.get(directory, 0) + 1
    return [
        f"{printable(directory or '.')}/ ({count} {'file' if count == 1 else 'files'})"
        for directory, count in sorted(counts.items())
    ]
