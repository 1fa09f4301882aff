"""Calls that need a person in a run that can ask nobody: denied to the model with the reason, and kept."""

from __future__ import annotations

from typing import Literal

from agent_runtime import HookSystem, NoAnswer, PendingCall, exact_patterns
from bot.jobs.assignment import Assignment
from bot.publishing.view import DeniedCall
from bot.reporting.reporter import StatusReporter

NOBODY_ANSWERS = "Nobody can be asked in this run: decide for yourself, and say in the completion what you decided."
"""The agent's instructions about it, before it starts."""

_ASKED_CHARS = 2_000
_NOBODY = "nobody can be asked in this run"
_DECIDE = f"{_NOBODY}; decide for yourself, and say in the completion what you decided"
_INSTEAD = (
    "Allowed without asking: reading and writing files, and the usual tests, builds and linters as plain commands, "
    "without substitution, variables or redirection into files"
)


def deny_unanswerable(hooks: HookSystem, reporter: StatusReporter, assignment: Assignment) -> None:
    """Answer all that a runtime asks, in the place of people who are not there.

    Args:
        hooks: the runtime's.
        reporter: keeps what was denied.
        assignment: says what would have allowed it.
    """

    # Async, so that both run on the event loop, which alone changes the progress.
    async def deny(pending: PendingCall, **_: object) -> str:
        setting, value = _allowing(assignment, pending)
        asked = str(pending.args.get("command") or pending.preview)[:_ASKED_CHARS]
        await reporter.denied(
            DeniedCall(tool=pending.tool, asked=asked, reason=pending.reason, setting=setting, value=value)
        )
        return f"{_NOBODY}. {pending.reason.rstrip('. ')}. {_INSTEAD}"

    async def decline(question: str, **_: object) -> NoAnswer:
        await reporter.denied(DeniedCall(tool="ask_user", asked=question[:_ASKED_CHARS], reason="It is a question."))
        return NoAnswer(why=_DECIDE)

    # By arguments also for what is too long to be shown: nobody is shown anything.
    hooks.register("permission_request", deny, by_arguments=True)
    hooks.register("ask_user", decline)


def _allowing(
    begun: Assignment, pending: PendingCall
) -> tuple[Literal["allow-commands", "level", "label", "label-off"], str]:
    """The setting that would have allowed a call, and its value."""
    if patterns := exact_patterns(begun.grant.policy, pending):
        return "allow-commands", "; ".join(patterns)
    thread, repo, names = begun.here.thread, begun.here.repo, begun.asked.config.labels
    if thread.head_repo_id != repo.id:  # of a fork neither input nor file can raise the level
        return "label", names.auto
    # The lowest of label, file and input holds.
    if lowering := next((name for name in begun.here.labels if names.level_of(name) == "ask"), ""):
        return "label-off", lowering
    return "level", "auto"
