"""Merging the base branch into a pull request, with git and a sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.origin import git
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


SIDES = {
    "before": r"""
printf '1\n2\n3\n' >content.py; printf '1\n2\n' >gone.py; seq 20 >old.py; printf '\0\1' >logo.bin
printf '{\n"a": "1.0"\n}\n' >package-lock.json; git update-index --add --cacheinfo 160000,%s,sub
""",
    "topic": r"""
printf '1\nours\n3\n' >content.py; printf 'ours\n' >new.py; printf '1\nours\n' >gone.py; git mv old.py ours.py
printf '\0\2' >logo.bin; printf '{\n"a": "1.1"\n}\n' >package-lock.json; printf 'true\n' >tool.sh; chmod 755 tool.sh
git update-index --add --cacheinfo 160000,%s,sub
""",
    "main": r"""
printf '1\ntheirs\n3\n' >content.py; printf 'theirs\n' >new.py; git rm --quiet gone.py; git mv old.py theirs.py
printf '\0\3' >logo.bin; printf '{\n"a": "1.2"\n}\n' >package-lock.json; printf 'true\n' >tool.sh
git update-index --add --cacheinfo 160000,%s,sub
""",
}
KINDS = {"content", "add/add", "modify/delete", "rename/rename", "binary", "mode"}
BY_HAND = r"""
printf '1\nours\ntheirs\n3\n' >content.py; printf 'ours\ntheirs\n' >new.py; rm gone.py ours.py; printf '\0\4' >logo.bin
git show :3:package-lock.json >package-lock.json; chmod 644 tool.sh
"""


async def test_all_kinds_of_conflicts_are_resolved_as_by_a_person(hub: LocalHub, tmp_path: Path) -> None:
    resolve = acting(
        f"execute(\"main\", r'''{BY_HAND}''', check=True)", completion="- sub: this branch needs its own version"
    )
    async with staged(hub, tmp_path, [resolve]) as stage:
        clone, person = tmp_path / "clone", tmp_path / "person"
        git(tmp_path, "clone", "--quiet", str(stage.repo.path), str(clone))
        for number, (branch, script) in enumerate(SIDES.items()):
            if branch != "before":
                git(clone, "checkout", "--quiet", "-B", branch, "before")
            sh(clone, script % (str(number + 1) * 40))
            git(clone, "add", "--all", "--", ":!sub")
            git(clone, "commit", "--quiet", "--message", branch)
            if branch == "before":
                git(clone, "branch", "before")
        git(clone, "push", "--quiet", "origin", "main", "topic")
        number = hub.open_pull(stage.repo, author="mona", head="topic", title="Topic").number
        git(tmp_path, "clone", "--quiet", "--branch=topic", str(stage.repo.path), str(person))
        head, base = git(person, "rev-parse", "HEAD"), git(person, "rev-parse", "origin/main")
        with pytest.raises(subprocess.CalledProcessError):
            git(person, "merge", "--no-edit", "origin/main")
        sh(person, BY_HAND)
        git(person, "update-index", "--cacheinfo", f"160000,{'2' * 40},sub")
        git(person, "add", "--all")
        git(person, "commit", "--quiet", "--no-edit")
        end = await stage.ask(number, RESOLVE)
        assert end.state is JobState.DONE, end.status
        assert parents(stage) == [head, base]
        assert stage.git("rev-parse", "topic^{tree}") == git(person, "rev-parse", "HEAD^{tree}")
    for kind in KINDS:
        assert f"({kind})" in end.status
    assert "`sub` (submodule" in end.status


def sh(folder: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, env={"PATH": os.defpath})


async def test_the_bases_workflow_files_need_no_permission(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [], files=CHECK) as stage:
        number, head, base = diverge(hub, stage, ours=FILES["calc.py"])
        hub.permit(stage.installation, dict.fromkeys(("contents", "issues", "pull_requests", "checks"), "write"))
        end = await stage.ask(number, RESOLVE)
        assert end.state is JobState.DONE, end.status
        assert parents(stage) == [head, base]
        assert "on: push" in stage.file("topic", ".github/workflows/ci.yml")
    assert "no agent ran" in end.status
