"""What is live on a GitHub page, read from the HTML that `cmarkgfm` makes; knows nothing of how the bot reads it."""

from __future__ import annotations

import html.parser
import random
import re
from urllib.parse import urljoin

import cmarkgfm
from cmarkgfm.cmark import Options
from typing_extensions import override

from bot.publishing.markdown import Allowlist

_OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
_EXTENSIONS = ["table", "autolink", "tagfilter", "strikethrough", "tasklist"]
_QUIET_TAGS = "p em strong del code pre ul ol li blockquote h1 h2 h3 h4 h5 h6 hr br table thead tbody tr th td input"
_QUIET = frozenset(_QUIET_TAGS.split())
_SPOKEN = re.compile(
    r"(?<![a-z0-9])@[a-z0-9][a-z0-9-]*(?:/[\w-]+)?"
    r"|(?<![\w/.-])[\w-][\w.-]*(?:/[\w.-]+)?(?:#\d+|@[0-9a-f]{7,40}\b)"
    r"|(?<![\w&])#\d+|\bgh-\d+",
    re.ASCII | re.IGNORECASE,
)
_DRAWN = {"mermaid", "geojson", "topojson", "stl", "math", "suggestion"}


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.live: set[str] = set()
        self._quiet = 0

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a":
            # As a browser would follow it from a page of the server.
            self.live.add(urljoin("https://github.example/a/b/issues/1", values.get("href") or ""))
        elif tag not in _QUIET:
            self.live.add(f"<{tag}>")
        if tag == "pre" and (values.get("lang") or "").casefold() in _DRAWN:
            self.live.add(f"```{values['lang']}")
        self._quiet += tag in {"a", "pre", "code"}

    @override
    def handle_endtag(self, tag: str) -> None:
        self._quiet -= tag in {"a", "pre", "code"}

    @override
    def handle_comment(self, data: str) -> None:
        self.live.add(f"<!--{data}-->")

    @override
    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.live |= {each.rstrip("-") for each in _SPOKEN.findall(data)}

    @override
    def parse_marked_section(self, i: int, report: int = 1) -> int:
        self.live.add("<![")
        return i + len("<![")


def live_in(markdown: str) -> set[str]:
    """Links, tags, comments, drawings, mentions and references that a text shows."""
    page = _Page()
    options = _OPTIONS | Options.CMARK_OPT_GITHUB_PRE_LANG
    page.feed(cmarkgfm.markdown_to_html_with_extensions(markdown, options, _EXTENSIONS))
    page.close()
    return page.live


ALLOWED = Allowlist(login="mona", number=12, server="https://github.example", repo="octo/calc")
_FILE = "https://github.example/octo/calc/blob/main/a.py"


def foreign(markdown: str) -> set[str]:
    """What is live of it and not for `ALLOWED`; the one page that `hostile_text` links to may be linked to."""
    return {each for each in live_in(markdown) - {"@mona", "#12"} if not each.startswith(_FILE)}


_MARKS = (
    "`` ``` ```` ` ~~~ ~ ~~ * ** _ __ > - 1. + # ## | \\ \\\\ [ ] ( ) < > & ! "
    "![ ]( ][ ]: [^1] [^1]: : / // $ $$ --- ==="
)
_FRAGMENTS = (
    *_MARKS.split(),
    *("\n    ", "\n\t", "\n> ", "\n- ", "\n1. ", "   "),
    *(
        "\n",
        "\n\n",
        " ",
        "\t",
        "    ",
        "`" * 81,
        "`" * 260,
        "|-|-|",
        "\n|-|\n",
        "\x00",
        "\u200b",
        "é",
        "1",
        "a",
        "word",
    ),
    *("@hubot", "@octo/team", "@mona", "#9", "#12", "GH-4", "octo/other#3", "octo/calc@abcdef1", "a@b.example"),
    *("https://evil.example/x", "HTTPS://evil.example", "1https://evil.example/x", "ahttp://evil.example"),
    *("www.evil.example", "ftp://evil.example", "mailto:a@b.example", "xmpp:a@b.example/x", "//evil.example"),
    *("9https://github.example/victim/repo/issues/3", "https://github.example/octo/calc/issues/9"),
    *("https://github.example/login/oauth/authorize?client_id=1", _FILE),
    *("https://github.example/octo/calc/new/main?filename=x", "https://github.example/octo/calc/blob/../../../x"),
    *("[a](https://evil.example)", "[a]: https://evil.example", "[a]", "![a](https://evil.example/p)", "[a][a]"),
    *(
        "<b>",
        "<!--",
        "-->",
        "<details>",
        "</sub>",
        "<https://evil.example>",
        "<a href=x>",
        "<script>",
        "<?x",
        "<![CDATA[",
    ),
    *("&#64;hubot", "&commat;hubot", "&#x23;9", "&lt;b>", "&NewLine;", "\\@hubot", "\\`", "\\[", "\\<b>"),
    *("```mermaid\n", "~~~ geojson\n", "```suggestion\n", "```py\n", "> ```\n> ", "- ```\n  ", "[!NOTE]", "- [x] "),
    *("$\\href{//evil.example}{x}$", "\ufffc", "\u2028", "\ud800", "\U0001d552", "\ufb00"),
)


def hostile_text(source: random.Random, *, most: int = 24) -> str:
    """A text made of what matters to a Markdown parser, or to GitHub."""
    return "".join(source.choice(_FRAGMENTS) for _ in range(source.randint(1, most)))
