"""Merging the base branch into a pull request, with git and a sandbox."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import FILES, Stage, acting, staged

RESOLVE = "/codepilot resolve"
OURS = "def add(a, b):\n    return a + b + 2\n"
THEIRS = "def add(x, y):\n    return x + y + 1\n"
BOTH = "def add(x, y):\n    return x + y + 2\n"
CHECK = {**FILES, "check.sh": "if grep -q '<<<<<<<\\|>>>>>>>' calc.py; then exit 1; fi; echo 1 passed\n"}
EDIT = acting(
    'write_file("calc.py")\nexecute("main", "sh check.sh", check=True)', BOTH, completion="- calc.py: both changes"
)


def diverge(hub: LocalHub, stage: Stage, *, ours: str = OURS) -> tuple[int, str, str]:
    """Change a file on both sides of a pull request; return its number and the commits."""
    number = stage.pull().number
    if ours != FILES["calc.py"]:
        hub.commit(stage.repo, {"calc.py": ours}, message="Add two", author="mona", branch="topic")
    workflow = {".github/workflows/ci.yml": "on: push\njobs: {}\n"}
    hub.commit(stage.repo, {"calc.py": THEIRS, **workflow}, message="Rename", author="mona", branch="main")
    return number, stage.git("rev-parse", "topic"), stage.git("rev-parse", "main")


def parents(stage: Stage) -> list[str]:
    return stage.git("show", "--no-patch", "--format=%P", "topic").split()


async def test_a_conflict_is_resolved_in_the_middle_of_gits_merge(hub: LocalHub, tmp_path: Path) -> None:
    look = acting('execute("main", "git status; git show :1:calc.py; git show :2:calc.py; git show :3:calc.py")')
    seen = ("You have unmerged paths.", "both modified:   calc.py", "a + b + 1", "a + b + 2", "x + y + 1")
    finish = ScriptedReply(text=EDIT, expect=seen)
    async with staged(hub, tmp_path, [look, finish], files=CHECK) as stage:
        number, head, base = diverge(hub, stage)
        end = await stage.ask(number, f"{RESOLVE} keep the new names")
        assert end.state is JobState.DONE, end.status
        assert parents(stage) == [head, base]
        assert stage.file("topic", "calc.py") == BOTH.strip()
        assert stage.git("diff", "--name-only", "main", "topic").split() == ["calc.py", "topic.txt"]
    assert "Conflicts: `calc.py` (content)." in end.status


async def test_the_bases_workflow_files_need_no_permission(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [], files=CHECK) as stage:
        number, head, base = diverge(hub, stage, ours=FILES["calc.py"])
        hub.permit(stage.installation, dict.fromkeys(("contents", "issues", "pull_requests", "checks"), "write"))
        end = await stage.ask(number, RESOLVE)
        assert end.state is JobState.DONE, end.status
        assert parents(stage) == [head, base]
        assert "on: push" in stage.file("topic", ".github/workflows/ci.yml")
    assert "no agent ran" in end.status
