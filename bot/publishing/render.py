"""Render Markdown for GitHub: the status comment, replies and check runs.

`render_status` renders a job's comment, `render_check` its check run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

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
    PullLink,
)
from bot.publishing.actions import render_action
from bot.publishing.checks import Check, Standing, Verdict, failing_checks, verdict_of
from bot.publishing.markdown import (
    COMMENT_LIMIT,
    Allowlist,
    BotMarkup,
    clean,
    clip,
    code,
    defuse,
    duration,
    escape_markdown,
    fence,
    one_line,
    plural,
)
from bot.publishing.outcome import Failed, Finished, PendingView, Waiting
from bot.publishing.review import describe_unread
from bot.publishing.screening import escape_unseen, fits_comment
from bot.publishing.status_view import Activity, CandidateView, DeniedCall, Progress, State, StatusView

_STATES: dict[State, tuple[str, str]] = {
    "queued": ("🕐", "Waiting its turn"),
    "working": ("🛠️", "Working on it"),
    "waiting": ("✋", "Waiting for you"),
    "parked": ("⏳", "Waiting"),
    "done": ("✅", "Done"),
    "stopped": ("⏹️", "Stopped"),
    "failed": ("❌", "Failed"),
    "refused": ("🚫", "Refused"),
}
_PARTIAL_REVIEW = ("⚠️", "Reviewed in part")
_SOURCE_REVIEW = ("✅", "Reviewed, except for lock, generated or binary files")
_RUNNING_STATES: frozenset[State] = frozenset({"queued", "working"})

STARTED_BY_CI = "Started by CI:"
"""Lead-in for the failed check that started a job."""
COMPLETION_LIMIT = 20_000
_REASON_LIMIT = 4_000
_NOTE_LIMIT = 1_000
_MAX_NOTES = 10
_MAX_RUNNING_ACTIVITIES = 6
_MAX_ACTIVITIES = 60
_MAX_OPEN_FILES = 12
_MAX_FILES = 200
_NAME_LIMIT = 80
_MAX_DENIED_CALLS = 10
_MAX_TESTS = 5
_TRUNCATED = "_Truncated: see the run's log for the full text._"

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.publishing"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - Markdown, not HTML: `escape_markdown` and `code` make every value harmless
    keep_trailing_newline=False,
)


def render_status(view: StatusView) -> str:
    """Render the status comment, at most 65,536 characters, with untrusted text escaped."""
    template = _TEMPLATES.get_template("status.md.j2")
    body = template.render(view=_template_values(view)).strip()
    markup = status_markup(view)
    if len(body) <= COMMENT_LIMIT:
        return defuse(body, view.allowed, markup, limit=COMMENT_LIMIT)
    # Drop long lists first; the marker must stay.
    tail = f"\n\n{view.marker}"
    brief = template.render(view=_template_values(view, bare=True)).strip()
    cut = clip(brief.removesuffix(view.marker).rstrip(), COMMENT_LIMIT - len(tail), _TRUNCATED) + tail
    return defuse(cut, view.allowed, markup, limit=COMMENT_LIMIT)


def status_markup(view: StatusView) -> BotMarkup:
    parts = view.pending.part_urls if view.pending else ()
    published = view.published
    pull_url = view.pull.html_url if view.pull is not None else ""
    commit_url = published.commit.url if published.commit is not None else ""
    places = (
        view.run_url,
        view.failed_url,
        pull_url,
        published.review_url,
        commit_url,
        published.wip_url,
        *parts,
        *(each.url for each in view.actions),
    )
    return BotMarkup(links=frozenset(filter(None, places)), marker=view.marker, tags=True)


def render_reply(text: str, allowed: Allowlist, *, job_id: str, marker: str = "", pull: PullLink | None = None) -> str:
    body = escape_markdown(text, allowed, limit=COMPLETION_LIMIT)
    recipient = f"for @{allowed.login}" if allowed.login else "started by CI, not by a person"
    link, links = ("", frozenset[str]()) if pull is None else (_pull_link(pull), frozenset({pull.html_url}))
    body = "\n\n".join(filter(None, [body, link, f"<sub>{recipient} · job {code(job_id)}</sub>", marker]))
    return defuse(body, allowed, BotMarkup(marker=marker, links=links, tags=True), limit=COMMENT_LIMIT)


def render_notice(text: str, allowed: Allowlist, *, url: str, marker: str, view: StatusView | None = None) -> str:
    """Render a comment that notifies the requesting user, with a link; edits of the status comment notify nobody.

    Args:
        view: adds its request and the lines to answer it with, for people who read only the mail.
    """
    place = f" ([status]({url}))" if url else ""
    lead = f"@{allowed.login} {escape_markdown(text, allowed, limit=_NOTE_LIMIT)}{place}."
    markup, body = BotMarkup(marker=marker, links=frozenset({url} - {""}), tags=True), f"{lead}\n\n{marker}"
    if view is not None and view.pending is not None:
        markup = replace(markup, links=markup.links | frozenset(view.pending.part_urls))
        values = _template_values(view)
        body = _TEMPLATES.get_template("notice.md.j2").render(lead=lead, view=values, marker=marker).strip()
    return defuse(body, allowed, markup, limit=COMMENT_LIMIT)


def render_part(view: StatusView, number: int, text: str) -> str:
    """Render a comment with one part of a pending request's preview, from 1; `view` has the part's own marker."""
    pending = view.pending
    if pending is None:
        raise ValueError("the view has no pending request")
    head = f"### ✋ Part {number} of {len(pending.part_urls)} of request {code(pending.request_id)}"
    body = "\n\n".join([head, fence(text, pending.language), f"<sub>job {code(view.job_id)}</sub>", view.marker])
    return defuse(body, view.allowed, status_markup(view), limit=COMMENT_LIMIT)


def _template_values(view: StatusView, *, bare: bool = False) -> dict[str, object]:
    is_running = view.state in _RUNNING_STATES
    progress, outcome, published = view.progress, view.outcome, view.published
    checks = progress.judged_checks
    activities = [activity_line(item) for item in progress.all_activities[-_MAX_ACTIVITIES:]]
    files = [file_line(item) for item in view.files[:_MAX_FILES]]
    withheld = published.withheld.reason if published.withheld else ""
    run, links = f"[run]({view.run_url})" if view.run_url else "", result_links(view)
    # The command and its user, the event, or the failed check.
    request = view.event_label or f"{code(view.command)} for {view.requester or f'@{view.allowed.login}'}"
    if view.failed_check and not view.event_label:
        name = code(one_line(view.failed_check, _NAME_LIMIT))
        request = f"{STARTED_BY_CI} {f'[{name}]({view.failed_url})' if view.failed_url else name} failed"
    waiting, pending = None, view.pending
    if pending is not None:
        waiting = {
            "head": _escape(f"**{PENDING_HEADS[pending.kind]}** {pending.reason}".strip(), view, _REASON_LIMIT),
            "preview": render_preview(pending),
            "answers": answer_commands(pending),
            "like": similar_calls_offer(pending),
            "like_answer": fence(f"{pending.trigger} approve {pending.request_id} --like"),
            "expires": answer_lead(pending, view.allowed.login),
        }
    # Alert boxes: kind, lead-in, text.
    boxes = (
        ("WARNING", "**Not published.** ", withheld),
        ("WARNING", "", progress.warnings),
        ("NOTE", "**Dry run: nothing was published.** ", published.dry_run_note),
        ("NOTE", "**Kept.** ", view.patch_note),
        ("NOTE", "**Checks will not start automatically.** ", view.ci_note),
    )

    remedy = outcome.remedy if outcome else ""
    updated = f"updated {datetime.fromtimestamp(view.at, UTC):%H:%M} UTC" if is_running and view.at else ""
    stop = f"stop it with {code(view.stop)}" if is_running and view.stop else ""
    return {
        "headline": " · ".join(filter(None, [" ".join(status_title(view)), request, duration(view.seconds), run])),
        "why": _escape(explain_result(view), view, _REASON_LIMIT),
        "pending": waiting,
        "activities": activities[-_MAX_RUNNING_ACTIVITIES:] if is_running else [],
        "earlier_activities": [] if is_running or bare else activities,
        "completion": _escape((outcome and outcome.completion) or "", view, COMPLETION_LIMIT),
        "is_claim": view.verdict not in {None, Verdict.VERIFIED},
        "reason": _escape(outcome.reason if outcome else "", view, _REASON_LIMIT),
        # Escaped together with the lead-in, behind which a fence opens no block.
        "remedy": _escape(f"**How to fix it:** {remedy}", view, _REASON_LIMIT) if remedy else "",
        "boxes": [
            (kind, _indent_lines(_escape(lead + text, view, _REASON_LIMIT), "> ")) for kind, lead, text in boxes if text
        ],
        "notes": [_indent_lines(_escape(note, view, _NOTE_LIMIT), "  ") for note in view.notes[:_MAX_NOTES]],
        "changed": "What changed" if links or not (withheld or published.dry_run_note) else "Changed, not published",
        "files": files[:_MAX_OPEN_FILES],
        "more_files": [] if bare else files[_MAX_OPEN_FILES:],
        "checks": checks_table(checks),
        "actions": [render_action(item, view.allowed) for item in view.actions],
        "denied": [denied_line(item) for item in progress.denied[:_MAX_DENIED_CALLS]],
        "attempts": [attempt_line(item) for item in progress.attempts],
        "withheld_diff": "" if bare else render_withheld_diff(view),
        "links": links,
        "offer": fence(outcome.offer) if outcome and outcome.offer else "",
        "footer": " · ".join(filter(None, [updated, stop, status_footer(view)])),
        "marker": view.marker,
    }


def status_title(view: StatusView) -> tuple[str, str]:
    sign, words = _result_title(view)
    missing = sum(action.is_missing for action in view.actions)
    if not missing or view.state == "waiting":
        return sign, words
    return "⚠️" if sign == "✅" else sign, f"{words}; {missing} of {plural(len(view.actions), 'action')} not done"


def _result_title(view: StatusView) -> tuple[str, str]:
    if isinstance(view.outcome, Waiting) and view.outcome.service:
        sign, words = _STATES["parked"]
        return sign, f"{words} for {view.outcome.service}"
    if view.verdict is None:
        if view.unreviewed is not None:
            return _PARTIAL_REVIEW if view.unreviewed.is_partial else _SOURCE_REVIEW
        is_withheld = isinstance(view.outcome, Finished) and view.published.withheld is not None
        return ("⚠️", "Not published") if is_withheld else _STATES[view.state]
    sign, words = headline(view.verdict, view.progress.judged_checks)
    if view.published.withheld:
        prefix = "Published in part" if view.published.commit else "Not published"
        return "⚠️", f"{prefix}; {words[:1].lower()}{words[1:]}"
    if view.published.dry_run_note:
        return sign, f"Dry run; {words[:1].lower()}{words[1:]}"
    return sign, words


def _indent_lines(markdown: str, prefix: str) -> str:
    return markdown.replace("\n", f"\n{prefix}")


def _escape(text: str, view: StatusView, limit: int) -> str:
    return escape_markdown(text, view.allowed, limit=limit)


_HEADLINES = {
    Verdict.VERIFIED: ("✅", "Done, checks passed"),
    Verdict.UNVERIFIED: ("⚠️", "Not verified"),
    Verdict.RED: ("❌", "Checks fail"),
    Verdict.UNCHANGED: ("⚪", "Nothing changed"),
    Verdict.SETUP_FAILED: ("⚠️", "Setup failed"),
}
_STANDING_NOTES: dict[Standing, str] = {
    "counts": "",
    "outdated": "before the last change",
    "superseded": "superseded by a later run",
    "before": "before the first change",
}


def render_account(progress: Progress, verdict: Verdict, *, partial: bool) -> str:
    """Render the bot's own account of a run for reviewers."""
    checks, setup_failed = progress.judged_checks, progress.setup_failed
    sign, words = headline(verdict, checks)
    why = explain(verdict, checks, changed=True, setup_failed=setup_failed, partial=partial)
    denied = "\n".join(f"- {denied_line(call)}" for call in progress.denied[:_MAX_ROWS])
    parts = (
        f"**{sign} {words}.** {why}".rstrip(),
        "\n".join(checks_table(checks)),
        f"**Denied, because nobody can approve calls in this run**\n\n{denied}" if denied else "",
    )
    return "\n\n".join(filter(None, parts))


