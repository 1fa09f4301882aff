"""Plans of publications: what is committed where, with which title and text, and what is held back.

`plan` decides about a change, `plan_undo` about the reversal of a commit. The names of branches, titles and bodies are
made of the job alone, so that a second attempt finds what the first one sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agent_runtime import Outcome, Status
from bot.domain.commands import Review, ReviewEvent
from bot.domain.job import Job
from bot.git.change import Change
from bot.github.types import PullDraft
from bot.permissions.levels import OWN_PREFIX, Grant
from bot.publishing.checks import Rerun, Verdict
from bot.publishing.markdown import COMMENT_LIMIT, Allowed, Own, clean, code, escape_markdown, one_line, sealed
from bot.publishing.render import RunReport
from bot.publishing.screening import Objection, cautions, is_large, objections, settings_of_checks, tests_cut
from bot.publishing.status_view import Withheld, WithheldCause


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


TITLE_LIMIT = 72
_MARK_ROOM = 200
# The patterns below take time that grows with the square of a line's length.
_SENTENCE_LIMIT = 500
_REVERT = 'Revert "'

_NARROWER = "Try again with a narrower goal, or ask the operator to raise the limit."
REMEDIES = {
    Status.PAUSED: "Allow such commands with `allow` in `.github/codepilot.yml` on the base branch, or with the "
    "action's input `allow-commands`. Answer a question in the text of a new command.",
    Status.MAX_STEPS: "Try again with a narrower goal, or ask the operator to raise `CODEPILOT_MAX_STEPS`.",
    Status.MAX_TOKENS: _NARROWER,
    Status.MAX_COST: _NARROWER,
    Status.TIMEOUT: _NARROWER,
    Status.REPEATED_CALLS: "Try again with more detail, or ask the operator to choose a stronger model.",
    Status.FORMAT_ERRORS: "Try again; if it happens again, ask the operator to choose a stronger model.",
    Status.INVALID_OUTPUT: "Try again, simplify the action's input `output-schema`, or choose a stronger model.",
    Status.FAILED: "Fix the cause, then give the same command again.",
    Status.SANDBOX_FAILED: "Fix the cause, or ask the operator to raise the limit; then try again.",
    Status.MODEL_UNAVAILABLE: "When the model service is available again, give the same command again.",
    Status.NETWORK_LOST: "Try again; if it happens again, use the network less, or ask the operator to read the "
    "bot's log.",
}
"""What to do about a run that did not finish, for the comment."""

FIX_CI = "fix-ci-"
"""How the branches that the bot makes to fix failing checks begin, behind the prefix of all of its branches."""
_ON: dict[ReviewEvent, str] = {"opened": "when opened", "ready": "when ready for review", "push": "after a push"}
_FOR_CI = "because checks failed"
MADE_FOR_CI = rf"^Codepilot job [a-z0-9]+, .*, {_FOR_CI}\.$"
"""The line of a commit's message that says so, as a pattern."""

_BRANCH = re.compile(r"(?:(?:issue|pull)-[1-9][0-9]{0,9}|branch|fix-ci)-[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}|[A-Za-z0-9-]{0,38}\[bot\])")
_CLOSING = re.compile(r"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+(?:[\w./-]*#\d+|https?://\S+)", re.IGNORECASE)
_REFERENCE = re.compile(
    r"\([^()]*(?:#\d|https?://)[^()]*\)|(?:[\w.-]+/[\w.-]+)?#\d+|\bGH-\d+|(?:https?://|www\.)\S+", re.IGNORECASE
)
_MARKUP = re.compile(r"^[\s>#*+-]+|^\d+[.)]\s+|[*`~]{1,3}(?=\S)|(?<=\S)[*`~]{1,3}|[<>\[\]]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|:\s*$")
_OPENING = re.compile(
    r"^(?:I(?:'ve| have)?|We(?:'ve| have)?|This (?:change|commit|patch))\s+(?:now\s+)?", re.IGNORECASE
)
_IMPERATIVE = {
    form: base
    for base, forms in {
        "Fix": ("fixed", "fixes", "fixing"),
        "Add": ("added", "adds", "adding"),
        "Remove": ("removed", "removes", "removing"),
        "Change": ("changed", "changes", "changing"),
        "Update": ("updated", "updates", "updating"),
        "Handle": ("handled", "handles", "handling"),
        "Make": ("made", "makes", "making"),
        "Use": ("used", "uses", "using"),
        "Correct": ("corrected", "corrects", "correcting"),
        "Replace": ("replaced", "replaces", "replacing"),
        "Rename": ("renamed", "renames", "renaming"),
        "Restore": ("restored", "restores", "restoring"),
        "Move": ("moved", "moves", "moving"),
        "Keep": ("kept", "keeps", "keeping"),
        "Return": ("returned", "returns", "returning"),
        "Raise": ("raised", "raises", "raising"),
        "Implement": ("implemented", "implements", "implementing"),
        "Refactor": ("refactored", "refactors", "refactoring"),
    }.items()
    for form in forms
}


def branch_name(job: Job, *, prefix: str = OWN_PREFIX, unfinished: bool = False, number: int = 1) -> str:
    """The branch that a job makes; it holds nothing that a stranger wrote.

    Args:
        job: whose it is.
        prefix: what it begins with.
        unfinished: whether the work on it is not finished.
        number: of those that fix the same run; the first bears the run's number alone.

    Raises:
        ValueError: the job's id cannot be in a branch name (a bug of ours).
    """
    thread = job.thread
    place = thread.kind if thread.kind == "branch" else f"{thread.kind}-{thread.number}"
    if thread.kind == "branch" and job.origin.kind == "ci":
        place = "fix-ci"
    unique = job.origin.id if is_named_by_run(job) else job.id
    name = f"{place}-{unique}{f'-{number}' if number > 1 else ''}{'-wip' if unfinished else ''}"
    if not _BRANCH.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid branch name; job ids are letters, digits, - and _")
    return f"{prefix}{name}"


