"""Keep the bot's own pull requests true: their descriptions after later commits, and their state after an undo.

A description that people edited is left as it is, and a pull request that people opened is not touched at all.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace

from agent_runtime import Quote
from bot.domain.commands import Undo
from bot.domain.job import LIVE_STATES, Job, Thread
from bot.git.change import Change
from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.github.types import GitHubError, PullFacts, PullLink
from bot.jobs.access import ThreadSnapshot
from bot.jobs.context import JobContext
from bot.jobs.faults import public_text
from bot.jobs.posts import locate_comment
from bot.jobs.record import Reversal
from bot.prompt.sanitize import clean, clean_code, clean_line
from bot.publishing.description import Description
from bot.publishing.markdown import code
from bot.publishing.outcome import CommitRef
from bot.publishing.plan import requester_of

log = logging.getLogger(__name__)
OWN_BRANCH = re.compile(r"(?:(issue|pull)-([0-9]+)|branch|fix-ci)-[a-z0-9-]+$")
"""The end of the name of a branch of the bot's, with the kind and the number of its thread."""
_KINDS = {"issue": "issue", "pull": "pull request"}
_PATCH_CHARS = 8_000
_REASON_CHARS = 4_000
_EDITED = (
    "Somebody edited the description of its pull request, so I left that as it is; check whether it is still true."
)


async def add_commit(context: JobContext, repo: str, number: int, line: str) -> None:
    """Add a later commit to the description of the bot's own pull request; a failure is only logged."""
    try:
        pull = await context.github.pulls.get(repo, number)
        text = await _own_text(context, pull)
        if text is not None and line not in text.body:
            new = text.with_commit(line).sealed
            await context.github.pulls.describe(repo, number, title=new.title, body=new.body)
    except GitHubError as error:
        log.warning("the description of pull request %d does not mention the new commit: %s", number, error)


async def conclude_undo(
    context: JobContext, snapshot: ThreadSnapshot, change: Change, revert: CommitRef, maker: Job | None
) -> str:
    """Correct what the reverted commit's job and its pull request say; return sentences for the comment.

    Args:
        maker: the commit's job, if it is known.
    """
    job, note, closed = context.job, "", 0
    why = job.command.why if isinstance(job.command, Undo) else ""
    for pull in await context.github.pulls.list_from(snapshot.repo.full_name, revert.branch):
        if pull.author.id == (await context.github.accounts.me()).id and Description.is_marked(pull.body):
            is_closed, note = await _correct_pull(context, snapshot, pull, change.base_sha, revert)
            closed = pull.number if is_closed else closed
    if maker is not None and isinstance(maker.command, Undo):  # whose reversal brings a change back
        return note
    reversal = Reversal(
        sha=change.base_sha, by=job.actor.login, why=why, patch=change.patch[:_PATCH_CHARS], closed=closed
    )
    record = await context.record.update(lambda record: replace(record, reversal=reversal))
    if maker is None:
        return note
    own, by = record.comment.posted, code(reversal.by)
    record = await context.record_of(maker).update(lambda record: replace(record, reversal=reversal))
    words = f"↩️ **Undone** by {by if own is None else f'[{by}]({own.url})'}."
    try:
        located = await locate_comment(context.github, maker, record.comment)
        if located is not None and not located[1].body.startswith(words):
            body = f"{words}\n\n{located[1].body}"
            await context.github.comments.edit(snapshot.repo.full_name, located[0], located[1].id, body)
    except GitHubError as error:
        log.warning("the comment of job %s does not say that its commit was undone: %s", maker.id, error)
    return note


async def _own_text(context: JobContext, pull: PullFacts) -> Description | None:
    """Return the title and the body of the bot's own pull request; None if people opened or edited it."""
    is_own = pull.author.id == (await context.github.accounts.me()).id
    return Description(title=pull.title, body=pull.body).unsealed if is_own else None


