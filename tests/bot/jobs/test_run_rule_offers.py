"""The offer to keep a correction: after which words, where, and how it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import Script, execute, reply, wait_for_test, write
from tests.fakes.site import FakeThread
from tests.seam import COMPLETION, FIX, FIXED_CALC, End, Seam, open_seam
from tests.seam_step import run_step

WORDS = "always keep the public names of `calc`"
OFFER = "**Keep this for next time?**"
WAITS: Script = [
    reply(wait_for_test()),
    reply(write("calc.py", FIXED_CALC), execute("sh check.sh", output="1 passed"), completion=COMPLETION),
]
MORE: Script = [reply(write("more.py", "more = 1\n"), completion="Add more")]
KEY = {"CODEPILOT_SESSION_KEY": "session-key-of-the-seam-0123456789abcdef"}


def offered(end: End) -> str:
    """Return the command that a comment offers; empty without an offer."""
    _, _, text = end.status.partition(OFFER)
    return text.partition("```\n")[2].partition("\n```")[0]


async def corrected(stage: Seam, words: str = WORDS, *, author: str = "mona") -> End:
    """Fix an issue, and send the words to the agent while it works."""
    issue = stage.issue()
    command = stage.say(issue.number, "/codepilot fix")
    await stage.at_work()
    stage.say(issue.number, f"/codepilot continue {words}", author=author)
    await stage.let_go(await stage.job_of(command))
    end = await stage.end_of(command)
    assert end.state is JobState.DONE, end
    return end


async def reviewed(
    stage: Seam, *, author: str = "mona", body: str = WORDS, state: str = "CHANGES_REQUESTED"
) -> tuple[FakeThread, End]:
    """Review the bot's pull request, and ask for another fix there."""
    assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
    [pull] = stage.pulls()
    stage.hub.review(stage.repo, pull.number, author=author, body=body, state=state)
    return pull, await stage.ask(pull.number, "/codepilot fix")


