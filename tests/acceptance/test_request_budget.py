"""Requests of a job to GitHub, counted on the hub: docs/decisions/0043-the-request-budget.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs import acknowledger
from localhub import Exchange, LocalHub
from tests.stage import FILES, FIX, SEE_IT_FAIL, Stage, staged
from tests.waiting import eventually

REQUESTS, WRITES = 17, 7
COMMANDS = 30
REVIEW = "````completion\nIt adds a topic.\n\n```json\n[]\n```\n````\n"


def writes(calls: list[str]) -> list[str]:
    """Those that change something that people see; a token is minted for ourselves."""
    return [each for each in calls if not each.startswith(("GET ", "QUERY ")) and "/access_tokens" not in each]


async def test_the_simplest_job_makes_at_most_seventeen_requests_of_which_seven_write(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX], [FIX]) as stage:
        first = await stage.ask(stage.issue().number, "/codepilot fix")
        assert first.state is JobState.DONE, first
        asked_once = Counter(stage.calls)
        stage.calls.clear()
        second = await stage.ask(stage.issue().number, "/codepilot fix")
        assert second.state is JobState.DONE, second
        assert second.status
        assert len(stage.pulls()) == 2

        told = "\n".join(stage.calls)
        assert len(stage.calls) <= REQUESTS, told
        assert len(writes(stage.calls)) <= WRITES, told
        # Before it begins, and once more before it publishes; and once for the names of branches.
        assert sum(call.startswith("QUERY") for call in stage.calls) == 3, told
        assert sum(call.endswith("/permission") for call in stage.calls) == 2, told
        for call in ("GET /api/v3/app", "GET /api/v3/users/codepilot[bot]"):
            assert (asked_once[call], stage.calls.count(call)) == (1, 0)
        assert sum(asked_once[call] for call in asked_once if call.endswith("/access_tokens")) == 2
        assert not any(call.endswith("/access_tokens") for call in stage.calls), told


async def test_work_on_a_pull_request_asks_for_its_reviews_and_checks_besides(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], [FIX]) as stage:
        pull = stage.pull()
        await stage.ask(stage.issue().number, "/codepilot fix")
        stage.calls.clear()
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        told = "\n".join(stage.calls)
        assert len([call for call in stage.calls if "/access_tokens" not in call]) <= REQUESTS + 3, told
        assert len(writes(stage.calls)) <= WRITES, told


def phases(stage: Stage) -> list[Counter[str]]:
    """Return the later read requests with their parameters, by phase; a job's first query begins one."""
    read = [Counter[str]()]
    server = stage.hub._server
    judge = server.served

    def served(exchange: Exchange) -> None:
        if exchange.path.endswith("/graphql") and b"mutation" not in exchange.request_body:
            read.append(Counter())
        elif exchange.method == "GET":
            read[-1][f"{exchange.path}?{sorted(exchange.query.items())}"] += 1
        if judge is not None:
            judge(exchange)

    server.served = served
    return read


def asked_twice(read: list[Counter[str]]) -> list[str]:
    return [question for phase in read for question, count in phase.items() if count > 1]


@pytest.mark.parametrize("asker", ["a workflow", "another App's check"])
async def test_a_red_pull_request_is_asked_about_once_before_the_run_and_once_after(
    hub: LocalHub, tmp_path: Path, asker: str
) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"}
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=files) as stage:
        stage.pull()
        heads, read = hub.branches(stage.repo), phases(stage)
        if asker == "a workflow":
            for branch, conclusion in (("main", "success"), ("topic", "failure")):
                hub.workflow_run(
                    stage.repo,
                    head_sha=heads[branch],
                    head_branch=branch,
                    conclusion=conclusion,
                    actor="mona",
                    event="push" if branch == "main" else "pull_request",
                )
            end = await stage.end_after("workflow_run", "completed")
        else:
            app = hub.add_app("ci")
            for branch, conclusion in (("main", "success"), ("topic", "failure")):
                hub.check(stage.repo, app, head_sha=heads[branch], name="lint", conclusion=conclusion)
            end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
        assert len(read) >= 3
        assert not asked_twice(read)


async def test_a_review_is_asked_about_once_before_the_run_and_once_after(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "review_on: [opened]\n"}
    async with staged(hub, tmp_path, [REVIEW], files=files) as stage:
        read = phases(stage)
        stage.pull()
        end = await stage.end_after("pull_request", "opened")
        assert end.state is JobState.DONE, end
        assert len(read) >= 3
        assert not asked_twice(read[1:])


async def test_every_command_of_a_burst_has_its_sign_before_anything_is_done_about_the_others(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is about the order; how long it takes is measured in bench/.
    monkeypatch.setattr(acknowledger, "ACKNOWLEDGE_SECONDS", 30.0)
    async with staged(hub, tmp_path, held=True) as stage:
        issues = [stage.issue(f"It is wrong {number}").number for number in range(COMMANDS)]
        stage.calls.clear()
        commands = [stage.say(number, "/codepilot fix") for number in issues]
        await eventually(lambda: all(stage.reactions(each) == ["eyes"] for each in commands), within=30.0)
        signs = [at for at, call in enumerate(stage.calls) if call.endswith("/reactions")]
        # For each: where, who, and the sign. What else is written meanwhile are the comments of those that had theirs.
        before = Counter(call.partition("/api/")[0] + call.rpartition("/")[2] for call in stage.calls[: signs[-1]])
        assert before["QUERY graphql"] == COMMANDS, before
        assert before["GET permission"] == COMMANDS, before
        assert len(stage.calls[: signs[-1] + 1]) - before["POST comments"] <= 3 * COMMANDS + 1, before
