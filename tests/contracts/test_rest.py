"""Every route of the local hub once, each answer and webhook held against GitHub's official descriptions."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.github.app import OAuthClient
from localhub import APP_EVENTS, APP_PERMISSIONS, App, EndedJob, LocalHub
from localhub.rest import all_routes
from localhub.state.model import Repo
from tests.contracts.validator import UNLISTED, Contract
from tests.hub_client import Client, app_jwt, client, installation_token
from tests.hub_pages import VERIFIER, browser, sign_in_code

R = "/repos/acme/widgets"


@pytest.fixture
def contract(shared_contract: Contract | None, contract_files: Path | str) -> Contract:
    if shared_contract is None:
        pytest.skip(str(contract_files))
    shared_contract.operations.clear()
    shared_contract.events.clear()
    return shared_contract


async def test_every_route_and_every_webhook_is_as_github_describes_it(hub: LocalHub, contract: Contract) -> None:
    mona = hub.add_user("mona", name="Mona Lisa")
    repo = hub.add_repo("acme/widgets", owner="mona", files={"README.md": "# Widgets\n", "src/a.py": "x = 1\n"})
    fork = hub.add_repo("mona/widgets", fork_of=repo)
    held = {**APP_PERMISSIONS, "actions": "write", "discussions": "write"}
    events = [*APP_EVENTS, *_MORE_EVENTS]
    app = hub.add_app("codepilot", webhook_url="", webhook_secret="s", permissions=held, events=events)
    installation = hub.install(app, repo)
    hub.install(app, fork)
    # The description of an App's events lacks this one, which has a webhook of its own.
    hub.install(hub.add_app("planner", events=["sub_issues"]), repo)
    async with client(hub) as nobody:
        bot = nobody.with_token(await installation_token(nobody, app, installation))
        user, itself = nobody.with_token(mona.token), nobody.with_token(app_jwt(app))
        await _accounts(user, itself, bot, installation, repo.id)
        await _threads(hub, user, bot)
        sha = await _git(hub, repo, user, bot)
        await _history(user, bot, sha)
        await _pulls(hub, user, bot)
        await _milestones(user, bot)
        await _branches_and_tags(hub, repo, user, bot)
        await _commit_comments(user, bot, sha)
        await _planning(hub, user, bot)
        await _discussions(hub, bot)
        await _settings(hub, user)
        await _releases(bot)
        await _checks(bot, sha)
        await _workflows(hub, bot, sha)
        await _apps(itself, nobody, app.id, installation)
        await _manifest(hub, nobody)
        await _signed_in(hub, nobody, app, installation)
        revoked = nobody.with_token(await installation_token(nobody, app, installation, repository_ids=[repo.id]))
        await _ok(revoked, "DELETE", "/installation/token", 204)
        await _moves(hub, user, nobody)

    served = {(route.method, route.template) for route in all_routes() if route.template not in UNLISTED}
    assert served - contract.operations == set()
    assert not contract.violations, "\n".join(contract.violations)
    assert contract.events >= _HEARD


_MORE_EVENTS = (
    "release",
    "milestone",
    "commit_comment",
    "fork",
    "discussion",
    "discussion_comment",
    "workflow_dispatch",
)
_HEARD = {
    "discussion-created",
    "discussion-locked",
    "discussion_comment-created",
    "issues-typed",
    "issues-untyped",
    "sub_issues-parent_issue_added",
    "sub_issues-sub_issue_added",
    "workflow_dispatch",
    "commit_comment-created",
    "fork",
    "issues-milestoned",
    "milestone-closed",
    "milestone-created",
    "repository-edited",
    "check_run-rerequested",
    "check_suite-rerequested",
    "check_run-completed",
    "check_suite-completed",
    "issue_comment-created",
    "issues-labeled",
    "issues-opened",
    "ping",
    "pull_request-opened",
    "pull_request_review-submitted",
    "pull_request_review_comment-created",
    "pull_request_review_comment-deleted",
    "pull_request_review_comment-edited",
    "push",
    "release-published",
    "repository-archived",
    "repository-renamed",
    "repository-transferred",
    "repository-unarchived",
    "workflow_run-completed",
    "workflow_run-requested",
}


async def _ok(who: Client, method: str, path: str, status: int = 200, body: object = None, **headers: str) -> object:
    reply = await who.ask(method, path, body, **headers)
    assert reply.status == status, f"{method} {path}: {reply.status} {reply.body}"
    return reply.body


async def _listed(who: Client, path: str) -> list[dict[str, object]]:
    found = await _ok(who, "GET", path)
    assert isinstance(found, list)
    return found


async def _accounts(user: Client, itself: Client, bot: Client, installation: int, repo_id: int) -> None:
    for path in (
        "/",
        "/user",
        "/users/mona",
        "/users/codepilot%5Bbot%5D",
        "/user/repos",
        "/rate_limit",
        "/meta",
        "/versions",
        R,
    ):
        await _ok(user, "GET", path)
    await _ok(bot, "GET", f"/user/{user.hub.add_user('mona').id}")
    for path in ("", "/branches", "/branches/main", "/collaborators", "/collaborators/mona/permission", "/readme"):
        await _ok(bot, "GET", R + path)
    await _ok(bot, "GET", "/repos/mona/widgets")
    await _ok(bot, "GET", f"/repositories/{repo_id}")
    await _ok(bot, "GET", f"{R}/collaborators/mona", 204)
    await _ok(bot, "GET", "/installation/repositories")
    await _ok(itself, "GET", f"{R}/installation")
    await _ok(itself, "GET", "/users/acme/installation")
    await _ok(itself, "GET", f"/app/installations/{installation}")


async def _threads(hub: LocalHub, user: Client, bot: Client) -> None:
    await _ok(user, "POST", f"{R}/labels", 201, {"name": "bug", "color": "ff0000", "description": "It is broken"})
    await _ok(bot, "GET", f"{R}/labels")
    await _ok(bot, "GET", f"{R}/labels/bug")
    await _ok(bot, "GET", f"{R}/activity?ref=main&per_page=1&activity_type=branch_creation&direction=desc")
    issue = {"title": "It breaks", "body": "Really", "labels": ["bug"], "assignees": ["mona"]}
    await _ok(user, "POST", f"{R}/issues", 201, issue)
    await _ok(bot, "GET", f"{R}/issues?state=all&labels=bug&sort=updated&direction=asc&per_page=1&page=1")
    await _ok(bot, "GET", f"{R}/issues/1")
    comment = await _ok(bot, "POST", f"{R}/issues/1/comments", 201, {"body": "On it"})
    assert isinstance(comment, dict)
    one = f"{R}/issues/comments/{comment['id']}"
    await _ok(bot, "GET", one)
    await _ok(bot, "PATCH", one, 200, {"body": "Done"})
    for subject in (one, f"{R}/issues/1"):
        reaction = await _ok(bot, "POST", f"{subject}/reactions", 201, {"content": "eyes"})
        await _ok(bot, "POST", f"{subject}/reactions", 200, {"content": "eyes"})
        await _ok(bot, "GET", f"{subject}/reactions?content=eyes")
        assert isinstance(reaction, dict)
        await _ok(bot, "DELETE", f"{subject}/reactions/{reaction['id']}", 204)
    await _ok(bot, "GET", f"{R}/issues/comments?per_page=5")
    await _ok(bot, "GET", f"{R}/issues/1/comments")
    await _ok(bot, "DELETE", one, 204)
    await _ok(bot, "POST", f"{R}/issues/1/labels", 200, {"labels": ["help"]})
    await _ok(bot, "GET", f"{R}/issues/1/labels")
    await _ok(bot, "DELETE", f"{R}/issues/1/labels/help")
    await _ok(bot, "PUT", f"{R}/issues/1/labels", 200, {"labels": ["bug", "now"]})
    await _ok(bot, "DELETE", f"{R}/issues/1/labels", 204)
    await _ok(bot, "DELETE", f"{R}/issues/1/assignees", 200, {"assignees": ["mona"]})
    await _ok(bot, "POST", f"{R}/issues/1/assignees", 201, {"assignees": ["mona"]})
    changed = {"title": "It broke", "body": "Truly", "state": "closed", "state_reason": "completed", "labels": ["bug"]}
    await _ok(user, "PATCH", f"{R}/issues/1", 200, changed)
    await _ok(user, "PATCH", f"{R}/issues/1", 200, {"state": "open"})
    await _ok(bot, "PATCH", f"{R}/labels/bug", 200, {"new_name": "Broken", "color": "00ff00"})
    assert [label["name"] for label in await _listed(bot, f"{R}/issues/1/labels")] == ["Broken"]
    await _ok(bot, "PATCH", f"{R}/labels/Broken", 200, {"new_name": "bug"})
    await _ok(bot, "DELETE", f"{R}/labels/now", 204)
    await _ok(user, "PUT", f"{R}/issues/1/lock", 204, {"lock_reason": "spam"})
    await _ok(user, "DELETE", f"{R}/issues/1/lock", 204)
    found = await _ok(user, "GET", "/search/issues?q=repo:acme/widgets+is:issue+is:open+label:bug+broke")
    assert isinstance(found, dict)
    assert [item["number"] for item in found["items"]] == [1]
    await _ok(bot, "GET", f"{R}/issues/1/events?per_page=100")
    await _ok(bot, "GET", f"{R}/issues/1/timeline?per_page=100")
    await _ok(user, "GET", f"{R}/issues/99", 404)
    await _ok(user, "POST", f"{R}/issues/1/comments", 422, {"body": ""})


async def _git(hub: LocalHub, repo: Repo, user: Client, bot: Client) -> str:
    main = await _ok(bot, "GET", f"{R}/git/ref/heads/main")
    assert isinstance(main, dict)
    head = main["object"]["sha"]
    content = base64.b64encode(b"x = 2\n").decode()
    blob = await _ok(bot, "POST", f"{R}/git/blobs", 201, {"content": content, "encoding": "base64"})
    assert isinstance(blob, dict)
    await _ok(bot, "GET", f"{R}/git/blobs/{blob['sha']}")
    entry = {"path": "src/a.py", "mode": "100644", "type": "blob", "sha": blob["sha"]}
    tree = await _ok(bot, "POST", f"{R}/git/trees", 201, {"base_tree": head, "tree": [entry]})
    assert isinstance(tree, dict)
    await _ok(bot, "GET", f"{R}/git/trees/{tree['sha']}?recursive=1")
    new = {"message": "Fix it", "tree": tree["sha"], "parents": [head]}
    commit = await _ok(bot, "POST", f"{R}/git/commits", 201, new)
    assert isinstance(commit, dict)
    sha = str(commit["sha"])
    await _ok(bot, "GET", f"{R}/git/commits/{sha}")
    await _ok(bot, "POST", f"{R}/git/refs", 201, {"ref": "refs/heads/codepilot/fix", "sha": head})
    await _ok(bot, "POST", f"{R}/git/refs", 422, {"ref": "refs/heads/codepilot/fix", "sha": head})
    await _ok(bot, "PATCH", f"{R}/git/refs/heads/codepilot/fix", 200, {"sha": sha})
    await _ok(bot, "GET", f"{R}/git/matching-refs/heads/codepilot")
    ruleset = hub.add_rules(repo, "required_signatures", branches="codepilot/signed")
    assert len(await _listed(bot, f"{R}/rules/branches/codepilot/signed")) == 1
    await _ok(bot, "GET", f"{R}/rulesets/{ruleset.id}")
    await _ok(bot, "GET", f"{R}/rulesets/1", 404)
    await _ok(bot, "POST", f"{R}/git/refs", 201, {"ref": "refs/tags/v1", "sha": head})
    assert [tag["name"] for tag in await _listed(bot, f"{R}/tags")] == ["v1"]
    file, put = f"{R}/contents/notes/n.md", {"message": "Note", "content": content, "branch": "codepilot/note"}
    await _ok(bot, "PUT", file, 404, put)
    await _ok(bot, "POST", f"{R}/git/refs", 201, {"ref": "refs/heads/codepilot/note", "sha": head})
    made = await _ok(bot, "PUT", file, 201, put)
    assert isinstance(made, dict)
    await _ok(bot, "PUT", file, 422, put)
    await _ok(bot, "PUT", file, 409, put | {"sha": "1" * 40})
    await _ok(bot, "PUT", file, 200, put | {"sha": made["content"]["sha"]})
    await _ok(bot, "DELETE", file, 200, {"message": "No", "branch": "codepilot/note", "sha": made["content"]["sha"]})
    await _ok(bot, "GET", f"{file}?ref=codepilot/note", 404)
    await _ok(bot, "DELETE", f"{R}/git/refs/heads/codepilot/note", 204)
    await _ok(user, "POST", f"{R}/git/refs", 201, {"ref": "refs/heads/gone", "sha": head})
    await _ok(user, "DELETE", f"{R}/git/refs/heads/gone", 204)
    return sha


async def _history(user: Client, bot: Client, sha: str) -> None:
    await _ok(bot, "GET", f"{R}/commits?sha=codepilot/fix&path=src/a.py")
    await _ok(bot, "GET", f"{R}/commits/codepilot/fix")
    await _ok(bot, "GET", f"{R}/commits/{sha}", 200, None, Accept="application/vnd.github.diff")
    await _ok(bot, "GET", f"{R}/compare/main...codepilot/fix")
    await _ok(bot, "GET", f"{R}/contents/")
    await _ok(bot, "GET", f"{R}/contents/src?ref=main")
    await _ok(bot, "GET", f"{R}/contents/src/a.py?ref=codepilot/fix")
    await _ok(user, "GET", f"{R}/contents/nowhere", 404)
    status = {"state": "success", "context": "ci", "description": "green", "target_url": "http://127.0.0.1/ci"}
    await _ok(bot, "POST", f"{R}/statuses/{sha}", 201, status)
    await _ok(bot, "GET", f"{R}/commits/{sha}/statuses")
    await _ok(bot, "GET", f"{R}/commits/{sha}/status")


async def _pulls(hub: LocalHub, user: Client, bot: Client) -> None:
    wanted = {"title": "Fix it", "head": "codepilot/fix", "base": "main", "body": "Closes #1", "draft": False}
    await _ok(bot, "POST", f"{R}/pulls", 201, wanted)
    await _ok(bot, "POST", f"{R}/pulls", 422, wanted)
    await _ok(bot, "GET", f"{R}/pulls?head=acme:codepilot/fix&base=main&state=all")
    for path in ("", "/files", "/commits", "/comments"):
        await _ok(bot, "GET", f"{R}/pulls/2{path}")
    await _ok(bot, "GET", f"{R}/pulls/2", 200, None, Accept="application/vnd.github.diff")
    await _ok(bot, "GET", f"{R}/pulls/2", 200, None, Accept="application/vnd.github.patch")
    pull = await _ok(bot, "PATCH", f"{R}/pulls/2", 200, {"title": "Fix it well", "body": "Closes #1."})
    assert isinstance(pull, dict)
    head = pull["head"]["sha"]
    await _reviews(user, bot, head)
    hub.add_user("eve")
    await _ok(bot, "POST", f"{R}/pulls/2/requested_reviewers", 422, {"reviewers": ["eve"]})
    hub.add_collaborator(hub.repo("acme/widgets"), "eve", "read")
    await _ok(bot, "POST", f"{R}/pulls/2/requested_reviewers", 201, {"reviewers": ["eve"]})
    await _ok(bot, "GET", f"{R}/pulls/2/requested_reviewers")
    await _ok(bot, "DELETE", f"{R}/pulls/2/requested_reviewers", 200, {"reviewers": ["eve"]})
    await _ok(bot, "GET", f"{R}/commits/{head}/pulls")
    await _ok(bot, "POST", f"{R}/issues/2/comments", 201, {"body": "A comment on a pull request"})
    await _ok(bot, "POST", f"{R}/issues/2/labels", 200, {"labels": ["bug"]})
    await _ok(bot, "GET", f"{R}/pulls/2/merge", 404)
    await _ok(user, "PUT", f"{R}/pulls/2/merge", 200, {"sha": head, "merge_method": "squash"})
    await _ok(bot, "GET", f"{R}/pulls/2/merge", 204)


async def _reviews(user: Client, bot: Client, head: str) -> None:
    line = {"body": "Why 2?", "commit_id": head, "path": "src/a.py", "line": 1, "side": "RIGHT"}
    comment = await _ok(user, "POST", f"{R}/pulls/2/comments", 201, line)
    await _ok(user, "POST", f"{R}/pulls/2/comments", 422, line | {"line": 99})
    assert isinstance(comment, dict)
    one = f"{R}/pulls/comments/{comment['id']}"
    position = {"body": "Here", "commit_id": head, "path": "src/a.py", "position": 2}
    placed = await _ok(user, "POST", f"{R}/pulls/2/comments", 201, position)
    assert isinstance(placed, dict)
    assert (placed["line"], placed["side"]) == (1, "RIGHT")
    await _ok(user, "POST", f"{R}/pulls/2/comments", 422, position | {"position": 99})
    whole = {"body": "This file", "commit_id": head, "path": "src/a.py", "subject_type": "file"}
    made = await _ok(user, "POST", f"{R}/pulls/2/comments", 201, whole)
    assert isinstance(made, dict)
    assert made["subject_type"] == "file"
    await _ok(bot, "GET", f"{R}/pulls/comments?sort=created&direction=desc")
    await _ok(bot, "GET", f"{R}/pulls/2/comments?per_page=5")
    await _ok(bot, "GET", one)
    reply = await _ok(bot, "POST", f"{R}/pulls/2/comments/{comment['id']}/replies", 201, {"body": "It is more."})
    assert isinstance(reply, dict)
    await _ok(bot, "PATCH", f"{R}/pulls/comments/{reply['id']}", 200, {"body": "It is more than 1."})
    reaction = await _ok(bot, "POST", f"{one}/reactions", 201, {"content": "eyes"})
    assert isinstance(reaction, dict)
    await _ok(bot, "GET", f"{one}/reactions?content=eyes")
    await _ok(bot, "DELETE", f"{one}/reactions/{reaction['id']}", 204)
    suggestion = {"path": "src/a.py", "line": 1, "side": "LEFT", "body": "```suggestion\nx = 3\n```"}
    wanted = {"commit_id": head, "event": "COMMENT", "body": "Two remarks", "comments": [suggestion]}
    review = await _ok(bot, "POST", f"{R}/pulls/2/reviews", 200, wanted)
    assert isinstance(review, dict)
    await _ok(bot, "POST", f"{R}/pulls/2/reviews", 422, wanted | {"comments": [suggestion | {"line": 99}]})
    await _ok(bot, "POST", f"{R}/pulls/2/reviews", 422, {"event": "APPROVE"})
    approval = await _ok(user, "POST", f"{R}/pulls/2/reviews", 200, {"event": "APPROVE"})
    assert isinstance(approval, dict)
    await _ok(bot, "PUT", f"{R}/pulls/2/reviews/{approval['id']}/dismissals", 200, {"message": "Too early"})
    begun = await _ok(bot, "POST", f"{R}/pulls/2/reviews", 200, {"body": "First", "comments": [suggestion]})
    assert isinstance(begun, dict)
    await _ok(bot, "POST", f"{R}/pulls/2/reviews", 422, {"event": "COMMENT", "body": "Another"})
    await _ok(bot, "PUT", f"{R}/pulls/2/reviews/{begun['id']}", 200, {"body": "Second"})
    await _ok(bot, "POST", f"{R}/pulls/2/reviews/{begun['id']}/events", 200, {"event": "COMMENT"})
    await _ok(bot, "DELETE", f"{R}/pulls/2/reviews/{begun['id']}", 422)
    dropped = await _ok(bot, "POST", f"{R}/pulls/2/reviews", 200, {})
    assert isinstance(dropped, dict)
    await _ok(bot, "DELETE", f"{R}/pulls/2/reviews/{dropped['id']}")
    await _ok(bot, "GET", f"{R}/pulls/2/reviews")
    await _ok(bot, "GET", f"{R}/pulls/2/reviews/{review['id']}")
    await _ok(bot, "GET", f"{R}/pulls/2/reviews/{review['id']}/comments")
    await _ok(bot, "GET", f"{R}/issues/2/timeline")
    await _ok(bot, "DELETE", f"{R}/pulls/comments/{reply['id']}", 204)


async def _milestones(user: Client, bot: Client) -> None:
    due = {"title": "Version 1", "description": "The first", "due_on": "2027-01-01T08:00:00Z"}
    await _ok(user, "POST", f"{R}/milestones", 201, due)
    await _ok(user, "POST", f"{R}/milestones", 422, {"title": "Version 1"})
    await _ok(user, "POST", f"{R}/milestones", 201, {"title": "Later"})
    changed = await _ok(user, "PATCH", f"{R}/issues/1", 200, {"milestone": 1})
    assert isinstance(changed, dict)
    assert (changed["milestone"]["title"], changed["milestone"]["open_issues"]) == ("Version 1", 1)
    await _ok(user, "PATCH", f"{R}/issues/1", 422, {"milestone": 9})
    await _ok(user, "POST", f"{R}/issues", 201, {"title": "Under a milestone", "milestone": 2})
    assert [each["number"] for each in await _listed(bot, f"{R}/issues?milestone=1")] == [1]
    assert [each["title"] for each in await _listed(bot, f"{R}/milestones?state=all&sort=due_on")] == [
        "Later",
        "Version 1",
    ]
    await _ok(bot, "GET", f"{R}/milestones/1")
    await _ok(user, "PATCH", f"{R}/milestones/1", 200, {"description": "The very first"})
    await _ok(user, "PATCH", f"{R}/milestones/1", 200, {"state": "closed"})
    await _ok(user, "DELETE", f"{R}/milestones/2", 204)
    assert [each["event"] for each in await _listed(bot, f"{R}/issues/3/events")] == ["milestoned", "demilestoned"]


async def _planning(hub: LocalHub, user: Client, bot: Client) -> None:
    await _ok(bot, "GET", f"{R}/issue-types", 404)
    await _ok(user, "GET", "/orgs/acme/issue-fields")
    await _ok(bot, "GET", "/orgs/acme/issue-fields", 403)
    for name in ("Bug", "Task"):
        hub.add_issue_type("acme", name)
    size = hub.add_issue_field("acme", "Size", "number")
    level = hub.add_issue_field("acme", "Level", "single_select", options=["High", "Low"])
    areas = hub.add_issue_field("acme", "Areas", "multi_select", options=["API", "Docs"])
    await _ok(bot, "GET", f"{R}/issue-types")
    await _ok(user, "GET", "/orgs/acme/issue-fields")
    made = [await _ok(user, "POST", f"{R}/issues", 201, {"title": title, "type": "Bug"}) for title in ("All", "Part")]
    parent, child = (dict(each) for each in made if isinstance(each, dict))
    await _ok(bot, "PATCH", f"{R}/issues/{child['number']}", 200, {"type": "Task"})
    await _ok(bot, "PATCH", f"{R}/issues/{child['number']}", 200, {"type": None})
    await _ok(bot, "PATCH", f"{R}/issues/{child['number']}", 422, {"type": "Absent"})
    values = [{"field_id": size.id, "value": 3}, {"field_id": level.id, "value": "High"}]
    values.append({"field_id": areas.id, "value": ["API", "Docs"]})
    fields = f"{R}/issues/{child['number']}/issue-field-values"
    await _ok(bot, "POST", fields, 200, {"issue_field_values": values})
    await _ok(bot, "POST", fields, 422, {"issue_field_values": [{"field_id": level.id, "value": "Unheard"}]})
    await _ok(bot, "GET", fields)
    subs = f"{R}/issues/{parent['number']}/sub_issues"
    await _ok(bot, "POST", subs, 201, {"sub_issue_id": child["id"]})
    await _ok(bot, "POST", subs, 422, {"sub_issue_id": child["id"]})
    await _ok(bot, "GET", subs)
    duplicate = {"state": "closed", "state_reason": "duplicate", "duplicate_issue_id": parent["id"]}
    await _ok(bot, "PATCH", f"{R}/issues/{child['number']}", 200, duplicate)
    hub.set_issues(hub.repo("acme/widgets"), enabled=False)
    await _ok(bot, "GET", f"{R}/issues/1", 410)
    await _ok(bot, "POST", f"{R}/issues", 410, {"title": "Off"})
    hub.set_issues(hub.repo("acme/widgets"), enabled=True)


async def _discussions(hub: LocalHub, bot: Client) -> None:
    repo = hub.repo("acme/widgets")
    discussion = hub.open_discussion(repo, "General", author="mona", title="How?")
    hub.comment_discussion(repo, discussion.number, author="mona", body="So")
    hub.lock_discussion(repo, discussion.number, by="mona")
    await _ok(bot, "GET", R)


async def _branches_and_tags(hub: LocalHub, repo: Repo, user: Client, bot: Client) -> None:
    old = hub.branches(repo)["main"]
    hub.commit(repo, {"b.py": "y = 1\n", "docs/README.md": "# Docs\n"}, message="Side", author="mona", branch="side")
    merge = {"base": "main", "head": "side", "commit_message": "Merge the side"}
    made = await _ok(bot, "POST", f"{R}/merges", 201, merge)
    assert isinstance(made, dict)
    assert [parent["sha"] for parent in made["parents"]] == [old, hub.branches(repo)["side"]]
    await _ok(bot, "POST", f"{R}/merges", 204, merge)
    await _ok(bot, "POST", f"{R}/merges", 404, {"base": "absent", "head": "side"})
    for branch in ("left", "right"):
        hub.commit(repo, {"b.py": f"y = {branch!r}\n"}, message=branch, author="mona", branch=branch)
    await _ok(bot, "POST", f"{R}/merges", 409, {"base": "left", "head": "right"})
    tag = {"tag": "v0", "message": "Zero", "object": old, "type": "commit"}
    tagger = {"name": "Mona", "email": "mona@example.com", "date": "2026-11-21T12:00:00Z"}
    shown = await _ok(bot, "POST", f"{R}/git/tags", 201, tag | {"tagger": tagger})
    assert isinstance(shown, dict)
    assert (shown["tagger"], shown["object"]["sha"], shown["message"]) == (tagger, old, "Zero")
    await _ok(bot, "GET", f"{R}/git/tags/{shown['sha']}")
    await _ok(bot, "GET", f"{R}/git/tags/{old}", 404)
    await _ok(bot, "POST", f"{R}/git/tags", 422, tag | {"object": "1" * 40})
    await _ok(bot, "POST", f"{R}/git/refs", 201, {"ref": "refs/tags/v0", "sha": shown["sha"]})
    names = {each["ref"] for each in await _listed(bot, f"{R}/git/matching-refs/")}
    assert {"refs/heads/main", "refs/tags/v0", "refs/pull/2/head"} <= names
    readme = await _ok(bot, "GET", f"{R}/readme/docs")
    assert isinstance(readme, dict)
    assert readme["path"] == "docs/README.md"
    await _ok(bot, "GET", f"{R}/readme/src", 404)
    await _ok(bot, "POST", f"{R}/pulls", 201, {"title": "Left", "head": "left", "base": "main"})
    hub.commit(repo, {"c.py": "z = 1\n"}, message="On main", author="mona")
    head = hub.branches(repo)["left"]
    await _ok(bot, "PUT", f"{R}/pulls/4/update-branch", 422, {"expected_head_sha": old})
    await _ok(bot, "PUT", f"{R}/pulls/4/update-branch", 202, {"expected_head_sha": head})
    assert hub.branches(repo)["left"] != head
    await _ok(bot, "PUT", f"{R}/pulls/4/update-branch", 422)
    await _ok(bot, "PATCH", f"{R}/pulls/4", 200, {"maintainer_can_modify": True})
    await _ok(user, "PATCH", f"{R}/pulls/4", 200, {"state": "closed"})


async def _commit_comments(user: Client, bot: Client, sha: str) -> None:
    comment = await _ok(user, "POST", f"{R}/commits/{sha}/comments", 201, {"body": "Hm", "path": "src/a.py", "line": 1})
    assert isinstance(comment, dict)
    one = f"{R}/comments/{comment['id']}"
    for path in (one, f"{R}/commits/{sha}/comments"):
        await _ok(bot, "GET", path)
    await _ok(user, "POST", f"{R}/commits/{sha}/comments", 422, {"body": " "})


async def _settings(hub: LocalHub, user: Client) -> None:
    words = {"description": "Widgets for all", "homepage": "http://127.0.0.1/widgets"}
    changed = await _ok(user, "PATCH", R, 200, words)
    assert isinstance(changed, dict)
    assert changed | words == changed
    await _ok(user, "PATCH", R, 422, {"default_branch": "absent"})
    await _ok(user, "PATCH", R, 200, {"default_branch": "side"})
    await _ok(user, "PATCH", R, 200, {"default_branch": "main"})
    await _ok(user, "PUT", f"{R}/topics", 200, {"names": ["Tools", "widgets"]})
    topics = await _ok(user, "GET", f"{R}/topics")
    assert topics == {"names": ["tools", "widgets"]}
    await _ok(user, "PUT", f"{R}/topics", 422, {"names": ["not a topic"]})
    languages = await _ok(user, "GET", f"{R}/languages")
    assert isinstance(languages, dict)
    assert list(languages) == ["Python"]
    for path in ("/notifications?all=true", "/users/mona/received_events"):
        await _ok(user, "GET", path)
    await _ok(user, "GET", f"{R}/actions/secrets")
    forker = user.with_token(hub.add_user("forker").token)
    fork = await _ok(forker, "POST", f"{R}/forks", 202, {"name": "gadgets"})
    assert isinstance(fork, dict)
    assert (fork["full_name"], fork["parent"]["full_name"]) == ("forker/gadgets", "acme/widgets")
    await _ok(forker, "POST", f"{R}/forks", 202)
    assert len(await _listed(user, f"{R}/forks")) == 2
    await _ok(forker, "PATCH", "/repos/forker/gadgets", 200, {"archived": True})
    await _ok(forker, "PATCH", "/repos/forker/gadgets", 403, {"description": "Read-only"})
    await _ok(forker, "PATCH", "/repos/forker/gadgets", 200, {"archived": False})
    await _ok(forker, "PATCH", "/repos/forker/gadgets", 200, {"private": True, "name": "widgets"})


async def _releases(bot: Client) -> None:
    made = await _ok(bot, "POST", f"{R}/releases", 201, {"tag_name": "v1", "name": "One", "body": "First"})
    draft = await _ok(bot, "POST", f"{R}/releases", 201, {"tag_name": "v/2", "draft": True})
    assert isinstance(made, dict)
    assert isinstance(draft, dict)
    await _ok(bot, "POST", f"{R}/releases", 422, {"tag_name": "v1"})
    await _ok(bot, "PATCH", f"{R}/releases/{draft['id']}", 200, {"draft": False, "prerelease": True})
    await _ok(bot, "GET", f"{R}/releases?per_page=5")
    await _ok(bot, "GET", f"{R}/releases/{made['id']}")
    await _ok(bot, "GET", f"{R}/releases/tags/v%2F2")
    await _ok(bot, "GET", f"{R}/releases/latest")
    await _ok(bot, "DELETE", f"{R}/releases/{made['id']}", 204)


async def _checks(bot: Client, sha: str) -> None:
    button = {"label": "Stop", "description": "Stop the run", "identifier": "stop"}
    new = {"name": "codepilot", "head_sha": sha, "status": "in_progress", "external_id": "1", "actions": [button]}
    run = await _ok(bot, "POST", f"{R}/check-runs", 201, new)
    assert isinstance(run, dict)
    note = {"path": "src/a.py", "start_line": 1, "end_line": 1, "annotation_level": "notice", "message": "Here"}
    output = {"title": "Done", "summary": "All well", "text": "Long", "annotations": [note]}
    one = f"{R}/check-runs/{run['id']}"
    await _ok(bot, "PATCH", one, 200, {"conclusion": "success", "output": output})
    await _ok(bot, "GET", one)
    await _ok(bot, "GET", f"{one}/annotations")
    await _ok(bot, "POST", f"{one}/rerequest", 201)
    await _ok(bot, "GET", f"{R}/commits/{sha}/check-runs?check_name=codepilot&filter=all")
    suites = await _ok(bot, "GET", f"{R}/commits/{sha}/check-suites")
    assert isinstance(suites, dict)
    [suite] = suites["check_suites"]
    assert (suite["status"], suite["conclusion"]) == ("completed", "success")
    await _ok(bot, "GET", f"{R}/check-suites/{suite['id']}")
    await _ok(bot, "POST", f"{R}/check-suites/{suite['id']}/rerequest", 201)
    await _ok(bot, "GET", f"{R}/check-suites/{suite['id']}/check-runs")


async def _workflows(hub: LocalHub, bot: Client, sha: str) -> None:
    repo, fork = (hub.repo(name) for name in ("acme/widgets", "mona/widgets"))
    job = EndedJob(name="test", conclusion="failure", steps=[("Run tests", "failure")], log="1 failed\n")
    run = hub.workflow_run(
        repo, head_sha=sha, head_branch="codepilot/fix", conclusion="failure", actor="mona", jobs=[job]
    )
    head = hub.branches(fork)["main"]
    hub.workflow_run(
        repo, head_sha=head, head_branch="main", conclusion="success", actor="mona", head_repository=fork, path="b.yml"
    )
    await _ok(bot, "GET", f"{R}/actions/workflows/ci.yml/runs?branch=codepilot/fix&status=failure&event=push")
    await _ok(bot, "GET", f"{R}/actions/runs?head_sha={sha}&actor=mona")
    await _ok(bot, "GET", f"{R}/actions/runs/{run.id}")
    mona = bot.with_token(hub.add_user("mona").token)
    await _ok(mona, "POST", f"{R}/actions/runs/{run.id}/rerun-failed-jobs", 201)
    assert (await mona.ask("POST", f"{R}/actions/runs/{run.id}/rerun-failed-jobs")).status == 403
    hub.end_attempt(run, conclusion="success", jobs=[EndedJob(name="test", conclusion="success", log="1 failed\n")])
    for attempt, conclusion in ((1, "failure"), (2, "success")):
        told = await _ok(bot, "GET", f"{R}/actions/runs/{run.id}/attempts/{attempt}")
        assert isinstance(told, dict)
        assert (told["run_attempt"], told["conclusion"]) == (attempt, conclusion)
    await _ok(bot, "GET", f"{R}/actions/runs/{run.id}/jobs?filter=all")
    other = hub.add_app("other-ci")
    hub.check(repo, other, head_sha=sha, name="build", conclusion="failure", summary="It fails.")
    await _jobs_as_checks(bot, sha)
    await _ok(bot, "GET", f"{R}/actions/workflows")
    await _ok(bot, "GET", f"{R}/actions/workflows/ci.yml")
    kept = hub.keep_artifact(repo, "report", {"report.txt": b"1 failed"}, run_id=run.id)
    await _ok(bot, "GET", f"{R}/actions/runs/{run.id}/artifacts")
    await _ok(bot, "GET", f"{R}/actions/artifacts?name=report&per_page=5")
    await _ok(bot, "GET", f"{R}/actions/artifacts/{kept.id}")
    await _ok(bot.staying(), "GET", f"{R}/actions/artifacts/{kept.id}/zip", 302)
    await _ok(mona, "DELETE", f"{R}/actions/artifacts/{kept.id}", 204)
    jobs = await _ok(bot, "GET", f"{R}/actions/runs/{run.id}/jobs")
    assert isinstance(jobs, dict)
    one = f"{R}/actions/jobs/{jobs['jobs'][0]['id']}"
    await _ok(bot, "GET", one)
    await _ok(mona, "POST", f"{R}/actions/runs/{run.id}/rerun", 201)
    hub.end_attempt(run, conclusion="success")
    await _ok(mona, "POST", f"{one}/rerun", 201)
    await _ok(mona, "POST", f"{R}/actions/runs/{run.id}/cancel", 202)
    await _ok(mona, "POST", f"{R}/actions/runs/{run.id}/cancel", 409)
    hub.end_attempt(hub.run_again(run, by="mona"), conclusion="success", jobs=[job])
    jobs = await _ok(bot, "GET", f"{R}/actions/runs/{run.id}/jobs")
    assert isinstance(jobs, dict)
    one = f"{R}/actions/jobs/{jobs['jobs'][0]['id']}"
    await _ok(bot.staying(), "GET", f"{one}/logs", 302)
    await _ok(bot.staying(), "GET", f"{R}/actions/runs/{run.id}/logs", 302)
    assert await _ok(bot, "GET", f"{one}/logs") == "1 failed\n"
    await _dispatches(hub, repo, bot)
    first = f"{R}/actions/runs/{run.id}/attempts/1"
    await _ok(bot, "GET", first)
    await _ok(bot, "GET", f"{first}/jobs")
    await _ok(bot.staying(), "GET", f"{first}/logs", 302)


async def _dispatches(hub: LocalHub, repo: Repo, bot: Client) -> None:
    inputs = "    inputs:\n      suite: {required: true}\n"
    file = f"name: Nightly\non:\n  workflow_dispatch:\n{inputs}jobs: {{}}\n"
    files = {".github/workflows/nightly.yml": file, ".github/workflows/push.yml": "on: push\njobs: {}\n"}
    hub.commit(repo, files, message="Nightly", author="mona")
    start = f"{R}/actions/workflows/nightly.yml/dispatches"
    body = {"ref": "main", "inputs": {"suite": "all"}}
    await _ok(bot, "POST", start, 204, body)
    details = await _ok(bot, "POST", start, 200, body | {"return_run_details": True})
    assert isinstance(details, dict)
    runs = await _ok(bot, "GET", f"{R}/actions/workflows/nightly.yml/runs?created=>=2020-01-01T00:00:00Z&actor=x")
    assert isinstance(runs, dict)
    assert runs["total_count"] == 0
    await _ok(bot, "GET", f"{R}/actions/runs/{details['workflow_run_id']}")
    for wrong in ({"ref": "absent"}, {"ref": "main"}, {"ref": "main", "inputs": {"suite": "all", "more": "1"}}):
        await _ok(bot, "POST", start, 422, wrong)
    await _ok(bot, "POST", f"{R}/actions/workflows/push.yml/dispatches", 422, {"ref": "main"})
    await _ok(bot, "POST", f"{R}/actions/workflows/absent.yml/dispatches", 404, {"ref": "main"})


async def _jobs_as_checks(bot: Client, sha: str) -> None:
    shown = await _ok(bot, "GET", f"{R}/commits/{sha}/check-runs?filter=latest")
    assert isinstance(shown, dict)
    runs = {each["name"]: (each["app"]["slug"], each["conclusion"]) for each in shown["check_runs"]}
    assert runs["test"] == ("github-actions", "success")
    [of_actions] = [each for each in shown["check_runs"] if each["name"] == "test"]
    await _ok(bot, "GET", f"{R}/check-runs/{of_actions['id']}")
    await _ok(bot, "GET", f"{R}/check-suites/{of_actions['check_suite']['id']}")


async def _moves(hub: LocalHub, user: Client, nobody: Client) -> None:
    repo = hub.repo("acme/widgets")
    hub.archive(repo)
    await _ok(user, "POST", f"{R}/issues", 403, {"title": "x"})
    hub.unarchive(repo)
    hub.rename(repo, "gadgets", by="mona")
    await _ok(nobody, "GET", f"{R}/issues?state=all")
    hub.transfer(repo, "mona", by="mona")
    await _ok(nobody, "GET", R)


async def _manifest(hub: LocalHub, nobody: Client) -> None:
    manifest = {"name": "Made", "url": "https://a.example", "redirect_url": "http://127.0.0.1:1/done"}
    async with browser(hub.url) as page:
        location = await page.sent_on("/settings/apps", {"manifest": json.dumps(manifest)})
        [code] = parse_qs(urlsplit(location).query)["code"]
    await _ok(nobody, "POST", f"/app-manifests/{code}/conversions", 201)
    await _ok(nobody, "POST", f"/app-manifests/{code}/conversions", 404)


async def _signed_in(hub: LocalHub, nobody: Client, app: App, installation: int) -> None:
    """Send the requests of an App's site for a person who signed in there."""
    client_id, secret = hub.set_callback(app, "https://bot.example.com/back")
    site = OAuthClient(client_id=client_id, client_secret=secret, server_url=hub.url, api_url=hub.api_url)
    person = nobody.with_token(await site.exchange(await sign_in_code(hub.url, client_id, "mona"), VERIFIER))
    await _ok(person, "GET", "/user/installations")
    await _ok(person, "GET", f"/user/installations/{installation}/repositories")


