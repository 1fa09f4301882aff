"""Turn the completion of a `review` into a review: prose above, comments on lines of the diff. Pure.

A review of the bot's comments and never approves; `ReviewDraft` has no word for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import cast

from markdown_it import MarkdownIt

from bot.github.types import ReviewDraft, ReviewNote, Side
from bot.prompt.brief import MAX_REVIEW_COMMENTS
from bot.publishing.markdown import (
    COMMENT_LIMIT,
    Allowed,
    Own,
    clean,
    clip,
    code,
    escape_markdown,
    fenced_exactly,
    one_line,
    sealed,
)
from bot.publishing.screening import unquoted

_NOTE_LIMIT = 4_000
_SUGGESTION_LIMIT = 10_000
_PROSE_LIMIT = 12_000
_BODY_LIMIT = 60_000
_JSON_LIMIT = 400_000
_READ = 200
_CUT = "_Truncated: the review was longer._"
_UNREADABLE = "_The comments on lines could not be parsed, so only the summary is shown._"
_SUGGESTIONS = Own(languages=frozenset({"suggestion"}))


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comment:
    """One comment as the model wrote it."""

    path: str
    line: int
    start_line: int | None
    side: Side
    body: str
    suggestion: str | None


def parse_review(
    completion: str, diff: str, allowed: Allowed, *, commit_sha: str, earlier: Collection[tuple[str, str]] = ()
) -> ReviewDraft:
    """The review that a completion holds.

    A comment on lines that the diff does not show, and those beyond the thirtieth, go into the body with their place.

    Args:
        completion: prose and one fenced JSON block, in the form that the task's goal describes.
        diff: of the pull request, as git writes it.
        allowed: what may keep its effect in the text.
        commit_sha: the head that was looked at.
        earlier: what earlier reviews said, by `words_of`; it is not said again.
    """
    prose, block = _divided(completion)
    read = list(_comments(block)) if block is not None else []
    lines = diff_lines(diff)
    comments = [each for each in read if words_of(each.path, _note(each, allowed).body) not in earlier]
    placed = [each for each in comments if lines.hold(each.path, each.side, each.start_line or each.line, each.line)][
        :MAX_REVIEW_COMMENTS
    ]
    unplaced = [each for each in comments if each not in placed]
    said = escape_markdown(prose, allowed, limit=_PROSE_LIMIT) or "See the comments below."
    broken = block is not None and not read and block.strip() not in {"[]", ""}
    parts = [said, *([_UNREADABLE] if broken else [])]
    for each in unplaced:
        first = f"{each.start_line}-" if each.start_line else ""
        place = code(f"{one_line(each.path, 200)}:{first}{each.line}")
        parts.append(escape_markdown(f"**At** {place}: {each.body}", allowed, limit=_NOTE_LIMIT))
        if each.suggestion is not None:
            # It cannot be committed from here.
            parts.append(fenced_exactly(clip(clean(each.suggestion), _NOTE_LIMIT, "…")))
    return ReviewDraft(
        commit_sha=commit_sha,
        body=sealed(clip("\n\n".join(parts), _BODY_LIMIT, _CUT), allowed, Own(), limit=COMMENT_LIMIT),
        notes=tuple(_note(each, allowed) for each in placed),
    )


def words_of(path: str, body: str) -> tuple[str, str]:
    """A comment on a file, as it is compared with others: GitHub changes the white space of some."""
    return path, " ".join(body.split())


def prose_of(completion: str) -> str:
    """The completion of a review without its block of comments, for the status comment."""
    return _divided(completion)[0].strip()


def _divided(completion: str) -> tuple[str, str | None]:
    """The prose, and what is in the last fenced block of JSON that is not inside another block."""
    found = None
    for token in MarkdownIt("commonmark").disable("inline").parse(completion):  # what is in a paragraph opens no block
        if token.type == "fence" and token.level == 0 and token.map and token.info.split()[:1] == ["json"]:
            found = token
    if found is None or found.map is None:
        return completion, None
    lines = re.split(r"\r\n?|\n", completion)  # as the parser counts them
    prose = "\n".join([*lines[: found.map[0]], *lines[found.map[1] :]])
    return prose, found.content


def _comments(block: str) -> Iterator[_Comment]:
    try:
        values = json.loads(block[:_JSON_LIMIT])
    except (ValueError, RecursionError):
        # The model's to get right; `parse_review` says so in the review.
        return
    for value in values[:_READ] if isinstance(values, list) else []:
        comment = _comment(value)
        if comment is not None:
            yield comment


def _comment(value: object) -> _Comment | None:
    """One comment, or None when it says nothing or nowhere."""
    if not isinstance(value, dict):
        return None
    path, line, body = value.get("path"), value.get("line"), value.get("body", "")
    start, side, suggestion = value.get("start_line"), value.get("side", "RIGHT"), value.get("suggestion")
    if not (isinstance(path, str) and _is_number(line) and isinstance(body, str)):
        return None
    right = side != "LEFT"
    # What is gone cannot be replaced.
    kept = suggestion if isinstance(suggestion, str) and right else None
    if not body.strip() and kept is None:
        return None
    return _Comment(
        path=path.removeprefix("./"),
        line=cast("int", line),
        start_line=cast("int", start) if _is_number(start) and start != line else None,
        side="RIGHT" if right else "LEFT",
        body=body,
        suggestion=kept,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _note(comment: _Comment, allowed: Allowed) -> ReviewNote:
    body = escape_markdown(comment.body, allowed, limit=_NOTE_LIMIT)
    if comment.suggestion is not None and len(comment.suggestion) <= _SUGGESTION_LIMIT:
        body = f"{body}\n\n{fenced_exactly(clean(comment.suggestion), 'suggestion')}".lstrip()
    return ReviewNote(
        path=comment.path,
        line=comment.line,
        start_line=comment.start_line,
        side=comment.side,
        body=sealed(body, allowed, _SUGGESTIONS, limit=COMMENT_LIMIT) or "See the diff.",
    )


@dataclass(frozen=True, slots=True)
class DiffLines:
    """The lines that are shown, by file and side: the number of each with the number of its hunk."""

    shown: dict[tuple[str, Side], dict[int, int]] = field(default_factory=dict)

    def hold(self, path: str, side: Side, first: int, last: int) -> bool:
        """Whether these lines are shown in one hunk; GitHub refuses a comment on others."""
        lines = self.shown.get((path, side), {})
        return first <= last and first in lines and lines.get(last) == lines[first]


def diff_lines(diff: str) -> DiffLines:
    """Read a diff as git writes it, its end may be missing."""
    found = DiffLines()
    lines = iter(diff.split("\n"))
    before = after = ""
    number = 0
    for line in lines:
        if line.startswith("diff --git "):
            before = after = ""
        elif line.startswith("--- "):
            before = _path(line)
        elif line.startswith("+++ "):
            after = _path(line)
        elif (start := _HUNK.match(line)) is not None:
            number += 1
            # A file goes by its name after the change, on both sides, unless it is gone.
            _read_hunk(found, lines, start, after or before, number)
    return found


def _read_hunk(found: DiffLines, lines: Iterator[str], start: re.Match[str], path: str, number: int) -> None:
    """Note the lines of one hunk; its head says how many there are, whatever they look like."""
    old, new = int(start[1]), int(start[3])
    old_end, new_end = old + int(start[2] or 1), new + int(start[4] or 1)
    while old < old_end or new < new_end:
        mark = next(lines, "")[:1]
        if mark not in {" ", "-", "+", "\\"}:
            return
        if mark in {" ", "-"}:
            found.shown.setdefault((path, "LEFT"), {})[old] = number
            old += 1
        if mark in {" ", "+"}:
            found.shown.setdefault((path, "RIGHT"), {})[new] = number
            new += 1


def _path(line: str) -> str:
    """The name in a `---` or `+++` line without its `a/` or `b/`; empty for `/dev/null`."""
    name = line[4:].rstrip("\t")
    if name.startswith('"') and name.endswith('"'):
        name = unquoted(name[1:-1].encode("utf-8", "replace")).decode("utf-8", "replace")
    return "" if name == "/dev/null" else name[2:]
