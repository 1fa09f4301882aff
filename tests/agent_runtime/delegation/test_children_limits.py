"""Shares of what is left, and merges of what two have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_runtime import Delegation, Persona, Policy, Rule, RunLimits, SettingsError, Usage
from agent_runtime.core.errors import ToolError
from agent_runtime.delegation.children import Consumption, min_limits, share_limits
from agent_runtime.delegation.copies import changed_paths, plan_merge, render_diff
from agent_runtime.policy.policy import CallFacts, Denied, NeedsApproval, Permitted
from agent_runtime.workspace.files import Workspace, apply_changes
from agent_runtime.workspace.state import Manifest

LIMITS = RunLimits(max_steps=20, max_tokens=1_000, max_cost_usd=4.0, max_seconds=100)


def test_a_child_gets_a_share_of_the_unused_and_unreserved_limits() -> None:
    spent = Consumption(usage=Usage(input_tokens=200, cost_usd=1.0), steps=4, seconds=30)
    first = share_limits(LIMITS, spent, [], 0.5)
    assert (first.max_steps, first.max_tokens, first.max_cost_usd, first.max_seconds) == (8, 400, 1.5, 70)
    second = share_limits(LIMITS, spent, [(first, Usage())], 0.5)
    assert (second.max_tokens, second.max_cost_usd) == (200, 0.75)
    # What the first has used since is in the parent's usage, too, and is counted once.
    used = Usage(input_tokens=100, cost_usd=0.5)
    third = share_limits(LIMITS, Consumption(usage=spent.usage + used, steps=4, seconds=30), [(first, used)], 0.5)
    assert (third.max_tokens, third.max_cost_usd) == (200, 0.75)
    assert min_limits(RunLimits(max_steps=50, max_cost_usd=9), first).max_steps == 8
    assert min_limits(RunLimits(max_steps=50, max_cost_usd=9), first).max_cost_usd == 1.5


def test_where_a_price_is_not_known_tokens_count_as_money() -> None:
    found = share_limits(
        RunLimits(max_cost_usd=1.0), Consumption(usage=Usage(input_tokens=200_000, cost_usd=None)), [], 1.0
    )
    assert found.max_cost_usd == 0.5


@pytest.mark.parametrize(
    ("spent", "what"),
    [
        (Consumption(steps=20), "steps"),
        (Consumption(seconds=100), "seconds"),
        (Consumption(usage=Usage(input_tokens=1_000)), "tokens"),
        (Consumption(usage=Usage(cost_usd=4.0)), "US dollars"),
    ],
)
def test_without_anything_left_nothing_is_delegated(spent: Consumption, what: str) -> None:
    with pytest.raises(ToolError, match=f"no {what} of this run are left"):
        share_limits(LIMITS, spent, [], 0.5)


def test_a_persona_cannot_widen_its_parents_permissions() -> None:
    for rule in (Rule(decision="allow", tool="execute"), Rule(decision="ask", tool="execute")):
        with pytest.raises(SettingsError, match="must be a 'deny'"):
            Persona(name="p", denied=(rule,))
    with pytest.raises(SettingsError, match="share=2"):
        Delegation(share=2)


def test_rules_about_writes_decide_on_collected_files() -> None:
    call = CallFacts(tool="collect", paths=("src/a.py",), writes=True)
    denies = Policy(rules=(Rule(decision="deny", tool="write_file", paths=("src/**",)),))
    asks = Policy(rules=(Rule(decision="ask", tool="write_file"),))
    assert isinstance(denies.decide(call), Denied)
    assert isinstance(asks.decide(call), NeedsApproval)
    assert not denies.always_allows("collect")
    assert isinstance(Policy(denied_tools={"write_file": "reads only"}).decide(call), Denied)
    assert isinstance(Policy().decide(call), Permitted)
    assert isinstance(Policy(default="deny").decide(call), Denied)
    assert isinstance(Policy(default="deny").decide(CallFacts(tool="delegate")), Permitted)


def test_files_are_taken_whole_from_where_the_parent_has_them_as_they_were(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
        for name in ("same", "theirs", "both", "equal", "gone", "hidden"):
            (root / name).write_text("0")
    with Workspace(theirs) as child, Workspace(ours) as parent:
        base = Manifest.scan(child)
        for name, text in {"theirs": "1", "both": "1", "equal": "1", "new": "1", "taken": "1"}.items():
            (theirs / name).write_text(text)
        for name, text in {"both": "2", "equal": "1", "taken": "2"}.items():
            (ours / name).write_text(text)
        (theirs / "gone").unlink()
        (theirs / ".gitignore").write_text("hidden\n")  # is no reason to delete it elsewhere
        now = Manifest.scan(child)
        paths = changed_paths(base, now)
        merged = plan_merge(child, parent, base.entries, paths)
        assert [each.path for each in merged.writes] == [".gitignore", "gone", "new", "theirs"]
        assert [each.partition(": ")[0] for each in merged.conflicts] == ["both", "taken"]
        assert changed_paths(base, now, ["gone", "no"]) == ["gone"]


@pytest.mark.parametrize("mine", [b"text\n", b"\0binary", b"m" * 10_000_001])
def test_a_file_that_came_to_be_after_the_merge_was_worked_out_is_not_replaced(tmp_path: Path, mine: bytes) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    (theirs / "new").write_text("1")
    with Workspace(theirs) as child, Workspace(ours) as parent:
        merged = plan_merge(child, parent, {}, ["new"])
        (ours / "new").write_bytes(mine)
        with pytest.raises(ToolError, match="changed or removed by someone else"):
            apply_changes(parent, merged.writes)
    assert (ours / "new").read_bytes() == mine


async def test_a_name_cannot_break_a_line_or_be_refused_by_an_encoding(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    for name in (b"a\n--- other", b"b\xff", "c\u202e".encode()):
        (theirs / os.fsdecode(name)).touch()
    with Workspace(theirs) as child, Workspace(ours) as parent:
        now = Manifest.scan(child)
        names = changed_paths(Manifest({}), now)
        told = [*plan_merge(child, parent, {}, names).conflicts, (await render_diff(child, parent, names))[0]]
    assert len(told[-1].splitlines()) == 4
    assert all(each.isprintable() for each in [*told[:-1], *told[-1].splitlines(), *Manifest({}).difference(now)])


def test_beyond_a_bound_of_bytes_no_more_files_are_read(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    names = [f"f{number:02}" for number in range(20)]
    for name in names:
        with (theirs / name).open("wb") as file:  # takes no room on the disk
            file.truncate(10_000_000)
    (theirs / "f11").unlink()
    (theirs / "f11").mkdir()  # cannot be read, and is not
    with Workspace(theirs) as child, Workspace(ours) as parent:
        merged = plan_merge(child, parent, {}, names)
    assert [each.path for each in merged.writes] == names[:10]
    assert [each.partition(":")[0] for each in merged.conflicts] == ["f10 and the 9 files after it"]


def test_a_file_that_was_made_to_run_as_its_owner_is_only_made_executable(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    (theirs / "run").touch()
    (theirs / "run").chmod(0o6755)
    with Workspace(theirs) as child, Workspace(ours) as parent:
        assert [each.mode for each in plan_merge(child, parent, {}, ["run"]).writes] == [0o755]


def test_a_path_lies_beneath_the_directories_of_its_name_alone() -> None:
    now = Manifest({"a/b/c": "file 1", "a/bc": "file 1", "a-b": "file 1"})
    assert changed_paths(Manifest({}), now, ["a/b/"]) == ["a/b/c"]
    assert changed_paths(Manifest({}), now, ["a"]) == ["a/b/c", "a/bc"]
    assert changed_paths(Manifest({}), now, ["."]) == ["a-b", "a/b/c", "a/bc"]


async def test_lines_with_any_prefix_are_counted_but_not_in_binary_files(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    (ours / "notes.sql").write_text("-- one\n++ two\nthree\n")
    (theirs / "notes.sql").write_text("three\nfour\n")
    (theirs / "hidden.txt").write_text("a secret\n")
    (theirs / "picture.png").write_bytes(b"\x89PNG\0\xff")
    with Workspace(theirs) as child, Workspace(ours) as parent:
        text, lines = await render_diff(child, parent, ["hidden.txt", "notes.sql"], "hidden.txt".__eq__)
        assert lines == 4
        assert "secret" not in text
    with Workspace(theirs) as child, Workspace(ours) as parent:
        text, lines = await render_diff(child, parent, ["notes.sql", "picture.png"])
        assert lines is None
        assert "Binary files differ" in text
