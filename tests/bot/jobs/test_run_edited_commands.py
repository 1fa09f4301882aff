"""A command that its author edits before the agent begins counts as its newest text, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from bot.domain.commands import Ask, Fix
from bot.domain.job import JobState
from bot.jobs import agent_run
from bot.jobs.setup import SetupResult
from tests.fakes.agent import Script, reply, wait_for_test
from tests.fakes.github import outage
from tests.fakes.site import FakeComment
from tests.seam import FIX, NOTHING_LEFT, End, Seam, open_seam

WAITS: Script = [reply(wait_for_test()), NOTHING_LEFT]


async def _edit_in_queue(stage: Seam, body: str, *, by: str = "mona") -> tuple[FakeComment, End]:
    """Edit a command that is queued behind another job, and run it; return it with its end."""
    number = stage.issue().number
    first = await stage.job_of(stage.say(number, "/codepilot test"))
    await stage.at_work()
    command = stage.say(number, "/codepilot fix teh sum")
    await stage.job_of(command)
    stage.advance(5)
    stage.hub.edit_comment(command, by=by, body=body)
    await stage.let_go(first)
    return command, await stage.end_of(command)


async def _stored_command(stage: Seam, end: End) -> object:
    stored = await stage.queue.get(end.job_id)
    assert stored is not None
    return stored.job.command


@pytest.mark.parametrize("acknowledges", [True, False])
async def test_the_newest_text_of_the_author_is_done(tmp_path: Path, acknowledges: bool) -> None:  # noqa: FBT001 - a parameter of the test
    async with open_seam(tmp_path, WAITS, FIX, acknowledges=acknowledges) as stage:
        _, end = await _edit_in_queue(stage, "/codepilot fix the sum\n/codepilot review")
        assert end.state is JobState.DONE
        assert await _stored_command(stage, end) == Fix(goal="the sum")
        assert "Not done: `/codepilot review`" in end.status
        assert "the sum" in stage.providers[1].opening
        assert "teh sum" not in stage.providers[1].opening
        assert len(stage.providers) == 2
        assert len(stage.pulls()) == 1


async def test_another_verb_is_decided_about_and_shown_anew_in_the_same_comment(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, [NOTHING_LEFT], acknowledges=True) as stage:
        _, end = await _edit_in_queue(stage, "/codepilot ask why is the sum off?")
        assert end.state is JobState.DONE
        assert await _stored_command(stage, end) == Ask(goal="why is the sum off?")
        assert "`/codepilot ask` for @mona" in end.status
        assert len(stage.bot_comments(1)) == 2


@pytest.mark.parametrize("body", ["Never mind.", "", "/codepilot stop", "/codepilot run tidy", "> /codepilot fix"])
async def test_an_edit_that_leaves_no_work_ends_the_job_with_a_sentence(tmp_path: Path, body: str) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        _, end = await _edit_in_queue(stage, body)
        assert end.state is JobState.STOPPED
        assert (
            "The command was edited before its work began, and the new text is no task with the same trigger word."
            in end.status
        )
        assert len(stage.providers) == 1
        assert stage.nothing_left()


@pytest.mark.parametrize("body", ["/codepilot fix everything else", "Removed by a moderator"])
async def test_an_edit_by_somebody_else_changes_nothing(tmp_path: Path, body: str) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage:
        stage.hub.add_user("maintainer")
        stage.hub.add_collaborator(stage.repo, "maintainer", "maintain")
        _, end = await _edit_in_queue(stage, body, by="maintainer")
        assert end.state is JobState.DONE
        assert await _stored_command(stage, end) == Fix(goal="teh sum")
        assert "everything else" not in stage.providers[1].opening


async def test_a_text_that_somebody_else_edited_last_changes_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage:
        stage.hub.add_user("maintainer")
        number = stage.issue().number
        first = await stage.job_of(stage.say(number, "/codepilot test"))
        await stage.at_work()
        command = stage.say(number, "/codepilot fix teh sum")
        await stage.job_of(command)
        stage.hub.edit_comment(command, by="mona", body="/codepilot fix the sum")
        stage.hub.edit_comment(command, by="maintainer", body="/codepilot fix everything else")
        await stage.let_go(first)
        assert await _stored_command(stage, await stage.end_of(command)) == Fix(goal="teh sum")


async def test_an_edit_after_the_agent_began_changes_nothing_not_even_for_retry(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, [NOTHING_LEFT]) as stage:
        number = stage.issue().number
        command = stage.say(number, "/codepilot ask one")
        job_id = await stage.job_of(command)
        await stage.at_work()
        stage.hub.edit_comment(command, by="mona", body="/codepilot fix two")
        await stage.let_go(job_id)
        assert await _stored_command(stage, await stage.end_of(command)) == Ask(goal="one")
        await stage.end_of(stage.say(number, "/codepilot retry"))
        [newest, *_] = await stage.queue.jobs_in_thread(stage.repo.id, number)
        assert newest.job.id != job_id
        assert newest.job.command == Ask(goal="one")
        assert stage.pulls() == []


async def test_a_second_edit_while_the_work_begins_again_changes_nothing(tmp_path: Path) -> None:
    run_setup, commands = agent_run.run_setup, list[FakeComment]()
    async with open_seam(tmp_path, [NOTHING_LEFT]) as stage:

        async def edit_again(*args: object) -> SetupResult:
            goals = iter(["/codepilot ask two", "/codepilot ask three"])
            texts = {"/codepilot ask one": next(goals), "/codepilot ask two": next(goals)}
            stage.hub.edit_comment(commands[0], by="mona", body=texts[commands[0].body])
            return await run_setup(*args)  # type: ignore[arg-type]

        commands.append(stage.say(stage.issue().number, "/codepilot ask one"))
        with patch.object(agent_run, "run_setup", edit_again):
            end = await stage.end_of(commands[0])
        assert commands[0].body == "/codepilot ask three"
        assert await _stored_command(stage, end) == Ask(goal="two")
        assert len(stage.providers) == 1


async def test_nothing_begins_while_github_does_not_say_who_edited(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS, FIX) as stage:
        stage.hub.fail("comments.read_edit", outage())
        _, end = await _edit_in_queue(stage, "/codepilot fix the sum")
        assert await _stored_command(stage, end) == Fix(goal="the sum")
        assert len(stage.providers) == 2


@pytest.mark.parametrize("body", ["/codepilot fix", "/codepilot fix the sum\n\n@codepilot, review the tests"])
async def test_a_command_that_was_not_edited_costs_no_request(tmp_path: Path, body: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.profile = replace(stage.profile, triggers=("/codepilot", "@codepilot"))
        await stage.ask(stage.issue().number, body)
        assert "comments.read_edit" not in stage.calls
