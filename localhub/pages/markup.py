"""GitHub-flavoured Markdown and program code as HTML that is safe to show.

Plugins of the Markdown parser link `#12` and `@mona`, show a fenced block marked `suggestion` as the lines that it
removes and adds, and turn `> [!NOTE]` into an alert. `sanitise` cuts the HTML down to an allow-list: it drops every
other element, and closes the elements that stay open.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight as colour
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound
from typing_extensions import override

LARGEST_COLOURED = 200_000
"""Characters; a larger file is shown without colours."""


def markdown(text: str, root: str = "", replaced: Sequence[str] | None = None) -> Markup:
    """Render as GitHub renders a comment; only harmless HTML remains.

    With `root`, the page of a repository, references such as `#12` become links. With `replaced`, the lines of the
    comment, a suggestion shows its change.
    """
    return Markup(sanitise(_parser().render(text, {"root": root, "replaced": replaced})))  # noqa: S704 - sanitised on this line


@cache
def _parser() -> MarkdownIt:
    options = {"html": True, "breaks": True, "linkify": True, "highlight": _highlight_fence}
    parser = MarkdownIt("gfm-like", options)
    return parser.use(tasklists_plugin).use(references_plugin).use(suggestions_plugin).use(alerts_plugin)


def highlight(text: str, path: str) -> Markup:
    """Colour a file by its name."""
    if len(text) <= LARGEST_COLOURED:
        try:
            return _coloured(text, get_lexer_for_filename(path, stripnl=False))
        except ClassNotFound:
            pass
    return Markup(html.escape(text))  # noqa: S704 - escaped on this line


def _highlight_fence(text: str, language: str, _attributes: str) -> str:
    try:
        return str(_coloured(text, get_lexer_by_name(language or "text", stripnl=False)))
    except ClassNotFound:
        return html.escape(text)


def _coloured(text: str, lexer: Lexer) -> Markup:
    return Markup(colour(text, lexer, HtmlFormatter(nowrap=True)))  # noqa: S704 - the formatter escapes the code


@cache
def code_styles() -> str:
    """The style sheet for coloured code, for light and dark."""
    light, dark = (_styles(name) for name in ("friendly", "github-dark"))
    own = (
        ".code { background: none; } .prose pre { background: var(--soft); } .code .err, .prose pre .err { border: 0; }"
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}\n"


def _styles(name: str) -> str:
    return str(HtmlFormatter(style=name).get_style_defs([".code", ".prose pre"]))  # type: ignore[no-untyped-call]  # the stubs leave it bare


_REFERENCE = re.compile(r"(?<![\w/&#@])(?:#(?P<number>\d+)|@(?P<login>[A-Za-z\d][A-Za-z\d-]*))\b")


def references_plugin(parser: MarkdownIt) -> None:
    """Link references; `env["root"]` is the repository's page, and without it nothing is linked."""
    parser.core.ruler.after("inline", "references", _link_references)


def _link_references(state: StateCore) -> None:
    root = state.env.get("root")
    for token in state.tokens if root else ():
        if token.type != "inline":
            continue
        depth, children = 0, []
        for child in token.children or ():
            depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
            children += _split_references(child, str(root)) if child.type == "text" and depth == 0 else [child]
        token.children = children


