"""Rules of branches and names that leave no room: told before the run, or with the right remedy after it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from bot.domain.job import JobState
from bot.github.types import CannotExpressError
from bot.permissions.levels import SIGNED_ONLY
from tests.fakes.agent import reply
from tests.fakes.github import forbidden
from tests.fakes.site import FakeThread
from tests.seam import FIX, End, Seam, open_seam
from tests.stage import FILES

PROJECT = {"operator": "starts_with", "pattern": "PROJ-"}
BOT = "codepilot[bot]"


def pattern(kind: str, **changes: object) -> dict[str, object]:
    return {"type": kind, "parameters": PROJECT | changes}


RULES: dict[str, tuple[str | dict[str, object], str]] = {
    "creation": ("creation", "Cannot create ref due to creations being restricted"),
    "update": ("update", "Cannot update this protected ref"),
    "pull request": ("pull_request", "Changes must be made through a pull request"),
    "branch name": (pattern("branch_name_pattern"), "Branch name must start with `PROJ-`"),
    "message": (pattern("commit_message_pattern"), "Commit message must start with `PROJ-`"),
    "message's end": (
        pattern("commit_message_pattern", operator="ends_with", pattern="[skip]"),
        "Commit message must end with `[skip]`",
    ),
    "forbidden message": (
        pattern("commit_message_pattern", operator="contains", pattern="Codepilot", negate=True),
        "Commit message must not contain `Codepilot`",
    ),
    "address": (
        pattern("commit_author_email_pattern", operator="ends_with", pattern="@example.com"),
        "Commit author email must end with `@example.com`",
    ),
}


@pytest.mark.parametrize("name", RULES)
async def test_a_rule_that_forbids_the_commit_is_named_before_the_model_is_paid(tmp_path: Path, name: str) -> None:
    rule, words = RULES[name]
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, rule, branches="codepilot/*")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.REFUSED, end
        assert words in end.reason
        assert "exempt the bot from this rule" in end.reason
        assert end.reason in end.status
        assert not stage.providers
        assert not stage.bot_branches()


async def test_a_rule_that_the_bot_bypasses_or_meets_stops_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, "creation", "pull_request", bypass=[BOT])
        met = pattern("branch_name_pattern", pattern="codepilot/")
        stage.hub.add_rules(stage.repo, "required_signatures", "required_linear_history", "non_fast_forward", met)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.bot_branches()


async def test_where_commits_must_be_signed_the_person_and_the_agent_learn_what_cannot_be_changed(
    tmp_path: Path,
) -> None:
    async with open_seam(tmp_path, FIX, FIX) as stage:
        pull = stage.pull()
        stage.hub.add_rules(stage.repo, "required_signatures", branches="topic", classic=True)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert SIGNED_ONLY in end.status
        assert SIGNED_ONLY in stage.providers[0].facts
        other = await stage.ask(stage.issue().number, "/codepilot fix")
        assert SIGNED_ONLY not in other.status


async def test_rules_of_a_pull_requests_branch_are_read_in_one_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        pull = stage.pull()
        stage.hub.add_rules(stage.repo, "update", branches="topic")
        asked = len(stage.calls)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED, end
        assert "Cannot update this protected ref" in end.status
        assert not stage.providers
        assert stage.calls[asked:].count("repos.read_rules") == 1


async def test_a_regular_expression_is_only_announced(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, pattern("commit_message_pattern", operator="regex", pattern="^[A-Z]"))
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "is for GitHub to check: Commit message must match `^[A-Z]`" in end.status


async def test_the_type_of_a_conventional_title_is_only_known_after_the_run(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "commit:\n  title: conventional\n"}
    async with open_seam(tmp_path, FIX, files=files) as stage:
        stage.hub.add_rules(stage.repo, pattern("commit_message_pattern", pattern="fix"))
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.pulls()


async def test_the_repositorys_format_meets_its_own_rule(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "commit:\n  title: 'PROJ-1: {summary}'\n"}
    async with open_seam(tmp_path, FIX, files=files) as stage:
        stage.hub.add_rules(stage.repo, pattern("commit_message_pattern"))
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.pulls()


async def test_unknown_rules_stop_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        for call in ("repos.find_branches", "repos.read_rules"):
            stage.hub.fail(call, forbidden("Resource not accessible by integration"))
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end


async def test_a_ruleset_that_the_bot_may_not_read_stops_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, "required_signatures", branches="codepilot/*")
        stage.hub.fail("repos.is_bound_by", forbidden("Resource not accessible by integration"))
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end


REFUSALS: dict[str, tuple[str | dict[str, object], str, str]] = {
    "signatures": ("required_signatures", "Commits must have verified signatures", "with a signed commit"),
    "file path": (
        {"type": "file_path_restriction", "parameters": {"restricted_file_paths": ["calc.py"]}},
        "File path is restricted",
        "Leave such files out of the task",
    ),
    "message": (
        pattern("commit_message_pattern", operator="regex", pattern="^PROJ-"),
        "Commit message must match a given regex pattern: ^PROJ-",
        "Set `commit` in `.github/codepilot.yml`",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_push_that_a_rule_refuses_has_the_remedy_and_the_patch(tmp_path: Path, name: str) -> None:
    rule, words, remedy = REFUSALS[name]
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, rule)
        with patch("bot.publishing.publish.check_expressible", side_effect=CannotExpressError("a file mode")):
            end = await stage.ask(stage.issue().number, "/codepilot fix")
        for text in ("**Not published.**", words, remedy, "The patch is attached to the check run"):
            assert text in end.status
        assert "Check whether someone pushed" not in end.status
        assert not stage.bot_branches()


async def test_a_commit_that_a_rule_refuses_has_the_remedy_and_the_patch(tmp_path: Path) -> None:
    rule, words, remedy = REFUSALS["file path"]
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_rules(stage.repo, rule)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        for text in ("**Not published.**", words, remedy, "The patch is attached to the check run"):
            assert text in end.status
        assert not stage.pulls()


async def room(stage: Seam, *branches: str) -> None:
    for branch in branches:
        stage.hub.commit(stage.repo, {"x.txt": "x\n"}, message="Take the name", author="mona", branch=branch)


async def fix(stage: Seam, issue: FakeThread, *, prefix: str) -> tuple[FakeThread, End]:
    """Fix an issue, and check the name of the pull request's branch."""
    end = await stage.ask(issue.number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    [pull] = stage.pulls()
    assert pull.pull is not None
    assert pull.pull.head_ref.startswith(f"{prefix}issue-{issue.number}-")
    return pull, end


async def test_another_prefix_replaces_one_that_a_branch_leaves_no_room_for(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, FIX) as stage:
        await room(stage, "codepilot")
        issue = stage.issue()
        pull, end = await fix(stage, issue, prefix="codepilot-bot/")
        assert "leaves no room for branches `codepilot/…`; mine are `codepilot-bot/…`" in end.status
        # The issue's next fix continues there, and `undo` finds the commit.
        await stage.ask(issue.number, "/codepilot fix")
        assert stage.pulls() == [pull]
        undone = await stage.ask(pull.number, "/codepilot undo")
        assert "I reverted commit" in undone.status


async def test_without_room_for_either_prefix_nothing_is_started(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        await room(stage, "codepilot", "codepilot-bot")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.REFUSED, end
        assert "`codepilot` and `codepilot-bot`" in end.reason
        assert not stage.providers


async def test_the_repository_sets_the_prefix(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "branch_prefix: bots/codepilot-\n"}
    async with open_seam(tmp_path, FIX, files=files) as stage:
        await room(stage, "codepilot")
        _, end = await fix(stage, stage.issue(), prefix="bots/codepilot-")
        assert "no room" not in end.status


async def test_a_question_does_not_ask_for_names_or_rules(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(completion="Because.")]) as stage:
        await room(stage, "codepilot")
        end = await stage.ask(stage.issue().number, "/codepilot ask Why?")
        assert end.state is JobState.DONE, end
        assert not {"repos.find_branches", "repos.read_rules"} & set(stage.calls)
