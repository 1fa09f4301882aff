"""Everything there is to read about a job, fetched from GitHub and from the trusted git directory."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from bot.domain.commands import Fix, Test
from bot.gate.brief import FailingCheck, LineComment, LinkedFile, Material, ReviewVerdict, ThreadComment
from bot.github import CommentFacts, GitHubError, RedCheck
from bot.jobs.assignment import Assignment
from bot.jobs.context import JobContext
from bot.pipeline.failed_run import failed_run, run_behind
from bot.red_ci.failed import FailedRun, Remark
from bot.reporting.missing_permission import lacking
from bot.workspace import WorkspaceError

log = logging.getLogger(__name__)

_DIFF_CHARS = 60_000
_MOST_FILES = 5
_FILE_BYTES = 200_000
_LINES = re.compile(r"L([0-9]{1,7})(?:-L([0-9]{1,7}))?")


async def gather(context: JobContext, begun: Assignment) -> Material:
    """Read the thread, if there is one, and for a pull request its reviews, its diff and its failing checks.

    What GitHub will not show, e.g. for lack of a permission, is left out with a word in the log: the job can be done
    without it. Where failing checks began the job, `unread` says so, with the permission.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    repo, number, reader = begun.here.repo.full_name, context.job.thread.number, begun.here.reader
    language, plan = begun.asked.config.language or "", begun.command.plan if isinstance(begun.command, Fix) else ""
    red, unread = await _red(context, begun)
    failed = await _failed(context, begun, red)
    material = Material(
        language=language,
        approved_plan=plan,
        checks=tuple(map(_check, red)),
        failed=failed,
        workflow=failed.name if failed is not None else "",
        unread=unread,
    )
    if context.job.thread.kind == "branch":
        return material
    me = (await context.github.accounts.me()).id
    comments = tuple([_comment(each, me) for each in await reader.comments(repo, number)])
    material = replace(material, comments=comments, files=await _linked(context, begun))
    if context.job.thread.kind == "issue":
        continues = begun.here.thread.continues > 0
        diff = await pull_diff(context, begun, limit=_DIFF_CHARS) if continues else ""
        return replace(material, continues=continues, diff=diff)
    return replace(
        material,
        line_comments=tuple(
            [
                LineComment(
                    comment=_comment(each.comment, me), root=each.root, path=each.path, line=each.line, hunk=each.hunk
                )
                for each in await context.github.reviews.line_comments(repo, number)
            ]
        ),
        verdicts=tuple(
            [
                ReviewVerdict(
                    comment=ThreadComment(
                        id=each.id,
                        author=each.author,
                        body=each.body,
                        created_at=each.submitted_at,
                        updated_at=each.submitted_at,
                        ours=each.author_id == me,
                    ),
                    state=each.state,
                )
                for each in await reader.reviews(repo, number)
            ]
        ),
        diff=await pull_diff(context, begun, limit=_DIFF_CHARS),
    )


async def pull_diff(context: JobContext, begun: Assignment, *, limit: int) -> str:
    """What the pull request changes, as git writes it, at most `limit` characters of it."""
    base = begun.asked.base_sha
    source = begun.source
    return await context.services.workspaces.diff(
        begun.here.repo.id,
        replace(source, ref=f"refs/heads/{begun.here.thread.base_ref}", sha=base),
        source,
        limit=limit,
    )


async def _red(context: JobContext, begun: Assignment) -> tuple[tuple[RedCheck, ...], str]:
    """The failing checks of a pull request's head, or of the commit that made CI ask; and why they were not read."""
    has_pull = context.job.thread.kind == "pull" or begun.here.thread.continues > 0
    # By a button, work on a branch that failing checks began is done again.
    if not has_pull and context.job.origin.kind not in {"ci", "button"}:
        return (), ""
    try:
        return await begun.here.reader.failing_checks(begun.here.repo.full_name, begun.grant.bound_to_sha), ""
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("the failing checks were not read: %s", error)
        # A command of a person's can be about anything else.
        if context.job.origin.kind != "ci" or not error.lacks_permission:
            return (), ""
        return (), f"The agent was given no annotations of the failing checks. {lacking(context, 'checks')}"


async def _failed(context: JobContext, begun: Assignment, red: Sequence[RedCheck]) -> FailedRun | None:
    """What failed in the workflow run that started the job, or, where a person wants it fixed, in the first red one."""
    here, run_id = begun.here, context.job.origin.id
    if context.job.origin.kind not in {"ci", "recipe"}:
        run_id = (
            run_behind(context.services.server_url, here.repo.full_name, red)
            if isinstance(begun.command, Fix | Test)
            else 0
        )
    if not run_id:
        return None
    try:
        return await failed_run(context, here, begun.source, run_id)
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("the run that failed was not read: %s", error)
        return None


async def _linked(context: JobContext, begun: Assignment) -> tuple[LinkedFile, ...]:
    """The repository's own files that the thread's description links to, as they are in the commit worked on."""
    prefix = re.escape(f"{context.services.server_url}/{begun.here.repo.full_name}/blob/")
    links = re.finditer(rf"{prefix}[^/\s]+/([^\s#?)>\]\"']+)(?:#(L[0-9L-]+))?", context.job.thread.body)
    # The author of the description may have filled it with links that lead nowhere.
    places = list(dict.fromkeys((unquote(link[1]), link[2] or "") for link in links))[:_MOST_FILES]
    found = []
    for path, lines in places:
        try:
            blob = await context.services.workspaces.read(begun.here.repo.id, begun.source, path, limit=_FILE_BYTES)
        except WorkspaceError:  # no file, or a large one: the agent can look for itself
            continue
        if blob is None:
            continue
        found.append(linked(path, lines, blob.content.decode("utf-8", "replace")))
    return tuple(found)


def linked(path: str, fragment: str, text: str) -> LinkedFile:
    """What a link to a file means: the lines that its fragment names, or the whole file where it has no such lines.

    Args:
        path: the file.
        fragment: of the link, such as `L3-L9`; empty for none.
        text: the whole file.
    """
    if meant := _LINES.fullmatch(fragment):
        lines = text.removesuffix("\n").split("\n")  # as GitHub, git and the agent's tools number them
        first, last = max(1, int(meant[1])), min(int(meant[2] or meant[1]), len(lines))
        if first <= last:
            return LinkedFile(place=f"{path} lines {first}-{last}", text="\n".join(lines[first - 1 : last]))
    return LinkedFile(place=path, text=text)


def _comment(facts: CommentFacts, me: int) -> ThreadComment:
    return ThreadComment(
        id=facts.id,
        author=facts.author,
        body=facts.body,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        ours=facts.author_id == me,
    )


def _check(red: RedCheck) -> FailingCheck:
    remarks = tuple(Remark(path=each.path, line=each.start_line, message=each.message) for each in red.annotations)
    return FailingCheck(name=red.name, conclusion=red.conclusion, summary=red.summary, remarks=remarks)
