"""Definitions of a workspace whose code index is not ready."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from math import log1p
from pathlib import PurePosixPath
from typing import Any

from agent_runtime.context.relevant_code import Clues, locate_mentions
from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.index.index import Definition, Outline
from agent_runtime.index.parsing import Piece, TooSlowError, is_copied, is_test, language_of, parse
from agent_runtime.index.ranking import query_terms
from agent_runtime.index.store import is_generated, split_words
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import Workspace

log = logging.getLogger(__name__)

PROCESSOR_SECONDS = 0.3
"""Processor time for reading and parsing."""
_WALL_SECONDS, _LEAST_WALL_SECONDS = 2.0, 0.5
"""Wall time from the call on, and in the worker, which a busy machine may start late."""
_SECONDS = 2.0
_MAX_ENTRIES = 20_000
_MAX_FILES = 3_000
_MAX_CHARS = 10_000_000
_MAX_FILE_BYTES, _RETRIED_FILE_BYTES = 400_000, 20_000
_MAX_DEFINITIONS = 20_000
_CALLABLES = frozenset({"function", "method"})
_FILE_PART = 0.3
"""Share of a file's score in that of its definitions."""
_Words = Mapping[float, Sequence[str]]
"""Words by weight."""


class ParsedSources:
    """A `CodeIndex` of parsed sources: names and lines, no calls."""

    def __init__(self, files: Sequence[dict[str, Any]], failure: str = "") -> None:
        self._files = files
        self.failure = failure

    async def wait_ready(self, seconds: float) -> bool:  # noqa: ARG002 - of the protocol
        return True

    async def search(self, text: str, most: int = 5) -> list[Definition]:
        """Return definitions by rare words in their names and files."""
        return (await asyncio.to_thread(self._search, set(query_terms(text))))[:most]

    def _search(self, words: set[str]) -> list[Definition]:
        hits = [(definition, words & terms) for definition, terms in self._terms.items()]
        counts = Counter(word for _, common in hits for word in common)
        rarity = {word: log1p(len(hits) / count) for word, count in counts.items()}
        scores = {
            definition: (sum(map(rarity.__getitem__, common)) + _FILE_PART * self._file_scores[definition.path])
            * (0.5 if definition.is_test or is_copied(definition.path) else 1.0)
            for definition, common in hits
        }
        return sorted(filter(scores.get, scores), key=lambda definition: -scores[definition])

    async def find_definitions(self, symbol: str) -> list[Definition]:
        path, _, name = symbol.rpartition("::")
        matches = (match for match in self._definitions if f".{match.qualified}".endswith(f".{name}"))
        return [match for match in matches if match.path == path or not path]

    async def definition_at(self, path: str, line: int) -> Definition | None:
        around = [item for item in self._definitions if item.path == path and item.first <= line <= item.last]
        return min(around, key=lambda item: item.last - item.first, default=None)

    async def outline_files(self, paths: Sequence[str]) -> list[Outline]:  # noqa: ARG002 - of the protocol
        return [
            Outline(path=path, is_test=is_test(path), names=names if names is None else tuple(names))
            for path, names in sorted((file["path"], file["names"]) for file in self._files)
        ]

    async def _return_nothing(self, *_: Any, **__: Any) -> list[Any]:  # noqa: ANN401 - of several protocol methods
        return []

    find_used = callers = callees = _return_nothing

    @cached_property
    def _definitions(self) -> list[Definition]:
        return [
            Definition(**fields | {"parents": tuple(fields["parents"])})
            for file in self._files
            for fields in file["definitions"]
        ]

    @cached_property
    def _terms(self) -> dict[Definition, frozenset[str]]:
        return {
            item: frozenset(split_words(item.qualified).lower().replace("_", " ").replace(".", " ").split())
            for item in self._definitions
        }

    @cached_property
    def _file_scores(self) -> dict[str, float]:
        return {file["path"]: file["score"] for file in self._files}


async def parse_sources(workspace: Workspace, clues: Clues, hides: Callable[[str], bool]) -> ParsedSources:
    """Parse sources in a worker process, those that match the task first."""
    places, files, tests = await asyncio.to_thread(locate_mentions, workspace, clues)
    paths = [*(place.path for place in places), *files, *(test.partition("::")[0] for test in tests)]
    names = [name.rpartition(".")[2] for name in clues.names]
    words = query_terms(clues.questions[0][1]) if clues.questions else []
    arguments = (workspace, paths, {4.0: names, 1.0: words}, time.monotonic() + _WALL_SECONDS)
    failure, sources, task = "", list[dict[str, Any]](), "Looking for what the task names"
    for max_bytes in (_MAX_FILE_BYTES, _RETRIED_FILE_BYTES):  # a large file may be slow, or crash its grammar
        try:
            answer = await run_bounded(_parse_sources, *arguments, max_bytes, seconds=_SECONDS, task=task)
            failure, sources = json.loads(answer)
            break
        except (BoundExceededError, RuntimeError) as error:
            log.info("there is no code index yet, and the sources were not parsed: %s", error)
            failure = str(error)
    return ParsedSources([source for source in sources if not hides(source["path"])], failure)