def explain_result(view: StatusView) -> str:
    """Return why the headline is not "checks passed" or, of a review, "Done"."""
    checks, outcome, why = view.progress.judged_checks, view.outcome, ""
    if view.verdict is not None:
        partial = outcome is not None and outcome.partial
        changed, failed = bool(view.files or checks), view.progress.setup_failed
        why = explain(view.verdict, checks, changed=changed, setup_failed=failed, partial=partial)
    return describe_unread(view.unreviewed, "reviewed") if view.unreviewed is not None else why


def headline(verdict: Verdict, checks: Sequence[Check]) -> tuple[str, str]:
    sign, words = _HEADLINES[verdict]
    if verdict is Verdict.VERIFIED and _old_failures(checks):
        return sign, "Done, no test fails that did not fail before"
    if verdict is not Verdict.VERIFIED or not _has_only_ad_hoc(checks):
        return sign, words
    rerun = _bot_rerun(checks)
    is_repaired = rerun is not None and any(check.failed and check.command == rerun.command for check in checks)
    return sign, "Done, the failed command passes now" if is_repaired else "Done, an ad-hoc check passed"


def explain(
    verdict: Verdict, checks: Sequence[Check], *, changed: bool, setup_failed: str = "", partial: bool = False
) -> str:
    match verdict:
        case Verdict.VERIFIED:
            if not _has_only_ad_hoc(checks):
                failures = _old_failures(checks)
                rest = f", … ({len(failures)} in all)" if len(failures) > _MAX_TESTS else ""
                return f"Failed before the change, too: {', '.join(failures[:_MAX_TESTS])}{rest}." if failures else ""
            rerun = _bot_rerun(checks)
            return (
                f"After the change, the bot ran {_command(rerun)} again and it passed. {_UNKNOWN}" if rerun else _AD_HOC
            )
        case Verdict.UNVERIFIED:
            complete_verdict = verdict_of(checks, changed=changed)
            return _PARTIAL if partial and complete_verdict is Verdict.VERIFIED else _explain_unverified(checks)
        case Verdict.RED:
            failed = failing_checks(checks)
            text = f"{_command(failed[-1])} ended with exit code {failed[-1].exit_code}"
            if failed[-1].standing == "outdated":
                text += " and was not run again after the last change"
            if more := len(failed) - 1:
                text += f"; {more} other {'check' if more == 1 else 'checks'} failed, too"
            return f"{text}."
        case Verdict.UNCHANGED:
            return "The agent changed no files."
        case Verdict.SETUP_FAILED:
            before = f"Before the agent started, {setup_failed}. Dependencies installed by setup may be missing."
            rest = verdict_of(checks, changed=changed, partial=partial)
            texts = {Verdict.VERIFIED: "The agent's own checks passed.", Verdict.UNCHANGED: ""}
            text = texts.get(rest, "") or explain(rest, checks, changed=changed, partial=partial)
            return " ".join(filter(None, [before, text]))


