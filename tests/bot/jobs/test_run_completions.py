"""Texts and files of an agent that must not be published as they are, and runs that end in text alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_runtime import RunLimits
from bot.domain.job import JobState
from tests.bot.jobs.test_run_kept_work import NO_BRANCHES
from tests.fakes.agent import execute, reply, wait_for_test, write
from tests.seam import FIX, FIXED_CALC, NOTHING_LEFT, SECRET, open_seam
from tests.stage import FILES

TOKEN = "ghs_" + "Zx9" * 12


async def test_a_secret_in_the_completion_is_redacted_everywhere(tmp_path: Path) -> None:
    completion = f"Fixed with {SECRET} and {TOKEN}."
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), completion=completion)]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        [pull] = stage.pulls()
        [sha] = stage.bot_branches().values()
        for text in (end.status, pull.body or "", pull.title, stage.message(sha)):
            assert SECRET not in text
            assert TOKEN not in text
        assert "[redacted]" in end.status


@pytest.mark.parametrize(
    ("path", "content"), [("new.txt", SECRET), (f"{SECRET}.txt", "x")], ids=["content", "file name"]
)
async def test_a_secret_in_the_change_withholds_it(tmp_path: Path, path: str, content: str) -> None:
    async with open_seam(tmp_path, [reply(write(path, f"{content}\n"), completion="Done.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert "one of the bot's secrets" in end.status
        assert SECRET not in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []


async def test_a_secret_in_a_command_is_not_in_the_comment(tmp_path: Path) -> None:
    command = execute(f"echo {SECRET} {TOKEN}; sh check.sh", output="1 passed")
    script = [reply(write("calc.py", FIXED_CALC), command, completion="Done.")]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert "Checks the agent ran" in end.status
        for piece in (SECRET, SECRET[:12], TOKEN, TOKEN[:20]):
            assert piece not in end.status


async def test_mentions_references_and_commands_in_the_completion_are_made_inert(tmp_path: Path) -> None:
    completion = "Thanks @octo-team and @mona, fixes #9.\n\n/codepilot fix again\n\nSee evil/repo#3."
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), completion=completion)]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [pull] = stage.pulls()
        for text in (end.status, pull.body or ""):
            assert re.search(r"(?<!`)@octo-team", text) is None
            assert re.search(r"fixes #9", text, re.IGNORECASE) is None
            assert re.search(r"(?<!`)evil/repo#3", text) is None
            assert re.search(r"^/codepilot", text, re.MULTILINE) is None
            assert "@mona" in text
        assert sum((await stage.queue.counts()).values()) == 1


async def test_a_completion_of_one_endless_word_is_cut(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), completion="w" * 300_000)]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert len(stage.message(sha).splitlines()[0]) <= 72
        assert len(end.status) <= 65_536
        [pull] = stage.pulls()
        assert len(pull.body or "") <= 65_536


async def test_a_run_that_changes_nothing_ends_in_text_alone(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="The code is right; the issue is not.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "The code is right; the issue is not." in end.status
        assert "Not published" not in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []


@pytest.mark.parametrize("files", [FILES, NO_BRANCHES], ids=["branch", "patch"])
async def test_a_run_out_of_steps_keeps_its_work_and_opens_no_pull_request(
    tmp_path: Path, files: dict[str, str]
) -> None:
    script = [reply(write("calc.py", FIXED_CALC)), reply(execute("cat calc.py"))]
    async with open_seam(tmp_path, script, files=files, limits=RunLimits(max_steps=2)) as stage:
        issue = stage.issue()
        before = stage.head("main")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "not finished within 2 steps" in end.status
        assert "narrower goal" in end.status
        if files is NO_BRANCHES:
            assert "Not published" in end.status
            assert stage.nothing_published()
            assert "+    return a + b" in (stage.kept_patch(end.job_id) or "")
        else:
            [branch] = stage.bot_branches()
            assert branch == f"codepilot/issue-{issue.number}-{end.job_id}-wip"
            assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
            assert stage.head(f"{branch}^") == before
            assert "There is no pull request, because the run reached its step limit." in end.status
            assert f"The work so far is on the branch `{branch}`" in end.status
            assert f"/compare/{before}...{branch}" in end.status
        assert stage.pulls() == []
        assert stage.head("main") == before
        assert stage.nothing_left()


async def test_two_jobs_of_one_thread_run_one_after_the_other(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test()), *FIX], [NOTHING_LEFT], acknowledges=True) as stage:
        issue = stage.issue()
        first, second = (stage.say(issue.number, f"/codepilot fix {text}") for text in ("one", "two"))
        jobs = [await stage.job_of(command) for command in (first, second)]
        await stage.at_work()
        assert [await stage.state_of(job_id) for job_id in jobs] == [JobState.RUNNING, JobState.QUEUED]
        # The reaction to a command does not wait for its job.
        assert stage.reactions(second) == ["eyes"]
        await stage.let_go(jobs[0])
        assert (await stage.end_of(first)).state is JobState.DONE
        assert (await stage.end_of(second)).state is JobState.DONE
        assert len(stage.bot_comments(issue.number)) == 2
        assert len(stage.pulls()) == 1


async def test_jobs_of_two_threads_run_side_by_side(tmp_path: Path) -> None:
    script = [reply(wait_for_test()), *FIX]
    async with open_seam(tmp_path, script, script) as stage:
        commands = [stage.say(stage.issue().number, "/codepilot fix") for _ in range(2)]
        jobs = [await stage.job_of(command) for command in commands]
        await stage.at_work()
        assert [await stage.state_of(job_id) for job_id in jobs] == [JobState.RUNNING, JobState.RUNNING]
        for job_id in jobs:
            await stage.let_go(job_id)
        assert [(await stage.end_of(command)).state for command in commands] == [JobState.DONE, JobState.DONE]
        assert len(stage.pulls()) == 2