def is_named_by_run(job: Job) -> bool:
    """Whether the branch of a job bears the number of the run that it fixes, as those of other jobs may, too."""
    return job.origin.kind == "ci" and job.thread.kind == "branch" and job.origin.id > 0  # other CI has no runs


def branch_prefix(job: Job, *, prefix: str = OWN_PREFIX) -> str:
    """What the names of all branches begin with that work in the job's thread makes."""
    return branch_name(job, prefix=prefix).removesuffix(job.id)


def commit_title(summary: str, *, fallback: str) -> str:
    """The summary's first sentence as a commit title: imperative, without Markdown, mentions or references."""
    first = next((line for line in clean(summary).splitlines() if re.search(r"\w", line)), "")
    flat = _REFERENCE.sub("", _CLOSING.sub("", _MARKUP.sub("", first[:_SENTENCE_LIMIT]))).replace("@", "")
    sentence = _SENTENCE_END.split(" ".join(flat.split()), maxsplit=1)[0].strip(" .,;:-")
    word, _, rest = _OPENING.sub("", sentence).partition(" ")
    title = f"{_IMPERATIVE.get(word.casefold(), word[:1].upper() + word[1:])} {rest}".strip()
    return one_line(title, TITLE_LIMIT) if re.search(r"\w", title) else fallback


def commit_body(job: Job, *, run_url: str = "", report: RunReport | None = None) -> str:
    """What follows the title: what is known of the change, its job and page; who asked is co-author, unless CI did."""
    known = f"\n\n{report.sentence}" if report and report.sentence else ""
    run = f"\n{run_url}" if run_url else ""
    if job.origin.kind == "ci":
        return f"Codepilot job {job.id}, {place_of(job)}, {_FOR_CI}.{run}{known}"
    actor, trailer = job.actor, ""
    # Whom GitHub names for the run of a workflow or a recipe asked for nothing.
    if job.origin.kind not in {"workflow", "recipe"} and _LOGIN.fullmatch(actor.login):
        # GitHub credits an account by this address without showing its real one:
        # https://docs.github.com/account-and-profile/setting-up-and-managing-your-personal-account-on-github/managing-email-preferences/setting-your-commit-email-address
        trailer = f"\n\nCo-authored-by: {actor.login} <{actor.id}+{actor.login}@users.noreply.github.com>"
    return f"Codepilot job {job.id}, {place_of(job)}.{run}{known}{trailer}"


def place_of(job: Job) -> str:
    """Where a job is, for titles and messages, which are no Markdown: `issue 7`, `branch main`."""
    thread = job.thread
    return f"branch {clean(thread.branch)}" if thread.kind == "branch" else f"{thread.kind} {thread.number}"


def undo_title(title: str) -> str:
    """The title of the commit that takes another one back, as git words it."""
    flat = _REFERENCE.sub("", clean(title)[:_SENTENCE_LIMIT]).replace("@", "").replace('"', "'")
    return f'Revert "{one_line(flat, TITLE_LIMIT - len(_REVERT) - 1)}"'


def undo_body(job: Job, sha: str, *, run_url: str = "") -> str:
    """What follows the title of a commit that takes the commit `sha` back."""
    return f"This reverts commit {sha}.\n\n{commit_body(job, run_url=run_url)}"


def pull_body(
    job: Job, summary: str, *, server: str, report: RunReport | None = None, notes: tuple[str, ...] = ()
) -> str:
    """The description of the pull request, with room for a mark; it closes the job's own issue and no other.

    Args:
        job: whose it is.
        summary: the agent's words.
        server: the GitHub server's address; links to it may stay.
        report: what the host saw of the run; it stands before the agent's words.
        notes: what a reader should look at twice.
    """
    asked = job.origin.kind != "ci"
    login = job.actor.login if asked and job.origin.kind != "recipe" else ""
    allowed = Allowed(login=login, number=job.thread.number, server=server, repo=job.repo.full_name)
    known = report.markdown if report else ""
    made = f"<sub>Made by Codepilot {f'for {asker_of(job)}' if asked else _FOR_CI} · job `{job.id}`</sub>"
    words = escape_markdown(summary, allowed)
    if words and report and report.verdict is not Verdict.VERIFIED:
        words = f"**What the agent says**\n\n{words}"
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
    body = "\n\n".join(filter(None, [known, words, *notes, link, made]))
    return sealed(body, allowed, Own(tags=True), limit=COMMENT_LIMIT - _MARK_ROOM)


def asker_of(job: Job) -> str:
    """Who asked for a job, as Markdown: a person, or the workflow whose file did."""
    if job.origin.kind == "workflow":
        return f"the workflow {code(job.origin.name)}" if job.origin.name else "a workflow"
    if job.origin.kind == "recipe":
        return f"the recipe {code(job.origin.name)}"
    return f"@{job.actor.login}"


def unasked_of(job: Job) -> str:
    """What a review is and which event asked for it, where nobody gave a command; else empty."""
    if not job.is_from_event or not isinstance(job.command, Review) or job.command.on is None:
        return ""
    return f"Review of this pull request, {_ON[job.command.on]}"
