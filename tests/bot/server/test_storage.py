"""Where a service keeps what jobs have beside their files, by the operator's settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_runtime import SessionError
from bot.__main__ import cli
from bot.domain.errors import QueueError
from bot.jobs.storage import DatabaseJobSessions, FileJobSessions, PatchBlobs, PatchFiles
from bot.server.build import storage_of
from bot.server.serve import service
from bot.settings.load import load
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

PATCH = b"--- a/x\n+++ b/x\n\xff\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    key = tmp_path / "app.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    key.chmod(0o600)
    return {
        "CODEPILOT_WEBHOOK_SECRET": "s3cret-and-long-enough",
        "CODEPILOT_APP_ID": "123",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
        "ANTHROPIC_API_KEY": "sk-ant-1",
    }


def test_by_default_everything_is_in_files_of_the_data_directory(environ: dict[str, str]) -> None:
    storage = storage_of(load(environ))
    assert isinstance(storage.sessions, FileJobSessions)
    assert isinstance(storage.patches, PatchFiles)


def test_what_machines_share_is_in_the_database_and_in_the_blob_store(
    environ: dict[str, str], tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shared = {"CODEPILOT_DATABASE_URL": postgres_url, "CODEPILOT_STORAGE_URL": (tmp_path / "store").as_uri()}
    storage = storage_of(load(environ | shared))
    assert isinstance(storage.sessions, DatabaseJobSessions)
    assert isinstance(storage.patches, PatchBlobs)
    assert not caplog.records


def test_a_shared_database_without_a_shared_blob_store_is_warned_of(
    environ: dict[str, str], postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage_of(load(environ | {"CODEPILOT_DATABASE_URL": postgres_url}))
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert "CODEPILOT_STORAGE_URL" in warning.getMessage()
    assert postgres_url not in warning.getMessage()


def test_a_shared_database_that_cannot_be_reached_is_named_with_what_to_check(environ: dict[str, str]) -> None:
    url = "postgresql://bot:hunter2-hunter2@127.0.0.1:1/jobs"
    with pytest.raises(SessionError) as told:
        storage_of(load(environ | {"CODEPILOT_DATABASE_URL": url}))
    assert str(told.value).startswith("The database named by CODEPILOT_DATABASE_URL cannot be used.")
    assert "postgresql://127.0.0.1:1/jobs cannot be used" in str(told.value)
    assert "Check its address and credentials" in str(told.value)
    assert "hunter2" not in str(told.value)


async def test_a_database_file_that_cannot_be_made_is_named_with_its_setting(
    environ: dict[str, str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'jobs.sqlite'}"
    with pytest.raises(QueueError, match=f"{url} failed: .* or name another in CODEPILOT_DATABASE_URL"):
        async with service(load(environ | {"CODEPILOT_DATABASE_URL": url}), works=False):
            pass


@pytest.mark.parametrize("shared", [False, True])
def test_the_operator_prints_a_patch_by_the_id_of_its_job(
    environ: dict[str, str], tmp_path: Path, *, shared: bool
) -> None:
    environ |= {"CODEPILOT_STORAGE_URL": (tmp_path / "store").as_uri()} if shared else {}
    patches = storage_of(load(environ)).patches
    (tmp_path / "file").write_bytes(PATCH)
    with (tmp_path / "file").open("rb") as file:
        patches.put("j1", file)
    assert _printed(environ, "j1").stdout_bytes == PATCH
    missing = _printed(environ, "../j1x")
    assert missing.exit_code == 1
    assert "no patch of job ../j1x" in missing.output


def _printed(environ: Mapping[str, str], job_id: str) -> Result:
    return CliRunner().invoke(cli, ["patch", job_id], env=dict(environ))
