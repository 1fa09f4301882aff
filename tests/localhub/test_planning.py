"""Types, fields, sub-issues, duplicates, discussions and started workflows, with the permission that each needs."""

from __future__ import annotations

import pytest

from localhub import APP_PERMISSIONS
from localhub.state.store import node_id
from tests.hub_client import Reply, installation_token
from tests.localhub.conftest import World, payloads_of, record_deliveries

R = "/repos/acme/widgets"
_NIGHTLY = "on:\n  workflow_dispatch:\n    inputs:\n      suite:\n        required: true\njobs: {}\n"


def _permit(world: World, **permissions: str) -> None:
    world.hub.permit(world.installation, {**APP_PERMISSIONS, **permissions})


async def _ask_new_token(world: World, method: str, path: str, body: object = None) -> Reply:
    """Ask with a token that has the installation's present permissions."""
    token = await installation_token(world.nobody, world.app, world.installation)
    return await world.nobody.with_token(token).ask(method, path, body)


async def test_planning_is_shown_on_the_pages(world: World) -> None:
    hub, repo = world.hub, world.repo
    kind, field = hub.add_issue_type("acme", "Bug"), hub.add_issue_field("acme", "Size", "number")
    hub.open_issue(repo, author="mona", title="All")
    hub.open_issue(repo, author="mona", title="Part")
    parent, child = hub.issue(repo, 1), hub.issue(repo, 2)
    duplicate = {"state": "closed", "state_reason": "duplicate", "duplicate_issue_id": parent.id, "type": kind.name}
    assert (await world.owner.ask("PATCH", f"{R}/issues/2", duplicate)).status == 200
    values = {"issue_field_values": [{"field_id": field.id, "value": 3}]}
    assert (await world.owner.ask("POST", f"{R}/issues/2/issue-field-values", values)).status == 200
    assert (await world.owner.ask("POST", f"{R}/issues/1/sub_issues", {"sub_issue_id": child.id})).status == 201
    page = (await world.nobody.ask("GET", f"{hub.url}/acme/widgets/issues/2")).body
    for text in ("Bug", "Size: 3", "Sub-issue of", "Duplicate of"):
        assert text in page
    page = (await world.nobody.ask("GET", f"{hub.url}/acme/widgets/issues/1")).body
    assert "Sub-issues" in page
    shown = (await world.owner.ask("GET", f"{R}/issues/1")).body["sub_issues_summary"]
    assert shown == {"total": 1, "completed": 1, "percent_completed": 100}


async def test_an_issue_has_one_parent_and_is_not_its_own(world: World) -> None:
    issues = [world.hub.open_issue(world.repo, author="mona", title=title) for title in ("One", "Two", "Three")]
    one, two, three = issues

    async def add(parent: int, child: int, **more: bool) -> int:
        body = {"sub_issue_id": child, **more}
        return (await world.owner.ask("POST", f"{R}/issues/{parent}/sub_issues", body)).status

    assert await add(1, one.id) == 422
    assert await add(1, two.id) == 201
    assert await add(2, one.id) == 422
    assert await add(3, two.id) == 422
    assert await add(3, two.id, replace_parent=True) == 201
    assert await add(1, 999_999) == 404
    assert [issue.number for issue in world.hub.sub_issues(world.repo, 3)] == [2]
    assert three.number == 3


