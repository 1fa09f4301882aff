"""The published tests of Pygent pass against ours; those that call private names have public ones in their place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.agent_runtime.compat.published import ROOT, Published, outcomes
from tests.agent_runtime.differences import read_differences

SUITE = Published(
    name="pygent",
    version="0.1.26",
    sha256="a761f368e9b0374762eb5ac5af71cd995396a5b2366e05753919fdb8598f7227",
    package="pygent",
    module="agent_runtime.compat.pygent",
    fixtures="tests.agent_runtime.compat.pygent_aliases",
)
PRIVATE = {test for row in read_differences("pygent") for test in row.fails}


@pytest.mark.slow
@pytest.mark.long
def test_the_published_tests_pass(tmp_path: Path) -> None:
    came = outcomes(SUITE, tmp_path, {"HOME": str(tmp_path / "home")})

    assert {name: each for name, each in came.items() if each != "passed"} == {}
    assert len(came) == 33
    assert _calls_of_private_names(next(tmp_path.glob("pygent-*/tests"))) == PRIVATE


def _calls_of_private_names(tests: Path) -> set[str]:
    """Return the tests that call functions such as `tools._delegate_task`."""
    return {
        f"{file.stem}.{function.name}"
        for file in tests.glob("test_*.py")
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(each, ast.Call) and "tools._" in ast.unparse(each.func) for each in ast.walk(function))
    }


def test_the_page_says_how_many_pass() -> None:
    page = (ROOT / "docs" / "from-pygent.md").read_text(encoding="utf-8")

    assert f"{33 - len(PRIVATE)} of its 33 tests" in page