_AD_HOC = "Only an ad-hoc check passed: no known test, build or lint command ran after the last change."
_UNKNOWN = "It is not a known test, build or lint command."
_PARTIAL = "No check ran on the published change, without the withheld files."


def _explain_unverified(checks: Sequence[Check]) -> str:
    unfinished = [check for check in checks if check.standing == "counts" and check.exit_code is None]
    if unfinished:
        return f"{_command(unfinished[-1])} did not finish."
    if any(check.standing == "outdated" for check in checks):
        return "Files changed after the last check, and no check ran on the result."
    if checks:
        return "No check ran after the change."
    return "No known test, build or lint command ran."


def checks_table(checks: Sequence[Check]) -> list[str]:
    if not checks:
        return []
    by_weight = sorted(range(len(checks)), key=lambda n: (checks[n].standing in {"superseded", "before"}, -n))
    rows: list[str] = []
    for check in (checks[number] for number in sorted(by_weight[:_MAX_ROWS])):
        is_unfinished = check.exit_code is None
        exit_text = "did not end" if is_unfinished else f"exit code {check.exit_code}"
        if check.passed:
            exit_text = "failed before, too" if check.failed_before else "passed"
        notes = [
            _STANDING_NOTES[check.standing],
            "run by the bot" if check.by_host else "",
            "ad hoc" if check.is_ad_hoc and check.standing != "superseded" else "",
        ]
        result = ", ".join(filter(None, [exit_text, *notes]))
        # An unescaped bar ends a table cell, even in code.
        cell = _command(check).replace("|", "\\|")
        sign = "✅" if check.passed else "⏱️" if is_unfinished else "❌"
        if check.standing in {"superseded", "before"} or (check.standing == "outdated" and not failing_checks([check])):
            sign = "▫️"
        rows.append(f"| {sign} | {cell} | {result} | {duration(check.seconds)} |")
    if more := len(checks) - len(rows):
        rows.append(f"| | {more} more, older or superseded | | |")
    return ["| | Check | Result | Time |", "|---|---|---|---|", *rows]


