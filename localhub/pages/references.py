"""`#12` and `@mona` in Markdown become links, as on GitHub."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

_REFERENCE = re.compile(r"(?<![\w/&#@])(?:#(?P<number>\d+)|@(?P<login>[A-Za-z\d][A-Za-z\d-]*))\b")


def references_plugin(parser: MarkdownIt) -> None:
    """Link references; `env["root"]` is the repository's page, and without it nothing is linked."""
    parser.core.ruler.after("inline", "references", _link)


def _link(state: StateCore) -> None:
    root = state.env.get("root")
    for token in state.tokens if root else ():
        if token.type != "inline":
            continue
        depth, children = 0, []
        for child in token.children or ():
            depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
            children += _split(child, str(root)) if child.type == "text" and depth == 0 else [child]
        token.children = children


def _split(token: Token, root: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    for match in _REFERENCE.finditer(token.content):
        href = f"{root}/issues/{match['number']}" if match["number"] else f"/{match['login']}"
        found += [
            _text(token.content[at : match.start()]),
            Token("link_open", "a", 1, attrs={"href": href}),
            _text(match.group()),
            Token("link_close", "a", -1),
        ]
        at = match.end()
    return [*found, _text(token.content[at:])]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
