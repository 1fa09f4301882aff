"""Which authorities are trusted, and what is said where a server's is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from github import Auth

from bot.git.change import LargeFile
from bot.git.errors import LargeFileError
from bot.git.lfs import upload
from bot.git.process import connector, is_about_certificates
from bot.github.connection import GitHubConnection
from bot.github.downloads import LogError, PictureError, fetch_picture, save_log
from bot.github.types import GitHubError
from tests.tls_hosts import LOOPBACK, authority, serving


async def _status(ca_file: Path, port: int) -> int:
    async with (
        aiohttp.ClientSession(connector=connector(ca_file)) as client,
        client.get(f"https://{LOOPBACK}:{port}/", server_hostname="hub.example") as answer,
    ):
        return answer.status


async def test_authorities_that_are_put_into_the_file_are_trusted_without_a_restart(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (authority(tmp_path / name, "hub.example") for name in ("first", "second"))
    ca_file = tmp_path / "trusted.pem"
    ca_file.write_bytes(first.pem.read_bytes())
    async with serving(web.Application(), second.server) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await _status(ca_file, port)
        ca_file.write_bytes(second.pem.read_bytes())
        assert await _status(ca_file, port) == 404


_NOBODY = f"https://{LOOPBACK}:1"
_LARGE = LargeFile(path="a.bin", oid="0" * 64, size=1)


@pytest.mark.parametrize(
    ("refused", "ask"),
    [
        (LogError, lambda gone: save_log(_NOBODY, gone.parent / "log", most=1, tail=0, seconds=9, ca_file=gone)),
        (PictureError, lambda gone: fetch_picture(_NOBODY, server_url=_NOBODY, limit=1, seconds=9, ca_file=gone)),
        (
            LargeFileError,
            lambda gone: upload([_LARGE], objects=gone.parent, url=_NOBODY, token="", branch="main", ca_file=gone),
        ),
    ],
)
@pytest.mark.parametrize("left", [None, "no certificate\n"])
async def test_a_file_of_authorities_that_has_gone_is_told_to_who_waits_and_to_the_operator(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    refused: type[Exception],
    ask: Callable[[Path], Awaitable[object]],
    left: str | None,
) -> None:
    gone = tmp_path / "trusted.pem"
    if left is not None:
        gone.write_text(left)
    with pytest.raises(refused, match="CODEPILOT_CA_FILE") as told:
        await ask(gone)
    assert str(tmp_path) not in str(told.value)
    assert f"{gone}: the bot cannot read the file that CODEPILOT_CA_FILE names" in caplog.text


async def test_a_request_without_the_file_of_authorities_can_be_made_again_when_it_is_back(tmp_path: Path) -> None:
    connection = GitHubConnection(Auth.Token("a"), _NOBODY, ca_file=tmp_path / "gone.pem", max_wait_seconds=0)
    try:
        with pytest.raises(GitHubError, match="CODEPILOT_CA_FILE") as told:
            await connection.read("read the repository", "/repos/o/r")
    finally:
        connection.close()
    assert told.value.passing
    assert str(tmp_path) not in str(told.value)


def test_what_git_says_of_certificates_is_told_from_what_the_server_says() -> None:
    assert is_about_certificates("fatal: unable to access: SSL certificate problem: unable to get local issuer\n")
    assert not is_about_certificates("remote: sign your commits with a certificate\n! [remote rejected] main\n")
