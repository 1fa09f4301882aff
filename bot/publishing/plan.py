"""Plan publications: the branch, commit, title and text, or the reason to withhold.

Branch names and texts depend on the job alone, so that a retry finds a publication already sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial

from agent_runtime import Outcome, Status
from bot.domain.commands import Resolve, Review, ReviewEvent
from bot.domain.job import Job
from bot.git.change import Change
from bot.git.merge import Merge, explain
from bot.github.types import PullDraft
from bot.permissions.levels import BRANCH_PREFIX, Grant
from bot.publishing.checks import Rerun, Verdict
from bot.publishing.commit_format import TITLE_LIMIT, CommitFormat
from bot.publishing.description import Description
from bot.publishing.markdown import (
    COMMENT_LIMIT,
    Allowlist,
    BotMarkup,
    clean,
    code,
    defuse,
    escape_markdown,
    is_harmless,
    one_line,
)
from bot.publishing.outcome import Omission, OmissionCause
from bot.publishing.pull_template import fill_template
from bot.publishing.render import render_account
from bot.publishing.screening import (
    Objection,
    cautions,
    check_settings,
    escape_unseen,
    find_objections,
    format_names,
    is_large,
    reduced_tests,
)
from bot.publishing.status_view import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTarget:
    """Branches that a job's changes go to.

    Attributes:
        keep_unfinished: whether an unfinished run's work gets its own branch.
        merge: that the change goes on from; only the change is screened then, not what git merged.
        template: for descriptions of pull requests.
    """

    base_branch: str
    head_branch: str | None = None
    server: str
    prefix: str = BRANCH_PREFIX
    run_url: str = ""
    keep_unfinished: bool = False
    number: int = 1
    commit_format: CommitFormat = field(default_factory=CommitFormat)
    merge: Merge | None = None
    template: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """A commit to make; `change` is without the part that git merged, if there is a `merge`."""

    branch: str
    expected_head: str
    create_branch: bool
    title: str
    body: str
    change: Change
    merge: Merge | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        return (self.expected_head,) if self.merge is None else (self.merge.head, self.merge.base)

    @property
    def writes_workflows(self) -> bool:
        return self.change.writes_workflows or (self.merge is not None and self.merge.writes_workflows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The commit and pull request of one job; `blocked` may be published once a person approves.

    Attributes:
        account: the bot's own account of the run for reviewers, in Markdown.
    """

    commit: CommitPlan | None
    pull_request: PullDraft | None
    withheld: Omission | None = None
    blocked: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    account: str = ""


_UNFINISHED = {
    Status.PAUSED: "the run waits for a person",
    Status.STOPPED: "the run was stopped",
    Status.MAX_STEPS: "the run reached its step limit",
    Status.MAX_TOKENS: "the run reached its token limit",
    Status.MAX_COST: "the run reached its cost limit",
    Status.TIMEOUT: "the run reached its time limit",
    Status.REPEATED_CALLS: "the agent repeated the same calls",
    Status.FORMAT_ERRORS: "the model's replies could not be parsed",
    Status.INVALID_OUTPUT: "the result did not match the output schema",
    Status.FAILED: "the run failed",
    Status.SANDBOX_FAILED: "the sandbox failed",
    Status.MODEL_UNAVAILABLE: "the model service is unavailable",
    Status.NETWORK_LOST: "the sandbox lost its network",
    Status.ANSWERED: "the run ended with an answer, not with a finished task",
}
_READ_ONLY_GRANTS = frozenset({"nothing", "review", "description"})
_READ_ONLY = Omission(cause="read-only", reason="This run has no permission to push a commit.")
_APPROVAL_NOTE = "This requires a separate approval."
_OMISSION_NOTE = (
    "Nobody can approve this in a workflow run, so these files are unchanged, and everything else is published. The "
    "checks ran with the changed files in place."
)
_EXCESS_NOTE = (
    "These files exceed a limit, so they are unchanged, and everything else is published: {names}. The checks ran with "
    "the changed files in place."
)
_UNPROVEN = (
    "Nobody can approve this in a workflow run, and the failed command only passes with these files changed. Nothing "
    "was committed."
)
_PROVEN_WITH_EXCESS = "The failed command only passes with files changed that exceed a limit. Nothing was committed."
_WEAK = (
    "This proves little, so nothing was committed to your pull request; on a separate branch it would be a draft. "
    "Apply the patch if it is correct."
)

