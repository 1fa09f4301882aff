"""The tests of a task, run in the real sandbox, and their reports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_runtime import SandboxSettings, pick_sandbox, run_bounded
from bot.evaluation.bundle import PatchError, add_base, prepare_tree, unpack_bundle, write_bundle
from bot.evaluation.suite import SuiteError, Task
from bot.evaluation.validate import COMMAND_TEST, RunPlace, read_junit, run_tests
from bot.git.process import Git
from tests.origin import Origin, git

PYTHON = tuple(dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix))))
PLACE = RunPlace(
    sandbox=pick_sandbox(
        "bubblewrap",
        SandboxSettings(read_only=PYTHON, path=(PYTHON[0] / "bin",), toolchains="none", git_writable=True),
    ),
    setup_seconds=60,
    test_seconds=60,
)
FILES = {
    "shop.py": "def total(prices):\n    return sum(prices) // 1\n",
    "tests/test_shop.py": "from shop import total\n\n\ndef test_sum():\n    assert total([1, 2]) == 3\n",
}
HIDDEN = """\
--- a/tests/test_shop.py
+++ b/tests/test_shop.py
@@ -4,2 +4,6 @@
 def test_sum():
     assert total([1, 2]) == 3
+
+
+def test_half():
+    assert total([0.5]) == 0.5
"""
FIX = """\
--- a/shop.py
+++ b/shop.py
@@ -1,2 +1,2 @@
 def total(prices):
-    return sum(prices) // 1
+    return sum(prices)
"""
TASK = Task(id="half", title="Totals lose halves", test_command="python -m pytest -q tests")


@pytest.fixture
async def store(tmp_path: Path) -> Git:
    """A repository with the base of the task, read back from its bundle."""
    origin = Origin(tmp_path / "origin")
    origin.commit(FILES)
    first = await unpack_bundle(tmp_path, tmp_path / "first.git", objects=[origin.path / ".git/objects"])
    await add_base(first, TASK, origin.git("rev-parse", "HEAD^{tree}"), at=1_700_000_000)
    await write_bundle(first, tmp_path)
    return await unpack_bundle(tmp_path, tmp_path / "store.git")


async def test_hidden_tests_replace_those_of_the_change_and_are_reported_one_by_one(store: Git, tmp_path: Path) -> None:
    cheat = "--- a/tests/test_shop.py\n+++ /dev/null\n@@ -1,5 +0,0 @@\n" + "".join(
        f"-{line}\n" for line in FILES["tests/test_shop.py"].splitlines()
    )
    await prepare_tree(store, TASK, tmp_path / "tree", change=(FIX + cheat).encode(), hidden=HIDDEN.encode())
    reports = await run_tests(tmp_path / "tree", TASK, PLACE, times=2)
    assert [report.tests for report in reports] == [
        {"tests/test_shop.py::test_sum": True, "tests/test_shop.py::test_half": True}
    ] * 2
    assert not list((tmp_path / "tree").glob(".codepilot*"))
    await prepare_tree(store, TASK, tmp_path / "before", hidden=HIDDEN.encode())
    [report] = await run_tests(tmp_path / "before", TASK, PLACE)
    assert report.tests == {"tests/test_shop.py::test_sum": True, "tests/test_shop.py::test_half": False}
    assert git(tmp_path / "tree", "log", "--all", "--format=%s") == "Base of the task"


async def test_setup_is_run_before_and_its_failure_is_reported(store: Git, tmp_path: Path) -> None:
    await prepare_tree(store, TASK, tmp_path / "tree")
    task = TASK.model_copy(update={"setup": ("echo made > made",), "test_command": "grep made made"})
    [report] = await run_tests(tmp_path / "tree", task, PLACE)
    assert (report.tests, report.problem) == ({COMMAND_TEST: True}, "")
    task = TASK.model_copy(update={"setup": ("echo no such package; exit 3",)})
    [report] = await run_tests(tmp_path / "tree", task, PLACE, times=2)
    assert report.setup_failed
    assert "exit code 3" in report.problem
    assert "no such package" in report.problem


async def test_a_report_that_is_a_link_out_of_the_tree_is_not_read(store: Git, tmp_path: Path) -> None:
    await prepare_tree(store, TASK, tmp_path / "tree")
    secret = tmp_path / "secret.xml"
    secret.write_text('<testsuite><testcase name="stolen"/></testsuite>')
    command = f'report=${{PYTEST_ADDOPTS##*/}}; ln -s {secret} "${{report%\\\'}}"'
    [report] = await run_tests(tmp_path / "tree", TASK.model_copy(update={"test_command": command}), PLACE)
    assert report.tests == {COMMAND_TEST: True}
    assert secret.exists()


async def test_a_module_that_cannot_be_imported_does_not_hide_the_other_tests(store: Git, tmp_path: Path) -> None:
    broken = "--- /dev/null\n+++ b/tests/test_new.py\n@@ -0,0 +1 @@\n+from shop import new\n"
    await prepare_tree(store, TASK, tmp_path / "tree", hidden=broken.encode())
    [report] = await run_tests(tmp_path / "tree", TASK, PLACE)
    assert report.tests["tests/test_shop.py::test_sum"]
    assert [name for name, passed in report.tests.items() if not passed] == ["tests/test_new.py::tests.test_new"]


async def test_a_bundle_is_written_and_read_through_no_link(store: Git, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "repository.partial").symlink_to(outside)
    await write_bundle(store, tmp_path)
    assert outside.read_text() == "mine"
    (tmp_path / "repository.bundle").rename(tmp_path / "other")
    (tmp_path / "repository.bundle").symlink_to(tmp_path / "other")
    with pytest.raises(SuiteError, match="is a link"):
        await unpack_bundle(tmp_path, tmp_path / "again.git")


async def test_a_patch_that_does_not_apply_and_a_task_without_a_base_are_named(store: Git, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="half: the change does not apply"):
        await prepare_tree(store, TASK, tmp_path / "tree", change=FIX.replace("sum", "max").encode())
    with pytest.raises(SuiteError, match=r"does not have refs/codepilot-eval/other"):
        await prepare_tree(store, TASK.model_copy(update={"id": "other"}), tmp_path / "tree")


def test_a_junit_report_is_read_with_classes_skips_and_repeated_names() -> None:
    report = b"""<testsuites><testsuite>
      <testcase classname="tests.test_a.TestB.TestC" name="test_d[1/2]" file="tests/test_a.py"/>
      <testcase classname="pkg.other" name="test_e[&lt;f at 0x7f00ab01&gt;]" file=""><failure message="no"/></testcase>
      <testcase classname="tests.test_a.Rules" name="runTest" file="../venv/lib/hypothesis/stateful.py"/>
      <testcase classname="tests.test_a" name="test_f" file="tests/test_a.py"><skipped/></testcase>
      <testcase classname="tests.test_a" name="test_g" file="tests/test_a.py"/>
      <testcase classname="tests.test_a" name="test_g" file="tests/test_a.py"><error/></testcase>
    </testsuite></testsuites>"""
    assert read_junit(report) == {
        "tests/test_a.py::TestB::TestC::test_d[1/2]": True,
        "pkg.other::test_e[<f at 0x…>]": False,
        "tests.test_a.Rules::runTest": True,
        "tests/test_a.py::test_g": False,
    }


async def test_a_report_with_entities_that_grow_is_refused() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE t [<!ENTITY e0 "0123456789">{entities}]><testsuite><testcase name="&e11;"/></testsuite>'
    with pytest.raises(ValueError, match="not XML"):
        await run_bounded(read_junit, bomb.encode(), seconds=10, memory=512 * 1024**2)
