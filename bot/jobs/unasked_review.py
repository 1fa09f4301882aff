"""Reviews that nobody asked for in words: where they are wanted, and of what."""

from __future__ import annotations

from bot.gate.repo_config import PATH
from bot.intake.commands import Review
from bot.jobs.case import Case
from bot.jobs.configuration import lately_on_default_branch
from bot.jobs.look import Here


async def unasked_for(case: Case) -> str:
    """Why the job is a review that neither the repository nor the operator wants; empty for any other job."""
    command = case.job.command
    if not isinstance(command, Review) or command.on is None or not case.job.is_unasked:
        return ""
    config = await lately_on_default_branch(case)
    wanted = config.reviews(command.on, case.house.bounds.review_on)
    return "" if wanted else f"`review_on` in `{PATH}` does not list `{command.on}`."


def unfit_for_review(here: Here) -> str:
    """Why a pull request is not to be reviewed now; empty when it is."""
    pull = here.snapshot.pull
    return "It is a draft again." if pull is not None and pull.draft else ""
