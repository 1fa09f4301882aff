"""`codepilot setup-repo`, as the App, on a hub."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.cli.app import PERMISSIONS, NotInstalledError, SetUpResult, set_up_repository
from bot.github.connection import GitHubConnection
from bot.github.types import GitHubError
from bot.permissions.repo_config import RepoConfigError
from bot.settings.load import load
from bot.settings.models import Settings
from localhub import LocalHub
from tests.github_world import World, opened_world
from tests.source_files import ROOT


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened


@pytest.fixture
def settings(world: World, tmp_path: Path) -> Settings:
    key = tmp_path / "app.pem"
    key.write_text(world.app.private_key_pem)
    key.chmod(0o600)
    return load(
        {
            "CODEPILOT_WEBHOOK_SECRET": "s3cret-and-long-enough",
            "CODEPILOT_APP_ID": str(world.app.id),
            "CODEPILOT_PRIVATE_KEY_FILE": str(key),
            "CODEPILOT_API_URL": world.hub.api_url,
            "ANTHROPIC_API_KEY": "sk-1",
        }
    )


async def set_up(settings: Settings, name: str) -> SetUpResult:
    return await asyncio.to_thread(set_up_repository, settings, name)


async def label_names(world: World) -> set[str]:
    async with GitHubConnection(world.token, world.hub.api_url) as connection:
        labels = connection.entries(
            dict[str, str | int | bool | None], "read the labels", f"/repos/{world.name}/labels"
        )
        return {str(label["name"]) async for label in labels}


async def test_the_labels_are_made_once_and_what_is_there_stays(world: World, settings: Settings) -> None:
    body = {"name": "Codepilot:Ask", "color": "000000", "description": "Ours"}
    async with GitHubConnection(world.token, world.hub.api_url) as connection:
        await connection.request("create a label", "POST", f"/repos/{world.name}/labels", body)
    first = (await set_up(settings, world.name)).labels
    second = (await set_up(settings, world.name)).labels
    assert [(label.name, label.is_new) for label in first] == [
        ("codepilot", True),
        ("codepilot:read-only", True),
        ("codepilot:ask", False),
        ("codepilot:auto", True),
        ("codepilot:fix-ci", True),
    ]
    assert not any(label.is_new for label in second)
    names = await label_names(world)
    assert {"codepilot", "codepilot:read-only", "Codepilot:Ask", "codepilot:auto"} <= names
    assert "codepilot:ask" not in names


async def test_they_are_called_what_the_repository_and_its_organisation_call_them(
    world: World, settings: Settings
) -> None:
    above = world.hub.add_repo("mona/.github", owner="mona", files={"codepilot.yml": "labels: {start: go, auto: A}\n"})
    world.hub.install(world.app, above)
    own = {".github/codepilot.yml": "labels: {auto: run free}\n"}
    world.hub.commit(world.repo, own, message="Configure", author="mona", branch="main")
    found = await set_up(settings, world.name)
    assert [label.name for label in found.labels] == [
        "go",
        "codepilot:read-only",
        "codepilot:ask",
        "run free",
        "codepilot:fix-ci",
    ]


async def test_a_file_that_does_not_fit_is_told_and_nothing_is_made(world: World, settings: Settings) -> None:
    own = {".github/codepilot.yml": "lables: {auto: x}\n"}
    world.hub.commit(world.repo, own, message="Configure", author="mona", branch="main")
    before = await label_names(world)
    with pytest.raises(RepoConfigError, match="'labels'"):
        await set_up(settings, world.name)
    assert await label_names(world) == before


async def test_what_the_owner_has_not_accepted_is_told(world: World, settings: Settings) -> None:
    assert (await set_up(settings, world.name)).missing == ()
    world.hub.permit(
        world.hub.install(world.app, world.repo), {"contents": "write", "issues": "write", "pull_requests": "write"}
    )
    lacks = (await set_up(settings, world.name)).missing
    assert [each.display_name for each in lacks] == ["Checks", "Actions", "Commit statuses", "Workflows"]


async def test_the_command_says_what_it_made_and_what_is_lacking(
    world: World, settings: Settings, tmp_path: Path
) -> None:
    permissions = {each.name: each.level for each in PERMISSIONS if each.weight != "optional"}
    world.hub.permit(world.hub.install(world.app, world.repo), permissions)
    environ = {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": settings.webhook_secret.get_secret_value(),
        "CODEPILOT_APP_ID": str(settings.app_id),
        "CODEPILOT_PRIVATE_KEY_FILE": str(tmp_path / "app.pem"),
        "CODEPILOT_API_URL": settings.api_url,
        "ANTHROPIC_API_KEY": "sk-1",
    }
    argv = (sys.executable, "-m", "bot", "setup-repo", world.name)
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    *labels, lacking = said.decode().splitlines()
    assert process.returncode == 0
    assert labels[0] == f"{world.name}: created the label codepilot (Codepilot: start a run)"
    assert lacking.startswith(
        f"{world.name}: the App is missing Workflows: read and write, which is optional: without it, "
    )


async def test_where_the_app_is_not_installed_it_says_what_to_do(world: World, settings: Settings) -> None:
    world.hub.add_repo("mona/other", owner="mona")
    with pytest.raises(NotInstalledError, match="mona/other"):
        await set_up(settings, "mona/other")


async def test_a_github_that_does_not_answer_is_named_without_the_connection_pool(settings: Settings) -> None:
    with pytest.raises(GitHubError, match=r"Could not set up mona/calc; .*Connection refused") as caught:
        await set_up(replace(settings, api_url="http://127.0.0.1:9"), "mona/calc")
    assert "Max retries" not in str(caught.value)


@pytest.mark.parametrize("status", [403, 500, 520])
async def test_refusals_without_a_message_are_reported(settings: Settings, status: int) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text="<html>")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        with pytest.raises(GitHubError, match=f"GitHub answered {status}"):
            await set_up(replace(settings, api_url=str(server.make_url("/")).rstrip("/")), "mona/calc")


@pytest.mark.parametrize("body", ["<html>Sign in to this network</html>", "[]", "3", '{"id": "x"}', "{"])
async def test_an_answer_that_is_not_githubs_is_an_error(settings: Settings, body: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        with pytest.raises(GitHubError, match="PyGithub cannot read"):
            await set_up(replace(settings, api_url=str(server.make_url("/")).rstrip("/")), "mona/calc")
