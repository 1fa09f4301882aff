"""An App's site signs people in, as GitHub lets it."""

from __future__ import annotations

from typing import Literal

import pytest

from bot.github.app import OAuthClient
from bot.github.types import GitHubError
from localhub import LocalHub
from tests.hub_pages import VERIFIER, sign_in_code


@pytest.fixture
def client(hub: LocalHub) -> OAuthClient:
    hub.add_user("mona")
    hub.add_user("eve")
    app = hub.add_app("codepilot")
    for login, private in (("mona", True), ("eve", False)):
        hub.install(app, hub.add_repo(f"{login}/{login}", owner=login, files={"a": "b"}, private=private))
    hub.add_repo("mona/without-the-app", owner="mona", files={"a": "b"})
    client_id, secret = hub.set_callback(app, "https://bot.example.com/back")
    return OAuthClient(client_id=client_id, client_secret=secret, server_url=hub.url, api_url=hub.api_url)


async def test_a_code_gives_a_token_for_the_persons_repositories_with_the_app(
    hub: LocalHub, client: OAuthClient
) -> None:
    token = await client.exchange(await sign_in_code(hub.url, client.client_id, "mona"), VERIFIER)
    assert await client.login(token) == "mona"
    assert await client.repositories(token) == frozenset({hub.repo("mona/mona").id})


async def test_a_code_works_once_with_its_verifier_and_the_apps_secret(hub: LocalHub, client: OAuthClient) -> None:
    code = await sign_in_code(hub.url, client.client_id, "mona")
    await client.exchange(code, VERIFIER)
    with pytest.raises(GitHubError):
        await client.exchange(code, VERIFIER)
    with pytest.raises(GitHubError):
        await client.exchange(await sign_in_code(hub.url, client.client_id, "mona"), "w" * 43)
    other = OAuthClient(client_id=client.client_id, client_secret="another", server_url=hub.url, api_url=hub.api_url)
    with pytest.raises(GitHubError) as error:
        await other.exchange(await sign_in_code(hub.url, client.client_id, "mona"), VERIFIER)
    assert "another" not in str(error.value)


@pytest.mark.parametrize("trouble", ["403", "404"])
async def test_an_installation_that_refuses_hides_no_other(
    hub: LocalHub, client: OAuthClient, trouble: Literal["403", "404"]
) -> None:
    hub.add_collaborator(hub.repo("eve/eve"), "mona", "read")
    token = await client.exchange(await sign_in_code(hub.url, client.client_id, "mona"), VERIFIER)
    both = frozenset(hub.repo(name).id for name in ("mona/mona", "eve/eve"))
    assert await client.repositories(token) == both
    hub.faults.add("GET", "*/user/installations/*/repositories", trouble)
    assert len(await client.repositories(token) or ()) == 1
    hub.faults.add("GET", "*/user/installations/*/repositories", "rate_limited", times=9, retry_after=3600)
    with pytest.raises(GitHubError):
        await client.repositories(token)


async def test_a_token_that_is_not_known_reaches_nothing(client: OAuthClient) -> None:
    assert await client.repositories("ghu_unknown") is None


async def test_a_token_of_the_persons_own_is_of_no_app(hub: LocalHub, client: OAuthClient) -> None:
    with pytest.raises(GitHubError):
        await client.repositories(hub.add_user("hubot").token)
