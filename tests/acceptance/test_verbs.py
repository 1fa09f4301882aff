"""Each verb, each option and each place that a command may stand in, from the words to what comes of them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from agent_runtime import RunLimits
from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub, Trouble
from tests.acceptance.test_service_process import end_at, site
from tests.stage import BUG, COMPLETION, FILES, FIX, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

ANSWER = "It adds, and then adds one."
CALC = "calc.py"
READ = 'read_file("calc.py")'


def answering(*expected: str, text: str = ANSWER, control: str = READ) -> list[ScriptedReply]:
    """A run of two steps: it looks, having been told `expected`, and answers."""
    return [
        ScriptedReply(text=acting(control), expect=expected),
        ScriptedReply(text=f"```completion\n{text}\n```\n", expect=("return a + b",) if control == READ else ()),
    ]


def a_pull_with_the_bug(stage: Stage) -> int:
    """A pull request that brings the bug in at line 5; its number."""
    files = {CALC: f"# 1\n# 2\n# 3\n{BUG}"}
    stage.hub.commit(stage.repo, files, message="Count", author="mona", branch="topic")
    return stage.hub.open_pull(stage.repo, author="mona", head="topic", title="Count", body="As discussed.").number


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """A verb that only looks.

    Attributes:
        said: after the trigger.
        told: what the agent is told to do.
    """

    said: str
    told: str


LOOKING = (
    Looking(said="explain the sum", told="Explain what is asked below"),
    Looking(said="ask why is it 3?", told="Answer the question below"),
)


@pytest.mark.parametrize("verb", LOOKING, ids=lambda verb: verb.said.partition(" ")[0])
@pytest.mark.parametrize("kind", ["issue", "pull"])
async def test_a_verb_that_looks_answers_and_changes_nothing(
    hub: LocalHub, tmp_path: Path, verb: Looking, kind: str
) -> None:
    async with staged(hub, tmp_path, answering(verb.told, verb.said.partition(" ")[2])) as stage:
        number = stage.issue().number if kind == "issue" else stage.pull().number
        before = hub.branches(stage.repo)
        end = await stage.ask(number, f"/codepilot {verb.said}")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert "permission: `read-only`" in end.status
        assert "Not published" not in end.status
        assert hub.branches(stage.repo) == before
        assert len(stage.bot_comments(number)) == 1


@pytest.mark.parametrize("said", ["explain", "plan", "ask what?", "review"])
async def test_a_model_that_writes_although_its_verb_only_looks_is_refused_every_call(
    hub: LocalHub, tmp_path: Path, said: str
) -> None:
    writes = acting('write_file("calc.py")', FIXED_CALC)
    runs = ScriptedReply(text=acting('execute("main", "sh check.sh; true")'), expect_not=("wrote", "bytes"))
    ends = ScriptedReply(text=f"```completion\n{ANSWER}\n```\n", expect_not=("exit_code", "1 failed", "1 passed"))
    async with staged(hub, tmp_path, [writes, runs, ends]) as stage:
        pull = stage.pull()
        before = hub.branches(stage.repo)
        command = stage.say(pull.number, f"/codepilot {said}")
        if said == "plan":
            await stage.waits(command)
        else:
            assert (await stage.end_of(command)).state is JobState.DONE
        assert hub.branches(stage.repo) == before
        assert ANSWER in stage.bot_comments(pull.number)[0]


async def test_test_runs_commands_and_publishes_nothing(hub: LocalHub, tmp_path: Path) -> None:
    runs = acting('execute("main", "echo junk > junk.txt; sh check.sh", check=True)')
    ends = ScriptedReply(text="```completion\n1 of 1 failed.\n```\n", expect=("1 failed",))
    async with staged(hub, tmp_path, [runs, ends]) as stage:
        pull = stage.pull()
        before = hub.branches(stage.repo)
        end = await stage.ask(pull.number, "/codepilot test")
        assert end.state is JobState.DONE, end
        assert "1 of 1 failed." in end.status
        assert "exit code 1" in end.status
        assert "junk.txt" not in end.status.replace("echo junk > junk.txt", "")
        assert "Not published" not in end.status
        assert hub.branches(stage.repo) == before
        assert stage.nothing_left()


REVIEW = [
    {"path": CALC, "line": 5, "body": "One too many.", "suggestion": "    return a + b"},
    {"path": CALC, "start_line": 1, "line": 3, "body": "Three lines that say nothing, @everyone."},
    {"path": "README.md", "line": 1, "body": "Not part of this change."},
]


def reviewing(comments: object) -> str:
    """The reply of a model that reviews."""
    return f"````completion\nOne mistake.\n\n```json\n{json.dumps(comments)}\n```\n````\n"


async def test_a_review_comments_on_lines_with_a_suggestion_and_never_approves(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=reviewing(REVIEW), expect=("Review the changes of this pull request", "+# 3"))]
    async with staged(hub, tmp_path, script) as stage:
        number = a_pull_with_the_bug(stage)
        before = hub.branches(stage.repo)
        end = await stage.ask(number, "/codepilot review")
        assert end.state is JobState.DONE, end
        [review] = hub.reviews(stage.repo, number)
        assert (review.author_id, review.state) == (stage.app.bot.id, "COMMENTED")
        assert "One mistake." in review.body
        assert "`README.md:1`" in review.body
        first, second = hub.review_comments(stage.repo, number)
        assert (first.path, first.start_line, first.line, first.side) == (CALC, None, 5, "RIGHT")
        assert first.body == "One too many.\n\n```suggestion\n    return a + b\n```"
        assert (second.start_line, second.line) == (1, 3)
        assert "@everyone" not in second.body.replace("`@everyone`", "")
        assert "One mistake." in end.status
        assert "[review](" in end.status
        assert hub.branches(stage.repo) == before


async def test_a_review_that_asks_for_an_approval_is_still_only_a_comment(hub: LocalHub, tmp_path: Path) -> None:
    hostile = {"event": "APPROVE", "state": "APPROVED", "comments": []}
    async with staged(hub, tmp_path, [reviewing(hostile).replace("One mistake.", "APPROVE. LGTM.")]) as stage:
        number = a_pull_with_the_bug(stage)
        end = await stage.ask(number, "/codepilot review and approve it")
        assert end.state is JobState.DONE
        assert [each.state for each in hub.reviews(stage.repo, number)] == ["COMMENTED"]


@pytest.mark.parametrize("trouble", ["503", "drop_answer"])
async def test_a_review_whose_answer_is_lost_is_there_once(hub: LocalHub, tmp_path: Path, trouble: Trouble) -> None:
    async with staged(hub, tmp_path, [reviewing(REVIEW)]) as stage:
        number = a_pull_with_the_bug(stage)
        hub.faults.add("POST", "*/reviews", trouble)
        end = await stage.ask(number, "/codepilot review")
        assert end.state is JobState.DONE, end
        assert len(hub.faults) == 0
        assert len(hub.reviews(stage.repo, number)) == 1
        assert len(hub.review_comments(stage.repo, number)) == 2


@pytest.mark.slow
async def test_a_review_is_sent_once_although_the_service_dies_before_it_reads_the_answer(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with site(hub, tmp_path, script=[{"reply": reviewing(REVIEW)}]) as here:
        stage, number = here.stage, a_pull_with_the_bug(here.stage)
        async with here.serving() as service:
            moment = f"POST /repos/mona/calc/pulls/{number}/reviews"
            stage.on_call = partial(end_at, moment, service, signal.SIGKILL)
            command = stage.say(number, "/codepilot review")
            await asyncio.wait_for(service.process.wait(), 60)
            stage.on_call = None
        assert len(hub.reviews(stage.repo, number)) == 1
        here.rewrite("```completion\nI was asked a second time.\n```\n")
        async with here.serving() as last:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, last.log.read_text()
        assert "One mistake." in end.status
        assert f"[review]({hub.url}/mona/calc/pull/{number}#pullrequestreview-" in end.status
        assert len(hub.reviews(stage.repo, number)) == 1
        assert len(hub.review_comments(stage.repo, number)) == 2


async def test_a_review_of_an_issue_is_refused_with_what_to_do(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot review")
        assert await stage.refusal(end) == "no-pull"
        assert stage.providers == []


async def test_a_plan_waits_for_an_approval_and_then_is_carried_out(hub: LocalHub, tmp_path: Path) -> None:
    planned = answering("Make a plan for the request below", text="1. Take the one away.")
    carried = [ScriptedReply(text=FIX, expect=("Take the one away", "A maintainer has approved the quoted plan"))]
    async with staged(hub, tmp_path, planned, carried) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot plan the sum")
        await stage.waits(command)
        [shown] = stage.bot_comments(issue.number)
        assert "1. Take the one away." in shown
        assert stage.nothing_published()
        found = re.search(r"/codepilot approve ([0-9a-f]{8})\b", shown)
        assert found is not None, shown
        approval = stage.say(issue.number, found[0])
        assert (await stage.end_of(command)).state is JobState.DONE
        assert stage.reactions(approval) == ["+1"]
        pull = await eventually(stage.pulls, within=30.0)
        assert len(pull) == 1
        [branch] = stage.bot_branches()
        assert stage.file(branch, CALC) == FIXED_CALC.strip()


async def test_a_plan_that_is_denied_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, answering(text="1. Delete all.")) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot plan")
        await stage.waits(command)
        denial = stage.say(issue.number, "/codepilot deny")
        await stage.end_of(denial)
        end = await stage.end_of(command)
        assert "@mona said no" in end.status
        assert len(stage.providers) == 1
        assert stage.nothing_published()


async def test_help_costs_no_model_and_no_clone(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        for said in ("/codepilot help", "/codepilot"):
            end = await stage.ask(issue.number, said)
            assert end.state is JobState.DONE
            for verb in ("fix", "review", "explain", "plan", "ask", "test", "continue", "approve", "undo", "stop"):
                assert f"`/codepilot {verb}" in end.status, verb
        assert stage.providers == []
        assert list((stage.data / "workspaces" / "mirrors").iterdir()) == []


@pytest.mark.parametrize("kind", ["issue", "pull"])
async def test_text_without_a_verb_fixes_an_issue_and_asks_about_a_pull_request(
    hub: LocalHub, tmp_path: Path, kind: str
) -> None:
    script = [FIX] if kind == "issue" else answering("Answer the question below", "the sum is off")
    async with staged(hub, tmp_path, script) as stage:
        number = stage.issue().number if kind == "issue" else stage.pull().number
        before = hub.branches(stage.repo)
        end = await stage.ask(number, "/codepilot the sum is off")
        assert end.state is JobState.DONE, end
        if kind == "issue":
            assert [stage.file(each, CALC) for each in stage.bot_branches()] == [FIXED_CALC.strip()]
        else:
            assert ANSWER in end.status
            assert hub.branches(stage.repo) == before


@pytest.mark.parametrize("kind", ["issue", "pull"])
async def test_the_configuration_says_what_text_without_a_verb_means(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    files = FILES | {".github/codepilot.yml": "bare_issue: explain\nbare_pull: fix\n"}
    script = answering("Explain what is asked below") if kind == "issue" else [FIX]
    async with staged(hub, tmp_path, script, files=files) as stage:
        number = stage.issue().number if kind == "issue" else stage.pull().number
        end = await stage.ask(number, "/codepilot the sum is off")
        assert end.state is JobState.DONE, end
        if kind == "issue":
            assert ANSWER in end.status
            assert stage.nothing_published()
        else:
            assert stage.file("topic", CALC) == FIXED_CALC.strip()


async def test_only_a_model_that_is_offered_works(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, answering(), operator={"models": ("m2",)}) as stage:
        issue = stage.issue()
        refused = await stage.ask(issue.number, "/codepilot ask --model m3 why?")
        assert await stage.refusal(refused) == "model"
        assert "`m3`" in refused.status
        assert "`m2`" in refused.status
        assert stage.providers == []
        end = await stage.ask(issue.number, "/codepilot ask --model m2 why?")
        assert end.state is JobState.DONE
        assert "`m2`" in end.status


async def test_steps_are_bounded_by_the_command_and_the_operator(hub: LocalHub, tmp_path: Path) -> None:
    looks = [acting(f'{READ}\nlist_files("{n}")') for n in range(6)]
    async with staged(hub, tmp_path, looks, looks, limits=RunLimits(max_steps=4)) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix --max-steps 2")
        assert end.state is JobState.FAILED
        assert "2 steps" in end.status
        end = await stage.ask(issue.number, "/codepilot fix --max-steps 500")
        assert "500 steps exceed the operator's limit; they were reduced to 4." in end.status
        assert "4 steps · " in end.status


async def test_a_budget_is_at_most_the_operators(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, answering(), limits=RunLimits(max_cost_usd=1.0)) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot ask --budget 5 why?")
        assert end.state is JobState.DONE, end
        assert "A budget of 5.00 USD exceeds the operator's limit; it was reduced to 1.00 USD." in end.status


@pytest.mark.parametrize("kind", ["issue", "pull"])
async def test_a_dry_run_shows_what_would_be_and_sends_nothing(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        number = stage.issue().number if kind == "issue" else stage.pull().number
        before, pulls = hub.branches(stage.repo), len(stage.pulls())
        end = await stage.ask(number, "/codepilot fix --dry-run")
        assert end.state is JobState.DONE, end
        assert "**Dry run: nothing was published.**" in end.status
        assert f"`{CALC}`" in end.status
        assert "Fix add" in end.status
        assert hub.branches(stage.repo) == before
        assert len(stage.pulls()) == pulls
        writing = [each for each in stage.calls if not each.startswith(("GET ", "QUERY "))]
        assert not any("/git/" in each or "/pulls" in each or "/graphql" in each for each in writing), writing


async def test_a_dry_run_that_touches_protected_files_waits_for_nobody(hub: LocalHub, tmp_path: Path) -> None:
    adds = acting('write_file(".github/workflows/ci.yml")', "on: push\njobs: {}\n", completion="Had CI check it.")
    async with staged(hub, tmp_path, [adds]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --dry-run")
        assert end.state is JobState.DONE, end
        assert "files that require a person's approval: `.github/workflows/ci.yml`" in end.status
        assert "/codepilot approve" not in end.status


async def test_a_description_full_of_links_that_no_file_can_have_ends_no_job(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        place = f"{hub.url}/{stage.repo.full_name}/blob/main"
        issue = stage.issue(body="\n".join([f"{place}/a%00b", *(f"{place}/none-{n}.py" for n in range(50))]))
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end


async def test_a_dry_review_is_shown_and_not_sent(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [reviewing(REVIEW)]) as stage:
        number = a_pull_with_the_bug(stage)
        end = await stage.ask(number, "/codepilot review --dry-run")
        assert end.state is JobState.DONE, end
        assert "One mistake." in end.status
        assert "A review with 2 comments on lines." in end.status
        [run] = hub.check_runs(stage.repo)
        shown = [(each["start_line"], each["message"]) for each in run.annotations]
        assert [line for line, _ in shown] == [5, 1]
        assert "One too many." in str(shown[0])
        assert hub.reviews(stage.repo, number) == []


async def test_an_unknown_option_is_answered_and_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --force")
        assert "--force" in end.status
        assert "--dry-run" in end.status
        assert stage.providers == []
        assert stage.nothing_published()


async def test_a_command_about_lines_is_answered_among_them_and_the_agent_sees_them(
    hub: LocalHub, tmp_path: Path
) -> None:
    seen = ("the lines that the request is about", "calc.py line 5, after the change", "     return a + b + 1")
    async with staged(hub, tmp_path, answering(*seen)) as stage:
        number = a_pull_with_the_bug(stage)
        root = hub.review_comment(stage.repo, number, author="mona", body="Odd.", path=CALC, line=5)
        command = hub.review_comment(stage.repo, number, author="mona", body="/codepilot explain", in_reply_to=root.id)
        end = await stage.end_after("pull_request_review_comment", "created")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        answers = [each for each in hub.review_comments(stage.repo, number) if each.author_id == stage.app.bot.id]
        assert [(each.in_reply_to, each.body) for each in answers] == [(root.id, end.status)]
        assert stage.bot_comments(number) == []
        assert [each.content for each in hub.reactions(command)] == ["eyes"]


async def test_a_fix_of_commented_lines_lands_on_the_branch(hub: LocalHub, tmp_path: Path) -> None:
    script = [
        ScriptedReply(text=FIX, expect=("Fix what the discussion of the quoted lines is about.", "calc.py line 5"))
    ]
    async with staged(hub, tmp_path, script) as stage:
        number = a_pull_with_the_bug(stage)
        hub.review_comment(stage.repo, number, author="mona", body="/codepilot fix", path=CALC, line=5)
        end = await stage.end_after("pull_request_review_comment", "created")
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.file("topic", CALC) == FIXED_CALC.strip()


async def test_the_words_of_a_review_command_too(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, answering("Explain what is asked below")) as stage:
        number = stage.pull().number
        hub.review(stage.repo, number, author="mona", body="/codepilot explain the sum")
        end = await stage.end_after("pull_request_review", "submitted")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert len(stage.bot_comments(number)) == 1


def commented(stage: Stage, number: int, body: str, author: str) -> None:
    """Ask in a comment on a line."""
    stage.hub.review_comment(stage.repo, number, author=author, body=body, path="topic.txt", line=1)


def reviewed(stage: Stage, number: int, body: str, author: str) -> None:
    """Ask in the words of a review."""
    stage.hub.review(stage.repo, number, author=author, body=body)


def said(stage: Stage, number: int, body: str, author: str) -> None:
    """Ask in a comment."""
    stage.say(number, body, author=author)


WAYS = {
    "pull_request_review_comment": commented,
    "pull_request_review": reviewed,
    "issue_comment": said,
}


@pytest.mark.parametrize("event", WAYS)
async def test_a_stranger_is_told_nothing_whatever_the_verb(hub: LocalHub, tmp_path: Path, event: str) -> None:
    ask: Callable[[Stage, int, str, str], None] = WAYS[event]
    async with staged(hub, tmp_path) as stage:
        hub.add_user("stranger")
        number = stage.pull().number
        for verb in ("fix", "review", "explain", "plan", "ask why?", "test", "help", "please", "undo", "fxi"):
            ask(stage, number, f"/codepilot {verb}", "stranger")
            end = await stage.end_after(event, "submitted" if event == "pull_request_review" else "created")
            assert end.state is JobState.REFUSED, verb
        assert stage.bot_comments(number) == []
        assert [each for each in hub.review_comments(stage.repo, number) if each.author_id == stage.app.bot.id] == []
        assert hub.check_runs(stage.repo) == []
        assert stage.providers == []
        assert list((stage.data / "workspaces" / "mirrors").iterdir()) == []
