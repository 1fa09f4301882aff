"""Plans of calls: a call does the previewed change, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain
from agent_runtime.policy.policy import CallFacts, Policy, Rule
from agent_runtime.tools.files import CHANGED_MEANWHILE
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.tool import CallPlan
from agent_runtime.workspace.files import Workspace
from tests.block_files import BlockFiles, call


class Desk:
    """File tools as a step uses them."""

    def __init__(self, root: Path, workspace: Workspace) -> None:
        self.root = root
        self.files = BlockFiles(workspace)
        self.registry = self.files.registry
        self.registry.add_family(SearchTools(workspace))

    def step(self, *payloads: str, control: str = "") -> None:
        self.files.take(*payloads, control=control)

    def plan(self, tool: str, **args: Plain) -> CallPlan:
        before = self.snapshot()
        left = self.files.payloads._payloads.unused()
        call_plan = self.registry.get(tool)._plan(args)
        assert (self.snapshot(), self.files.payloads._payloads.unused()) == (before, left), "planning does nothing"
        return call_plan

    async def call(self, tool: str, **args: Plain) -> str:
        return (await call(self.registry.get(tool), args)).text

    def snapshot(self) -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in self.root.rglob("*") if each.is_file()}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "way").symlink_to("src")
    with Workspace(tmp_path) as workspace:
        yield Desk(tmp_path, workspace)


def test_a_change_is_shown_as_a_diff(desk: Desk) -> None:
    desk.step("2\n")
    call_plan = desk.plan("write_file", path="a.txt", mode="edit", start_line=2, end_line=2)
    assert call_plan.facts == CallFacts(
        tool="write_file",
        args={"path": "a.txt", "mode": "edit", "start_line": 2, "end_line": 2},
        paths=("a.txt",),
        writes=True,
    )
    assert call_plan.refusal == ""
    assert call_plan.preview().split("\n") == [
        "a.txt: changed, +1 -1",
        "",
        "diff --git a/a.txt b/a.txt",
        "--- a/a.txt",
        "+++ b/a.txt",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]


def test_a_path_is_resolved_in_a_plan(desk: Desk) -> None:
    desk.step("x\n")
    call_plan = desk.plan("write_file", path="./way/../way/new.txt")
    assert call_plan.facts.paths == ("src/new.txt",)
    assert call_plan.preview().split("\n") == [
        "src/new.txt: new file, +1 -0",
        "",
        "diff --git a/src/new.txt b/src/new.txt",
        "new file",
        "--- /dev/null",
        "+++ b/src/new.txt",
        "@@ -0,0 +1,1 @@",
        "+x",
    ]


def test_a_patch_names_all_its_files(desk: Desk) -> None:
    (desk.root / "old.txt").write_text("a\nb")
    (desk.root / "gone.txt").write_text("bye\n")
    patch = """*** Begin Patch
