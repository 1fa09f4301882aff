"""The published tests of llm-coding-agent pass against ours, but for those that the table of differences names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_runtime.compat.published import ROOT, Published, outcomes
from tests.agent_runtime.compat.test_coding_documents import AGENT, TOOLS
from tests.agent_runtime.differences import read_differences

SUITE = Published(
    name="llm-coding-agent",
    version="0.1a0",
    sha256="900c7001849ef1013da6dad95e2efc7405b7a0fd7a17b854b483357813b20da7",
    package="llm_coding_agent",
    module="agent_runtime.compat.coding",
    fixtures="tests.agent_runtime.compat.coding_fixtures",
)
DIFFERENT = {test for row in read_differences("llm-coding-agent") for test in row.fails}


@pytest.mark.slow
@pytest.mark.long
def test_the_published_tests_pass(tmp_path: Path) -> None:
    home = tmp_path / "home"
    came = outcomes(SUITE, tmp_path, {"HOME": str(home), "LLM_USER_PATH": str(home / "llm"), "LLM_LOAD_PLUGINS": ""})

    failed = {name for name, each in came.items() if each != "passed"}
    assert failed == DIFFERENT, {name: came[name] for name in failed ^ DIFFERENT if name in came}
    assert len(came) == 93
    readme = next(tmp_path.glob("llm_coding_agent-*/README.md")).read_text(encoding="utf-8")
    assert [code for code in (*TOOLS, AGENT) if f"```python\n{code}```" not in readme] == []


def test_the_page_says_how_many_pass() -> None:
    page = (ROOT / "docs" / "from-llm-coding-agent.md").read_text(encoding="utf-8")

    assert f"{93 - len(DIFFERENT)} of its 93 tests" in page
