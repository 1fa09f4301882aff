"""The words of branches, commits and pull requests: the host's own, with the model's text made inert. Pure."""

from __future__ import annotations

import re

from agent_runtime import Status
from bot.domain.commands import Review, ReviewEvent
from bot.domain.job import Job
from bot.gate.conventions import OWN_PREFIX
from bot.publishing.inert import Allowed, escape_markdown
from bot.publishing.live import Own, sealed
from bot.publishing.proof import RunReport
from bot.publishing.text import COMMENT_LIMIT, clean, code, one_line
from bot.publishing.verdict import Verdict

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
    if not job.is_unasked or not isinstance(job.command, Review) or job.command.on is None:
        return ""
    return f"Review of this pull request, {_ON[job.command.on]}"
