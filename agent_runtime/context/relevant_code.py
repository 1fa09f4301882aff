"""Find the code that a task is about, and show it in excerpts.

`clues` reads what a text names: lines, files, tests, names, messages of errors. `passages` ranks the definitions that
these and the code index point at, and `excerpts` shows as many of them as fit. Until the index is ready, `named_files`
finds definitions in the files that the text names.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.index.index import Call, CodeIndex, Definition
from agent_runtime.index.parsing import TooSlowError, is_copied, is_test, language_of, parse
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import listing
from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.edits import listed
from agent_runtime.workspace.files import Workspace

_SEARCHED_CHARS = 200_000
_MOST_WORDS_CHARS = 4_000
_PIECE_WORDS = 50
_MOST_PIECES = 3
_MOST = {"places": 24, "files": 12, "tests": 6, "names": 16, "messages": 4}

_TRACEBACK = re.compile(r'File "(?P<path>[^"\n]{1,300})", line (?P<line>\d{1,7})(?:, in [\w<>.]{1,200})?')
_TOKEN = re.compile(r"[\w./\\:@+$\[\]-]{3,400}")
_PLACE = re.compile(
    r"(?P<path>(?:file:/{2,3}|[A-Za-z]:)?[\w./\\@+$-]*?[\w-]\.[A-Za-z]\w{0,7})"
    r"(?:::(?P<test>[A-Za-z_][\w:.]*)(?:\[.*)?|:(?P<line>\d{1,7})(?::\d{1,7})?:?|:)?"
)
# Files that an option names are not what the text is about, and neither is a branch that is called like one.
_OPTION = re.compile(
    r"(?<![\w-])--(?:ignore(?:-glob)?|deselect|rootdir|config(?:-file)?|cov(?:-config)?|confcutdir|basetemp)[ =]\S+"
    r"|(?<![\w-])--?[A-Za-z][\w-]*(?:=\S+)?"
)
_BRANCH = re.compile(
    r"\b(?:branch(?:es)?|refs/heads/|origin/)[ :]{0,2}[`'\"]?[\w./@#+-]+[`'\"]?"
    r"|[`'\"][\w./@#+-]+[`'\"] branch\b|`(?:main|master|develop|trunk)`",
    re.IGNORECASE,
)
_CODE = re.compile(r"`(?P<code>[^`\n]{2,200})`")
_DOTTED = r"[A-Za-z_$][\w$]{0,80}(?:\.[A-Za-z_$][\w$]{0,80}){0,8}"
_NAME = re.compile(rf"(?<![\w$./\\-])(?P<name>{_DOTTED})(?P<call>\()?(?![\w$/\\])")
_SHAPED = re.compile(r".*(?:[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|^_\w)")
_PLAIN = re.compile(r"[a-z]{2,}|[A-Z]+|[A-Z][a-z]+")
_RAISED = re.compile(r"\b[\w.]{0,80}(?:Error|Exception|Warning|panic)\b:[ \t]{1,4}(?P<text>[^\n]{8,300})")
_QUOTED = re.compile(r"\"(?P<double>[^\"\n]{10,200})\"|'(?P<single>[^'\n]{10,200})'")
_LITERAL = re.compile(r"[^\"'`{}()\[\]<>%\\|^$*+?\d]{10,80}")
_FRAME = re.compile(r"\s{0,80}(?:at \S|\^|~|File \")")
_INDENTED = re.compile(r" {4}|\t")
_FENCED = re.compile(r"^(?:```|~~~).{0,4000}?^(?:```|~~~)", re.MULTILINE | re.DOTALL)
_BUILT_IN = frozenset(
    re.findall(
        r"\w+",
        "print len list dict set str int float bool tuple range open next iter type super self cls this new require "
        "import console log None True False null undefined main Error Exception Traceback",
    )
)


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
class Clues:
    """What a text names, each kind in the order in which it is likely to matter, a bounded number of each.

    Attributes:
        places: lines of files, innermost first in a traceback.
        files: those named without a line.
        tests: as pytest names them, `path::Class::test`.
        names: identifiers that look like code, dotted as written.
        plain: those of them that could be any word, in backticks.
        messages: pieces of the texts of errors, as the source may hold them.
        questions: what to search for by words, and what each is: the text, pieces of its prose, its title, and the
            goal where it is another.
    """

    places: tuple[Mention, ...] = ()
    files: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()
    questions: tuple[tuple[Literal["text", "prose", "title", "goal"], str], ...] = ()


def clues(goal: str, quotes: Sequence[str] = ()) -> Clues:
    """Read a task. What options and the names of branches hold does not count."""
    text = _cleaned("\n".join([goal, *quotes]))
    found = {kind: dict[str | Mention, None]() for kind in _MOST}
    traced = [Mention(m["path"], int(m["line"])) for m in _TRACEBACK.finditer(text)][::-1]
    found["places"].update(dict.fromkeys(traced))
    rest = _TRACEBACK.sub(" ", text)
    for token in _TOKEN.finditer(rest):
        if place := _PLACE.fullmatch(token[0].rstrip(".:")):
            if place["test"]:
                found["tests"][f"{place['path']}::{place['test']}"] = None
            elif place["line"]:
                found["places"][Mention(place["path"], int(place["line"]))] = None
            elif "/" in token[0] or "\\" in token[0] or not _attribute(token[0]):
                found["files"][place["path"]] = None
    plain = set[str]()
    for name, is_plain in _names(rest):
        found["names"][name] = None
        plain |= {name} if is_plain else set()
    found["messages"].update(dict.fromkeys(_messages(text)))
    kept = {kind: tuple(each)[: _MOST[kind]] for kind, each in found.items()}
    return Clues(**kept, plain=frozenset(plain), questions=tuple(_questions(goal, quotes)))  # type: ignore[arg-type] # of the kind that it says


def _attribute(token: str) -> bool:
    """Whether what looks like the name of a file is one of an attribute: `fields.DateTime`, `it.relative_seek`."""
    suffix = token.rpartition(".")[2]
    return not suffix.islower() or "_" in suffix or len(suffix) > 4 or suffix in {"get", "set", "add", "call", "run"}  # noqa: PLR2004 - `.java`, `.html`


def _names(text: str) -> Iterator[tuple[str, bool]]:
    """Identifiers, and whether each is a plain word: those in backticks first."""
    quoted = [match["code"] for match in _CODE.finditer(text)]
    for code in quoted:
        for match in _NAME.finditer(code):
            name = match["name"]
            if name.rpartition(".")[2] not in _BUILT_IN:
                plain = _PLAIN.fullmatch(name) is not None
                if not plain or match["call"] or match[0] == code:
                    yield name, plain and not match["call"]
    for match in _NAME.finditer(text):
        name = match["name"]
        last = name.rpartition(".")[2]
        if last not in _BUILT_IN and len(last) > 2 and (match["call"] or "." in name or _SHAPED.match(last)):  # noqa: PLR2004 - `F(`
            yield name, False


def _messages(text: str) -> Iterator[str]:
    """Pieces of messages without what a format may have filled in; of each the longest piece."""
    told = [match["text"] for match in _RAISED.finditer(text)]
    told += [match["double"] or match["single"] for match in _QUOTED.finditer(text)]
    for message in told:
        pieces = [piece.strip(" .:,;") for piece in _LITERAL.findall(message)]
        best = max((piece for piece in pieces if " " in piece), key=len, default="")
        if len(best) >= 10:  # noqa: PLR2004 - shorter ones stand everywhere
            yield best


def _questions(goal: str, quotes: Sequence[str]) -> Iterator[tuple[Literal["text", "prose", "title", "goal"], str]]:
    """Searches by words: everything without the frames of calls, what is no code piece by piece, and what titles it."""
    told = _cleaned("\n".join(quotes or [goal])).strip()
    lines = [line for line in told.splitlines() if not _FRAME.match(line)]
    yield "text", "\n".join(lines)[:_MOST_WORDS_CHARS]
    # A search takes so many words, and what matters may come late.
    prose = _FENCED.sub("\n", "\n".join(line for line in lines if not _INDENTED.match(line)))[
        :_MOST_WORDS_CHARS
    ].split()
    for at in range(0, min(len(prose), _MOST_PIECES * _PIECE_WORDS), _PIECE_WORDS):
        yield "prose", " ".join(prose[at : at + _PIECE_WORDS])
    yield "title", lines[0][:_MOST_WORDS_CHARS] if lines else ""
    if quotes:
        yield "goal", _cleaned(goal)[:_MOST_WORDS_CHARS]


def _cleaned(text: str) -> str:
    return _BRANCH.sub(" ", _OPTION.sub(" ", text[:_SEARCHED_CHARS]))


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
_LINE, _TEST, _TESTED, _NAMED_SCORE, _MESSAGE, _WITHIN, _CALLER, _CALLED = 6.0, 3.0, 2.5, 4.5, 3.0, 2.0, 1.0, 3.0
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


async def passages(workspace: Workspace, index: CodeIndex, clues: Clues, grep: Grep) -> list[Passage]:
    """What a text is about, best first."""
    places, files, tests = await asyncio.to_thread(located, workspace, clues)
    ranking = _Ranking(index, clues)
    loose, *_ = await asyncio.gather(
        ranking.by_lines(places), ranking.by_tests(tests), ranking.by_words(), ranking.by_messages(grep)
    )
    whole = [Passage(path=path, score=_NAMED_SCORE / 2) for path in dict.fromkeys(files)]
    return sorted([*ranking.passages(files), *loose, *whole], key=lambda passage: -passage.score)


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
        at = await asyncio.gather(*(self._index.definition_at(place.path, place.line or 1) for place in places))
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
        found = await asyncio.gather(*map(self._index.find_definitions, sure))
        return [group[0] for group in found if group]

    async def by_tests(self, tests: Sequence[str]) -> None:
        """Tests, and what they certainly call."""
        groups = await asyncio.gather(*map(self._index.find_definitions, tests))
        found = [each for group in groups for each in group[:_MEANT]]
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
            self._add(_NAMED_SCORE / max(1, len(meant)) / (1 + 0.1 * rank), meant)
            named += meant
        self._classes = [each for each in named if each.kind in _CLASSES]
        functions = [f"{each.path}::{each.qualified}" for each in named if each.kind not in _CLASSES][:_CALLED_BY]
        for calls in await asyncio.gather(*map(self._index.callers, functions)):
            self._add(_CALLER, dict.fromkeys(call.caller for call in calls if call.caller is not None and call.sure))

    async def by_messages(self, grep: Grep) -> None:
        """The definitions that hold the text of an error."""
        hits = await grep(self._clues.messages) if self._clues.messages else []
        for definition in await asyncio.gather(*(self._index.definition_at(path, line) for path, line in hits)):
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
        asyncio.gather(*(index.definition_at(place.path, line - away) for away in range(1, _AROUND + 1))),
        asyncio.gather(*(index.definition_at(place.path, line + away) for away in range(1, _AROUND + 1))),
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
        found = [each for each in await index.find_definitions(tried) if each.kind != "constant"]
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


_PART_LINES = 12
_WHOLE_FILE_CHARS = 1_500
_HEAD_CHARS = 80
"""What the line above a file's excerpts takes, on average."""
_SHARE = 0.75
"""Of the budget, the most that one passage takes unless it is the first."""
_MOST_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Some numbered lines of a file that the task names."""

    path: str
    text: str


def excerpts(passages: Iterable[Passage], read: Callable[[str], Text | None], budget: int) -> tuple[Excerpt, ...]:
    """The passages that fit, best first, each with the lines of the classes around it; no line twice.

    Args:
        passages: best first.
        read: gives a file's text; None for one that cannot be shown.
        budget: characters of all excerpts together.
    """
    chosen: dict[str, _Chosen] = {}
    named: list[str] = []
    left = budget
    for passage in passages:
        if left < _HEAD_CHARS:
            break
        file = chosen.get(passage.path)
        if file is None:
            text = read(passage.path)
            if text is None or not text.raw:
                continue
            file = _Chosen(text)
        if passage.definition is not None and passage.definition.last > len(file.text.lines):
            continue  # the file has changed
        wanted = _wanted(passage, file)
        room = left - (0 if passage.path in chosen else _HEAD_CHARS)
        if not wanted or file.cost(wanted) > min(room, budget if not chosen else _SHARE * budget):
            part = _part(passage)
            if not part or file.cost(part) > room:
                if (definition := passage.definition) is not None:
                    lines = f"{definition.first}-{definition.last}"
                    named.append(f"{printable(passage.path)}:{lines} {definition.qualified}")
                continue
            wanted = part
        left = room - file.cost(wanted)
        file.lines |= set(wanted)
        chosen[passage.path] = file
    shown = [_shown(path, file) for path, file in chosen.items()]
    if named and left > _HEAD_CHARS:
        rest = "\n".join(dict.fromkeys(named[:_MOST_NAMED]))
        shown.append(Excerpt(path="Not shown, too long:", text=rest[:left]))
    return tuple(shown)


@dataclass(slots=True)
class _Chosen:
    """The lines of one file that are shown."""

    text: Text
    lines: set[int] = field(default_factory=set)

    def cost(self, wanted: Iterable[int]) -> int:
        """The characters that more lines take."""
        return sum(len(self.text.lines[n - 1]) + len(str(n)) + 4 for n in set(wanted) - self.lines)


def _wanted(passage: Passage, file: _Chosen) -> list[int]:
    """The lines of a passage as a whole; none for a file that is too long, or has changed."""
    count, definition = len(file.text.lines), passage.definition
    if definition is not None:
        return [*definition.parents, *range(definition.first, definition.last + 1)]
    if passage.line is None:
        return list(range(1, count + 1)) if len(file.text.raw) <= _WHOLE_FILE_CHARS else []
    return list(range(passage.first, min(count, passage.last) + 1)) if passage.line <= count else []


def _part(passage: Passage) -> list[int]:
    """Of a definition that is too long, its head and what is around the line that the text names."""
    definition, line = passage.definition, passage.line
    if definition is None or line is None:
        return []
    first, last = max(definition.header, line - _PART_LINES), min(definition.last, line + _PART_LINES)
    return [*definition.parents, definition.header, *range(first, last + 1)]


def _shown(path: str, file: _Chosen) -> Excerpt:
    numbers = sorted(file.lines)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [each for first, last in spans for each in listed(file.text.lines, first, last)[0]]
    told = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)  # noqa: RUF001 - the dash of a range
    about = "whole" if len(numbers) == file.text.count else f"lines {told} of {file.text.count}"
    return Excerpt(path=f"{printable(path)} ({about})", text="\n".join(shown))


def printable(name: str) -> str:
    """A name in which every character can be seen and none ends the line."""
    return name if name.isprintable() else repr(name)[1:-1]


log = logging.getLogger(__name__)

_SECONDS = 0.7
_MOST_PARSED = 16
_MOST_FILES = 400
_MOST_SEEN = 20_000
_MOST_CHARS = 10_000_000
_READ_BYTES = 400_000
_DEFINES = r"(?:def|class|function|func|fn|struct|interface|trait|type|module)[ \t*]{1,4}(?:\([^)\n]{0,80}\)[ \t])?"


class NamedFiles:
    """Implements `CodeIndex` for a text: its lines and names are known, nothing is searched, no call is found."""

    failure = ""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._definitions = definitions

    async def wait_ready(self, seconds: float) -> bool:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.wait_ready`."""
        return True

    async def search(self, text: str, most: int = 5) -> list[Definition]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.search`."""
        return []

    async def find_definitions(self, symbol: str) -> list[Definition]:
        """See `CodeIndex.find_definitions`."""
        path, _, name = symbol.rpartition("::")
        found = (each for each in self._definitions if f".{each.qualified}".endswith(f".{name}"))
        return [each for each in found if each.path == path or not path]

    async def definition_at(self, path: str, line: int) -> Definition | None:
        """See `CodeIndex.definition_at`."""
        around = [each for each in self._definitions if each.path == path and each.first <= line <= each.last]
        return min(around, key=lambda each: each.last - each.first, default=None)

    async def callers(self, symbol: str) -> list[Call]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.callers`."""
        return []

    async def callees(self, symbol: str) -> list[Call]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.callees`."""
        return []


