"""Find what a text names of a code base: lines, files, tests, names, messages of errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
