"""Parse a `review` completion into a review: prose, and comments on lines of the diff.

A review only comments; `ReviewDraft` cannot express an approval.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import cast

from markdown_it import MarkdownIt

from bot.domain.difference import DiffLines, Side
from bot.github.types import ReviewDraft, ReviewNote
from bot.prompt.brief import MAX_REVIEW_COMMENTS
from bot.prompt.reading import Unread
from bot.publishing.markdown import (
    COMMENT_LIMIT,
    Allowlist,
    BotMarkup,
    clean,
    clip,
    code,
    defuse,
    escape_markdown,
    fence_exactly,
    one_line,
    plural,
)
from bot.publishing.screening import escape_unseen

_NOTE_LIMIT = 4_000
_SUGGESTION_LIMIT = 10_000
_PROSE_LIMIT = 12_000
_BODY_LIMIT = 60_000
_JSON_LIMIT = 400_000
_MAX_COMMENTS_READ = 200
_OPEN_NAMES, _FEW_NAMES = 10, 3
_TRUNCATED = "_Truncated: the review was longer._"
_UNREADABLE = "_The comments on lines could not be parsed, so only the summary is shown._"
_SUGGESTIONS = BotMarkup(languages=frozenset({"suggestion"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedComment:
    path: str
    line: int
    start_line: int | None
    side: Side
    body: str
    suggestion: str | None

    def is_in(self, lines: DiffLines) -> bool:
        return lines.contain(self.path, self.side, self.start_line or self.line, self.line)


def parse_review(
    completion: str,
    lines: DiffLines,
    allowed: Allowlist,
    *,
    commit_sha: str,
    earlier: Collection[tuple[str, str]] = (),
    moved: Mapping[str, str] = MappingProxyType({}),
    unread: Unread | None = None,
) -> ReviewDraft:
    """Parse a completion, prose and one fenced JSON block, into a review of the commit.

    Comments on lines outside the diff, and those beyond the thirtieth, go into the body. Comments whose key is in
    `earlier` (see `comment_key`) are not repeated. `moved` has the new paths of renamed files.
    """
    prose, block = _split_completion(completion)
    parsed = [
        replace(comment, path=moved.get(comment.path, comment.path))
        for comment in (_parse_comments(block) if block is not None else ())
    ]
    comments = [
        comment for comment in parsed if comment_key(comment.path, _render_note(comment, allowed).body) not in earlier
    ]
    placed = [comment for comment in comments if comment.is_in(lines)][:MAX_REVIEW_COMMENTS]
    unplaced = [comment for comment in comments if comment not in placed]
    summary = escape_markdown(prose, allowed, limit=_PROSE_LIMIT) or "See the comments below."
    broken = block is not None and not parsed and block.strip() not in {"[]", ""}
    parts = [summary, *reading_notes(unread), *([_UNREADABLE] if broken else [])]
    for comment in unplaced:
        start = f"{comment.start_line}-" if comment.start_line else ""
        place = code(f"{one_line(comment.path, 200)}:{start}{comment.line}")
        parts.append(escape_markdown(f"**At** {place}: {comment.body}", allowed, limit=_NOTE_LIMIT))
        if comment.suggestion is not None:
            # It cannot be committed from here.
            parts.append(fence_exactly(clip(clean(comment.suggestion), _NOTE_LIMIT, "…")))
    return ReviewDraft(
        commit_sha=commit_sha,
        body=defuse(
            clip("\n\n".join(parts), _BODY_LIMIT, _TRUNCATED), allowed, BotMarkup(tags=True), limit=COMMENT_LIMIT
        ),
        notes=tuple(_render_note(comment, allowed) for comment in placed),
    )


def commented_paths(completion: str) -> frozenset[str]:
    block = _split_completion(completion)[1]
    return frozenset(comment.path for comment in _parse_comments(block)) if block is not None else frozenset()


def reading_notes(unread: Unread | None) -> list[str]:
    """Render the files that a review did not read, and those that it left out on request."""
    notes = []
    if unread is not None and unread.total:
        notes.append(_list_files("Not reviewed", *_count_unread(unread), unread.total))
    if unread is not None and unread.ignored_total:
        counts = f"{plural(unread.ignored_total, 'file')}, by `review.ignore`"
        names = [code(escape_unseen(name)) for name in unread.ignored]
        notes.append(_list_files("Left out on request", counts, names, unread.ignored_total))
    return notes


def _list_files(head: str, counts: str, names: Sequence[str], total: int) -> str:
    if total <= _OPEN_NAMES:
        return f"**{head}** ({counts}): {', '.join(names)}."
    listed = "\n".join(f"- {name}" for name in names[_FEW_NAMES:])
    listed += f"\n- and {total - len(names):,} more" if total > len(names) else ""
    first = _first_names(names, total)
    return f"**{head}** ({counts}): {first}.\n\n<details><summary>More files</summary>\n\n{listed}\n\n</details>"


def describe_unread(unread: Unread, verb: str) -> str:
    """Return a sentence about the changed files that no step read."""
    counts, names = _count_unread(unread)
    return f"Not {verb}: {counts}: {_first_names(names, unread.total)}."


def _count_unread(unread: Unread) -> tuple[str, list[str]]:
    names = [f"{code(escape_unseen(name))} ({facts})" for name, facts in unread.names]
    return f"{unread.total:,} of {unread.changed:,} changed files, or parts of them", names


def _first_names(names: Sequence[str], total: int) -> str:
    more = f" and {total - _FEW_NAMES:,} more" if total > _FEW_NAMES else ""
    return f"{', '.join(names[:_FEW_NAMES])}{more}"


def comment_key(path: str, body: str) -> tuple[str, str]:
    """Return a key that identifies a comment; GitHub changes white space."""
    return path, " ".join(body.split())


def extract_prose(completion: str) -> str:
    return _split_completion(completion)[0].strip()


_MAX_LINES, _MAX_DEPTH, _VALUE_CHARS = 40, 4, 300


def list_output(completion: str, output_json: str) -> str:
    """Return a completion with a list in place of its JSON, for people."""
    prose = "" if completion.lstrip()[:1] in {"{", "[", '"'} else extract_prose(completion)
    lines = list(islice(_list_value(json.loads(output_json)), _MAX_LINES + 1))
    rest = ["- … (the output `structured-output` has the rest)"] if len(lines) > _MAX_LINES else []
    return "\n\n".join(filter(None, (prose, "\n".join([*lines[:_MAX_LINES], *rest]))))


def _list_value(value: object, depth: int = 0) -> Iterator[str]:
    entries = value if isinstance(value, list) else [value]
    pairs = value.items() if isinstance(value, dict) else [("", entry) for entry in entries]
    for name, entry in pairs:
        label = f"{'  ' * depth}- {code(one_line(name, _VALUE_CHARS))}:" if name else f"{'  ' * depth}-"
        if isinstance(entry, dict | list) and entry:
            yield label
            yield from _list_value(entry, depth + 1) if depth < _MAX_DEPTH else ()
        else:
            shown = one_line(entry, _VALUE_CHARS) if isinstance(entry, str) else code(json.dumps(entry))
            yield f"{label} {shown}"


def _split_completion(completion: str) -> tuple[str, str | None]:
    block = None
    for token in MarkdownIt("commonmark").disable("inline").parse(completion):  # inline content opens no block
        if token.type == "fence" and token.level == 0 and token.map and token.info.split()[:1] == ["json"]:
            block = token
    if block is None or block.map is None:
        return completion, None
    lines = re.split(r"\r\n?|\n", completion)  # as the parser counts them
    prose = "\n".join([*lines[: block.map[0]], *lines[block.map[1] :]])
    return prose, block.content


def _parse_comments(block: str) -> Iterator[_ParsedComment]:
    try:
        values = json.loads(block[:_JSON_LIMIT])
    except (ValueError, RecursionError):
        # `parse_review` mentions the model's mistake in the review.
        return
    for value in values[:_MAX_COMMENTS_READ] if isinstance(values, list) else []:
        comment = _parse_comment(value)
        if comment is not None:
            yield comment


def _parse_comment(value: object) -> _ParsedComment | None:
    if not isinstance(value, dict):
        return None
    path, line, body = value.get("path"), value.get("line"), value.get("body", "")
    start, side, suggestion = value.get("start_line"), value.get("side", "RIGHT"), value.get("suggestion")
    if not (isinstance(path, str) and _is_line_number(line) and isinstance(body, str)):
        return None
    right = side != "LEFT"
    # Removed lines cannot be replaced.
    replacement = suggestion if isinstance(suggestion, str) and right else None
    if not body.strip() and replacement is None:
        return None
    return _ParsedComment(
        path=path.removeprefix("./"),
        line=cast("int", line),
        start_line=cast("int", start) if _is_line_number(start) and start != line else None,
        side="RIGHT" if right else "LEFT",
        body=body,
        suggestion=replacement,
    )


def _is_line_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _render_note(comment: _ParsedComment, allowed: Allowlist) -> ReviewNote:
    body = escape_markdown(comment.body, allowed, limit=_NOTE_LIMIT)
    if comment.suggestion is not None and len(comment.suggestion) <= _SUGGESTION_LIMIT:
        body = f"{body}\n\n{fence_exactly(clean(comment.suggestion), 'suggestion')}".lstrip()
    return ReviewNote(
        path=comment.path,
        line=comment.line,
        start_line=comment.start_line,
        side=comment.side,
        body=defuse(body, allowed, _SUGGESTIONS, limit=COMMENT_LIMIT) or "See the diff.",
    )
