"""The tour through the code names files and definitions that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.source_files import ROOT, tree_of

_TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
_REFERENCE = re.compile(r"`(?P<path>[\w/]+\.py)(?:: (?P<name>[\w.]+))?`")
_STATION = re.compile(r"^## ([0-9]+)\. .*?(?=^## )", re.MULTILINE | re.DOTALL)


def _definitions(path: str) -> set[str]:
    """The functions and classes of a module, and its methods with and without the name of their class."""
    found = set()
    for node in ast.walk(tree_of(ROOT / path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
    return found


@pytest.mark.parametrize(("path", "name"), sorted(set(_REFERENCE.findall(_TOUR))))
def test_what_the_tour_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"docs/tour.md names {path}, which is gone; name the file that does it now"
    assert not name or name in _definitions(path), (
        f"docs/tour.md names {path}: {name}, which is gone; name its successor"
    )


def test_the_tour_has_ten_stations_each_with_a_file_and_a_function() -> None:
    stations = [match[0] for match in _STATION.finditer(_TOUR)]
    assert [station.split(".")[0] for station in stations] == [f"## {number}" for number in range(1, 11)]
    for station in stations:
        assert any(name for _, name in _REFERENCE.findall(station)), station


def test_the_tour_can_be_read_in_ten_minutes() -> None:
    assert len(_TOUR.split()) < 10 * 200