def _split_references(token: Token, root: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    for match in _REFERENCE.finditer(token.content):
        href = f"{root}/issues/{match['number']}" if match["number"] else f"/{match['login']}"
        found += [
            _text_token(token.content[at : match.start()]),
            Token("link_open", "a", 1, attrs={"href": href}),
            _text_token(match.group()),
            Token("link_close", "a", -1),
        ]
        at = match.end()
    return [*found, _text_token(token.content[at:])]


def _text_token(content: str) -> Token:
    return Token("text", "", 0, content=content)


def suggestions_plugin(parser: MarkdownIt) -> None:
    """Show suggestions; `env["replaced"]` has the commented lines, and without it a suggestion is plain code."""
    parser.add_render_rule("fence", _render_suggestion)


def _render_suggestion(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: dict[str, Any]
) -> str:
    replaced: Sequence[str] | None = env.get("replaced")
    token = tokens[at]
    if replaced is None or token.info.strip() != "suggestion":
        return renderer.fence(tokens, at, options, env)
    lines = [
        *(f"<del>{html.escape(line)}</del>" for line in replaced),
        *(f"<ins>{html.escape(line)}</ins>" for line in token.content.splitlines()),
    ]
    return f"<details open><summary>Suggested change</summary><pre><code>{''.join(lines)}</code></pre></details>\n"


KINDS = frozenset({"note", "tip", "important", "warning", "caution"})

_MARK = re.compile(rf"\[!(?P<kind>{'|'.join(sorted(KINDS))})\][ \t]*(?:\n|$)", re.IGNORECASE | re.ASCII)


def alerts_plugin(parser: MarkdownIt) -> None:
    """Show alerts. GitHub takes them at the top level only, and leaves one without content a quote."""
    parser.core.ruler.after("block", "alerts", _convert_alerts)


def _convert_alerts(state: StateCore) -> None:
    shown: list[Token] = []
    for at, token in enumerate(state.tokens):
        shown.append(token)
        found = _alert_mark(state.tokens[at : at + 5]) if token.type == "blockquote_open" and token.level == 0 else None
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


def _alert_mark(tokens: Sequence[Token]) -> re.Match[str] | None:
    """The mark in the first five tokens of a quote; None where it has none, or nothing after it."""
    if [each.type for each in tokens[1:3]] != ["paragraph_open", "inline"]:
        return None
    found = _MARK.match(tokens[2].content)
    is_alone = found is not None and found.end() == len(tokens[2].content) and tokens[4].type == "blockquote_close"
    return None if is_alone else found


def sanitise(source: str) -> str:
    """The source with nothing left that runs, loads, submits or restyles the page."""
    cleaner = _Cleaner()
    cleaner.feed(source)
    cleaner.close()
    return cleaner.result()


_VOID = frozenset({"br", "hr", "img", "input"})
_BARE = (
    "b br dd del div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd p pre q s samp strike strong "
    "sub summary sup table tbody tfoot thead tr tt var"
)
_ALLOWED: dict[str, frozenset[str]] = {
    **dict.fromkeys(_BARE.split(), frozenset()),
    "a": frozenset({"href", "title"}),
    "blockquote": frozenset({"class"}),
    "img": frozenset({"src", "alt", "title", "width", "height"}),
    "input": frozenset({"type", "checked", "disabled", "class"}),
    "ul": frozenset({"class"}),
    "ol": frozenset({"start"}),
    "li": frozenset({"class"}),
    "td": frozenset({"style"}),
    "th": frozenset({"style"}),
    "code": frozenset({"class"}),
    "span": frozenset({"class"}),
    "details": frozenset({"open"}),
}
_WITHOUT_CONTENT = frozenset({"script", "style", "iframe", "object", "template", "noscript", "svg", "math", "title"})
_ALERTS = frozenset(f"alert {kind}" for kind in KINDS)
_ALIGNMENTS = {"text-align:left": "left", "text-align:center": "center", "text-align:right": "right"}


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[str] = []
        self._muted: list[str] = []

    def result(self) -> str:
        """The kept HTML, with open elements closed."""
        return "".join(self._out) + "".join(f"</{tag}>" for tag in reversed(self._open))

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _WITHOUT_CONTENT:
            self._muted.append(tag)
        if self._muted or tag not in _ALLOWED:
            return
        if tag == "input" and ("type", "checkbox") not in attrs:
            return
        kept = "".join(_attribute(tag, name, value or "") for name, value in attrs if name in _ALLOWED[tag])
        more = " disabled" if tag == "input" else ' rel="nofollow noreferrer"' if tag == "a" else ""
        self._out.append(f"<{tag}{kept}{more}>")
        if tag not in _VOID:
            self._open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if self._muted:
            if tag == self._muted[-1]:
                self._muted.pop()
            return
        if tag not in self._open:
            return
        while True:
            closed = self._open.pop()
            self._out.append(f"</{closed}>")
            if closed == tag:
                return

    @override
    def handle_data(self, data: str) -> None:
        if not self._muted:
            self._out.append(html.escape(data, quote=False))


def _attribute(tag: str, name: str, value: str) -> str:
    if name in {"href", "src"}:
        wanted = {"http", "https", ""} if name == "src" else {"http", "https", "mailto", ""}
        try:
            if urlsplit(value.strip()).scheme.lower() not in wanted:
                return ""
        except ValueError:  # an address that cannot be read leads nowhere
            return ""
    if name == "style":
        side = _ALIGNMENTS.get(value.replace(" ", "").rstrip(";"))
        return f' class="{side}"' if side else ""
    if name == "disabled" or (name == "class" and not _is_known(tag, value)):
        return ""
    return f' {name}="{html.escape(value)}"'


def _is_known(tag: str, classes: str) -> bool:
    """Whether an element may have these classes: code and its parts any, others those that the renderer gives."""
    if tag == "blockquote":
        return classes in _ALERTS
    return tag not in {"ul", "li", "input"} or "task-list" in classes
