"""The site of these pages: `make docs` builds it with Sphinx into dist/docs."""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers

HERE = Path(__file__).resolve().parent
PARTS = {
    "Guides": ["install", "first-pull-request", "configure", "operate", "secure", "Embed <library>"],
    "The project": ["tour", "architecture", "security", "release"],
}

project = "Codepilot"
html_title = "Codepilot"
html_theme = "furo"
highlight_language = "text"
html_show_copyright = False
html_copy_source = False
html_domain_indices = False
html_use_index = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The anchors that GitHub makes: a link to a heading works in both places, and a wrong one is a warning.
myst_heading_anchors = 4
autodoc_member_order = "groupwise"
napoleon_use_ivar = True
toc_object_entries = False  # a thousand lines of contents, which are copied for every page
# GitHub draws these; here they are shown as they are written.
lexers["mermaid"] = TextLexer()

_OUTSIDE = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s]+\.md)")
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)(\w*)")


def prepared(app: Sphinx, docname: str, source: list[str]) -> None:
    """Adapt a page that is written for GitHub: files outside docs/ are downloads, the first page gets the contents."""
    folder = Path(app.env.doc2path(docname)).parent
    source[0] = _OUTSIDE.sub(
        lambda found: found[0] if (folder / found[0]).resolve().is_relative_to(HERE) else f"path:{found[0]}", source[0]
    )
    if docname == app.config.root_doc:
        source[0] += "".join(
            f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
            for caption, names in contents().items()
        )


def contents() -> dict[str, list[str]]:
    """All pages by part. Those that no part names are reference."""
    placed = {name for names in PARTS.values() for name in names} | {"index", "library"}
    return {
        "Guides": PARTS["Guides"],
        "Reference": sorted({path.stem for path in HERE.glob("*.md")} - placed),
        "The library": ["api", *_pages("guide")],
        "Workflows": _pages("workflows"),
        "The project": PARTS["The project"],
        "Decisions": _pages("decisions"),
    }


def _pages(folder: str) -> list[str]:
    return [f"{folder}/{path.stem}" for path in sorted((HERE / folder).glob("*.md"))]


def converted(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001, PLR0917 - as Sphinx calls it
    """Turn the Markdown of a docstring into the markup that autodoc reads."""
    text = _FENCE.sub(
        lambda found: (
            f"{found[1]}.. code-block:: {found[2] or 'text'}\n\n"
            + re.sub("^(?=.)", "   ", found[3], flags=re.MULTILINE)
        ),
        "\n".join(lines),
    )
    text = _CODE.sub(lambda found: f"``{found[1]}``" + (rf"\ {found[2]}" if found[2] else ""), text)
    if what == "attribute":
        text = text.replace(": ", " - ", 1)  # not a type before its meaning, as napoleon would have it
    lines[:] = text.split("\n")


def setup(app: Sphinx) -> None:
    """Let Sphinx call what is defined here; `converted` before napoleon."""
    app.connect("source-read", prepared)
    app.connect("autodoc-process-docstring", converted, priority=400)
