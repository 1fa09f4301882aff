"""Texts of proposed actions: as they are sent, and as a person approves them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.domain.actions import Action, CreateIssue, Proposal, UpdateBody, with_texts
from bot.github.types import BODY_LIMIT, TargetFacts
from bot.publishing.commit_format import CommitFormat
from bot.publishing.description import Description, keep_marks, parse_description
from bot.publishing.markdown import Allowlist, BotMarkup, clean, defuse, escape_markdown
from bot.publishing.outcome import ActionState, ActionView
from bot.publishing.screening import escape_unseen

LIST_BREAK = "\n\n"
"""Between the entries of a list; no entry has an empty line."""


def clean_texts(action: Action, allowed: Allowlist, redact: Callable[[str], str]) -> Action:
    """Return the action with its texts as they are sent: without secrets, invisible characters and mentions.

    References to threads of the repository stay active.
    """
    action = with_texts(action, lambda text: redact(clean(text)))
    body = getattr(action, "body", "")
    if not body or isinstance(action, UpdateBody):  # which is merged with the old text
        return action
    changes: dict[str, Any] = {"body": escape_markdown(body, _without_person(allowed))}
    return replace(action, **changes)


def _without_person(allowed: Allowlist) -> Allowlist:
    return replace(allowed, login="", all_threads=True)


def sign_body(body: str, allowed: Allowlist, mark: str, *, origin: str) -> str:
    """Return a body with the mark of its action and a line on its origin, the address of a thread, if there is one."""
    line = f"\n\n<sub>Written by Codepilot, for [this thread]({origin}).</sub>" if origin else ""
    markup = BotMarkup(marker=mark, tags=True, links=frozenset({origin} - {""}))
    return defuse(f"{body}{line}\n\n{mark}", _without_person(allowed), markup, limit=BODY_LIMIT)


def merge_body(action: UpdateBody, old: TargetFacts, allowed: Allowlist) -> str:
    """Return the new text of the bot's own thread, with the old one's marks and, of a pull request, its closings."""
    if old.kind == "issue":
        return keep_marks(escape_markdown(action.body, _without_person(allowed)), old.body)
    former, text = Description(title=old.title, body=old.body), f"{old.title}\n\n{action.body}"
    merged = parse_description(text, former, commit_format=CommitFormat(), template="", allowed=allowed)
    return old.body if merged is None else merged.body


def show_proposals(proposals: Iterable[Proposal], thread: int, labels: Sequence[str] = ()) -> str:
    """Return the numbered list of proposals with all their texts, for a code block.

    Args:
        labels: of each issue that they create.
    """
    entries = []
    for proposal in proposals:
        action, body = proposal.action, getattr(proposal.action, "body", "")
        lines = [f"{proposal.number}. {proposal.sentence(thread)}"]
        lines += [f"   Labels: {', '.join(labels)}"] if labels and isinstance(action, CreateIssue) else []
        lines += [f"   | {line}".rstrip() for line in body.split("\n")] if body else []
        entries.append("\n".join(map(escape_unseen, lines)))
    return LIST_BREAK.join(entries)


_SIGNS: Mapping[ActionState, str] = {
    "proposed": "🕐",
    "waiting": "✋",
    "applied": "✅",
    "denied": "🚫",
    "refused": "⚠️",
    "failed": "❌",
}
_VIEW_LIMIT = 1_000


def render_action(action: ActionView, allowed: Allowlist) -> str:
    """Return the list item of a proposal and its result, in Markdown."""
    note = f": {action.note}" if action.note and not action.url else ""
    words = escape_markdown(f"{action.sentence}{note}", allowed, limit=_VIEW_LIMIT).replace("\n", "\n  ")
    link = f" ([{action.note or 'open'}]({action.url}))" if action.url else ""
    return f"{_SIGNS[action.state]} {action.number}. {words}{link}"
