"""Repositories that are renamed, transferred or archived, and runs of their workflows."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.localhub.conftest import World, clone_url, git, git_output, payloads_of, record_deliveries

R = "/repos/acme/widgets"


async def test_a_renamed_repository_is_found_under_its_number(world: World) -> None:
    record_deliveries(world)
    world.hub.open_issue(world.repo, author="mona", title="Before")
    renamed = world.hub.rename(world.repo, "gadgets", by="mona")
    moved = await world.bot.staying().ask("GET", f"{R}/issues?state=all")
    assert (moved.status, moved.body["message"]) == (301, "Moved Permanently")
    assert moved.headers["Location"] == f"{world.hub.api_url}/repositories/{world.repo.id}/issues?state=all"
    sent = await world.bot.staying().ask("POST", f"{R}/issues", {"title": "After"})
    assert (sent.status, sent.body["url"]) == (307, f"{world.hub.api_url}/repositories/{world.repo.id}/issues")
    assert (await world.bot.ask("POST", f"{R}/issues", {"title": "After"})).status == 201
    spelt = await world.bot.staying().ask("GET", f"{R}/labels/in%20need")
    assert spelt.headers["Location"].endswith(f"/repositories/{world.repo.id}/labels/in%20need")
    assert [each["title"] for each in (await world.bot.ask("GET", f"{R}/issues")).body] == ["After", "Before"]
    payload = payloads_of(world, "repository")[0]
    assert (payload["action"], payload["changes"]) == ("renamed", {"repository": {"name": {"from": "widgets"}}})
    assert (payload["repository"]["id"], payload["repository"]["full_name"]) == (world.repo.id, "acme/gadgets")
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona")
    assert world.hub.repo("acme/gadgets").id == renamed.id == world.repo.id


async def test_git_follows_a_rename(world: World, tmp_path: Path) -> None:
    world.hub.rename(world.repo, "gadgets", by="mona")
    await git_output(tmp_path, "clone", "--quiet", clone_url(world, world.repo, world.mona.token), "clone")
    assert (tmp_path / "clone" / "README.md").exists()


async def test_a_new_repository_takes_the_old_name_for_itself(world: World) -> None:
    world.hub.rename(world.repo, "gadgets", by="mona")
    fresh = world.hub.add_repo("acme/widgets", owner="mona", files={"fresh.txt": "fresh\n"})
    reply = await world.owner.staying().ask("GET", R)
    assert (reply.status, reply.body["id"]) == (200, fresh.id)
    assert "README.md" in await git_output(world.repo.path, "ls-tree", "--name-only", "main")
    with pytest.raises(ValueError, match="there is a repository acme/gadgets already"):
        world.hub.rename(fresh, "gadgets", by="mona")


async def test_a_former_name_tells_a_stranger_nothing(world: World) -> None:
    world.hub.rename(world.secret, "hidden", by="mona")
    assert (await world.stranger.staying().ask("GET", "/repos/acme/secret")).status == 404
    assert (await world.owner.staying().ask("GET", "/repos/acme/secret")).status == 301


async def test_a_transferred_repository_leaves_the_installation(world: World) -> None:
    record_deliveries(world)
    moved = world.hub.transfer(world.repo, "newcorp", by="mona")
    assert moved.full_name == "newcorp/widgets"
    payload = payloads_of(world, "repository")[0]
    assert payload["changes"]["owner"]["from"]["organization"]["login"] == "acme"
    assert payloads_of(world, "installation_repositories")[0]["repositories_removed"][0]["id"] == world.repo.id
    assert (await world.bot.ask("POST", "/repos/newcorp/widgets/issues", {"title": "x"})).status == 403


async def test_an_archived_repository_takes_no_writes(world: World, tmp_path: Path) -> None:
    record_deliveries(world)
    world.hub.open_issue(world.repo, author="mona", title="Before")
    await git_output(tmp_path, "clone", "--quiet", clone_url(world, world.repo, world.mona.token), "clone")
    world.hub.archive(world.repo, by="mona")
    refused = await world.bot.ask("POST", f"{R}/issues/1/comments", {"body": "x"})
    assert (refused.status, refused.body["message"]) == (403, "Repository was archived so is read-only.")
    assert (await world.bot.ask("GET", f"{R}/issues/1")).status == 200
    code, said = await git(tmp_path / "clone", "push", "origin", "main:other")
    assert code, said
    assert "403" in said
    commit = {
        "branch": {"repositoryNameWithOwner": "acme/widgets", "branchName": "main"},
        "message": {"headline": "Late"},
        "expectedHeadOid": world.hub.branches(world.repo)["main"],
    }
    query = "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
    reply = await world.bot.ask("POST", world.hub.graphql_url, {"query": query, "variables": {"input": commit}})
    assert reply.body["errors"][0]["message"] == "Repository was archived so is read-only."
    assert [each["action"] for each in payloads_of(world, "repository")] == ["archived"]
    world.hub.unarchive(world.repo, by="mona")
    assert (await world.bot.ask("POST", f"{R}/issues/1/comments", {"body": "x"})).status == 201


async def test_the_organisations_own_settings_are_read_where_the_app_may(world: World) -> None:
    files = {".github/codepilot.yml": "trigger: /pilot\n"}
    settings = world.hub.add_repo("acme/.github", owner="mona", private=True, files=files)
    path = "/repos/acme/.github/contents/.github/codepilot.yml?ref=main"
    assert (await world.bot.ask("GET", path)).status == 404
    world.hub.install(world.app, settings)
    token = await world.itself.ask("POST", f"/app/installations/{world.installation}/access_tokens")
    reply = await world.nobody.with_token(token.body["token"]).ask("GET", path)
    assert base64.b64decode(reply.body["content"]) == b"trigger: /pilot\n"


async def test_an_ended_workflow_run_is_told_and_listed(world: World) -> None:
    record_deliveries(world)
    hub, repo = world.hub, world.repo
    sha = hub.commit(repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    hub.open_pull(repo, author="mona", head="topic", title="Two")
    fork = hub.add_repo("eve/widgets", fork_of=repo)
    theirs = hub.commit(fork, {"src/a.py": "x = 3\n"}, message="Three", author="eve", branch="three")
    hub.open_pull(repo, author="eve", head="eve:three", title="Three")
    hub.workflow_run(
        repo, head_sha=sha, head_branch="topic", conclusion="failure", actor="mona", triggering_actor="eve"
    )
    hub.workflow_run(
        repo, head_sha=theirs, head_branch="three", conclusion="success", actor="eve", head_repository=fork
    )
    own, foreign = payloads_of(world, "workflow_run")
    assert (own["action"], own["sender"]["login"]) == ("completed", "eve")
    run = own["workflow_run"]
    assert (run["conclusion"], run["actor"]["login"], run["head_sha"]) == ("failure", "mona", sha)
    assert [each["number"] for each in run["pull_requests"]] == [1]
    assert foreign["workflow_run"]["head_repository"]["full_name"] == "eve/widgets"
    assert foreign["workflow_run"]["pull_requests"] == []
    listed = (await world.bot.ask("GET", f"{R}/actions/workflows/ci.yml/runs?branch=topic")).body
    assert [(each["head_branch"], each["run_number"]) for each in listed["workflow_runs"]] == [("topic", 1)]
    assert (await world.bot.ask("GET", f"{R}/actions/workflows/none.yml/runs")).status == 404
