"""How much work there is at most, and that everybody who is refused some hears why, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.access import Caps, TrustedBots
from bot.domain.job import TRANSITIONS, JobState
from localhub import LocalHub
from tests.stage import FILES, WAIT_FOR_GO, acting, staged
from tests.waiting import eventually

DONE = ["```completion\nNothing to do.\n```\n"]


async def test_a_thread_gets_so_much_work_an_hour_and_is_told_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, *[DONE] * 9, operator={"caps": Caps(thread=2)}) as stage:
        issue = stage.issue()
        for _ in range(2):
            assert (await stage.ask(issue.number, "/codepilot ask why?")).state is JobState.DONE
        third = await stage.ask(issue.number, "/codepilot ask why?")
        assert await stage.refusal(third) == "cap-thread"
        assert "`CODEPILOT_CAPS=thread=…`" in third.status
        said = stage.bot_comments(issue.number)
        assert len(said) == 3
        again = stage.say(issue.number, "/codepilot ask why?")
        assert (await stage.end_of(again)).state is JobState.REFUSED
        assert "confused" in stage.reactions(again)
        assert stage.bot_comments(issue.number) == said
        assert len(stage.providers) == 2
        # What is no work is still answered, and another thread has its own share.
        assert (await stage.ask(issue.number, "/codepilot help")).state is JobState.DONE
        assert (await stage.ask(stage.issue().number, "/codepilot ask why?")).state is JobState.DONE


async def test_a_user_gets_so_much_work_an_hour_whatever_the_thread(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, *[DONE] * 9, operator={"caps": Caps(user=2)}) as stage:
        hub.add_collaborator(stage.repo, "anna", "write")
        threads = [stage.issue().number for _ in range(4)]
        for number in threads[:2]:
            assert (await stage.ask(number, "/codepilot ask why?")).state is JobState.DONE
        for number in threads[2:]:
            end = await stage.ask(number, "/codepilot ask why?")
            assert await stage.refusal(end) == "cap-user"
            assert "mona" in end.reason
        assert (await stage.ask(threads[2], "/codepilot ask why?", author="anna")).state is JobState.DONE
        assert len(stage.providers) == 3


@pytest.mark.parametrize("scope", ["repository", "installation"])
async def test_all_of_a_repository_and_all_of_an_installation_get_so_much_work_an_hour(
    hub: LocalHub, tmp_path: Path, scope: str
) -> None:
    async with staged(hub, tmp_path, DONE, operator={"caps": Caps(**{scope: 1})}) as stage:
        hub.add_collaborator(stage.repo, "anna", "write")
        assert (await stage.ask(stage.issue().number, "/codepilot ask why?")).state is JobState.DONE
        end = await stage.ask(stage.issue().number, "/codepilot ask why?", author="anna")
        assert await stage.refusal(end) == f"cap-{scope}"


async def test_a_refusal_is_told_once_a_cause_and_thread(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue, other = stage.issue(), stage.issue()
        for number in (issue.number, other.number):
            for _ in range(3):
                assert (await stage.ask(number, "/codepilot review")).state is JobState.REFUSED
            assert len(stage.bot_comments(number)) == 1
            # Another cause is another word.
            end = await stage.ask(number, "/codepilot ask --model none why?")
            assert "is not offered here" in end.status
            assert len(stage.bot_comments(number)) == 2


async def test_a_trusted_bot_is_stopped_until_a_person_asks_again(hub: LocalHub, tmp_path: Path) -> None:
    robot = hub.add_user("robot[bot]", kind="Bot")
    operator = {"caps": Caps(unattended=2), "trusted_bots": TrustedBots(logins=frozenset({robot.login}))}
    async with staged(hub, tmp_path, *[DONE] * 9, operator=operator) as stage:
        issue = stage.issue()
        for _ in range(2):
            assert (await stage.ask(issue.number, "/codepilot ask why?", author=robot.login)).state is JobState.DONE
        end = await stage.ask(issue.number, "/codepilot ask why?", author=robot.login)
        assert end.state is JobState.REFUSED
        assert "I have worked 2 times in this thread without a command from a person," in end.reason
        assert len(stage.providers) == 2
        assert (await stage.ask(issue.number, "/codepilot ask why?")).state is JobState.DONE
        assert (await stage.ask(issue.number, "/codepilot ask why?", author=robot.login)).state is JobState.DONE


async def test_a_comment_that_says_that_a_command_waits_does_not_go_on_saying_so_when_that_is_refused(
    hub: LocalHub, tmp_path: Path
) -> None:
    first_run = [acting(WAIT_FOR_GO), *DONE]
    async with staged(hub, tmp_path, first_run, DONE, operator={"caps": Caps(thread=2)}) as stage:
        issue = stage.issue()
        first = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        await stage.at_work()
        later = [stage.say(issue.number, "/codepilot ask why?") for _ in range(3)]

        def wait() -> bool:
            return sum("Waiting its turn" in each for each in stage.bot_comments(issue.number)) == len(later)

        assert await eventually(wait)
        await stage.let_go(first)
        assert (await stage.end_of(later[0])).state is JobState.DONE
        for each in later[1:]:
            end = await stage.end_of(each)
            assert end.state is JobState.REFUSED
            assert "`CODEPILOT_CAPS=thread=…`" in end.status


@pytest.mark.slow
@pytest.mark.timeout(600)  # a busy machine takes minutes
async def test_fifty_commands_at_once_in_one_thread_end_in_bounded_work(hub: LocalHub, tmp_path: Path) -> None:
    first = [acting(WAIT_FOR_GO), *DONE]
    async with staged(hub, tmp_path, first, *[DONE] * 60, operator={"caps": Caps(thread=3)}) as stage:
        issue = stage.issue()
        commands = [stage.say(issue.number, f"/codepilot fix {number}") for number in range(50)]
        jobs = [await stage.job_of(each) for each in commands]
        # All are greeted while the first one works: nobody has used the thread's share up by then.
        await eventually(lambda: all(stage.reactions(each) for each in commands), within=300)
        running = await eventually(lambda: [each for each in jobs if stage.files_of(each).is_dir()], within=300)
        await stage.let_go(running[0])
        ends = [await stage.ended(each, within=300) for each in jobs]
        assert sum(each.state is JobState.DONE for each in ends) == 3
        assert {each.state for each in ends} == {JobState.DONE, JobState.REFUSED}
        assert len(stage.providers) == 3
        assert not [each for each in stage.bot_comments(issue.number) if "Waiting its turn" in each]
        assert stage.nothing_left()


@pytest.mark.slow
@pytest.mark.timeout(600)  # a busy machine takes minutes
async def test_fifty_commands_at_once_in_many_threads_are_all_answered(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, *[DONE] * 60, operator={"caps": Caps(repository=6, user=50)}) as stage:
        threads = [stage.issue().number for _ in range(10)]
        commands = [stage.say(number, "/codepilot ask why?") for _ in range(5) for number in threads]
        ends = [await stage.end_of(each, within=300) for each in commands]
        assert all(not TRANSITIONS[each.state] for each in ends)
        assert len(stage.providers) == 6
        for number in threads:
            said = stage.bot_comments(number)
            assert said
            assert not [each for each in said if "Queued" in each]
        assert all(stage.reactions(each) for each in commands)
        assert FILES["calc.py"].strip() == stage.file("main", "calc.py")


async def test_a_repository_runs_as_many_jobs_at_once_as_the_operator_lets_it(hub: LocalHub, tmp_path: Path) -> None:
    scripts = [acting(WAIT_FOR_GO), *DONE], DONE, DONE, DONE
    async with staged(hub, tmp_path, *scripts, serving={"jobs_per_repository": 1}) as stage:
        elsewhere = replace(stage, repo=hub.add_repo("mona/other", owner="mona", files=FILES))
        hub.install(stage.app, elsewhere.repo)
        first = stage.say(stage.issue().number, "/codepilot fix")
        running = await stage.job_of(first)
        await stage.at_work()
        behind = stage.say(stage.issue().number, "/codepilot fix")
        await eventually(lambda: any("Waiting its turn" in each for each in stage.bot_comments(behind.number)) or None)
        # A place of the worker is free. Another repository has it twice; the job behind would have had it in between.
        for _ in range(2):
            assert (await elsewhere.ask(elsewhere.issue().number, "/codepilot fix")).state is JobState.DONE
        assert await stage.state_of(await stage.job_of(behind)) is JobState.QUEUED
        assert len(stage.providers) == 3
        await stage.let_go(running)
        assert [(await stage.end_of(each)).state for each in (first, behind)] == [JobState.DONE, JobState.DONE]
