from __future__ import annotations

import base64
from typing import Any

import pytest

from localhub.git import plumbing as git
from tests.hub_client import Client, Reply
from tests.localhub.conftest import World

MUTATION = """
mutation ($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) {
    commit { oid message author { email user { login } } signature { isValid } }
    ref { name target { oid } }
  }
}
"""


def change(world: World, **replaced: Any) -> dict[str, Any]:  # noqa: ANN401 - parts of an input
    contents = base64.b64encode(b"x = 2\n").decode()
    return {
        "branch": {"repositoryNameWithOwner": "acme/widgets", "branchName": "main"},
        "expectedHeadOid": world.hub.branches(world.repo)["main"],
        "message": {"headline": "Fix it", "body": "Because."},
        "fileChanges": {
            "additions": [{"path": "src/a.py", "contents": contents}],
            "deletions": [{"path": "README.md"}],
        },
    } | replaced


async def run(who: Client, query: str, **variables: object) -> Reply:
    return await who.ask("POST", who.hub.graphql_url, {"query": query, "variables": variables})


async def test_a_commit_is_made_signed_and_in_the_apps_name(world: World) -> None:
    reply = await run(world.bot, MUTATION, input=change(world))
    made = reply.body["data"]["createCommitOnBranch"]
    assert made["commit"]["author"]["user"]["login"] == "codepilot[bot]"
    assert made["commit"]["signature"] == {"isValid": True}
    assert made["commit"]["message"] == "Fix it\n\nBecause."
    assert made["ref"] == {"name": "main", "target": {"oid": made["commit"]["oid"]}}
    assert world.hub.branches(world.repo)["main"] == made["commit"]["oid"]
    assert [entry.path for entry in git.tree(world.repo.path, "main", recursive=True)] == ["src", "src/a.py"]


async def test_a_branch_that_moved_is_left_alone(world: World) -> None:
    wanted = change(world)
    moved = world.hub.commit(world.repo, {"n.txt": "n\n"}, message="Meanwhile", author="mona")
    reply = await run(world.bot, MUTATION, input=wanted)
    assert reply.status == 200
    assert (reply.body["errors"][0]["type"], reply.body["errors"][0]["path"]) == (
        "STALE_DATA",
        ["createCommitOnBranch"],
    )
    assert world.hub.branches(world.repo)["main"] == moved


async def test_what_cannot_be_is_said_with_a_type(world: World) -> None:
    gone = {"repositoryNameWithOwner": "acme/widgets", "branchName": "gone"}
    nowhere = {"repositoryNameWithOwner": "acme/secret", "branchName": "main"}
    bad_path = {"additions": [{"path": "../x", "contents": ""}]}
    bad_deletion = {"deletions": [{"path": "nowhere.txt"}]}
    for replaced, kind in (
        ({"branch": gone}, "NOT_FOUND"),
        ({"branch": nowhere}, "NOT_FOUND"),
        ({"fileChanges": bad_path}, "UNPROCESSABLE"),
        ({"fileChanges": bad_deletion}, "UNPROCESSABLE"),
    ):
        reply = await run(world.bot, MUTATION, input=change(world, **replaced))
        assert reply.body["errors"][0]["type"] == kind
    assert (await run(world.stranger, MUTATION, input=change(world))).body["errors"][0]["type"] == "FORBIDDEN"


async def test_queries_are_parsed_for_real(world: World) -> None:
    reply = await run(world.bot, '{ viewer { login } repository(owner: "acme", name: "widgets") { nameWithOwner } }')
    assert reply.body["data"] == {
        "viewer": {"login": "codepilot[bot]"},
        "repository": {"nameWithOwner": "acme/widgets"},
    }
    assert (await run(world.bot, "{ viewer { invented } }")).body["errors"][0]["message"].startswith("Cannot query")
    assert (await run(world.bot, "{ viewer")).body["errors"]
    assert (await run(world.nobody, "{ viewer { login } }")).status == 401


TIMELINE = """
query ($last: Int!) {
  repository(owner: "acme", name: "widgets") {
    issue(number: 1) {
      lastEditedAt
      timelineItems(last: $last, itemTypes: [LABELED_EVENT, RENAMED_TITLE_EVENT]) {
        totalCount
        nodes {
          __typename
          ... on LabeledEvent { label { name } actor { __typename login } }
          ... on RenamedTitleEvent { previousTitle currentTitle }
        }
      }
    }
  }
}
"""