*** Add File: src/new.py
+x = 1
*** Update File: old.txt
*** Move to: src/moved.txt
@@
-a
+A
*** Delete File: gone.txt
*** End Patch
"""
    desk.step(patch)
    call_plan = desk.plan("write_file", mode="patch")
    assert sorted(call_plan.facts.paths) == ["gone.txt", "old.txt", "src/moved.txt", "src/new.py"]
    assert call_plan.preview().split("\n") == [
        "src/new.py: new file, +1 -0",
        "src/moved.txt: moved from old.txt, +1 -1",
        "gone.txt: deleted, +0 -1",
        "",
        "diff --git a/src/new.py b/src/new.py",
        "new file",
        "--- /dev/null",
        "+++ b/src/new.py",
        "@@ -0,0 +1,1 @@",
        "+x = 1",
        "diff --git a/old.txt b/src/moved.txt",
        "rename from old.txt",
        "rename to src/moved.txt",
        "--- a/old.txt",
        "+++ b/src/moved.txt",
        "@@ -1,2 +1,2 @@",
        "-a",
        "+A",
        " b",
        "\\ No newline at end of file",
        "diff --git a/gone.txt b/gone.txt",
        "deleted file",
        "--- a/gone.txt",
        "+++ /dev/null",
        "@@ -1,1 +0,0 @@",
        "-bye",
    ]


def test_a_replaced_binary_is_mentioned(desk: Desk) -> None:
    (desk.root / "b.bin").write_bytes(b"\0" * 2000)
    desk.step("text\n")
    call_plan = desk.plan("write_file", path="b.bin")
    assert call_plan.preview().split("\n") == [
        "b.bin: replaced whole, 2,000 bytes before, +1 -0",
        "",
        "diff --git a/b.bin b/b.bin",
        "Not compared: 2,000 bytes before, 5 bytes after",
        "--- a/b.bin",
        "+++ b/b.bin",
        "@@ -0,0 +1,1 @@",
        "+text",
    ]


def test_changes_without_a_diff_are_described(desk: Desk) -> None:
    desk.step("one\ntwo\nthree\n", "one\r\ntwo\r\nthree\r\n", "one\ntwo\nthree")
    assert "Its content stays as it is." in desk.plan("write_file", path="a.txt").preview()
    desk.files.payloads._payloads.skip(1)
    assert "+one\\r\n+two\\r\n+three\\r" in desk.plan("write_file", path="a.txt").preview()
    desk.files.payloads._payloads.skip(2)
    shown = desk.plan("write_file", path="a.txt").preview()
    assert shown.endswith("-three\n+three\n\\ No newline at end of file")
    (desk.root / "bom.txt").write_bytes(b"\xef\xbb\xbfx\n")
    desk.step("x\n")
    assert "Only how its text is encoded changes." in desk.plan("write_file", path="bom.txt").preview()


def test_content_cannot_hide_in_a_preview(desk: Desk) -> None:
    desk.step("a\u202eb\x1b[2K\n" + "x" * 900 + "y\n" + "\n" * 300 + "line\n" * 400 + "the end\n")
    shown = desk.plan("write_file", path="new.txt").preview()
    assert "+a\\u202eb\\x1b[2K" in shown
    assert "x" * 100 + "y\n… 300 blank lines added\n+line" in shown
    assert shown.endswith("+line\n+the end")
    assert shown.startswith("new.txt: new file, +703 -0")


def test_a_call_that_is_too_long_has_no_preview(desk: Desk) -> None:
    desk.step("line\n" * 5_000)
    call_plan = desk.plan("write_file", path="new.txt")
    assert (call_plan.preview(), call_plan.refusal) == ("", "")


def test_a_name_cannot_be_taken_for_the_words_around_it(desk: Desk) -> None:
    desk.step("x\n")
    shown = desk.plan("write_file", path="a.txt: changed, +0 -0\u202e").preview().split("\n")
    assert shown[0] == "'a.txt: changed, +0 -0\\u202e': new file, +1 -0"
    assert shown[5] == "+++ b/'a.txt: changed, +0 -0\\u202e'"


async def test_a_call_that_cannot_succeed_says_so_and_then_fails(desk: Desk) -> None:
    desk.step("x\n")
    call_plan = desk.plan("write_file", path="none.txt", mode="replace")
    assert "needs payload 2" in call_plan.refusal
    desk.step("old\n", "new\n")
    call_plan = desk.plan("write_file", path="none.txt", mode="replace")
    assert call_plan.preview().endswith(call_plan.refusal)
    assert call_plan.facts.paths == ("none.txt",)
    (desk.root / "none.txt").write_text("old\n")  # what was in its way is gone, but nobody was asked
    with pytest.raises(ToolError, match=r"(?s)'none.txt'.*payload=1"):
        call_plan.apply()
    assert (desk.root / "none.txt").read_text() == "old\n"
    call_plan = desk.plan("write_file", path="none.txt", mode="replace", payload=1)
    assert call_plan.refusal == ""
    assert "-old\n+new" in call_plan.preview()
    await desk.call("write_file", path="none.txt", mode="replace", payload=1)
    assert (desk.root / "none.txt").read_text() == "new\n"


async def test_a_call_does_exactly_its_plan_or_nothing(desk: Desk) -> None:
    desk.step("2\n", "2\n")
    call_plan = desk.plan("write_file", path="a.txt", mode="edit", start_line=2, end_line=2)
    (desk.root / "a.txt").write_text("one\nzwei\nthree\n")
    with pytest.raises(ToolError, match=CHANGED_MEANWHILE):
        call_plan.apply()
    assert (desk.root / "a.txt").read_text() == "one\nzwei\nthree\n"
    call_plan = desk.plan("write_file", path="way/new.txt")
    (desk.root / "way").unlink()
    (desk.root / "way").symlink_to(".")
    with pytest.raises(ToolError, match=CHANGED_MEANWHILE):
        call_plan.apply()
    assert not (desk.root / "new.txt").exists()


async def test_a_call_that_was_not_made_binds_no_later_one(desk: Desk) -> None:
    desk.step("x\n")
    desk.plan("write_file", path="new.txt")
    (desk.root / "new.txt").write_text("mine\n")
    assert "-mine\n+x" in desk.plan("write_file", path="new.txt").preview()
    await desk.call("write_file", path="new.txt")
    assert (desk.root / "new.txt").read_text() == "x\n"


def test_a_write_goes_to_the_target_of_its_name(desk: Desk) -> None:
    desk.step("x\n")
    call_plan = desk.plan("write_file", path="src/new.txt")
    (desk.root / "src").rmdir()
    (desk.root / "src").symlink_to(".")
    with pytest.raises(ToolError, match=CHANGED_MEANWHILE):
        call_plan.apply()
    assert not (desk.root / "new.txt").exists()


async def test_a_later_write_that_cannot_be_made_refuses_the_first(desk: Desk) -> None:
    control = 'write_file("n.txt")\nwrite_file("a.txt", mode="edit", start_line=9, end_line=9)\n'
    desk.step("x\n", "y\n", control=control)
    call_plan = desk.plan("write_file", path="n.txt")
    assert "line 2" in call_plan.refusal
    with pytest.raises(ToolError, match="line 2"):
        await desk.call("write_file", path="n.txt")
    assert not (desk.root / "n.txt").exists()


def test_plans_of_reads_and_searches_have_their_paths(desk: Desk) -> None:
    assert desk.plan("read_file", path="way/x").facts.paths == ("src/x",)
    assert desk.plan("list_files", path="way").facts.paths == ("src",)
    assert desk.plan("list_files").facts.paths == (".",)
    assert desk.plan("find", pattern="x").facts.paths == (".",)
    assert desk.plan("find", pattern="x", scope="file", target="a.txt").facts.paths == ("a.txt",)
    assert not desk.plan("read_file", path="a.txt").facts.writes
    outside = desk.plan("read_file", path="../x")
    assert "'../x'" in outside.refusal


def test_a_call_with_invalid_arguments_has_a_refusal_in_its_plan(desk: Desk) -> None:
    call_plan = desk.plan("read_file", path=1)
    assert "argument path" in call_plan.refusal
    assert call_plan.facts == CallFacts(tool="read_file", args={"path": 1})


def test_of_a_custom_tool_its_arguments_are_known(desk: Desk) -> None:
    desk.registry.register_tool("deploy", lambda where: where)
    call_plan = desk.plan("deploy", where="prod")
    assert (call_plan.facts, call_plan.refusal) == (CallFacts(tool="deploy", args={"where": "prod"}), "")
    assert call_plan.preview() == 'deploy\n{\n  "where": "prod"\n}'


async def test_a_write_that_is_denied_takes_its_content_with_it(desk: Desk) -> None:
    desk.step("first\n", "second\n")
    text = desk.plan("write_file", path="denied.txt").on_decline()
    assert "payload=1 " in text
    await desk.call("write_file", path="b.txt")
    assert (desk.root / "b.txt").read_text() == "second\n"
    await desk.call("write_file", path="c.txt", payload=1)
    assert (desk.root / "c.txt").read_text() == "first\n"


def test_a_denied_call_that_would_have_taken_nothing_leaves_all_in_place(desk: Desk) -> None:
    desk.step("first\n")
    assert desk.plan("write_file", path="a", payload=7).on_decline() == ""
    assert desk.plan("write_file", path=1).on_decline() == ""
    assert desk.plan("read_file", path="a").on_decline() == ""
    assert desk.files.payloads._payloads.unused() == 1


# What a rule keeps back is told by no other way than by its name.


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.txt").write_text("token = hunter2\n")
    (tmp_path / ".env").write_text("TOKEN=hunter2\n")
    (tmp_path / "a.txt").write_text("a token\n")
    policy = Policy(rules=(Rule(decision="deny", paths=("secrets/**", ".env")),))
    with Workspace(tmp_path) as workspace:
        desk = Desk(tmp_path, workspace)
        desk.files = BlockFiles(workspace, withholds=policy.hides)
        desk.registry = desk.files.registry
        desk.registry.add_family(SearchTools(workspace, withholds=lambda _, path: policy.hides("find", path)))
        yield desk


@pytest.mark.parametrize("args", [{}, {"context": 3}, {"include": "*.txt"}, {"include": "{.env,secrets/*}"}])
async def test_a_search_skips_files_that_a_rule_withholds(guarded: Desk, args: dict[str, Plain]) -> None:
    text = await guarded.call("find", pattern="(?i)token", **args)
    assert "hunter2" not in text
    assert "secrets" not in text
    assert ("1:a token" in text) is (args.get("include") != "{.env,secrets/*}")


async def test_a_search_tells_not_even_whether_such_a_file_has_a_match(guarded: Desk) -> None:
    there, absent = [await guarded.call("find", pattern=pattern) for pattern in ("hunter2", "nobody")]
    assert there == absent


async def test_a_file_that_a_call_names_was_decided_on_by_its_name(guarded: Desk) -> None:
    assert "hunter2" in await guarded.call("find", pattern="hunter2", scope="file", target=".env")


async def test_a_list_omits_files_that_a_rule_withholds(guarded: Desk) -> None:
    assert await guarded.call("list_files") == "[list_files] 1 file(s), newest first:\na.txt"


async def test_a_later_write_tells_nothing_of_such_a_file(guarded: Desk) -> None:
    control = 'write_file("n.txt")\nwrite_file(".env", mode="replace")\n'
    guarded.step("x\n", "TOKEN=\n", "y\n", control=control)
    assert guarded.plan("write_file", path="n.txt").refusal == ""
    assert "hunter2" not in await guarded.call("write_file", path="n.txt")
