"""The language of docstrings and names: nouns of the trade in place of pronouns, question words and participles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.source_files import ROOT, code_lines, dotted, tree_of

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

SHORT = 6
"""A first line of fewer words is not judged."""
QUESTION_WORDS = frozenset({"how", "what", "when", "where", "which", "who", "whom", "whose", "why"})
FUNCTION_WORDS = frozenset(
    [
        "after",
        "again",
        "all",
        "already",
        "and",
        "any",
        "anybody",
        "are",
        "as",
        "at",
        "be",
        "been",
        "before",
        "both",
        "but",
        "by",
        "came",
        "can",
        "come",
        "comes",
        "could",
        "did",
        "do",
        "does",
        "each",
        "either",
        "else",
        "every",
        "few",
        "for",
        "from",
        "give",
        "given",
        "go",
        "goes",
        "had",
        "has",
        "have",
        "he",
        "here",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "keep",
        "kept",
        "know",
        "known",
        "less",
        "made",
        "make",
        "makes",
        "many",
        "may",
        "met",
        "might",
        "more",
        "much",
        "must",
        "neither",
        "no",
        "nobody",
        "none",
        "not",
        "nothing",
        "now",
        "of",
        "on",
        "once",
        "one",
        "ones",
        "only",
        "or",
        "other",
        "our",
        "own",
        "put",
        "said",
        "same",
        "say",
        "shall",
        "she",
        "should",
        "so",
        "some",
        "somebody",
        "stand",
        "stands",
        "still",
        "such",
        "take",
        "taken",
        "takes",
        "tell",
        "than",
        "that",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "told",
        "too",
        "us",
        "very",
        "was",
        "we",
        "were",
        "what",
        "whatever",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "yet",
        "you",
        "your",
    ]
)
NO_NAMES = frozenset(
    [
        "apart",
        "asked",
        "begun",
        "beside",
        "come",
        "done",
        "each",
        "elsewhere",
        "every",
        "found",
        "given",
        "gone",
        "got",
        "heard",
        "held",
        "here",
        "kept",
        "known",
        "left",
        "lesser",
        "made",
        "meant",
        "named",
        "needed",
        "nobody",
        "others",
        "owed",
        "said",
        "seen",
        "sent",
        "shown",
        "spoken",
        "taken",
        "there",
        "told",
        "unheard",
        "unseen",
        "wanted",
        "what",
        "whatever",
        "whoever",
    ]
)
"""Words that name no value: alone they are no function, class, attribute, parameter or module."""
SEEDS = {
    "agent_runtime/compat": "the three earlier systems document these names",
}
"""Folders whose names are given from outside, and the source."""


class Definition(NamedTuple):
    """A documented function or class."""

    place: str
    node: Documented
    first_line: str

    @property
    def words(self) -> list[str]:
        """The first line's words."""
        return words(self.first_line)

    @property
    def is_predicate(self) -> bool:
        """Whether the function returns a bool."""
        returns = getattr(self.node, "returns", None)
        returns = returns.value if isinstance(returns, ast.Subscript) else returns
        return isinstance(returns, ast.Name) and returns.id in {"bool", "TypeGuard", "TypeIs"}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def sources(package: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, Documented | ast.Module) and (text := ast.get_docstring(node)):
            yield node, text


def definitions(package: str) -> list[Definition]:
    """List the documented functions and classes whose first line is long enough to judge."""
    return [
        definition
        for path in sources(package)
        for node, text in docstrings(path)
        if isinstance(node, Documented)
        if len((definition := Definition(f"{path}:{node.lineno}", node, text.splitlines()[0])).words) >= SHORT
    ]


def asks_a_question(definition: Definition) -> bool:
    first = definition.words[0]
    return first in QUESTION_WORDS or (first == "whether" and not definition.is_predicate)


def says_little(definition: Definition) -> bool:
    counted = definition.words
    return sum(word in FUNCTION_WORDS for word in counted) >= len(counted) * 2 / 3


def name_definitions(path: Path) -> Iterator[tuple[int, str]]:
    """Find the line and the name of every module, class, function, parameter and attribute."""
    yield 1, path.stem
    for node in ast.walk(tree_of(path)):
        if isinstance(node, Documented):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        if isinstance(node, ast.ClassDef):
            yield from (
                (target.lineno, target.id)
                for statement in node.body
                if isinstance(statement, ast.Assign | ast.AnnAssign)
                for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
                if isinstance(target, ast.Name)
            )


@pytest.mark.parametrize("package", ["agent_runtime", "bot", "localhub"])
def test_a_docstring_names_things(package: str) -> None:
    judged = definitions(package)
    questions = [f"{each.place}: {each.first_line}" for each in judged if asks_a_question(each)]
    empty = [f"{each.place}: {each.first_line}" for each in judged if says_little(each)]
    said = [word for path in sources(package) for _, text in docstrings(path) for word in words(text)]
    assert len(questions) <= len(judged) * 0.01, "\n  ".join(["begin with a verb or a noun:", *questions])
    assert len(empty) <= len(judged) * 0.003, "\n  ".join(["name the object:", *empty])
    assert said.count("what") <= len(said) * 0.003, "say the noun in place of `what`"


@pytest.mark.parametrize("package", ["agent_runtime", "bot"])
def test_docstrings_are_shorter_than_the_code(package: str) -> None:
    said = sum(len(words(text)) for path in sources(package) for _, text in docstrings(path))
    lines = sum(len(code_lines(path)) for path in sources(package))
    assert said <= lines, f"{package}: {said:,} words of docstrings for {lines:,} lines of code"


@pytest.mark.parametrize("package", ["agent_runtime", "bot", "localhub", "bench"])
def test_a_name_is_a_noun_or_a_verb_with_its_object(package: str) -> None:
    wrong = [
        f"{path}:{line} {name}"
        for path in sources(package)
        if not any(dotted(path).startswith(dotted(Path(folder))) for folder in SEEDS)
        for line, name in name_definitions(path)
        if (name if name.isupper() else name.lower()).strip("_") in NO_NAMES
    ]
    assert not wrong, "\n  ".join(["name the thing:", *wrong])
