"""The composite action on a runner, run by `act` without Docker, against a real hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.action.outputs import OUTPUTS
from bot.jobs.handover import SESSION_FILE
from localhub import LocalHub, Repo, User
from tests.act import ActRun, run_action
from tests.origin import git
from tests.source_files import ROOT

_SCRIPT = """\
- expect: off by one
  reply: |
    The sum has one too many. I take it out and prove it.
    ```codepilot
    write_file("calc.py")
    execute("main", "python3 -c 'import calc; assert calc.add(1, 1) == 2'", check=True)
    ```
    ```python filename=calc.py
    def add(a, b):
        return a + b
    ```
    ```completion
    `add` adds again.
    ```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A repository with a bug on a hub, the account of its workflows, and the newest event of each kind."""

    hub: LocalHub
    repo: Repo
    owner: User
    runner: User
    payloads: dict[str, Mapping[str, Any]]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Scene]:
    payloads: dict[str, Mapping[str, Any]] = {}
    async with LocalHub(directory / "hub") as hub:
        owner, runner = hub.add_user("mona"), hub.add_user("github-actions[bot]", kind="Bot")
        repo = hub.add_repo("octo/calc", owner="mona", files={"calc.py": "def add(a, b):\n    return a + b + 1\n"})
        hub.add_collaborator(repo, runner.login, "write")
        hub.install(hub.add_app("any"), repo, by="mona")
        hub.observe(on_delivery=payloads.__setitem__)
        yield Scene(hub=hub, repo=repo, owner=owner, runner=runner, payloads=payloads)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_comment_becomes_a_pull_request_through_the_action(tmp_path: Path) -> None:
    async with opened(tmp_path) as scene:
        hub, repo, runner = scene.hub, scene.repo, scene.runner
        issue = hub.open_issue(repo, author="mona", title="Adding is off by one", body="`add(1, 1)` gives 3.")
        hub.comment(repo, issue.number, author="mona", body="/codepilot fix")
        # What a caller passes is data: a shell that evaluated this path would leave the file `hijacked`.
        script = tmp_path / "$(touch hijacked)`touch hijacked`;touch hijacked" / "script.yaml"
        script.parent.mkdir()
        script.write_text(_SCRIPT, encoding="utf-8")
        run = await asyncio.to_thread(
            run_action,
            tmp_path / "runner",
            event="issue_comment",
            payload=scene.payloads["issue_comment"],
            inputs={"provider": "scripted", "model": str(script), "allow-root": "yes"},
            token=runner.token,
            repository=repo.full_name,
            api_url=hub.api_url,
            server_url=hub.url,
        )
        assert run.succeeded, run.log[-6000:]
        (pull,) = [thread for thread in hub.issues(repo) if thread.pull is not None]
        (_command, status) = hub.comments(repo, issue.number)
        made = {sha for name, sha in hub.branches(repo).items() if name.startswith("codepilot/")}
        assert run.outputs["status"] == "done"
        assert run.outputs["pull-request-url"].endswith(f"/octo/calc/pull/{pull.number}")
        assert run.outputs["comment-url"].endswith(f"#issuecomment-{status.id}")
        assert {run.outputs["commit-sha"]} == made
        assert "`add` adds again." in status.body
        assert runner.token not in run.log
    assert not _hijacked(tmp_path)


def _hijacked(directory: Path) -> list[Path]:
    return [*directory.rglob("hijacked"), *ROOT.glob("hijacked")]


_MAINTENANCE = """\
- expect: Make `add` right.
  reply: |
    ```codepilot
    write_file("calc.py")
    ```
    ```python filename=calc.py
    def add(a, b):
        return a + b
    ```
    ```completion
    `add` adds again.
    ```
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_scheduled_prompt_becomes_a_pull_request_and_every_output_reaches_the_next_step(tmp_path: Path) -> None:
    async with opened(tmp_path) as scene:
        hub, repo, runner = scene.hub, scene.repo, scene.runner
        (tmp_path / "script.yaml").write_text(_MAINTENANCE, encoding="utf-8")
        where = {"id": repo.id, "full_name": repo.full_name, "private": False, "default_branch": "main"}
        run = await asyncio.to_thread(
            run_action,
            tmp_path / "runner",
            event="schedule",
            payload={
                "schedule": "0 6 * * 1",
                "repository": where,
                "sender": {"id": scene.owner.id, "login": scene.owner.login, "type": "User"},
            },
            inputs={
                "provider": "scripted",
                "model": str(tmp_path / "script.yaml"),
                "allow-root": "yes",
                "prompt": "Make `add` right.\nNothing else: $(touch hijacked)",
                "base": "main",
                "branch-prefix": "bots/",
            },
            token=runner.token,
            repository=repo.full_name,
            api_url=hub.api_url,
            server_url=hub.url,
            installs=False,
            origin=repo.path,
        )
        assert run.succeeded, run.log[-6000:]
        (pull,) = hub.issues(repo)
        outputs = run.outputs
        assert set(outputs) == set(OUTPUTS)
        assert outputs["branch"] == f"bots/branch-{outputs['run-id']}"
        assert outputs["pull-request-number"] == str(pull.number)
        assert outputs["changed-files"] == '["calc.py"]'
        assert outputs["summary"] == "`add` adds again."
        assert outputs["patch-path"].endswith(f"/codepilot/patches/{outputs['run-id']}.patch")
        assert int(outputs["duration-seconds"]) >= 0
    assert not _hijacked(tmp_path)


