"""Control groups on a tree of plain files; needs no delegating kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_runtime.sandbox.limits import Cgroup, find_delegated_tree
from agent_runtime.sandbox.protocol import SandboxLimits

LIMITS = SandboxLimits(memory_bytes=2 << 30, processes=100)


class Tree:
    """A delegated cgroup with the service's subgroup, as from systemd."""

    def __init__(self, root: Path) -> None:
        self.mount = root / "cgroup"
        self.part = self.mount / "system.slice" / "codepilot.service"
        (self.part / "bot").mkdir(parents=True)
        self.own = root / "own"
        self.own.write_text("1:name=systemd:/\n0::/system.slice/codepilot.service/bot\n")
        (self.part / "cgroup.procs").write_text("")
        (self.part / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (self.part / "cgroup.subtree_control").write_text("")

    def delegated(self) -> Path | None:
        return find_delegated_tree(self.mount, self.own)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Path.mkdir

    def as_the_kernel_makes_it(self: Path) -> None:
        made(self)
        (self / "cgroup.procs").touch()
        (self / "memory.swap.max").touch()

    found = Tree(tmp_path)
    monkeypatch.setattr(Path, "mkdir", as_the_kernel_makes_it)
    return found


def test_a_part_of_our_own_gets_its_controllers(tree: Tree) -> None:
    assert tree.delegated() == tree.part
    assert (tree.part / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_a_part_with_processes_in_it_is_none(tree: Tree) -> None:
    (tree.part / "cgroup.procs").write_text("1\n")
    assert tree.delegated() is None


def test_a_part_without_a_controller_is_none(tree: Tree) -> None:
    (tree.part / "cgroup.controllers").write_text("cpu memory")
    assert tree.delegated() is None


def test_the_top_of_the_tree_is_none(tree: Tree) -> None:
    tree.own.write_text("0::/\n")
    assert tree.delegated() is None


def test_a_system_with_the_first_version_only_is_none(tree: Tree) -> None:
    tree.own.write_text("4:memory:/x\n")
    assert tree.delegated() is None


def test_this_machine_answers_without_an_error() -> None:
    part = find_delegated_tree()
    assert part is None or part.is_dir()


def test_a_group_has_the_limits_and_no_swap(tree: Tree) -> None:
    group = Cgroup(tree.part, LIMITS)
    group.close_entrance()
    written = {each.name: each.read_text() for each in group.path.iterdir() if each.name != "cgroup.procs"}
    assert written == {
        "memory.max": str(2 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "100",
    }


def test_writing_to_the_entrance_enters_the_cgroup(tree: Tree) -> None:
    group = Cgroup(tree.part, LIMITS)
    os.write(group.entrance, b"0")
    group.close_entrance()
    group.close_entrance()
    assert (group.path / "cgroup.procs").read_text() == "0"


def test_the_kernels_figures_are_read(tree: Tree) -> None:
    group = Cgroup(tree.part, LIMITS)
    (group.path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (group.path / "memory.events").write_text("low 0\nmax 7\noom 1\noom_kill 0\n")
    assert group.cpu_seconds() == 1.5
    assert not group.has_oom_kill()
    (group.path / "memory.events").write_text("low 0\nmax 7\noom 1\noom_kill 3\n")
    assert group.has_oom_kill()
    group.kill()
    assert (group.path / "cgroup.kill").read_text() == "1"
    group.close_entrance()


def test_a_group_that_is_gone_was_not_out_of_memory(tree: Tree) -> None:
    group = Cgroup(tree.part, LIMITS)
    _empty(group.path)
    group.close_entrance()
    group.remove()
    assert not group.path.exists()
    assert not group.has_oom_kill()
    group.remove()


def test_groups_of_a_process_that_was_killed_are_removed_by_the_next_one(tree: Tree) -> None:
    for name in ("codepilot-1-1", "codepilot-1-2"):
        (tree.part / name).mkdir()
    _empty(tree.part / "codepilot-1-1")
    assert tree.delegated() == tree.part
    assert sorted(each.name for each in tree.part.iterdir() if each.is_dir()) == ["bot", "codepilot-1-2"]


def _empty(group: Path) -> None:
    """Remove the files, as the kernel does."""
    for file in group.iterdir():
        file.unlink()