def _command(check: Check) -> str:
    return code(one_line(check.command, _MAX_COMMAND_CHARS))


def _bot_rerun(checks: Sequence[Check]) -> Check | None:
    return next((check for check in checks if check.by_host and check.standing == "counts" and check.passed), None)


def _old_failures(checks: Sequence[Check]) -> list[str]:
    """Return the tests that failed before the agent began and fail in a check that counts, as code."""
    tests = (test for check in checks if check.standing == "counts" for test in check.failed_before)
    return [code(one_line(test, _MAX_COMMAND_CHARS)) for test in dict.fromkeys(tests)]


def _has_only_ad_hoc(checks: Sequence[Check]) -> bool:
    return all(check.is_ad_hoc for check in checks if check.standing == "counts" and check.passed)


_MAX_UNAPPROVABLE_CHARS = 6_000
_MAX_REQUEST_CHARS = 200
_MAX_SUMMARY_CHARS = 300
_MAX_WITHHELD_CHARS = 20_000
_CONFIG_FILE = ".github/codepilot.yml"
_TRUNCATED_PREVIEW = "… truncated: too long to be shown, so it cannot be approved"

PENDING_HEADS = {
    "permission": "This requires your approval.",
    "question": "A question.",
    "publication": "This requires your approval before it is published.",
    "plan": "This is a plan. Nothing has changed yet; approving it starts the work.",
    "actions": "These actions require your approval.",
}