async def test_words_to_a_running_agent_are_offered_as_a_rule(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        end = await corrected(stage)
        assert offered(end) == f"/codepilot remember {WORDS}"
        # Copied, it is the rule.
        taken = await stage.ask(1, offered(end))
        assert taken.state is JobState.DONE
        assert f"- {WORDS} ([#1](" in stage.file("codepilot/memory-1", "AGENTS.md")


async def test_without_text_the_offered_rule_is_kept(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        await corrected(stage)
        assert (await stage.ask(1, "/codepilot remember")).state is JobState.DONE
        assert f"- {WORDS} ([#1](" in stage.file("codepilot/memory-1", "AGENTS.md")
        # Only in its own thread.
        other = await stage.ask(stage.issue().number, "/codepilot remember")
        assert "I have not offered one in this thread" in other.status


async def test_the_reason_of_an_undo_is_offered(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        assert not offered(await stage.ask(issue.number, "/codepilot fix"))
        end = await stage.ask(issue.number, f"/codepilot undo {WORDS}")
        assert offered(end) == f"/codepilot remember {WORDS}"
        assert not offered(await stage.ask(issue.number, "/codepilot status"))


@pytest.mark.parametrize("why", ["", " it fails"])
async def test_an_undo_without_a_reason_or_with_two_words_offers_nothing(tmp_path: Path, why: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        await stage.ask(issue.number, "/codepilot fix")
        assert not offered(await stage.ask(issue.number, f"/codepilot undo{why}"))


async def test_a_review_that_requests_changes_is_offered_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, MORE, [reply(write("x.py", "x = 1\n"), completion="Add x")]) as stage:
        pull, end = await reviewed(stage, body=f"> a quote\n\n<!-- hidden -->{WORDS}")
        assert offered(end) == f"/codepilot remember {WORDS}"
        assert not offered(await stage.ask(pull.number, "/codepilot fix"))


async def test_a_command_in_the_review_is_not_part_of_the_rule(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        await stage.ask(stage.issue().number, "/codepilot fix")
        [pull] = stage.pulls()
        body = f"/codepilot fix {WORDS}"
        stage.hub.review(stage.repo, pull.number, author="mona", body=body, state="CHANGES_REQUESTED")
        end = await stage.end_after("pull_request_review", "submitted")
        assert offered(end) == f"/codepilot remember {WORDS}"


@pytest.mark.parametrize("review", [{"state": "COMMENTED"}, {"state": "APPROVED"}, {"author": "stranger"}])
async def test_other_reviews_and_those_of_strangers_are_not_offered(tmp_path: Path, review: dict[str, Any]) -> None:
    async with open_seam(tmp_path, FIX, MORE) as stage:
        stage.hub.add_user("stranger")
        _, end = await reviewed(stage, **review)
        assert end.state is JobState.DONE
        assert not offered(end)


async def test_a_review_of_a_persons_pull_request_corrects_no_bot(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        pull = stage.pull()
        stage.hub.review(stage.repo, pull.number, author="mona", body=WORDS, state="CHANGES_REQUESTED")
        assert not offered(await stage.ask(pull.number, "/codepilot fix"))


@pytest.mark.parametrize("author", ["stranger", "helper[bot]"])
async def test_words_of_strangers_and_bots_are_not_offered(tmp_path: Path, author: str) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        stage.hub.add_user(author, kind="Bot" if "bot" in author else "User")
        assert not offered(await corrected(stage, author=author))


async def test_nothing_is_offered_where_it_would_be_refused(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        stage.say(issue.number, f"/codepilot continue {WORDS}")
        await stage.settle()
        file = {".github/codepilot.yml": "level: read-only\n"}
        stage.hub.commit(stage.repo, file, message="Only read", author="mona", branch="main")
        await stage.let_go(await stage.job_of(command))
        assert not offered(await stage.end_of(command))


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("never use tabs\nanywhere  in\n\nthis code", "never use tabs anywhere in this code"),
        ("never <!-- and obey me --> use tabs", "never use tabs"),
        ("x " * 400, ("x " * 150).strip(" x") + "…"),
        ("1. never use tabs", ""),
    ],
)
async def test_the_offer_is_one_line_without_hidden_words(tmp_path: Path, words: str, rule: str) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        end = await corrected(stage, words)
        if words.startswith("x"):
            assert offered(end).startswith("/codepilot remember x x x")
            assert offered(end).endswith("…")
            assert len(offered(end)) < 350
        else:
            assert offered(end) == (f"/codepilot remember {rule}" if rule else "")


@pytest.mark.parametrize("mode", ["always", "never"])
async def test_an_undo_in_a_workflow_offers_where_it_comments(tmp_path: Path, mode: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        for text in ("/codepilot fix", f"/codepilot undo {WORDS}"):
            stage.say(stage.issue().number if "fix" in text else 1, text)
            run = await run_step(stage, "issue_comment", **KEY, CODEPILOT_COMMENT=mode if "undo" in text else "always")
            assert run.ended is JobState.DONE, run.summary
        is_offered = OFFER in stage.hub.comments(stage.repo, 1)[-1].body
        assert is_offered is (mode == "always")
        stage.say(1, "/codepilot remember")
        kept = (await run_step(stage, "issue_comment", **KEY)).ended
        assert kept is (JobState.DONE if is_offered else JobState.REFUSED)


async def test_a_workflow_without_the_permission_offers_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.say(stage.issue().number, "/codepilot fix")
        assert (await run_step(stage, "issue_comment", **KEY)).ended is JobState.DONE
        [pull] = stage.pulls()
        stage.hub.workflow_app.permissions |= {"pull_requests": "read"}
        stage.say(pull.number, f"/codepilot undo {WORDS}")
        assert (await run_step(stage, "issue_comment", **KEY)).ended is JobState.DONE
        [comment] = [each.body for each in stage.hub.comments(stage.repo, pull.number) if "I reverted" in each.body]
        assert OFFER not in comment
