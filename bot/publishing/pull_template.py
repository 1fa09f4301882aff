"""Choose and fill in a template for pull requests. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bot.domain.cmark import parse_markdown
from bot.publishing.markdown import Allowlist, escape_markdown

FOLDERS = (".github/", "", "docs/")
"""Where GitHub looks for a template, in its order."""
_NAMES = ("pull_request_template", "PULL_REQUEST_TEMPLATE", "Pull_Request_Template")
PATTERNS = (
    *(f"{folder}{name}{ending}" for folder in FOLDERS for name in _NAMES for ending in (".md", ".txt", "")),
    *(f"{folder}{name}/*{ending}" for folder in FOLDERS for name in _NAMES[:2] for ending in (".md", ".txt")),
)
"""Globs of templates. GitHub ignores the case of their names; these are the usual spellings."""

_NAME = re.compile(r"pull_request_template(?:\.(?:md|txt))?", re.IGNORECASE)
_IN_FOLDER = re.compile(r"(?:\.github/|docs/)?pull_request_template/[^/]+", re.IGNORECASE)
_MAX_CHARS = 20_000
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?^---[ \t]*$", re.DOTALL | re.MULTILINE)
_CODE_OR_TAG = re.compile(r"(?P<code>`[^`\n]*+`)|</?[A-Za-z][A-Za-z0-9-]*+(?:\s[^<>]*+)?>")
_CHECKED = re.compile(r"^([ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)++\[)[xX](?=\])", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*:?|__[^_\n]+__:?")
_FITTING = re.compile(
    r"(?!.*\b(?:type|kind|breaking|test(?:s|ed|ing)?|why)\b)\W*(?:\w+\s+){0,2}(?:summary|description|overview|changes|what)\b",
    re.IGNORECASE,
)


def choose_template(paths: Iterable[str]) -> str | None:
    """Return the path of the default template: a single file, else the only one in a folder of templates."""
    names = sorted(paths)
    for folder in FOLDERS:
        for path in names:
            if path.startswith(folder) and _NAME.fullmatch(path[len(folder) :]):
                return path
    several = list(filter(_IN_FOLDER.fullmatch, names))
    return several[0] if len(several) == 1 else None


def fill_template(template: str, text: str, allowed: Allowlist) -> str:
    """Return the template with the text below its first heading for a summary, else above all of it.

    Comments, tags and ticks of boxes are removed, and active markup is disabled. The result is empty if the template
    has no text or cannot be used.
    """
    source = _COMMENT.sub("", _FRONT_MATTER.sub("", template.replace("\r\n", "\n").replace("\r", "\n")))
    source = _CODE_OR_TAG.sub(lambda part: part["code"] or "", source)
    if not source.strip() or len(source) > _MAX_CHARS:
        return ""
    escaped = _CHECKED.sub(r"\1 ", escape_markdown(source, allowed))
    if escaped.startswith("```") and not source.lstrip().startswith("```"):
        return ""
    lines = re.sub(r"\n{3,}", "\n\n", escaped).split("\n")
    end = _end_of_heading("\n".join(lines))
    return "\n\n".join(filter(None, ("\n".join(lines[:end]).strip(), text, "\n".join(lines[end:]).strip())))


def _end_of_heading(markdown: str) -> int:
    lines, title, end, is_heading = markdown.split("\n"), "", 0, False
    for node in parse_markdown(markdown):
        if node.depth == 1 and node.is_end:
            if is_heading and _FITTING.match(title):
                return end
            is_heading = False
        elif node.depth == 1 and node.kind in {"heading", "paragraph"}:
            first, end = node.lines
            title = ""
            is_heading = node.kind == "heading" or (first == end and bool(_BOLD.fullmatch(lines[first - 1].strip())))
        title += node.text
    return 0
