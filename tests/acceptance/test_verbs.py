"""A command of each verb, and one on a line of a pull request, through the whole service."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.acceptance.test_service_process import end_at, site
from tests.bot.jobs.test_run_verbs import ANSWER, CALC, REVIEW
from tests.stage import BUG, FIX, Stage, acting, staged

READ = 'read_file("calc.py")'


def answering(*expected: str, text: str = ANSWER, control: str = READ) -> list[ScriptedReply]:
    """A run of two steps: it reads with `expected` in its task, and answers."""
    return [
        ScriptedReply(text=acting(control), expect=expected),
        ScriptedReply(text=f"```completion\n{text}\n```\n", expect=("return a + b",) if control == READ else ()),
    ]


def pull_with_the_bug(stage: Stage) -> int:
    """Open a pull request that brings the bug in at line 5; return its number."""
    files = {CALC: f"# 1\n# 2\n# 3\n{BUG}"}
    stage.hub.commit(stage.repo, files, message="Count", author="mona", branch="topic")
    return stage.hub.open_pull(stage.repo, author="mona", head="topic", title="Count", body="As discussed.").number


@pytest.mark.parametrize(
    ("command", "task"),
    [("explain the sum", "Explain what is asked below"), ("ask why is it 3?", "Answer the question below")],
)
async def test_a_read_only_verb_answers_and_changes_nothing(
    hub: LocalHub, tmp_path: Path, command: str, task: str
) -> None:
    async with staged(hub, tmp_path, answering(task, command.partition(" ")[2])) as stage:
        number = stage.pull().number
        before = hub.branches(stage.repo)
        end = await stage.ask(number, f"/codepilot {command}")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        assert hub.branches(stage.repo) == before


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


def reviewing(comments: object) -> str:
    """The reply of a model that reviews."""
    return f"````completion\nOne mistake.\n\n```json\n{json.dumps(comments)}\n```\n````\n"


async def test_comments_on_a_renamed_file_stand_on_lines_that_github_has(hub: LocalHub, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 41))
    comments = [
        {"path": "new.txt", "line": 20, "body": "Why twenty?"},
        {"path": "old.txt", "line": 20, "side": "LEFT", "body": "Was it wrong?"},
        {"path": "new.txt", "line": 1, "body": "Not in the difference."},
    ]
    expected = ("new.txt (renamed from old.txt, +1 -1)", "--- a/old.txt\n+++ b/new.txt\n@@ -17,7 +17,7 @@ line 16\n")
    async with staged(hub, tmp_path, [ScriptedReply(text=reviewing(comments), expect=expected)]) as stage:
        stage.hub.commit(stage.repo, {"old.txt": text}, message="Add", author="mona")
        moved = {"old.txt": None, "new.txt": text.replace("line 20\n", "line twenty\n")}
        stage.hub.commit(stage.repo, moved, message="Move", author="mona", branch="topic")
        number = hub.open_pull(stage.repo, author="mona", head="topic", title="Move").number
        end = await stage.ask(number, "/codepilot review")
        assert end.status.startswith("### ✅ Done · "), end
        placed = [(each.path, each.line, each.side) for each in hub.review_comments(stage.repo, number)]
        assert placed == [("new.txt", 20, "RIGHT"), ("new.txt", 20, "LEFT")]
        assert "`new.txt:1`" in (hub.reviews(stage.repo, number)[0].body or "")
        requests = [call.rpartition("/")[2] for call in stage.calls if call.endswith(("/reviews", "/files"))]
        assert requests.count("files") == 0


@pytest.mark.parametrize(
    ("reads", "headline"),
    [
        (['read_file("vendor/dep.js", 1, 300)', 'text = read_file("vendor/dep.js::last")'], "⚠️ Reviewed in part"),
        (['read_file("vendor/dep.js", 1, 300)', 'read_file("vendor/dep.js", 301)'], "✅ Done"),
        (['print(read_file("vendor/dep.js"))'], "⚠️ Reviewed in part"),
        (['read_file("vendor/dep.js", 1, 500)'], "✅ Done"),
        (['print("x" * 50_000)\nread_file("vendor/dep.js", 1, 500)'], "⚠️ Reviewed in part"),
    ],
    ids=["partly unseen by the model", "two ranges", "as a value", "one range", "cut by the step"],
)
async def test_the_headline_of_a_review_says_whether_the_agents_tools_showed_all_changes(
    hub: LocalHub, tmp_path: Path, reads: list[str], headline: str
) -> None:
    lines = [f"var number{number} = 1;\n" for number in range(1, 500)]
    steps = [ScriptedReply(text=acting(control)) for control in reads]
    async with staged(hub, tmp_path, [*steps, ScriptedReply(text=reviewing([]))]) as stage:
        files = {"vendor/dep.js": "".join([*lines, "function last() {}\n"])}
        stage.hub.commit(stage.repo, files, message="Vendor", author="mona", branch="topic")
        stage.hub.commit(stage.repo, {"a.py": "x = 1\n"}, message="Add", author="mona", branch="topic")
        number = hub.open_pull(stage.repo, author="mona", head="topic", title="Vendor").number
        end = await stage.ask(number, "/codepilot review")
        assert end.status.startswith(f"### {headline} · "), end


async def test_a_review_comments_on_lines_with_a_suggestion_and_never_approves(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=reviewing(REVIEW), expect=("Review the changes of this pull request", "+# 3"))]
    async with staged(hub, tmp_path, script) as stage:
        number = pull_with_the_bug(stage)
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


@pytest.mark.slow
async def test_a_review_is_sent_once_although_the_service_dies_before_it_reads_the_answer(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with site(hub, tmp_path, script=[{"reply": reviewing(REVIEW)}]) as here:
        stage, number = here.stage, pull_with_the_bug(here.stage)
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


async def test_help_costs_no_model_and_no_clone(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot help")
        assert end.state is JobState.DONE
        assert "`/codepilot fix" in end.status
        assert stage.providers == []
        assert list((stage.data / "workspaces" / "mirrors").iterdir()) == []


async def test_a_description_full_of_links_that_no_file_can_have_ends_no_job(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        place = f"{hub.url}/{stage.repo.full_name}/blob/main"
        issue = stage.issue(body="\n".join([f"{place}/a%00b", *(f"{place}/none-{n}.py" for n in range(50))]))
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end


async def test_a_command_about_lines_is_answered_among_them_and_the_agent_sees_them(
    hub: LocalHub, tmp_path: Path
) -> None:
    seen = ("the lines that the request is about", "calc.py line 5, after the change", "     return a + b + 1")
    async with staged(hub, tmp_path, answering(*seen)) as stage:
        number = pull_with_the_bug(stage)
        root = hub.review_comment(stage.repo, number, author="mona", body="Odd.", path=CALC, line=5)
        command = hub.review_comment(stage.repo, number, author="mona", body="/codepilot explain", in_reply_to=root.id)
        end = await stage.end_after("pull_request_review_comment", "created")
        assert end.state is JobState.DONE, end
        assert ANSWER in end.status
        answers = [each for each in hub.review_comments(stage.repo, number) if each.author_id == stage.app.bot.id]
        assert [(each.in_reply_to, each.body) for each in answers] == [(root.id, end.status)]
        assert stage.bot_comments(number) == []
        assert [each.content for each in hub.reactions(command)] == ["eyes"]
