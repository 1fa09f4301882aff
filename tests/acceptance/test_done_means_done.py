"""A finished run publishes what its commands made until their end, and nothing that a program still writes."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.git.change import Change
from bot.git.tree import Tree
from localhub import LocalHub
from tests.patches import applied
from tests.stage import FIXED_CALC, acting, staged

CODEMOD = "for n in 1 2 3 4 5 6 7 8; do for i in $(seq 3000); do :; done; echo $n > made$n.txt; done"
HOLD = "exec 9> held; flock 9"
"""Locks a file until every program has ended that was started afterwards."""
WRITERS = """
setsid sh -c 'while :; do echo >> noise.txt; done' &
(nohup env -i /bin/sleep 1001 > /dev/null 2>&1 &)
sleep 1002 &
"""


async def test_all_files_of_a_command_that_timed_out_are_published(hub: LocalHub, tmp_path: Path) -> None:
    control = f'execute("main", {CODEMOD!r}, timeout=0)'
    async with staged(hub, tmp_path, [acting(control, completion="I made the files.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        [sha] = stage.bot_branches().values()
        names = stage.git("diff", "--name-only", "main", sha).split()
        assert names == [f"made{number}.txt" for number in range(1, 9)]


async def test_no_program_lives_when_the_change_is_read(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, readings = Tree.change, list[int]()

    async def read_unlocked(tree: Tree, *options: Callable[[str], bool]) -> Change:
        with (tree.path / "held").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = (tree.path / "noise.txt").stat()
        change = await read(tree, *options)
        readings.append((tree.path / "noise.txt").stat().st_mtime_ns - before.st_mtime_ns)
        return change

    monkeypatch.setattr(Tree, "change", read_unlocked)
    control = "\n".join(
        f'execute("main", {command!r})' for command in (HOLD, WRITERS, "until [ -s noise.txt ]; do :; done")
    )
    async with staged(hub, tmp_path, [acting(control, completion="They run.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert readings == [0]
        for program in ("`sh -c while :; do echo >> noise.txt; done`", "`sleep 1002`"):
            assert program in end.status
        assert "still ran and were ended before the change was read" in end.status


async def test_leftovers_are_left_out_unless_the_agent_wrote_them_with_its_tool(hub: LocalHub, tmp_path: Path) -> None:
    made = "mkdir -p node_modules; touch .coverage node_modules/made.js; echo x > calc.py.orig"
    control = f'execute("main", {made!r}, check=True)\nwrite_file("./node_modules/kept.js")'
    async with staged(hub, tmp_path, [acting(control, "kept\n", completion="Added a module.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [sha] = stage.bot_branches().values()
        assert stage.git("diff", "--name-only", "main", sha) == "node_modules/kept.js"
        assert "tools leave such files: `.coverage`, `calc.py.orig`, `node_modules/`." in end.status
        clone = applied(stage, end.job_id)
        assert (clone / "calc.py.orig").read_text() == "x\n"


async def test_a_fix_beside_a_huge_file_and_ten_thousand_small_ones_is_published(hub: LocalHub, tmp_path: Path) -> None:
    made = "truncate -s 110M big.bin; mkdir out; seq 10050 | split -l 1 -a 4 - out/x"
    control = (
        f'write_file("calc.py")\nexecute("main", {made!r}, check=True)\nexecute("main", "sh check.sh", check=True)'
    )
    async with staged(hub, tmp_path, [acting(control, FIXED_CALC, completion="Fixed it.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [sha] = stage.bot_branches().values()
        assert stage.git("diff", "--name-only", "main", sha) == "calc.py"
        for note in ("`big.bin` (110 MiB)", "10,050 in `out/`"):
            assert note in end.status