def activity_line(activity: Activity) -> str:
    mark = {"done": "[x]", "doing": "[ ]", "failed": "[x] ⚠️"}[activity.state]
    return f"{mark} {code(one_line(activity.label, 120))}"


def file_line(file: FileChange) -> str:
    # A no-break space and a true minus sign.
    counts = "binary" if file.binary else f"+{file.added}\u00a0\u2212{file.removed}"
    notes = [counts] if file.status == "modified" else [file.status, counts]
    if file.new_mode == "100755" and file.old_mode != "100755":
        notes.append("made executable")
    if file.new_mode == "120000":
        notes.append("symbolic link")
    return f"{code(escape_unseen(file.path))} {', '.join(notes)}"


def denied_line(call: DeniedCall) -> str:
    request = code(one_line(call.request, _MAX_REQUEST_CHARS))
    match call.setting:
        case "allow-commands":
            advice = f"add {code(call.value)} to `allow` in `{_CONFIG_FILE}`, or to the action's input `allow-commands`"
        case "level":
            advice = f"set `level: auto` in `{_CONFIG_FILE}`, or as the action's input if that file sets no level"
        case "label":
            advice = f"set the label {code(call.value)} and remove the one for a lower level"
        case "label-off":
            advice = f"remove the label {code(call.value)}, and set `level: auto` if it is not already set"
        case _:
            return f"Not answered: {request}. Write the answer into your next command."
    return f"{request}. To allow it, {advice}."


