"""The one status comment: what the bot does, did, or could not do, at a glance. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import jinja2

from bot.publishing.inert import Allowed, escape_markdown
from bot.publishing.live import Own, sealed
from bot.publishing.pieces import (
    PENDING_HEADS,
    activity_line,
    answers,
    attempt_line,
    denied_line,
    file_line,
    footer,
    like_line,
    links,
    preview,
    withheld_diff,
)
from bot.publishing.proof import headline, reason, table
from bot.publishing.text import COMMENT_LIMIT, clip, code, duration, fenced, one_line
from bot.publishing.verdict import Verdict
from bot.publishing.view import State, StatusView

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """What waits, as harmless Markdown."""

    head: str
    preview: str
    answers: list[str]
    expires: str
    like: str
    like_answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The same as the view, as harmless Markdown; what the template reads."""

    headline: str
    why: str
    pending: _Pending | None
    activities: list[str]
    earlier_activities: list[str]
    completion: str
    is_claim: bool
    reason: str
    remedy: str
    boxes: list[tuple[str, str]]
    notes: list[str]
    changed: str
    files: list[str]
    more_files: list[str]
    checks: list[str]
    denied: list[str]
    attempts: list[str]
    withheld_diff: str
    links: str
    footer: str
    marker: str


def render_status(view: StatusView) -> str:
    """The comment's body, at most 65,536 characters, every foreign word in it harmless."""
    shown = _shown(view)
    body = _TEMPLATES.get_template("status.md.j2").render(view=shown).strip()
    own = framing(view)
    if len(body) <= COMMENT_LIMIT:
        return sealed(body, view.allowed, own, limit=COMMENT_LIMIT)
    # Long lists, not the words, are what can be left out; the marker must stay.
    tail = f"\n\n{shown.marker}"
    short = _TEMPLATES.get_template("status.md.j2").render(view=_shown(view, bare=True)).strip()
    cut = clip(short.removesuffix(shown.marker).rstrip(), COMMENT_LIMIT - len(tail), _CUT) + tail
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
        marker: from `marker.marker`; empty where the comment need not be found again.
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
        marker: from `marker.marker`.
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


def _shown(view: StatusView, *, bare: bool = False) -> _Shown:
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
        waits = _Pending(
            head=_words(f"**{PENDING_HEADS[pending.kind]}** {pending.reason}".strip(), view, _REASON_LIMIT),
            preview=preview(pending),
            answers=answers(pending),
            like=like_line(pending),
            like_answer=fenced(f"{pending.trigger} approve {pending.request_id} --like"),
            expires=f"Answer{'' if pending.kind == 'question' else ' with one of these'}{until}:",
        )
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
    return _Shown(
        headline=" · ".join(filter(None, [" ".join(title_of(view)), asked, duration(view.seconds), run])),
        why=_words(why, view, _REASON_LIMIT),
        pending=waits,
        activities=activities[-_ACTIVITIES_SHOWN:] if live else [],
        earlier_activities=[] if live or bare else activities,
        completion=_words(view.completion or "", view, COMPLETION_LIMIT),
        is_claim=view.state == "done" and view.verdict not in {None, Verdict.VERIFIED},
        reason=_words(view.reason, view, _REASON_LIMIT),
        # The lead-in is read together with what follows: alone, a fence there would open a block; after it, none.
        remedy=_words(f"**How to fix it:** {view.remedy}", view, _REASON_LIMIT) if view.remedy else "",
        boxes=[(kind, _inside(_words(lead + text, view, _REASON_LIMIT), "> ")) for kind, lead, text in boxes if text],
        notes=[_inside(_words(note, view, _NOTE_LIMIT), "  ") for note in view.notes[:_NOTES_SHOWN]],
        changed="What changed" if links(view) or not (view.withheld or view.would) else "Changed, not published",
        files=files[:_FILES_SHOWN],
        more_files=[] if bare else files[_FILES_SHOWN:],
        checks=table(view.checks),
        denied=[denied_line(each) for each in view.denied[:_DENIED_SHOWN]],
        attempts=[attempt_line(each) for each in view.attempts],
        withheld_diff="" if bare else withheld_diff(view),
        links=links(view),
        footer=" · ".join(filter(None, [updated, stop, footer(view)])),
        marker=view.marker,
    )


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
