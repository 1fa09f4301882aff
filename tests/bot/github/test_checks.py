"""Check runs and workflow runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from bot.github.client import GitHub
from bot.github.downloads import LogError, LogGoneError, save_log
from bot.github.types import Annotation, Button, CheckDraft, CommentTarget, GitHubError
from localhub import CheckRun, EndedJob, WorkflowRun
from tests.github_world import SECRET, World

STOP = Button(label="Stop", description="Stop the run", identifier="stop")


def a_draft(world: World, **changes: object) -> CheckDraft:
    usual = CheckDraft(
        name="Codepilot fix",
        head_sha=world.sha,
        external_id="j1:issue:1:-",
        status="in_progress",
        title="Working",
        summary=f"It works. {SECRET}",
        text=f"Details. {SECRET}",
        buttons=(STOP,),
    )
    return replace(usual, **changes)  # type: ignore[arg-type] # whatever a draft takes


def some_annotations(count: int) -> tuple[Annotation, ...]:
    return tuple(
        Annotation(path="a.txt", start_line=1, end_line=1, level="warning", message=f"{n} {SECRET}", title="T")
        for n in range(count)
    )


def ours(world: World) -> CheckRun:
    [run] = world.hub.check_runs(world.repo)
    return run


async def test_a_check_run_says_what_its_draft_says_without_secrets(world: World) -> None:
    made = await world.github.checks.create(world.name, a_draft(world))
    run = ours(world)
    assert (run.id, run.status, run.conclusion, run.external_id) == (made.id, "in_progress", None, "j1:issue:1:-")
    assert [each["identifier"] for each in run.actions] == ["stop"]
    assert SECRET not in f"{run.summary}{run.text}"
    done = a_draft(world, status="completed", conclusion="neutral", external_id="j1:issue:1:7f3a", buttons=())
    await world.github.checks.update(world.name, made.id, done)
    run = ours(world)
    assert (run.status, run.conclusion, run.external_id, run.actions) == ("completed", "neutral", "j1:issue:1:7f3a", ())


async def test_a_finished_check_run_can_go_on(world: World) -> None:
    waiting = a_draft(world, status="completed", conclusion="action_required")
    made = await world.github.checks.create(world.name, waiting)
    await world.github.checks.update(world.name, made.id, a_draft(world))
    assert ours(world).status == "in_progress"


@pytest.mark.parametrize("count", [1, 50, 51, 120])
async def test_annotations_go_fifty_at_a_time_and_never_twice(world: World, count: int) -> None:
    draft = a_draft(world, annotations=some_annotations(count))
    made = await world.github.checks.create(world.name, draft)
    await world.github.checks.update(world.name, made.id, draft)
    sent = ours(world).annotations
    assert [str(each["message"]).split()[0] for each in sent] == [str(n) for n in range(count)]
    assert not any(SECRET in str(each["message"]) for each in sent)


async def test_a_check_run_whose_answer_was_lost_is_found(world: World) -> None:
    world.hub.faults.add("POST", "*/check-runs", "drop_answer")
    with pytest.raises(GitHubError):
        await world.github.checks.create(world.name, a_draft(world))
    [found] = await world.github.checks.find(world.name, a_draft(world))
    assert ours(world).id == found.id


async def test_after_a_lost_answer_no_annotation_is_sent_twice(world: World) -> None:
    made = await world.github.checks.create(world.name, a_draft(world))
    draft = a_draft(world, annotations=some_annotations(60))
    world.hub.faults.add("PATCH", f"*/check-runs/{made.id}", "drop_answer")
    await world.github.checks.update(world.name, made.id, draft)
    assert len(ours(world).annotations) == 60


async def test_another_apps_check_run_with_our_id_is_not_ours(world: World) -> None:
    forger = world.hub.add_app("forger")
    installation = world.hub.install(forger, world.repo)
    async with GitHub.for_installation(
        forger.id, forger.private_key_pem, installation, world.hub.api_url, redact=str, seconds_between_writes=0
    ) as theirs:
        await theirs.checks.create(world.name, a_draft(world))
    assert await world.github.checks.find(world.name, a_draft(world)) == ()
    made = await world.github.checks.create(world.name, a_draft(world))
    [found] = await world.github.checks.find(world.name, a_draft(world, external_id="j1:issue:1:7f3a"))
    assert found.id == made.id


async def test_what_is_red_about_a_commit(world: World) -> None:
    app = world.hub.add_app("ci")
    installation = world.hub.install(app, world.repo)
    async with GitHub.for_installation(
        app.id, app.private_key_pem, installation, world.hub.api_url, redact=str, seconds_between_writes=0
    ) as ci:
        for name, conclusion in (("tests", "failure"), ("slow", "timed_out"), ("lint", "success"), ("docs", "neutral")):
            said = some_annotations(2) if name == "tests" else ()
            draft = a_draft(
                world, name=name, status="completed", conclusion=conclusion, annotations=said, buttons=(), text="Log."
            )
            await ci.checks.create(world.name, draft)
    await world.github.checks.create(world.name, a_draft(world, status="completed", conclusion="failure"))
    red = await world.github.checks.list_failing(world.name, world.sha)
    assert [(each.name, each.conclusion, len(each.annotations)) for each in red] == [
        ("tests", "failure", 2),
        ("slow", "timed_out", 0),
    ]
    assert red[0].annotations[0].path == "a.txt"
    assert red[0].summary == f"Working\n\nIt works. {SECRET}\n\nLog."


async def test_without_the_permission_for_statuses_the_red_check_runs_are_told(world: World) -> None:
    app = world.hub.add_app("half", permissions={"checks": "write", "contents": "read"})
    installation = world.hub.install(app, world.repo)
    await world.github.checks.create(world.name, a_draft(world, status="completed", conclusion="failure"))
    async with GitHub.for_installation(
        app.id, app.private_key_pem, installation, world.hub.api_url, redact=str, seconds_between_writes=0
    ) as half:
        [red] = await half.checks.list_failing(world.name, world.sha)
    assert red.conclusion == "failure"


async def test_without_the_permission_there_is_none_and_the_error_names_it(world: World) -> None:
    app = world.hub.add_app("narrow", permissions={"issues": "write", "contents": "read"})
    installation = world.hub.install(app, world.repo)
    async with GitHub.for_installation(
        app.id, app.private_key_pem, installation, world.hub.api_url, redact=str
    ) as narrow:
        with pytest.raises(GitHubError, match="`checks: write`") as caught:
            await narrow.checks.create(world.name, a_draft(world))
        await narrow.comments.create(
            world.name, CommentTarget(kind="thread", number=world.issue.number), "All the same."
        )
    assert caught.value.status == 403


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "completed"},
        {"conclusion": "success"},
        {"summary": "x" * 65_536},
        {"text": "x" * 65_536},
        {"buttons": (STOP,) * 4},
    ],
    ids=str,
)
def test_a_draft_that_github_would_refuse_cannot_be_made(world: World, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="check run"):
        a_draft(world, **wrong)


@pytest.mark.parametrize("text", ["", "x" * 41])
def test_a_button_has_the_length_that_github_takes(text: str) -> None:
    with pytest.raises(ValueError, match="button"):
        Button(label="Stop", description=text, identifier="stop")


@pytest.mark.parametrize(
    ("on_base", "red"),
    [
        ([], False),
        (["success"], False),
        (["failure"], True),
        (["success", "timed_out"], True),
        (["failure", "success"], False),
        (["failure", "cancelled", "skipped"], True),
    ],
    ids=str,
)
async def test_whether_the_base_is_red_too(world: World, on_base: list[str], *, red: bool) -> None:
    for conclusion in on_base:
        world.hub.workflow_run(world.repo, head_sha=world.sha, head_branch="main", conclusion=conclusion, actor="mona")
    # Another workflow's failure, and that of a fork's branch of the same name, say nothing about this one.
    world.hub.workflow_run(
        world.repo,
        head_sha=world.sha,
        head_branch="main",
        conclusion="failure",
        actor="mona",
        workflow="Docs",
        path=".github/workflows/docs.yml",
    )
    fork = world.hub.add_repo("mona/calc-fork", owner="mona", fork_of=world.repo)
    world.hub.workflow_run(
        world.repo, head_sha=world.sha, head_branch="main", conclusion="failure", actor="mona", head_repository=fork
    )
    head = world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    run = world.hub.workflow_run(
        world.repo, head_sha=head, head_branch="topic", conclusion="failure", actor="mona", event="pull_request"
    )
    facts = await world.github.runs.get(world.name, run.id)
    assert (await world.github.runs.find_failure_on_base(world.name, facts, "main", world.repo.id) is not None) is red
    assert (facts.head_sha, facts.head_branch, facts.head_repo_id, facts.conclusion, facts.name) == (
        head,
        "topic",
        world.repo.id,
        "failure",
        "CI",
    )


async def test_a_commit_status_can_be_red_too(world: World) -> None:
    async with GitHub.for_token(world.token, world.hub.api_url, redact=str, seconds_between_writes=0) as person:
        for context, state in (("ci/old", "failure"), ("ci/older", "success")):
            await person._connection.request(
                "set a status",
                "POST",
                f"/repos/{world.name}/statuses/{world.sha}",
                {"state": state, "context": context, "description": "Did not build."},
            )
    [red] = await world.github.checks.list_failing(world.name, world.sha)
    assert (red.name, red.conclusion, red.summary) == ("ci/old", "failure", "Did not build.")


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
    assert (gone.value.status, gone.value.is_transient) == (410, False)
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
    found = await world.github.runs.find_last_success(world.name, run)
    assert found is not None
    assert found.id == green.id
    topic = ended(world, "failure", branch="topic")
    assert (
        await world.github.runs.find_last_success(world.name, await world.github.runs.get(world.name, topic.id)) is None
    )


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
        return await world.github.pulls.find_for_fork(
            world.name, fork="one/calc", fork_id=fork_id, branch="topic", sha=sha
        )

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
        return await world.github.runs.has_passed_before(world.name, facts)

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
