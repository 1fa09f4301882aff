"""Notices about requests, which say what became of them, and labels that are set while one waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.domain.access import TrustedBots
from bot.domain.job import JobState
from bot.jobs import pipeline, status
from tests.fakes.agent import Script, ask_user, execute, reply, write
from tests.fakes.github import outage
from tests.seam import ASKING, NOTHING_LEFT, Pause, Seam, open_seam

DEPLOY: Script = [reply(execute("sh deploy.sh", check=False)), NOTHING_LEFT]
PROTECTED: Script = [reply(write(".github/workflows/ci.yml", "on: push\n"), completion="Add CI")]
QUESTION: Script = [reply(ask_user("Which numbers?")), NOTHING_LEFT]


def say(words: str) -> Callable[[Seam, Pause], object]:
    return lambda stage, pause: stage.say(pause.number, f"/codepilot {words.format(pause.request_id)}")


def close(stage: Seam, pause: Pause) -> None:
    stage.hub.close(stage.repo, pause.number, by="mona")


def let_expire(stage: Seam, _: Pause) -> None:
    stage.advance(73 * 3600)


ANSWERS = {
    "approved": (DEPLOY, say("approve {}"), "`mona` approved it"),
    "denied": (DEPLOY, say("deny {} not now"), "`mona` denied it"),
    "answered": (QUESTION, say("continue all"), "`mona` answered it"),
    "stopped": (DEPLOY, say("stop"), "Stopped by @mona"),
    "closed": (DEPLOY, close, "This issue is closed"),
    "expired": (DEPLOY, let_expire, "Nobody answered the request `"),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_a_notice_says_what_became_of_its_request(tmp_path: Path, case: str) -> None:
    script, act, words = ANSWERS[case]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        [notice] = stage.notices(issue.number)
        assert "is waiting for an answer until" in notice
        act(stage, pause)
        await stage.end_of(command)
        [notice] = stage.notices(issue.number)
        assert notice.startswith(f"@mona `/codepilot fix` no longer waits: {words}")
        assert "/codepilot approve" not in notice
        assert f"([status](https://github.com/mona/calc/issues/{issue.number}#issuecomment-" in notice


async def test_a_push_that_voids_a_request_is_named_in_its_notice(tmp_path: Path) -> None:
    async with open_seam(tmp_path, DEPLOY, operator=ASKING) as stage:
        pull = stage.pull()
        command, _ = await stage.paused_fix(pull.number)
        head = stage.hub.commit(stage.repo, {"x.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        await stage.end_of(command)
        [notice] = stage.notices(pull.number)
        assert f"no longer waits: The pull request moved to {head[:10]}" in notice


async def test_the_notice_of_one_request_is_edited_while_the_next_one_waits(tmp_path: Path) -> None:
    script = [reply(execute("sh one.sh", check=False)), reply(execute("sh two.sh", check=False)), NOTHING_LEFT]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        _, first = await stage.paused_fix(issue.number)
        stage.say(issue.number, f"/codepilot approve {first.request_id}")
        second = await stage.next_pause(first)
        answered, open_notice = stage.notices(issue.number)
        assert "no longer waits: `mona` approved it" in answered
        assert "is waiting for an answer until" in open_notice
        assert second.request_id in open_notice


@pytest.mark.parametrize("fault", ["outage", "death"])
async def test_a_notice_is_edited_after_a_fault_between_the_answer_and_the_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with open_seam(tmp_path, DEPLOY, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        with monkeypatch.context() as patched:
            if fault == "outage":
                stage.hub.fail("comments.edit", outage())
            else:
                patched.setattr(pipeline, "close_notices", stage.hang)
            stage.say(issue.number, f"/codepilot approve {pause.request_id}")
            await stage.settle()
        if fault == "death":
            await stage.restart()
        assert (await stage.end_of(command)).state is JobState.DONE
        [notice] = stage.notices(issue.number)
        assert "no longer waits: `mona` approved it" in notice


async def test_a_notice_that_was_deleted_is_not_posted_again(tmp_path: Path) -> None:
    async with open_seam(tmp_path, DEPLOY, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        comment = next(each for each in issue.comments if status._REQUEST_NOTICE.partition(" ")[2] in each.body)
        issue.comments.remove(comment)
        stage.say(issue.number, f"/codepilot approve {pause.request_id}")
        assert (await stage.end_of(command)).state is JobState.DONE
        assert stage.notices(issue.number) == []


@pytest.mark.parametrize("kind", ["issue", "pull"])
async def test_the_label_auto_lets_a_run_go_on_whose_call_it_allows(tmp_path: Path, kind: str) -> None:
    script = [reply(execute("sh one.sh", check=False)), reply(execute("sh two.sh", check=False)), NOTHING_LEFT]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        number = (stage.issue() if kind == "issue" else stage.pull()).number
        command, pause = await stage.paused_fix(number)
        stage.hub.add_label(stage.repo, number, "codepilot:auto", by="mona")
        assert (await stage.end_of(command)).state is JobState.DONE
        assert stage.providers[0].commands == ["sh one.sh", "sh two.sh"]
        [notice] = stage.notices(number)
        assert "no longer waits: `mona` approved it" in notice
        text = f"The run that waited for `{pause.request_id}` goes on, since `codepilot:auto` is set."
        assert text in stage.bot_comments(number)[-1]


@pytest.mark.parametrize("script", [QUESTION, PROTECTED], ids=["question", "publication"])
async def test_a_request_that_the_level_does_not_decide_still_waits_and_the_bot_says_so(
    tmp_path: Path, script: Script
) -> None:
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        stage.hub.add_label(stage.repo, issue.number, "codepilot:auto", by="mona")
        assert await stage.still_waits(pause)
        answer = stage.bot_comments(issue.number)[-1]
        assert "`codepilot:auto` applies from the next run. This one still needs an answer:" in answer
        line = "continue <your answer>" if script is QUESTION else f"approve {pause.request_id}"
        assert f"```\n/codepilot {line}\n```" in answer


@pytest.mark.parametrize(("name", "by"), [("codepilot:auto", "helper"), ("codepilot:ask", "mona"), ("bug", "mona")])
async def test_a_label_that_raises_nothing_lets_no_run_go_on_and_is_not_answered(
    tmp_path: Path, name: str, by: str
) -> None:
    async with open_seam(tmp_path, DEPLOY, operator=ASKING) as stage:
        stage.hub.add_collaborator(stage.repo, "helper", "triage")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        comments = stage.bot_comments(issue.number)
        stage.hub.add_label(stage.repo, issue.number, name, by=by)
        assert await stage.still_waits(pause)
        assert stage.bot_comments(issue.number) == comments


@pytest.mark.parametrize("case", ["a lower label", "another text", "a trusted bot"])
async def test_a_label_that_does_not_count_for_the_call_that_waits_approves_nothing(tmp_path: Path, case: str) -> None:
    trusting = ASKING | {"trusted_bots": TrustedBots(logins=frozenset({"helper[bot]"}))}
    async with open_seam(tmp_path, DEPLOY, operator=trusting) as stage:
        stage.hub.add_user("helper[bot]", kind="Bot")
        stage.hub.add_collaborator(stage.repo, "helper[bot]", "write")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        if case == "a lower label":
            stage.hub.add_label(stage.repo, issue.number, "codepilot:ask", by="mona")
        elif case == "another text":
            stage.hub.edit_thread(stage.repo, issue.number, by="mona", body="Something else.")
        await stage.settle()
        stage.hub.add_label(
            stage.repo, issue.number, "codepilot:auto", by="helper[bot]" if case == "a trusted bot" else "mona"
        )
        assert await stage.still_waits(pause)
        assert "This one still needs an answer:" in stage.bot_comments(issue.number)[-1]
