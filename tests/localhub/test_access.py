from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localhub import LocalHub
from tests.hub_client import app_jwt, client, installation_token
from tests.localhub.conftest import World

R = "/repos/acme/widgets"


async def test_a_public_repository_is_open_to_everybody_and_a_private_one_does_not_exist(world: World) -> None:
    assert (await world.nobody.ask("GET", R)).status == 200
    for who in (world.nobody, world.stranger, world.bot):
        reply = await who.ask("GET", "/repos/acme/secret")
        assert (reply.status, reply.body["message"], reply.body["status"]) == (404, "Not Found", "404")
    assert (await world.owner.ask("GET", "/repos/acme/secret")).status == 200


async def test_nobody_may_not_write_and_a_stranger_only_where_all_may(world: World) -> None:
    assert (await world.nobody.ask("POST", f"{R}/issues", {"title": "x"})).status == 401
    assert (await world.stranger.ask("POST", f"{R}/issues", {"title": "x"})).status == 201
    assert (await world.stranger.ask("POST", f"{R}/issues/1/comments", {"body": "x"})).status == 201
    assert (await world.stranger.ask("POST", f"{R}/issues/1/labels", {"labels": ["x"]})).status == 403
    assert (await world.stranger.ask("POST", f"{R}/git/refs", {"ref": "refs/heads/x", "sha": "0" * 40})).status == 403


async def test_the_author_of_a_pull_request_from_a_fork_may_change_its_words(world: World) -> None:
    fork = world.hub.add_repo("eve/widgets", owner="eve", fork_of=world.repo)
    topic = {"message": "Add", "content": "eA==", "branch": "topic"}
    sha = (await world.stranger.ask("GET", "/repos/eve/widgets/git/ref/heads/main")).body["object"]["sha"]
    await world.stranger.ask("POST", "/repos/eve/widgets/git/refs", {"ref": "refs/heads/topic", "sha": sha})
    assert (await world.stranger.ask("PUT", "/repos/eve/widgets/contents/new", topic)).status == 201
    pull = world.hub.open_pull(world.repo, author="eve", head=f"{fork.owner}:topic", title="Add")
    changed = await world.stranger.ask("PATCH", f"{R}/pulls/{pull.number}", {"title": "Add new", "state": "closed"})
    assert (changed.status, changed.body["title"], changed.body["state"]) == (200, "Add new", "closed")
    other = world.nobody.with_token(world.hub.add_user("joe").token)
    assert (await other.ask("PATCH", f"{R}/pulls/{pull.number}", {"title": "Mine"})).status == 403


@pytest.mark.parametrize(
    ("role", "permission"),
    [("admin", "admin"), ("maintain", "write"), ("write", "write"), ("triage", "read"), ("read", "read")],
)
async def test_the_role_name_says_more_than_the_old_permission(world: World, role: Any, permission: str) -> None:  # noqa: ANN401
    world.hub.add_collaborator(world.repo, "eve", role)
    reply = await world.bot.ask("GET", f"{R}/collaborators/eve/permission")
    assert (reply.body["role_name"], reply.body["permission"]) == (role, permission)


async def test_nonsense_credentials_are_refused(world: World) -> None:
    for token in ("ghs_nonsense", "a.b.c", "ghp_"):
        assert (await world.nobody.with_token(token).ask("GET", R)).status == 401


async def test_an_installation_token_is_bound_to_its_repositories_and_permissions(world: World) -> None:
    world.hub.install(world.app, world.secret)
    permissions: Mapping[str, str] = {"issues": "read"}
    token = await installation_token(
        world.nobody, world.app, world.installation, repository_ids=[world.repo.id], permissions=permissions
    )
    narrow = world.nobody.with_token(token)
    assert (await narrow.ask("GET", "/repos/acme/secret")).status == 404
    assert (await narrow.ask("GET", f"{R}/issues")).status == 200
    refused = await narrow.ask("POST", f"{R}/issues", {"title": "x"})
    assert (refused.status, refused.body["message"]) == (403, "Resource not accessible by integration")
    listed = await narrow.ask("GET", "/installation/repositories")
    assert [repo["full_name"] for repo in listed.body["repositories"]] == ["acme/widgets"]


async def test_a_token_cannot_be_widened(world: World) -> None:
    path = f"/app/installations/{world.installation}/access_tokens"
    for wish in ({"repository_ids": [world.secret.id]}, {"permissions": {"administration": "write"}}):
        assert (await world.itself.ask("POST", path, wish)).status == 422


async def test_an_app_must_prove_itself_with_a_fresh_jwt_of_its_own_key(world: World) -> None:
    hour = timedelta(hours=1)
    other = world.hub.add_app("other")
    for token in (
        app_jwt(world.app, life=3600),
        app_jwt(world.app, now=datetime.now(UTC) - hour),
        app_jwt(world.app, now=datetime.now(UTC) + hour),
        app_jwt(world.app, key=other.private_key_pem),
    ):
        assert (await world.nobody.with_token(token).ask("GET", "/app")).status == 401


async def test_an_installation_token_expires_after_an_hour(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 21, 12, tzinfo=UTC)
    async with LocalHub(tmp_path, now=lambda: moment) as hub, client(hub) as nobody:
        hub.add_user("mona")
        app = hub.add_app("codepilot")
        installation = hub.install(app, hub.add_repo("mona/widgets"))
        itself = nobody.with_token(app_jwt(app, now=moment))
        made = await itself.ask("POST", f"/app/installations/{installation}/access_tokens")
        assert made.body["expires_at"] == "2026-11-21T13:00:00Z"
        bot = nobody.with_token(made.body["token"])
        assert (await bot.ask("GET", "/repos/mona/widgets")).status == 200
        moment += timedelta(minutes=61)
        assert (await bot.ask("GET", "/repos/mona/widgets")).status == 401


async def test_an_accounts_own_token_signs_it_in_but_an_apps_account_has_none(world: World) -> None:
    runner = world.hub.add_user("github-actions[bot]", kind="Bot")
    assert (await world.nobody.with_token(runner.token).ask("GET", "/user")).body["login"] == "github-actions[bot]"
    assert world.app.bot.token == ""


async def test_an_uninstalled_app_has_no_way_in(world: World) -> None:
    world.hub.uninstall(world.installation)
    assert (await world.bot.ask("GET", R)).status == 401
    assert (await world.itself.ask("GET", f"{R}/installation")).status == 404
