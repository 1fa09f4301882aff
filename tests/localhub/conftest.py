"""A small world in the hub: a repository, its owner, a stranger, and an App that is installed there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from localhub import App, LocalHub, Repo, User
from tests.hub_client import Client, app_jwt, client, installation_token


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
