"""The lines of the status comment, each harmless by itself. Pure."""

from __future__ import annotations

from bot.publishing.showing import fits
from bot.publishing.text import clip, code, counted, fenced, one_line
from bot.publishing.unseen import spelled_out
from bot.publishing.view import Activity, CandidateView, DeniedCall, PendingView, StatusView
from bot.workspace.change import FileChange

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
    what = "the same again" if all("**" not in each for each in pending.like) else f"whatever fits {patterns}"
    stars = ", where `**` matches any one word that is not an option" if "**" in patterns else ""
    return f"Or approve it and, for the rest of this run, {what}{stars}:"


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
