"""Text for GitHub: the status comment, replies and check runs, as Markdown in which nothing is live that may not be.

`render_status` renders a job's comment, `render_check` its check run, `render_notice` and `render_reply` single
messages. `RunReport` says what a run came to. A `marker` in a comment names the job that it belongs to.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import jinja2

from agent_runtime import Status
from bot.domain.job import Job
from bot.git.change import FileChange
from bot.github.types import (
    ANNOTATION_LIMIT,
    CHECK_TEXT_LIMIT,
    TITLE_LIMIT,
    Annotation,
    Button,
    CheckDraft,
    CheckStatus,
    Conclusion,
    ReviewDraft,
)
from bot.publishing.checks import Check, Rerun, Standing, Verdict, failing, verdict_of
from bot.publishing.markdown import (
    COMMENT_LIMIT,
    Allowed,
    Own,
    clean,
    clip,
    code,
    counted,
    duration,
    escape_markdown,
    fenced,
    one_line,
    sealed,
)
from bot.publishing.screening import fits, spelled_out
from bot.publishing.status_view import Activity, CandidateView, DeniedCall, PendingView, State, StatusView

_STATES: dict[State, tuple[str, str]] = {
    "queued": ("🕐", "Waiting its turn"),
    "working": ("🛠️", "Working on it"),
    "waiting": ("✋", "Waiting for you"),
    "parked": ("⏳", "Waiting for the model service"),
    "done": ("✅", "Done"),
    "stopped": ("⏹️", "Stopped"),
    "failed": ("❌", "Failed"),
    "refused": ("🚫", "Refused"),
}
_LIVE: frozenset[State] = frozenset({"queued", "working"})

STARTED_BY_CI = "Started by CI:"
"""How the comment and the check run begin to say what started work on failed checks."""
COMPLETION_LIMIT = 20_000
_REASON_LIMIT = 4_000
_NOTE_LIMIT = 1_000
_NOTES_SHOWN = 10
_ACTIVITIES_SHOWN = 6
_ACTIVITIES_KEPT = 60
_FILES_SHOWN = 12
_FILES_LISTED = 200
_NAME_LIMIT = 80
_DENIED_SHOWN = 10
_CUT = "_Truncated: see the run's log for the full text._"

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.publishing"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - Markdown, not HTML: `escape_markdown` and `code` make every value harmless
    keep_trailing_newline=False,
)


def render_status(view: StatusView) -> str:
    """The comment's body, at most 65,536 characters, every foreign word in it harmless."""
    template = _TEMPLATES.get_template("status.md.j2")
    body = template.render(view=_template_values(view)).strip()
    own = framing(view)
    if len(body) <= COMMENT_LIMIT:
        return sealed(body, view.allowed, own, limit=COMMENT_LIMIT)
    # Long lists, not the words, are what can be left out; the marker must stay.
    tail = f"\n\n{view.marker}"
    short = template.render(view=_template_values(view, bare=True)).strip()
    cut = clip(short.removesuffix(view.marker).rstrip(), COMMENT_LIMIT - len(tail), _CUT) + tail
    return sealed(cut, view.allowed, own, limit=COMMENT_LIMIT)


def framing(view: StatusView) -> Own:
    """What the comment has around foreign words."""
    parts = view.pending.parts if view.pending else ()
    places = (view.run_url, view.failed_url, view.pull_url, view.review_url, view.commit_url, view.wip_url, *parts)
    return Own(links=frozenset(filter(None, places)), marker=view.marker, tags=True)


def render_reply(text: str, allowed: Allowed, *, job_id: str, marker: str = "", refused: bool = False) -> str:
    """A short answer in a comment of its own: a refusal, what is under way, that something was told to a run.

    Args:
        text: the answer; of a refusal the reason, with what to do.
        allowed: who asked, in which thread, on which server.
        job_id: for the log.
        marker: from `render.marker`; empty where the comment need not be found again.
        refused: whether it says no.
    """
    said = escape_markdown(f"🚫 {text}" if refused else text, allowed, limit=COMPLETION_LIMIT)
    for_whom = f"for @{allowed.login}" if allowed.login else "started by CI, not by a person"
    body = "\n\n".join(filter(None, [said, f"<sub>{for_whom} · job {code(job_id)}</sub>", marker]))
    return sealed(body, allowed, Own(marker=marker, tags=True), limit=COMMENT_LIMIT)