_NO_PROGRESS = Progress()
_DEFAULT_FORMAT = CommitFormat()


def plan_publication(
    job: Job,
    grant: Grant,
    outcome: Outcome,
    change: Change,
    target: CommitTarget,
    *,
    approved: frozenset[str] = frozenset(),
    exclusions: tuple[Objection, ...] = (),
    progress: Progress = _NO_PROGRESS,
    verdict: Verdict = Verdict.UNVERIFIED,
) -> Publication:
    """Plan the commit and pull request of a job, or withhold them.

    `approved` are the trees (`Change.tree_sha`) that a person approved, `exclusions` the objections to files already
    removed from the change in a run that cannot ask.

    Raises:
        ValueError: the grant is for a pull request branch that does not exist; a programming error.
    """
    merge, summary = target.merge, outcome.summary or ""
    if not change and merge is None:
        return Publication(commit=None, pull_request=None)
    # A change requested by failed CI must be proven to fix the failure.
    is_to_prove = job.origin.kind == "ci" and outcome.status is Status.FINISHED
    proof = (progress.rerun or Rerun()) if is_to_prove else None
    base = change.base_sha if merge is None else merge.head
    unresolved = _find_unresolved(merge, change, outcome) if merge is not None else None
    if withheld := _reason_to_withhold(grant, change, proof, exclusions, base=base) or unresolved:
        return Publication(commit=None, pull_request=None, withheld=withheld)
    blocked = find_objections(change if merge is None else merge.without_sides(change), grant.protected)
    if blocked and change.tree_sha not in approved:
        withheld = Omission(cause="needs-approval", reason=f"{_join_sentences(blocked)} {_APPROVAL_NOTE}")
        return Publication(commit=None, pull_request=None, withheld=withheld, blocked=blocked)
    approvals = [f"Approved by a person. {objection.sentence}" for objection in blocked]
    notes = (*(_proof_notes(proof, change) if proof else ()), *approvals, *cautions(change))
    if merge is not None:
        notes = (*merge_notes(merge, change, summary), *notes)
    if outcome.status is not Status.FINISHED:
        return _plan_wip(job, outcome.status, change, target, notes=notes)
    new = branch_name(job, prefix=target.prefix, number=target.number)
    branch = new if grant.publish == "new_branch" else target.head_branch
    if branch is None:
        raise ValueError(f"job {job.id} may write to its pull request's branch, but has none")
    title = target.commit_format.commit_title(summary, fallback=job_title(job), change=change, number=job.thread.number)
    commit = CommitPlan(
        branch=branch,
        expected_head=base,
        create_branch=grant.publish == "new_branch",
        title=title if merge is None else merge_title(merge.branch, branch),
        body=commit_body(job, run_url=target.run_url, verdict=verdict, commit_format=target.commit_format),
        change=change,
        merge=merge,
    )
    texts = [f"{_join_sentences(exclusions)} {_OMISSION_NOTE}"] if exclusions else []
    texts += [_EXCESS_NOTE.format(names=format_names(names))] if (names := change.exclusions.omitted) else []
    account = render_account(progress, verdict, partial=bool(texts))
    withheld = Omission(cause="left-out", reason=" ".join(texts)) if texts else None
    publication = Publication(
        commit=commit, pull_request=None, withheld=withheld, notes=notes, verdict=verdict, account=account
    )
    if not commit.create_branch:
        return publication
    doubtful = _is_weak_proof(proof, change) or bool(blocked or texts) or verdict is not Verdict.VERIFIED
    missing = (f"Withheld, because nobody could approve it in the run: {objection.names}." for objection in exclusions)
    describe = partial(pull_body, job, summary, server=target.server, template=target.template)
    body = describe(account=account, verdict=verdict, notes=(*missing, *notes))
    request = PullDraft(base=target.base_branch, title=commit.title, body=body, draft=is_large(change) or doubtful)
    return replace(publication, pull_request=request)