async def test_discussions_have_pages(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.open_issue(repo, author="mona", title="It breaks")
    discussion = hub.open_discussion(repo, "General", author="mona", title="How?", body="Say")
    assert discussion.number == 2
    hub.comment_discussion(repo, 2, author="eve", body="So")
    listing, page = [
        (await world.nobody.ask("GET", f"{hub.url}/acme/widgets/discussions{end}")).body for end in ("", "/2")
    ]
    assert "How?" in listing
    assert "Say" in page
    assert "So" in page
    assert (await world.nobody.ask("GET", f"{hub.url}/acme/widgets/discussions/1")).status == 404


async def _mutate(world: World, mutation: str, **inputs: str) -> tuple[object, str]:
    kind, part = f"{mutation[0].upper()}{mutation[1:]}Input", "comment" if "Comment" in mutation else "discussion"
    query = f"mutation ($i: {kind}!) {{ {mutation}(input: $i) {{ {part} {{ id url }} }} }}"
    path = f"{world.hub.url}/api/graphql"
    reply = (await _ask_new_token(world, "POST", path, {"query": query, "variables": {"i": inputs}})).body
    errors = reply.get("errors") or [{}]
    return (reply["data"] or {}).get(mutation), errors[0].get("type", "")


async def test_an_app_needs_the_permission_for_discussions(world: World) -> None:
    hub, repo = world.hub, world.repo
    category = hub.add_category(repo, "General")
    ids = {
        "repositoryId": node_id("Repository", repo.id),
        "categoryId": node_id("DiscussionCategory", category.id),
    }
    made, refusal = await _mutate(world, "createDiscussion", **ids, title="How?", body="Say")
    assert (made, refusal) == (None, "FORBIDDEN")
    _permit(world, discussions="write")
    made, refusal = await _mutate(world, "createDiscussion", **ids, title="How?", body="Say")
    assert (bool(made), refusal) == (True, "")
    [discussion] = hub.discussions(repo)
    comment = {"discussionId": node_id("Discussion", discussion.id), "body": "So"}
    await _mutate(world, "addDiscussionComment", **comment)
    hub.lock_discussion(repo, discussion.number, by="mona")
    assert await _mutate(world, "addDiscussionComment", **comment) == (None, "FORBIDDEN")
    assert [each.body for each in hub.discussion_comments(repo, discussion.number)] == ["So"]
    ids["categoryId"] = node_id("Discussion", 1)
    wrong = await _mutate(world, "createDiscussion", **ids, title="x", body="y")
    assert wrong == (None, "NOT_FOUND")


async def test_a_workflow_is_started_with_the_permission_and_its_own_inputs(world: World) -> None:
    record_deliveries(world)
    world.hub.commit(world.repo, {".github/workflows/nightly.yml": _NIGHTLY}, message="Nightly", author="mona")
    start, body = f"{R}/actions/workflows/nightly.yml/dispatches", {"ref": "main", "inputs": {"suite": "all"}}
    assert (await _ask_new_token(world, "POST", start, body)).status == 403
    _permit(world, actions="write")
    assert (await _ask_new_token(world, "POST", start, body)).status == 204
    missing = await _ask_new_token(world, "POST", start, {"ref": "main"})
    assert (missing.status, missing.body["message"]) == (422, "Required input 'suite' not provided")
    [run] = world.hub.workflow_runs(world.repo)
    assert (run.event, run.is_queued, run.inputs) == ("workflow_dispatch", True, {"suite": "all"})
    world.hub.end_attempt(run, conclusion="success")
    assert [each["action"] for each in payloads_of(world, "workflow_run")] == ["requested", "completed"]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_repository_without_issues_has_gone_ones(world: World, method: str) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    world.hub.set_issues(world.repo, enabled=False)
    assert (await world.owner.ask(method, f"{R}/issues/1", {} if method == "PATCH" else None)).status == 410


async def test_a_draft_needs_the_permission_for_contents_besides(world: World) -> None:
    world.hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    pull = world.hub.open_pull(world.repo, author="mona", head="topic", title="Two")
    _permit(world, contents="read")
    query = "mutation ($id: ID!) { convertPullRequestToDraft(input: {pullRequestId: $id}) { clientMutationId } }"
    body = {"query": query, "variables": {"id": node_id("PullRequest", pull.id)}}
    reply = await _ask_new_token(world, "POST", f"{world.hub.url}/api/graphql", body)
    assert reply.body["errors"][0]["type"] == "FORBIDDEN"
