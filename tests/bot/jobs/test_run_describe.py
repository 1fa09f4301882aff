"""`/codepilot describe`: title and description of a pull request, written by the host after a look at the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import Reply, do, reply
from tests.fakes.github import forbidden
from tests.fakes.site import FakeThread
from tests.seam import Seam, open_seam
from tests.seam_step import run_step
from tests.stage import FILES

BODY = "It adds a topic, so that readers find it.\n\nFixes #1."
COMPLETION = f"Add a topic for readers\n\n{BODY}"
OLD = "As discussed with @hubot.\n\nFixes #1"


def described(completion: str = COMPLETION) -> list[Reply]:
    return [reply(completion=completion, expect=("Write the title and the description", "the pull request's diff"))]


def a_pull(stage: Seam, body: str = OLD, author: str = "mona") -> FakeThread:
    stage.issue()
    stage.hub.commit(stage.repo, {"topic.txt": "A topic.\n"}, message="Add a topic", author=author, branch="topic")
    return stage.hub.open_pull(stage.repo, author=author, head="topic", title="Wip", body=body)


async def test_it_replaces_title_and_description_and_says_how_to_restore_them(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        end = await stage.ask(pull.number, "/codepilot describe")
        assert end.state is JobState.DONE, end
        assert (pull.title, pull.body) == ("Add a topic for readers", BODY)
        assert "The title was `Wip`" in end.status
        assert "open *edited* above the new one" in end.status
        assert not stage.bot_branches()


async def test_at_the_level_ask_a_person_approves_the_whole_text(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "ask"}) as stage:
        pull = a_pull(stage)
        asked = stage.say(pull.number, "/codepilot describe why readers need it")
        job_id = await stage.waits(asked)
        assert pull.title == "Wip"
        [comment] = stage.bot_comments(pull.number)
        assert f"```\n{COMPLETION}\n```" in comment
        await stage.ask(pull.number, "/codepilot approve")
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert (pull.title, pull.body) == ("Add a topic for readers", BODY)
        assert len(stage.providers) == 1


async def test_a_refusal_leaves_the_text_and_shows_the_proposal(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "ask"}) as stage:
        pull = a_pull(stage)
        job_id = await stage.waits(stage.say(pull.number, "/codepilot describe"))
        await stage.ask(pull.number, "/codepilot deny Too long.")
        end = await stage.ended(job_id)
        assert (pull.title, pull.body) == ("Wip", OLD)
        assert "@mona said no: Too long." in end.status
        assert BODY in end.status


@pytest.mark.parametrize("field", ["title", "body"])
async def test_an_edit_of_a_person_during_the_run_is_never_overwritten(tmp_path: Path, field: str) -> None:
    async with open_seam(tmp_path, operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        stage.agents._scripts.append([reply(do(lambda: setattr(pull, field, "By hand.")), completion=COMPLETION)])
        end = await stage.ask(pull.number, "/codepilot describe")
        assert getattr(pull, field) == "By hand."
        assert "### ⚠️ Not published" in end.status
        assert "Somebody has edited the title or the description since the command" in end.status
        assert BODY in end.status


async def test_a_fork_is_described_without_running_its_code(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "auto"}) as stage:
        stage.issue()
        fork = stage.hub.add_repo("eve/calc", owner="eve", fork_of=stage.repo)
        stage.hub.commit(fork, {"topic.txt": "A topic.\n"}, message="Add a topic", author="eve", branch="topic")
        pull = stage.hub.open_pull(stage.repo, author="eve", head="eve:topic", title="Wip", body=OLD)
        end = await stage.ask(pull.number, "/codepilot describe")
        assert end.state is JobState.DONE, end
        assert pull.title == "Add a topic for readers"
        assert "execute" not in stage.providers[0].specs[0].tools


async def test_at_the_level_read_only_the_text_is_only_shown(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "read-only"}) as stage:
        pull = a_pull(stage)
        end = await stage.ask(pull.number, "/codepilot describe")
        assert pull.title == "Wip"
        assert "### ⚠️ Not published" in end.status
        assert "the new text is only shown" in end.status
        assert BODY in end.status


async def test_a_dry_run_shows_the_text(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        end = await stage.ask(pull.number, "/codepilot describe --dry-run")
        assert pull.title == "Wip"
        assert "**Dry run: nothing was published.**" in end.status
        assert BODY in end.status


async def test_on_an_issue_and_in_a_locked_thread_it_is_refused(tmp_path: Path) -> None:
    async with open_seam(tmp_path, operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        issue = await stage.ask(1, "/codepilot describe")
        assert "There is nothing to describe in an issue." in issue.status
        asked = stage.say(pull.number, "/codepilot describe")
        stage.hub.lock(stage.repo, pull.number)
        locked = await stage.end_of(asked)
        assert locked.state is JobState.REFUSED
        assert not stage.providers


async def test_a_stranger_describes_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        stage.hub.add_user("eve")
        end = await stage.ask(pull.number, "/codepilot describe", author="eve")
        assert end.state is JobState.REFUSED
        assert pull.title == "Wip"


async def test_a_workflow_step_shows_the_text_that_nobody_can_approve(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described()) as stage:
        pull = a_pull(stage)
        stage.say(pull.number, "/codepilot describe")
        run = await run_step(stage, "issue_comment", CODEPILOT_LEVEL="ask")
        assert run.ended is JobState.DONE, run.summary
        assert "Nobody can approve the new text in a workflow run" in run.summary
        assert pull.title == "Wip"


async def test_a_missing_permission_is_named_and_the_text_shown(tmp_path: Path) -> None:
    async with open_seam(tmp_path, described(), operator={"level": "auto"}) as stage:
        pull = a_pull(stage)
        stage.hub.fail("pulls.describe", forbidden("Resource not accessible by integration"))
        end = await stage.ask(pull.number, "/codepilot describe")
        assert "Resource not accessible by integration" in end.status
        assert BODY in end.status
        assert pull.title == "Wip"


async def test_the_templates_headings_stay(tmp_path: Path) -> None:
    files = FILES | {".github/pull_request_template.md": "## Why\n\n## How tested\n"}
    old = "## Why\n\nSo.\n\n## How tested\n\nBy hand.\n\n## Other\n\nx"
    async with open_seam(
        tmp_path, described("Add a topic\n\n## Why\n\nReaders."), operator={"level": "auto"}, files=files
    ) as stage:
        pull = a_pull(stage, old)
        await stage.ask(pull.number, "/codepilot describe")
        assert pull.body == "## Why\n\nReaders.\n\n## How tested\n\nBy hand."
