"""Recipes that nobody asks for: what a failure of GitHub, or a file that was changed just now, makes of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.commands import Ask, ChecksFailed, StartRecipe
from bot.domain.job import Job, Thread
from bot.github.types import GitHubError
from bot.jobs.context import ConfigCache, JobContext
from bot.jobs.recipes import recipes_text, start_after_run, start_recipe
from bot.permissions.repo_config import RepoConfig, parse_recipe
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import Ledger
from tests.builders import REPO, a_job
from tests.job_contexts import account, answering, context_of

RED = ChecksFailed(run_id=501, name="CI", conclusion="failure", head_sha="a" * 40, branch="main", pull=0)
HEAD = "---\non:\n  workflow_run:\n    workflows: [CI]\n---\n"
AFTER_CI = f"{HEAD}Say why it failed.\n".encode()
CONFIG = RepoConfig(recipes=(parse_recipe(AFTER_CI, "after-ci").head,))


class Threads:
    """Finds the recipe's issue, after so many failures."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    async def find_own_issue(self, *_: object) -> int:
        if self.failures:
            self.failures -= 1
            raise GitHubError("list issues", 502, "Bad Gateway", "")
        return 4


async def _context(turns: Ledger, threads: Threads, *, file: bytes = AFTER_CI, event: str = "event") -> JobContext:
    """Of an event about a workflow's run, in a repository with a recipe that follows it."""
    engine = InMemoryEngine()
    job = replace(a_job(event, command=RED), thread=Thread.of_branch("main"))
    await engine.accept(job)
    repos = SimpleNamespace(get=answering(REPO), read_file=answering(file))
    github = SimpleNamespace(accounts=account(), repos=repos, threads=threads)
    return context_of(engine, job, github=github, services=SimpleNamespace(is_long_running=True), ledger=turns)


async def _started_job(context: JobContext) -> Job | None:
    name = (await context.record.read()).leads_to
    stored = await context.queue.get(name) if name is not None else None
    return None if stored is None else stored.job


async def test_a_recipe_that_github_kept_from_beginning_is_begun_by_the_next_attempt() -> None:
    turns, threads = InMemoryLedger(InMemoryEngine()), Threads(failures=1)
    context = await _context(turns, threads)
    with pytest.raises(GitHubError):
        await start_after_run(context, RED, CONFIG)
    assert await _started_job(context) is None
    await start_after_run(context, RED, CONFIG)
    job = await _started_job(context)
    assert job is not None
    assert (job.recipe and job.recipe.name, job.thread.number) == ("after-ci", 4)
    assert isinstance(job.command, Ask)
    assert job.command.options.base == REPO.default_branch
    another = await _context(turns, threads, event="another")
    await start_after_run(another, RED, CONFIG)
    assert await _started_job(another) is None


@pytest.mark.parametrize("file", [b"---\non: 3\n---\nx", b"---\non: comment\n---\nSay why it failed.\n"])
async def test_a_recipe_that_was_changed_just_now_starts_nothing(file: bytes) -> None:
    context = await _context(InMemoryLedger(InMemoryEngine()), Threads(), file=file)
    await start_after_run(context, RED, CONFIG)
    assert await _started_job(context) is None


async def test_each_reason_for_which_a_recipe_is_not_started_is_told_within_the_hour() -> None:
    engine = InMemoryEngine()
    ledger, services = InMemoryLedger(engine), SimpleNamespace(configs=ConfigCache())
    services.configs.put(REPO.id, CONFIG)
    replies = []
    wrong, still_wrong = b"---\non: 3\n---\nx", b"---\non: {}\n---\nx"
    failures = [("after-ci", each) for each in (None, wrong, still_wrong, still_wrong, AFTER_CI, AFTER_CI)]
    for number, (name, file) in enumerate([*failures, ("nightly", None), ("nightly", AFTER_CI), ("nightly", AFTER_CI)]):
        command = StartRecipe(name=name)
        job = a_job(f"run-{number}", command=command)
        await engine.accept(job)
        github = SimpleNamespace(
            repos=SimpleNamespace(read_file=answering(file)), comments=SimpleNamespace(react=answering(None))
        )
        context = context_of(engine, job, github=github, services=services, ledger=ledger)
        refusal = await start_recipe(context, command)
        assert refusal is not None
        replies.append(bool((await context.refuse(refusal)).reply))
    assert replies == [True, True, True, False, True, False, True, True, False]


async def test_the_help_says_in_sentences_what_starts_each_recipe() -> None:
    engine, services = InMemoryEngine(), SimpleNamespace(configs=ConfigCache())
    files = {
        "weekly": b"---\non: {schedule: '17 6 * * 1'}\ndescription: Report what is new\n---\nReport.\n",
        "bare": b"---\non: comment\n---\nDo it.\n",
    }
    recipes = tuple(parse_recipe(file, name).head for name, file in files.items())
    services.configs.put(REPO.id, RepoConfig(recipes=recipes))
    text = await recipes_text(context_of(engine, a_job(), services=services))
    assert "- `weekly`: Report what is new. Started by schedule `17 6 * * 1` (UTC)." in text
    assert "- `bare`: Started by `/codepilot run bare`." in text
