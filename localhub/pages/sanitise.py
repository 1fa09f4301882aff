"""HTML cut down to an allow-list: what is not on it vanishes, and what stays open is closed."""

from __future__ import annotations

import html
from html.parser import HTMLParser
from urllib.parse import urlsplit

from typing_extensions import override

from localhub.pages.alerts import KINDS

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


def sanitise(source: str) -> str:
    """The source with nothing left that runs, loads, submits or restyles the page."""
    cleaner = _Cleaner()
    cleaner.feed(source)
    cleaner.close()
    return cleaner.result()


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[str] = []
        self._muted: list[str] = []

    def result(self) -> str:
        """Everything, with open elements closed."""
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
