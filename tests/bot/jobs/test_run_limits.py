"""Limits on the work of a thread, user, repository or installation, the operator's lists, and refusals told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.access import Caps, TrustedBots
from bot.domain.job import JobState
from tests.fakes.agent import reply, wait_for_test
from tests.seam import open_seam

DONE = [reply(completion="Nothing to do.")]
ASK = "/codepilot ask why?"


async def test_a_thread_gets_a_number_of_jobs_an_hour_and_is_told_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, *[DONE] * 9, operator={"caps": Caps(thread=2)}) as stage:
        issue = stage.issue()
        for _ in range(2):
            assert (await stage.ask(issue.number, ASK)).state is JobState.DONE
        third = await stage.ask(issue.number, ASK)
        assert await stage.refusal(third) == "cap-thread"
        assert "`CODEPILOT_CAPS=thread=…`" in third.status
        comments = stage.bot_comments(issue.number)
        assert len(comments) == 3
        fourth = stage.say(issue.number, ASK)
        assert (await stage.end_of(fourth)).state is JobState.REFUSED
        assert "confused" in stage.reactions(fourth)
        assert stage.bot_comments(issue.number) == comments
        assert len(stage.providers) == 2
        # A command without work is still answered, and another thread has a share of its own.
        assert (await stage.ask(issue.number, "/codepilot help")).state is JobState.DONE
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.DONE
        stage.advance(3600)
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE


async def test_a_user_gets_a_number_of_jobs_an_hour_over_all_threads(tmp_path: Path) -> None:
    async with open_seam(tmp_path, *[DONE] * 9, operator={"caps": Caps(user=2)}) as stage:
        stage.hub.add_collaborator(stage.repo, "anna", "write")
        threads = [stage.issue().number for _ in range(4)]
        for number in threads[:2]:
            assert (await stage.ask(number, ASK)).state is JobState.DONE
        for number in threads[2:]:
            end = await stage.ask(number, ASK)
            assert await stage.refusal(end) == "cap-user"
            assert "mona" in end.reason
        assert (await stage.ask(threads[2], ASK, author="anna")).state is JobState.DONE
        assert len(stage.providers) == 3


@pytest.mark.parametrize("scope", ["repository", "installation"])
async def test_all_users_of_a_repository_or_installation_share_a_number_of_jobs_an_hour(
    tmp_path: Path, scope: str
) -> None:
    async with open_seam(tmp_path, DONE, operator={"caps": Caps(**{scope: 1})}) as stage:
        stage.hub.add_collaborator(stage.repo, "anna", "write")
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.DONE
        end = await stage.ask(stage.issue().number, ASK, author="anna")
        assert await stage.refusal(end) == f"cap-{scope}"


async def test_a_refusal_is_told_once_for_each_cause_and_thread(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        for number in (stage.issue().number, stage.issue().number):
            for _ in range(3):
                assert (await stage.ask(number, "/codepilot review")).state is JobState.REFUSED
            assert len(stage.bot_comments(number)) == 1
            end = await stage.ask(number, "/codepilot ask --model none why?")
            assert "is not offered here" in end.status
            assert len(stage.bot_comments(number)) == 2


async def test_a_trusted_bot_is_stopped_until_a_person_gives_a_command(tmp_path: Path) -> None:
    bot = "robot[bot]"
    operator = {"caps": Caps(unattended=2), "trusted_bots": TrustedBots(logins=frozenset({bot}))}
    async with open_seam(tmp_path, *[DONE] * 9, operator=operator) as stage:
        stage.hub.add_user(bot, kind="Bot")
        issue = stage.issue()
        for _ in range(2):
            assert (await stage.ask(issue.number, ASK, author=bot)).state is JobState.DONE
        end = await stage.ask(issue.number, ASK, author=bot)
        assert end.state is JobState.REFUSED
        assert "I have worked 2 times in this thread without a command from a person," in end.reason
        assert len(stage.providers) == 2
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE
        assert (await stage.ask(issue.number, ASK, author=bot)).state is JobState.DONE


async def test_the_comment_of_a_waiting_command_is_edited_when_the_command_is_refused(tmp_path: Path) -> None:
    scripts = [reply(wait_for_test()), *DONE], DONE
    async with open_seam(tmp_path, *scripts, operator={"caps": Caps(thread=2)}, acknowledges=True) as stage:
        issue = stage.issue()
        first = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        await stage.at_work()
        later = [stage.say(issue.number, ASK) for _ in range(3)]
        await stage.settle()
        assert ["Waiting its turn" in body for body in stage.bot_comments(issue.number)[1:]] == [True] * len(later)
        await stage.let_go(first)
        assert (await stage.end_of(later[0])).state is JobState.DONE
        for command in later[1:]:
            end = await stage.end_of(command)
            assert end.state is JobState.REFUSED
            assert "`CODEPILOT_CAPS=thread=…`" in end.status
        assert not [body for body in stage.bot_comments(issue.number) if "Waiting its turn" in body]


async def test_fifty_commands_in_ten_threads_are_all_answered(tmp_path: Path) -> None:
    operator = {"caps": Caps(repository=6, user=50)}
    async with open_seam(tmp_path, *[DONE] * 60, operator=operator, acknowledges=True) as stage:
        threads = [stage.issue().number for _ in range(10)]
        commands = [stage.say(number, ASK) for _ in range(5) for number in threads]
        ends = [await stage.end_of(command) for command in commands]
        assert {end.state for end in ends} == {JobState.DONE, JobState.REFUSED}
        assert len(stage.providers) == 6
        for number in threads:
            comments = stage.bot_comments(number)
            assert comments
            assert not [body for body in comments if "Waiting its turn" in body]
        assert all(stage.reactions(command) for command in commands)


async def test_a_person_who_is_not_on_the_list_is_refused_like_a_stranger(tmp_path: Path) -> None:
    async with open_seam(tmp_path, DONE, operator={"allowed_users": frozenset({"mona", "guest"})}) as stage:
        stage.hub.add_collaborator(stage.repo, "writer", "admin")
        stage.hub.add_collaborator(stage.repo, "guest", "read")
        issue = stage.issue()
        for author in ("writer", "guest"):
            command = stage.say(issue.number, ASK, author=author)
            assert (await stage.end_of(command)).state is JobState.REFUSED
            assert stage.reactions(command) == ["confused"]
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE


async def test_an_app_that_the_operator_lists_gives_commands_and_another_does_not(tmp_path: Path) -> None:
    """GitHub gives roles to people only: the account of an App is no collaborator."""
    operator = {"trusted_bots": TrustedBots(logins=frozenset({"robot[bot]"})), "allowed_users": frozenset({"mona"})}
    async with open_seam(tmp_path, DONE, operator=operator) as stage:
        for bot in ("robot[bot]", "other[bot]"):
            stage.hub.add_user(bot, kind="Bot")
        issue = stage.issue()
        assert (await stage.ask(issue.number, ASK, author="robot[bot]")).state is JobState.DONE
        ignored = await stage.answer(stage.say(issue.number, ASK, author="other[bot]"))
        assert "other[bot] or its user id" in ignored["reason"]
