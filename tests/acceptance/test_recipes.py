"""Recipes of a repository, started by a comment and by a label, and what is told of those that do not fit."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.script import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, End, Stage, acting, staged

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
NIGHTLY = "---\non:\n  label: nightly\n---\nReport what is old.\n"
BROKEN = "---\non: comment\nbudget: 2\n---\nNothing.\n"
RECIPES = FILES | {
    ".github/codepilot/README.md": "Our recipes.\n",
    ".github/codepilot/broken.md": BROKEN,
    ".github/codepilot/nightly.md": NIGHTLY,
    ".github/codepilot/tidy.md": TIDY,
    ".github/codepilot/triage.md": TRIAGE,
    ".github/codepilot/zz.md": TRIAGE,
}
TRIAGED = acting("pass", completion="It is about `calc.py`.")


async def run(stage: Stage, number: int, words: str, *, author: str = "mona") -> End:
    """Start a recipe by a comment, and wait for the end of its job, or of the command that started none."""
    end = await stage.ask(number, f"/codepilot run {words}", author=author)
    begun = (await stage.queue.record(end.job_id)).leads_to
    return end if begun is None else await stage.ended(begun)


async def test_a_comment_starts_a_recipe_with_its_text_as_the_task_and_the_thread_as_quotes(
    hub: LocalHub, tmp_path: Path
) -> None:
    told = ("Name the file that this issue is about.", "Only the file, please.", "`add(1, 1)` gives 3.")
    async with staged(hub, tmp_path, [ScriptedReply(text=TRIAGED, expect=told)], files=RECIPES) as stage:
        end = await run(stage, stage.issue().number, "Triage Only the file, please.")
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "`/codepilot run triage`" in end.status
        assert stage.nothing_published()


async def test_a_recipe_that_publishes_a_pull_request_opens_one_within_its_own_bounds(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX], files=RECIPES) as stage:
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


async def test_a_label_starts_the_recipe_that_names_it_for_who_may_write_alone(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [TRIAGED], files=RECIPES) as stage:
        hub.add_collaborator(stage.repo, "helper", "triage")
        other, issue = stage.issue(), stage.issue()
        hub.add_label(stage.repo, other.number, "needs-triage", by="helper")
        assert (await stage.end_after("issues", "labeled")).state is JobState.REFUSED
        assert stage.bot_comments(other.number) == []
        hub.add_label(stage.repo, issue.number, "Needs-Triage", by="mona")
        end = await stage.end_after("issues", "labeled")
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "for @mona" in end.status


async def test_what_is_wrong_with_a_recipe_is_told_to_who_starts_it_and_in_the_help_and_stops_no_other(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [TRIAGED], files=RECIPES) as stage:
        issue = stage.issue()
        end = await run(stage, issue.number, "broken")
        assert end.state is JobState.REFUSED
        assert ".github/codepilot/broken.md:3: `budget`: unknown key. Did you mean 'budget_usd'?" in end.status
        helped = await stage.ask(issue.number, "/codepilot help")
        said = helped.status or stage.bot_comments(issue.number)[-1]
        assert "`triage`: Say what an issue is about. Started by `/codepilot run triage`, label `needs-triage`." in said
        assert "`nightly` Started by label `nightly`." in said
        assert "Not valid: `.github/codepilot/broken.md:3:" in said.replace("``", "`")
        assert ".github/codepilot/zz.md: `on.label`: 'needs-triage' starts the recipe 'triage' already." in said
        assert "readme" not in said.casefold()
        assert (await run(stage, issue.number, "triage")).state is JobState.DONE


async def test_who_names_no_recipe_or_one_for_schedules_is_told_what_to_write(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=RECIPES) as stage:
        for words, told in (
            ("trage", "There is no recipe `trage`"),
            ("nightly", "The recipe `nightly` cannot be started by a comment."),
        ):
            end = await run(stage, stage.issue().number, words)
            assert end.state is JobState.REFUSED
            assert told in end.status
        end = await run(stage, stage.issue().number, "the whole suite!")
        assert "There is no recipe `the`" in end.status
        hub.add_collaborator(stage.repo, "helper", "triage")
        issue = stage.issue()
        end = await run(stage, issue.number, "triage", author="helper")
        assert end.state is JobState.REFUSED
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []
