from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from github import Auth, Github, GithubIntegration

from bot.apps.hub import HubOptions, serve_hub
from bot.domain.errors import BotError
from tests.source_files import ROOT


def options(repo: Path | None = None, *, name: str | None = None, port: int = 0) -> HubOptions:
    return HubOptions(repo=repo, name=name, port=port, webhook="", secret="")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of a repository whose branch is called `trunk`."""
    source, target = tmp_path / "source", tmp_path / "tea.bundle"
    identity = ["-c", "user.name=Mona", "-c", "user.email=mona@example.com"]
    for words in (
        ["init", "--quiet", "--initial-branch=trunk", str(source)],
        ["-C", str(source), *identity, "commit", "--quiet", "--allow-empty", "--message", "First"],
        ["-C", str(source), "bundle", "create", "--quiet", str(target), "HEAD", "trunk"],
    ):
        subprocess.run(["git", *words], check=True)
    return target


async def test_what_is_printed_is_enough_to_use_the_hub(bundle: Path) -> None:
    lines: list[str] = []
    ready = asyncio.Event()

    def say(line: str) -> None:
        lines.append(line)
        if "Ctrl+C" in line:
            ready.set()

    def use() -> None:
        shown = dict(line.split(None, 1) for line in lines)
        with Github(auth=Auth.Token(shown["token"].split()[0]), base_url=shown["REST"]) as github:
            assert github.get_repo("mona/tea").default_branch == "trunk"
        subprocess.run(["git", "ls-remote", "--exit-code", shown["git"], "trunk"], check=True, capture_output=True)
        found = re.fullmatch(r"id (\d+), installation (\d+), private key (\S+)", shown["App"])
        assert found
        key = Path(found[3])
        assert key.stat().st_mode & 0o077 == 0
        auth = Auth.AppAuth(int(found[1]), key.read_text())
        with GithubIntegration(auth=auth, base_url=shown["REST"]) as app:
            assert [each.id for each in app.get_installations()] == [int(found[2])]

    running = asyncio.create_task(serve_hub(options(bundle), say))
    await ready.wait()
    await asyncio.to_thread(use)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_source_or_a_name_that_will_not_do_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no repository")
    for wrong in (options(tmp_path), options(tmp_path / "notes.txt"), options(name="widgets"), options(name="a/..")):
        with pytest.raises(BotError):
            await serve_hub(wrong, print)


def command(code: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"{code}\nimport sys; sys.argv = ['codepilot', 'hub']\nfrom bot.__main__ import main; main()",
    ]


def test_control_c_ends_it_in_order(tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command(""), env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "Ctrl+C" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_named() -> None:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    argv = command("import sys; sys.modules['graphql'] = None")
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'codepilot-bot[hub]'" in done.stderr
    assert "Traceback" not in done.stderr