def add_marks(publication: Publication, marker: str) -> Publication:
    """Add the marks of the job, if any, and of the text to the description of a new pull request."""
    request = publication.pull_request
    if request is None:
        return publication
    text = Description(title=request.title, body=f"{request.body}\n\n{marker}".rstrip())
    return replace(publication, pull_request=replace(request, body=text.sealed.body))


def withhold(publication: Publication, cause: OmissionCause, reason: str) -> Publication:
    earlier = publication.withheld.reason if publication.withheld else ""
    withheld = Omission(cause=cause, reason=f"{earlier} {reason}".strip())
    return replace(publication, commit=None, pull_request=None, withheld=withheld)


def _join_sentences(objections: tuple[Objection, ...]) -> str:
    return " ".join(objection.sentence for objection in objections)


def _find_unresolved(merge: Merge, change: Change, outcome: Outcome) -> Omission | None:
    if change.exclusions.omitted:  # a part of a merge is none
        return Omission(cause="too-large", reason=" ".join(change.notes))
    problems = merge.find_problems(change, outcome.summary or "") if outcome.status is Status.FINISHED else ()
    return Omission(cause="conflicts", reason=" ".join(problems)) if problems else None


_MAX_DEVIATIONS = 4
"""Notes about one file each."""


def merge_title(base: str, branch: str) -> str:
    return one_line(f"Merge branch '{clean(base)}' into {clean(branch)}", TITLE_LIMIT)


def merge_notes(merge: Merge, change: Change, completion: str) -> tuple[str, ...]:
    """Return a note on the merge, and one for each file that is not as git would have merged it."""
    conflicts = ", ".join(f"{code(escape_unseen(conflict.paths[0]))} ({conflict.kind})" for conflict in merge.conflicts)
    paths = merge.find_deviations(change)
    deviating = []
    for path in paths[:_MAX_DEVIATIONS]:
        reason = explain(path, completion).removeprefix(f"`{path}`").removeprefix(path).lstrip(" :")
        deviating.append(f"{code(escape_unseen(path))} had no conflict and is not as git merged it: {reason}")
    if rest := paths[_MAX_DEVIATIONS:]:
        deviating.append(
            f"Nor are these, for the reasons above: {', '.join(code(escape_unseen(path)) for path in rest)}."
        )
    merged = f"Merged {code(merge.branch)} at {merge.base[:10]}. Conflicts: {conflicts}."
    return (f"{merged} Changed lines are counted from git's own merge, with its markers.", *deviating)


def plan_merge(
    job: Job,
    grant: Grant,
    merge: Merge,
    *,
    branch: str,
    run_url: str = "",
    refusal: str = "",
    commit_format: CommitFormat = _DEFAULT_FORMAT,
) -> Publication:
    """Plan the commit of a merge without conflicts, unless it is refused."""
    if refusal or grant.publish in _READ_ONLY_GRANTS:
        withheld = Omission(cause="refused", reason=refusal) if refusal else _READ_ONLY
        return Publication(commit=None, pull_request=None, withheld=withheld)
    commit = CommitPlan(
        branch=branch,
        expected_head=merge.head,
        create_branch=False,
        title=merge_title(merge.branch, branch),
        body=commit_body(job, run_url=run_url, commit_format=commit_format),
        change=Change(base_sha=merge.commit, tree_sha=merge.tree, files=(), patch=""),
        merge=merge,
    )
    return Publication(commit=commit, pull_request=None)