def _parse_sources(
    workspace: Workspace, named_paths: Sequence[str], words: _Words, wall_end: float, max_bytes: int
) -> str:
    processor_end = time.process_time() + PROCESSOR_SECONDS
    wall_end = max(wall_end, time.monotonic() + _LEAST_WALL_SECONDS)

    def is_over(rest: float = 0.0) -> bool:
        """Whether less than a share of the processor's or the wall's time is left."""
        processor_seconds, wall_seconds = processor_end - time.process_time(), wall_end - time.monotonic()
        return processor_seconds < rest * PROCESSOR_SECONDS or wall_seconds < rest * _LEAST_WALL_SECONDS

    with workspace:
        sources, failure = _read_sources(workspace, named_paths, partial(is_over, 0.5), max_bytes)
        texts = {path: data for path, data in sources.items() if data is not None}
        scores = _score_files(texts, words)
        order = sorted(texts, key=lambda path: (path not in named_paths, -scores[path], path.count("/"), path))
        parsed = dict[str, list[Piece]]()
        for path in order:
            if is_over() or sum(map(len, parsed.values())) > _MAX_DEFINITIONS:
                break
            language = None if is_generated(texts[path]) else language_of(path)
            with suppress(LookupError, TooSlowError):
                parsed[path] = parse(language, texts[path], PurePosixPath(path).stem).pieces if language else []
    return json.dumps([failure, [_describe_file(path, scores.get(path, 0.0), parsed.get(path)) for path in sources]])


def _read_sources(
    workspace: Workspace, named_paths: Sequence[str], is_over: Callable[[], bool], max_bytes: int
) -> tuple[dict[str, bytes | None], str]:
    """Return sources with their texts, outermost first, and a failure to list all; None for a file that is not read."""
    paths, failure = list[str](), ""
    for number, (_, prefix, entry) in enumerate(listing.entries(workspace)):
        if number > _MAX_ENTRIES or is_over():
            failure = f"only {number:,} files were listed"
            break
        if entry is not None and entry.is_file(follow_symlinks=False) and language_of(entry.name):
            paths.append(prefix + entry.name)
    paths.sort(key=lambda path: (is_test(path) or is_copied(path), path.count("/"), path))
    left, sources = _MAX_CHARS, dict[str, bytes | None]()
    for path in dict.fromkeys([*(path for path in named_paths if language_of(path)), *paths[:_MAX_FILES]]):
        sources[path] = None
        if left > 0 and not is_over():
            with suppress(ToolError):  # removed in this moment, not readable, or too large
                sources[path] = data = workspace.read_bytes(path, max_bytes)
                left -= len(data)
    return sources, failure


def _score_files(sources: dict[str, bytes], words: _Words) -> dict[str, float]:
    """Score files by rare words in them; case counts in words of more than a weight of 1."""
    scores = dict.fromkeys(sources, 0.0)
    lowered = {path: data.lower() for path, data in sources.items() if data}
    for factor, texts in words.items():
        where = sources if factor > 1 else lowered
        for text in dict.fromkeys(texts):
            needle = text.encode(errors="replace")
            holding = [path for path, data in where.items() if needle in data]
            for path in holding:
                scores[path] += factor * log1p(len(sources) / len(holding)) * (0.5 if is_test(path) else 1.0)
    return scores


def _describe_file(path: str, score: float, pieces: list[Piece] | None) -> dict[str, object]:
    """Return a file for `ParsedSources`."""
    definitions: list[dict[str, object]] = []
    names: dict[str, None] = {}
    for piece in pieces or ():
        if piece.kind == "constant":
            continue
        if piece.parent < 0 or (pieces or [])[piece.parent].kind not in _CALLABLES:
            names[piece.qualified] = None
        parents, around = list[int](), piece
        while around.parent >= 0:
            around = (pieces or [])[around.parent]
            parents.insert(0, around.header)
        definitions.append({
            "path": path, "name": piece.name, "qualified": piece.qualified, "kind": piece.kind, "first": piece.first,
            "last": piece.last, "header": piece.header, "parents": parents, "is_test": is_test(path),
        })  # fmt: skip
    return {"path": path, "score": score, "definitions": definitions, "names": None if pieces is None else list(names)}