def render_notice(text: str, allowed: Allowed, *, url: str, marker: str) -> str:
    """A comment that only draws the asker's attention to the status comment, since edits of that notify nobody.

    Args:
        text: what has happened, without a full stop.
        allowed: who asked, in which thread, on which server.
        url: the status comment; empty where it has none.
        marker: from `render.marker`.
    """
    place = f" ([status]({url}))" if url else ""
    body = f"@{allowed.login} {escape_markdown(text, allowed, limit=_NOTE_LIMIT)}{place}.\n\n{marker}"
    return sealed(body, allowed, Own(marker=marker, links=frozenset({url} - {""}), tags=True), limit=COMMENT_LIMIT)


def render_part(view: StatusView, number: int, text: str) -> str:
    """A comment that shows one part of what waits, of those that `view.pending.parts` has places for.

    Args:
        view: the status comment's, with the part's own marker.
        number: which part, from 1.
        text: the part.
    """
    pending = view.pending
    if pending is None:
        raise ValueError("nothing waits")  # a bug of ours
    head = f"### ✋ Part {number} of {len(pending.parts)} of request {code(pending.request_id)}"
    body = "\n\n".join([head, fenced(text, pending.language), f"<sub>job {code(view.job_id)}</sub>", view.marker])
    return sealed(body, view.allowed, framing(view), limit=COMMENT_LIMIT)


def _template_values(view: StatusView, *, bare: bool = False) -> dict[str, object]:
    """Return the values that the template reads, as harmless Markdown."""
    live = view.state in _LIVE
    activities = [activity_line(each) for each in view.activities[-_ACTIVITIES_KEPT:]]
    files = [file_line(each) for each in view.files[:_FILES_LISTED]]
    run = f"[run]({view.run_url})" if view.run_url else ""
    why = ""
    if view.verdict is not None and view.state == "done":
        changed = bool(view.files or view.checks)
        why = reason(view.verdict, view.checks, changed=changed, setup_failed=view.setup_failed, partial=view.partial)
    # What was asked for, by whom; or the failed check or the event that started it.
    asked = view.unasked or f"{code(view.asked)} for {view.asker or f'@{view.allowed.login}'}"
    if view.failed and not view.unasked:
        name = code(one_line(view.failed, _NAME_LIMIT))
        asked = f"{STARTED_BY_CI} {f'[{name}]({view.failed_url})' if view.failed_url else name} failed"
    waits, pending = None, view.pending
    if pending is not None and view.state == "waiting":
        until = f" until {pending.expires}" if pending.expires else ""
        waits = {
            "head": _words(f"**{PENDING_HEADS[pending.kind]}** {pending.reason}".strip(), view, _REASON_LIMIT),
            "preview": preview(pending),
            "answers": answers(pending),
            "like": like_line(pending),
            "like_answer": fenced(f"{pending.trigger} approve {pending.request_id} --like"),
            "expires": f"Answer{'' if pending.kind == 'question' else ' with one of these'}{until}:",
        }
    # What must not be overlooked, each with the kind of its box.
    boxes = (
        ("WARNING", "**Not published.** ", view.withheld),
        ("WARNING", "", view.warning),
        ("NOTE", "**Dry run: nothing was published.** ", view.would),
        ("NOTE", "**Kept.** ", view.kept),
        ("NOTE", "**Checks will not start automatically.** ", view.ci_note),
    )
    # A person who waits wants to know how old this is, and how to end it.
    updated = f"updated {datetime.fromtimestamp(view.at, UTC):%H:%M} UTC" if live and view.at else ""
    stop = f"stop it with {code(view.stop)}" if live and view.stop else ""
    return {
        "headline": " · ".join(filter(None, [" ".join(title_of(view)), asked, duration(view.seconds), run])),
        "why": _words(why, view, _REASON_LIMIT),
        "pending": waits,
        "activities": activities[-_ACTIVITIES_SHOWN:] if live else [],
        "earlier_activities": [] if live or bare else activities,
        "completion": _words(view.completion or "", view, COMPLETION_LIMIT),
        "is_claim": view.state == "done" and view.verdict not in {None, Verdict.VERIFIED},
        "reason": _words(view.reason, view, _REASON_LIMIT),
        # The lead-in is read together with what follows: alone, a fence there would open a block; after it, none.
        "remedy": _words(f"**How to fix it:** {view.remedy}", view, _REASON_LIMIT) if view.remedy else "",
        "boxes": [
            (kind, _inside(_words(lead + text, view, _REASON_LIMIT), "> ")) for kind, lead, text in boxes if text
        ],
        "notes": [_inside(_words(note, view, _NOTE_LIMIT), "  ") for note in view.notes[:_NOTES_SHOWN]],
        "changed": "What changed" if links(view) or not (view.withheld or view.would) else "Changed, not published",
        "files": files[:_FILES_SHOWN],
        "more_files": [] if bare else files[_FILES_SHOWN:],
        "checks": table(view.checks),
        "denied": [denied_line(each) for each in view.denied[:_DENIED_SHOWN]],
        "attempts": [attempt_line(each) for each in view.attempts],
        "withheld_diff": "" if bare else withheld_diff(view),
        "links": links(view),
        "footer": " · ".join(filter(None, [updated, stop, footer(view)])),
        "marker": view.marker,
    }


