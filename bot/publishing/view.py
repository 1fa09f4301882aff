"""The content of the status comment, raw; `render.py` makes it Markdown, and harmless. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_runtime import Usage
from bot.publishing.inert import Allowed
from bot.publishing.verdict import Check, Verdict
from bot.workspace.change import FileChange

__all__ = ["Activity", "CandidateView", "Check", "DeniedCall", "PendingView", "State", "StatusView", "Verdict"]

State = Literal["queued", "working", "waiting", "parked", "done", "stopped", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that the agent did or does, e.g. `read src/app.py`."""

    label: str
    state: Literal["doing", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCall:
    """A call that needed a person, in a run that can ask nobody.

    Attributes:
        tool: the tool's name, e.g. `execute`.
        asked: what it would have done, as text: the command, the question.
        reason: why it needed a person.
        setting: what would allow it: `allow-commands` (an input of the Action, and `allow` in the repository's file),
            `level` (an input, and a key of that file), `label` where neither counts, or `label-off` where a label
            lowers the level, whatever these say; empty for a question.
        value: of that setting, e.g. the pattern of the command.
    """

    tool: str
    asked: str
    reason: str
    setting: Literal["allow-commands", "level", "label", "label-off", ""] = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """One of several attempts at a fix.

    Attributes:
        number: from 1.
        ended: how its run ended, e.g. `finished`.
        verdict: what the host saw of it.
        files: how many files it changed.
        lines: how many lines it added and removed; None where that is not known.
        steps: model replies.
        usage: tokens and money.
        summary: what the agent says of it.
        taken: whether its change became the job's.
    """

    number: int
    ended: str
    verdict: Verdict
    files: int
    lines: int | None
    steps: int
    usage: Usage
    summary: str
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingView:
    """What waits for a person.

    Attributes:
        kind: a call that needs a permission, a question, a change that needs an approval to be published, or a plan.
        request_id: names it.
        trigger: the word that answers begin with.
        reason: why it waits; for a question, the question.
        preview: what would happen, whole: a diff or a command; may be empty.
        parts: the pages of the comments that show it, where it does not fit into the job's own.
        language: of the preview, e.g. `diff` or `bash`.
        like: patterns of what an approval of others like it would allow, too; empty where there is none.
        expires: until when it can be answered, e.g. `25 November 2026, 05:00 UTC`.
    """

    kind: Literal["permission", "question", "publication", "plan"]
    request_id: str
    trigger: str
    reason: str = ""
    preview: str = ""
    parts: tuple[str, ...] = ()
    language: Literal["diff", "bash", ""] = ""
    like: tuple[str, ...] = ()
    expires: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """Everything that the comment says, raw; rendering makes it harmless.

    Attributes:
        state: where the job stands.
        asked: the command as it was given, e.g. `/codepilot fix`.
        allowed: who asked, in which thread, on which server.
        job_id: for the log.
        marker: from `marker.marker`.
        seconds: since the command was given.
        at: when this was so, in seconds since the epoch; 0 where that is not told.
        stop: the command that stops it while it works; empty where none can be given.
        asker: who asked, as Markdown, where it was not the person in `allowed`.
        unasked: what is done and on which event, where nobody gave a command, e.g. `Review of this pull request, on
            push`; empty for red CI, too.
        verdict: what the run came to, for one that is `done` and was to change or to test something, or whose setup
            failed; None for all others.
        setup_failed: the setup command that failed before the agent started, and how.
        failed: the workflow or the check whose failure began the job, when nobody asked; empty when somebody did.
        failed_url: its page; may be empty.
        run_url: the page of the run, e.g. the check run's or the workflow's.
        pending: what waits for a person.
        activities: what the agent did, oldest first.
        completion: the agent's final text.
        reason: why it failed, stopped or was refused.
        remedy: what to do about that.
        withheld: what was not published, and why.
        withheld_diff: what that is, whole, as a diff; empty where it cannot be shown.
        partial: whether everything else was published, without a check on it alone.
        kept: where the work is that was not published, and for how long.
        would: for a dry run: what would have been sent.
        warning: what went wrong and did not end the job.
        notes: what else to know, a sentence or two each: an option that was reduced, a label that no longer counts.
        files: what changed.
        checks: commands the agent ran whose exit codes say whether something is right, oldest first.
        denied: calls that needed a person where nobody could be asked, oldest first.
        attempts: for a fix with candidates: all of them.
        commit_sha: of the commit that was made.
        commit_url: its page.
        pull_number: of the pull request that was opened.
        pull_url: its page.
        pull_draft: whether it is a draft.
        review_url: the page of the review that was made.
        wip_url: the page that shows unfinished work on a branch of its own.
        ci_note: that no checks begin by themselves on what was pushed, and how to begin them.
        steps: model replies so far.
        usage: tokens and money, or None before the first reply.
        model: which model worked.
        sandbox: the level the agent's commands ran at, e.g. `bubblewrap, no network`.
        level: how much the run might do unasked, e.g. `ask`.
    """

    state: State
    asked: str
    allowed: Allowed
    job_id: str
    marker: str
    seconds: float
    at: float = 0.0
    stop: str = ""
    asker: str = ""
    unasked: str = ""
    verdict: Verdict | None = None
    setup_failed: str = ""
    failed: str = ""
    failed_url: str = ""
    run_url: str = ""
    pending: PendingView | None = None
    activities: tuple[Activity, ...] = ()
    completion: str | None = None
    reason: str = ""
    remedy: str = ""
    withheld: str = ""
    withheld_diff: str = ""
    partial: bool = False
    kept: str = ""
    would: str = ""
    warning: str = ""
    notes: tuple[str, ...] = ()
    files: tuple[FileChange, ...] = ()
    checks: tuple[Check, ...] = ()
    denied: tuple[DeniedCall, ...] = ()
    attempts: tuple[CandidateView, ...] = ()
    commit_sha: str | None = None
    commit_url: str | None = None
    pull_number: int | None = None
    pull_url: str | None = None
    pull_draft: bool = False
    review_url: str | None = None
    wip_url: str | None = None
    ci_note: str = ""
    steps: int = 0
    usage: Usage | None = None
    model: str = ""
    sandbox: str = ""
    level: str = ""
