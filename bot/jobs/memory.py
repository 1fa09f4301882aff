"""Remember rules for later runs in one pull request, and offer to after a correction.

Each attempt looks first at the branch, so that repeated and concurrent commands lose and repeat nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_runtime import INSTRUCTION_FILES
from bot.domain.access import can_command, is_unattended
from bot.domain.commands import Continue, Remember, Undo
from bot.domain.grammar import parse_command
from bot.domain.job import Actor
from bot.git.errors import WorkspaceError
from bot.git.mirror import Blob, Source
from bot.github.types import GitHubError, PullDraft, PullFacts, PullLink, RepoFacts
from bot.jobs.access import AccessCheck, ThreadSnapshot, branch_head, fetch_snapshot
from bot.jobs.admission import check_permissions, choose_prefix, decide, read_format
from bot.jobs.context import JobContext
from bot.jobs.repo_settings import default_settings, fetch_repo_settings
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Refusal
from bot.permissions.repo_config import MAX_BYTES
from bot.publishing.description import Description
from bot.publishing.markdown import code, fence
from bot.publishing.outcome import Failed, Finished, JobOutcome, Published
from bot.publishing.plan import CommitPlan, Publication, commit_body
from bot.publishing.rules import (
    Rule,
    RuleError,
    add_rules,
    describe_rules,
    has_words,
    list_rules,
    make_rule,
    propose_rule,
)

log = logging.getLogger(__name__)
_FRAGMENTS = {"comment": "#issuecomment-{}", "review_comment": "#discussion_r{}", "review": "#pullrequestreview-{}"}
_TRIES = 6
"""Attempts to follow other commands' commits."""
_TITLE = "Add rules for later runs to the instructions for agents"
_NAME = "memory-"
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_MAX_BRANCHES = 20


async def remember(context: JobContext, command: Remember, snapshot: ThreadSnapshot) -> JobOutcome:
    """Add a rule to the pull request that collects them."""
    repo, conventions = snapshot.repo, context.services.conventions
    token = await context.github.tokens.for_clone(repo.full_name)
    head = await branch_head(context.github, snapshot, repo.default_branch)
    base = Source(url=repo.clone_url, token=token, ref=f"refs/heads/{repo.default_branch}", sha=head)
    fetched = await fetch_repo_settings(
        snapshot.reader, context.services.workspaces, repo.full_name, repo.id, base, conventions.repo_file
    )
    config = fetched.settings.config
    grant = await decide(context, snapshot, config)
    if isinstance(grant, Refusal):
        return await context.refuse(grant)
    if (refusal := await choose_prefix(context, repo.full_name, config)) is not None:
        return await context.refuse(refusal)
    if (problem := await check_permissions(context, repo.full_name, grant)) is not None:
        return await context.refuse(Refusal(cause="permission", reason=" ".join(problem)))
    if (branch := conventions.base or config.base or repo.default_branch) != repo.default_branch:
        base = replace(base, ref=f"refs/heads/{branch}", sha=await branch_head(context.github, snapshot, branch))
    place = Place(repo=repo, base=base, settings=fetched.settings, dry_run=grant.dry_run)
    try:
        rule = await asyncio.to_thread(_make_rule, context, command.rule or await _find_offer(context))
        for _ in range(_TRIES):
            if (outcome := await _collect(context, place, rule)) is not None:
                return outcome
    except RuleError as error:
        return await context.refuse(Refusal(cause="rule", variant=str(error), reason=str(error)))
    return _fail("The branch of the pull request moved again and again. Give the command again.")


def _make_rule(context: JobContext, words: str) -> Rule:
    job, server = context.job, context.services.server_url
    folder = "pull" if job.thread.kind == "pull" else "issues"
    fragment = _FRAGMENTS.get(job.origin.kind, "").format(job.origin.id)
    url = f"{server}/{job.repo.full_name}/{folder}/{job.thread.number}{fragment}"
    return make_rule(words, number=job.thread.number, url=url, server=server, repo=job.repo.full_name)


