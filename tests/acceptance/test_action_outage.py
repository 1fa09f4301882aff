"""A workflow run while GitHub is down: nothing runs after its process, so it retries by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.action.step import work_step
from bot.domain.job import JobState
from bot.settings.load import load_action
from bot.settings.models import ActionSettings
from localhub import LocalHub, Repo
from tests.agent_runtime.providers.conversations import KEY
from tests.model_server import Fails, ModelServer
from tests.stage import FIX, FIXED_CALC, acting, build


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A workflow run on a comment that asks for a fix."""

    repo: Repo
    number: int
    settings: ActionSettings
    summary: Path


def a_runner(hub: LocalHub, directory: Path, *replies: str | Mapping[str, str], **variables: str) -> Runner:
    """The run of a fresh repository with the bug.

    Args:
        hub: where it works.
        directory: for its files.
        replies: the model's, in place of `FIX`.
        variables: set beside what every run has.
    """
    payloads: dict[str, Mapping[str, Any]] = {}
    _, repo = build(hub)
    runner = hub.add_user("github-actions[bot]", kind="Bot")
    hub.add_collaborator(repo, runner.login, "write")
    hub.observe(on_delivery=payloads.__setitem__)
    issue = hub.open_issue(repo, author="mona", title="Adding is off by one")
    hub.comment(repo, issue.number, author="mona", body="/codepilot fix")
    (directory / "event.json").write_text(json.dumps(payloads["issue_comment"]))
    (directory / "script.yaml").write_text(
        json.dumps([{"reply": each} if isinstance(each, str) else each for each in replies or (FIX,)])
    )
    usual = {
        "GITHUB_TOKEN": runner.token,
        "GITHUB_EVENT_PATH": str(directory / "event.json"),
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_REPOSITORY": repo.full_name,
        "GITHUB_RUN_ID": "41",
        "GITHUB_API_URL": hub.api_url,
        "GITHUB_SERVER_URL": hub.url,
        "GITHUB_STEP_SUMMARY": str(directory / "summary"),
        "CODEPILOT_PROVIDER": "scripted",
        "CODEPILOT_MODEL": str(directory / "script.yaml"),
        "CODEPILOT_DATA_DIR": str(directory / "data"),
    }
    settings = load_action({**usual, **variables})
    return Runner(repo=repo, number=issue.number, settings=settings, summary=directory / "summary")


async def test_a_model_that_stays_down_is_told_with_a_remedy_and_the_work_is_kept(
    hub: LocalHub, tmp_path: Path
) -> None:
    busy = Fails(429, "rate_limit_error", "Slow down", retry_after="3600")
    async with ModelServer([acting('write_file("calc.py")', FIXED_CALC), busy]) as server:
        asked = {"CODEPILOT_PROVIDER": "anthropic", "CODEPILOT_MODEL": "claude-sonnet-5-5", "CODEPILOT_API_KEY": KEY}
        run = a_runner(hub, tmp_path, **asked, CODEPILOT_BASE_URL=server.url_anthropic, CODEPILOT_LEVEL="auto")
        assert (await work_step(run.settings)).ended is JobState.FAILED
        assert len(server.requests) == 2
    [_, status] = hub.comments(run.repo, run.number)
    assert "Slow down" in status.body
    assert "When the model service is available again, give the same command again." in status.body
    [branch] = set(hub.branches(run.repo)) - {"main"}
    assert branch.endswith("-wip")
