"""Commands in what opens a thread and in the words of a review, through the App and through the Action."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from localhub import LocalHub, ReviewState
from tests.stage import COMPLETION, FIX, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually
from tests.workflow_runs import Workflows

BODY = "/codepilot fix\n\n`add(1, 1)` gives three.\n"
ANSWER = acting('read_file("calc.py")', completion="It adds.")
STATES: tuple[ReviewState, ...] = ("COMMENTED", "APPROVED", "CHANGES_REQUESTED")


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


async def test_a_template_with_the_command_says_nothing_to_strangers(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        hub.add_user("stranger")
        issue = hub.open_issue(stage.repo, author="stranger", title="It breaks", body=BODY)
        end = await stage.end_after("issues", "opened")
        assert end.state is JobState.REFUSED
        assert stage.providers == []
        assert hub.reactions(issue) == []
        assert stage.bot_comments(issue.number) == []


async def test_a_pull_request_opened_with_a_command_is_answered(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ANSWER]) as stage:
        files = {"topic.txt": "A topic.\n"}
        hub.commit(stage.repo, files, message="Add", author="mona", branch="topic")
        pull = hub.open_pull(stage.repo, author="mona", head="topic", title="Add", body="/codepilot explain it")
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status
        assert [each.content for each in hub.reactions(pull)] == ["eyes"]


async def _reviewed(stage: Stage, state: ReviewState, words: str) -> int:
    stage.hub.add_user("rev")
    stage.hub.add_collaborator(stage.repo, "rev", "write")
    pull = stage.pull()
    stage.hub.review(stage.repo, pull.number, author="rev", body=words, state=state)
    return pull.number


@pytest.mark.parametrize("state", STATES)
async def test_the_words_of_a_review_are_heard_whatever_its_verdict(
    hub: LocalHub, tmp_path: Path, state: ReviewState
) -> None:
    async with staged(hub, tmp_path, [ANSWER]) as stage:
        number = await _reviewed(stage, state, "/codepilot ask what does it add?")
        end = await stage.end_after("pull_request_review", "submitted")
        assert end.state is JobState.DONE, end
        assert "/codepilot ask for @rev" in end.status.replace("`", "")
        assert len(stage.bot_comments(number)) == 1


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
    [told] = [each.body for each in hub.comments(flows.repo, pull.number)]
    assert "It adds." in told


async def test_a_command_written_into_a_description_later_is_none(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        hub.edit_thread(stage.repo, issue.number, by="mona", body=BODY)
        answer = await eventually(lambda: _answered(stage, "edited"))
        assert "this one is edited" in answer


def _answered(stage: Stage, action: str) -> str | None:
    found = [each for each in stage.hub.deliveries if (each.event, each.action) == ("issues", action)]
    return found[-1].response_body if found and found[-1].status_code else None
