"""Commands in what opens a thread and in the words of a review, through the App and through the Action."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from localhub import LocalHub
from tests.bot.jobs.test_run_commands_in_bodies import BODY
from tests.stage import COMPLETION, FIX, FIXED_CALC, acting, staged
from tests.workflow_runs import Workflows

ANSWER = acting('read_file("calc.py")', completion="It adds.")


async def test_an_issue_opened_with_a_command_is_worked_on(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=FIX, expect=("`add(1, 1)` gives three.", "Adding is off by one"))]
    async with staged(hub, tmp_path, script) as stage:
        issue = stage.issue(body=BODY)
        end = await stage.end_after("issues", "opened")
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert "/codepilot fix for @mona" in end.status.replace("`", "")
        assert [each.content for each in hub.reactions(issue)] == ["eyes"]
        [pull] = stage.pulls()
        assert f"Fixes #{issue.number}" in (pull.body or "")
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_pull_request_opened_with_a_command_is_answered(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER]) as stage:
        files = {"topic.txt": "A topic.\n"}
        hub.commit(stage.repo, files, message="Add", author="mona", branch="topic")
        pull = hub.open_pull(stage.repo, author="mona", head="topic", title="Add", body="/codepilot explain it")
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status
        assert [each.content for each in hub.reactions(pull)] == ["eyes"]


async def test_a_command_in_a_review_is_carried_out(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER]) as stage:
        hub.add_user("rev")
        hub.add_collaborator(stage.repo, "rev", "write")
        pull = stage.pull()
        hub.review(stage.repo, pull.number, author="rev", body="/codepilot ask what does it add?", state="APPROVED")
        end = await stage.end_after("pull_request_review", "submitted")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status


async def test_the_action_hears_the_same(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    hub.add_user("stranger")
    issue = hub.open_issue(flows.repo, author="stranger", title="It breaks", body=BODY)
    refused = await flows.run("issues")
    assert refused.ended is JobState.REFUSED
    assert (hub.reactions(issue), hub.comments(flows.repo, issue.number)) == ([], [])

    issue = hub.open_issue(flows.repo, author="mona", title="Adding is off by one", body=BODY)
    done = await flows.run("issues", [FIX])
    assert done.ended is JobState.DONE, done.summary
    assert [each.content for each in hub.reactions(issue)] == ["eyes"]
    [pull] = [each for each in hub.issues(flows.repo) if each.pull is not None]
    assert f"Fixes #{issue.number}" in (pull.body or "")

    hub.add_user("rev")
    hub.add_collaborator(flows.repo, "rev", "write")
    hub.review(flows.repo, pull.number, author="rev", body="/codepilot ask why?", state="CHANGES_REQUESTED")
    answered = await flows.run("pull_request_review", [ANSWER])
    assert answered.ended is JobState.DONE, answered.summary
    hub.review(flows.repo, pull.number, author="rev", body="Looks fine.")
    assert isinstance((await flows.run("pull_request_review")).ended, IgnoredDelivery)
    [answer] = [each.body for each in hub.comments(flows.repo, pull.number)]
    assert "It adds." in answer
