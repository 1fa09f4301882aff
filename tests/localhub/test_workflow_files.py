"""Workflow files on the hub: an App's token writes them only with a permission of its own, as on GitHub."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from localhub.git import plumbing
from tests.hub_client import Client, installation_token
from tests.localhub.conftest import World, clone_url, git, git_output

R = "/repos/acme/widgets"
CI, JOBS = ".github/workflows/ci.yml", "on: push\njobs: {}\n"
OTHER = ".github/workflows-of-old/ci.yml"
MAY = {"contents": "write", "workflows": "write"}
MAY_NOT = {"contents": "write"}
REFUSED = f"refusing to allow a GitHub App to create or update workflow `{CI}` without `workflows` permission"


async def a_token(world: World, permissions: Mapping[str, str]) -> str:
    return await installation_token(world.nobody, world.app, world.installation, permissions=permissions)


async def pushed(world: World, folder: Path, token: str, files: Mapping[str, str | None]) -> tuple[int, str]:
    """Push one commit of these files to the branch `topic`."""
    await git_output(folder, "clone", clone_url(world, world.repo, token), "copy")
    for name, content in files.items():
        file = folder / "copy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
    await git_output(folder / "copy", "add", "--all")
    await git_output(folder / "copy", "commit", "-m", "Change")
    return await git(folder / "copy", "push", "origin", "HEAD:refs/heads/topic")


async def committed(asking: Client, head: str, path: str, content: str | None = JOBS) -> dict[str, Any]:
    """Commit one file to `main` by GraphQL; None deletes it."""
    mutation = (
        "mutation ($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
    )
    added = [] if content is None else [{"path": path, "contents": base64.b64encode(content.encode()).decode()}]
    wanted = {
        "branch": {"repositoryNameWithOwner": "acme/widgets", "branchName": "main"},
        "message": {"headline": "Change"},
        "fileChanges": {"additions": added, "deletions": [{"path": path}] if content is None else []},
        "expectedHeadOid": head,
    }
    answer = await asking.ask("POST", asking.hub.graphql_url, {"query": mutation, "variables": {"input": wanted}})
    assert answer.status == 200
    return dict(answer.body)


async def test_a_push_that_adds_one_needs_the_permission(world: World, tmp_path: Path) -> None:
    code, said = await pushed(world, tmp_path, await a_token(world, MAY_NOT), {CI: JOBS, "a.txt": "x"})
    assert code != 0
    assert REFUSED in said
    assert "topic" not in world.hub.branches(world.repo)
    assert (await git(tmp_path / "copy", "push", clone_url(world, world.repo, world.mona.token), "HEAD:topic"))[0] == 0


async def test_with_it_a_push_goes_through(world: World, tmp_path: Path) -> None:
    code, said = await pushed(world, tmp_path, await a_token(world, MAY), {CI: JOBS})
    assert code == 0, said


async def test_every_commit_of_a_push_counts_and_not_only_the_last(world: World, tmp_path: Path) -> None:
    token = await a_token(world, MAY_NOT)
    await pushed(world, tmp_path, token, {CI: JOBS})
    await git_output(tmp_path / "copy", "rm", "--quiet", CI)
    await git_output(tmp_path / "copy", "commit", "-m", "Gone")
    code, said = await git(tmp_path / "copy", "push", "origin", "HEAD:refs/heads/topic")
    assert code != 0
    assert REFUSED in said


@pytest.mark.parametrize("files", [{OTHER: JOBS}, {CI: None}, {"b.txt": "x"}], ids=["beside", "deleted", "other"])
async def test_what_is_no_new_workflow_is_pushed_without(
    world: World, tmp_path: Path, files: Mapping[str, str | None]
) -> None:
    world.hub.commit(world.repo, {CI: JOBS}, message="CI", author="mona", branch="main")
    code, said = await pushed(world, tmp_path, await a_token(world, MAY_NOT), files)
    assert code == 0, said


@pytest.mark.parametrize(("content", "goes"), [(JOBS, True), (f"{JOBS}# more\n", False)], ids=["same", "another"])
async def test_one_that_another_branch_has_may_be_pushed(
    world: World, tmp_path: Path, content: str, *, goes: bool
) -> None:
    world.hub.commit(world.repo, {CI: JOBS}, message="CI", author="mona", branch="with-ci")
    code, _ = await pushed(world, tmp_path, await a_token(world, MAY_NOT), {CI: content})
    assert (code == 0) is goes


@pytest.mark.parametrize(("permissions", "made"), [(MAY, True), (MAY_NOT, False)], ids=["may", "may not"])
async def test_a_commit_by_graphql_needs_the_permission(
    world: World, permissions: Mapping[str, str], *, made: bool
) -> None:
    bot = world.nobody.with_token(await a_token(world, permissions))
    head = world.hub.branches(world.repo)["main"]
    answer = await committed(bot, head, CI)
    assert (world.hub.branches(world.repo)["main"] != head) is made
    if not made:
        [error] = answer["errors"]
        assert (error["type"], error["message"]) == ("FORBIDDEN", "Resource not accessible by integration")
        assert "errors" not in await committed(bot, head, OTHER)
        assert "errors" not in await committed(world.owner, world.hub.branches(world.repo)["main"], CI)
        assert "errors" not in await committed(bot, world.hub.branches(world.repo)["main"], CI, None)


async def test_the_git_database_needs_the_permission(world: World) -> None:
    poor = world.nobody.with_token(await a_token(world, MAY_NOT))
    rich = world.nobody.with_token(await a_token(world, MAY))
    head = world.hub.branches(world.repo)["main"]
    entry = {"path": CI, "mode": "100644", "type": "blob", "content": JOBS}
    tree = {"base_tree": head, "tree": [entry]}
    refused = await poor.ask("POST", f"{R}/git/trees", tree)
    assert (refused.status, refused.body["message"]) == (403, "Resource not accessible by integration")
    assert refused.headers["X-Accepted-GitHub-Permissions"] == "contents=write,workflows=write"
    made = await rich.ask("POST", f"{R}/git/trees", tree)
    assert made.status == 201
    commit = await poor.ask("POST", f"{R}/git/commits", {"message": "CI", "tree": made.body["sha"], "parents": [head]})
    sha = commit.body["sha"]
    ref = {"ref": "refs/heads/topic", "sha": sha}
    assert (await poor.ask("POST", f"{R}/git/refs", ref)).status == 403
    assert (await poor.ask("PATCH", f"{R}/git/refs/heads/main", {"sha": sha})).status == 403
    assert plumbing.ref(world.repo.path, "refs/heads/topic") is None
    assert (await poor.ask("POST", f"{R}/git/refs", {**ref, "sha": head})).status == 201
    assert (await rich.ask("PATCH", f"{R}/git/refs/heads/topic", {"sha": sha})).status == 200
    assert (await poor.ask("PATCH", f"{R}/git/refs/heads/main", {"sha": sha})).status == 200, "topic has it already"


@pytest.mark.parametrize(("content", "refused"), [(None, False), ("on: [push]\njobs: {}\n", True)])
async def test_a_merge_may_bring_the_file_of_a_branch_and_no_other(
    world: World, tmp_path: Path, content: str | None, *, refused: bool
) -> None:
    world.hub.commit(world.repo, {"t.txt": "t\n"}, message="T", author="mona", branch="topic")
    world.hub.commit(world.repo, {CI: JOBS}, message="CI", author="mona", branch="main")
    await git_output(tmp_path, "clone", clone_url(world, world.repo, await a_token(world, MAY_NOT)), "copy")
    copy = tmp_path / "copy"
    await git_output(copy, "checkout", "topic")
    await git_output(copy, "merge", "--no-ff", "--no-commit", "origin/main")
    if content is not None:
        (copy / CI).write_text(content)
    await git_output(copy, "add", "--all")
    await git_output(copy, "commit", "-m", "Merge")
    code, said = await git(copy, "push", "origin", "HEAD:refs/heads/topic")
    assert (code != 0, REFUSED in said) == (refused, refused)
