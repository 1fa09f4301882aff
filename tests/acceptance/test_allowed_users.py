"""Threats 1 and 3 with what an operator says of them: some people with write access, some bots."""

from __future__ import annotations

from pathlib import Path

from bot.domain.access import TrustedBots
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import acting, staged
from tests.workflow_runs import Workflows

ANSWER = acting('read_file("calc.py")', completion="It adds.")


async def test_who_is_not_on_the_list_is_refused_like_a_stranger(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER], operator={"allowed_users": frozenset({"mona", "guest"})}) as stage:
        for name in ("writer", "guest"):
            hub.add_user(name)
        hub.add_collaborator(stage.repo, "writer", "admin")
        hub.add_collaborator(stage.repo, "guest", "read")
        issue = stage.issue()
        for name in ("writer", "guest"):
            said = stage.say(issue.number, "/codepilot ask why?", author=name)
            assert (await stage.end_of(said)).state is JobState.REFUSED
            assert stage.reactions(said) == ["confused"]
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []
        assert (await stage.ask(issue.number, "/codepilot ask why?")).state is JobState.DONE


async def test_an_app_that_the_operator_names_commands_and_another_does_not(hub: LocalHub, tmp_path: Path) -> None:
    """GitHub answers for people only: an App's account is no collaborator."""
    robots = [hub.add_user(f"{name}[bot]", kind="Bot") for name in ("robot", "other")]
    operator = {"trusted_bots": TrustedBots(logins=frozenset({"robot[bot]"})), "allowed_users": frozenset({"mona"})}
    async with staged(hub, tmp_path, [ANSWER], operator=operator) as stage:
        issue = stage.issue()
        heard, ignored = (stage.say(issue.number, "/codepilot ask why?", author=each.login) for each in robots)
        assert (await stage.end_of(heard)).state is JobState.DONE
        assert "other[bot] or its user id" in (await stage.answer(ignored))["reason"]


async def test_the_action_takes_both_as_inputs(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    robot = hub.add_user("robot[bot]", kind="Bot")
    issue = hub.open_issue(flows.repo, author="mona", title="Why?")
    hub.comment(flows.repo, issue.number, author="mona", body="/codepilot ask why?")
    refused = await flows.run("issue_comment", **{"INPUT_ALLOWED-USERS": "octocat"})
    assert refused.ended is JobState.REFUSED
    hub.comment(flows.repo, issue.number, author=robot.login, body="/codepilot ask why?")
    done = await flows.run("issue_comment", [ANSWER], **{"INPUT_TRUSTED-BOTS": "robot[bot]"})
    assert done.ended is JobState.DONE, done.summary