async def _collect(context: JobContext, place: Place, rule: Rule) -> JobOutcome | None:
    """Commit the rule, unless it is there; None if the branch moved meanwhile."""
    branches = await find_branches(context, place)
    new, repo = branches[-1], place.repo.full_name
    if has_words(new.file.rules, rule.line):
        return _reply(f"This rule is in {code(new.file.path)} already.", rule)
    target = next(branch for branch in branches if not branch.is_stuck or branch.has_others)
    taken_over = [branch for branch in branches if branch.pull and branch is not target and not branch.has_others]
    present = target.file.rules
    lines = list(dict.fromkeys(line for branch in taken_over for line in branch.own_rules if line not in present))
    is_known = has_words([*present, *lines], rule.line)
    is_own = rule.line in {*present, *lines}  # of an earlier attempt
    lines += [] if is_known else [rule.line]
    pull = None if target.pull is None else PullLink(number=target.pull.number, html_url=target.pull.html_url)
    if lines:
        published = await publish_rules(context, place, target, lines)
        if published.dry_run_note:
            return _reply(f"Dry run: nothing was published. {published.dry_run_note}", rule)
        if published.withheld is not None:
            return None if published.withheld.cause == "branch-moved" else _fail(published.withheld.reason)
        pull = pull or published.pull
    if pull is None:  # the attempt that made the commit was interrupted
        pull = await context.github.pulls.create(repo, draft_pull(context, place, target, _TITLE), head=target.branch)
    await describe_pull(context, place, target, pull)
    for branch in taken_over:
        await close_pull(context, place, branch, pull)
    where = "was in this pull request already" if is_known and not is_own else "is in this pull request"
    stuck = f" It conflicts with {code(place.base_branch)}." if target.is_stuck else ""
    return _reply(f"This rule {where}, and counts once it is merged.{stuck}", rule, pull)


def _reply(text: str, rule: Rule, pull: PullLink | None = None) -> Finished:
    return Finished(reply=f"{text}\n\n{fence(rule.line, 'markdown')}", published=Published(pull=pull))


def _fail(reason: str) -> Failed:
    return Failed(reason=reason, reply=f"❌ The rule is not kept. {reason}")


async def _find_offer(context: JobContext) -> str:
    """Return the thread's last offer; RuleError without any."""
    job, stamps = context.job, context.services.stamps
    if stamps is not None:
        await stamps.restore(context.github, job, [job.thread.key])
    jobs = await context.queue.jobs_in_thread(job.repo.id, job.thread.key)
    for entry in jobs:
        if offer := (await context.record_of(entry.job).read()).offer:
            return offer
    raise RuleError(f"Write the rule after {code(f'{job.trigger} remember')}: I have not offered one in this thread.")


async def offer_rule(context: JobContext, outcome: JobOutcome) -> JobOutcome:
    """Offer to keep a person's correction as a rule, where `remember` works."""
    job, access = context.job, context.state.access
    is_shown = job.thread.has_comments and context.comment_mode != "never" and not (outcome.is_silent or outcome.reply)
    if not isinstance(outcome, Finished) or not is_shown or access is None:
        return outcome
    try:
        rule = await asyncio.to_thread(propose_rule, await _find_correction(context, outcome, access))
        if not rule:
            return outcome
        await asyncio.to_thread(_make_rule, context, rule)
        config = await default_settings(access.reader, access.repo.full_name, context.services.conventions.repo_file)
        asking = context.for_job(replace(job, command=Remember()))
        if isinstance(await decide(asking, fetch_snapshot(job, access), config), Refusal):
            return outcome
        if await context.github.tokens.find_missing(access.repo.full_name, ("contents", "pull_requests")):
            return outcome
    except (GitHubError, RuleError) as error:
        log.warning("no rule is offered: %s", error)
        return outcome
    await context.record.update(lambda record: replace(record, offer=rule))
    return replace(outcome, offer=f"{job.trigger} remember {rule}")


