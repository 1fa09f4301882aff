"""The published tests of llm-coding-agent pass against ours, but for those that the documents name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_runtime.compat.published import ROOT, Published, outcomes

SUITE = Published(
    name="llm-coding-agent",
    version="0.1a0",
    sha256="900c7001849ef1013da6dad95e2efc7405b7a0fd7a17b854b483357813b20da7",
    package="llm_coding_agent",
    module="agent_runtime.compat.coding",
    fixtures="tests.agent_runtime.compat.coding_fixtures",
)
DIFFERENT = {
    # Read a table of llm's database that llm has not written since it keeps conversations as trees of messages; they
    # fail with the original, too.
    "TestLogging.test_run_logs_to_db_when_given",
    "TestLoggingAndContinue.test_session_is_logged_to_llm_db",
    "TestLoggingAndContinue.test_continue_resumes_most_recent_conversation",
    "TestLoggingAndContinue.test_cid_resumes_specific_conversation",
    # Expects the path outside of the sandbox.
    "TestExecuteCommand.test_runs_in_session_root",
}


@pytest.mark.slow
@pytest.mark.long
def test_the_published_tests_pass(tmp_path: Path) -> None:
    home = tmp_path / "home"
    came = outcomes(SUITE, tmp_path, {"HOME": str(home), "LLM_USER_PATH": str(home / "llm"), "LLM_LOAD_PLUGINS": ""})

    failed = {name for name, each in came.items() if each != "passed"}
    assert failed == DIFFERENT, {name: came[name] for name in failed ^ DIFFERENT if name in came}
    assert len(came) == 93


def test_the_documents_name_the_tests_that_do_not_pass() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")

    assert all(name.partition(".")[2] in page for name in DIFFERENT)
    assert f"{93 - len(DIFFERENT)} of its 93 tests" in page
