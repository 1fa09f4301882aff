"""At the level `ask`: a run waits for a person at a command that is on no list, and goes on at that very call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_service_process import Site, site
from tests.pauses import (
    ASKING,
    REACHED,
    buttons_of,
    check_of,
    paused_fix,
    still_waits,
)
from tests.stage import COMPLETION, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

RAN = 'execute("main", "echo ran >> ran.txt")'
ASKS = acting(f'write_file("calc.py")\n{RAN}', FIXED_CALC, completion=COMPLETION)
"""One step: a write that needs no approval, then a command that does; nothing more is asked of the model."""
NOTHING_LEFT = "```completion\nNothing left to do.\n```\n"


def _asking(ready: Site) -> Site:
    asking = {"CODEPILOT_LEVEL": "ask", "CODEPILOT_NETWORK": str(REACHED)}
    return replace(ready, variables={**ready.variables, **asking})


def _ran_once(stage: Stage) -> None:
    """One comment, one pull request, and in it what the approved command did, once."""
    [(branch, sha)] = stage.bot_branches().items()
    assert stage.file(sha, "ran.txt") == "ran"
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.git("rev-list", "--count", f"main..{branch}") == "1"
    assert len(stage.pulls()) == 1


async def test_an_approval_continues_the_run_at_the_call_which_is_made_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await paused_fix(stage, issue.number)
        approval = stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        _ran_once(stage)
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert "Waiting for you" not in status
        # The first leg's work is told, too.
        assert "1 step" in status
        await stage.end_of(approval)
        assert stage.reactions(approval) == ["+1"]
        assert [each.remaining for each in stage.providers] == [0, 0]
        assert stage.nothing_left()
        # Nothing was verified, for nothing was changed by a test, a build or a linter.
        assert check_of(stage, pause.job_id).conclusion == "neutral"


async def test_the_workers_are_free_while_runs_wait(hub: LocalHub, tmp_path: Path) -> None:
    others = [NOTHING_LEFT]
    async with staged(hub, tmp_path, [ASKS], [ASKS], [ASKS], others, operator=ASKING) as stage:
        # The stage works on two jobs at once.
        for _ in range(3):
            await paused_fix(stage, stage.issue().number)
        free = stage.issue()
        end = await stage.ask(free.number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert "Nothing left to do." in end.status


async def test_two_approvals_at_the_same_moment_count_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await paused_fix(stage, issue.number)
        answers = [
            stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=author)
            for author in ("mona", "rita", "mona")
        ]
        ends = [await stage.end_of(each) for each in answers]
        assert (await stage.end_of(command)).state is JobState.DONE
        assert [each.state for each in ends].count(JobState.DONE) == 1, ends
        assert [each.state for each in ends].count(JobState.REFUSED) == 2, ends
        _ran_once(stage)


async def test_an_approval_outlives_the_service(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as first:
        issue = first.issue()
        command, pause = await paused_fix(first, issue.number)
    async with staged(hub, tmp_path, [], operator=ASKING, after=first) as second:
        assert await still_waits(second, pause)
        second.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await second.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        _ran_once(second)
        assert len(second.bot_comments(issue.number)) == 1
        assert second.nothing_left()


async def test_buttons_do_what_comments_do(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        command, pause = await paused_fix(stage, stage.issue().number)
        check = check_of(stage, pause.job_id)
        hub.press(check, buttons_of(check)["Approve"], by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        _ran_once(stage)


@pytest.mark.slow
async def test_an_approval_outlives_a_service_that_was_killed(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path, script=[{"reply": ASKS}]) as ready:
        here = _asking(ready)
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as first:
            command, pause = await paused_fix(stage, issue.number)
            await first.kill()
        async with here.serving() as second:
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
            end = await stage.end_of(command)
            assert (end.state, end.job_id) == (JobState.DONE, pause.job_id), second.log.read_text()
            _ran_once(stage)
            assert len(stage.bot_comments(issue.number)) == 1
            assert stage.nothing_left()


@pytest.mark.slow
async def test_a_service_killed_at_an_approved_call_makes_it_no_second_time_unasked(
    hub: LocalHub, tmp_path: Path
) -> None:
    waits = 'execute("main", "echo ran >> ran.txt; until [ -e go ]; do sleep 0.02; done; rm go")'
    script = [{"reply": acting(waits)}, {"reply": NOTHING_LEFT}]
    async with site(hub, tmp_path, script=script) as ready:
        here = _asking(ready)
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as first:
            command, pause = await paused_fix(stage, issue.number)
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
            await eventually((stage.files_of(pause.job_id) / "ran.txt").exists, within=60)
            await first.kill()
        (tmp_path / "script.yaml").write_text(yaml.safe_dump([{"reply": NOTHING_LEFT}]))
        async with here.serving() as second:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, second.log.read_text()
            [sha] = stage.bot_branches().values()
            assert stage.file(sha, "ran.txt") == "ran"
