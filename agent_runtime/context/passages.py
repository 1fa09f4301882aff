"""Rank the definitions that a text is about, by what it names and by what the code index finds for its words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agent_runtime.context.clues import Clues, Mention
from agent_runtime.core.errors import ToolError
from agent_runtime.index.languages import is_copied
from agent_runtime.index.model import CodeIndex, Definition
from agent_runtime.workspace.files import Workspace

Grep = Callable[[Sequence[str]], Awaitable[list[tuple[str, int]]]]
"""Finds the lines that hold one of some texts: path and number."""

_MOST_PARTS = 30
_AROUND = 6
"""Lines before and after one that lies in no definition."""
_MOST_LOOSE = 4
_SOURCE_ROOTS = ("", "src/", "lib/")
_SEARCHED = 40
_CLOSE = 10
_MEANT = 3
"""Definitions of one name that may all be meant; of more, those count that the search finds, too."""
_MOST_FIRST = 3
_CALLED_BY = 2
_MOST_CALLED = 16
_CLASSES = frozenset({"class", "interface", "type", "module"})

_FIRST = 100.0
"""What puts the lines that a text names before everything else, the innermost ones of a traceback."""
# What each kind of clue adds to a definition's score. The search's best adds `_FOUND`, its second best a little less.
_LINE, _TEST, _TESTED, _NAME, _MESSAGE, _WITHIN, _CALLER, _CALLED = 6.0, 3.0, 2.5, 4.5, 3.0, 2.0, 1.0, 3.0
_FOUND = {"text": 3.0, "prose": 3.0, "title": 3.0, "goal": 0.5}
"""By the kind of the question."""
_FALL = 1.0
"""How much faster than its place in a search a score falls."""
_FILE_PART, _IN_FILE, _IN_CLASS, _IN_TEST = 0.1, 1.5, 1.6, 0.3
_LONG, _LONG_CLASS = 35, 40
"""Lines from which on a definition has to be worth its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Something that the first message should show.

    Attributes:
        path: the file, canonical.
        line: the line that the text names; None when it names no line of it.
        definition: what to show; None for some lines, or the file.
        first: without a definition: the first of the lines around `line`.
        last: the last of them.
        score: the higher, the sooner it is shown.
    """

    path: str
    line: int | None = None
    definition: Definition | None = None
    first: int = 1
    last: int = 0
    score: float = 0.0


class _Ranking:
    """Definitions, and what speaks for each."""

    def __init__(self, index: CodeIndex, clues: Clues) -> None:
        self._index = index
        self._clues = clues
        self._scores: dict[Definition, float] = {}
        self._lines: dict[Definition, int] = {}
        self._first: dict[Definition, float] = {}
        self._classes: list[Definition] = []

    def _add(self, score: float, found: Iterable[Definition]) -> None:
        for definition in found:
            if definition.kind != "constant":
                self._scores[definition] = self._scores.get(definition, 0.0) + score

    def _add_falling(self, score: float, found: Iterable[Definition]) -> None:
        for place, definition in enumerate(found):
            self._add(score / (1 + _FALL * place), [definition])

    async def by_lines(self, places: Sequence[Mention]) -> list[Passage]:
        """The definitions around lines. Of those that lie in none, the lines around them are returned."""
        at = await asyncio.gather(*(self._index.at(place.path, place.line or 1) for place in places))
        around = [(place, definition) for place, definition in zip(places, at, strict=True) if definition is not None]
        for place, definition in reversed(around):
            self._lines[definition] = place.line or 1
        for rank, (_, definition) in enumerate(around):
            self._add(_LINE / (1 + 0.3 * rank), [definition])
        innermost = [definition for _, definition in around[:1]]
        for rank, (_, definition) in enumerate(around[:_MOST_FIRST]):
            self._first.setdefault(definition, _FIRST - rank)
        for score in (_CALLED, _CALLED / 2):  # what the innermost one certainly calls, and what that calls
            innermost = await self._called(innermost)
            self._add(score, innermost)
        loose = [place for place, definition in zip(places, at, strict=True) if definition is None]
        return await asyncio.gather(*(_around(self._index, place) for place in loose[:_MOST_LOOSE]))

    async def _called(self, definitions: Sequence[Definition]) -> list[Definition]:
        """What they certainly call."""
        symbols = [f"{each.path}::{each.qualified}" for each in definitions]
        calls = await asyncio.gather(*map(self._index.callees, symbols))
        sure = list(dict.fromkeys(call.callee for group in calls for call in group if call.sure))[:_MOST_CALLED]
        found = await asyncio.gather(*map(self._index.named, sure))
        return [group[0] for group in found if group]

    async def by_tests(self, tests: Sequence[str]) -> None:
        """Tests, and what they certainly call."""
        found = [each for group in await asyncio.gather(*map(self._index.named, tests)) for each in group[:_MEANT]]
        self._add(_TEST, found)
        self._add(_TESTED, await self._called(found))

    async def by_words(self) -> None:
        """What the searches find, and what they find of the classes that are named."""
        questions = self._clues.questions
        found = await asyncio.gather(*(self._index.search(words, _SEARCHED) for _, words in questions))
        for (kind, _), group in zip(questions, found, strict=True):
            self._add_falling(_FOUND[kind], group)
        await self._by_names(found[0][:_CLOSE])
        inside = [f"{each.name} {questions[0][1]}" for each in self._classes[:_MEANT]]
        of_classes = await asyncio.gather(*(self._index.search(question, _SEARCHED) for question in inside))
        for definition, group in zip(self._classes, of_classes, strict=False):
            own = (each for each in group if each.qualified.startswith(f"{definition.qualified}."))
            self._add_falling(_WITHIN, own)

    async def _by_names(self, close: list[Definition]) -> None:
        """What names mean, and what certainly calls the functions among them."""
        clues = self._clues
        groups = await asyncio.gather(*(_named(self._index, name) for name in clues.names))
        named: list[Definition] = []
        for rank, (name, group) in enumerate(zip(clues.names, groups, strict=True)):
            meant = _meant(group, close, plain=name in clues.plain)
            self._add(_NAME / max(1, len(meant)) / (1 + 0.1 * rank), meant)
            named += meant
        self._classes = [each for each in named if each.kind in _CLASSES]
        functions = [f"{each.path}::{each.qualified}" for each in named if each.kind not in _CLASSES][:_CALLED_BY]
        for calls in await asyncio.gather(*map(self._index.callers, functions)):
            self._add(_CALLER, dict.fromkeys(call.caller for call in calls if call.caller is not None and call.sure))

    async def by_messages(self, grep: Grep) -> None:
        """The definitions that hold the text of an error."""
        hits = await grep(self._clues.messages) if self._clues.messages else []
        for definition in await asyncio.gather(*(self._index.at(path, line) for path, line in hits)):
            self._add(_MESSAGE / len(hits), [definition] if definition is not None else [])

    def passages(self, files: Collection[str]) -> list[Passage]:
        """All of them; what lies in a file or a class that is named counts more, tests and long ones count less."""
        within = {(each.path, each.qualified) for each in self._classes}
        of_file: dict[str, list[float]] = {}
        for definition, score in sorted(self._scores.items(), key=lambda item: -item[1]):
            of_file.setdefault(definition.path, []).append(score)
        told = []
        for each, alone in self._scores.items():
            score = alone + _FILE_PART * sum(other * 0.5**place for place, other in enumerate(of_file[each.path]))
            if each.path in files:
                score *= _IN_FILE
            elif _is_aside(each):
                score *= _IN_TEST
            if (each.path, each.qualified.rpartition(".")[0]) in within:
                score *= _IN_CLASS
            if each not in self._lines:
                score /= 1 + (each.last - each.first) / (_LONG_CLASS if each.kind in _CLASSES else _LONG)
            score += self._first.get(each, 0.0)
            told.append(Passage(path=each.path, line=self._lines.get(each), definition=each, score=score))
        return told


async def passages(workspace: Workspace, index: CodeIndex, clues: Clues, grep: Grep) -> list[Passage]:
    """What a text is about, best first."""
    places, files, tests = await asyncio.to_thread(located, workspace, clues)
    ranking = _Ranking(index, clues)
    loose, *_ = await asyncio.gather(
        ranking.by_lines(places), ranking.by_tests(tests), ranking.by_words(), ranking.by_messages(grep)
    )
    whole = [Passage(path=path, score=_NAME / 2) for path in dict.fromkeys(files)]
    return sorted([*ranking.passages(files), *loose, *whole], key=lambda passage: -passage.score)


def located(workspace: Workspace, clues: Clues) -> tuple[list[Mention], list[str], list[str]]:
    """The lines, files and tests that a text names, as the workspace has them."""
    places = [place for mention in clues.places if (place := _find(workspace, mention))]
    files = [place.path for name in clues.files if (place := _find(workspace, Mention(name, None)))]
    tests = [
        f"{place.path}::{test.partition('::')[2].replace('::', '.')}"
        for test in clues.tests
        if (place := _find(workspace, Mention(test.partition("::")[0], None)))
    ]
    return places, files, tests


def _find(workspace: Workspace, mention: Mention) -> Mention | None:
    """The file that a text names, trying ever shorter ends of a path from another machine."""
    parts = PurePosixPath(mention.path.removeprefix("file://").replace("\\", "/")).parts
    if len(parts) > _MOST_PARTS:
        return None
    installed = max(
        (place for place, part in enumerate(parts) if part in {"site-packages", "node_modules"}), default=-1
    )
    if installed >= 0:  # of an installed package: this one, or another one
        tail = parts[installed + 1 :]
        tails = [tail, tail[1:]] if parts[installed] == "node_modules" else [tail]
        tails = [each for each in tails if len(each) > 1]
    else:
        tails = [parts[start:] for start in range(len(parts))]
    for tail in tails:
        for root in _SOURCE_ROOTS:
            candidate = root + "/".join(part for part in tail if part != "/")
            try:
                if candidate and workspace.is_file(candidate):
                    return Mention(workspace.resolve(candidate), mention.line)
            except ToolError:  # it names something outside the workspace
                continue
    return None


async def _around(index: CodeIndex, place: Mention) -> Passage:
    """The lines around one that lies in no definition, as far as the next definition."""
    line = place.line or 1
    above, below = await asyncio.gather(
        asyncio.gather(*(index.at(place.path, line - away) for away in range(1, _AROUND + 1))),
        asyncio.gather(*(index.at(place.path, line + away) for away in range(1, _AROUND + 1))),
    )
    before = next((away for away, definition in enumerate(above) if definition is not None), _AROUND)
    behind = next((away for away, definition in enumerate(below) if definition is not None), _AROUND)
    first = max(1, line - before)
    return Passage(path=place.path, line=line, first=first, last=line + behind, score=_FIRST)


async def _named(index: CodeIndex, name: str) -> list[Definition]:
    """What a name may mean: as it is written, else its last two parts, else its last one."""
    parts = name.split(".")
    aside: list[Definition] = []
    for tried in dict.fromkeys((name, ".".join(parts[-2:]), parts[-1])):
        found = [each for each in await index.named(tried) if each.kind != "constant"]
        if any(not _is_aside(each) for each in found):
            return found
        aside = aside or found
    return aside


def _is_aside(definition: Definition) -> bool:
    """Whether it is in a test, only declares what another file defines, or was made from other files or copied."""
    return definition.is_test or is_copied(definition.path)


def _meant(group: list[Definition], close: list[Definition], *, plain: bool) -> list[Definition]:
    """Which of the definitions of one name a text means; a word that could be any must be the name of one alone."""
    own = [each for each in group if not _is_aside(each)] or group
    if plain:
        return own if len(own) == 1 else []
    return own if len(own) <= _MEANT else [each for each in own if each in close][:_MEANT]
