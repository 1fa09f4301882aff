"""How much the bot works in an hour, and when it stops answering itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bot.gate.decision import AccessRequest, Refusal
from bot.gate.repo_config import PATH, RepoConfig
from bot.gate.standing import is_unattended

MOST_ATTEMPTS = 2
"""To mend a red CI, on commits that follow from one another."""


def cap_refusal(request: AccessRequest) -> Refusal | None:
    """Why this would be more than is done in an hour, or None."""
    tally, caps, bounds = request.tally, request.bounds.caps, request.bounds
    scopes = (
        ("thread", tally.thread, caps.thread, "in this thread"),
        ("user", tally.user, caps.user, f"for {request.job.actor.login}"),
        ("repository", tally.repository, caps.repository, "in this repository"),
        ("installation", tally.installation, caps.installation, "in this installation"),
    )
    for scope, done, most, words in scopes:
        if done >= most:
            return Refusal(
                cause=f"cap-{scope}",
                reason=f"I have begun {done} pieces of work {words} in the last hour, and {most} is the most. Ask "
                f"again in an hour; who runs this bot can raise it (`CODEPILOT_CAPS={scope}=…`).",
            )
    if is_unattended(request.job, bounds.trusted_bots) and tally.unattended >= caps.unattended:
        return Refusal(
            cause="breaker",
            reason=f"I have worked {tally.unattended} times in this thread without a person asking, and stop here so "
            "that machines do not go on among themselves. A person with write access may give the next command.",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedRun:
    """What is known of a CI run that went red, before anybody works on it.

    Attributes:
        attempts: jobs that CI started on this commit or on one that it follows from.
        own_branch: whether the branch is one of the bot's own.
        red_on_base: whether the newest finished run of the same workflow on the base branch failed, too; None when
            GitHub could not say.
    """

    attempts: int
    own_branch: bool
    red_on_base: bool | None


def red_run_refusal(run: RedRun, config: RepoConfig) -> Refusal | None:
    """Why the bot does not try to mend a red CI, or None when it may. Nobody asked, so most of it is not told."""
    if "fix_red_ci" not in config.automatic:
        return Refusal(
            cause="automatic-off", silent=True, reason=f"`automatic` in `{PATH}` does not list `fix_red_ci`."
        )
    if run.own_branch:
        return Refusal(
            cause="own-branch", silent=True, reason="This branch is one of mine; a person decides what becomes of it."
        )
    if run.red_on_base is not False:
        return Refusal(
            cause="red-on-base",
            silent=True,
            reason="The base branch is red, too, or I could not find out; mend that first.",
        )
    if run.attempts >= MOST_ATTEMPTS:
        return Refusal(
            cause="attempts",
            reason=f"I have tried {run.attempts} times to make these checks pass, and leave it to you. Ask with "
            "`fix` when I am to try again.",
        )
    return None
