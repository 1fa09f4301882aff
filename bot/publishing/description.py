"""Parse a `describe` completion into the title and description of a pull request. Pure.

The author's pictures and closing references, the bot's mark and the template's sections are kept. No mention, link or
closing reference becomes active that the earlier description did not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

from typing_extensions import override

from bot.domain.cmark import parse_markdown
from bot.github.types import BODY_LIMIT, TITLE_LIMIT
from bot.prompt.sanitize import image_markup, visible_images
from bot.publishing.commit_format import CLOSING, CommitFormat
from bot.publishing.markdown import Allowlist, active_references, clean, escape_markdown, extract_text, one_line

_TITLE = re.compile(r"(?:#+\s+)?(?:\*\*)?(?:title:)?(?:\*\*)?\s*", re.IGNORECASE)
_MARK = re.compile(r"<!-- codepilot:[\w:=. -]+ -->")
_TEXT_MARK = re.compile(r"<!-- codepilot:text=([0-9a-f]{32}) -->")
_ROOM = 100
_LATER = "**Commits since then**, which the text below does not cover:"
_UNDONE = "Undone: "
_THREAD = re.compile(r"/(?:issues|pull|discussions)/[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A pull request's title and body."""

    title: str
    body: str

    @property
    def digest(self) -> str:
        return sha256(f"{self.title}\n{self.body}".encode()).hexdigest()

    @property
    def sealed(self) -> Description:
        """The text with a mark that shows whether people edit it."""
        title, lines = self._lines
        digest = sha256("\n".join([title, *lines]).encode("utf-8", "replace")).hexdigest()
        return replace(self, body=f"{self.body.rstrip()}\n\n<!-- codepilot:text={digest[:32]} -->")

    @property
    def unsealed(self) -> Description | None:
        """The text without its mark; None without one, or if people edited the text."""
        marks = [*_TEXT_MARK.finditer(self.body)]
        if not marks:
            return None
        text = replace(self, body=self.body[: marks[-1].start()].rstrip())
        return text if text.sealed.equals(self) else None

    @staticmethod
    def is_marked(body: str) -> bool:
        """Whether the bot wrote the body, or an earlier version of it."""
        return _TEXT_MARK.search(body) is not None

    def undone(self, note: str) -> Description:
        """Return the text of a pull request without a change: the note, and no reference that closes an issue."""
        title = one_line(f"{_UNDONE}{self.title.removeprefix(_UNDONE)}", TITLE_LIMIT)
        return Description(title=title, body="\n\n".join([note, *_MARK.findall(self.body)]))

    def with_commit(self, line: str) -> Description:
        """Return the text with a line about a later commit; unchanged if it has no room."""
        title = self.title.removeprefix(_UNDONE)
        listed, rest = "", self.body
        if self.body.startswith(_LATER):
            listed, _, rest = self.body.removeprefix(_LATER).strip("\n").partition("\n\n")
        body = "\n\n".join([_LATER, "\n".join(filter(None, [listed, f"- {line}"])), rest])
        return self if len(body) > BODY_LIMIT - _ROOM else Description(title=title, body=body)

    def equals(self, other: Description) -> bool:
        """Whether both are the same to a reader: browsers and the API end lines differently."""
        return self._lines == other._lines

    @property
    def _lines(self) -> tuple[str, list[str]]:
        return self.title.strip(), self.body.strip().splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldReferences(Allowlist):
    """The active markup of the earlier description; references to threads only if it closed them."""

    active: frozenset[str] = field(default=frozenset())
    closed: frozenset[str] = field(default=frozenset())

    @override
    def permits_link(self, url: str) -> bool:
        return Allowlist.permits_link(self, url) or (
            url in self.active and (url in self.closed or not _THREAD.search(url))
        )

    @override
    def permits_match(self, match: re.Match[str]) -> bool:
        if match["ref"] is not None:
            return match["ref"] in self.closed or self.permits_reference(match["ref"])
        return match[0] in self.active


def keep_marks(body: str, old: str) -> str:
    """Return a new body with the bot's marks of the old one."""
    return "\n\n".join([body, *(mark for mark in _MARK.findall(old) if mark not in body)])


def parse_description(
    completion: str, old: Description, *, commit_format: CommitFormat, template: str, allowed: Allowlist
) -> Description | None:
    """Return the new description; None if the completion has no title or no text below it.

    Args:
        commit_format: the repository's, for the title.
        template: the repository's, whose headings are kept; or empty.
        allowed: the job's; its mention is not allowed here.
    """
    first, _, rest = clean(completion).strip().partition("\n")
    line = _TITLE.sub("", first, count=1)
    title = commit_format.commit_title(line, fallback="", number=allowed.number)
    closings = {closing.split()[-1]: closing for closing in _closings(old.body)}
    permitted = _OldReferences(
        login="",
        number=allowed.number,
        server=allowed.server,
        repo=allowed.repo,
        active=active_references(old.body),
        closed=frozenset(closings),
    )
    text = escape_markdown(rest, permitted)
    if not text or not CommitFormat().commit_title(line, fallback=""):
        return None
    pictures = set(visible_images(old.body))
    sections = [*_missing_sections(text, old.body, template)]
    if active_references("\n\n".join([text, *sections])) - permitted.active - active_references(text):
        sections = []  # the author's definitions would make links of the new text
    kept = "\n\n".join([text, *sections])
    closed = {closing.split()[-1] for closing in _closings(kept)}
    markup = dict.fromkeys(image_markup(old.body))
    parts = [
        text,
        *(each for each in markup if each not in kept and not pictures.isdisjoint(visible_images(each))),
        *(closing for reference, closing in closings.items() if reference not in closed),
        *sections,  # after these, since the author may have left a comment or a code block open there
        *(mark for mark in _MARK.findall(old.body) if mark not in kept),
    ]
    body = "\n\n".join(parts)
    return Description(title=one_line(title, 255), body=body) if len(body) <= BODY_LIMIT else None


def _closings(markdown: str) -> list[str]:
    """Return the keywords with references that close issues."""
    active = active_references(markdown)
    return [match[0] for match in CLOSING.finditer(extract_text(markdown)) if match[0].split()[-1] in active]


def _missing_sections(text: str, old: str, template: str) -> Iterator[str]:
    """Yield the sections of the template that the old description has and the new one lacks."""
    wanted = {name for name, _ in _headings(template)} - {name for name, _ in _headings(text)}
    headings, lines = _headings(old), old.split("\n")
    ends = [*(first for _, first in headings[1:]), len(lines)]
    for (name, first), end in zip(headings, ends, strict=False):
        if name in wanted:
            yield "\n".join(lines[first:end]).strip()


def _headings(markdown: str) -> list[tuple[str, int]]:
    """Return the headings, without markup and case, and the indices of their lines."""
    headings, inside = list[tuple[str, int]](), False
    for node in parse_markdown(markdown):
        if node.kind == "heading" and node.depth == 1:
            inside = not node.is_end
            if inside:
                headings.append(("", node.lines[0] - 1))
        elif inside and not node.is_end:
            name, first = headings[-1]
            headings[-1] = (name + node.text.casefold(), first)
    return headings
