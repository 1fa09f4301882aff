"""An Enterprise Server: its API under a path, its certificate signed by an authority of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.cli.app import create_app
from bot.cli.doctor import examine_app
from bot.domain.job import JobState
from bot.git.errors import CloneError
from bot.git.mirror import Source
from bot.git.process import git_variables
from bot.git.workspace import Workspaces
from bot.github.app import AppAccess, describe_app
from bot.github.downloads import LogError, PictureError, fetch_picture, save_log
from bot.settings import load
from localhub import LocalHub
from tests.bot.cli.test_app import Browser, options
from tests.stage import FIX, FIXED_CALC, staged
from tests.tls_hosts import Authority, authority


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return authority(tmp_path, "localhost")


@pytest.fixture
async def server(tmp_path: Path, trusted: Authority) -> AsyncIterator[LocalHub]:
    async with LocalHub(tmp_path / "hub", host="localhost", tls=trusted.server) as hub:
        assert hub.api_url == f"{hub.url}/api/v3"
        assert hub.url.startswith("https://localhost:")
        yield hub


async def test_a_webhook_becomes_a_pull_request(server: LocalHub, trusted: Authority, tmp_path: Path) -> None:
    async with staged(server, tmp_path, [FIX], operator={"ca_file": trusted.pem}) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        [(_, sha)] = stage.bot_branches().items()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(stage.pulls()) == 1


async def test_what_it_names_on_other_hosts_is_downloaded(server: LocalHub, trusted: Authority, tmp_path: Path) -> None:
    file = tmp_path / "log"
    await save_log(f"{server.url}/", file, most=10_000_000, tail=0, seconds=10, ca_file=trusted.pem)
    assert file.stat().st_size
    with pytest.raises(LogError):
        await save_log(f"{server.url}/", file, most=10_000_000, tail=0, seconds=10)
    address = f"{server.url}/user-attachments/assets/00000000-0000-0000-0000-000000000000"
    with pytest.raises(PictureError, match="deleted"):
        await fetch_picture(address, server_url=server.url, limit=1, seconds=10, ca_file=trusted.pem)


async def test_git_that_does_not_trust_the_certificate_names_the_setting_that_helps(
    server: LocalHub, trusted: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add_user("mona")
    repo = server.add_repo("mona/calc", owner="mona", files={"a": "1"})
    source = Source(
        url=f"{server.url}/{repo.full_name}.git", token="", ref="refs/heads/main", sha=server.branches(repo)["main"]
    )
    with pytest.raises(CloneError, match="CODEPILOT_CA_FILE"):
        await Workspaces(tmp_path / "untrusting", pauses=()).read(repo.id, source, "a", limit=10)
    monkeypatch.chdir(trusted.pem.parent)
    workspaces = Workspaces(tmp_path / "trusting", environment=git_variables(Path(trusted.pem.name)))
    blob = await workspaces.read(repo.id, source, "a", limit=10)
    assert blob is not None
    assert blob.content == b"1"


async def test_an_app_is_registered(server: LocalHub, trusted: Authority, tmp_path: Path) -> None:
    server.add_user("mona")
    browser, wanted = Browser(trusted.pem), replace(options(server.url, tmp_path), ca_file=trusted.pem)
    creating = create_app(wanted, lambda _line: None, browser.on(asyncio.get_running_loop()))
    made = await asyncio.wait_for(creating, 30)
    await asyncio.gather(*browser.visits)
    survey = load.survey({"CODEPILOT_CONFIG": str(wanted.settings_file)})
    found = survey.settings
    assert (found.app_id, found.agent.ca_file) == (made.id, trusted.pem)
    assert (found.server_url, found.api_url) == (server.url, f"{server.url}/api/v3")
    checked = {each.name: each for each in await examine_app(survey)}
    assert checked["GitHub App"].verdict == "good"


async def test_the_certificate_of_another_authority_is_refused_with_the_setting_that_helps(
    server: LocalHub, trusted: Authority
) -> None:
    app = server.add_app("codepilot", webhook_secret="x" * 20)
    access = AppAccess(app_id=app.id, private_key=app.private_key_pem, api_url=server.api_url)
    assert (await describe_app(replace(access, ca_file=trusted.pem))).refused == ""
    assert "CODEPILOT_CA_FILE" in (await describe_app(access)).refused