async def test_a_timeline_has_the_last_events_of_the_kinds_that_are_asked_for(world: World) -> None:
    hub, repo = world.hub, world.repo
    issue = hub.open_issue(repo, author="mona", title="Old", body="Text", labels=["bug"])
    hub.edit_thread(repo, issue.number, by="mona", title="New")
    hub.comment(repo, issue.number, author="mona", body="Hello")
    hub.label(repo, issue.number, "help", by="mona")
    reply = await run(world.bot, TIMELINE, last=2)
    shown = reply.body["data"]["repository"]["issue"]
    assert shown["lastEditedAt"] is None
    assert shown["timelineItems"] == {
        "totalCount": 3,
        "nodes": [
            {"__typename": "RenamedTitleEvent", "previousTitle": "Old", "currentTitle": "New"},
            {
                "__typename": "LabeledEvent",
                "label": {"name": "help"},
                "actor": {"__typename": "User", "login": "mona"},
            },
        ],
    }
    hub.edit_thread(repo, issue.number, by="mona", body="Other text")
    assert (await run(world.bot, TIMELINE, last=1)).body["data"]["repository"]["issue"]["lastEditedAt"]


async def test_conversations_are_resolved_and_comments_hidden(world: World) -> None:
    world.hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    world.hub.open_pull(world.repo, author="mona", head="topic", title="Two")
    line = {"body": "Why?", "path": "src/a.py", "line": 1, "commit_id": world.hub.branches(world.repo)["topic"]}
    first = (await world.owner.ask("POST", "/repos/acme/widgets/pulls/1/comments", line)).body
    await world.bot.ask("POST", f"/repos/acme/widgets/pulls/1/comments/{first['id']}/replies", {"body": "Because."})
    query = """query { rateLimit { cost } repository(owner: "acme", name: "widgets") { pullRequest(number: 1) {
      id reviewThreads(first: 5) { nodes {
        id isResolved path line resolvedBy { login } comments(first: 5) { nodes { id body isMinimized replyTo { id } } }
      } } } } }"""
    data = (await run(world.owner, query)).body["data"]
    assert data["rateLimit"]["cost"] == 1
    [thread] = data["repository"]["pullRequest"]["reviewThreads"]["nodes"]
    assert (thread["path"], thread["line"], thread["isResolved"]) == ("src/a.py", 1, False)
    asked, answered = thread["comments"]["nodes"]
    assert (answered["body"], answered["replyTo"]["id"]) == ("Because.", asked["id"])
    resolve = "mutation ($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { resolvedBy { login } } } }"
    reply = await run(world.owner, resolve, id=thread["id"])
    assert reply.body["data"]["resolveReviewThread"]["thread"]["resolvedBy"]["login"] == "mona"
    assert (await run(world.stranger, resolve, id=thread["id"])).body["errors"][0]["type"] == "FORBIDDEN"
    hide = """mutation ($id: ID!) { minimizeComment(input: {subjectId: $id, classifier: OFF_TOPIC}) {
      minimizedComment { isMinimized minimizedReason } } }"""
    reply = await run(world.owner, hide, id=asked["id"])
    hidden = {"isMinimized": True, "minimizedReason": "off-topic"}
    assert reply.body["data"]["minimizeComment"]["minimizedComment"] == hidden
    draft = """mutation ($id: ID!) { convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } }
      markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }"""
    reply = await run(world.owner, draft, id=data["repository"]["pullRequest"]["id"])
    assert [part["pullRequest"]["isDraft"] for part in reply.body["data"].values()] == [True, False]


async def test_a_query_that_the_hub_does_not_serve_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await run(world.owner, "query { viewer { gists { totalCount } } }")
    assert "The local hub does not serve a query: Cannot query field 'gists'" in caplog.text


async def test_a_created_issue_has_its_assignees(world: World) -> None:
    ids = await run(
        world.owner, 'query { user(login: "eve") { id } repository(owner: "acme", name: "widgets") { id } }'
    )
    wanted = {"repositoryId": ids.body["data"]["repository"]["id"], "title": "One"}
    create = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { number } } }"
    await run(world.owner, create, input=wanted | {"assigneeIds": [ids.body["data"]["user"]["id"]]})
    assert world.hub.issue(world.repo, 1).assignees == (world.eve.id,)
    refused = await run(world.owner, create, input=wanted | {"projectIds": ["one"]})
    assert "has no projects" in refused.body["errors"][0]["message"]