async def named_files(workspace: Workspace, clues: Clues, *, seconds: float = _SECONDS) -> NamedFiles:
    """Read what a text names, in a worker process: a bounded number of files, and what is found within some seconds."""
    places, files, tests = await asyncio.to_thread(located, workspace, clues)
    paths = [*(place.path for place in places), *files, *(test.partition("::")[0] for test in tests)]
    names = [name.rpartition(".")[2] for name in clues.names]
    try:
        async with asyncio.timeout(seconds):
            answer = await run_bounded(
                _read, workspace, paths, names, seconds / 2, what="Looking for what the task names"
            )
    except (BoundExceededError, TimeoutError):
        log.info("the first message shows no definitions: there is no code index yet, and they were not found in time")
        return NamedFiles([])
    return NamedFiles([Definition(**each | {"parents": tuple(each["parents"])}) for each in json.loads(answer)])


def _read(workspace: Workspace, paths: Sequence[str], names: Sequence[str], seconds: float) -> str:
    with workspace:
        chosen = dict.fromkeys(path for path in paths if language_of(path))
        if names:
            chosen.update(dict.fromkeys(_defining(workspace, names, time.monotonic() + seconds)))
        return json.dumps([each for path in list(chosen)[:_MOST_PARSED] for each in _definitions(workspace, path)])


