"""Threat 31, the bot's own process: no root, no memory to read, no secret for what it starts to inherit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bot.domain.errors import ConfigError
from bot.server.process import protect_process
from bot.settings import load
from tests.forked import completed
from tests.source_files import ROOT

SECRET = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
_ORDINARY = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]

_READ = """
import ctypes, os, subprocess, sys
from bot.server.process import close_memory
if sys.argv[1] == "closed":
    close_memory()
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE
me = f"/proc/{os.getpid()}"
for name in ("environ", "mem", "maps", "fd/0"):
    done = subprocess.run(["head", "-c", "1", f"{me}/{name}"], env={}, stdin=subprocess.DEVNULL, capture_output=True)
    print(name, "refused" if b"ermission denied" in done.stderr else "read")
"""
_WORKS = """
import asyncio, os, sys, tempfile
from pathlib import Path
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals.backends import create_backend
from agent_runtime.terminals.terminal import Terminal
from bot.server.process import close_memory
close_memory()
async def main():
    with tempfile.TemporaryDirectory() as directory:
        place = create_backend(Bubblewrap(SandboxSettings()), Path(directory))
        print((await Terminal("main", backend=place).run("echo worked", timeout=20)).output)
        await place.close()
asyncio.run(main())
"""


def _as_ordinary_user(program: str, *words: str) -> str:
    """Output of a Python program run by an ordinary user; root may read everything."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    user = _ORDINARY if os.getuid() == 0 else []
    if python is None or subprocess.run([*user, "ls", str(ROOT)], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python of the system, or the source cannot be read by other users")
    paths = ":".join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "TOKEN": SECRET}
    done = subprocess.run(
        [*user, python, "-c", program, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_of_the_same_user_cannot_read_a_closed_one() -> None:
    assert "read" in _as_ordinary_user(_READ, "open").splitlines()[0]
    assert set(_as_ordinary_user(_READ, "closed").splitlines()) == {
        "environ refused",
        "mem refused",
        "maps refused",
        "fd/0 refused",
    }


def test_a_closed_process_of_an_ordinary_user_still_starts_sandboxes() -> None:
    assert _as_ordinary_user(_WORKS).strip() == "worked"


def test_secrets_are_out_of_the_environment_once_they_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "app.pem"
    key.touch(mode=0o600)
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    for name, value in {
        "CODEPILOT_WEBHOOK_SECRET": SECRET,
        "CODEPILOT_APP_ID": "1",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "ANTHROPIC_API_KEY": SECRET,
        "OPENAI_API_KEY": SECRET,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_BEARER_TOKEN_BEDROCK": SECRET,
        "AZURE_OPENAI_API_KEY": SECRET,
        "AZURE_OPENAI_AD_TOKEN": SECRET,
        "GITHUB_TOKEN": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    assert load.load().webhook_secret.get_secret_value() == SECRET
    assert SECRET not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout


def test_secrets_that_came_as_inputs_of_an_action_are_out_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "GITHUB_TOKEN": SECRET,
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_REPOSITORY": "octo/calc",
        "GITHUB_RUN_ID": "41",
        "ANTHROPIC_API_KEY": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    assert load.load_action().token.get_secret_value() == SECRET
    assert SECRET not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout


def test_root_is_refused_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match="CODEPILOT_ALLOW_ROOT=yes"):
        protect_process(allow_root=False)


def test_a_github_hosted_runner_may_be_root_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = {
        "GITHUB_TOKEN": "t",
        "GITHUB_EVENT_PATH": "/event.json",
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_REPOSITORY": "octo/calc",
        "GITHUB_RUN_ID": "41",
        "ANTHROPIC_API_KEY": "k",
    }
    assert not load.load_action(runner).agent.allow_root
    assert not load.load_action({**runner, "RUNNER_ENVIRONMENT": "self-hosted"}).agent.allow_root
    hosted = {**runner, "RUNNER_ENVIRONMENT": "github-hosted"}
    assert load.load_action(hosted).agent.allow_root
    assert not load.load_action({**hosted, "CODEPILOT_ALLOW_ROOT": "no"}).agent.allow_root


@pytest.mark.skipif(os.getuid() != 0, reason="not root")
@pytest.mark.parametrize("command", ["serve", "work"])
def test_the_service_does_not_start_as_root(command: str, tmp_path: Path) -> None:
    key = tmp_path / "app.pem"
    key.touch(mode=0o600)
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    env = {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": SECRET,
        "CODEPILOT_APP_ID": "1",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "ANTHROPIC_API_KEY": "k",
        "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
    }
    done = completed([command], env=env, at=tmp_path)
    assert done.returncode == 2
    assert "root" in done.stderr
    assert not (tmp_path / "data").exists()