def attempt_line(attempt: CandidateView) -> str:
    cost = "" if attempt.usage.cost_usd is None else f", ${attempt.usage.cost_usd:.2f}"
    lines = "lines not counted" if attempt.lines is None else plural(attempt.lines, "line")
    change = f"{plural(attempt.files, 'file')}, {lines}" if attempt.files else "no change"
    summary = f": {code(one_line(attempt.summary, _MAX_SUMMARY_CHARS))}" if attempt.summary else ""
    name = f"**Attempt {attempt.number}**{', selected' if attempt.is_selected else ''}"
    verdict = attempt.verdict.value.replace("_", " ")
    details = f"{attempt.ended.replace('_', ' ')}, {verdict}, {change}, {plural(attempt.steps, 'step')}"
    return f"{name}: {details}{cost}{summary}"


def render_withheld_diff(view: StatusView) -> str:
    diff = view.outcome.withheld_diff if view.outcome is not None else ""
    return fence(diff, "diff") if 0 < len(diff) <= _MAX_WITHHELD_CHARS else ""


def render_preview(pending: PendingView) -> str:
    if pending.part_urls:
        links = " · ".join(f"[part {number}]({url})" for number, url in enumerate(pending.part_urls, 1))
        return f"**Read all {len(pending.part_urls)} parts before you answer.** {links}"
    text = pending.preview.strip("\n").encode("utf-8", "replace").decode()
    if not fits_comment(text):
        text = clip(text, _MAX_UNAPPROVABLE_CHARS, _TRUNCATED_PREVIEW)
    return fence(text, pending.language) if text else ""


def is_approvable(pending: PendingView) -> bool:
    """Whether the complete preview can be read."""
    return pending.kind != "question" and (bool(pending.part_urls) or fits_comment(pending.preview))


def answer_lead(pending: PendingView, login: str) -> str:
    until = f" until {pending.expires}" if pending.expires else ""
    if pending.takes_replies:
        subject = f"A reply by anybody but @{login}" if login else "A reply"
        return f"Reply here{until}, or write this line. {subject} has to quote the question."
    return f"Answer{'' if pending.kind == 'question' else ' with one of these'}{until}:"


def answer_commands(pending: PendingView) -> list[str]:
    if pending.kind == "question":
        return [fence(f"{pending.trigger} continue <your answer>")]
    verbs = ("approve", "deny") if is_approvable(pending) else ("deny",)
    lines = [f"{pending.trigger} {verb} {pending.request_id}" for verb in verbs]
    # Single actions are denied first; then the rest waits.
    single = [f"{pending.trigger} deny {pending.request_id} <numbers>"] if pending.kind == "actions" else []
    return [fence(line) for line in (*lines, *single)]


def similar_calls_offer(pending: PendingView) -> str:
    if not pending.like or not is_approvable(pending):
        return ""
    patterns = ", ".join(map(code, pending.like))
    placeholders = {
        "<name>": "`<name>` is any one name: no option, path or URL",
        "<path>": "`<path>` is any one relative path",
    }
    meanings = [meaning for word, meaning in placeholders.items() if any(word in pattern for pattern in pending.like)]
    scope = f"whatever fits {patterns}, where {' and '.join(meanings)}" if meanings else "the same again"
    return f"Or approve it and, for the rest of this run, {scope}:"


def result_links(view: StatusView) -> str:
    parts, published = [], view.published
    if (pull := view.pull) is not None:
        parts.append(_pull_link(pull))
    if published.review_url:
        parts.append(f"[review]({published.review_url})")
    if (commit := published.commit) is not None and commit.url:
        parts.append(f"[commit `{commit.sha[:7]}`]({commit.url})")
    if published.wip_url:
        parts.append(f"[unfinished work]({published.wip_url})")
    return " · ".join(parts)


def _pull_link(pull: PullLink) -> str:
    return f"[{'draft ' if pull.draft else ''}pull request #{pull.number}]({pull.html_url})"


