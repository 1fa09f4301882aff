"""`defences.toml` is in line with the code. That each defence is missed by its tests is for `make defences` to see."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.security.defences import PARTS, Defence, covered, defences
from tests.source_files import ROOT

ALL = defences()


@functools.cache
def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("part", covered())
def test_every_threat_has_a_defence_that_can_be_taken_out(part: str) -> None:
    listed = {each.threat for each in ALL}
    assert [number for number in PARTS[part] if number not in listed] == []


@pytest.mark.parametrize("defence", ALL, ids=lambda each: f"{each.threat} {each.what}")
def test_it_stands_where_the_list_says_and_its_tests_are_there(defence: Defence) -> None:
    without = defence.taken_out_of((ROOT / defence.file).read_text())
    compile(without, defence.file, "exec")
    assert defence.text != defence.without
    assert defence.tests
    for test in defence.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in _functions(ROOT / path), test


def test_no_defence_is_listed_twice() -> None:
    places = [(each.threat, each.file, each.text, each.without) for each in ALL]
    assert len(places) == len(set(places))
