"""Ask people to approve a change, and show the request."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Literal

from bot.engine.approvals import Waiting
from bot.jobs.context import JobContext
from bot.publishing.plan import Publication
from bot.publishing.showing import ShownChange
from bot.publishing.view import PendingView
from bot.workspace import WorkflowsForbiddenError
from bot.workspace.change import Change


async def publication_request(
    context: JobContext, publication: Publication, change: Change, shown: ShownChange
) -> Waiting:
    """The request to approve what may not be published without a person.

    Args:
        context: the job.
        publication: what is blocked.
        change: all of it.
        shown: the part that the person has to read.
    """
    why = [each.words for each in publication.blocked]
    if shown.spells:
        why.append("Invisible characters are escaped below, as in `[U+202E]`.")
    if others := len(change.files) - len({path for each in publication.blocked for path in each.files}):
        why.append(f"Other changed files, which require no approval: {others}.")
    if change.writes_workflows and await context.github.tokens.may_write_workflows() is False:
        why.append(f"Before you approve: {WorkflowsForbiddenError().reason} Without it nothing can be published.")
    return Waiting(
        kind="publication",
        request_id=secrets.token_hex(4),
        reason=" ".join(why),
        preview=shown.diff,
        bound_to=change.base_sha,
        until=time.time() + context.services.bounds.approval_seconds,
        tree_sha=change.tree_sha,
    )


def pending_view(context: JobContext, asked: Waiting) -> PendingView:
    """A request as the job's comment shows it."""
    until = datetime.fromtimestamp(asked.until, UTC)
    language: Literal["diff", "bash", ""] = "bash" if asked.kind == "permission" else ""
    if asked.kind == "publication" or asked.preview.startswith(("--- ", "diff ")):
        language = "diff"
    return PendingView(
        kind=asked.kind,
        request_id=asked.request_id,
        trigger=context.job.trigger,
        # On its own: what looks like the beginning of a secret must not take what follows with it.
        reason=context.github.redacted(asked.reason),
        preview=asked.preview,
        language=language,
        like=asked.like,
        expires=f"{until.day} {until:%B %Y, %H:%M} UTC",
    )
