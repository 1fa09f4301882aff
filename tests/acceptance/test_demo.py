"""`codepilot demo` as a newcomer runs it: a process, a terminal's text, an exit code."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.forked import codepilot, completed
from tests.hub_pages import browser
from tests.model_server import ModelServer
from tests.origin import Origin
from tests.stage import FILES, FIX, acting
from tests.waiting import eventually

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")


def environment(directory: Path) -> dict[str, str]:
    """Variables with a temporary directory of their own, which is made, and without a key."""
    kept = {name: value for name, value in os.environ.items() if name not in KEYS and not name.startswith("CODEPILOT_")}
    temporary = directory / "tmp"
    temporary.mkdir()
    return {**kept, "TMPDIR": str(temporary), "COLUMNS": "120", "NO_COLOR": "1"}


def demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with a temporary directory of its own, without a real model's key, where a proxy is named."""
    proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "elsewhere.example"}
    return completed(["demo", "--fast", *arguments], env={**environment(directory), **proxy}, at=directory)


@pytest.mark.slow
def test_the_demo_works_on_a_repository_of_ones_own(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "calc")
    head = origin.commit(FILES)
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump([{"reply": FIX, "expect": "off by one"}]), encoding="utf-8")
    arguments = ("--repo", str(origin.path), "--issue", "Adding is off by one\nSee `add`.", "--script", str(script))
    done = demo(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-    return a + b + 1" in done.stdout
    assert re.search(r"pull request\s+http://127\.0\.0\.1:\d+/mona/calc/pull/2", done.stdout)
    assert (origin.head(), origin.git("status", "--porcelain")) == (head, "")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
async def test_a_kept_demo_answers_what_its_script_does_not_know_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "calc")
    origin.commit(FILES)
    script, errors = tmp_path / "script.yaml", tmp_path / "stderr"
    script.write_text(yaml.safe_dump([{"reply": FIX, "expect": "off by one"}]), encoding="utf-8")
    options = ("--repo", str(origin.path), "--issue", "Adding is off by one", "--script", str(script))
    words, env = ("demo", "--fast", "--keep", *options), environment(tmp_path)
    with codepilot(words, env=env, stderr=errors, at=tmp_path, piped=True) as process:
        said = ""
        while not (issues := re.search(r"Still running.*?(http\S+/issues)", said, re.DOTALL)):
            line = process.stdout.readline()
            assert line, said + errors.read_text()
            said += line
        issue, site = f"{issues[1]}/1", issues[1].partition("/mona")[0]
        async with aiohttp.ClientSession(raise_for_status=True) as web:

            async def answered() -> bool | None:
                async with web.get(issue) as page:
                    return "ANTHROPIC_API_KEY" in await page.text()

            async with browser(site) as page:
                command = {"body": "/codepilot ask What is it for?"}
                assert await page.send(f"{issue.removeprefix(site)}/comments", command) == 303
            told: bool = await eventually(answered, within=60)
            assert told
        process.send_signal(signal.SIGINT)
        said += process.stdout.read()
        assert process.join() == 0, said + errors.read_text()
    assert errors.read_text() == ""
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
async def test_the_demo_works_with_a_model_of_ones_own_and_sends_it_no_other_key(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "calc")
    origin.commit(FILES)
    (env := environment(tmp_path))["OPENAI_API_KEY"] = "sk-of-the-public-service"
    async with ModelServer([FIX]) as server:
        own = ("--base-url", server.url_openai, "--model", "qwen3-coder")
        words = ["demo", "--fast", "--repo", str(origin.path), "--issue", "Adding is off by one", *own]
        done = await asyncio.to_thread(completed, words, env=env, at=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        [request] = server.requests
    assert request.json["model"] == "qwen3-coder"
    assert "sk-of-the-public-service" not in str(request.headers)
    assert "pull request  " in done.stdout


@pytest.mark.slow
def test_a_demo_whose_model_fails_does_not_pass_for_a_success(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "calc")
    origin.commit(FILES)
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump([{"reply": "No."}]), encoding="utf-8")
    done = demo(tmp_path, "--repo", str(origin.path), "--issue", "Adding is off by one", "--script", str(script))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Failed" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_demo_that_comes_to_wait_for_a_person_ends_there_and_says_so(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "calc")
    origin.commit(FILES)
    script = tmp_path / "script.yaml"
    protected = acting('write_file(".github/workflows/ci.yml")', "on: push\n", completion="CI added.")
    script.write_text(yaml.safe_dump([{"reply": protected}]), encoding="utf-8")
    done = demo(tmp_path, "--repo", str(origin.path), "--issue", "Add CI", "--script", str(script))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "/codepilot approve" in done.stdout
    assert "pull request  " not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--repo", "."), "require each other"),
        (("--repo", "{tmp}", "--issue", "x", "--script", "{tmp}/none.yaml"), "none.yaml"),
        (("--repo", "{tmp}", "--issue", "x"), "no model"),
    ],
)
def test_a_demo_that_cannot_be_says_what_is_missing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = demo(tmp_path, *(each.format(tmp=tmp_path) for each in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