async def _correct_pull(
    context: JobContext, snapshot: ThreadSnapshot, pull: PullFacts, undone: str, revert: CommitRef
) -> tuple[bool, str]:
    """Close the bot's pull request if nothing is left in it, else mention the undo there.

    Return whether it was closed, and what to tell the user.
    """
    job, text = context.job, await _own_text(context, pull)
    new, is_empty = text, await _is_empty(context, snapshot, pull, revert)
    note, by = "" if text is not None else _EDITED, requester_of(job)
    if is_empty:
        kept = f"Its commits stay on the branch {code(revert.branch)}."
        closed = "Nothing of the change is left, so I closed its pull request."
        note = f"{closed} {kept} {next_step(job, revert.branch)} {note}".rstrip()
        undid = f"**Undone.** {by} undid commit {undone[:10]}, and nothing of the change is left"
        go_on = next_step(replace(job, thread=Thread.from_number("pull", pull.number)), revert.branch)
        new = text and text.undone(f"{undid}, so I closed this pull request. {kept}\n\n{go_on}")
    elif text is not None:
        new = text.with_commit(f"{revert.sha[:10]} undid {undone[:10]}, for {by}")
    title, body = (None, None) if new is None else (new.title, new.sealed.body)
    try:
        if is_empty or new is not None:
            repo = snapshot.repo.full_name
            await context.github.pulls.describe(repo, pull.number, title=title, body=body, closes=is_empty)
    except GitHubError as error:
        if error.certainty != "definite":
            raise
        return False, f"I could not correct its pull request. {public_text(error)}"
    context.state.continues = PullLink(number=pull.number, html_url=pull.html_url)
    return is_empty, note


def next_step(job: Job, branch: str) -> str:
    """Return how to go on after an undo; a comment refers to no other thread by a link."""
    origin = OWN_BRANCH.search(branch)
    if origin is None or not origin[2]:
        return "To go on, reopen it and give a command there."
    place = "here" if int(origin[2]) == job.thread.number else f"in {_KINDS[origin[1]]} {origin[2]}"
    verbs = f"{code(f'{job.trigger} retry')} or another {code(f'{job.trigger} fix')}"
    return f"To go on, give {verbs} {place}; it opens a new pull request."


async def _is_empty(context: JobContext, snapshot: ThreadSnapshot, pull: PullFacts, revert: CommitRef) -> bool:
    """Whether a pull request has no change left, and no job is to work on it."""
    live = await context.queue.live_jobs(context.job.installation or 0, (snapshot.repo.id,))
    for entry in (entry for entry in live if entry.job.id != context.job.id and entry.state in LIVE_STATES):
        if pull.number in {entry.job.thread.key, (await context.record_of(entry.job).read()).continues}:
            return False
    token = await context.github.tokens.for_clone(snapshot.repo.full_name)
    url = snapshot.repo.clone_url
    base = Source(url=url, token=token, ref=f"refs/heads/{pull.base_ref}", sha=pull.base_sha)
    head = Source(url=url, token=token, ref=f"refs/heads/{revert.branch}", sha=revert.sha)
    try:
        return not (await context.services.workspaces.compare(snapshot.repo.id, base, head)).files
    except WorkspaceError as error:
        log.warning("pull request %d stays open: %s", pull.number, error)
        return False


async def quote_undone(context: JobContext) -> tuple[Quote, ...]:
    """Quote how the thread's last change was undone; empty if it was not."""
    for entry in await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key):
        record = await context.record_of(entry.job).read()
        if record.published.commit is None or entry.job.id == context.job.id:
            continue
        if (reversal := record.reversal) is None:
            break
        why = await asyncio.to_thread(clean, reversal.why, limit=_REASON_CHARS) or "(no reason was given)"
        patch = await asyncio.to_thread(clean_code, reversal.patch, limit=_PATCH_CHARS)
        who, sha = clean_line(reversal.by, limit=40), reversal.sha[:10]
        source = f"why @{who} undid your commit {sha}, and the patch that undid it"
        return (Quote(source=source, text=f"{why}\n\n{patch}"),)
    return ()