def plan_undo(
    job: Job,
    grant: Grant,
    change: Change,
    *,
    branch: str,
    sha: str,
    title: str,
    run_url: str = "",
    commit_format: CommitFormat = _DEFAULT_FORMAT,
) -> Publication:
    """Plan the revert of a commit of the bot's, given by id and title, on the same branch."""
    if grant.publish in _READ_ONLY_GRANTS:
        return Publication(commit=None, pull_request=None, withheld=_READ_ONLY)
    if not change:
        reason = f"Commit {sha[:10]} cannot be reverted: later commits have changed all of it."
        return Publication(commit=None, pull_request=None, withheld=Omission(cause="no-reversal", reason=reason))
    commit = CommitPlan(
        branch=branch,
        expected_head=change.base_sha,
        create_branch=False,
        title=commit_format.undo_title(title),
        body=f"This reverts commit {sha}.\n\n{commit_body(job, run_url=run_url, commit_format=commit_format)}",
        change=change,
    )
    return Publication(commit=commit, pull_request=None)


def _plan_wip(job: Job, status: Status, change: Change, target: CommitTarget, *, notes: tuple[str, ...]) -> Publication:
    because = _UNFINISHED[status]
    # A paused run continues from its own workspace.
    if not target.keep_unfinished or status is Status.PAUSED:
        withheld = Omission(cause="unfinished", reason=f"{because[:1].upper()}{because[1:]}.")
        return Publication(commit=None, pull_request=None, withheld=withheld)
    commit = CommitPlan(
        branch=branch_name(job, prefix=target.prefix, unfinished=True, number=target.number),
        expected_head=change.base_sha,
        create_branch=True,
        title=target.commit_format.commit_title(
            "", fallback=one_line(f"Keep unfinished work on {thread_label(job)}", TITLE_LIMIT), number=job.thread.number
        ),
        body=commit_body(job, run_url=target.run_url, commit_format=target.commit_format),
        change=change,
    )
    reason = f"There is no pull request, because {because}. The work so far is on the branch {code(commit.branch)}."
    withheld = Omission(cause="unfinished", reason=reason)
    return Publication(commit=commit, pull_request=None, withheld=withheld, notes=notes)


def _is_weak_proof(proof: Rerun | None, change: Change) -> bool:
    """Whether the passing check may test less than the failing one did."""
    return proof is not None and (proof.is_unrelated or bool(reduced_tests(change)))


def _proof_notes(proof: Rerun, change: Change) -> tuple[str, ...]:
    tests, settings = reduced_tests(change), check_settings(change)
    warnings = (
        f"**Review the tests first:** the change removes lines from {tests}, and a check that tests less can pass, too."
        if tests
        else "",
        f"It changes checks or their settings: {settings}. Make sure that they still check the same things."
        if settings
        else "",
    )
    return (proof.sentence, *filter(None, warnings))


def _reason_to_withhold(
    grant: Grant, change: Change, proof: Rerun | None, exclusions: tuple[Objection, ...], *, base: str
) -> Omission | None:
    if grant.publish in _READ_ONLY_GRANTS:
        return _READ_ONLY
    if base != grant.bound_to_sha:
        granted, actual = grant.bound_to_sha[:10], base[:10]
        reason = f"The permission was given for commit {granted}, but the work was done on {actual}."
        return Omission(cause="other-commit", reason=reason)
    if change.exclusions.withheld:
        return Omission(cause="too-large", reason=change.exclusions.withheld)
    return None if proof is None else _reject_proof(proof, grant, change, exclusions)


def _reject_proof(proof: Rerun, grant: Grant, change: Change, removed: tuple[Objection, ...]) -> Omission | None:
    if not proof.is_proven:
        return Omission(cause="unproven", reason=proof.sentence)
    if removed:
        return Omission(cause="unproven", reason=f"{_join_sentences(removed)} {_UNPROVEN}")
    if change.exclusions.omitted:
        return Omission(cause="unproven", reason=f"{_PROVEN_WITH_EXCESS} {' '.join(change.notes)}")
    if _is_weak_proof(proof, change) and grant.publish != "new_branch":
        return Omission(cause="weak-proof", reason=" ".join((*_proof_notes(proof, change), _WEAK)))
    return None


_MARKER_ROOM = 200

