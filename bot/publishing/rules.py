"""The section with rules for later runs in an instruction file, a line for each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.domain.cmark import parse_markdown
from bot.prompt.sanitize import remove_hidden
from bot.publishing.description import Description
from bot.publishing.markdown import COMMENT_LIMIT, Allowlist, BotMarkup, clean, code, defuse, escape_markdown, one_line

HEADING = "Rules learned by Codepilot"
MAX_RULES = 30
MAX_SECTION_CHARS = 3_500
"""A run reads the last 6,000 of a long file."""
MAX_RULE_CHARS = 300
_MIN_WORDS = 3
"""Shorter corrections, such as "not yet", are no rules."""
_ITEM = re.compile(r"[-*+] +(?P<text>\S.*?)(?: \(\[[^\[\]]*\]\((?P<url>[^()\s]*)\)\))?")
_LINE = re.compile(r"[^\r\n]+(?:\r\n?|\n)?|\r\n?|\n")
_QUOTE = re.compile(r"^ {0,3}>.*$", re.MULTILINE)
_VISIBLE = frozenset({"text", "code", "emph", "strong", "strikethrough", "link"})
_FORMULA = re.compile(r"\$`|\$[^$]*\\[^$]*\$")
"""GitHub renders `$\\phantom{words}$` without the words. In rules only, which are short."""
_ROOM = 200


class RuleError(ValueError):
    """The rule cannot be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule in Markdown, with the address of its comment."""

    text: str
    number: int
    url: str

    @property
    def line(self) -> str:
        return f"- {self.text} ([#{self.number}]({self.url}))"


def make_rule(words: str, *, number: int, url: str, server: str, repo: str) -> Rule:
    """Return a rule that hides no words, and has no active mention, reference or foreign link.

    Raises:
        RuleError: it is too long, or needs more than a line.
    """
    flat = " ".join(clean(words).split())
    if len(flat) > MAX_RULE_CHARS:
        raise RuleError(f"A rule is one line of at most {MAX_RULE_CHARS} characters, and this one has {len(flat):,}.")
    allowed = Allowlist(login="", number=0, server=server, repo=repo)
    rule = Rule(text=escape_markdown(flat, allowed), number=number, url=url)
    nodes = [node for node in parse_markdown(rule.line) if not node.is_end]
    kinds, plain = [node.kind for node in nodes], "".join("`" if node.kind == "code" else node.text for node in nodes)
    is_sentence = kinds[:4] == ["document", "list", "item", "paragraph"] and _VISIBLE.issuperset(kinds[4:])
    if not is_sentence or _FORMULA.search(plain) or list_rules(f"## {HEADING}\n\n{rule.line}\n") != [rule.line]:
        raise RuleError("The rule has markup that could hide a part of it. Write a plain sentence.")
    return rule


def propose_rule(words: str) -> str:
    """Return the words of a correction as a rule; empty if too short."""
    own_words = _QUOTE.sub("", remove_hidden(words)[0])
    rule = one_line(own_words, MAX_RULE_CHARS)
    return rule if len(rule.split()) >= _MIN_WORDS else ""


def list_rules(content: str) -> list[str]:
    """Return the lines of the section's rules."""
    lines = _LINE.findall(content)
    start, end = _find_section(content, lines) or (0, 0)
    return [rule for line in lines[start:end] if _ITEM.fullmatch(rule := line.strip())]


def has_words(rules: Iterable[str], line: str) -> bool:
    """Whether a rule has the words of this line."""
    return _words(line) in map(_words, rules)


def add_rules(content: str, rules: Sequence[str]) -> str:
    """Add lines to the section, or a section to the file; other lines stay as they are.

    Raises:
        RuleError: the section is full, or would be hidden.
    """
    end_of_line = "\r\n" if "\r\n" in content else "\n"
    lines = _LINE.findall(content)
    section = _find_section(content, lines)
    end = len(lines) if section is None else section[1]
    while end and not lines[end - 1].strip():
        end -= 1
    if end:
        lines[end - 1] = lines[end - 1].rstrip("\r\n") + end_of_line
    above = lines[end - 1] if end else ""
    is_list = section is not None and (_ITEM.fullmatch(above.strip()) or above.startswith((" ", "\t")))
    heading = [] if section is not None else [*([""] if end else []), f"## {HEADING}"]
    added = [f"{line}{end_of_line}" for line in (*heading, *([] if is_list else [""]), *rules)]
    new = "".join([*lines[:end], *added, *lines[end:]])
    listed = list_rules(new)
    if any(line not in listed for line in rules):
        raise RuleError(
            "A code block or comment is open at the end of the file. Close it, then give the command again."
        )
    if len(listed) > MAX_RULES or len("\n".join(listed)) > MAX_SECTION_CHARS:
        most = f"at most {MAX_RULES} rules and {MAX_SECTION_CHARS:,} characters"
        raise RuleError(f"The section is full: it has {most}. Remove or join rules there, then give the command again.")
    return new


def describe_rules(lines: Sequence[str], *, title: str, path: str, server: str, repo: str) -> Description:
    """Describe the pull request that collects these rules."""
    items = [item for line in lines if (item := _ITEM.fullmatch(line))]
    places = re.compile(rf"{re.escape(f'{server}/{repo}')}/(?:issues|pull)/[0-9]+(?:#[a-z_]+-?[0-9]+)?")
    links = frozenset(item["url"] for item in items if item["url"] and places.fullmatch(item["url"]))
    text = (
        f"Rules for later runs, given with `remember` by people with write access. {code(path)} is a protected file: "
        "merging this pull request is the approval, and from then on each run is told these rules. Edit or remove "
        "lines before that; the next `remember` adds its line here."
    )
    body = "\n\n".join([text, "\n".join(lines), "<sub>Made by Codepilot</sub>"])
    allowed = Allowlist(login="", number=0, server=server, repo=repo)
    markup = BotMarkup(links=links, tags=True)
    return Description(title=title, body=defuse(body, allowed, markup, limit=COMMENT_LIMIT - _ROOM))


def _find_section(content: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the indices of the section's first line and of the next heading."""
    start = 0
    for node in parse_markdown(content):
        if node.kind != "heading" or node.depth != 1 or node.is_end:
            continue
        heading = lines[node.lines[0] - 1].strip()
        if start and not heading.startswith("###"):
            return start, node.lines[0] - 1
        if not start and heading.strip("# ") == HEADING:
            start = node.lines[1]
    return (start, len(lines)) if start else None


def _words(line: str) -> str:
    item = _ITEM.fullmatch(line)
    return " ".join((item["text"] if item else line).casefold().split()).rstrip(".!")
