"""Recipes of a repository: how they are started, and which of their mistakes are reported to whom."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bot.domain.commands import RecipeDue
from bot.domain.job import Actor, Job, JobState, Origin, Repo, Thread
from bot.permissions.repo_config import BUILT_IN_RECIPES, built_in_recipe
from tests.fakes.agent import propose, reply
from tests.fakes.hub import INSTALLATION
from tests.seam import COMPLETION, FIX, FIXED_CALC, End, Seam, open_seam
from tests.stage import FILES

TRIAGE = """\
---
on:
  comment: true
  label: needs-triage
description: Say what an issue is about.
tools: [read_file, find]
---
Name the file that this issue is about.
"""
TIDY = "---\non: comment\npublish: pull-request\nlevel: ask\nbudget_usd: 0.25\n---\nMake `add` right.\n"
NIGHTLY = "---\non:\n  schedule: '17 3 * * *'\n---\nReport what is old.\n"
BROKEN = "---\non: comment\nbudget: 2\n---\nNothing.\n"
UPDATE = "---\non:\n  schedule: '0 4 * * 1'\npublish: pull-request\n---\nMake `add` right.\n"
AFTER_CI = "---\non:\n  workflow_run:\n    workflows: [CI]\n---\nSay why it failed.\n"
RECIPES = FILES | {
    ".github/codepilot/README.md": "Our recipes.\n",
    ".github/codepilot/broken.md": BROKEN,
    ".github/codepilot/nightly.md": NIGHTLY,
    ".github/codepilot/tidy.md": TIDY,
    ".github/codepilot/triage.md": TRIAGE,
    ".github/codepilot/zz.md": TRIAGE,
}
TRIAGED = [reply(completion="It is about `calc.py`.")]
_NUMBERS = itertools.count(1)


async def run(stage: Seam, number: int, words: str, *, author: str = "mona") -> End:
    """Start a recipe by a comment; return the end of its job, or of the command if it started none."""
    end = await stage.ask(number, f"/codepilot run {words}", author=author)
    job_id = (await stage.record(end.job_id)).leads_to
    return end if job_id is None else await stage.ended(job_id)


async def run_due(stage: Seam, name: str) -> End:
    """Start a recipe as the scheduler does; return the end of its job."""
    job = Job(
        id=f"due{next(_NUMBERS)}",
        delivery_id=f"schedule-{next(_NUMBERS)}",
        repo=Repo(id=stage.repo.id, full_name=stage.repo.full_name, private=True),
        thread=Thread.from_number("issue", 0),
        actor=Actor(id=0, login=""),
        origin=Origin(kind="event", id=0),
        command=RecipeDue(name=name),
        installation=INSTALLATION,
    )
    await stage.queue.accept(job)
    await stage.ended(job.id)
    job_id = (await stage.record(job.id)).leads_to
    assert job_id is not None
    return await stage.ended(job_id)


async def test_a_recipe_has_its_text_as_the_task_and_the_thread_as_quotes(tmp_path: Path) -> None:
    texts = ("Name the file that this issue is about.", "Only the file, please.", "`add(1, 1)` gives 3.")
    script = [reply(completion="It is about `calc.py`.", expect=texts)]
    async with open_seam(tmp_path, script, files=RECIPES) as stage:
        end = await run(stage, stage.issue().number, "Triage Only the file, please.")
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "`/codepilot triage`" in end.status
        assert stage.nothing_published()


async def test_a_recipe_that_publishes_a_pull_request_opens_one_within_its_own_bounds(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, files=RECIPES) as stage:
        end = await run(stage, stage.issue().number, "tidy")
        assert end.state is JobState.DONE, end
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert stage.file(pull.pull.head_ref, "calc.py") == FIXED_CALC.strip()
        # The operator's level is `auto`.
        assert "`ask`" in end.status
        assert COMPLETION in end.status
        stored = await stage.queue.get(end.job_id)
        assert stored is not None
        assert stored.job.recipe is not None
        assert stored.job.recipe.name == "tidy"


async def test_a_label_of_a_person_without_write_access_starts_no_recipe(tmp_path: Path) -> None:
    async with open_seam(tmp_path, TRIAGED, files=RECIPES) as stage:
        stage.hub.add_collaborator(stage.repo, "helper", "triage")
        other, issue = stage.issue(), stage.issue()
        stage.hub.add_label(stage.repo, other.number, "needs-triage", by="helper")
        assert (await stage.end_after("issues", "labeled")).state is JobState.REFUSED
        assert stage.bot_comments(other.number) == []
        stage.hub.add_label(stage.repo, issue.number, "Needs-Triage", by="mona")
        end = await stage.end_after("issues", "labeled")
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "for @mona" in end.status


async def test_an_invalid_recipe_is_reported_to_who_starts_it_and_in_the_help_and_stops_no_other(
    tmp_path: Path,
) -> None:
    async with open_seam(tmp_path, TRIAGED, files=RECIPES) as stage:
        issue = stage.issue()
        end = await run(stage, issue.number, "broken")
        assert end.state is JobState.REFUSED
        assert ".github/codepilot/broken.md:3: `budget`: unknown key. Did you mean 'budget_usd'?" in end.status
        text = await help_text(stage, issue.number)
        assert "`triage`: Say what an issue is about. Started by `/codepilot run triage`, label `needs-triage`." in text
        assert "`nightly`: Started by schedule `17 3 * * *` (UTC)." in text
        assert "Not valid: `.github/codepilot/broken.md:3:" in text.replace("``", "`")
        assert ".github/codepilot/zz.md: `on.label`: 'needs-triage' starts the recipe 'triage' already." in text
        assert "readme" not in text.casefold()
        assert (await run(stage, issue.number, "triage")).state is JobState.DONE


async def help_text(stage: Seam, number: int) -> str:
    end = await stage.ask(number, "/codepilot help")
    return end.status or stage.bot_comments(number)[-1]


async def test_a_label_that_grants_a_level_keeps_that_meaning_and_starts_no_recipe(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot/allows.md": "---\non: {comment: true, label: 'Codepilot:Auto'}\n---\nTidy.\n"}
    async with open_seam(tmp_path, files=files) as stage:
        issue = stage.issue()
        stage.hub.add_label(stage.repo, issue.number, "codepilot:auto", by="mona")
        assert (await stage.end_after("issues", "labeled")).state is JobState.DONE
        [grant] = await stage.ledger.labels(stage.repo.id, issue.number)
        assert grant.name == "codepilot:auto"
        problem = "`on.label`: 'Codepilot:Auto' is `labels.auto` of .github/codepilot.yml already, by default;"
        assert f".github/codepilot/allows.md: {problem}" in await help_text(stage, issue.number)
        end = await run(stage, issue.number, "allows")
        assert end.state is JobState.REFUSED
        assert f".github/codepilot/allows.md: {problem}" in end.status
        assert stage.providers == []


async def test_an_unknown_recipe_or_one_for_schedules_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=RECIPES) as stage:
        for words, reason in (
            ("trage", "There is no recipe `trage`"),
            ("nightly", "The recipe `nightly` cannot be started by a comment."),
            ("the whole suite!", "There is no recipe `the`"),
        ):
            end = await run(stage, stage.issue().number, words)
            assert end.state is JobState.REFUSED
            assert reason in end.status
        pull = stage.pull()
        own = {".github/codepilot/own.md": TRIAGE}
        stage.hub.commit(stage.repo, own, message="A recipe", author="mona", branch="topic")
        end = await run(stage, pull.number, "own")
        assert "There is no recipe `own` in `.github/codepilot` on the default branch." in end.status
        stage.hub.add_collaborator(stage.repo, "helper", "triage")
        issue = stage.issue()
        end = await run(stage, issue.number, "triage", author="helper")
        assert end.state is JobState.REFUSED
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []


async def test_a_due_recipe_opens_a_pull_request_against_the_default_branch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, files=FILES | {".github/codepilot/update.md": UPDATE}) as stage:
        end = await run_due(stage, "update")
        assert end.state is JobState.DONE, end
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.base_ref == "main"
        assert "for the recipe `update`" in (pull.body or "")
        assert "Co-authored-by" not in stage.message(pull.pull.head_ref)
        assert stage.hub.issues(stage.repo) == [pull]


async def test_the_reports_of_a_due_recipe_are_comments_in_one_issue_that_people_can_close(tmp_path: Path) -> None:
    scripts = [[reply(completion="Nothing is old.")] for _ in range(5)]
    async with open_seam(tmp_path, *scripts, files=FILES | {".github/codepilot/nightly.md": NIGHTLY}) as stage:
        for _ in range(4):  # of other automatic work, the bot stops after three runs
            assert (await run_due(stage, "nightly")).state is JobState.DONE
        [issue] = stage.hub.issues(stage.repo)
        assert issue.title == "Codepilot recipe: nightly"
        comments = stage.bot_comments(issue.number)
        assert len(comments) == 4
        assert all("Nothing is old." in comment and "for the recipe `nightly`" in comment for comment in comments)
        stage.hub.close(stage.repo, issue.number, by="mona")
        assert (await run_due(stage, "nightly")).state is JobState.DONE
        assert len(stage.hub.issues(stage.repo)) == 2


async def test_a_recipe_follows_only_its_workflow_that_failed_on_the_default_branch(tmp_path: Path) -> None:
    script = [reply(completion="A flaky test.", expect="Say why it failed.")]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot/after-ci.md": AFTER_CI}) as stage:
        pull = stage.pull()
        for branch, name, conclusion in (
            ("topic", "CI", "failure"),
            ("main", "Docs", "failure"),
            ("main", "CI", "success"),
            ("main", "CI", "failure"),
        ):
            await stage.settle()
            assert stage.providers == []
            stage.hub.workflow_run(
                stage.repo,
                head_sha=stage.head(branch),
                head_branch=branch,
                workflow=name,
                conclusion=conclusion,
                actor="mona",
                event="push",
            )
        await stage.settle()
        assert len(stage.providers) == 1
        [issue] = [thread for thread in stage.hub.issues(stage.repo) if thread.number != pull.number]
        assert issue.title == "Codepilot recipe: after-ci"
        [comment] = stage.bot_comments(issue.number)
        assert "A flaky test." in comment


@pytest.mark.parametrize("mode", ["always", "on-change", "never"])
async def test_a_recipe_says_in_the_thread_what_its_file_lets_it_say(tmp_path: Path, mode: str) -> None:
    files = RECIPES | {
        ".github/codepilot/triage.md": TRIAGE.replace("tools:", f"comment: {mode}\ntools:"),
        ".github/codepilot/tidy.md": TIDY.replace("level:", f"comment: {mode}\nlevel:"),
    }
    async with open_seam(tmp_path, TRIAGED, FIX, files=files, acknowledges=True) as stage:
        issue = stage.issue()
        end = await run(stage, issue.number, "triage")
        assert end.state is JobState.DONE, end
        assert len(stage.bot_comments(issue.number)) == (mode == "always")
        assert "It is about `calc.py`." in (stage.check_of(end.job_id).summary or "")
        end = await run(stage, issue.number, "tidy")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 1
        assert len(stage.bot_comments(issue.number)) == {"always": 2, "on-change": 1, "never": 0}[mode]
        reacted = [content for comment in issue.comments for _, content in comment.reactions]
        assert ("eyes" in reacted) is (mode != "never")


async def _follow(stage: Seam, end: End) -> End:
    job_id = (await stage.record(end.job_id)).leads_to
    assert job_id is not None, end.status
    return await stage.ended(job_id)


@pytest.mark.parametrize("words", ["triage the crash", "run triage the crash"])
async def test_triage_is_built_in_and_proposes_what_it_declares(tmp_path: Path, words: str) -> None:
    async with open_seam(tmp_path, TRIAGED) as stage:
        end = await _follow(stage, await stage.ask(stage.issue().number, f"/codepilot {words}"))
        grant = stage.providers[0]
    assert end.state is JobState.DONE
    assert "/codepilot triage" in end.status
    assert "Triage this thread" in grant.tasks[0].goal
    assert grant.tasks[0].goal.endswith("the crash")
    assert "write_file" not in grant.specs[0].tools


async def test_a_repository_replaces_a_built_in_recipe_by_its_own_file(tmp_path: Path) -> None:
    async with open_seam(tmp_path, TRIAGED, files=RECIPES) as stage:
        await _follow(stage, await stage.ask(stage.issue().number, "/codepilot triage"))
        assert stage.providers[0].tasks[0].goal.endswith("\nName the file that this issue is about.")


async def test_a_broken_file_is_reported_and_not_replaced_by_the_built_in_recipe(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot/split.md": BROKEN}
    async with open_seam(tmp_path, files=files) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot split")
        assert (await stage.refusal(end)).startswith("recipe-invalid")


@pytest.mark.parametrize(("word", "verb"), [("triaeg", "triage"), ("splitt", "split")])
async def test_a_slip_of_a_built_in_recipe_is_corrected(tmp_path: Path, word: str, verb: str) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, f"/codepilot {word}")
        assert f"`/codepilot {verb}`" in end.status


def test_built_in_recipes_declare_few_actions_none_of_them_for_strangers() -> None:
    recipes = {name: built_in_recipe(name) for name in BUILT_IN_RECIPES}
    declared = {name: recipe.bounds.actions for name, recipe in recipes.items() if recipe is not None}
    assert {name: [entry.kind for entry in entries] for name, entries in declared.items()} == {
        "split": ["create-issue", "add-sub-issue"],
        "triage": ["add-labels", "set-type", "close", "missing-information"],
    }
    assert all(entry.always_asks for entry in declared["split"])
    assert [entry.kind for entry in declared["triage"] if entry.is_for_anyone] == ["missing-information"]


async def test_a_repositorys_own_split_is_for_pull_requests_too(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot/split.md": "---\non: comment\n---\nSay how to split this.\n"}
    async with open_seam(tmp_path, TRIAGED, files=files) as stage:
        end = await _follow(stage, await stage.ask(stage.pull().number, "/codepilot split"))
        assert end.state is JobState.DONE


async def test_the_texts_of_sub_issues_name_earlier_ones_by_number(tmp_path: Path) -> None:
    script = [
        reply(
            propose("create-issue", title="First", body="Begin."),
            propose("create-issue", title="Second", body="Comes after new-1."),
            propose("add-sub-issue", sub_issue="new-1"),
            propose("add-sub-issue", sub_issue="new-2"),
            completion="Two parts.",
        )
    ]
    async with open_seam(tmp_path, script, operator={"level": "auto"}) as stage:
        number = stage.issue().number
        command = stage.say(number, "/codepilot split")
        await stage.settle()
        assert stage.hub.calls.count("actions.create_issue") == 0
        stage.say(number, "/codepilot approve")
        await stage.settle()
        assert (await stage.state_of(await stage.job_of(command))) is JobState.DONE
        first, second = (thread for thread in stage.repo.threads.values() if thread.title in {"First", "Second"})
        assert f"Comes after #{first.number}." in (second.body or "")
