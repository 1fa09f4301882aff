"""GitHub-flavoured Markdown and program code to HTML that is safe to show."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight as colour
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from localhub.pages.alerts import alerts_plugin
from localhub.pages.references import references_plugin
from localhub.pages.sanitise import sanitise
from localhub.pages.suggestions import suggestions_plugin

LARGEST_COLOURED = 200_000
"""Characters; a larger file is shown without colours."""


@cache
def _parser() -> MarkdownIt:
    options = {"html": True, "breaks": True, "linkify": True, "highlight": _fence}
    parser = MarkdownIt("gfm-like", options)
    return parser.use(tasklists_plugin).use(references_plugin).use(suggestions_plugin).use(alerts_plugin)


def markdown(text: str, root: str = "", replaced: Sequence[str] | None = None) -> Markup:
    """Render as GitHub renders a comment; HTML in it is cut down to what is harmless.

    With `root`, the page of a repository, references such as `#12` become links. With `replaced`, the lines that the
    comment is about, a suggestion shows what it changes.
    """
    return Markup(sanitise(_parser().render(text, {"root": root, "replaced": replaced})))  # noqa: S704 - sanitised on this line


def highlight(text: str, path: str) -> Markup:
    """Colour a file by its name."""
    if len(text) <= LARGEST_COLOURED:
        try:
            return _coloured(text, get_lexer_for_filename(path, stripnl=False))
        except ClassNotFound:
            pass
    return Markup(html.escape(text))  # noqa: S704 - escaped on this line


def _fence(text: str, language: str, _attributes: str) -> str:
    try:
        return str(_coloured(text, get_lexer_by_name(language or "text", stripnl=False)))
    except ClassNotFound:
        return html.escape(text)


def _coloured(text: str, lexer: Lexer) -> Markup:
    return Markup(colour(text, lexer, HtmlFormatter(nowrap=True)))  # noqa: S704 - the formatter escapes the code


def _styles(name: str) -> str:
    return str(HtmlFormatter(style=name).get_style_defs([".code", ".prose pre"]))  # type: ignore[no-untyped-call]  # the stubs leave it bare


@cache
def code_styles() -> str:
    """The style sheet for coloured code, for light and dark."""
    light, dark = (_styles(name) for name in ("friendly", "github-dark"))
    own = (
        ".code { background: none; } .prose pre { background: var(--soft); } .code .err, .prose pre .err { border: 0; }"
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}\n"
