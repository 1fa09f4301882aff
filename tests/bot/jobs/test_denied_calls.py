"""Where nobody can be asked, a call that needs a person is denied, with the setting that would have allowed it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from agent_runtime import EventType, HookSystem, NoAnswer, PendingCall, Policy
from bot.domain.commands import Fix
from bot.git.mirror import Source
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import Assignment
from bot.jobs.agent_run import deny_unanswerable
from bot.jobs.setup import RepoSettings
from bot.jobs.status import StatusReporter
from bot.permissions.levels import Grant
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of, snapshot

BASE = "a" * 40
LABELS = RepoConfig().labels
WRITE = PendingCall(
    request_id="7f3a",
    kind="permission",
    tool="write_file",
    args={"path": "a.py"},
    reason="A rule asks.",
    preview="+x = 1",
    workspace="",
)
COMMAND = replace(WRITE, tool="execute", args={"session": "main", "command": "npm view left-pad"}, preview="npm view")


def _unanswerable(here: ThreadSnapshot, engine: InMemoryEngine | None = None) -> tuple[StatusReporter, HookSystem]:
    services = SimpleNamespace(run_url="")
    reporter = StatusReporter(context_of(engine or InMemoryEngine(), a_job(), services=services))
    hooks = HookSystem()
    assignment = Assignment(
        command=Fix(),
        here=here,
        grant=Grant(policy=Policy(default="ask"), publish="pull_branch", bound_to_sha=BASE),
        asked=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=BASE),
    )
    deny_unanswerable(hooks, reporter, assignment)
    return reporter, hooks


async def _denied(call: PendingCall, here: ThreadSnapshot) -> tuple[str, str, str]:
    reporter, hooks = _unanswerable(here)
    [handler] = hooks.handlers(EventType.PERMISSION_REQUEST)
    reason = await cast("Awaitable[object]", handler(call))
    assert isinstance(reason, str), "a text denies the call"
    [denied] = reporter.progress.denied
    assert denied.tool == call.tool
    return denied.asked, denied.setting, denied.value


@pytest.mark.parametrize(
    ("call", "here", "noted"),
    [
        (COMMAND, snapshot(), ("npm view left-pad", "allow-commands", "npm view left-pad")),
        (WRITE, snapshot(), ("+x = 1", "level", "auto")),
        (WRITE, snapshot(labels=("bug", LABELS.ask)), ("+x = 1", "label-off", LABELS.ask)),
        (WRITE, snapshot(head_repo_id=11), ("+x = 1", "label", LABELS.auto)),
        (WRITE, snapshot(head_repo_id=11, labels=(LABELS.ask,)), ("+x = 1", "label", LABELS.auto)),
    ],
)
async def test_what_would_have_allowed_a_call_is_noted(
    call: PendingCall, here: ThreadSnapshot, noted: tuple[str, str, str]
) -> None:
    assert await _denied(call, here) == noted


async def test_what_was_denied_outlives_a_process_that_is_killed_before_the_run_ends() -> None:
    engine = InMemoryEngine()
    await engine.accept(a_job())
    _, hooks = _unanswerable(snapshot(), engine)
    [handler] = hooks.handlers(EventType.PERMISSION_REQUEST)
    await cast("Awaitable[object]", handler(COMMAND))
    [denied] = (await engine.record("j1")).denied or ()
    assert (denied.tool, denied.value) == ("execute", "npm view left-pad")


async def test_a_question_gets_no_answer_and_is_noted() -> None:
    reporter, hooks = _unanswerable(snapshot())
    [handler] = hooks.handlers(EventType.ASK_USER)
    assert isinstance(await cast("Awaitable[object]", handler("Which one?")), NoAnswer)
    [denied] = reporter.progress.denied
    assert (denied.tool, denied.asked, denied.setting) == ("ask_user", "Which one?", "")


async def test_a_call_that_is_too_long_to_be_shown_is_denied_too() -> None:
    _, hooks = _unanswerable(snapshot())
    assert hooks.by_arguments() == hooks.handlers(EventType.PERMISSION_REQUEST)
