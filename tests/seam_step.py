"""A workflow's step on the seam: `work_step` with the clients, workspaces and agents of a `Seam`.

async with open_seam(tmp_path, FIX) as stage:
    run = await run_step(stage, "schedule", **scheduled(stage, "Make `add` right."))
    assert run.ended is JobState.DONE, run.summary

The settings, inputs, services, results and outputs are real. The workflow file is a commit on no branch.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from bot.action import step, verified_inputs
from bot.action.step import work_step
from bot.github.client import GitHub
from bot.jobs.context import JobServices
from bot.publishing.markdown import redact_inertly
from bot.queue.memory import InMemoryEngine
from bot.server.build import build_services
from bot.settings.load import load_action
from bot.settings.models import AgentSettings
from tests.fakes.github import FakeGitHub
from tests.fakes.workspaces import FakeWorkspaces
from tests.seam import Seam
from tests.workflow_runs import WORKFLOW_FILE, WorkflowRun, variables_of_step, workflow_with_step

_NUMBERS = itertools.count(41)


def scheduled(stage: Seam, prompt: str = "", **variables: str) -> dict[str, str]:
    """Return the runner's variables of a scheduled run, whose event names neither repository nor sender."""
    mona = stage.hub.user("mona")
    return {
        "GITHUB_REPOSITORY_ID": str(stage.repo.id),
        "GITHUB_ACTOR": mona.login,
        "GITHUB_ACTOR_ID": str(mona.id),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_WORKFLOW": "Scheduled maintenance",
        "CODEPILOT_PROMPT": prompt,
        **variables,
    }


async def run_step(
    stage: Seam,
    event: str,
    in_file: Mapping[str, str] | None = None,
    longest_pause: float = 0.05,
    cancelled: asyncio.Event | None = None,
    /,
    **variables: str,
) -> WorkflowRun:
    """Run the step on the newest event of this name, on a machine of its own.

    Args:
        event: `schedule` needs none.
        in_file: the inputs as the workflow file has them, where that is not what they evaluate to.
        longest_pause: between attempts during an outage.
        cancelled: set by the test when the runner ends the step.
        variables: the runner's.
    """
    repo, number = stage.repo, next(_NUMBERS)
    files = {WORKFLOW_FILE: workflow_with_step(variables, in_file or {})}
    commit = stage.hub.write_commit(
        repo, repo.head(), files, message="Run Codepilot", author=stage.hub.user(repo.owner)
    )
    folder = stage.directory / f"run-{number}"
    folder.mkdir()
    payload = {"schedule": "0 6 * * 1"} if event == "schedule" else _newest(stage, event)
    (folder / "event.json").write_text(json.dumps(payload))
    environment = {
        **variables_of_step(repo.full_name, commit.sha),
        "GITHUB_TOKEN": "a-token-of-a-workflow",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_EVENT_NAME": event,
        "GITHUB_REPOSITORY": repo.full_name,
        "GITHUB_RUN_ID": str(number),
        "GITHUB_API_URL": f"{stage.hub.url}/api/v3",
        "GITHUB_SERVER_URL": stage.hub.url,
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "CODEPILOT_PROVIDER": "scripted",
        "CODEPILOT_MODEL": "none",
        "CODEPILOT_DATA_DIR": str(folder / "data"),
        "CODEPILOT_LEVEL": "auto",
    }
    with on_seam(stage):
        end = await work_step(load_action(environment | variables), longest_pause=longest_pause, cancelled=cancelled)
    written = [folder / name for name in ("outputs", "summary")]
    outputs, summary = (path.read_text(encoding="utf-8") if path.exists() else "" for path in written)
    return WorkflowRun(ended=end.ended, outputs=outputs, summary=summary)


def _newest(stage: Seam, event: str) -> dict[str, Any]:
    payload = [delivery.payload for delivery in stage.hub.deliveries if delivery.event == event][-1]
    return {name: value for name, value in payload.items() if name != "installation"}  # only an App is told of it


@contextmanager
def on_seam(stage: Seam) -> Iterator[None]:
    """Give steps the clients, workspaces and agents of a seam; around steps that run at once."""

    def services(agent: AgentSettings, **options: Any) -> JobServices:  # noqa: ANN401 - as given
        workspaces = FakeWorkspaces(agent.data_dir / "workspaces", stage.hub, git=stage.workspaces.git)
        return replace(build_services(agent, **options), workspaces=workspaces, agent=stage.agents)

    def client(*_: object, redact: Callable[[str], str], **_options: object) -> GitHub:
        return FakeGitHub(stage.hub, redact=redact_inertly(redact), workflow=True)

    async def call(function: Callable[..., Any], *args: object, **_limits: object) -> Any:  # noqa: ANN401 - any function
        return function(*args)

    with (
        patch.object(step, "build_services", services),
        patch.object(step, "InMemoryEngine", partial(InMemoryEngine, clock=stage.clock)),
        patch.object(step, "open_sessions", lambda _agent: stage.sessions),
        patch.object(GitHub, "for_token", client),
        patch.object(verified_inputs, "run_bounded", call),
        patch.object(Bubblewrap, "probe"),
    ):
        yield
