"""The published tests of Pygent pass against ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_runtime.compat.published import ROOT, Published, outcomes

SUITE = Published(
    name="pygent",
    version="0.1.26",
    sha256="a761f368e9b0374762eb5ac5af71cd995396a5b2366e05753919fdb8598f7227",
    package="pygent",
    module="agent_runtime.compat.pygent",
    fixtures="tests.agent_runtime.compat.pygent_aliases",
)


@pytest.mark.slow
@pytest.mark.long
def test_the_published_tests_pass(tmp_path: Path) -> None:
    came = outcomes(SUITE, tmp_path, {"HOME": str(tmp_path / "home")})

    assert {name: each for name, each in came.items() if each != "passed"} == {}
    assert len(came) == 33


def test_the_documents_say_how_many_pass() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")

    assert "All 33 of its tests" in page
