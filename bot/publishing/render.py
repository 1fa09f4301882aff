"""The one status comment: what the bot does, did, or could not do, for someone who reads it half asleep. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jinja2

from agent_runtime import Usage
from bot.publishing.defuse import Allowed, defuse
from bot.publishing.text import COMMENT_LIMIT, clip, code, one_line
from bot.workspace.change import FileChange

State = Literal["queued", "working", "done", "stopped", "failed", "refused"]

_STATES: dict[State, tuple[str, str]] = {
    "queued": ("🕐", "Waiting its turn"),
    "working": ("🛠️", "Working on it"),
    "done": ("✅", "Done"),
    "stopped": ("⏹️", "Stopped"),
    "failed": ("❌", "Failed"),
    "refused": ("🚫", "Refused"),
}
_LIVE: frozenset[State] = frozenset({"queued", "working"})

COMPLETION_LIMIT = 20_000
_REASON_LIMIT = 4_000
_ACTIVITIES_SHOWN = 6
_ACTIVITIES_KEPT = 60
_FILES_SHOWN = 12
_FILES_LISTED = 200
_CHECKS_SHOWN = 10
_CUT = "_Cut here: the whole is in the run's log._"

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.publishing"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - Markdown, not HTML: `defuse` and `code` make every value harmless
    keep_trailing_newline=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that the agent did or does, e.g. `read src/app.py`."""

    label: str
    state: Literal["doing", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A command that the agent ran.

    Attributes:
        exit_code: None when it was stopped before it ended.
        seconds: how long it took.
    """

    command: str
    exit_code: int | None
    seconds: float


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
        activities: what the agent did, oldest first.
        completion: the agent's final text.
        reason: why it failed, stopped or was refused.
        remedy: what to do about that.
        withheld: what was not published, and why.
        warning: what went wrong and did not end the job.
        files: what changed.
        checks: commands the agent ran, oldest first.
        commit_sha: of the commit that was made.
        commit_url: its page.
        pull_number: of the pull request that was opened.
        pull_url: its page.
        steps: model replies so far.
        usage: tokens and money, or None before the first reply.
        model: which model worked.
        sandbox: the level the agent's commands ran at, e.g. `bubblewrap, no network`.
    """

    state: State
    asked: str
    allowed: Allowed
    job_id: str
    marker: str
    seconds: float
    activities: tuple[Activity, ...] = ()
    completion: str | None = None
    reason: str = ""
    remedy: str = ""
    withheld: str = ""
    warning: str = ""
    files: tuple[FileChange, ...] = ()
    checks: tuple[Check, ...] = ()
    commit_sha: str | None = None
    commit_url: str | None = None
    pull_number: int | None = None
    pull_url: str | None = None
    steps: int = 0
    usage: Usage | None = None
    model: str = ""
    sandbox: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The same, as harmless Markdown; what the template reads."""

    emoji: str
    headline: str
    activities: list[str]
    earlier_activities: list[str]
    completion: str
    reason: str
    remedy: str
    withheld: str
    warning: str
    files: list[str]
    more_files: list[str]
    checks: list[str]
    links: str
    footer: str
    marker: str


def render_status(view: StatusView) -> str:
    """The comment's body, at most 65,536 characters, every foreign word in it harmless."""
    shown = _shown(view)
    body = _TEMPLATES.get_template("status.md.j2").render(view=shown).strip()
    if len(body) <= COMMENT_LIMIT:
        return body
    # Long lists, not the words, are what can be left out; the marker must stay.
    tail = f"\n\n{shown.marker}"
    short = _TEMPLATES.get_template("status.md.j2").render(view=_shown(view, bare=True)).strip()
    return clip(short.removesuffix(shown.marker).rstrip(), COMMENT_LIMIT - len(tail), _CUT) + tail


def _shown(view: StatusView, *, bare: bool = False) -> _Shown:
    live = view.state in _LIVE
    activities = [_activity(each) for each in view.activities[-_ACTIVITIES_KEPT:]]
    files = [_file(each) for each in view.files[:_FILES_LISTED]]
    emoji, word = _STATES[view.state]
    return _Shown(
        emoji=emoji,
        headline=f"{word} · {code(view.asked)} for @{view.allowed.login} · {duration(view.seconds)}",
        activities=activities[-_ACTIVITIES_SHOWN:] if live else [],
        earlier_activities=[] if live or bare else activities,
        completion=_words(view.completion or "", view, COMPLETION_LIMIT),
        reason=_words(view.reason, view, _REASON_LIMIT),
        # The lead-in is read together with what follows: alone, a fence there would open a block; after it, none.
        remedy=_words(f"**What to do:** {view.remedy}", view, _REASON_LIMIT) if view.remedy else "",
        # Inside a quote every line needs its mark.
        warning=_words(view.warning, view, _REASON_LIMIT).replace("\n", "\n> "),
        withheld=_words(f"**Not published.** {view.withheld}", view, _REASON_LIMIT).replace("\n", "\n> ")
        if view.withheld
        else "",
        files=files[:_FILES_SHOWN],
        more_files=[] if bare else files[_FILES_SHOWN:],
        checks=[_check(each) for each in view.checks[-_CHECKS_SHOWN:]],
        links=_links(view),
        footer=_footer(view),
        marker=view.marker,
    )


def _words(text: str, view: StatusView, limit: int) -> str:
    return defuse(text, view.allowed, limit=limit)


def _activity(each: Activity) -> str:
    mark = {"done": "[x]", "doing": "[ ]", "failed": "[x] ⚠️"}[each.state]
    return f"{mark} {code(one_line(each.label, 120))}"


def _file(file: FileChange) -> str:
    counts = "binary" if file.binary else f"+{file.added} −{file.removed}"  # noqa: RUF001 - a true minus sign
    notes = [counts] if file.status == "modified" else [file.status, counts]
    if file.new_mode == "100755" and file.old_mode != "100755":
        notes.append("made executable")
    if file.new_mode == "120000":
        notes.append("symbolic link")
    return f"{code(file.path)} {', '.join(notes)}"


def _check(check: Check) -> str:
    mark, ended = ("✅", "passed") if check.exit_code == 0 else ("❌", f"exit code {check.exit_code}")
    if check.exit_code is None:
        mark, ended = "⏱️", "did not end"
    return f"{mark} {code(one_line(check.command, 160))} · {ended} · {duration(check.seconds)}"


def _links(view: StatusView) -> str:
    parts = []
    if view.pull_number is not None and view.pull_url:
        parts.append(f"[pull request #{view.pull_number}]({view.pull_url})")
    if view.commit_sha and view.commit_url:
        parts.append(f"[commit `{view.commit_sha[:7]}`]({view.commit_url})")
    return " · ".join(parts)


def _footer(view: StatusView) -> str:
    parts = []
    if view.steps:
        parts.append(f"{view.steps} step{'' if view.steps == 1 else 's'}")
    if view.usage is not None and view.usage.total_tokens:
        parts.append(_tokens(view.usage))
    if view.usage is not None and view.usage.cost_usd:
        parts.append(f"${view.usage.cost_usd:.2f}" if view.usage.cost_usd >= 0.01 else "under $0.01")  # noqa: PLR2004 - a cent
    if view.model:
        parts.append(code(view.model))
    if view.sandbox:
        parts.append(f"sandbox: {code(view.sandbox)}")
    return " · ".join([*parts, f"job {code(view.job_id)}"])


def _tokens(usage: Usage) -> str:
    sent = usage.total_tokens - usage.output_tokens
    share = f", {usage.cached_tokens * 100 // sent} % of the input cached" if sent and usage.cached_tokens else ""
    return f"{usage.total_tokens:,} tokens{share}"


def duration(seconds: float) -> str:
    """A time span for people: `3 s`, `2 min 5 s`, `1 h 4 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{whole} s" if whole else f"{seconds:.1f} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"
