"""How much the bot works in an hour, and when it stops answering itself. Pure."""

from __future__ import annotations

from bot.domain.access import is_unattended
from bot.gate.decision import AccessRequest, Refusal


def cap_refusal(request: AccessRequest) -> Refusal | None:
    """Why this would be more than is done in an hour, or None."""
    tally, caps, bounds = request.tally, request.bounds.caps, request.bounds
    scopes = (
        ("thread", tally.thread, caps.thread, "in this thread"),
        # When checks fail nobody asks, and the bot itself stands for nobody over all repositories.
        ("user", 0 if request.job.origin.kind == "ci" else tally.user, caps.user, f"for {request.job.actor.login}"),
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
    # On a branch alone no person ever asks; what machines do there ends in a pull request, and counts by the hour.
    is_thread = request.job.thread.kind != "branch"
    if is_thread and is_unattended(request.job, bounds.trusted_bots) and tally.unattended >= caps.unattended:
        return Refusal(
            cause="breaker",
            reason=f"I have worked {tally.unattended} times in this thread without a person asking, and stop here so "
            "that machines do not go on among themselves. A person with write access may give the next command.",
        )
    return None
