"""Labels that start work and labels that set the permission of a run, one of each, through the whole service."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import Issue, LocalHub
from tests.pauses import ASKING, REACHED
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually


async def label(stage: Stage, thread: Issue, name: str) -> None:
    """Set a label, and wait until the bot has handled it."""
    stage.hub.add_label(stage.repo, thread.number, name, by="mona")
    end = await stage.end_after("issues" if thread.pull is None else "pull_request", "labeled")
    assert end.state is JobState.DONE, end


async def test_the_start_label_starts_a_fix(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        thread = stage.issue()
        await label(stage, thread, "codepilot")
        [status] = stage.bot_comments(thread.number)
        assert COMPLETION in status
        assert "for @mona" in status
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_an_issue_that_is_assigned_to_the_bot_starts_a_fix(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()
        hub.assign(stage.repo, issue.number, stage.app.bot.login, by="mona")
        assert (await stage.end_after("issues", "assigned")).state is JobState.DONE
        [work] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        end = await stage.ended(work.job.id)
        assert COMPLETION in end.status
        assert "for @mona" in end.status


async def test_the_label_auto_lets_a_run_make_a_command_that_would_wait_otherwise(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = stage.pull()
        await label(stage, thread, "codepilot:auto")
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert "`sh check.sh` | passed" in end.status


async def test_the_label_ask_makes_a_run_ask_although_the_operator_would_not(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], network=REACHED) as stage:
        thread = stage.pull()
        await label(stage, thread, "codepilot:ask")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "permission: `ask`" in stage.bot_comments(thread.number)[0]


async def test_the_label_read_only_leaves_only_verbs_that_read(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, ["```completion\nIt adds.\n```\n"]) as stage:
        thread = stage.pull()
        await label(stage, thread, "codepilot:auto")
        await label(stage, thread, "codepilot:read-only")
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "I change nothing here, because the label `codepilot:read-only` is set." in end.status
        assert stage.providers == []
        end = await stage.ask(thread.number, "/codepilot explain")
        assert end.state is JobState.DONE
        assert "It adds." in end.status


async def test_the_removal_of_the_app_stops_a_running_job_whose_patch_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await eventually(lambda: len(stage.events) > 0)
        await eventually(lambda: (stage.files_of(job_id) / "calc.py").read_text() == FIXED_CALC)
        hub.uninstall(hub.install(stage.app, stage.repo), by="mona")
        end = await stage.end_of(command)
        assert end.state is not JobState.DONE, end
        assert stage.nothing_published()
        assert stage.pulls() == []
        assert "+    return a + b\n" in (stage.data / "patches" / f"{job_id}.patch").read_text(encoding="utf-8")


async def test_the_label_of_a_maintainer_lets_a_run_work_on_a_fork_and_nothing_is_pushed(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.add_user("forker")
        fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        hub.commit(fork, {"topic.txt": "x\n"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
        await label(stage, pull, "codepilot:auto")
        branches = hub.branches(stage.repo), hub.branches(fork)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "Nothing is pushed to a fork: the patch is kept." in end.status
        assert (hub.branches(stage.repo), hub.branches(fork)) == branches
        assert "+    return a + b\n" in (stage.data / "patches" / f"{end.job_id}.patch").read_text(encoding="utf-8")
