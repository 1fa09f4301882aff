"""`--candidates`: several attempts at one fix, of which the best is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import ChildWatched, MessageQueued, TaskManager, ToolCalled, UsageError
from agent_runtime.core.events import Live
from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.sandboxes import processes_with
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

CHECK = 'execute("main", "sh check.sh", check=True)'
LONG = acting(
    f'write_file("calc.py")\nwrite_file("notes.md")\n{CHECK}',
    FIXED_CALC,
    "One.\nTwo.\n",
    completion="Fixed, with notes.",
)
UNCHECKED = acting('write_file("README.md")', "# Calculator\n", completion="I changed the title.")
WAITS = acting(WAIT_FOR_GO)
SLOW = acting('write_file("calc.py")\nexecute("main", "sleep 100", timeout=100)', FIXED_CALC)


def attempts(stage: Stage, *, kind: type[Live], number: int = 1) -> set[str]:
    """The attempts that have told of an event, or made a call of this number."""
    seen = [(each.task, each.event) for each in stage.events if isinstance(each, ChildWatched)]
    return {task for task, event in seen if isinstance(event, kind) and getattr(event, "number", number) == number}


async def test_the_attempt_whose_checks_pass_and_whose_change_is_smallest_is_published(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [LONG, FIX, UNCHECKED]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --candidates 3")
        assert end.state is JobState.DONE, end
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.git("diff", "--name-only", "main", branch) == "calc.py"
        assert COMPLETION in end.status
        assert "<details><summary>3 attempts</summary>" in end.status
        [taken] = [line for line in end.status.splitlines() if line.startswith("- **Attempt") and ", selected" in line]
        assert "finished, verified, 1 file, 2 lines" in taken
        assert "I changed the title." in end.status
        assert "Fixed, with notes." in end.status
        await eventually(lambda: stage.nothing_left() or None)


async def test_stop_ends_all_attempts_and_keeps_the_work_of_one(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SLOW, SLOW]) as stage:
        number = stage.issue().number
        asked = stage.say(number, "/codepilot fix --candidates 9")
        await eventually(lambda: len(attempts(stage, kind=ToolCalled, number=2)) == 2 or None, within=30.0)
        stage.say(number, "/codepilot stop")
        end = await stage.end_of(asked)
        assert end.state is JobState.STOPPED, end
        assert "9 candidates exceed the limit here; they were reduced to 3." in end.status
        [branch] = stage.bot_branches()  # as for every work that is stopped
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert not stage.pulls()


async def test_the_rest_of_an_attempt_with_a_very_large_file_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    large = acting('write_file("calc.py")\nexecute("main", "head -c 11000000 /dev/zero > data.bin")', FIXED_CALC)
    async with staged(hub, tmp_path, [large, large]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --candidates 2")
        assert end.state is JobState.FAILED, end
        assert "No attempt made a change that could be used as a whole." in end.status
        assert "data.bin" in end.status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_message_reaches_every_attempt(hub: LocalHub, tmp_path: Path) -> None:
    told = ScriptedReply(text=FIX, expect=("@mona says, while you work: keep it short",))
    async with staged(hub, tmp_path, [WAITS, WAITS, told, told]) as stage:
        number = stage.issue().number
        asked = stage.say(number, "/codepilot fix --candidates 2")
        await eventually(lambda: len(attempts(stage, kind=ToolCalled)) == 2 or None, within=30.0)
        stage.say(number, "/codepilot continue keep it short")
        await eventually(lambda: len(attempts(stage, kind=MessageQueued)) == 2 or None, within=30.0)
        for place in stage.directory.rglob("codepilot-task-*/workspace"):
            (place / "go").touch()
        end = await stage.end_of(asked)
        assert end.state is JobState.DONE, end
        assert end.status.count("finished, verified") == 2, end.status


async def test_where_no_attempt_can_be_started_stop_ends_the_one_that_is_made_instead(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> str:
        raise UsageError("the workspace is too large")

    monkeypatch.setattr(TaskManager, "start_task", refuse)
    marker = f"marker-{tmp_path.name}"
    runs = acting(f'execute("main", "sh -c \'sleep 600; true\' {marker}")')
    async with staged(hub, tmp_path, [runs]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix --candidates 2")
        await eventually(lambda: len(processes_with(marker)) > 0, within=60)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "I made one attempt instead of several candidates: the workspace is too large" in end.status
        assert not processes_with(marker)
