"""Recipes of a repository, started by a comment and by a label, and what is told of those that do not fit."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.github.app import AppAccess, list_installation_ids
from bot.github.client import GitHub
from bot.jobs.record import StoredRecord
from bot.queue.ledger import DurableLedger, DurableSchedules
from bot.queue.store import JOBS, SCHEDULES
from bot.server.periodic import Scheduler
from localhub import EndedJob, LocalHub
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, End, Stage, acting, staged
from tests.waiting import eventually

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
    begun = (await StoredRecord(stage.queue, end.job_id).read()).leads_to
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
        assert "`nightly`: Started by schedule `17 3 * * *` (UTC)." in said
        assert "Not valid: `.github/codepilot/broken.md:3:" in said.replace("``", "`")
        assert ".github/codepilot/zz.md: `on.label`: 'needs-triage' starts the recipe 'triage' already." in said
        assert "readme" not in said.casefold()
        assert (await run(stage, issue.number, "triage")).state is JobState.DONE


async def test_a_label_that_says_how_much_work_may_do_keeps_that_meaning_and_starts_no_recipe(
    hub: LocalHub, tmp_path: Path
) -> None:
    files = FILES | {".github/codepilot/allows.md": "---\non: {comment: true, label: 'Codepilot:Auto'}\n---\nTidy.\n"}
    async with staged(hub, tmp_path, files=files) as stage:
        issue = stage.issue()
        hub.add_label(stage.repo, issue.number, "codepilot:auto", by="mona")
        assert (await stage.end_after("issues", "labeled")).state is JobState.DONE
        [kept] = await DurableLedger(stage.queue._store).labels(stage.repo.id, issue.number)
        assert kept.name == "codepilot:auto"
        helped = await stage.ask(issue.number, "/codepilot help")
        said = helped.status or stage.bot_comments(issue.number)[-1]
        told = "`on.label`: 'Codepilot:Auto' is `labels.auto` of .github/codepilot.yml already, by default;"
        assert f".github/codepilot/allows.md: {told}" in said
        end = await run(stage, issue.number, "allows")
        assert end.state is JobState.REFUSED
        assert f".github/codepilot/allows.md: {told}" in end.status
        assert stage.providers == []


async def test_who_names_no_recipe_or_one_for_schedules_is_told_what_to_write(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=RECIPES) as stage:
        for words, told in (
            ("trage", "There is no recipe `trage`"),
            ("nightly", "The recipe `nightly` cannot be started by a comment."),
        ):
            end = await run(stage, stage.issue().number, words)
            assert end.state is JobState.REFUSED
            assert told in end.status
        pull = stage.pull()
        own = {".github/codepilot/own.md": TRIAGE}
        hub.commit(stage.repo, own, message="A recipe", author="mona", branch="topic")
        end = await run(stage, pull.number, "own")
        assert "There is no recipe `own` in `.github/codepilot` on the default branch." in end.status
        end = await run(stage, stage.issue().number, "the whole suite!")
        assert "There is no recipe `the`" in end.status
        hub.add_collaborator(stage.repo, "helper", "triage")
        issue = stage.issue()
        end = await run(stage, issue.number, "triage", author="helper")
        assert end.state is JobState.REFUSED
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []


UPDATE = "---\non:\n  schedule: '0 4 * * 1'\npublish: pull-request\n---\nMake `add` right.\n"
AFTER_CI = "---\non:\n  workflow_run:\n    workflows: [CI]\n---\nSay why it failed.\n"


_LATE = itertools.count(1)
"""Two jobs of one second would be one due time."""


async def due(stage: Stage, name: str) -> None:
    """Have a recipe be due now, as its repository's file says that it is some time."""
    app = stage.app
    access = AppAccess(app_id=app.id, private_key=app.private_key_pem, api_url=stage.hub.api_url)
    installations = partial(list_installation_ids, access)
    store = stage.queue._store
    schedules = DurableSchedules(store)

    def github_of(installation: int) -> GitHub:
        return GitHub.for_installation(app.id, app.private_key_pem, installation, stage.hub.api_url, redact=str)

    scheduler = Scheduler(schedules, DurableLedger(store), installations, github_of)
    await scheduler.refresh()
    at = SCHEDULES.update().where(SCHEDULES.c.recipe == name).values(due_at=store.clock() - 10 * next(_LATE))
    await store.run(lambda tx: tx.rows.execute(at))
    assert await schedules.start_due() == 1