def status_footer(view: StatusView) -> str:
    parts = []
    if view.steps:
        parts.append(plural(view.steps, "step"))
    if view.usage.total_tokens:
        usage = view.usage
        inputs = usage.total_tokens - usage.output_tokens
        cached = usage.cached_tokens * 100 // inputs if inputs else 0
        share = f", {cached} % of the input cached" if inputs and usage.cached_tokens else ""
        parts.append(f"{usage.total_tokens:,} tokens{share}")
    if view.usage.cost_usd:
        parts.append(f"${view.usage.cost_usd:.2f}" if view.usage.cost_usd >= 0.01 else "under $0.01")  # noqa: PLR2004 - a cent
    if view.usage.total_tokens and view.usage.cost_usd is None:
        parts.append("cost not known")
    if view.model:
        parts.append(code(view.model))
    if view.level:
        parts.append(f"permission: {code(view.level)}")
    if view.sandbox:
        parts.append(f"sandbox: {code(view.sandbox)}")
    return " · ".join([*parts, *view.progress.instruction_names, f"job {code(view.job_id)}"])


_ASSIGNMENT = re.compile(
    r"`CODEPILOT_(?P<quoted>[A-Z_]+)=(?P<text>[^`\n]*)`|\bCODEPILOT_(?P<bare>[A-Z_]+)=(?P<word>[^\s`,;]+)"
)
_VARIABLE = re.compile(
    r"(?:the )?`?\b(?:CODEPILOT_([A-Z][A-Z_]*[A-Z])|(ANTHROPIC_API_KEY|DASHSCOPE_API_KEY|OPENAI_API_KEY))\b`?"
)


_OPERATORS_LOG = re.compile(r"\b([Aa])sk the operator to read the bot's log\b")


def settings_to_inputs(text: str) -> str:
    """Name the inputs of the action and the log of the workflow run, not settings and the log of an operator."""
    text = _OPERATORS_LOG.sub(lambda match: f"{'R' if match[1] == 'A' else 'r'}ead the log of this workflow run", text)
    return _VARIABLE.sub(
        lambda match: f"the input `{_input_name(match[1] or match[2])}`", _ASSIGNMENT.sub(_input_assignment, text)
    )


def _input_assignment(match: re.Match[str]) -> str:
    name, value = match["quoted"] or match["bare"], match["text"] if match["quoted"] else match["word"]
    return f"`{_input_name(name)}: {value}`"


def _input_name(name: str) -> str:
    return name.lower().replace("_", "-")


_MAX_COMMAND_CHARS = 160
_MAX_ROWS = 10

_STOP = Button(label="Stop", description="Stop the run and keep its work", identifier="stop")
_RETRY = Button(label="Retry", description="Run it again from the start", identifier="retry")
_APPROVE, _DENY = ("Approve", "Approve the request"), ("Deny", "Deny it; the run continues")
_MAX_PATCH_READ = 4 * CHECK_TEXT_LIMIT
# Limited by the length of a button's identifier.
_ID_LIMIT = 8

_RUNNING_STATUSES: Mapping[str, CheckStatus] = {"queued": "queued", "working": "in_progress", "parked": "queued"}
# A waiting run is `completed` with `action_required`: GitHub shows buttons only on completed check runs.
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
_FINAL_STATES = frozenset({"done", "failed", "stopped", "refused"})
_BUTTONS: Mapping[str, tuple[Button, ...]] = {
    "queued": (_STOP,),
    "working": (_STOP,),
    "parked": (_STOP,),
    "waiting": (_STOP,),
    "stopped": (_RETRY,),
    "failed": (_RETRY,),
}
# Required status checks accept these: https://docs.github.com/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/about-status-checks
_PASSING: frozenset[Conclusion] = frozenset({"success", "neutral", "skipped"})

NO_FILE = ".github"
"""Path of annotations without a file, as used by GitHub's own runner."""


