"""Threat 32: the token is in no file, no remote address, no command line and no error."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.git.errors import CloneError, GitError
from bot.git.mirror import Source
from bot.git.process import Credential, Git
from bot.git.workspace import Workspaces
from localhub import LocalHub


def forms(token: str) -> list[bytes]:
    return [token.encode(), b64encode(f"x-access-token:{token}".encode())]


@pytest.fixture
def spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bytes]:
    """All command lines of git, without its own helpers."""
    log, real = tmp_path / "spoken", shutil.which("git")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log.read_bytes


async def test_fetching_and_pushing_leave_no_token_behind(
    hub: LocalHub, tmp_path: Path, spoken: Callable[[], bytes]
) -> None:
    token = hub.add_user("mona").token
    repo = hub.add_repo("mona/calc", owner="mona", private=True, files={"a.txt": "1\n"})
    url, sha = f"{hub.url}/mona/calc.git", hub.branches(repo)["main"]
    source = Source(url=url, token=token, ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", repo.id, source) as tree:
        (tree.path / "a.txt").write_text("2\n")
        made = await tree.commit(await tree.change(), message="Fix it")
        await tree.push(made, branch="fix", expected="", url=url, token=token)
        for path in (tmp_path / "state").rglob("*"):
            if path.is_file():
                assert not any(form in path.read_bytes() for form in forms(token)), path
    assert hub.branches(repo)["fix"] == made
    said = spoken()
    assert b"fetch" in said
    assert b"push" in said
    assert not any(form in said for form in forms(token))
    assert token not in repr(source)


async def test_a_refused_token_is_in_no_error(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", private=True, files={"a.txt": "1\n"})
    token = "ghp_" + "x" * 36
    source = Source(url=f"{hub.url}/mona/calc.git", token=token, ref="refs/heads/main", sha=hub.branches(repo)["main"])
    with pytest.raises(CloneError) as caught:
        async with Workspaces(tmp_path / "state").open("job", repo.id, source):
            pass
    assert token not in str(caught.value) + str(caught.value.__cause__)


async def test_a_token_goes_to_its_own_address_only(hub: LocalHub) -> None:
    token = hub.add_user("mona").token
    for name in ("mona/calc", "mona/other"):
        hub.add_repo(name, owner="mona", private=True, files={"a.txt": "1\n"})
    credential = Credential(url=f"{hub.url}/mona/calc.git", token=token)
    assert await Git().run("ls-remote", f"{hub.url}/mona/calc.git", credential=credential)
    with pytest.raises(GitError, match=r"could not read Username|not found"):
        await Git().run("ls-remote", f"{hub.url}/mona/other.git", credential=credential)
