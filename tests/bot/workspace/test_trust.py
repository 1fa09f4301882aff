"""Which authorities are trusted, and what is said where a server's is not."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bot.workspace.trust import connector, is_about_certificates
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


def test_what_git_says_of_certificates_is_told_from_what_the_server_says() -> None:
    assert is_about_certificates("fatal: unable to access: SSL certificate problem: unable to get local issuer\n")
    assert not is_about_certificates("remote: sign your commits with a certificate\n! [remote rejected] main\n")