_NARROWER = "Try again with a narrower goal, or ask the operator to raise the limit."
_REMEDIES = {
    Status.PAUSED: "Allow such commands with `allow` in `.github/codepilot.yml` on the base branch, or with the "
    "action's input `allow-commands`. Answer a question in the text of a new command.",
    Status.MAX_STEPS: "Try again with a narrower goal, or ask the operator to raise `CODEPILOT_MAX_STEPS`.",
    Status.MAX_TOKENS: _NARROWER,
    Status.MAX_COST: _NARROWER,
    Status.TIMEOUT: _NARROWER,
    Status.REPEATED_CALLS: "Try again with more detail, or ask the operator to choose a stronger model.",
    Status.FORMAT_ERRORS: "Try again; if it happens again, ask the operator to choose a stronger model.",
    Status.INVALID_OUTPUT: "Try again, simplify the action's input `output-schema`, or choose a stronger model.",
    Status.FAILED: "Ask the operator to read the bot's log, then give the same command again.",
    Status.SANDBOX_FAILED: "Ask the operator to read the bot's log or to raise the limit, then try again.",
    Status.MODEL_UNAVAILABLE: "When the model service is available again, give the same command again.",
    Status.NETWORK_LOST: "Try again; if it happens again, use the network less, or ask the operator to read the "
    "bot's log.",
}
"""Advice for a run that did not finish."""

_ADVICE = re.compile(r"(?<=[.)] )(?:Check|Choose|Give|Raise|Rephrase|Set|Top it up|Try again)\b.*", re.DOTALL)


def explain_end(run: Outcome) -> tuple[str, str]:
    """Return why a run did not finish, and the advice for it, which an error has at the end of its text."""
    reason = run.reason or ""
    advice = _ADVICE.search(reason) if run.status in {Status.FAILED, Status.FORMAT_ERRORS} else None
    if advice is None:
        return reason, _REMEDIES.get(run.status, "")
    again = " Then give the same command again." if run.status is Status.FAILED else ""
    return reason[: advice.start()].rstrip(), f"{advice[0]}{again}"


FIX_CI_PREFIX = "fix-ci-"
"""Prefix of branches that fix failed checks, after the prefix of all branches."""
_EVENTS: dict[ReviewEvent, str] = {"opened": "when opened", "ready": "when ready for review", "push": "after a push"}
_FOR_CI = "because checks failed"
CI_COMMIT_PATTERN = rf"^Codepilot job [a-z0-9]+, .*, {_FOR_CI}\.$"
"""Pattern of the commit message line that names failed checks as the cause."""

_BRANCH = re.compile(r"(?:(?:issue|pull)-[1-9][0-9]{0,9}|branch|fix-ci)-[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}|[A-Za-z0-9-]{0,38}\[bot\])")


def branch_name(job: Job, *, prefix: str = BRANCH_PREFIX, unfinished: bool = False, number: int = 1) -> str:
    """Return the name of a job's branch, free of untrusted text; only a `number` above 1 adds a suffix.

    Raises:
        ValueError: the job's id is not valid in a branch name; a programming error.
    """
    thread = job.thread
    kind = thread.kind if thread.kind == "branch" else f"{thread.kind}-{thread.number}"
    if thread.kind == "branch" and job.origin.kind == "ci":
        kind = "fix-ci"
    unique = job.origin.id if is_named_by_run(job) else job.id
    name = f"{kind}-{unique}{f'-{number}' if number > 1 else ''}{'-wip' if unfinished else ''}"
    if not _BRANCH.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid branch name; job ids are letters, digits, - and _")
    return f"{prefix}{name}"


def is_named_by_run(job: Job) -> bool:
    return job.origin.kind == "ci" and job.thread.kind == "branch" and job.origin.id > 0  # other CI has no runs


def branch_prefix(job: Job, *, prefix: str = BRANCH_PREFIX) -> str:
    return branch_name(job, prefix=prefix).removesuffix(job.id)


_COMMIT_SENTENCES = {
    Verdict.VERIFIED: "The agent's checks passed.",
    Verdict.UNVERIFIED: "Not verified: no check is known to pass on this change.",
    Verdict.RED: "The agent's checks fail on this change.",
    Verdict.UNCHANGED: "",
    Verdict.SETUP_FAILED: "Setup failed before the agent started.",
}


