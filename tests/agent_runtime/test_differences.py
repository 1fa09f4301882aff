"""Each difference on the pages `docs/from-*.md` is shown by tests; `tests/test_docs.py` compares pages and table."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.agent_runtime.differences import NAMES, Difference, read_differences

_TESTS = Path(__file__).parent
_ROWS = [pytest.param(row, id=f"{system}: {row.subject}") for system in NAMES for row in read_differences(system)]


@functools.cache
def _running_tests(path: Path) -> set[str]:
    """Return the tests of a module that pytest collects and does not skip or expect to fail."""
    functions = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {
        each.name
        for each in functions
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not {"skip", "skipif", "xfail"}
        & {part for mark in each.decorator_list for part in ast.unparse(mark).replace("(", ".").split(".")}
    }


@pytest.mark.parametrize("row", _ROWS)
def test_each_difference_has_a_test_that_runs(row: Difference) -> None:
    assert row.tests, f"{row.subject}: name the tests that show it"
    for test in row.tests:
        file, _, name = test.partition("::")
        assert Path(file).name.startswith("test_")
        assert name.startswith("test_")
        assert name in _running_tests(_TESTS / file), f"{row.subject}: there is no such test, or it is skipped: {test}"


def test_no_difference_is_listed_twice() -> None:
    for system in NAMES:
        subjects = [row.subject for row in read_differences(system)]
        assert len(subjects) == len(set(subjects))


def test_a_cell_cannot_break_its_table() -> None:
    for system in NAMES:
        for row in read_differences(system):
            for text in (row.subject, row.document, row.original, row.now, row.reason):
                assert "\n" not in text
                assert "|" not in text
