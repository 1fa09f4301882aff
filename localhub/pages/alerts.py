"""`> [!NOTE]` in Markdown becomes an alert, as on GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

KINDS = frozenset({"note", "tip", "important", "warning", "caution"})

_MARK = re.compile(rf"\[!(?P<kind>{'|'.join(sorted(KINDS))})\][ \t]*(?:\n|$)", re.IGNORECASE | re.ASCII)


def alerts_plugin(parser: MarkdownIt) -> None:
    """Show alerts. GitHub takes them at the top level only, and leaves one without content a quote."""
    parser.core.ruler.after("block", "alerts", _alerts)


def _alerts(state: StateCore) -> None:
    shown: list[Token] = []
    for at, token in enumerate(state.tokens):
        shown.append(token)
        found = _mark(state.tokens[at : at + 5]) if token.type == "blockquote_open" and token.level == 0 else None
        if found is None:
            continue
        kind, first = found["kind"].lower(), state.tokens[at + 2]
        token.attrSet("class", f"alert {kind}")
        title = f"**{kind.capitalize()}**"
        rest = first.content[found.end() :]
        if rest:
            shown += [
                Token("paragraph_open", "p", 1, level=1, block=True),
                Token("inline", "", 0, level=2, block=True, content=title, children=[]),
                Token("paragraph_close", "p", -1, level=1, block=True),
            ]
        first.content = rest or title
    state.tokens = shown


def _mark(tokens: Sequence[Token]) -> re.Match[str] | None:
    """The mark in the first five tokens of a quote; None where it has none, or nothing after it."""
    if [each.type for each in tokens[1:3]] != ["paragraph_open", "inline"]:
        return None
    found = _MARK.match(tokens[2].content)
    is_alone = found is not None and found.end() == len(tokens[2].content) and tokens[4].type == "blockquote_close"
    return None if is_alone else found
