"""`remember`: rules that one pull request collects, and what refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.domain.access import TrustedBots
from bot.domain.job import JobState
from bot.jobs import memory
from bot.jobs.context import JobContext
from bot.jobs.memory import Collection, Place
from bot.publishing.outcome import Published
from bot.publishing.rules import HEADING, MAX_RULE_CHARS, MAX_RULES
from tests.bot.jobs.test_run_branch_rules import PROJECT
from tests.fakes.github import forbidden, no_answer
from tests.fakes.site import FakeThread
from tests.seam import FIX, NOTHING_LEFT, SECRET, Seam, open_seam
from tests.seam_step import run_step
from tests.stage import FILES

RULE = "Run `sh check.sh` before each commit."
OTHER = "Name tests after the behaviour."
SECTION = f"## {HEADING}"


def branch_of(pull: FakeThread) -> str:
    assert pull.pull is not None
    return pull.pull.head_ref


def section(stage: Seam, ref: str, path: str = "AGENTS.md") -> list[str]:
    """Return the rules of the section, without their links."""
    lines = stage.file(ref, path).partition(SECTION)[2].splitlines()
    return [line.rpartition(" ([#")[0].removeprefix("- ") for line in lines if line.startswith("- ")]


async def remembered(stage: Seam, *rules: str) -> FakeThread:
    """Give each rule in an issue of its own; return the pull request with them."""
    for rule in rules:
        end = await stage.ask(stage.issue().number, f"/codepilot remember {rule}")
        assert end.state is JobState.DONE, end
    return stage.pulls()[-1]


async def refused(stage: Seam, rule: str, **options: str) -> str:
    """Return the reply to a rule that is refused."""
    number = stage.issue().number
    end = await stage.ask(number, f"/codepilot remember {rule}", **options)
    assert end.state is JobState.REFUSED, end
    assert not stage.pulls()
    return end.status


async def test_a_rule_becomes_a_line_with_its_origin_in_a_pull_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, f"/codepilot remember {RULE}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        [pull] = stage.pulls()
        url = f"{stage.hub.url}/mona/calc/issues/{issue.number}#issuecomment-{command.id}"
        line = f"- {RULE} ([#{issue.number}]({url}))"
        assert stage.file(branch_of(pull), "AGENTS.md") == f"{SECTION}\n\n{line}"
        assert stage.changed_paths("main", branch_of(pull)) == ["AGENTS.md"]
        assert stage.commits_between("main", branch_of(pull)) == 1
        assert "codepilot" in stage.author(branch_of(pull))
        # In full in the description and in the reply, which links the pull request.
        assert line in (pull.body or "")
        assert line in end.status
        assert f"[pull request #{pull.number}]({stage.hub.url}/mona/calc/pull/{pull.number})" in end.status
        assert stage.providers == []


async def test_rules_of_all_threads_are_collected_in_one_pull_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        await remembered(stage, RULE, OTHER, "Keep `calc.py` short.")
        [pull] = stage.pulls()
        assert section(stage, branch_of(pull)) == [RULE, OTHER, "Keep `calc.py` short."]
        assert all(line in (pull.body or "") for line in (RULE, OTHER, "Keep `calc.py` short."))


@pytest.mark.parametrize("again", [RULE, RULE.upper().rstrip("."), f"  {RULE}\n"])
async def test_the_same_rule_is_kept_once(tmp_path: Path, again: str) -> None:
    async with open_seam(tmp_path) as stage:
        pull = await remembered(stage, RULE)
        end = await stage.ask(stage.issue().number, f"/codepilot remember {again}")
        assert "was in this pull request already" in end.status
        assert section(stage, branch_of(pull)) == [RULE]
        stage.hub.merge(stage.repo, pull.number, by="mona")
        end = await stage.ask(stage.issue().number, f"/codepilot remember {again}")
        assert "This rule is in `AGENTS.md` already." in end.status
        assert len(stage.pulls()) == 1


@pytest.mark.parametrize("end", ["merged", "closed", "merged, branch deleted"])
async def test_after_the_pull_request_has_ended_a_rule_opens_a_new_one(tmp_path: Path, end: str) -> None:
    async with open_seam(tmp_path) as stage:
        first = await remembered(stage, RULE)
        if "merged" in end:
            stage.hub.merge(stage.repo, first.number, by="mona")
        else:
            stage.hub.close(stage.repo, first.number, by="mona")
        if "deleted" in end:
            stage.hub.delete_branch(stage.repo, branch_of(first))
        second = await remembered(stage, OTHER)
        assert second.number != first.number
        assert section(stage, branch_of(second)) == ([RULE, OTHER] if "merged" in end else [OTHER])
        # Only what it adds.
        assert (RULE in (second.body or ""), OTHER in (second.body or "")) == (False, True)


async def test_a_base_branch_that_moved_changes_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = await remembered(stage, RULE)
        stage.hub.commit(stage.repo, {"more.txt": "More.\n"}, message="Go on", author="mona", branch="main")
        assert await remembered(stage, OTHER) is pull
        assert section(stage, branch_of(pull)) == [RULE, OTHER]


async def test_a_branch_with_conflicts_is_continued_on_the_base_branch_with_all_rules(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files={**FILES, "AGENTS.md": "# Agents\n\nBe kind.\n"}) as stage:
        first = await remembered(stage, RULE, "Keep it short.")
        text = f"# Agents\n\nBe kind.\n\n{SECTION}\n\n- From the base branch.\n"
        stage.hub.commit(stage.repo, {"AGENTS.md": text}, message="Go on", author="mona", branch="main")
        second = await remembered(stage, OTHER)
        assert (first.state, second.state) == ("closed", "open")
        assert f"Continued in #{second.number}" in (first.body or "")
        assert stage.file(branch_of(second), "AGENTS.md").startswith("# Agents\n\nBe kind.\n")
        assert "- From the base branch." in stage.file(branch_of(second), "AGENTS.md")
        assert section(stage, branch_of(second))[1:] == [RULE, "Keep it short.", OTHER]
        assert all(rule in (second.body or "") for rule in (RULE, "Keep it short.", OTHER))


async def test_other_work_on_a_branch_with_conflicts_is_not_left_behind(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = await remembered(stage, RULE)
        stage.hub.commit(stage.repo, {"new.txt": "New.\n"}, message="Add", author="mona", branch=branch_of(pull))
        stage.hub.commit(stage.repo, {"AGENTS.md": "Other.\n"}, message="Go on", author="mona", branch="main")
        end = await stage.ask(stage.issue().number, f"/codepilot remember {OTHER}")
        assert "It conflicts with `main`." in end.status
        assert stage.pulls() == [pull]
        assert section(stage, branch_of(pull)) == [RULE, OTHER]


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["CLAUDE.md"], "CLAUDE.md"),
        (["CLAUDE.md", "AGENTS.md"], "AGENTS.md"),
        (["GEMINI.md"], "GEMINI.md"),
        ([".github/copilot-instructions.md"], ".github/copilot-instructions.md"),
    ],
)
async def test_the_file_is_the_one_that_the_repository_uses(tmp_path: Path, files: list[str], path: str) -> None:
    async with open_seam(tmp_path, files={**FILES, **dict.fromkeys(files, "Be kind.\n")}) as stage:
        pull = await remembered(stage, RULE, OTHER)
        assert stage.changed_paths("main", branch_of(pull)) == [path]
        assert stage.file(branch_of(pull), path).startswith(f"Be kind.\n\n{SECTION}\n\n- {RULE} ")
        assert f"`{path}` is a protected file" in (pull.body or "")


async def test_edits_of_people_survive(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = await remembered(stage, RULE, "Never do that.")
        text = f"# Ours\n\n{SECTION}\n\nAs agreed:\n\n- Run the checks.\n  Always.\n\n## Later\n\nText.\n"
        stage.hub.commit(stage.repo, {"AGENTS.md": text}, message="Edit", author="mona", branch=branch_of(pull))
        stage.hub.edit_thread(stage.repo, pull.number, by="mona", body="Our rules.")
        await remembered(stage, OTHER)
        start, _, added = stage.file(branch_of(pull), "AGENTS.md").partition(f"\n- {OTHER} ")
        assert start == text.partition("\n\n## Later")[0]
        assert added.partition("\n")[2] == "\n## Later\n\nText."
        body = pull.body or ""
        assert body.startswith("Our rules.\n- Run the checks.\n- Name tests")
        assert body.count(OTHER) == 1


async def test_commands_at_the_same_time_end_in_one_pull_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, both = memory.publish_rules, asyncio.Barrier(2)
    waits = [both, both]

    async def publish_together(
        context: JobContext, place: Place, target: Collection, lines: Sequence[str]
    ) -> Published:
        if waits:
            async with asyncio.timeout(20):
                await waits.pop().wait()
        return await publish(context, place, target, lines)

    monkeypatch.setattr("tests.seam._LANES", ("event", "steer", "steer", "work"))
    monkeypatch.setattr(memory, "publish_rules", publish_together)
    async with open_seam(tmp_path) as stage:
        for rules in ((RULE, OTHER), ("Third rule here.", "Fourth rule here.")):  # to a new one, and to an open one
            waits[:] = [both, both]
            comments = [stage.say(stage.issue().number, f"/codepilot remember {rule}") for rule in rules]
            assert [(await stage.end_of(comment)).state for comment in comments] == [JobState.DONE] * 2
            assert not waits
        [pull] = stage.pulls()
        expected = sorted([RULE, OTHER, "Third rule here.", "Fourth rule here."])
        assert sorted(section(stage, branch_of(pull))) == expected
        assert all(rule in (pull.body or "") for rule in expected)


@pytest.mark.parametrize("place", ["publish_rules", "describe_pull"])
@pytest.mark.parametrize("earlier", [(), (OTHER,)])
async def test_a_worker_that_dies_repeats_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, earlier: tuple[str, ...]
) -> None:
    async with open_seam(tmp_path) as stage:
        await remembered(stage, *earlier) if earlier else None
        call = getattr(memory, place)

        async def die_behind(*args: Any) -> None:  # noqa: ANN401 - of either
            await call(*args)
            monkeypatch.setattr(memory, place, call)
            await stage.hang()

        monkeypatch.setattr(memory, place, die_behind)
        command = stage.say(stage.issue().number, f"/codepilot remember {RULE}")
        await stage.settle()
        await stage.restart()
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert "This rule is in this pull request" in end.status
        [pull] = stage.pulls()
        assert section(stage, branch_of(pull)) == [*earlier, RULE]
        assert stage.commits_between("main", branch_of(pull)) == 1 + len(earlier)
        assert (pull.body or "").count(RULE) == 1


async def test_an_answer_of_github_that_is_lost_repeats_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.fail("commits.create_with_branch", no_answer())
        pull = await remembered(stage, RULE)
        stage.hub.fail("pulls.describe", no_answer())
        await remembered(stage, OTHER)
        assert stage.pulls() == [pull]
        assert section(stage, branch_of(pull)) == [RULE, OTHER]


async def test_a_branch_whose_pull_request_could_not_be_opened_goes_on(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        for call in ("commits.create_with_branch", "pulls.create"):
            stage.hub.fail(call, forbidden())
        end = await stage.ask(stage.issue().number, f"/codepilot remember {RULE}")
        assert end.state is JobState.FAILED
        assert "❌ The rule is not kept. The commit was pushed, but the pull request" in end.status
        assert stage.pulls() == []
        pull = await remembered(stage, OTHER)
        assert section(stage, branch_of(pull)) == [RULE, OTHER]
        assert RULE in (pull.body or "")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("x" * (MAX_RULE_CHARS + 1), f"at most {MAX_RULE_CHARS} characters"),
        ("```text hidden", "could hide a part of it"),
        ("- [ ] a task", "could hide a part of it"),
        ("", "I have not offered one"),
    ],
)
async def test_a_rule_that_cannot_be_shown_on_a_line_is_refused(tmp_path: Path, rule: str, reason: str) -> None:
    async with open_seam(tmp_path) as stage:
        assert reason in await refused(stage, rule)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"{SECTION}\n\n" + "".join(f"- Rule number {n}.\n" for n in range(MAX_RULES)), "The section is full"),
        (f"{SECTION}\n\n" + f"- {'x' * 290}\n" * 12, "The section is full"),
        ("```\nopen\n", "A code block or comment is open"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        ("x" * 70_000, "70,000 bytes; the limit is"),
    ],
)
async def test_a_file_that_cannot_take_a_rule_is_left_as_it_is(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    async with open_seam(tmp_path, files={**FILES, "AGENTS.md": content}) as stage:
        assert reason in await refused(stage, RULE)


async def test_where_nothing_may_change_no_rule_is_kept(tmp_path: Path) -> None:
    async with open_seam(tmp_path, operator={"level": "read-only"}) as stage:
        assert "I change nothing here, because the operator" in await refused(stage, RULE)
    files = {**FILES, ".github/codepilot.yml": "level: read-only\n"}
    async with open_seam(tmp_path / "2", files=files) as stage:
        assert "`level` in `.github/codepilot.yml` allows only reading" in await refused(stage, RULE)


async def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.app.permissions["pull_requests"] = "read"
        assert "The token lacks `pull-requests: write`" in await refused(stage, RULE)


async def test_a_locked_thread_takes_no_rule_and_a_closed_one_does(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        stage.hub.close(stage.repo, issue.number, by="mona")
        assert (await stage.ask(issue.number, f"/codepilot remember {RULE}")).state is JobState.DONE
        stage.hub.lock(stage.repo, issue.number)
        assert (await stage.ask(issue.number, f"/codepilot remember {OTHER}")).state is JobState.REFUSED


async def test_a_bot_gives_no_rules(tmp_path: Path) -> None:
    trusting = {"trusted_bots": TrustedBots(logins=frozenset({"helper[bot]"}))}
    async with open_seam(tmp_path, operator=trusting) as stage:
        stage.hub.add_user("helper[bot]", kind="Bot")
        stage.hub.add_collaborator(stage.repo, "helper[bot]", "write")
        assert "Only a person can give me a rule" in await refused(stage, RULE, author="helper[bot]")


async def test_a_rule_in_the_pull_request_of_a_fork_is_for_this_repository(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = stage.pull()
        end = await stage.ask(pull.number, f"/codepilot remember {RULE}")
        assert end.state is JobState.DONE
        assert section(stage, "codepilot/memory-1") == [RULE]
        assert f"/mona/calc/pull/{pull.number}#issuecomment-" in stage.file("codepilot/memory-1", "AGENTS.md")


async def test_undo_reverts_the_work_and_not_the_rule(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, [NOTHING_LEFT]) as stage:
        issue = stage.issue()
        await stage.ask(issue.number, "/codepilot fix")
        await stage.ask(issue.number, f"/codepilot remember {RULE}")
        end = await stage.ask(issue.number, "/codepilot undo")
        assert end.state is JobState.DONE
        assert section(stage, "codepilot/memory-1") == [RULE]


async def test_a_rule_is_kept_in_a_workflow_too(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        for rule in (RULE, OTHER):
            stage.say(stage.issue().number, f"/codepilot remember {rule}")
            assert (await run_step(stage, "issue_comment")).ended is JobState.DONE
        [pull] = stage.pulls()
        assert section(stage, branch_of(pull)) == [RULE, OTHER]
        assert RULE in stage.hub.comments(stage.repo, 1)[-1].body


@pytest.mark.parametrize("rule", [{"type": "creation"}, {"type": "commit_message_pattern", "parameters": PROJECT}])
async def test_a_rule_of_the_branch_that_refuses_the_commit_is_named(tmp_path: Path, rule: dict[str, Any]) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.add_rules(stage.repo, rule, branches="codepilot/*")
        end = await stage.ask(stage.issue().number, f"/codepilot remember {RULE}")
        assert end.state is JobState.FAILED
        assert "❌ The rule is not kept." in end.status
        assert stage.pulls() == []


async def test_a_branch_in_the_way_of_the_prefix_gives_another_prefix(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.commit(stage.repo, {"a.txt": "A\n"}, message="Add", author="mona", branch="codepilot")
        pull = await remembered(stage, RULE, OTHER)
        assert branch_of(pull) == "codepilot-bot/memory-1"
        assert section(stage, branch_of(pull)) == [RULE, OTHER]


async def test_the_repository_chooses_the_prefix_and_the_base_branch(tmp_path: Path) -> None:
    settings = "branch_prefix: robots/\nbase: develop\ncommit: {title: conventional}\n"
    async with open_seam(tmp_path, files={**FILES, ".github/codepilot.yml": settings}) as stage:
        stage.hub.commit(stage.repo, {"AGENTS.md": "Be kind.\n"}, message="Add", author="mona", branch="develop")
        pull = await remembered(stage, RULE)
        assert pull.pull is not None
        assert (pull.pull.head_ref, pull.pull.base_ref) == ("robots/memory-1", "develop")
        assert stage.file("robots/memory-1", "AGENTS.md").startswith("Be kind.\n")
        assert stage.message("robots/memory-1").startswith("docs: add rules for later runs")


async def test_a_secret_of_the_bot_is_neither_published_nor_shown(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, f"/codepilot remember Use {SECRET} always.")
        assert end.state is JobState.FAILED
        assert "contains one of the bot's secrets" in end.status
        assert SECRET not in "".join(stage.bot_comments(1))
        assert stage.pulls() == []
        assert stage.nothing_published()


async def test_a_dry_run_shows_the_rule_and_publishes_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.services = replace(stage.services, bounds=replace(stage.services.bounds, dry_run=True))
        stage.start()
        end = await stage.ask(stage.issue().number, f"/codepilot remember {RULE}")
        assert "Dry run: nothing was published." in end.status
        assert RULE in end.status
        assert stage.nothing_published()


async def test_a_rule_in_a_description_links_the_issue(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue(body=f"/codepilot remember {RULE}")
        assert (await stage.end_after("issues", "opened")).state is JobState.DONE
        [pull] = stage.pulls()
        assert f"([#{issue.number}]({stage.hub.url}/mona/calc/issues/{issue.number}))" in (pull.body or "")
