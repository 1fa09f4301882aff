"""Defaults of organisations, and repositories that are renamed, transferred or replaced under a running job."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.stage import BUG, COMPLETION, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

DONE = "```completion\nIt adds.\n```\n"


def run_with(*expected: str) -> list[ScriptedReply]:
    """A run of one step whose task holds these texts."""
    return [ScriptedReply(text=DONE, expect=expected)]


def organisation(stage: Stage, text: str) -> None:
    """The defaults of who owns the repository."""
    defaults = stage.hub.add_repo("mona/.github", owner="mona", files={"codepilot.yml": text})
    stage.hub.install(stage.app, defaults)


async def test_the_organisations_defaults_hold_where_the_repository_says_nothing(hub: LocalHub, tmp_path: Path) -> None:
    script = run_with("Write your completion in German.", "Explain what is asked below")
    async with staged(hub, tmp_path, script) as stage:
        organisation(stage, "language: German\nbare_issue: explain\n")
        end = await stage.ask(stage.issue().number, "/codepilot the sum")
        assert end.state is JobState.DONE, end


async def at_work(stage: Stage) -> tuple[Comment, str]:
    """A fix that has changed its file and waits for the file `go`, and its job."""
    command = stage.say(stage.issue().number, "/codepilot fix")
    job_id = await stage.job_of(command)
    changed = stage.files_of(job_id) / "calc.py"
    await eventually(lambda: (changed.exists() and changed.read_text() == FIXED_CALC) or None, within=60)
    return command, job_id


CHANGES_AND_WAITS = [
    acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC),
    f"```completion\n{COMPLETION}\n```\n",
]


def is_kept(stage: Stage, job_id: str) -> bool:
    """Return whether the host keeps the change."""
    patch = stage.data / "patches" / f"{job_id}.patch"
    return patch.exists() and "+    return a + b\n" in patch.read_text(encoding="utf-8")


async def test_a_repository_that_is_renamed_meanwhile_goes_on_under_its_new_name(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, CHANGES_AND_WAITS) as stage:
        command, job_id = await at_work(stage)
        hub.rename(stage.repo, "calculator", by="mona")
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert "mona/calculator" in end.status
        [pull] = stage.pulls()
        assert pull.pull is not None
        renamed = hub.repo("mona/calculator")
        assert hub.branches(renamed)[pull.pull.head_ref]


async def test_a_repository_that_is_transferred_meanwhile_is_left_alone_and_the_work_is_kept(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, CHANGES_AND_WAITS) as stage:
        command, job_id = await at_work(stage)
        before = hub.branches(stage.repo)
        hub.transfer(stage.repo, "elsewhere", by="mona")
        (stage.files_of(job_id) / "go").touch()
        end = await stage.end_of(command)
        assert hub.branches(hub.repo("elsewhere/calc")) == before
        assert stage.pulls() == []
        assert is_kept(stage, job_id)
        assert end.state is JobState.FAILED, end


async def test_a_repository_that_was_replaced_is_not_touched(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, CHANGES_AND_WAITS) as stage:
        _, job_id = await at_work(stage)
        hub.rename(stage.repo, "calculator", by="mona")
        other = hub.add_repo("mona/calc", owner="mona", files={"calc.py": BUG})
        hub.install(stage.app, other)
        hub.open_issue(other, author="mona", title="Another's", body="")
        before = hub.branches(other)
        await stage.let_go(job_id)
        await stage.ended(job_id)
        assert hub.branches(other) == before
        assert hub.issues(other)[1:] == []
        assert hub.comments(other, 1) == []
        assert is_kept(stage, job_id)
