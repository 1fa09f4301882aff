"""Plan everything that will be sent from an outcome and a change, before anything is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_runtime import Outcome, Status
from bot.domain.job import Job
from bot.gate.conventions import OWN_PREFIX
from bot.gate.permissions import Grant
from bot.github.drafts import PullDraft
from bot.publishing.proof import RunReport
from bot.publishing.rerun import Rerun
from bot.publishing.screening import Objection, cautions, is_large, objections, settings_of_checks, tests_cut
from bot.publishing.text import code, one_line
from bot.publishing.verdict import Verdict
from bot.publishing.withheld import Withheld, WithheldCause
from bot.publishing.wording import (
    TITLE_LIMIT,
    branch_name,
    commit_body,
    commit_title,
    place_of,
    pull_body,
    undo_body,
    undo_title,
)
from bot.workspace.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTarget:
    """Where changes of a job go, and what their texts link to.

    Attributes:
        base_branch: what a new pull request is to be merged into.
        head_branch: the branch of the pull request that the job belongs to or continues in; None for a new one.
        server: the GitHub server's address, e.g. `https://github.com`; links to it may stay.
        prefix: what the name of a new branch begins with.
        run_url: the page of the run, for the commit's message.
        keep_unfinished: whether the work of a run that did not finish goes to a branch of its own.
        number: of a new branch, where earlier jobs made others by the same name.
    """

    base_branch: str
    head_branch: str | None = None
    server: str
    prefix: str = OWN_PREFIX
    run_url: str = ""
    keep_unfinished: bool = False
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """One commit to make.

    Attributes:
        branch: where it goes.
        expected_head: the branch must stand here, else nothing is written.
        create_branch: whether the branch is made first, at `expected_head`.
        title: the commit's first line, at most 72 characters.
        body: the rest of the message.
        change: what it holds.
    """

    branch: str
    expected_head: str
    create_branch: bool
    title: str
    body: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Everything that one job sends, besides the comment, which needs what GitHub answers to these.

    Attributes:
        commit: the commit, or None when nothing changed or nothing may be published.
        pull_request: the pull request, or None.
        withheld: what is not published, and why; None when everything is.
        blocked: what a person may approve, so that it is published after all.
        notes: what a reader should look at twice, sentences for the comment.
        report: what the host saw of the run.
    """

    commit: CommitPlan | None
    pull_request: PullDraft | None
    withheld: Withheld | None = None
    blocked: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()
    report: RunReport | None = None


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
_SILENT = frozenset({"nothing", "review"})
_READS = Withheld(cause="read-only", reason="This command may only read, not write.")
_LEFT_OUT = (
    "Nobody can approve this in a workflow run, so these files are unchanged, and everything else is published. The "
    "checks ran with the changed files in place."
)
_UNPROVEN = (
    "Nobody can approve this in a workflow run, and the failed command only passes with these files changed. Nothing "
    "was committed."
)
_WEAK = (
    "This proves little, so nothing was committed to your pull request; on a separate branch it would be a draft. "
    "Apply the patch if it is correct."
)

_NOTHING_SEEN = RunReport()


def plan(
    job: Job,
    grant: Grant,
    outcome: Outcome,
    change: Change,
    to: CommitTarget,
    *,
    approved: frozenset[str] = frozenset(),
    left_out: tuple[Objection, ...] = (),
    report: RunReport = _NOTHING_SEEN,
) -> Publication:
    """Decide what is published.

    Args:
        job: who asked for it, and where.
        grant: where a change may go, and the commit that this was decided for.
        outcome: how the run ended.
        change: what the agent changed.
        to: where it goes.
        approved: the trees (`Change.tree_sha`) that a person looked at and approved, whatever they touch.
        left_out: why files were taken out of the change before, where nobody could approve them.
        report: what the host saw of the run: what is not verified is a draft.

    Raises:
        ValueError: the grant is for the pull request's branch and there is none (a bug of ours).
    """
    if not change:
        return Publication(commit=None, pull_request=None)
    # Of a change that nobody but CI asked for it has to be proven that it fixes what failed.
    is_to_prove = job.origin.kind == "ci" and outcome.status is Status.FINISHED
    proof = (report.rerun or Rerun()) if is_to_prove else None
    if withheld := _reason_to_withhold(grant, change, proof, left_out):
        return Publication(commit=None, pull_request=None, withheld=withheld)
    found = objections(change, grant.protected)
    if found and change.tree_sha not in approved:
        words = " ".join(each.words for each in found)
        withheld = Withheld(cause="needs-approval", reason=f"{words} This requires a separate approval.")
        return Publication(commit=None, pull_request=None, withheld=withheld, blocked=found)
    approvals = [f"Approved by a person. {each.words}" for each in found]
    notes = (*(_proof_notes(proof, change) if proof else ()), *approvals, *cautions(change))
    if outcome.status is not Status.FINISHED:
        return _unfinished(job, outcome.status, change, to, notes=notes)
    new = branch_name(job, prefix=to.prefix, number=to.number)
    branch = new if grant.publish == "new_branch" else to.head_branch
    if branch is None:
        raise ValueError(f"job {job.id} may write to its pull request's branch, but has none")
    commit = CommitPlan(
        branch=branch,
        expected_head=change.base_sha,
        create_branch=grant.publish == "new_branch",
        title=commit_title(outcome.summary or "", fallback=one_line(f"Address {place_of(job)}", TITLE_LIMIT)),
        body=commit_body(job, run_url=to.run_url, report=report),
        change=change,
    )
    words = f"{' '.join(each.words for each in left_out)} {_LEFT_OUT}"
    withheld = Withheld(cause="left-out", reason=words) if left_out else None
    if not commit.create_branch:
        return Publication(commit=commit, pull_request=None, withheld=withheld, notes=notes, report=report)
    missing = (f"Withheld, because nobody could approve it in the run: {each.names}." for each in left_out)
    body = pull_body(job, outcome.summary or "", server=to.server, report=report, notes=(*missing, *notes))
    doubtful = _is_weak(proof, change) or bool(found or left_out) or report.verdict is not Verdict.VERIFIED
    request = PullDraft(base=to.base_branch, title=commit.title, body=body, draft=is_large(change) or doubtful)
    return Publication(commit=commit, pull_request=request, withheld=withheld, notes=notes, report=report)


