from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.workspace.diffs import unified_hunks

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


def test_changes_form_hunks_with_three_lines_of_context() -> None:
    before = [str(i) for i in range(1, 31)]
    after = [*before[:4], "new", *before[5:20], *before[21:]]
    assert unified_hunks(before, after) == [
        *["@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+new", " 6", " 7", " 8"],
        *["@@ -18,7 +18,6 @@", " 18", " 19", " 20", "-21", " 22", " 23", " 24"],
    ]


def test_whole_files_are_added_and_deleted() -> None:
    assert unified_hunks([], ["a", "b"]) == ["@@ -0,0 +1,2 @@", "+a", "+b"]
    assert unified_hunks(["a"], []) == ["@@ -1,1 +0,0 @@", "-a"]
    assert unified_hunks(["a"], ["a"]) == []


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(LINES, LINES)
def test_git_applies_it(tmp_path: Path, before: list[str], after: list[str]) -> None:
    hunks = unified_hunks(before, after)
    if not hunks or not before or not after:
        return
    (tmp_path / "f").write_text("".join(f"{line}\n" for line in before))
    patch = "\n".join(["--- a/f", "+++ b/f", *hunks, ""])
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "f").read_text() == "".join(f"{line}\n" for line in after)
