"""Workflow runs: their jobs, their logs from another host, and the last one that went well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bot.github.downloads import LogError, LogGoneError, save_log
from bot.github.types import GitHubError
from localhub import EndedJob, WorkflowRun
from tests.github_world import World

SECONDS = 20.0


def ended(world: World, conclusion: str, *jobs: EndedJob, branch: str = "main") -> WorkflowRun:
    return world.hub.workflow_run(
        world.repo, head_sha=world.sha, head_branch=branch, conclusion=conclusion, actor="mona", jobs=jobs
    )


async def saved(world: World, file: Path, job_id: int, *, most: int = 1_000, tail: int = 100) -> str:
    address = await world.github.runs.job_log_url(world.name, job_id)
    await save_log(address, file, most=most, tail=tail, seconds=SECONDS, plain=True)
    return await asyncio.to_thread(file.read_text)


async def test_a_job_says_which_steps_failed_and_its_log_comes_from_another_host_without_the_token(
    world: World, tmp_path: Path
) -> None:
    steps = [("Set up job", "success"), ("Run pytest", "failure")]
    run = ended(world, "failure", EndedJob(name="test (3.11)", conclusion="failure", steps=steps, log="1 failed\n"))
    [job] = await world.github.runs.jobs(world.name, run.id)
    assert [job] == list(await world.github.runs.jobs(world.name, run.id, 1))
    assert (job.name, job.conclusion, job.labels) == ("test (3.11)", "failure", ("ubuntu-latest",))
    assert [(each.number, each.name, each.conclusion) for each in job.steps] == [
        (1, "Set up job", "success"),
        (2, "Run pytest", "failure"),
    ]
    address = await world.github.runs.job_log_url(world.name, job.id)
    assert address.startswith("http://localhost:")  # where the hub refuses whoever sends a token
    assert await saved(world, tmp_path / "log", job.id) == "1 failed\n"


async def test_an_expired_log_is_said_to_be_gone(world: World) -> None:
    run = ended(world, "failure", EndedJob(name="test", conclusion="failure", log=None))
    [job] = await world.github.runs.jobs(world.name, run.id)
    with pytest.raises(GitHubError) as gone:
        await world.github.runs.job_log_url(world.name, job.id)
    assert (gone.value.status, gone.value.passing) == (410, False)
    with pytest.raises(GitHubError) as gone:
        await world.github.runs.logs_url(world.name, run.id, 1)
    assert gone.value.status == 410


async def test_of_a_long_log_the_beginning_and_the_end_are_read(world: World, tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(1_000))
    run = ended(world, "failure", EndedJob(name="test", conclusion="failure", log=lines))
    [job] = await world.github.runs.jobs(world.name, run.id)
    text = await saved(world, tmp_path / "log", job.id)
    head, note, tail = text.partition("\n[codepilot: the middle of this log was not read]\n")
    assert note
    assert (len(head) + len(tail), len(tail)) == (1_000, 100)
    assert lines.startswith(head)
    assert lines.endswith(tail)
    with pytest.raises(LogError, match=r"8,890 bytes.* 1,000"):
        await saved(world, tmp_path / "log", job.id, tail=0)


async def test_the_last_green_run_is_of_the_same_workflow_branch_and_repository_and_older(world: World) -> None:
    fork = world.hub.add_repo("mona/fork", owner="mona", fork_of=world.repo)
    green = ended(world, "success")
    ended(world, "success", branch="other")
    world.hub.workflow_run(
        world.repo,
        head_sha=world.hub.branches(fork)["main"],
        head_branch="main",
        head_repository=fork,
        conclusion="success",
        actor="mona",
    )
    red = ended(world, "failure")
    ended(world, "success")
    run = await world.github.runs.get(world.name, red.id)
    assert (run.path, run.event, run.attempt) == (".github/workflows/ci.yml", "push", 1)
    found = await world.github.runs.last_green(world.name, run)
    assert found is not None
    assert found.id == green.id
    topic = ended(world, "failure", branch="topic")
    assert await world.github.runs.last_green(world.name, await world.github.runs.get(world.name, topic.id)) is None


@asynccontextmanager
async def elsewhere(**pages: tuple[int, str]) -> AsyncIterator[str]:
    """A server that answers what it is told to."""

    async def answer(request: web.Request) -> web.Response:
        status, place = pages[request.match_info["page"]]
        return web.Response(status=status, headers={"Location": place})

    app = web.Application()
    app.router.add_get("/{page}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_log_is_followed_over_tls_and_a_few_redirections_only(tmp_path: Path) -> None:
    file = tmp_path / "log"
    async with elsewhere(
        round=(302, "/round"), out=(302, "file:///etc/passwd"), gone=(404, ""), broken=(500, "")
    ) as url:
        for page, said in (
            ("round", "redirects the log too often"),
            ("out", "an invalid address"),
            ("broken", "answered 500"),
        ):
            with pytest.raises(LogError, match=said):
                await save_log(f"{url}/{page}", file, most=10, tail=1, seconds=SECONDS, plain=True)
        with pytest.raises(LogGoneError):
            await save_log(f"{url}/gone", file, most=10, tail=1, seconds=SECONDS, plain=True)
        for address in (f"{url}/gone", "https://user@127.0.0.1/x", "https:///x"):
            with pytest.raises(LogError, match="an invalid address"):
                await save_log(address, file, most=10, tail=1, seconds=SECONDS)


async def test_a_forks_pull_request_is_known_by_the_forks_number_and_the_commit(world: World) -> None:
    hub = world.hub
    forks = [hub.add_repo(f"{owner}/calc", fork_of=world.repo) for owner in ("one", "two")]
    hub.add_user("eve")
    shas = [hub.commit(fork, {"a.txt": f"{fork.owner}\n"}, message="M", author="eve", branch="topic") for fork in forks]
    pull = hub.open_pull(world.repo, author="eve", head="one:topic", title="T")

    async def found(fork_id: int, sha: str) -> int | None:
        return await world.github.pulls.of_fork(world.name, fork="one/calc", fork_id=fork_id, branch="topic", sha=sha)

    assert await found(forks[0].id, shas[0]) == pull.number
    assert await found(forks[1].id, shas[0]) is None
    assert await found(forks[0].id, shas[1]) is None


async def test_what_passed_before_is_known_by_attempt_commit_and_event(world: World) -> None:
    head = world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")

    async def ran(conclusion: str, *, event: str, sha: str = head) -> WorkflowRun:
        return world.hub.workflow_run(
            world.repo, head_sha=sha, head_branch="topic", conclusion=conclusion, actor="mona", event=event
        )

    async def passed(run: WorkflowRun) -> bool:
        facts = await world.github.runs.get(world.name, run.id)
        return await world.github.runs.passed_before(world.name, facts)

    await ran("success", event="push")
    await ran("success", event="pull_request", sha=world.sha)
    red = await ran("failure", event="pull_request")
    assert not await passed(red)
    world.hub.run_again(red, by="mona")
    assert not await passed(world.hub.end_attempt(red, conclusion="failure"))
    await ran("success", event="pull_request")
    assert await passed(red)
    other = await ran("success", event="schedule")
    world.hub.run_again(other, by="mona")
    assert await passed(world.hub.end_attempt(other, conclusion="failure"))
