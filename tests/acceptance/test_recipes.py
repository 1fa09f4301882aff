"""Recipes of a repository, started by a comment, a label, a schedule and a failed workflow run."""

from __future__ import annotations

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
from tests.bot.jobs.test_run_recipes import AFTER_CI, TRIAGE, UPDATE
from tests.stage import FILES, FIX, End, Stage, acting, staged
from tests.waiting import eventually

RECIPES = FILES | {".github/codepilot/triage.md": TRIAGE}
TRIAGED = acting("pass", completion="It is about `calc.py`.")


async def test_a_comment_starts_a_recipe_with_its_text_as_the_task_and_the_thread_as_quotes(
    hub: LocalHub, tmp_path: Path
) -> None:
    texts = ("Name the file that this issue is about.", "Only the file, please.", "`add(1, 1)` gives 3.")
    async with staged(hub, tmp_path, [ScriptedReply(text=TRIAGED, expect=texts)], files=RECIPES) as stage:
        command = await stage.ask(stage.issue().number, "/codepilot run Triage Only the file, please.")
        job_id = (await StoredRecord(stage.queue, command.job_id).read()).leads_to
        assert job_id is not None
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "`/codepilot triage`" in end.status
        assert stage.nothing_published()


async def test_a_label_starts_the_recipe_that_names_it(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [TRIAGED], files=RECIPES) as stage:
        issue = stage.issue()
        hub.add_label(stage.repo, issue.number, "Needs-Triage", by="mona")
        end = await stage.end_after("issues", "labeled")
        assert end.state is JobState.DONE, end
        assert "It is about `calc.py`." in end.status
        assert "for @mona" in end.status


async def due(stage: Stage, name: str) -> None:
    """Start a recipe whose schedule the repository's file has."""
    app = stage.app
    access = AppAccess(app_id=app.id, private_key=app.private_key_pem, api_url=stage.hub.api_url)
    installations = partial(list_installation_ids, access)
    store = stage.queue._store
    schedules = DurableSchedules(store)

    def github_of(installation: int) -> GitHub:
        return GitHub.for_installation(app.id, app.private_key_pem, installation, stage.hub.api_url, redact=str)

    scheduler = Scheduler(schedules, DurableLedger(store), installations, github_of)
    await scheduler.refresh()
    at = SCHEDULES.update().where(SCHEDULES.c.recipe == name).values(due_at=store.clock() - 10)
    await store.run(lambda tx: tx.rows.execute(at))
    assert await schedules.start_due() == 1


async def recipe_end(stage: Stage) -> End:
    """Wait for the only job of a recipe; return its end."""
    of_recipe = sa.select(JOBS.c.id).where(JOBS.c.lane == "work", JOBS.c.body.contains('"recipe":{'))

    async def find_job() -> str | None:
        return await stage.queue._store.run(lambda tx: tx.rows.execute(of_recipe).scalar_one_or_none())

    job_id: str = await eventually(find_job, within=30.0)
    return await stage.ended(job_id)


async def test_a_recipe_that_is_due_opens_a_pull_request_against_the_default_branch(
    hub: LocalHub, tmp_path: Path
) -> None:
    files = FILES | {".github/codepilot/update.md": UPDATE}
    async with staged(hub, tmp_path, [FIX], files=files) as stage:
        await due(stage, "update")
        end = await recipe_end(stage)
        assert end.state is JobState.DONE, end
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.base_ref == "main"
        assert "for the recipe `update`" in (pull.body or "")
        assert "Co-authored-by" not in stage.git("log", "-1", "--format=%B", pull.pull.head_ref)
        assert hub.issues(stage.repo) == [pull]


async def test_a_recipe_is_told_what_failed_though_the_branch_has_moved_since(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {
        ".github/codepilot/after-ci.md": AFTER_CI,
        ".github/workflows/ci.yml": "on: push\njobs: {test: {runs-on: x, steps: [{run: make old-goal}]}}\n",
    }
    texts = (", which is not HEAD", "make old-goal", "1 failed in a flaky place")
    answer = ScriptedReply(text=acting("pass", completion="A flaky test."), expect=texts)
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
        end = await recipe_end(stage)
        assert end.state is JobState.DONE, end
        assert "A flaky test." in end.status