def marked(publication: Publication, marker: str) -> Publication:
    """With the job's mark in the description of its pull request, by which a later job of the issue knows it again."""
    request = publication.pull_request
    if request is None:
        return publication
    return replace(publication, pull_request=replace(request, body=f"{request.body}\n\n{marker}"))


def held_back(publication: Publication, cause: WithheldCause, why: str) -> Publication:
    """The publication without anything that is sent.

    Args:
        publication: what would be sent otherwise. It may already say why a part of it is not.
        cause: names the rule that holds it back.
        why: the same for the comment, after what is said already.
    """
    said = publication.withheld.reason if publication.withheld else ""
    withheld = Withheld(cause=cause, reason=f"{said} {why}".strip())
    return replace(publication, commit=None, pull_request=None, withheld=withheld)


def plan_undo(
    job: Job, grant: Grant, change: Change, *, branch: str, undone: str, title: str, run_url: str = ""
) -> Publication:
    """The publication that takes a commit of the bot's back, by a new one on the same branch.

    What protects files does not hold here: what was there before stands again.

    Args:
        job: who asked for it, and where.
        grant: whether a change may go anywhere.
        change: the commit's reversal.
        branch: where the commit is.
        undone: the commit's id.
        title: its title.
        run_url: the page of the run.
    """
    if grant.publish in _SILENT:
        return Publication(commit=None, pull_request=None, withheld=_READS)
    if not change:
        nothing = f"Commit {undone[:10]} cannot be reverted: later commits have changed all of it."
        return Publication(commit=None, pull_request=None, withheld=Withheld(cause="no-reversal", reason=nothing))
    commit = CommitPlan(
        branch=branch,
        expected_head=change.base_sha,
        create_branch=False,
        title=undo_title(title),
        body=undo_body(job, undone, run_url=run_url),
        change=change,
    )
    return Publication(commit=commit, pull_request=None)


def _unfinished(job: Job, status: Status, change: Change, to: CommitTarget, *, notes: tuple[str, ...]) -> Publication:
    because = _UNFINISHED[status]
    # A run that waits goes on from its own files.
    if not to.keep_unfinished or status is Status.PAUSED:
        withheld = Withheld(cause="unfinished", reason=f"{because[:1].upper()}{because[1:]}.")
        return Publication(commit=None, pull_request=None, withheld=withheld)
    commit = CommitPlan(
        branch=branch_name(job, prefix=to.prefix, unfinished=True, number=to.number),
        expected_head=change.base_sha,
        create_branch=True,
        title=one_line(f"Keep unfinished work on {place_of(job)}", TITLE_LIMIT),
        body=commit_body(job, run_url=to.run_url),
        change=change,
    )
    reason = f"There is no pull request, because {because}. The work so far is on the branch {code(commit.branch)}."
    withheld = Withheld(cause="unfinished", reason=reason)
    return Publication(commit=commit, pull_request=None, withheld=withheld, notes=notes)


def _is_weak(proof: Rerun | None, change: Change) -> bool:
    """Whether what passes may be less than what failed."""
    return proof is not None and (proof.other or bool(tests_cut(change)))


def _proof_notes(proof: Rerun, change: Change) -> tuple[str, ...]:
    """What is proven, and why it may be less than it looks: a check that tests less passes, too."""
    cut, settings = tests_cut(change), settings_of_checks(change)
    doubts = (
        f"**Review the tests first:** the change removes lines from {cut}, and a check that tests less can pass, too."
        if cut
        else "",
        f"It changes checks or their settings: {settings}. Make sure that they still check the same things."
        if settings
        else "",
    )
    return (proof.sentence, *filter(None, doubts))


def _reason_to_withhold(
    grant: Grant, change: Change, proof: Rerun | None, left_out: tuple[Objection, ...]
) -> Withheld | None:
    if grant.publish in _SILENT:
        return _READS
    if change.base_sha != grant.bound_to_sha:
        meant, done = grant.bound_to_sha[:10], change.base_sha[:10]
        reason = f"The permission was given for commit {meant}, but the work was done on {done}."
        return Withheld(cause="other-commit", reason=reason)
    if proof is not None and not proof.proven:
        return Withheld(cause="unproven", reason=proof.sentence)
    if proof is not None and left_out:
        return Withheld(cause="unproven", reason=f"{' '.join(each.words for each in left_out)} {_UNPROVEN}")
    if proof is not None and _is_weak(proof, change) and grant.publish != "new_branch":
        return Withheld(cause="weak-proof", reason=" ".join((*_proof_notes(proof, change), _WEAK)))
    return None