async def ended_after(stage: Stage, count: int) -> End:
    """Wait until the newest job of a recipe has ended, of so many."""

    async def works() -> list[str] | None:
        found = (
            sa.select(JOBS.c.id).where(JOBS.c.lane == "work", JOBS.c.body.contains('"recipe":{')).order_by(JOBS.c.seq)
        )
        ids = await stage.queue._store.run(lambda tx: list(tx.rows.execute(found).scalars()))
        return ids if len(ids) == count else None

    found: list[str] = await eventually(works, within=30.0)
    return await stage.ended(found[-1])


async def test_a_recipe_that_is_due_opens_a_pull_request_against_the_default_branch(
    hub: LocalHub, tmp_path: Path
) -> None:
    files = FILES | {".github/codepilot/update.md": UPDATE}
    async with staged(hub, tmp_path, [FIX], files=files) as stage:
        await due(stage, "update")
        end = await ended_after(stage, 1)
        assert end.state is JobState.DONE, end
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.base_ref == "main"
        assert "for the recipe `update`" in (pull.body or "")
        assert "Co-authored-by" not in stage.git("log", "-1", "--format=%B", pull.pull.head_ref)
        assert hub.issues(stage.repo) == [pull]


async def test_the_reports_of_a_recipe_that_is_due_are_comments_in_one_issue_that_people_can_close(
    hub: LocalHub, tmp_path: Path
) -> None:
    report = acting("pass", completion="Nothing is old.")
    files = FILES | {".github/codepilot/nightly.md": NIGHTLY}
    async with staged(hub, tmp_path, *[[report]] * 5, files=files) as stage:
        for count in range(1, 5):  # the bot is stopped after three runs that nobody asked for, but for recipes
            await due(stage, "nightly")
            assert (await ended_after(stage, count)).state is JobState.DONE
        [issue] = hub.issues(stage.repo)
        assert issue.title == "Codepilot recipe: nightly"
        said = stage.bot_comments(issue.number)
        assert len(said) == 4
        assert all("Nothing is old." in each and "for the recipe `nightly`" in each for each in said)
        hub.close(stage.repo, issue.number, by="mona")
        await due(stage, "nightly")
        assert (await ended_after(stage, 5)).state is JobState.DONE
        assert len(hub.issues(stage.repo)) == 2


async def test_a_recipe_is_told_what_failed_though_the_branch_has_moved_since(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {
        ".github/codepilot/after-ci.md": AFTER_CI,
        ".github/workflows/ci.yml": "on: push\njobs: {test: {runs-on: x, steps: [{run: make old-goal}]}}\n",
    }
    told = (", which is not HEAD", "make old-goal", "1 failed in a flaky place")
    answer = ScriptedReply(text=acting("pass", completion="A flaky test."), expect=told)
    async with staged(hub, tmp_path, [answer], files=files) as stage:
        head = hub.branches(stage.repo)["main"]
        hub.commit(stage.repo, {".github/workflows/ci.yml": "on: push\njobs: {}\n"}, message="Move on", author="mona")
        job = EndedJob(
            name="test",
            conclusion="failure",
            steps=[("Run make old-goal", "failure")],
            log="1 failed in a flaky place\n",
        )
        hub.workflow_run(stage.repo, head_sha=head, head_branch="main", conclusion="failure", actor="mona", jobs=[job])
        end = await ended_after(stage, 1)
        assert end.state is JobState.DONE, end
        assert "A flaky test." in end.status


async def test_a_recipe_follows_a_workflow_that_failed_on_the_default_branch_alone(
    hub: LocalHub, tmp_path: Path
) -> None:
    files = FILES | {".github/codepilot/after-ci.md": AFTER_CI}
    answer = ScriptedReply(text=acting("pass", completion="A flaky test."), expect=("Say why it failed.",))
    async with staged(hub, tmp_path, [answer], files=files) as stage:
        pull = stage.pull()
        for branch, name, conclusion in (
            ("topic", "CI", "failure"),
            ("main", "Docs", "failure"),
            ("main", "CI", "success"),
            ("main", "CI", "failure"),
        ):
            head = hub.branches(stage.repo)[branch]
            hub.workflow_run(
                stage.repo,
                head_sha=head,
                head_branch=branch,
                workflow=name,
                conclusion=conclusion,
                actor="mona",
                triggering_actor="mona",
                event="push",
            )
        end = await ended_after(stage, 1)
        assert end.state is JobState.DONE, end
        assert "A flaky test." in end.status
        [issue] = [each for each in hub.issues(stage.repo) if each.number != pull.number]
        assert issue.title == "Codepilot recipe: after-ci"
