"""Commands in the description of a thread and in the text of a review."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import reply
from tests.seam import COMPLETION, FIX, open_seam

BODY = "/codepilot fix\n\n`add(1, 1)` gives three.\n"
ANSWER = [reply(completion="It adds.")]


async def test_an_issue_opened_with_a_command_is_worked_on(tmp_path: Path) -> None:
    script = [replace(FIX[0], expect=("`add(1, 1)` gives three.", "Adding is off by one"))]
    async with open_seam(tmp_path, script, acknowledges=True) as stage:
        issue = stage.issue(body=BODY)
        end = await stage.end_after("issues", "opened")
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert "`/codepilot fix` for @mona" in end.status
        assert issue.reactions == [(stage.app.bot.id, "eyes")]
        [pull] = stage.pulls()
        assert f"Fixes #{issue.number}" in (pull.body or "")


async def test_a_template_with_the_command_says_nothing_to_strangers(tmp_path: Path) -> None:
    async with open_seam(tmp_path, acknowledges=True) as stage:
        stage.hub.add_user("stranger")
        issue = stage.hub.open_issue(stage.repo, author="stranger", title="It breaks", body=BODY)
        assert (await stage.end_after("issues", "opened")).state is JobState.REFUSED
        assert stage.providers == []
        assert issue.reactions == []
        assert stage.bot_comments(issue.number) == []


@pytest.mark.parametrize("state", ["COMMENTED", "APPROVED", "CHANGES_REQUESTED"])
async def test_a_command_in_a_review_is_carried_out_with_any_verdict(tmp_path: Path, state: str) -> None:
    async with open_seam(tmp_path, ANSWER) as stage:
        stage.hub.add_collaborator(stage.repo, "rev", "write")
        number = stage.pull().number
        body = "/codepilot ask what does it add?"
        stage.hub.review(stage.repo, number, author="rev", body=body, state=state)
        end = await stage.end_after("pull_request_review", "submitted")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status
        assert "`/codepilot ask` for @rev" in end.status
        assert len(stage.bot_comments(number)) == 1


async def test_a_command_written_into_a_description_later_is_ignored(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        stage.hub.edit_thread(stage.repo, issue.number, by="mona", body=BODY)
        answer = await stage.answer_to("issues", "edited")
        assert "this one is edited" in answer["reason"]
