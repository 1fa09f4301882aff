from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from github import Auth, Github, GithubIntegration

from bot.demo.hub import HubOptions, serve_hub
from bot.domain.errors import BotError
from bot.settings import load
from tests.hub_pages import browser
from tests.origin import Origin, git
from tests.source_files import ROOT


def options(repo: Path | None = None, *, name: str | None = None, port: int = 0) -> HubOptions:
    return HubOptions(source=repo, name=name, port=port, webhook="", secret="")


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


async def started(wanted: HubOptions) -> tuple[list[str], asyncio.Task[None]]:
    """A hub that runs, and what it has said."""
    lines: list[str] = []
    ready = asyncio.Event()

    def say(line: str) -> None:
        lines.append(line)
        if "Ctrl+C" in line:
            ready.set()

    running = asyncio.create_task(serve_hub(wanted, say))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
    return lines, running


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_directory_of_repositories_is_copied_and_never_changed(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    heads = {name: Origin(folder / name).commit({"a.txt": f"{name}\n"}) for name in ("alpha", "my app")}
    git(folder / "alpha", "commit", "--quiet", "--allow-empty", "--message=Second")
    git(folder, "clone", "--quiet", "--depth=1", f"file://{folder / 'alpha'}", "shallow")
    git(folder, "clone", "--quiet", "--bare", str(folder / "my app"), "bare.git")
    (folder / "notes").mkdir()
    lines, running = await started(replace(options(folder), people={"eve": "read"}))
    pages = [line.split()[1] for line in lines if line.startswith("pages")]
    assert [page.rpartition("/")[2] for page in pages] == ["alpha", "bare", "my-app", "shallow"]
    address = next(line.split()[1] for line in lines if line.startswith("git"))
    await asyncio.to_thread(git, tmp_path, "clone", "--quiet", address, "clone")
    git(tmp_path / "clone", "commit", "--quiet", "--allow-empty", "--message=More")
    await asyncio.to_thread(git, tmp_path / "clone", "push", "--quiet", "origin", "HEAD")
    assert git(folder / "my app", "rev-parse", "HEAD") == heads["my app"]
    assert git(folder / "alpha", "rev-list", "--count", "HEAD") == "2"
    async with browser(pages[0].partition("/mona")[0], "eve") as page:
        assert await page.send("/mona/alpha/issues", {"title": "It breaks"}) == 303
        assert await page.send("/mona/alpha/issues/1/labels", {"new": "codepilot"}) == 403
    await ended(running)


async def test_settings_are_private_and_serve_a_later_hub(tmp_path: Path) -> None:
    wanted = replace(options(), settings=tmp_path / "kept", webhook="http://127.0.0.1:9/webhook")
    texts = []
    for _ in range(2):
        lines, running = await started(wanted)
        assert any("export CODEPILOT_CONFIG=" in line for line in lines)
        await ended(running)
        files = sorted((tmp_path / "kept").iterdir())
        assert [(each.name, each.stat().st_mode & 0o777) for each in files] == [
            ("app.pem", 0o600),
            ("codepilot.yml", 0o600),
        ]
        texts.append([each.read_text() for each in files])
        assert not any(each in "\n".join(lines) for each in (texts[0][0], read_secret(texts[0][1])))
    assert texts[0] == texts[1]
    settings = load.load({"CODEPILOT_CONFIG": str(tmp_path / "kept" / "codepilot.yml"), "ANTHROPIC_API_KEY": "k"})
    assert (settings.app_id, settings.host, settings.port) == (1, "127.0.0.1", 9)


async def test_settings_that_a_person_adds_stay(tmp_path: Path) -> None:
    wanted, file = replace(options(), settings=tmp_path / "kept"), tmp_path / "kept" / "codepilot.yml"
    _, running = await started(replace(wanted, webhook="http://127.0.0.1:9/webhook"))
    await ended(running)
    file.write_text(f"{file.read_text()}model: claude-of-ours\n")
    _, running = await started(wanted)
    await ended(running)
    keys = yaml.safe_load(file.read_text())
    assert keys["model"] == "claude-of-ours"
    assert "host" not in keys, "which was the hub's, for the webhook"


def read_secret(text: str) -> str:
    return str(yaml.safe_load(text)["webhook_secret"])


@pytest.mark.parametrize("text", ["", "[]", "app_id: 1", "app_id: 7\nwebhook_secret: s\nserver_url: http://a", "a: ["])
async def test_settings_of_something_else_are_kept_and_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "codepilot.yml"
    file.write_text(text)
    (tmp_path / "app.pem").write_text("no key")
    with pytest.raises(BotError, match=r"codepilot\.yml is not from `codepilot hub`"):
        await serve_hub(replace(options(), settings=tmp_path), print)
    assert file.read_text() == text


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
    assert "install codepilot-bot[hub]" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_folder_that_cannot_be_read_is_not_taken_for_a_port_in_use(tmp_path: Path) -> None:
    with pytest.raises(BotError, match=r"The hub cannot run: .*gone: No such file or directory\."):
        await serve_hub(options(tmp_path / "gone"), pytest.fail)