async def _find_correction(context: JobContext, outcome: JobOutcome, access: AccessCheck) -> str:
    """Return the words of a person with write access who corrected the bot; empty without any."""
    job, record, reader, repo = context.job, await context.record.read(), access.reader, access.repo.full_name
    has_commit = outcome.published.commit is not None
    if isinstance(job.command, Undo):
        return job.command.why if has_commit and _is_person(context, job.actor) else ""
    for id_ in reversed(record.result.messages if record.result is not None else ()):
        stored = await context.queue.get(id_)
        # Its sender had write access, or it would not have reached the agent.
        if stored is not None and isinstance(stored.job.command, Continue) and _is_person(context, stored.job.actor):
            return stored.job.command.message
    # A review that requests changes of the commit from which the run went on.
    pull, continued = access.facts.pull, context.state.continues
    if not has_commit or (pull is not None and pull.author.id != (await reader.me()).id):
        return ""
    number = continued.number if continued is not None else pull.number if pull is not None else 0
    for review in reversed(await reader.reviews(repo, number) if number else ()):
        author = Actor(id=review.author.id, login=review.author.login)
        is_reviewed = (review.state, review.commit_sha) == ("CHANGES_REQUESTED", record.base_sha)
        is_known = is_reviewed and _is_person(context, author) and context.services.bounds.is_allowed_user(author.login)
        if is_known and can_command(await reader.role_of(repo, author.id, author.login)):
            parsed = parse_command(review.body, triggers=(job.trigger,))
            return review.body if parsed is None else getattr(parsed.command, "goal", "")
    return ""


