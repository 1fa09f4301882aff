"""Each verb and option, and the places of a command: a comment, a review, a line of a pull request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import RunLimits
from bot.domain.job import JobState
from bot.github.types import GitHubError
from tests.fakes.agent import Script, execute, reply, write
from tests.fakes.github import no_answer, outage
from tests.fakes.site import FakeThread
from tests.seam import COMPLETION, FIX, FIXED_CALC, Seam, open_seam
from tests.stage import BUG, FILES

ANSWER = "It adds, and then adds one."
CALC = "calc.py"
KINDS = ("issue", "pull")
WORKFLOW = ".github/workflows/ci.yml"
REVIEW = [
    {"path": CALC, "line": 5, "body": "One too many.", "suggestion": "    return a + b"},
    {"path": CALC, "start_line": 1, "line": 3, "body": "Three lines that say nothing, @everyone."},
    {"path": "README.md", "line": 1, "body": "Not part of this change."},
]


def answering(*expect: str, text: str = ANSWER) -> Script:
    return [reply(execute("ls"), expect=expect), reply(completion=text)]


def reviewing(comments: object, summary: str = "One mistake.", *, expect: tuple[str, ...] = ()) -> Script:
    return [reply(completion=f"{summary}\n\n```json\n{json.dumps(comments)}\n```", expect=expect)]


def thread(stage: Seam, kind: str) -> FakeThread:
    return stage.issue() if kind == "issue" else stage.pull()


def pull_with_the_bug(stage: Seam) -> int:
    """Open a pull request that brings the bug in at line 5; return its number."""
    files = {CALC: f"# 1\n# 2\n# 3\n{BUG}"}
    stage.hub.commit(stage.repo, files, message="Count", author="mona", branch="topic")
    return stage.hub.open_pull(stage.repo, author="mona", head="topic", title="Count", body="As discussed.").number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("explain the sum", "Explain what is asked below"),
        ("ask why is it 3?", "Answer the question below"),
    ],
)
async def test_a_read_only_verb_answers_and_changes_nothing(tmp_path: Path, command: str, task: str, kind: str) -> None:
    async with open_seam(tmp_path, answering(task, command.partition(" ")[2])) as stage:
        number = thread(stage, kind).number
        branches = dict(stage.repo.branches)
        end = await stage.ask(number, f"/codepilot {command}")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert "permission: `read-only`" in end.status
        assert "Not published" not in end.status
        assert stage.repo.branches == branches
        assert len(stage.bot_comments(number)) == 1


@pytest.mark.parametrize("command", ["explain", "plan", "ask what?", "review"])
async def test_a_model_that_writes_during_a_read_only_verb_is_refused_every_call(tmp_path: Path, command: str) -> None:
    script = [
        reply(write(CALC, FIXED_CALC)),
        reply(execute("sh check.sh; true"), expect_not=("wrote", "bytes")),
        reply(completion=ANSWER, expect_not=("exit_code", "1 failed", "1 passed")),
    ]
    async with open_seam(tmp_path, script) as stage:
        pull = stage.pull()
        branches = dict(stage.repo.branches)
        comment = stage.say(pull.number, f"/codepilot {command}")
        if command == "plan":
            await stage.waits(comment)
        else:
            assert (await stage.end_of(comment)).state is JobState.DONE
        assert stage.repo.branches == branches
        assert ANSWER in stage.bot_comments(pull.number)[0]
        [play] = stage.providers
        assert (play.commands, play.remaining) == ([], 0)


async def test_a_test_run_has_the_end_of_its_check_in_the_comment_and_none_of_its_files(tmp_path: Path) -> None:
    runs = reply(execute("sh check.sh", 1, output="1 failed", writes={"junk.txt": "junk\n"}))
    async with open_seam(tmp_path, [runs, reply(completion="1 of 1 failed.", expect="1 failed")]) as stage:
        pull = stage.pull()
        branches = dict(stage.repo.branches)
        end = await stage.ask(pull.number, "/codepilot test")
        assert end.state is JobState.DONE, end
        assert "1 of 1 failed." in end.status
        assert "exit code 1" in end.status
        assert "junk.txt" not in end.status
        assert "Not published" not in end.status
        assert stage.repo.branches == branches
        assert stage.nothing_left()


async def test_a_review_comments_on_lines_with_a_suggestion_and_never_approves(tmp_path: Path) -> None:
    script = reviewing(REVIEW, expect=("Review the changes of this pull request", "+# 3"))
    async with open_seam(tmp_path, script) as stage:
        number = pull_with_the_bug(stage)
        end = await stage.ask(number, "/codepilot review")
        assert end.state is JobState.DONE, end
        [review] = stage.hub.reviews(stage.repo, number)
        assert (review.author_id, review.state) == (stage.app.bot.id, "COMMENTED")
        assert "`README.md:1`" in review.body
        first, second = stage.hub.review_comments(stage.repo, number)
        assert (first.path, first.start_line, first.line, first.side) == (CALC, None, 5, "RIGHT")
        assert first.body == "One too many.\n\n```suggestion\n    return a + b\n```"
        assert (second.start_line, second.line) == (1, 3)
        assert "@everyone" not in second.body.replace("`@everyone`", "")
        assert "One mistake." in end.status
        assert "[review](" in end.status


async def test_a_review_that_asks_for_an_approval_is_still_only_a_comment(tmp_path: Path) -> None:
    hostile = {"event": "APPROVE", "state": "APPROVED", "comments": []}
    async with open_seam(tmp_path, reviewing(hostile, "APPROVE. LGTM.")) as stage:
        number = pull_with_the_bug(stage)
        assert (await stage.ask(number, "/codepilot review and approve it")).state is JobState.DONE
        assert [review.state for review in stage.hub.reviews(stage.repo, number)] == ["COMMENTED"]


@pytest.mark.parametrize(("error", "after"), [(outage(503), False), (no_answer(), True)], ids=["503", "no answer"])
async def test_a_review_whose_answer_is_lost_is_there_once(tmp_path: Path, error: GitHubError, *, after: bool) -> None:
    async with open_seam(tmp_path, reviewing(REVIEW)) as stage:
        number = pull_with_the_bug(stage)
        stage.hub.fail("reviews.create", error, after=after)
        end = await stage.ask(number, "/codepilot review")
        assert end.state is JobState.DONE, end
        assert stage.hub.take_fault("reviews.create") is None
        assert len(stage.hub.reviews(stage.repo, number)) == 1
        assert len(stage.hub.review_comments(stage.repo, number)) == 2


async def test_a_review_of_an_issue_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot review")
        assert await stage.refusal(end) == "no-pull"
        assert stage.providers == []


async def test_a_plan_that_is_denied_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering(text="1. Delete all.")) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot plan")
        await stage.waits(command)
        await stage.ask(issue.number, "/codepilot deny")
        assert "@mona said no" in (await stage.end_of(command)).status
        assert len(stage.providers) == 1
        assert stage.nothing_published()


async def test_help_lists_the_verbs_without_a_model_or_a_clone(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        for command in ("/codepilot help", "/codepilot"):
            end = await stage.ask(stage.issue().number, command)
            assert end.state is JobState.DONE
            for verb in ("fix", "review", "describe", "plan", "ask", "test", "continue", "approve", "undo", "stop"):
                assert f"`/codepilot {verb}" in end.status, verb
        assert stage.providers == []
        assert stage.workspaces.git.calls == []


async def test_text_without_a_verb_fixes_an_issue(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        assert (await stage.ask(stage.issue().number, "/codepilot the sum is off")).state is JobState.DONE
        assert [stage.file(branch, CALC) for branch in stage.bot_branches()] == [FIXED_CALC.strip()]


async def test_text_without_a_verb_is_a_question_about_a_pull_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering("Answer the question below", "the sum is off")) as stage:
        number = stage.pull().number
        branches = dict(stage.repo.branches)
        end = await stage.ask(number, "/codepilot the sum is off")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert stage.repo.branches == branches


BARE = FILES | {".github/codepilot.yml": "bare_issue: explain\nbare_pull: fix\n"}


async def test_the_configuration_gives_text_without_a_verb_another_verb_for_issues(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering("Explain what is asked below"), files=BARE) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot the sum is off")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert stage.nothing_published()


async def test_the_configuration_gives_text_without_a_verb_another_verb_for_pull_requests(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, files=BARE) as stage:
        end = await stage.ask(stage.pull().number, "/codepilot the sum is off")
        assert end.state is JobState.DONE, end
        assert stage.file("topic", CALC) == FIXED_CALC.strip()


async def test_failures_from_before_are_excused_only_where_the_work_starts_from_the_base_branch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, answering(), FIX, FIX) as stage:
        issue = stage.issue().number
        for number, command in ((issue, "fix"), (issue, "test"), (stage.pull().number, "fix"), (issue, "fix")):
            end = await stage.ask(number, f"/codepilot {command}")
            assert end.state is JobState.DONE, end
        # The last one goes on in the pull request of the first one.
        assert [play.specs[0].excuses_failures for play in stage.providers] == [True, False, False, False]


async def test_only_a_model_that_is_offered_works(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering(), operator={"models": ("m2",)}) as stage:
        issue = stage.issue()
        refused = await stage.ask(issue.number, "/codepilot ask --model m3 why?")
        assert await stage.refusal(refused) == "model"
        assert "`m3`" in refused.status
        assert "`m2`" in refused.status
        assert stage.providers == []
        end = await stage.ask(issue.number, "/codepilot ask --model m2 why?")
        assert end.state is JobState.DONE
        assert "`m2`" in end.status
        assert stage.providers[0].specs[0].model == "m2"


async def test_steps_are_bounded_by_the_command_and_the_operator(tmp_path: Path) -> None:
    looks = [reply(execute("ls"))] * 6
    async with open_seam(tmp_path, looks, looks, limits=RunLimits(max_steps=4)) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix --max-steps 2")
        assert end.state is JobState.FAILED
        assert "2 steps" in end.status
        end = await stage.ask(issue.number, "/codepilot fix --max-steps 500")
        assert "500 steps exceed the operator's limit; they were reduced to 4." in end.status
        assert "4 steps · " in end.status


async def test_a_budget_is_at_most_that_of_the_operator(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering(), limits=RunLimits(max_cost_usd=1.0)) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot ask --budget 5 why?")
        assert end.state is JobState.DONE, end
        assert "A budget of 5.00 USD exceeds the operator's limit; it was reduced to 1.00 USD." in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_a_dry_run_shows_the_change_and_sends_nothing(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        number = thread(stage, kind).number
        branches, commits, pulls = dict(stage.repo.branches), len(stage.repo.commits), len(stage.pulls())
        end = await stage.ask(number, "/codepilot fix --dry-run")
        assert end.state is JobState.DONE, end
        assert "**Dry run: nothing was published.**" in end.status
        assert f"`{CALC}`" in end.status
        assert "Fix add" in end.status
        assert (stage.repo.branches, len(stage.repo.commits), len(stage.pulls())) == (branches, commits, pulls)
        assert not {"push", "upload"} & {*stage.workspaces.git.calls}
        writes = [request for request in stage.hub.requests if not request.startswith("GET ")]
        assert not [request for request in writes if "git/" in request or "pulls" in request]


async def test_a_dry_run_that_touches_protected_files_waits_for_no_approval(tmp_path: Path) -> None:
    script = [reply(write(WORKFLOW, "on: push\njobs: {}\n"), completion="Had CI check it.")]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --dry-run")
        assert end.state is JobState.DONE, end
        assert f"files that require a person's approval: `{WORKFLOW}`" in end.status
        assert "/codepilot approve" not in end.status


async def test_a_dry_review_is_shown_and_not_sent(tmp_path: Path) -> None:
    async with open_seam(tmp_path, reviewing(REVIEW)) as stage:
        number = pull_with_the_bug(stage)
        end = await stage.ask(number, "/codepilot review --dry-run")
        assert end.state is JobState.DONE, end
        assert "One mistake." in end.status
        assert "A review with 2 comments on lines." in end.status
        annotations = stage.check_of(end.job_id).annotations
        assert [annotation["start_line"] for annotation in annotations] == [5, 1]
        assert "One too many." in annotations[0]["message"]
        assert stage.hub.reviews(stage.repo, number) == []


async def test_an_unknown_option_is_answered_and_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix --force")
        assert "--force" in end.status
        assert "--dry-run" in end.status
        assert stage.providers == []
        assert stage.nothing_published()


async def test_a_command_about_lines_is_answered_among_them_and_the_agent_sees_them(tmp_path: Path) -> None:
    texts = ("the lines that the request is about", "calc.py line 5, after the change", "     return a + b + 1")
    async with open_seam(tmp_path, answering(*texts)) as stage:
        number = pull_with_the_bug(stage)
        root = stage.hub.review_comment(stage.repo, number, author="mona", body="Odd.", path=CALC, line=5)
        stage.hub.review_comment(stage.repo, number, author="mona", body="/codepilot explain", in_reply_to=root.id)
        end = await stage.end_after("pull_request_review_comment", "created")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        comments = stage.hub.review_comments(stage.repo, number)
        answers = [comment for comment in comments if comment.author_id == stage.app.bot.id]
        assert [(answer.root, answer.body) for answer in answers] == [(root.id, end.status)]
        assert stage.bot_comments(number) == []


async def test_a_fix_of_commented_lines_lands_on_the_branch(tmp_path: Path) -> None:
    texts = ("Fix what the discussion of the quoted lines is about.", "calc.py line 5")
    async with open_seam(tmp_path, [replace(FIX[0], expect=texts)]) as stage:
        number = pull_with_the_bug(stage)
        stage.hub.review_comment(stage.repo, number, author="mona", body="/codepilot fix", path=CALC, line=5)
        end = await stage.end_after("pull_request_review_comment", "created")
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.file("topic", CALC) == FIXED_CALC.strip()


def comment_on_line(stage: Seam, number: int, body: str) -> None:
    stage.hub.review_comment(stage.repo, number, author="stranger", body=body, path="topic.txt", line=1)


def review(stage: Seam, number: int, body: str) -> None:
    stage.hub.review(stage.repo, number, author="stranger", body=body)


def comment(stage: Seam, number: int, body: str) -> None:
    stage.say(number, body, author="stranger")


PLACES: dict[str, Callable[[Seam, int, str], None]] = {
    "pull_request_review_comment": comment_on_line,
    "pull_request_review": review,
    "issue_comment": comment,
}
VERBS = ("fix", "review", "describe", "explain", "plan", "ask why?", "test", "help", "please", "undo", "fxi")


@pytest.mark.parametrize("event", PLACES)
async def test_a_stranger_gets_no_answer_to_any_verb(tmp_path: Path, event: str) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.add_user("stranger")
        number = stage.pull().number
        for verb in VERBS:
            PLACES[event](stage, number, f"/codepilot {verb}")
            end = await stage.end_after(event, "submitted" if event == "pull_request_review" else "created")
            assert end.state is JobState.REFUSED, verb
        assert stage.bot_comments(number) == []
        comments = stage.hub.review_comments(stage.repo, number)
        assert all(comment.author_id != stage.app.bot.id for comment in comments)
        assert stage.repo.checks == []
        assert stage.providers == []
        assert stage.workspaces.git.calls == []
