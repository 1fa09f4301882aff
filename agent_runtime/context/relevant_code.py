"""Excerpts of the code that a task is about.

`read_clues` reads lines, files, tests, names and error messages from a text, `rank_passages` ranks the definitions that
they and the code index point at, and `render_excerpts` shows as many as fit.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from pathlib import PurePosixPath
from typing import Literal

from agent_runtime.core.errors import ToolError
from agent_runtime.index.index import CodeIndex, Definition
from agent_runtime.index.parsing import is_copied
from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.edits import number_lines
from agent_runtime.workspace.files import Workspace

_SEARCHED_CHARS = 200_000
_MOST_WORDS_CHARS = 4_000
_PIECE_WORDS = 50
_MOST_PIECES = 3
_LIMITS = {"places": 24, "files": 12, "tests": 6, "names": 16, "messages": 4}

_TRACEBACK = re.compile(r'File "(?P<path>[^"\n]{1,300})", line (?P<line>\d{1,7})(?:, in [\w<>.]{1,200})?')
_TOKEN = re.compile(r"[\w./\\:@+$\[\]-]{3,400}")
_PLACE = re.compile(
    r"(?P<path>(?:file:/{2,3}|[A-Za-z]:)?[\w./\\@+$-]*?[\w-]\.[A-Za-z]\w{0,7})"
    r"(?:::(?P<test>[A-Za-z_][\w:.]*)(?:\[.*)?|:(?P<line>\d{1,7})(?::\d{1,7})?:?|:)?"
)
# Values of options and names of branches look like files but are none.
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
_PROMPT = re.compile(r"(?:>>>|\.\.\.) ?")
_QUOTED_CODE = re.compile(r"`([^`\n]{1,200})`")
_OPERATOR = re.compile(r"[-+*/%@&|^<>=!]{1,3}|(?:not )?in")
_CODE_CHARS, _SNIPPET_CHARS, _MOST_SNIPPETS = 20_000, 4_000, 40
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
    """A place in the workspace that a text seems to name; it may not exist."""

    path: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """Names in a text, by kind, likely ones first.

    Attributes:
        places: lines; of a traceback, the innermost first.
        names: identifiers that look like code.
        plain: names in backticks that are also words.
        questions: texts to search for, with their kind.
        snippets: code.
    """

    places: tuple[Mention, ...] = ()
    files: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()
    questions: tuple[tuple[Literal["text", "prose", "title", "goal"], str], ...] = ()
    snippets: tuple[str, ...] = ()


def read_clues(goal: str, quotes: Sequence[str] = ()) -> Clues:
    """Read a task. Options and names of branches do not count."""
    text = _remove_options("\n".join([goal, *quotes]))
    names_by_kind = {kind: dict[str | Mention, None]() for kind in _LIMITS}
    frames = [Mention(m["path"], int(m["line"])) for m in _TRACEBACK.finditer(text)][::-1]
    names_by_kind["places"].update(dict.fromkeys(frames))
    rest = _TRACEBACK.sub(" ", text)
    for token in _TOKEN.finditer(rest):
        if place := _PLACE.fullmatch(token[0].rstrip(".:")):
            if place["test"]:
                names_by_kind["tests"][f"{place['path']}::{place['test']}"] = None
            elif place["line"]:
                names_by_kind["places"][Mention(place["path"], int(place["line"]))] = None
            elif "/" in token[0] or "\\" in token[0] or not _is_attribute(token[0]):
                names_by_kind["files"][place["path"]] = None
    plain = set[str]()
    for name, is_plain in _find_names(rest):
        names_by_kind["names"][name] = None
        plain |= {name} if is_plain else set()
    names_by_kind["messages"].update(dict.fromkeys(_find_messages(text)))
    bounded = {kind: tuple(values)[: _LIMITS[kind]] for kind, values in names_by_kind.items()}
    return Clues(
        **bounded,  # type: ignore[arg-type] # of the kind that it says
        plain=frozenset(plain),
        questions=tuple(_build_questions(goal, quotes)),
        snippets=tuple(_find_snippets("\n".join([goal, *quotes])[:_SEARCHED_CHARS])),
    )


def _is_attribute(token: str) -> bool:
    """Whether a token that looks like a file name is an attribute, e.g. `fields.DateTime`."""
    suffix = token.rpartition(".")[2]
    return not suffix.islower() or "_" in suffix or len(suffix) > 4 or suffix in {"get", "set", "add", "call", "run"}  # noqa: PLR2004 - `.java`, `.html`


def _find_names(text: str) -> Iterator[tuple[str, bool]]:
    """Yield identifiers with True for a plain word; those in backticks first."""
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


def _find_messages(text: str) -> Iterator[str]:
    """Yield the longest literal part of each message, without values that a format may have filled in."""
    texts = [match["text"] for match in _RAISED.finditer(text)]
    texts += [match["double"] or match["single"] for match in _QUOTED.finditer(text)]
    for message in texts:
        pieces = [piece.strip(" .:,;") for piece in _LITERAL.findall(message)]
        best = max((piece for piece in pieces if " " in piece), key=len, default="")
        if len(best) >= 10:  # noqa: PLR2004 - shorter ones stand everywhere
            yield best


def _find_snippets(text: str) -> Iterator[str]:
    """Yield the code blocks of a text, and then the pieces in backticks, within bounds."""
    blocks: list[list[str]] = [[]]
    fence = ""
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in {"```", "~~~"} and fence in {"", mark}:
            fence = "" if fence else mark
            blocks.append([])
        elif fence or _INDENTED.match(line) or _PROMPT.match(line):
            blocks[-1].append(line)
        elif line.strip():
            blocks.append([])
    snippets = [textwrap.dedent("\n".join(lines).partition("Traceback (")[0]) for lines in blocks if lines]
    snippets = [
        "\n".join(_PROMPT.sub("", line) for line in code.splitlines() if _PROMPT.match(line))
        if ">>> " in code
        else code
        for code in snippets
    ]
    snippets += [f"_ {code} _" if _OPERATOR.fullmatch(code) else code for code in _QUOTED_CODE.findall(text)]
    short = [snippet for snippet in dict.fromkeys(snippets) if len(snippet) <= _SNIPPET_CHARS][:_MOST_SNIPPETS]
    yield from compress(short, (chars <= _CODE_CHARS for chars in accumulate(map(len, short))))


def _build_questions(
    goal: str, quotes: Sequence[str]
) -> Iterator[tuple[Literal["text", "prose", "title", "goal"], str]]:
    text = _remove_options("\n".join(quotes or [goal])).strip()
    lines = [line for line in text.splitlines() if not _FRAME.match(line)]
    yield "text", "\n".join(lines)[:_MOST_WORDS_CHARS]
    # A search takes a bounded number of words, and the important ones may come late.
    prose = _FENCED.sub("\n", "\n".join(line for line in lines if not _INDENTED.match(line)))[
        :_MOST_WORDS_CHARS
    ].split()
    for at in range(0, min(len(prose), _MOST_PIECES * _PIECE_WORDS), _PIECE_WORDS):
        yield "prose", " ".join(prose[at : at + _PIECE_WORDS])
    yield "title", lines[0][:_MOST_WORDS_CHARS] if lines else ""
    if quotes:
        yield "goal", _remove_options(goal)[:_MOST_WORDS_CHARS]


def _remove_options(text: str) -> str:
    return _BRANCH.sub(" ", _OPTION.sub(" ", text[:_SEARCHED_CHARS]))


Grep = Callable[[Sequence[str]], Awaitable[list[tuple[str, int]]]]

_MOST_PARTS = 30
_AROUND = 6
"""Lines before and after a line outside all definitions."""
_MOST_LOOSE = 4
_SOURCE_ROOTS = ("", "src/", "lib/")
_SEARCHED, _SEARCHED_INSIDE = 40, 300
_CLOSE = 10
_MAX_NAMESAKES = 3
"""Definitions that may share a name; of more, only those that the search finds count."""
_MOST_FIRST = 3
_CALLED_BY, _MOST_WORKING = 2, 2
"""Named functions whose callers count, and methods of a named class that count as named, the best by words."""
_MOST_CALLED = 16
_CLASSES = frozenset({"class", "interface", "type", "module"})

_TRACEBACK_SCORE = 100.0
"""The score that puts the lines of a traceback before everything else."""
# Scores by kind of clue. The search's best adds `_SEARCH_SCORES`, its second best a little less.
_LINE_SCORE, _TEST_SCORE, _TESTED_SCORE, _NAMED_SCORE, _MESSAGE_SCORE, _WITHIN_SCORE, _CALLER_SCORE, _CALLEE_SCORE = (
    6.0,
    3.0,
    2.5,
    4.5,
    3.0,
    2.0,
    1.0,
    3.0,
)
_USED_SCORE, _STARTED_SCORE, _BEHIND_SCORE, _BEHIND_PART = 4.0, 0.5, 1.0, 0.5
_RAISER_SCORE = 4.0
_IDLE = 0.4
"""The share that counts of an exception class and of a constructor: both rarely do the work."""
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning)$")
_STARTS = frozenset({"__init__", "__new__", "constructor"})
_SEARCH_SCORES = {"text": 3.0, "prose": 3.0, "title": 3.0, "goal": 0.5}
"""By the kind of the question."""
_FALL = 1.0
"""How much faster than its rank a score falls."""
_FILE_PART, _IN_FILE, _IN_CLASS, _IN_TEST = 0.1, 1.5, 1.6, 0.3
_LONG, _LONG_CLASS = 35, 40
"""Lines from which on a definition has to be worth its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a file for the first message; lines from `first` to `last` unless it has a `definition`.

    Attributes:
        is_named: the text, a traceback, a test or code in it leads here; else only the search.
    """

    path: str
    line: int | None = None
    definition: Definition | None = None
    first: int = 1
    last: int = 0
    score: float = 0.0
    is_named: bool = False


def rank_files(passages: Iterable[Passage]) -> list[str]:
    """Return the paths of ranked passages, best first."""
    return list(dict.fromkeys(passage.path for passage in passages))


async def rank_passages(workspace: Workspace, index: CodeIndex, clues: Clues, grep: Grep) -> list[Passage]:
    places, files, tests = await asyncio.to_thread(locate_mentions, workspace, clues)
    ranking = _Ranking(index, clues)
    loose, *_ = await asyncio.gather(
        ranking.score_lines(places), ranking.score_tests(tests), ranking.score_words(), ranking.score_messages(grep)
    )
    whole = [Passage(path=path, score=_NAMED_SCORE / 2, is_named=True) for path in dict.fromkeys(files)]
    return sorted([*ranking.passages(files), *loose, *whole], key=lambda passage: -passage.score)


class _Ranking:
    """Definitions and their scores."""

    def __init__(self, index: CodeIndex, clues: Clues) -> None:
        self._index = index
        self._clues = clues
        self._scores: dict[Definition, float] = {}
        self._lines: dict[Definition, int] = {}
        self._first: dict[Definition, float] = {}
        self._classes: list[Definition] = []
        self._named_definitions: set[Definition] = set()

    def _add(self, score: float, definitions: Iterable[Definition], *, is_named: bool = False) -> None:
        for definition in definitions:
            if definition.kind != "constant":
                self._scores[definition] = self._scores.get(definition, 0.0) + score
                self._named_definitions |= {definition} if is_named else set()

    def _add_falling(self, score: float, definitions: Iterable[Definition]) -> None:
        for place, definition in enumerate(definitions):
            self._add(score / (1 + _FALL * place), [definition])

    async def score_lines(self, places: Sequence[Mention]) -> list[Passage]:
        """Score the definitions around lines; return the surroundings of lines outside all definitions."""
        at = await asyncio.gather(*(self._index.definition_at(place.path, place.line or 1) for place in places))
        around = [(place, definition) for place, definition in zip(places, at, strict=True) if definition is not None]
        for place, definition in reversed(around):
            self._lines[definition] = place.line or 1
        for rank, (_, definition) in enumerate(around):
            self._add(_LINE_SCORE / (1 + 0.3 * rank), [definition], is_named=True)
        innermost = [definition for _, definition in around[:1]]
        for rank, (_, definition) in enumerate(around[:_MOST_FIRST]):
            self._first.setdefault(definition, _TRACEBACK_SCORE / (1 + rank))
        for score in (_CALLEE_SCORE, _CALLEE_SCORE / 2):  # callees of the innermost one, and their callees
            innermost = await self._find_callees(innermost)
            self._add(score, innermost)
        loose = [place for place, definition in zip(places, at, strict=True) if definition is None]
        return await asyncio.gather(*(_surroundings(self._index, place) for place in loose[:_MOST_LOOSE]))

    async def _find_callees(self, definitions: Sequence[Definition]) -> list[Definition]:
        calls = await asyncio.gather(*(self._index.callees(_symbol(definition)) for definition in definitions))
        sure = list(dict.fromkeys(call.callee for group in calls for call in group if call.sure))[:_MOST_CALLED]
        groups = await asyncio.gather(*map(self._index.find_definitions, sure))
        return [group[0] for group in groups if group]

    async def _find_callers(self, definitions: Sequence[Definition]) -> list[Definition]:
        calls = await asyncio.gather(*(self._index.callers(_symbol(definition)) for definition in definitions))
        return list(dict.fromkeys(call.caller for group in calls for call in group if call.caller and call.sure))

    async def score_tests(self, tests: Sequence[str]) -> None:
        """Score tests and their definite callees."""
        definitions = [
            definition
            for group in await asyncio.gather(*map(self._index.find_definitions, tests))
            for definition in group[:_MAX_NAMESAKES]
        ]
        self._add(_TEST_SCORE, definitions, is_named=True)
        self._add(_TESTED_SCORE, await self._find_callees(definitions), is_named=True)

    async def score_words(self) -> None:
        """Score search results, and search results inside classes that the text names."""
        questions = self._clues.questions
        groups = await asyncio.gather(*(self._index.search(words, _SEARCHED) for _, words in questions))
        for (kind, _), group in zip(questions, groups, strict=True):
            self._add_falling(_SEARCH_SCORES[kind], group)
        await self._score_names(groups[0][:_CLOSE])
        await self._score_snippets()
        inside = [f"{definition.name} {questions[0][1]}" for definition in self._classes[:_MAX_NAMESAKES]]
        of_classes = await asyncio.gather(*(self._index.search(question, _SEARCHED_INSIDE) for question in inside))
        for owner, group in zip(self._classes, of_classes, strict=False):
            own = [member for member in group if _symbol(member).startswith(f"{_symbol(owner)}.")]
            self._add(0.0, [member for member in own if member.name not in _STARTS][:_MOST_WORKING], is_named=True)
            self._add_falling(_WITHIN_SCORE, own)

    async def _score_names(self, close: list[Definition]) -> None:
        """Score definitions by name, and the definite callers of functions."""
        clues = self._clues
        groups = await asyncio.gather(*(_find_definitions(self._index, name) for name in clues.names))
        definitions: list[Definition] = []
        for rank, (name, group) in enumerate(zip(clues.names, groups, strict=True)):
            meant = _select_namesakes(group, close, plain=name in clues.plain)
            # Of a dotted name only the last part may have matched.
            share = _NAMED_SCORE / max(1, len(meant)) / (1 + 0.1 * rank)
            self._add(share, meant, is_named=len(meant) == 1 or "." not in name)
            definitions += meant
        self._classes = [each for each in definitions if each.kind in _CLASSES and not _EXCEPTION.search(each.name)]
        exceptions = [each for each in definitions if each.kind == "class" and _EXCEPTION.search(each.name)]
        functions = [definition for definition in definitions if definition.kind not in _CLASSES][:_CALLED_BY]
        self._add(_CALLER_SCORE, await self._find_callers(functions))
        for exception in exceptions[:_CALLED_BY]:  # where it is raised
            raisers = await self._find_callers([exception])
            self._add(_RAISER_SCORE / (1 + 0.5 * len(raisers)), raisers, is_named=len(raisers) <= _MAX_NAMESAKES)

    async def _score_snippets(self) -> None:
        """Score the functions that snippets run, and methods by name of classes that the text names."""
        classes = [_symbol(definition) for definition in self._classes[:_MAX_NAMESAKES]]
        names = [f"_.{name.rpartition('.')[2]}" for name in self._clues.names]
        used, behind = await self._index.find_used([*self._clues.snippets, *names], classes) or ([], [])
        for rank, definition in enumerate(used):
            score = _STARTED_SCORE if definition.name in _STARTS else _USED_SCORE
            self._add(score / (1 + 0.1 * rank), [definition], is_named=score == _USED_SCORE)
        for definition in behind:
            self._add(_BEHIND_SCORE + _BEHIND_PART * self._scores.get(definition, 0.0), [definition], is_named=True)

    async def score_messages(self, grep: Grep) -> None:
        hits = await grep(self._clues.messages) if self._clues.messages else []
        for definition in await asyncio.gather(*(self._index.definition_at(path, line) for path, line in hits)):
            self._add(_MESSAGE_SCORE / len(hits), [definition] if definition is not None else [], is_named=True)

    def passages(self, files: Collection[str]) -> list[Passage]:
        """Return all passages; code in a named file or class scores higher, tests and long definitions lower."""
        within = {(definition.path, definition.qualified) for definition in self._classes}
        of_file: dict[str, list[float]] = {}
        for definition, score in sorted(self._scores.items(), key=lambda item: -item[1]):
            of_file.setdefault(definition.path, []).append(score)
        ranked = []
        for definition, own_score in self._scores.items():
            score = own_score + _FILE_PART * sum(
                other * 0.5**place for place, other in enumerate(of_file[definition.path])
            )
            if definition.path in files:
                score *= _IN_FILE
            elif _is_aside(definition):
                score *= _IN_TEST
            if (definition.path, definition.qualified.rpartition(".")[0]) in within:
                score *= _IN_CLASS
            if definition.name in _STARTS or (definition.kind == "class" and _EXCEPTION.search(definition.name)):
                score *= _IDLE
            if definition not in self._lines:
                score /= 1 + (definition.last - definition.first) / (
                    _LONG_CLASS if definition.kind in _CLASSES else _LONG
                )
            score += self._first.get(definition, 0.0)
            line, named = self._lines.get(definition), definition in self._named_definitions
            ranked.append(Passage(path=definition.path, line=line, definition=definition, score=score, is_named=named))
        return ranked


def locate_mentions(workspace: Workspace, clues: Clues) -> tuple[list[Mention], list[str], list[str]]:
    """Return the lines, files and tests that exist in the workspace."""
    places = [place for mention in clues.places if (place := _find_file(workspace, mention))]
    files = [place.path for name in clues.files if (place := _find_file(workspace, Mention(name, None)))]
    tests = [
        f"{place.path}::{test.partition('::')[2].replace('::', '.')}"
        for test in clues.tests
        if (place := _find_file(workspace, Mention(test.partition("::")[0], None)))
    ]
    return places, files, tests


def _find_file(workspace: Workspace, mention: Mention) -> Mention | None:
    """Find a file that a text names, by ever shorter ends of a path from another machine."""
    parts = PurePosixPath(mention.path.removeprefix("file://").replace("\\", "/")).parts
    if len(parts) > _MOST_PARTS:
        return None
    installed = max(
        (place for place, part in enumerate(parts) if part in {"site-packages", "node_modules"}), default=-1
    )
    if installed >= 0:  # of an installed package: this one, or another one
        tail = parts[installed + 1 :]
        tails = [tail, tail[1:]] if parts[installed] == "node_modules" else [tail]
        tails = [candidate_tail for candidate_tail in tails if len(candidate_tail) > 1]
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


async def _surroundings(index: CodeIndex, place: Mention) -> Passage:
    line = place.line or 1
    above, below = await asyncio.gather(
        asyncio.gather(*(index.definition_at(place.path, line - away) for away in range(1, _AROUND + 1))),
        asyncio.gather(*(index.definition_at(place.path, line + away) for away in range(1, _AROUND + 1))),
    )
    before = next((away for away, definition in enumerate(above) if definition is not None), _AROUND)
    behind = next((away for away, definition in enumerate(below) if definition is not None), _AROUND)
    first = max(1, line - before)
    return Passage(path=place.path, line=line, first=first, last=line + behind, score=_TRACEBACK_SCORE, is_named=True)


async def _find_definitions(index: CodeIndex, name: str) -> list[Definition]:
    """Return the definitions of a name: in full, else by its last two parts, else by its last."""
    parts = name.split(".")
    aside: list[Definition] = []
    for suffix in dict.fromkeys((name, ".".join(parts[-2:]), parts[-1])):
        definitions = [
            definition for definition in await index.find_definitions(suffix) if definition.kind != "constant"
        ]
        if any(not _is_aside(definition) for definition in definitions):
            return definitions
        aside = aside or definitions
    return aside


def _is_aside(definition: Definition) -> bool:
    """Whether the definition is in a test, a declaration file, or generated or copied code."""
    return definition.is_test or is_copied(definition.path)


def _symbol(definition: Definition) -> str:
    return f"{definition.path}::{definition.qualified}"


def _select_namesakes(group: list[Definition], close: list[Definition], *, plain: bool) -> list[Definition]:
    """Return the definitions that a name in the text stands for; a plain word must have exactly one."""
    own = [definition for definition in group if not _is_aside(definition)] or group
    if plain:
        return own if len(own) == 1 else []
    return (
        own
        if len(own) <= _MAX_NAMESAKES
        else [definition for definition in own if definition in close][:_MAX_NAMESAKES]
    )


_PART_LINES = 12
_WHOLE_FILE_CHARS = 1_500
_HEAD_CHARS = 80
"""Average length of the line above a file's excerpts."""
_SHARE = 0.75
"""The share of the budget that a passage may take, except the first."""
_MOST_NAMED = 6
_LEAST_HIDDEN = 2
"""Lines of a docstring that are left out: the mark for them takes one."""
_DOC_START = re.compile(r"[rRbBuU]{0,2}(?:\"\"\"|''')|/\*\*")
_HEADER = re.compile(r"(?:async\s+)?(?:def|class)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    path: str
    text: str


def render_excerpts(
    passages: Iterable[Passage], read: Callable[[str], Text | None], budget: int
) -> tuple[Excerpt, ...]:
    """Render the passages that fit, best first, each with the headers of the classes around it; no line twice."""
    chosen: dict[str, _FileLines] = {}
    omitted: list[str] = []
    room_left = budget
    for passage in passages:
        if room_left < _HEAD_CHARS:
            break
        file = chosen.get(passage.path)
        if file is None:
            text = read(passage.path)
            if text is None or not text.raw:
                continue
            file = _FileLines(text)
        if passage.definition is not None and passage.definition.last > len(file.text.lines):
            continue  # the file has changed
        numbers = _lines_of(passage, file)
        room = room_left - (0 if passage.path in chosen else _HEAD_CHARS)
        if not numbers or file.cost(numbers) > min(room, budget if not chosen else _SHARE * budget):
            part = _partial_lines(passage)
            if not part or file.cost(part) > room:
                if (definition := passage.definition) is not None:
                    lines = f"{definition.first}-{definition.last}"
                    omitted.append(f"{printable(passage.path)}:{lines} {definition.qualified}")
                continue
            numbers = part
        room_left = room - file.cost(numbers)
        file.add(numbers, passage.definition)
        chosen[passage.path] = file
    rendered = [_render_excerpt(path, file) for path, file in chosen.items()]
    if omitted and room_left > _HEAD_CHARS:
        rest = "\n".join(dict.fromkeys(omitted[:_MOST_NAMED]))
        rendered.append(Excerpt(path="Not shown, too long:", text=rest[:room_left]))
    return tuple(rendered)


@dataclass(slots=True)
class _FileLines:
    """Lines of a file to show, and ranges of docstrings to leave out where no passage needs them."""

    text: Text
    lines: set[int] = field(default_factory=set)
    docstrings: set[tuple[int, int]] = field(default_factory=set)

    def cost(self, numbers: Iterable[int]) -> int:
        """Return the characters of more lines."""
        return sum(len(self.text.lines[n - 1]) + len(str(n)) + 4 for n in set(numbers) - self.lines)

    def add(self, numbers: Iterable[int], definition: Definition | None) -> None:
        """Show lines; of docstrings in a definition the first line."""
        self.lines |= set(numbers)
        if definition is not None:
            self.docstrings |= set(_find_docstrings(self.text.lines, definition))


def _lines_of(passage: Passage, file: _FileLines) -> list[int]:
    """Return all lines of a passage; none for a file that is too long or has changed."""
    count, definition = len(file.text.lines), passage.definition
    if definition is not None:
        hidden = {
            number for first, last in _find_docstrings(file.text.lines, definition) for number in range(first, last + 1)
        }
        return [*definition.parents, *(n for n in range(definition.first, definition.last + 1) if n not in hidden)]
    if passage.line is None:
        return list(range(1, count + 1)) if len(file.text.raw) <= _WHOLE_FILE_CHARS else []
    return list(range(passage.first, min(count, passage.last) + 1)) if passage.line <= count else []


def _partial_lines(passage: Passage) -> list[int]:
    """Return the header of a long definition and the lines around the named line."""
    definition, line = passage.definition, passage.line
    if definition is None or line is None:
        return []
    first, last = max(definition.header, line - _PART_LINES), min(definition.last, line + _PART_LINES)
    return [*definition.parents, definition.header, *range(first, last + 1)]


def _find_docstrings(lines: Sequence[str], definition: Definition) -> Iterator[tuple[int, int]]:
    """Yield the lines of docstrings after their first line of text, in a definition and those inside it."""
    end, start, is_header, is_behind_header = "", 0, False, False
    for number in range(definition.first, definition.last + 1):
        line = lines[number - 1].strip()
        if end:
            if number == start + 1 and end not in line and not lines[start - 1].strip().strip("rRbBuU\"'/*"):
                start = number
            if end in line:
                if number - start >= _LEAST_HIDDEN:
                    yield start + 1, number
                end = ""
        elif (opening := _DOC_START.match(line)) and (is_behind_header or opening[0] == "/**"):
            start, closing = number, "*/" if opening[0] == "/**" else opening[0][-3:]
            end, is_behind_header = "" if closing in line[opening.end() :] else closing, False
        elif line:
            is_header = is_header or _HEADER.match(line) is not None
            is_behind_header = is_header and line.partition("  #")[0].rstrip().endswith(":")
            is_header = is_header and not is_behind_header


def _render_excerpt(path: str, file: _FileLines) -> Excerpt:
    hidden = {first: last for first, last in file.docstrings if file.lines.isdisjoint(range(first, last + 1))}
    spans: list[list[int]] = []
    for number in sorted({*file.lines, *hidden}):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = hidden.get(number, number)
        else:
            spans.append([number, hidden.get(number, number)])
    listing: list[str] = []
    for first, last in spans:
        start = first
        for cut in sorted(number for number in hidden if first <= number <= last):
            listing += number_lines(file.text.lines, start, cut - 1)[0]
            listing.append(f"{cut}-{hidden[cut]} | ...")
            start = hidden[cut] + 1
        listing += number_lines(file.text.lines, start, last)[0]
    ranges = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)  # noqa: RUF001 - the dash of a range
    about = "whole" if spans == [[1, file.text.count]] else f"lines {ranges} of {file.text.count}"
    return Excerpt(path=f"{printable(path)} ({about})", text="\n".join(listing))


def printable(name: str) -> str:
    """Return a name in which every character is visible and none ends the line."""
    return name if name.isprintable() else repr(name)[1:-1]
