"""Consistency of `defences.toml` with the code; `make defences` verifies that tests notice a missing defence."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.changed_definition import CHANGES, changed
from tests.security.defences import PARTS, Defence, covered, defences
from tests.source_files import ROOT

ALL = defences()
_MOST_TEXTS = 6
"""Limit of defences that only a piece of text can name, e.g. entries of TOML files. Lower it."""


@functools.cache
def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("part", covered())
def test_each_threat_has_a_removable_defence(part: str) -> None:
    listed = {each.threat for each in ALL}
    assert [number for number in PARTS[part] if number not in listed] == []


@pytest.mark.parametrize("file", sorted({each.file for each in ALL}))
def test_each_defence_and_its_tests_exist(file: str) -> None:
    source = (ROOT / file).read_text()
    faults = [fault for each in ALL if each.file == file for fault in _faults(each, source)]
    assert not faults, "\n".join(faults)


def _faults(defence: Defence, source: str) -> Iterator[str]:
    try:
        without = defence.taken_out_of(source)
        compile(without, defence.file, "exec")
    except (LookupError, SyntaxError) as error:
        yield str(error)
    else:
        if without == source:
            yield f"{defence.what!r} of threat {defence.threat} changes nothing"
    if not defence.tests:
        yield f"{defence.what!r} of threat {defence.threat} has no test"
    for test in defence.tests:
        path, _, name = test.partition("::")
        if name.partition("[")[0] not in _functions(ROOT / path):
            yield f"{defence.what!r} of threat {defence.threat}: there is no test {test}"


def test_no_defence_is_listed_twice() -> None:
    places = [(each.threat, each.file, each.name, each.how, each.part, each.by) for each in ALL]
    assert len(places) == len(set(places))


def test_a_defence_is_named_and_not_quoted() -> None:
    assert len([each for each in ALL if each.how == "text"]) <= _MOST_TEXTS


_CODE = """
LIMIT = 3
RULES = {"a": 1, "b": 2}

class Gate:
    def opens(self, who):
        if who.known and not who.banned:
            log(clean(who.name), level=5, who=who)
            return True
        return False
"""


@pytest.mark.parametrize(
    ("name", "how", "part", "by", "before", "after"),
    [
        ("LIMIT", "becomes", "99", "", "LIMIT = 3", "LIMIT = 99"),
        ("Gate.opens", "never", "known", "", "who.known", "False"),
        ("Gate.opens", "always", "banned", "", "(not who.banned)", "True"),
        ("Gate.opens", "skip", "log", "", "log(clean(who.name), level=5, who=who)", "pass"),
        ("Gate.opens", "drop", "level", "", ", level=5", ""),
        ("Gate.opens", "drop", "who", "", ", who=who", ""),
        ("RULES", "drop", "a", "", "'a': 1, ", ""),
        ("Gate.opens", "unwrap", "clean", "", "clean(who.name)", "who.name"),
        ("Gate.opens", "replace", "who . name", "who.name, who.id", "who.name", "who.name, who.id"),
        ("Gate.opens", "replace", "level=", "0", "level=5", "level=0"),
    ],
)
def test_one_part_is_changed_and_nothing_else(  # noqa: PLR0917 - a row of the table
    name: str, how: str, part: str, by: str, before: str, after: str
) -> None:
    code = ast.unparse(ast.parse(_CODE))
    assert before in code
    assert changed(_CODE, name, how, part, by) == code.replace(before, after)


def test_a_function_that_becomes_a_value_does_nothing_else() -> None:
    without = changed(_CODE, "Gate.opens", "becomes", "True")
    assert without == ast.unparse(ast.parse(_CODE.partition("if who")[0] + "return True"))


@pytest.mark.parametrize(
    ("name", "how", "part"),
    [
        ("Gate.shuts", "becomes", "True"),
        ("opens", "becomes", "True"),
        ("Gate.opens", "never", "nobody"),
        ("Gate.opens", "never", "who"),
        *(("Gate.opens", how, "nothing") for how in CHANGES if how not in {"becomes", "replace"}),
        ("Gate.opens", "replace", "nothing"),
        ("LIMIT", "becomes", "3"),
    ],
)
def test_a_missing_or_ambiguous_part_is_an_error(name: str, how: str, part: str) -> None:
    with pytest.raises(LookupError):
        changed(_CODE, name, how, part)