def title_of(view: StatusView) -> tuple[str, str]:
    """Where the run stands or what it came to: a sign, and a few words."""
    if view.verdict is None or view.state != "done":
        return _STATES[view.state]
    sign, words = headline(view.verdict, view.checks)
    if view.withheld:
        done = "Published in part" if view.commit_sha else "Not published"
        return "⚠️", f"{done}; {words[:1].lower()}{words[1:]}"
    if view.would:
        return sign, f"Dry run; {words[:1].lower()}{words[1:]}"
    return sign, words


def _inside(markdown: str, prefix: str) -> str:
    """Lines after the first, with what keeps them inside a quote or a list."""
    return markdown.replace("\n", f"\n{prefix}")


def _words(text: str, view: StatusView, limit: int) -> str:
    return escape_markdown(text, view.allowed, limit=limit)


_HEADLINES = {
    Verdict.VERIFIED: ("✅", "Done, checks passed"),
    Verdict.UNVERIFIED: ("⚠️", "Not verified"),
    Verdict.RED: ("❌", "Checks fail"),
    Verdict.UNCHANGED: ("⚪", "Nothing changed"),
    Verdict.SETUP_FAILED: ("⚠️", "Setup failed"),
}
_NOTES: dict[Standing, str] = {
    "counts": "",
    "outdated": "before the last change",
    "superseded": "superseded by a later run",
    "before": "before the first change",
}

