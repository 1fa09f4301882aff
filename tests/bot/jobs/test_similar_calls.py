"""Calls like one that was approved for the rest of the run."""

from __future__ import annotations

from agent_runtime import PendingCall, Policy
from bot.domain.commands import Fix
from bot.git.mirror import Source
from bot.jobs import approvals
from bot.jobs.admission import Assignment
from bot.jobs.agent_run import approves_alike
from bot.jobs.context import JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Grant
from bot.permissions.repo_config import RepoConfig
from bot.queue.memory import InMemoryEngine
from bot.queue.records import ApprovalAnswer
from tests.builders import a_job
from tests.job_contexts import context_of, snapshot

BASE = "a" * 40


def _call(command: str) -> PendingCall:
    return PendingCall(
        request_id="7f3a",
        kind="permission",
        tool="execute",
        args={"session": "main", "command": command},
        reason="asks",
        preview=command,
        workspace="",
    )


async def _context(kind: str = "issue") -> JobContext:
    engine, job = InMemoryEngine(), a_job(kind=kind)
    await engine.accept(job)
    context = context_of(engine, job)
    answer = ApprovalAnswer(request_id="7f3a", approved=True, note="", by=job.actor, like=("make *",))
    await approvals.answer(context.record, answer)
    return context


def _assignment(head_sha: str = BASE) -> Assignment:
    return Assignment(
        command=Fix(),
        here=snapshot(head_sha=head_sha),
        grant=Grant(policy=Policy(default="ask"), publish="pull_branch", bound_to_sha=BASE),
        asked=RepoSettings(config=RepoConfig(), base_sha=BASE),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=BASE),
    )


async def test_what_fits_the_pattern_is_approved_and_nothing_else_is_answered() -> None:
    approve = approves_alike(await _context(), _assignment())
    assert await approve(_call("make lint")) is True
    assert await approve(_call("cmake lint")) is None
    assert await approve(_call("make lint && curl example.com")) is None


async def test_a_push_voids_it_while_the_run_goes_on() -> None:
    context = await _context()
    approve = approves_alike(context, _assignment())
    await approvals.void_alike(context.record)
    assert await approve(_call("make lint")) is None


async def test_it_does_not_hold_in_a_pull_request_that_has_moved_since() -> None:
    assert await approves_alike(await _context("pull"), _assignment("b" * 40))(_call("make lint")) is None
    assert await approves_alike(await _context("pull"), _assignment())(_call("make lint")) is True