async def _apps(itself: Client, nobody: Client, app_id: int, installation: int) -> None:
    hub = itself.hub
    app = hub.set_webhook(hub.app(app_id), f"{hub.url}/nobody-listens-here", "s")
    await _ok(nobody, "GET", f"/apps/{app.slug}")
    for path in ("/app", "/app/installations", "/app/hook/config", "/app/hook/deliveries?per_page=5"):
        await _ok(itself, "GET", path)
    delivery = hub.deliveries[-1]
    await _ok(itself, "GET", f"/app/hook/deliveries/{delivery.id}")
    await _ok(itself, "POST", f"/app/hook/deliveries/{delivery.id}/attempts", 202)
    await _ok(itself, "GET", "/app/installations/0", 404)
    await _ok(nobody, "GET", "/app", 401)
    narrowed = {"permissions": {"contents": "read"}, "repositories": ["widgets"]}
    await _ok(itself, "POST", f"/app/installations/{installation}/access_tokens", 201, narrowed)


async def test_no_field_of_a_wrong_type_is_a_fault_of_the_hub(hub: LocalHub, contract: Contract) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("acme/widgets", owner="mona", files={"README.md": "# Widgets\n"})
    app = hub.add_app("codepilot", webhook_secret="s")
    installation = hub.install(app, repo)
    hub.open_issue(repo, author="mona", title="One")
    hub.commit(repo, {"t.txt": "t\n"}, message="Topic", author="mona", branch="topic")
    hub.open_pull(repo, author="mona", head="topic", title="Topic")
    hub.observe()
    taken: list[tuple[object, ...]] = []
    values = {"owner": "acme", "repo": "widgets", "pull_number": "2", "ref": "heads/topic"}
    async with client(hub) as nobody:
        bot = nobody.with_token(await installation_token(nobody, app, installation))
        itself = nobody.with_token(app_jwt(app))
        for route in all_routes():
            names = re.findall(r"{(\w+)}", route.template)
            path = route.template.format(**{name: values.get(name, "1") for name in names})
            for body in contract.wrong_bodies(route.method, route.template):
                who = itself if path.startswith("/app") else bot
                reply = await who.ask(route.method, path, body)
                if not 400 <= reply.status < 500:
                    taken.append((reply.status, route.method, path, body))
    assert not taken, "\n".join(map(str, taken))