_COMMITS = {
    Verdict.VERIFIED: "The agent's checks passed.",
    Verdict.UNVERIFIED: "Not verified: no check is known to pass on this change.",
    Verdict.RED: "The agent's checks fail on this change.",
    Verdict.UNCHANGED: "",
    Verdict.SETUP_FAILED: "Setup failed before the agent started.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the host saw of a run, for those who read its change.

    Attributes:
        verdict: what it came to.
        checks: what `judged` gave.
        setup_failed: the setup command that failed, and how; or empty.
        denied: calls that needed a person where nobody could be asked.
        rerun: for a job that failed checks began: what the command that failed comes to after the change.
        partial: whether the checks ran with files in place that are left out of the change.
    """

    verdict: Verdict = Verdict.UNVERIFIED
    checks: tuple[Check, ...] = ()
    setup_failed: str = ""
    denied: tuple[DeniedCall, ...] = ()
    rerun: Rerun | None = None
    partial: bool = False

    @property
    def markdown(self) -> str:
        """The headline, the reason for it, the checks and what was denied, for the description of a pull request."""
        sign, words = headline(self.verdict, self.checks)
        why = reason(self.verdict, self.checks, changed=True, setup_failed=self.setup_failed, partial=self.partial)
        denied = "\n".join(f"- {denied_line(each)}" for each in self.denied[:_ROWS])
        parts = (
            f"**{sign} {words}.** {why}".rstrip(),
            "\n".join(table(self.checks)),
            f"**Denied, because nobody can approve calls in this run**\n\n{denied}" if denied else "",
        )
        return "\n\n".join(filter(None, parts))

    @property
    def sentence(self) -> str:
        """The same for a commit's message, which holds no word of a model."""
        return _COMMITS[self.verdict]


def headline(verdict: Verdict, checks: Sequence[Check]) -> tuple[str, str]:
    """A sign, and a few words."""
    sign, words = _HEADLINES[verdict]
    if verdict is Verdict.VERIFIED and _only_ad_hoc(checks):
        return sign, "Done, the failed command passes now" if _rerun(checks) else "Done, an ad-hoc check passed"
    return sign, words


def reason(
    verdict: Verdict, checks: Sequence[Check], *, changed: bool, setup_failed: str = "", partial: bool = False
) -> str:
    """Why the headline says so, in sentences of Markdown; empty where there is nothing to add.

    Args:
        verdict: what the run came to.
        checks: what `judged` gave.
        changed: whether files changed, or nothing was to be changed.
        setup_failed: the setup command that failed, and how.
        partial: whether the checks ran with files in place that are left out of the change.
    """
    match verdict:
        case Verdict.VERIFIED:
            if not _only_ad_hoc(checks):
                return ""
            again = _rerun(checks)
            return (
                f"After the change, the bot ran {_named(again)} again and it passed. {_UNKNOWN}" if again else _AD_HOC
            )
        case Verdict.UNVERIFIED:
            whole = verdict_of(checks, changed=changed)
            return _PARTIAL if partial and whole is Verdict.VERIFIED else _unverified(checks)
        case Verdict.RED:
            failed = failing(checks)
            said = f"{_named(failed[-1])} ended with exit code {failed[-1].exit_code}"
            if failed[-1].standing == "outdated":
                said += " and was not run again after the last change"
            if others := len(failed) - 1:
                said += f"; {others} other {'check' if others == 1 else 'checks'} failed, too"
            return f"{said}."
        case Verdict.UNCHANGED:
            return "The agent changed no files."
        case Verdict.SETUP_FAILED:
            before = f"Before the agent started, {setup_failed}. Dependencies installed by setup may be missing."
            rest = verdict_of(checks, changed=changed, partial=partial)
            after = {Verdict.VERIFIED: "The agent's own checks passed.", Verdict.UNCHANGED: ""}
            said = after.get(rest, "") or reason(rest, checks, changed=changed, partial=partial)
            return " ".join(filter(None, [before, said]))


_AD_HOC = "Only an ad-hoc check passed: no known test, build or lint command ran after the last change."
_UNKNOWN = "It is not a known test, build or lint command."
_PARTIAL = "No check ran on the published change, without the withheld files."


def _unverified(checks: Sequence[Check]) -> str:
    hanging = [each for each in checks if each.standing == "counts" and each.exit_code is None]
    if hanging:
        return f"{_named(hanging[-1])} did not finish."
    if any(each.standing == "outdated" for each in checks):
        return "Files changed after the last check, and no check ran on the result."
    if checks:
        return "No check ran after the change."
    return "No known test, build or lint command ran."


def table(checks: Sequence[Check]) -> list[str]:
    """The checks as the lines of a Markdown table, those that count before others where there is no room for all."""
    if not checks:
        return []
    by_weight = sorted(range(len(checks)), key=lambda n: (checks[n].standing in {"superseded", "before"}, -n))
    rows: list[str] = []
    for check in (checks[number] for number in sorted(by_weight[:_ROWS])):
        hangs = check.exit_code is None
        ended = "passed" if check.passed else "did not end" if hangs else f"exit code {check.exit_code}"
        notes = [
            _NOTES[check.standing],
            "run by the bot" if check.by_host else "",
            "ad hoc" if check.ad_hoc and check.standing != "superseded" else "",
        ]
        result = ", ".join(filter(None, [ended, *notes]))
        # A table's parser takes every bar without a backslash before it for the end of a cell, in code as well.
        cell = _named(check).replace("|", "\\|")
        sign = "✅" if check.passed else "⏱️" if hangs else "❌"
        if check.standing in {"superseded", "before"} or (check.standing == "outdated" and not failing([check])):
            sign = "▫️"
        rows.append(f"| {sign} | {cell} | {result} | {duration(check.seconds)} |")
    if more := len(checks) - len(rows):
        rows.append(f"| | {more} more, older or superseded | | |")
    return ["| | Check | Result | Time |", "|---|---|---|---|", *rows]


def _named(check: Check) -> str:
    return code(one_line(check.command, _COMMAND_CHARS))


def _rerun(checks: Sequence[Check]) -> Check | None:
    """The check that failed before the change and passed when the bot itself ran it again."""
    return next((each for each in checks if each.by_host and each.standing == "counts" and each.passed), None)


def _only_ad_hoc(checks: Sequence[Check]) -> bool:
    return all(each.ad_hoc for each in checks if each.standing == "counts" and each.passed)


_CUT_CHARS = 6_000
_ASKED_CHARS = 200
_SAID_CHARS = 300
_WITHHELD_CHARS = 20_000
_FILE = ".github/codepilot.yml"
_CUT_PREVIEW = "… truncated: too long to be shown, so it cannot be approved"

PENDING_HEADS = {
    "permission": "This requires your approval.",
    "question": "A question.",
    "publication": "This requires your approval before it is published.",
    "plan": "This is a plan. Nothing has changed yet; approving it starts the work.",
}


def activity_line(each: Activity) -> str:
    """A line of the checklist."""
    mark = {"done": "[x]", "doing": "[ ]", "failed": "[x] ⚠️"}[each.state]
    return f"{mark} {code(one_line(each.label, 120))}"


def file_line(file: FileChange) -> str:
    """A changed file with its counts, and what is unusual about it."""
    # Kept on one line, with a true minus sign.
    counts = "binary" if file.binary else f"+{file.added}\u00a0\u2212{file.removed}"
    notes = [counts] if file.status == "modified" else [file.status, counts]
    if file.new_mode == "100755" and file.old_mode != "100755":
        notes.append("made executable")
    if file.new_mode == "120000":
        notes.append("symbolic link")
    return f"{code(spelled_out(file.path))} {', '.join(notes)}"


def denied_line(denied: DeniedCall) -> str:
    """A call that was denied because nobody could be asked, and the setting that would allow it."""
    asked = code(one_line(denied.asked, _ASKED_CHARS))
    match denied.setting:
        case "allow-commands":
            how = f"add {code(denied.value)} to `allow` in `{_FILE}`, or to the action's input `allow-commands`"
        case "level":
            how = f"set `level: auto` in `{_FILE}`, or as the action's input if that file sets no level"
        case "label":
            how = f"set the label {code(denied.value)} and remove the one for a lower level"
        case "label-off":
            how = f"remove the label {code(denied.value)}, and set `level: auto` if it is not already set"
        case _:
            return f"Not answered: {asked}. Write the answer into your next command."
    return f"{asked}. To allow it, {how}."


def attempt_line(attempt: CandidateView) -> str:
    """One of several attempts, and what the host saw of it."""
    cost = "" if attempt.usage.cost_usd is None else f", ${attempt.usage.cost_usd:.2f}"
    lines = "lines not counted" if attempt.lines is None else counted(attempt.lines, "line")
    change = f"{counted(attempt.files, 'file')}, {lines}" if attempt.files else "no change"
    said = f": {code(one_line(attempt.summary, _SAID_CHARS))}" if attempt.summary else ""
    name = f"**Attempt {attempt.number}**{', selected' if attempt.taken else ''}"
    verdict = attempt.verdict.value.replace("_", " ")
    ended = f"{attempt.ended.replace('_', ' ')}, {verdict}, {change}, {counted(attempt.steps, 'step')}"
    return f"{name}: {ended}{cost}{said}"


def withheld_diff(view: StatusView) -> str:
    """What was not published, whole, in a block that nothing in it can end; empty where it has no room."""
    return fenced(view.withheld_diff, "diff") if 0 < len(view.withheld_diff) <= _WITHHELD_CHARS else ""


def preview(pending: PendingView) -> str:
    """What would happen, whole, in a block that nothing in it can end, or where it is; empty where that is nothing."""
    if pending.parts:
        links = " · ".join(f"[part {number}]({url})" for number, url in enumerate(pending.parts, 1))
        return f"**Read all {len(pending.parts)} parts before you answer.** {links}"
    text = pending.preview.strip("\n").encode("utf-8", "replace").decode()
    if not fits(text):
        text = clip(text, _CUT_CHARS, _CUT_PREVIEW)
    return fenced(text, pending.language) if text else ""


def may_be_approved(pending: PendingView) -> bool:
    """Whether everything that an approval would be for can be read."""
    return pending.kind != "question" and (bool(pending.parts) or fits(pending.preview))


def answers(pending: PendingView) -> list[str]:
    """The commands that answer, each in a block of its own, which GitHub gives a button to copy."""
    if pending.kind == "question":
        return [fenced(f"{pending.trigger} continue <your answer>")]
    verbs = ("approve", "deny") if may_be_approved(pending) else ("deny",)
    return [fenced(f"{pending.trigger} {verb} {pending.request_id}") for verb in verbs]


def like_line(pending: PendingView) -> str:
    """What else can be approved with a command, for the rest of the run; empty for nothing."""
    if not pending.like or not may_be_approved(pending):
        return ""
    patterns = ", ".join(map(code, pending.like))
    placeholders = {
        "<name>": "`<name>` is any one name: no option, path or URL",
        "<path>": "`<path>` is any one relative path",
    }
    meanings = [meaning for word, meaning in placeholders.items() if any(word in each for each in pending.like)]
    what = f"whatever fits {patterns}, where {' and '.join(meanings)}" if meanings else "the same again"
    return f"Or approve it and, for the rest of this run, {what}:"


def links(view: StatusView) -> str:
    """Where the results are."""
    parts = []
    if view.pull_number is not None and view.pull_url:
        draft = "draft " if view.pull_draft else ""
        parts.append(f"[{draft}pull request #{view.pull_number}]({view.pull_url})")
    if view.review_url:
        parts.append(f"[review]({view.review_url})")
    if view.commit_sha and view.commit_url:
        parts.append(f"[commit `{view.commit_sha[:7]}`]({view.commit_url})")
    if view.wip_url:
        parts.append(f"[unfinished work]({view.wip_url})")
    return " · ".join(parts)


def footer(view: StatusView) -> str:
    """What the run took, and under which rules it worked."""
    parts = []
    if view.steps:
        parts.append(counted(view.steps, "step"))
    if view.usage is not None and view.usage.total_tokens:
        usage = view.usage
        sent = usage.total_tokens - usage.output_tokens
        share = f", {usage.cached_tokens * 100 // sent} % of the input cached" if sent and usage.cached_tokens else ""
        parts.append(f"{usage.total_tokens:,} tokens{share}")
    if view.usage is not None and view.usage.cost_usd:
        parts.append(f"${view.usage.cost_usd:.2f}" if view.usage.cost_usd >= 0.01 else "under $0.01")  # noqa: PLR2004 - a cent
    if view.usage is not None and view.usage.total_tokens and view.usage.cost_usd is None:
        parts.append("cost not known")
    if view.model:
        parts.append(code(view.model))
    if view.level:
        parts.append(f"permission: {code(view.level)}")
    if view.sandbox:
        parts.append(f"sandbox: {code(view.sandbox)}")
    return " · ".join([*parts, f"job {code(view.job_id)}"])


_SET = re.compile(
    r"`CODEPILOT_(?P<quoted>[A-Z_]+)=(?P<text>[^`\n]*)`|\bCODEPILOT_(?P<bare>[A-Z_]+)=(?P<word>[^\s`,;]+)"
)
_VARIABLE = re.compile(r"(?:the )?`?\bCODEPILOT_([A-Z][A-Z_]*[A-Z])\b`?")


def in_inputs(text: str) -> str:
    """The text with each setting called as the action's input is: no workflow names these variables."""
    return _VARIABLE.sub(lambda found: f"the input `{_input(found[1])}`", _SET.sub(_line, text))


def _line(found: re.Match[str]) -> str:
    name, value = found["quoted"] or found["bare"], found["text"] if found["quoted"] else found["word"]
    return f"`{_input(name)}: {value}`"


def _input(name: str) -> str:
    return name.lower().replace("_", "-")


MarkerKind = Literal["job", "ci"]
"""A job's own marker, or the further one on the status comment of a job that failed checks started."""

_MARK = "<!-- codepilot:job="
_MARKER = re.compile(r"<!-- codepilot:(job|ci)=([A-Za-z0-9_-]{1,64}) sig=([0-9a-f]{32}) -->")


def marker(job_id: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str:
    """An HTML comment that names the job, signed for this one thread and this kind.

    Args:
        job_id: letters, digits, `-` and `_`.
        repo_id: GitHub's id of the repository.
        number: of the issue or pull request.
        key: a secret of the bot's.
        kind: which marker.
    """
    message = f"{'' if kind == 'job' else f'{kind}:'}{repo_id}#{number}:{job_id}".encode()
    return f"<!-- codepilot:{kind}={job_id} sig={hmac.new(key, message, hashlib.sha256).hexdigest()[:32]} -->"


def is_marked(body: str) -> bool:
    """Whether something carries a marker, genuine or not: what carries one is never taken for a person's words."""
    return _MARK in body


def claimed_job(body: str, number: int, *, branch: str) -> str | None:
    """The job whose marker, genuine or not, is in what came from a branch that the job would have made."""
    claimed = (found[2] for found in _MARKER.finditer(body) if found[1] == "job")
    return next((job_id for job_id in claimed if branch.endswith(f"-{number}-{job_id}")), None)


def job_of(body: str, repo_id: int, number: int, *, key: bytes, kind: MarkerKind = "job") -> str | None:
    """The job whose genuine marker is in a comment of this thread; None when there is none or it is forged."""
    for found in _MARKER.finditer(body):
        if hmac.compare_digest(found[0], marker(found[2], repo_id, number, key=key, kind=kind)):
            return found[2]
    return None


_COMMAND_CHARS = 160
_ROWS = 10

_STOP = Button(label="Stop", description="Stop the run and keep its work", identifier="stop")
_RETRY = Button(label="Retry", description="Run it again from the start", identifier="retry")
_APPROVE, _DENY = ("Approve", "Approve the request"), ("Deny", "Deny it; the run continues")
_PATCH_READ = 4 * CHECK_TEXT_LIMIT
# `approve ` and this much fit into a button's identifier; intake takes no more.
_ID_LIMIT = 8

_UNDER_WAY: Mapping[str, CheckStatus] = {"queued": "queued", "working": "in_progress", "parked": "queued"}
# A run that waits is `completed` to GitHub: only then does it show the buttons, and `action_required` is made for it.
_CONCLUSIONS: Mapping[str, Conclusion] = {
    "waiting": "action_required",
    "done": "success",
    "stopped": "cancelled",
    "failed": "failure",
    "refused": "skipped",
}
_VERDICTS: Mapping[Verdict, Conclusion] = {
    Verdict.VERIFIED: "success",
    Verdict.UNVERIFIED: "neutral",
    Verdict.RED: "failure",
    Verdict.UNCHANGED: "neutral",
    Verdict.SETUP_FAILED: "failure",
}
_ENDED = frozenset({"done", "failed", "stopped", "refused"})
_BUTTONS: Mapping[str, tuple[Button, ...]] = {
    "queued": (_STOP,),
    "working": (_STOP,),
    "parked": (_STOP,),
    "waiting": (_STOP,),
    "stopped": (_RETRY,),
    "failed": (_RETRY,),
}
# These pass where a rule asks for green checks: https://docs.github.com/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/about-status-checks
_HARMLESS: frozenset[Conclusion] = frozenset({"success", "neutral", "skipped"})

NO_FILE = ".github"
"""Where GitHub's own runner puts what belongs to no line."""


def render_check(
    view: StatusView,
    *,
    job: Job,
    head_sha: str,
    status: Status | None = None,
    patch: str = "",
    review: ReviewDraft | None = None,
) -> CheckDraft:
    """The check run that says what `view` says.

    Args:
        view: how the job is doing.
        job: what was asked, and where.
        head_sha: the commit it stands on: a pull request's head, the branch's, or the default branch's for an issue.
        status: how the agent's run ended, when it has.
        patch: the change, attached as far as it fits.
        review: comments on lines, shown as annotations.
    """
    under_way = _UNDER_WAY.get(view.state)
    thread = job.thread
    # No branch has a colon in its name.
    place = f"branch:{thread.branch}" if thread.kind == "branch" else f"{thread.kind}:{thread.number}"
    asked = f"{STARTED_BY_CI} {view.failed} failed" if view.failed else view.unasked or view.asked
    summary = render_status(view).removesuffix(view.marker).rstrip()
    if len(summary) > CHECK_TEXT_LIMIT:
        cut = clip(summary, CHECK_TEXT_LIMIT, "_Truncated: see the comment for the rest._")
        summary = sealed(cut, view.allowed, replace(framing(view), marker=""), limit=CHECK_TEXT_LIMIT)
    buttons, pending = _BUTTONS.get(view.state, ()), view.pending
    if view.state == "waiting" and pending is not None and pending.kind != "question":  # which takes words
        # They name what they were drawn for: a page may be older than what waits now.
        request, offered = pending.request_id[:_ID_LIMIT], (_APPROVE, _DENY) if may_be_approved(pending) else (_DENY,)
        answers = (
            Button(label=label, description=description, identifier=f"{label.lower()} {request}")
            for label, description in offered
        )
        buttons = (*answers, *buttons)
    return CheckDraft(
        # One line in the list of checks for each thing that can be asked for; many issues share one commit.
        name=f"Codepilot {job.command.verb}" + (f" #{thread.number}" if thread.kind == "issue" else ""),
        head_sha=head_sha,
        external_id=f"{job.id}:{place}:{view.pending.request_id if view.pending else '-'}",
        status=under_way or "completed",
        conclusion=None if under_way else conclusion(view, status, blocking=job.thread.kind == "pull"),
        title=one_line(f"{title_of(view)[1]}: {asked}", TITLE_LIMIT),
        summary=summary,
        text=_patch_text(patch, job.id),
        annotations=annotations_of(view, review) if view.state in _ENDED else (),
        buttons=buttons,
    )


def conclusion(view: StatusView, status: Status | None, *, blocking: bool) -> Conclusion:
    """How a job ended, in GitHub's words.

    Args:
        view: what the comment says; its state is no longer `queued` or `working`.
        status: how the agent's run ended, when it did.
        blocking: whether the mark may keep others from merging; else whatever is not green is `neutral`.
    """
    ended = _CONCLUSIONS[view.state]
    if view.state == "failed" and status is Status.TIMEOUT:
        ended = "timed_out"
    if view.state == "done" and view.verdict is not None:
        ended = _VERDICTS[view.verdict]
    if ended == "success" and view.withheld:
        ended = "neutral"
    return ended if blocking or ended in _HARMLESS else "neutral"


def _patch_text(patch: str, job_id: str) -> str:
    if not patch:
        return ""
    heading = "### The patch\n\n"
    # A carriage return would count as a redrawn line, and it is part of the lines of some files.
    # Of a patch of many megabytes no more is looked at than could be shown.
    read = patch[:_PATCH_READ]
    shown = "\r".join(map(clean, read.split("\r")))
    unseen = "Shown without invisible characters. " if shown != read else ""
    note = f"_{unseen}The bot keeps the patch under job `{job_id}`._" if unseen else ""
    whole = f"{heading}{fenced(shown, 'diff')}\n\n{note}".rstrip()
    if len(whole) <= CHECK_TEXT_LIMIT and read == patch:
        return whole
    note = f"_{unseen}Truncated: the whole patch has {len(patch):,} characters. The bot keeps it under job `{job_id}`._"
    # A fence may be as long as the longest run of back ticks, and the patch of a hostile file may be all of those.
    room = CHECK_TEXT_LIMIT - len(heading) - len(note) - 20
    while room > 0:
        cut = f"{heading}{fenced(clip(shown, room, ''), 'diff')}\n\n{note}"
        if len(cut) <= CHECK_TEXT_LIMIT:
            return cut
        room //= 2
    return note


def annotations_of(view: StatusView, review: ReviewDraft | None) -> tuple[Annotation, ...]:
    """What is to be said beside lines, and of checks that failed, once a job has ended."""
    failed = failing(view.checks)
    hanging = [each for each in view.checks if each.standing == "counts" and each.exit_code is None]
    of_checks = (
        Annotation(
            path=NO_FILE,
            start_line=1,
            end_line=1,
            level="failure",
            title=one_line(check.command, TITLE_LIMIT),
            message=f"Ended with exit code {check.exit_code} after {duration(check.seconds)}."
            if check.exit_code is not None
            else f"Did not finish within {duration(check.seconds)}.",
        )
        for check in (*failed, *hanging)
    )
    # An annotation stands on lines of the file as it is now; a note on removed lines has none.
    of_lines = (
        Annotation(
            path=note.path,
            start_line=note.line if note.start_line is None else note.start_line,
            end_line=note.line,
            level="notice",
            message=clip(note.body, ANNOTATION_LIMIT, "_Truncated: see the review for the rest._"),
        )
        for note in (review.notes if review else ())
        if note.side == "RIGHT"
    )
    return (*of_checks, *of_lines)