def _defining(workspace: Workspace, names: Sequence[str], until: float) -> Iterator[str]:
    """The files that define one of some names, outermost first."""
    defines = re.compile(rf"\b{_DEFINES}(?:{'|'.join(map(re.escape, names))})\b")
    paths: list[str] = []
    for number, (_, prefix, entry) in enumerate(listing.entries(workspace)):
        if number > _MOST_SEEN or time.monotonic() > until:
            break
        if entry is not None and entry.is_file(follow_symlinks=False) and language_of(entry.name):
            paths.append(prefix + entry.name)
    left = _MOST_CHARS
    for path in sorted(paths, key=lambda path: (path.count("/"), path))[:_MOST_FILES]:
        source = workspace.read_if_any(path, _READ_BYTES).decode(errors="replace")
        left -= len(source)
        if left < 0 or time.monotonic() > until:
            return
        if defines.search(source):
            yield path


def _definitions(workspace: Workspace, path: str) -> Iterator[dict[str, object]]:
    language = language_of(path)
    if language is None:
        return
    try:
        pieces = parse(language, workspace.read_if_any(path, _READ_BYTES)).pieces
    except (LookupError, TooSlowError):
        return
    for piece in pieces:
        parents, around = list[int](), piece
        while around.parent >= 0:
            around = pieces[around.parent]
            parents.insert(0, around.header)
        yield {
            "path": path, "name": piece.name, "qualified": piece.qualified, "kind": piece.kind, "first": piece.first,
            "last": piece.last, "header": piece.header, "parents": parents, "is_test": is_test(path),
        }  # fmt: skip