def _is_person(context: JobContext, actor: Actor) -> bool:
    return not is_unattended(replace(context.job, actor=actor), context.services.bounds.trusted_bots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The branch that the rules are for."""

    repo: RepoFacts
    base: Source
    settings: RepoSettings
    dry_run: bool

    def at(self, branch: str, sha: str) -> Source:
        return replace(self.base, ref=f"refs/heads/{branch}", sha=sha)

    @property
    def base_branch(self) -> str:
        return self.base.ref.removeprefix("refs/heads/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """An instruction file and the lines of its rules."""

    path: str
    content: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A branch with rules.

    Attributes:
        before: the rules of the commit that it began with.
        pull: None if it is still to be opened.
        is_new: whether the branch is still to be created.
        is_stuck: whether it conflicts with its base branch.
        has_others: whether it changes other files.
    """

    branch: str
    head: str
    file: RuleFile
    before: tuple[str, ...]
    pull: PullFacts | None = None
    is_new: bool = False
    is_stuck: bool = False
    has_others: bool = False

    @property
    def own_rules(self) -> list[str]:
        return [line for line in self.file.rules if line not in self.before]


async def find_branches(context: JobContext, place: Place) -> list[Collection]:
    """Return the branches with rules, newest first, and last the next new one."""
    repo, github, prefix = place.repo, context.github, f"{context.branch_prefix}{_NAME}"
    me, collections = await github.accounts.me(), list[Collection]()
    names = (name.removeprefix(prefix) for name in await github.repos.list_branches(repo.full_name, prefix))
    numbers = sorted((int(name) for name in names if _NUMBER.fullmatch(name)), reverse=True)
    files = await context.services.workspaces.read_each(repo.id, place.base, INSTRUCTION_FILES, limit=MAX_BYTES)
    path = next((name for name, file in files.items() if isinstance(file, Blob)), "")
    path = path or next((name for name, file in files.items() if file is not None), INSTRUCTION_FILES[0])
    for number in numbers[:_MAX_BRANCHES]:
        branch = f"{prefix}{number}"
        pulls = await github.pulls.list_from(repo.full_name, branch, state="all")
        is_own = (pull for pull in pulls if (pull.author.id, pull.head_repo_id) == (me.id, repo.id))
        pull = next((pull for pull in is_own if (pull.state, pull.base_ref) == ("open", place.base_branch)), None)
        if pull is None and (pulls or number != numbers[0]):
            continue
        head = await github.repos.branch_head(repo.full_name, branch)
        collection = head and await _read_branch(context, place, branch, head, path)
        if collection and (pull is not None or not collection.has_others):
            collections.append(replace(collection, pull=pull))
    branch = f"{prefix}{numbers[0] + 1 if numbers else 1}"
    file = await _read(context, place, place.base, path)
    new = Collection(branch=branch, head=place.base.sha, file=file, before=file.rules, is_new=True)
    return [*collections, new]


async def _read_branch(context: JobContext, place: Place, branch: str, head: str, path: str) -> Collection:
    workspaces, repo_id = context.services.workspaces, place.repo.id
    comparison = await workspaces.compare(repo_id, place.base, place.at(branch, head))
    paths = {path for file in comparison.files for path in file.paths}
    path = next((name for name in INSTRUCTION_FILES if name in paths), path)
    fork = await _read(context, place, replace(place.base, sha=comparison.fork), path)
    merge = await workspaces.merge(repo_id, place.at(branch, head), place.base)
    return Collection(
        branch=branch,
        head=head,
        file=await _read(context, place, place.at(branch, head), path),
        before=fork.rules,
        is_stuck=merge is not None and bool(merge.conflicts),
        has_others=bool(paths - {path}),
    )


async def _read(context: JobContext, place: Place, source: Source, path: str) -> RuleFile:
    blob = (await context.services.workspaces.read_each(place.repo.id, source, (path,), limit=MAX_BYTES))[path]
    if isinstance(blob, WorkspaceError):  # a link, or too large
        raise RuleError(str(blob))
    try:
        content = "" if blob is None else blob.content.decode()
    except UnicodeDecodeError as error:
        raise RuleError(f"{code(path)} is not UTF-8, so I add nothing to it.") from error
    # A hostile text takes a while.
    return RuleFile(path=path, content=content, rules=tuple(await asyncio.to_thread(list_rules, content)))


async def publish_rules(context: JobContext, place: Place, target: Collection, lines: Sequence[str]) -> Published:
    """Add lines to the branch, and open its pull request if needed; RuleError if they do not fit."""
    job, repo = context.job, place.repo
    source = place.base if target.is_new else place.at(target.branch, target.head)
    commit_format = await read_format(context, place.settings)
    content = await asyncio.to_thread(add_rules, target.file.content, lines)
    async with context.services.workspaces.open(job.id, repo.id, source, has_files=False) as tree:
        change = await tree.edit(target.file.path, content.encode())
        title = commit_format.commit_title(_TITLE, fallback=_TITLE, change=change, number=job.thread.number)
        commit = CommitPlan(
            branch=target.branch,
            expected_head=source.sha,
            create_branch=target.is_new,
            title=title,
            body=commit_body(job, run_url=context.state.run_url, commit_format=commit_format),
            change=change,
        )
        file = replace(target.file, rules=(*target.file.rules, *lines))
        draft = draft_pull(context, place, replace(target, file=file), title) if target.pull is None else None
        publication = Publication(commit=commit, pull_request=draft)
        return await context.publish(publication, repo, tree, dry_run=place.dry_run)


def draft_pull(context: JobContext, place: Place, target: Collection, title: str) -> PullDraft:
    path, server, repo = target.file.path, context.services.server_url, place.repo.full_name
    text = describe_rules(target.own_rules, title=title, path=path, server=server, repo=repo)
    return PullDraft(base=place.base_branch, title=title, body=text.sealed.body, draft=False)


async def describe_pull(context: JobContext, place: Place, target: Collection, link: PullLink) -> None:
    """List the rules of the branch in the description; people's text only gains lines."""
    repo, described = place.repo.full_name, ""
    for _ in range(_TRIES):
        head = await context.github.repos.branch_head(repo, target.branch)
        if head is None or head == described:
            return
        file = await _read(context, place, place.at(target.branch, head), target.file.path)
        pull, described = await context.github.pulls.get(repo, link.number), head
        present = Description(title=pull.title, body=pull.body)
        current = replace(target, file=file)
        if present.unsealed is not None:
            body = draft_pull(context, place, current, pull.title).body
        else:
            body = "\n".join([pull.body.rstrip(), *(line for line in current.own_rules if line not in pull.body)])
        if not present.equals(Description(title=pull.title, body=body)):
            await context.github.pulls.describe(repo, link.number, title=None, body=body)


async def close_pull(context: JobContext, place: Place, old: Collection, new: PullLink) -> None:
    """Close a pull request whose rules another one has."""
    if old.pull is None:
        return
    text, body = Description(title=old.pull.title, body=old.pull.body).unsealed, None
    if text is not None:
        body = replace(text, body=f"**Continued in #{new.number}**, which has these rules.\n\n{text.body}").sealed.body
    await context.github.pulls.describe(place.repo.full_name, old.pull.number, title=None, body=body, closes=True)
