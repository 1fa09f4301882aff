"""Jobs whose set-up, commands and checks need a git repository around the files."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_red_ci import fail_run
from tests.bot.jobs.test_run_red_ci import FIX_ONLY
from tests.stage import COMPLETION, FILES, FIX, acting, staged

VERSION = f"PYTHONPATH={sysconfig.get_path('purelib')} python3 -m setuptools_scm"
PROJECT = {
    **FILES,
    "pyproject.toml": '[build-system]\nrequires = ["setuptools", "setuptools-scm"]\n[tool.setuptools_scm]\n',
    ".gitignore": "version.txt\n",
    ".github/codepilot.yml": f"setup:\n  - {VERSION} > version.txt\n",
}
DRIFT = "sh generate.sh && git diff --exit-code"
GENERATED = {
    **FIX_ONLY,
    "generate.sh": "tr a-z A-Z <words.txt >generated.txt\n",
    "words.txt": "one\ntwo\n",
    "generated.txt": "ONE\n",
}


async def test_set_up_finds_the_version_in_the_tags(hub: LocalHub, tmp_path: Path) -> None:
    show = acting('execute("main", "cat version.txt; git describe --tags; git status --short")')
    async with staged(
        hub,
        tmp_path,
        [show, ScriptedReply(text=FIX, expect=("1.2.1.dev1+g", "v1.2.0-1-g"))],
        files=PROJECT,
        operator={"toolchains": (Path(sys.prefix),)},
    ) as stage:
        stage.git("tag", "v1.2.0", "main")
        hub.commit(stage.repo, {"more.txt": "1\n"}, message="Add more", author="mona", branch="main")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end.status
        [branch] = stage.bot_branches().values()
        assert stage.git("diff", "--name-only", "main", branch) == "calc.py"
    assert "Setup failed" not in end.status


async def test_a_pull_request_is_compared_with_its_base(hub: LocalHub, tmp_path: Path) -> None:
    look = acting('execute("main", "git log --format=%s origin/main..; git diff --name-only origin/main...")')
    fix = ScriptedReply(text=FIX, expect=("Add a topic", "topic.txt"))
    async with staged(hub, tmp_path, [look, fix]) as stage:
        number = stage.pull().number
        hub.commit(stage.repo, {"more.txt": "1\n"}, message="Go on", author="mona", branch="main")
        end = await stage.ask(number, "/codepilot fix")
    assert end.state is JobState.DONE, end.status


async def test_a_drift_check_is_reproduced_fixed_and_proven(hub: LocalHub, tmp_path: Path) -> None:
    see = acting(f'execute("main", "{DRIFT}", check=True)')
    fix = acting(
        f'execute("main", "git commit --quiet --all --message Generate; {DRIFT}", check=True)', completion=COMPLETION
    )
    async with staged(hub, tmp_path, [see, fix], files=GENERATED) as stage:
        stage.pull()
        end = await fail_run(stage)
        assert end.state is JobState.DONE, end.status
        assert f"**Proof:** `{DRIFT}` ended with exit code 1 before the change and with exit code 0 after" in end.status
        assert stage.git("diff", "--name-only", "topic^", "topic") == "generated.txt"
        assert stage.file("topic", "generated.txt") == "ONE\nTWO"
        assert "Generate" not in stage.git("log", "--format=%B", "topic")


async def test_a_repository_that_hides_the_drift_proves_nothing(hub: LocalHub, tmp_path: Path) -> None:
    see = acting(f'execute("main", "{DRIFT}", check=True)')
    hide = acting(
        'execute("main", "echo 1 >done.txt; git update-index --assume-unchanged generated.txt")\n'
        f'execute("main", "{DRIFT}", check=True)\nexecute("main", "echo ONE >generated.txt")',
        completion=COMPLETION,
    )
    async with staged(hub, tmp_path, [see, hide], files=GENERATED) as stage:
        stage.pull()
        head = hub.branches(stage.repo)["topic"]
        end = await fail_run(stage)
        assert "and with exit code 1 after it, run again by the bot in a fresh sandbox" in end.status
        assert hub.branches(stage.repo)["topic"] == head
