"""Show a fenced block marked `suggestion` as the lines that it removes and adds."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict


def suggestions_plugin(parser: MarkdownIt) -> None:
    """Show suggestions; `env["replaced"]` has the commented lines, and without it a suggestion is plain code."""
    parser.add_render_rule("fence", _fence)


def _fence(renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: dict[str, Any]) -> str:
    replaced: Sequence[str] | None = env.get("replaced")
    token = tokens[at]
    if replaced is None or token.info.strip() != "suggestion":
        return renderer.fence(tokens, at, options, env)
    lines = [
        *(f"<del>{html.escape(line)}</del>" for line in replaced),
        *(f"<ins>{html.escape(line)}</ins>" for line in token.content.splitlines()),
    ]
    return f"<details open><summary>Suggested change</summary><pre><code>{''.join(lines)}</code></pre></details>\n"
