"""Check runs of ours, and those that went wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.github.client import GitHub
from bot.github.types import Annotation, Button, CheckDraft, GitHubError, Spot
from localhub import CheckRun
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
    red = await world.github.checks.failing(world.name, world.sha)
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
        [red] = await half.checks.failing(world.name, world.sha)
    assert red.conclusion == "failure"


async def test_without_the_permission_there_is_none_and_the_error_names_it(world: World) -> None:
    app = world.hub.add_app("narrow", permissions={"issues": "write", "contents": "read"})
    installation = world.hub.install(app, world.repo)
    async with GitHub.for_installation(
        app.id, app.private_key_pem, installation, world.hub.api_url, redact=str
    ) as narrow:
        with pytest.raises(GitHubError, match="`checks: write`") as caught:
            await narrow.checks.create(world.name, a_draft(world))
        await narrow.comments.create(world.name, Spot(kind="thread", number=world.issue.number), "All the same.")
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
    assert (await world.github.runs.red_on_base(world.name, facts, "main", world.repo.id) is not None) is red
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
            await person._connection.json(
                "set a status",
                "POST",
                f"/repos/{world.name}/statuses/{world.sha}",
                {"state": state, "context": context, "description": "Did not build."},
            )
    [red] = await world.github.checks.failing(world.name, world.sha)
    assert (red.name, red.conclusion, red.summary) == ("ci/old", "failure", "Did not build.")
