"""Caps of spending: budgets that are lowered, warnings before refusals, refusals, and costs in the help."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import RunLimits, Usage
from bot.domain.commands import RecipeBounds
from bot.domain.errors import QueueError
from bot.domain.job import Actor, JobState, Repo
from bot.domain.spend import SpendCaps
from bot.queue import memory
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableSpending
from bot.queue.protocols import MAX_DEATHS, BudgetRequest
from bot.queue.records import SpendQuery
from bot.queue.store import JobStore
from tests.builders import a_job
from tests.fakes.agent import ask_user, execute, reply, wait_for_test
from tests.seam import COMPLETION, Seam, open_seam
from tests.stage import FILES

ASK = "/codepilot ask why?"
CONFIG = ".github/codepilot.yml"
_DAY_SECONDS = 86_400.0


def _costs(dollars: float) -> list[Any]:
    return [reply(completion="Because.", usage=Usage(requests=1, output_tokens=10, cost_usd=dollars))]


@asynccontextmanager
async def _open(tmp_path: Path, caps: SpendCaps, *scripts: list[Any], **options: Any) -> AsyncIterator[Seam]:  # noqa: ANN401 - of `open_seam`
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}", clock=lambda: time.time())  # noqa: PLW0108 - the seam's clock
    options = {"limits": RunLimits(max_cost_usd=5.0), **options}
    operator, services = {"spend_caps": caps}, {"spending": DurableSpending(store)}
    try:
        async with open_seam(tmp_path, *scripts, operator=operator, services=services, **options) as stage:
            # Long before the day's end.
            stage.clock.advance((12 * 3600 - stage.clock()) % _DAY_SECONDS)
            yield stage
    finally:
        await store.close()


def _budgets(stage: Seam) -> list[float | None]:
    return [spec.policy.limits.max_cost_usd for play in stage.providers for spec in play.specs]


def _spending(stage: Seam) -> DurableSpending:
    assert isinstance(stage.services.spending, DurableSpending)
    return stage.services.spending


async def _rows(stage: Seam) -> list[tuple[str, int, float]]:
    today = int(stage.clock() // _DAY_SECONDS)
    _, sums = await _spending(stage).sums(SpendQuery(first=today - 40, end=today + 1))
    return [(row.name, row.runs, row.cost_usd) for row in sums["label"] + sums["verb"]]


async def test_a_cap_is_warned_of_before_a_run_is_refused(tmp_path: Path) -> None:
    caps = SpendCaps(repository_day=10.0)
    async with _open(tmp_path, caps, _costs(7.9), _costs(1.0), _costs(1.2), _costs(0.1)) as stage:
        issue = stage.issue()
        first = await stage.ask(issue.number, ASK)
        assert "CODEPILOT_SPEND_CAPS" not in first.status
        second = await stage.ask(issue.number, ASK)
        assert "This run may cost at most $2.10, the rest of $10.00 for this repository today." in second.status
        warning = "Of $10.00 for this repository today, $8.90 is spent (89%)."
        assert warning in second.status
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE
        fourth = await stage.ask(issue.number, ASK)
        assert fourth.state is JobState.REFUSED
        tomorrow = datetime.fromtimestamp(stage.clock(), UTC).date() + timedelta(days=1)
        assert fourth.reason == (
            "The spending cap is reached: of $10.00 for this repository today, $10.10 is spent. It resets on "
            f"{tomorrow} 00:00 UTC. The operator can raise it (`CODEPILOT_SPEND_CAPS=repository-day=…`)."
        )
        assert fourth.reason in fourth.status
        assert _budgets(stage) == [5.0, pytest.approx(2.1), pytest.approx(1.1)]
        # Whatever needs no agent still works.
        assert (await stage.ask(issue.number, "/codepilot help")).state is JobState.DONE
        stage.advance(_DAY_SECONDS)
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE


async def test_parallel_runs_reserve_their_budgets(tmp_path: Path) -> None:
    waiting = [reply(wait_for_test()), *_costs(0.5)]
    caps = SpendCaps(repository_month=6.0)
    async with _open(tmp_path, caps, waiting, waiting, _costs(0.1)) as stage:
        jobs = [await stage.job_of(stage.say(stage.issue().number, ASK)) for _ in range(2)]
        await stage.at_work()
        assert sorted(_budgets(stage), key=str) == [1.0, 5.0]
        for job_id in jobs:
            await stage.let_go(job_id)
            assert (await stage.ended(job_id)).state is JobState.DONE
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.DONE
        assert _budgets(stage)[2] == 5.0


async def test_a_run_beside_another_that_reserved_all_is_refused(tmp_path: Path) -> None:
    caps = SpendCaps(person_day=5.0)
    async with _open(tmp_path, caps, [reply(wait_for_test()), *_costs(0.5)], _costs(0.1)) as stage:
        stage.hub.add_collaborator(stage.repo, "anna", "write")
        first = await stage.job_of(stage.say(stage.issue().number, ASK))
        await stage.at_work()
        second = await stage.ask(stage.issue().number, ASK)
        assert second.state is JobState.REFUSED
        assert "of $5.00 for mona in all repositories today, $0.00 is spent, and $5.00 is reserved" in second.reason
        # Another person has a cap of her own.
        assert (await stage.ask(stage.issue().number, ASK, author="anna")).state is JobState.DONE
        await stage.let_go(first)
        assert (await stage.ended(first)).state is JobState.DONE


async def test_the_file_lowers_the_cap_and_cannot_raise_it(tmp_path: Path) -> None:
    files = FILES | {CONFIG: "spend: {day_usd: 2, month_usd: 1000}\n"}
    caps = SpendCaps(repository_day=10.0, repository_month=10.0)
    async with _open(tmp_path, caps, _costs(2.0), files=files) as stage:
        issue = stage.issue()
        first = await stage.ask(issue.number, ASK)
        assert "`spend.day_usd` in `.github/codepilot.yml`" in first.status
        second = await stage.ask(issue.number, ASK)
        assert second.state is JobState.REFUSED
        assert "of $2.00 for this repository today" in second.reason
        assert "Somebody with write access can raise `spend.day_usd` in `.github/codepilot.yml`." in second.reason


async def test_a_run_that_waits_reserves_nothing_and_is_stopped_when_the_cap_is_spent(tmp_path: Path) -> None:
    usage = Usage(requests=1, output_tokens=10, cost_usd=1.0)
    asking = [reply(ask_user("Which one?"), usage=usage), *_costs(0.5)]
    async with _open(tmp_path, SpendCaps(repository_day=6.0), asking, _costs(5.0)) as stage:
        issue = stage.issue()
        pause = await stage.pause_of(stage.say(issue.number, "/codepilot fix"))
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.DONE
        assert _budgets(stage) == [5.0, 5.0]
        stage.say(issue.number, "/codepilot continue The first.")
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.STOPPED
        assert "of $6.00 for this repository today, $6.00 is spent." in end.status


async def test_a_run_that_goes_on_has_the_rest_of_its_own_budget(tmp_path: Path) -> None:
    usage = Usage(requests=1, output_tokens=10, cost_usd=1.0)
    asking = [reply(ask_user("Which one?"), usage=usage), *_costs(0.5)]
    async with _open(tmp_path, SpendCaps(repository_day=2.5), asking) as stage:
        issue = stage.issue()
        pause = await stage.pause_of(stage.say(issue.number, "/codepilot fix"))
        stage.say(issue.number, "/codepilot continue The first.")
        assert (await stage.ended(pause.job_id)).state is not JobState.STOPPED
        # The limit counts from the session's start: one dollar is spent, and one and a half are left.
        assert _budgets(stage) == [2.5, 2.5]
        assert await _rows(stage) == [("fix", 1, 1.5)]


async def test_a_restarted_run_counts_once(tmp_path: Path) -> None:
    usage = Usage(requests=1, output_tokens=10, cost_usd=1.0)
    script = [reply(execute("sh check.sh"), usage=usage), reply(wait_for_test()), *_costs(0.5)]
    async with _open(tmp_path, SpendCaps(repository_day=10.0), script) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        await stage.at_work()
        await stage.restart()
        await stage.ended(job_id)
        [(_, runs, cost)] = await _rows(stage)
        assert (runs, cost) == (1, 1.5)


async def test_a_run_whose_workers_died_counts_although_no_attempt_reads_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = Usage(requests=1, output_tokens=10, cost_usd=1.0)
    script = [reply(execute("sh check.sh"), usage=usage), reply(wait_for_test())]
    async with _open(tmp_path, SpendCaps(repository_day=10.0), script) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))
        await stage.at_work()
        await stage.restart()
        monkeypatch.setattr(memory, "_Attempt", partial(memory._Attempt, deaths=MAX_DEATHS + 5, is_exhausted=True))
        assert (await stage.ended(job_id)).state is JobState.FAILED
        assert await _rows(stage) == [("fix", 1, 1.0)]


async def test_a_job_that_fails_before_its_first_request_costs_nothing(tmp_path: Path) -> None:
    async with _open(tmp_path, SpendCaps(repository_day=5.0)) as stage:
        # The run has no script.
        for _ in range(2):
            assert (await stage.ask(stage.issue().number, ASK)).state is JobState.FAILED
        assert await _rows(stage) == []


async def test_an_undo_and_a_retry_count_as_they_cost(tmp_path: Path) -> None:
    async with _open(tmp_path, SpendCaps(person_day=3.0), _costs(1.0), _costs(1.0), _costs(1.0)) as stage:
        issue = stage.issue()
        await stage.ask(issue.number, ASK)
        for _ in range(3):
            await stage.ask(issue.number, "/codepilot retry")
            await stage.settle()
        assert "of $3.00 for mona in all repositories today, $3.00 is spent" in stage.bot_comments(issue.number)[-1]
        await stage.ask(issue.number, "/codepilot undo")
        assert await _rows(stage) == [("ask", 3, 3.0)]


async def test_the_labels_are_those_at_the_start_and_hostile_ones_are_data(tmp_path: Path) -> None:
    hostile = "a\u202eb<script>"
    script = [reply(wait_for_test()), *_costs(1.0)]
    async with _open(tmp_path, SpendCaps(), script) as stage:
        issue = stage.issue()
        stage.hub.label(stage.repo, issue.number, "bug", hostile, by="mona")
        job_id = await stage.job_of(stage.say(issue.number, ASK))
        await stage.at_work()
        stage.hub.add_label(stage.repo, issue.number, "later", by="mona")
        await stage.let_go(job_id)
        await stage.ended(job_id)
        assert {name for name, *_ in await _rows(stage)} == {"bug", "ab<script>", "ask"}


async def test_a_model_without_a_price_is_bounded_by_tokens(tmp_path: Path) -> None:
    unknown = [reply(completion="Because.", usage=Usage(requests=1, output_tokens=400_000, cost_usd=None))]
    async with _open(tmp_path, SpendCaps(repository_day=1.5), unknown, unknown, unknown) as stage:
        issue = stage.issue()
        first = await stage.ask(issue.number, ASK)
        assert "A cap of spending counts one dollar for 400,000 tokens instead." in first.status
        assert (await stage.ask(issue.number, ASK)).state is JobState.DONE
        assert _budgets(stage) == [1.5, 0.5]
        assert (await stage.ask(issue.number, ASK)).state is JobState.REFUSED


async def test_without_a_database_the_file_says_what_has_no_effect(tmp_path: Path) -> None:
    files = FILES | {CONFIG: "spend: {day_usd: 2}\n"}
    async with open_seam(tmp_path, _costs(3.0), files=files) as stage:
        end = await stage.ask(stage.issue().number, ASK)
        assert end.state is JobState.DONE
        assert "`spend` in `.github/codepilot.yml` has no effect in a workflow" in end.status


async def test_a_cost_that_cannot_be_stored_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with _open(tmp_path, SpendCaps(repository_day=5.0), _costs(0.5)) as stage:

        async def fail(*_: object) -> None:
            raise QueueError("the database is gone")

        monkeypatch.setattr(_spending(stage), "settle", fail)
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.DONE
        assert "the cost of the run is not stored: the database is gone" in caplog.text
        # Its budget counts, since nobody knows what it cost.
        assert (await stage.ask(stage.issue().number, ASK)).state is JobState.REFUSED


async def test_the_help_tells_usual_costs_after_ten_runs(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot/nightly.md": "---\non:\n  schedule: '17 3 * * *'\n---\nReport.\n"}
    async with _open(tmp_path, SpendCaps(), files=files) as stage:
        spending, issue = _spending(stage), stage.issue()
        engine = DurableEngine(spending._store)

        async def spend(name: str, cost: float, recipe: RecipeBounds | None = None) -> None:
            repo = Repo(id=stage.repo.id, full_name="mona/calc", private=False)
            job = replace(a_job(name), delivery_id=name, repo=repo, actor=Actor(id=1, login="mona"), recipe=recipe)
            await engine.accept(job)
            await spending.reserve(BudgetRequest(job=job, verb="fix", budget_usd=5.0))
            await spending.settle(job, Usage(output_tokens=9, cost_usd=cost))
            await engine.cancel(name, JobState.STOPPED, "over")

        for n in range(9):
            await spend(f"v{n}", 0.5)
        assert "Usual cost" not in (await stage.ask(issue.number, "/codepilot help")).status
        assert "Usual cost" not in stage.bot_comments(issue.number)[-1]
        await spend("v9", 0.9)
        for n in range(3):
            await spend(f"r{n}", 0.1 + 0.1 * n, RecipeBounds(name="nightly", level=None, tools=None, comment=None))
        await stage.ask(stage.issue().number, "/codepilot help")
        text = stage.bot_comments(2)[-1]
        assert "**Usual cost of a run here**, of the last 50\n\n- `fix`: $0.50, nine of ten at most $0.50" in text
        assert "schedule `17 3 * * *` (UTC). About $6.00 ($3.00 to $9.00) in 30 days." in text
        assert COMPLETION not in text