def commit_body(
    job: Job, *, run_url: str = "", verdict: Verdict | None = None, commit_format: CommitFormat = _DEFAULT_FORMAT
) -> str:
    sentence = _COMMIT_SENTENCES[verdict] if verdict else ""
    cause, actor, co_author = "", job.actor, ""
    if job.origin.kind == "ci":
        cause = f", {_FOR_CI}"
    # The actor of a workflow or recipe run did not request the change.
    elif job.origin.kind not in {"workflow", "recipe", "event"} and _LOGIN.fullmatch(actor.login):
        # GitHub credits an account by this address without showing its real one:
        # https://docs.github.com/account-and-profile/setting-up-and-managing-your-personal-account-on-github/managing-email-preferences/setting-your-commit-email-address
        co_author = f"{actor.login} <{actor.id}+{actor.login}@users.noreply.github.com>"
    lines = "\n".join(filter(None, [f"Codepilot job {job.id}, {thread_label(job)}{cause}.", run_url]))
    trailers = "\n".join(commit_format.trailer_lines(co_author, job.thread.number))
    return "\n\n".join(filter(None, [lines, sentence, trailers]))


def job_title(job: Job) -> str:
    """Return the title of a commit whose run names none."""
    return one_line(f"Address {thread_label(job)}", TITLE_LIMIT)


def thread_label(job: Job) -> str:
    thread = job.thread
    return f"branch {clean(thread.branch)}" if thread.kind == "branch" else f"{thread.kind} {thread.number}"


def pull_body(
    job: Job,
    summary: str,
    *,
    server: str,
    account: str = "",
    verdict: Verdict | None = None,
    notes: tuple[str, ...] = (),
    template: str = "",
) -> str:
    """Return the pull request description, with room for a marker; it closes only the job's own issue.

    Links to `server` are allowed. The bot's account precedes the agent's summary, or follows the template.
    """
    manual = job.origin.kind != "ci"
    login = job.actor.login if manual and job.origin.kind != "recipe" else ""
    allowed = Allowlist(login=login, number=job.thread.number, server=server, repo=job.repo.full_name)
    made = f"Made by Codepilot {f'for {requester_of(job)}' if manual else _FOR_CI}"
    footer = f"<sub>{made} · job `{job.id}` · as of the first commit</sub>"
    text = escape_markdown(summary, allowed)
    if text and verdict not in {None, Verdict.VERIFIED}:
        text = f"**What the agent says**\n\n{text}"
    thread = job.thread
    link = {
        "issue": f"Fixes #{thread.number}",
        "pull": f"For #{thread.number}",
        "branch": f"For the branch {code(thread.branch)}",
    }[thread.kind]
    if job.origin.kind == "ci" and thread.kind == "branch":
        name = code(one_line(job.origin.name or "CI", TITLE_LIMIT))
        if job.origin.url.startswith(f"{server}/{job.repo.full_name}/"):
            name = f"[{name}]({job.origin.url})"
        link = f"{name} failed on the branch {code(thread.branch)} at {job.head_sha[:10]}."
    markup, limit = BotMarkup(tags=True), COMMENT_LIMIT - _MARKER_ROOM
    if filled := fill_template(template, "\n\n".join(filter(None, [text, *notes, link])), allowed):
        body = "\n\n".join(filter(None, [filled, "---", account, footer]))
        if len(body) <= limit and is_harmless(body, allowed, markup):
            return body
    body = "\n\n".join(filter(None, [account, text, *notes, link, footer]))
    return defuse(body, allowed, markup, limit=limit)


def requester_of(job: Job) -> str:
    if job.origin.kind == "workflow":
        return f"the workflow {code(job.origin.name)}" if job.origin.name else "a workflow"
    if job.origin.kind == "recipe":
        return f"the recipe {code(job.origin.name)}"
    return f"@{job.actor.login}"


def event_label(job: Job) -> str:
    """Return the event that started a job without a command; empty for another job."""
    if job.is_from_event and isinstance(job.command, Resolve):
        return "Conflict with the base branch"
    if not job.is_from_event or not isinstance(job.command, Review) or job.command.on is None:
        return ""
    return f"Review of this pull request, {_EVENTS[job.command.on]}"