_ASKS = """\
- expect: off by one
  reply: |
    ```codepilot
    write_file("calc.py")
    execute("main", "python3 -c 'import calc; assert calc.add(1, 1) == 2'", check=True)
    ```
    ```python filename=calc.py
    def add(a, b):
        return a + b
    ```
"""
_ENDS = """\
- reply: |
    ```completion
    `add` adds again.
    ```
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_an_approving_comment_resumes_the_run_that_the_workflow_before_it_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as scene:
        hub, repo, runner = scene.hub, scene.repo, scene.runner
        issue = hub.open_issue(repo, author="mona", title="Adding is off by one", body="`add(1, 1)` gives 3.")

        async def say(body: str, script: str, run_id: int) -> ActRun:
            (tmp_path / "script.yaml").write_text(script, encoding="utf-8")
            hub.comment(repo, issue.number, author="mona", body=body)
            run = await asyncio.to_thread(
                run_action,
                tmp_path / str(run_id),
                event="issue_comment",
                payload=scene.payloads["issue_comment"],
                inputs={
                    "provider": "scripted",
                    "model": str(tmp_path / "script.yaml"),
                    "allow-root": "yes",
                    "approvals": "artifact",
                    "session-key": "a-key-of-more-than-thirty-two-characters",
                    "network": "pypi.org",
                },
                token=runner.token,
                repository=repo.full_name,
                api_url=hub.api_url,
                server_url=hub.url,
                installs=False,
                run_id=run_id,
            )
            assert run.succeeded, run.log[-6000:]
            return run

        paused = await say("/codepilot fix", _ASKS, 41)
        assert paused.outputs["conclusion"] == "waiting"
        [stored] = (tmp_path / "41" / "artifacts").glob("*/*")
        assert stored.name == SESSION_FILE
        assert b"off by one" not in stored.read_bytes()
        hub.keep_artifact(repo, stored.parent.name, {stored.name: stored.read_bytes()}, run_id=41, days=1)
        assert set(hub.branches(repo)) == {"main"}

        resumed = await say("/codepilot approve", _ENDS, 42)
        assert resumed.outputs["conclusion"] == "verified"
        published = git(repo.path, "show", f"{resumed.outputs['branch']}:calc.py")
        assert published == "def add(a, b):\n    return a + b"
        (pull,) = [thread for thread in hub.issues(repo) if thread.pull is not None]
        assert resumed.outputs["pull-request-number"] == str(pull.number)
        assert not (tmp_path / "42" / "artifacts").exists()
