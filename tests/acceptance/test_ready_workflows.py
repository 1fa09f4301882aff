"""The workflows to copy: each runs under `act`, as it stands but for the line `uses:`, against a hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.localhub import LocalHub
from bot.localhub.model import Repo, User
from tests.act import ActRun, copy_of_this, run_workflow
from tests.origin import git
from tests.source_files import ROOT
from tests.stage import COMPLETION, FILES, FIX, MENDED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_WORKFLOWS = ROOT / "docs" / "workflows"


@pytest.fixture(scope="session")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The action as a runner downloads it."""
    directory = tmp_path_factory.mktemp("action") / "codepilot"
    copy_of_this(directory)
    return directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A repository on the hub, and what runs its workflows."""

    hub: LocalHub
    repo: Repo
    bot: User
    directory: Path
    action: Path
    sent: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def run(self, name: str, event: str, *replies: str, **payload: Any) -> ActRun:  # noqa: ANN401 - an event's payload is any JSON
        """Run a workflow for the last event of that name, with a model that gives these replies."""
        script = self.directory / f"{name}.yaml"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(json.dumps([{"reply": reply} for reply in replies]), encoding="utf-8")
        run = await asyncio.to_thread(
            run_workflow,
            self.directory / name,
            _WORKFLOWS / f"{name}.yml",
            action=self.action,
            event=event,
            payload={**self.sent.get(event, {}), **payload},
            inputs={"provider": "scripted", "model": str(script), "allow-root": "yes"},
            token=self.bot.token,
            repository=self.repo.full_name,
            api_url=self.hub.api_url,
            server_url=self.hub.url,
        )
        assert self.bot.token not in run.log
        return run


@pytest.fixture
async def runner(tmp_path: Path, action: Path) -> AsyncIterator[Runner]:
    async with LocalHub(tmp_path / "hub") as hub:
        hub.add_user("mona")
        bot = hub.add_user("github-actions[bot]", kind="Bot")
        repo = hub.add_repo("octo/calc", owner="mona", files=FILES)
        hub.add_collaborator(repo, bot.login, "write")
        hub.install(hub.add_app("any"), repo, by="mona")
        made = Runner(hub=hub, repo=repo, bot=bot, directory=tmp_path / "runner", action=action)
        hub.observe(sent=made.sent.__setitem__)
        yield made


def _fixed(runner: Runner) -> bool:
    """Whether the one branch of the bot has the right file."""
    [branch] = [name for name in runner.hub.branches(runner.repo) if name.startswith("codepilot/")]
    return git(runner.repo.path, "show", f"{branch}:calc.py") == MENDED.strip()


async def test_the_comment_bot_does_what_a_comment_asks(runner: Runner) -> None:
    issue = runner.hub.open_issue(runner.repo, author="mona", title="Adding is off by one")
    runner.hub.comment(runner.repo, issue.number, author="mona", body="/codepilot fix")
    run = await runner.run("comments", "issue_comment", FIX)
    assert run.succeeded, run.log[-6000:]
    assert COMPLETION in runner.hub.comments(runner.repo, issue.number)[-1].body
    assert _fixed(runner)


async def test_the_label_bot_does_what_a_label_asks(runner: Runner) -> None:
    issue = runner.hub.open_issue(runner.repo, author="mona", title="Adding is off by one")
    runner.hub.add_label(runner.repo, issue.number, "codepilot", by="mona")
    run = await runner.run("labels", "issues", FIX)
    assert run.succeeded, run.log[-6000:]
    assert COMPLETION in runner.hub.comments(runner.repo, issue.number)[-1].body
    assert _fixed(runner)