def render_check(
    view: StatusView,
    *,
    job: Job,
    head_sha: str,
) -> CheckDraft:
    """Render the check run on a commit, with the patch as far as it fits, and review comments as annotations."""
    running_status = _RUNNING_STATUSES.get(view.state)
    thread = job.thread
    # No branch has a colon in its name.
    place = f"branch:{thread.branch}" if thread.kind == "branch" else f"{thread.kind}:{thread.number}"
    request = f"{STARTED_BY_CI} {view.failed_check} failed" if view.failed_check else view.event_label or view.command
    summary = render_status(view).removesuffix(view.marker).rstrip()
    if len(summary) > CHECK_TEXT_LIMIT:
        cut = clip(summary, CHECK_TEXT_LIMIT, "_Truncated: see the comment for the rest._")
        summary = defuse(cut, view.allowed, replace(status_markup(view), marker=""), limit=CHECK_TEXT_LIMIT)
    buttons, pending = _BUTTONS.get(view.state, ()), view.pending
    if pending is not None and pending.kind != "question":  # which takes words
        # The identifier names the request, since an old page may show buttons of an earlier one.
        request_id, choices = pending.request_id[:_ID_LIMIT], (_APPROVE, _DENY) if is_approvable(pending) else (_DENY,)
        answers = (
            Button(label=label, description=description, identifier=f"{label.lower()} {request_id}")
            for label, description in choices
        )
        buttons = (*answers, *buttons)
    return CheckDraft(
        # One entry in the list of checks per command; many issues share one commit.
        name=f"Codepilot {job.command.verb}" + (f" #{thread.number}" if thread.kind == "issue" else ""),
        head_sha=head_sha,
        external_id=f"{job.id}:{place}:{view.pending.request_id if view.pending else '-'}",
        status=running_status or "completed",
        conclusion=None if running_status else check_conclusion(view, blocking=job.thread.kind == "pull"),
        title=one_line(f"{status_title(view)[1]}: {request}", TITLE_LIMIT),
        summary=summary,
        text=_patch_text(view.outcome.patch + view.outcome.leftovers if view.outcome else "", job.id),
        annotations=build_annotations(view) if view.state in _FINAL_STATES else (),
        buttons=buttons,
    )


def check_conclusion(view: StatusView, *, blocking: bool) -> Conclusion:
    """Return the conclusion of an ended job; unless `blocking`, failures become `neutral`."""
    result = _CONCLUSIONS[view.state]
    outcome = view.outcome
    if isinstance(outcome, Failed) and outcome.run is not None and outcome.run.status is Status.TIMEOUT:
        result = "timed_out"
    if view.verdict is not None:
        result = _VERDICTS[view.verdict]
    is_partial = view.unreviewed is not None and view.unreviewed.is_partial
    is_partial = is_partial or any(action.is_missing for action in view.actions)
    if result == "success" and (view.published.withheld or is_partial):
        result = "neutral"
    return result if blocking or result in _PASSING else "neutral"


def _patch_text(patch: str, job_id: str) -> str:
    if not patch:
        return ""
    heading = "### The patch\n\n"
    # `clean` would treat a carriage return as a redrawn line. A huge patch is read only as far as it can be shown.
    head = patch[:_MAX_PATCH_READ]
    cleaned = "\r".join(map(clean, head.split("\r")))
    cleaning_note = "Shown without invisible characters. " if cleaned != head else ""
    note = f"_{cleaning_note}The bot keeps the patch under job `{job_id}`._" if cleaning_note else ""
    complete = f"{heading}{fence(cleaned, 'diff')}\n\n{note}".rstrip()
    if len(complete) <= CHECK_TEXT_LIMIT and head == patch:
        return complete
    size = f"Truncated: the whole patch has {len(patch):,} characters."
    note = f"_{cleaning_note}{size} The bot keeps it under job `{job_id}`._"
    # A hostile patch of back ticks alone makes the fence as long as itself.
    room = CHECK_TEXT_LIMIT - len(heading) - len(note) - 20
    while room > 0:
        cut = f"{heading}{fence(clip(cleaned, room, ''), 'diff')}\n\n{note}"
        if len(cut) <= CHECK_TEXT_LIMIT:
            return cut
        room //= 2
    return note


def build_annotations(view: StatusView) -> tuple[Annotation, ...]:
    judged, review = view.progress.judged_checks, view.outcome.review if view.outcome is not None else None
    failed = failing_checks(judged)
    unfinished = [check for check in judged if check.standing == "counts" and check.exit_code is None]
    checks = (
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
        for check in (*failed, *unfinished)
    )
    # Annotations refer to the new file; removed lines have none.
    lines = (
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
    return (*checks, *lines)
