"""A small world in the hub: a repository, its owner, a stranger, and an App that is installed there; and real git."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localhub import App, LocalHub, Repo, User
from tests.hub_client import Client, app_jwt, client, installation_token

GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Mona",
    "GIT_AUTHOR_EMAIL": "mona@example.com",
    "GIT_COMMITTER_NAME": "Mona",
    "GIT_COMMITTER_EMAIL": "mona@example.com",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Who and what there is; `bot` asks with an installation token, `itself` with the App's JWT."""

    hub: LocalHub
    repo: Repo
    secret: Repo
    mona: User
    eve: User
    app: App
    installation: int
    nobody: Client
    bot: Client
    itself: Client
    owner: Client
    stranger: Client


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    mona, eve = hub.add_user("mona"), hub.add_user("eve")
    repo = hub.add_repo("acme/widgets", owner="mona", files={"README.md": "# Widgets\n", "src/a.py": "x = 1\n"})
    secret = hub.add_repo("acme/secret", owner="mona", private=True, files={"README.md": "# Secret\n"})
    app = hub.add_app("codepilot")
    installation = hub.install(app, repo)
    async with client(hub) as nobody:
        yield World(
            hub=hub,
            repo=repo,
            secret=secret,
            mona=mona,
            eve=eve,
            app=app,
            installation=installation,
            nobody=nobody,
            bot=nobody.with_token(await installation_token(nobody, app, installation)),
            itself=nobody.with_token(app_jwt(app)),
            owner=nobody.with_token(mona.token),
            stranger=nobody.with_token(eve.token),
        )


def payloads_of(world: World, event: str) -> list[dict[str, Any]]:
    """The payloads of an event, oldest first."""
    return [json.loads(each.body) for each in world.hub.deliveries if each.event == event]


def record_deliveries(world: World) -> None:
    """Let the App's deliveries be recorded; nobody answers them."""
    world.hub.set_webhook(world.app, "http://127.0.0.1:9/hook", "s")


async def git(folder: Path, *args: str) -> tuple[int, str]:
    """Run git like a user; its exit code, and all it said."""
    process = await asyncio.create_subprocess_exec(
        "git", *args, cwd=folder, env=GIT_ENVIRONMENT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def git_output(folder: Path, *args: str) -> str:
    code, out = await git(folder, *args)
    assert code == 0, out
    return out.strip()


def clone_url(world: World, repo: Repo, token: str) -> str:
    return f"{world.hub.url.replace('://', f'://x-access-token:{token}@')}/{repo.full_name}.git"
