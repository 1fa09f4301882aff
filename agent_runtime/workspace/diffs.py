"""Decoding, line edits and comparison of texts, in bounded time. Pure."""

from __future__ import annotations

import codecs
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from typing import TypeGuard

from agent_runtime.core.errors import ToolError

_BOMS = (  # the longer ones first: UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_HEAD = 8000  # bytes searched for a NUL, as by git
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MAX_CONTROL_SHARE = 0.1


@dataclass(frozen=True)
class Text:
    """A text file with its line endings; `raw` excludes the byte order mark."""

    raw: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines without endings, split at newlines only, like ripgrep and git."""
        lines = split_lines(self.raw)
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def count(self) -> int:
        """Number of lines."""
        return self.raw.count("\n") + (not self.ends_with_newline)

    def first_lines(self, count: int) -> tuple[str, ...]:
        """Return the first lines, cheaper than `lines`."""
        if "lines" in self.__dict__ or count >= self.count:
            return self.lines[:count]
        lines = self.raw.split("\n", count)[:count]
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def newline(self) -> str:
        """Most frequent line ending."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if crlf and crlf * 2 > self.raw.count("\n") else "\n"

    @cached_property
    def normalized(self) -> str:
        """Text with newlines only; a thirtieth of the memory of `lines`."""
        return self.raw if self.newline == "\n" else self.raw.replace("\r\n", "\n").removesuffix("\r")

    @property
    def ends_with_newline(self) -> bool:
        """Whether the text is empty or its last line is terminated."""
        return not self.raw or self.raw.endswith("\n")

    def encode(self, raw: str) -> bytes:
        """Encode a new text like this one.

        Raises:
            ToolError: the encoding lacks a character.
        """
        try:
            return self.bom + raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = raw[error.start]
            raise ToolError(
                f"the file is {self.encoding} and cannot hold {char!r} (U+{ord(char):04X}); use other characters, or "
                "write the whole file with mode='w', which makes it UTF-8",
                kind="ValueError",
            ) from error

    @property
    def format_notes(self) -> str:
        """Unusual encoding and line endings, or ""."""
        notes = [] if self.encoding == "utf-8" else [self.encoding]
        if self.bom and self.encoding == "utf-8":
            notes.append("UTF-8 with byte order mark")
        if self.newline == "\r\n":
            notes.append("CRLF line endings")
        if not self.ends_with_newline:
            notes.append("no newline at the end")
        return ", ".join(notes)


def version_of(data: bytes) -> str:
    """Return a tag of the content: 8 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:8]


def decode(data: bytes) -> Text | None:
    """Decode UTF-8, marked UTF-16 and UTF-32, or Latin-1; None if binary."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return Text(data[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                continue
    if b"\0" in data[:_BINARY_HEAD]:
        return None
    try:
        return Text(data.decode("utf-8"))
    except UnicodeDecodeError:
        sample = data[:_BINARY_HEAD]
        controls = sum(1 for byte in sample if (byte < 0x20 and byte not in _TEXT_CONTROLS) or 0x7F <= byte < 0xA0)  # noqa: PLR2004 - the C0 and C1 ranges
        too_many = controls > len(sample) * _MAX_CONTROL_SHARE
        return None if too_many else Text(data.decode("latin-1"), "latin-1")


def split_lines(raw: str) -> list[str]:
    """Split at newlines only."""
    lines = raw.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def payload_lines(payload: str) -> list[str]:
    """Return a payload's lines."""
    return split_lines(payload.replace("\r\n", "\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """Replacement of lines from 1 on; with `end = start - 1`, an insertion before `start`."""

    start: int
    end: int
    text: str


def make_replacement(name: str, start: object, end: object, text: str, count: int) -> LineEdit:
    """Create a checked edit of existing lines.

    Raises:
        ToolError: out of range.
    """
    if not is_integer(start) or not is_integer(end):
        raise ToolError(f"{name}: line numbers must be whole numbers", kind="TypeError")
    if not 1 <= start <= end <= count:
        hint = f"it must hold 1 <= start <= end <= {count}" if count else "use mode='w' or mode='a'"
        raise ToolError(f"{name}: out of range; the file has {count} lines, {hint}", kind="ValueError")
    return LineEdit(start=start, end=end, text=text)


def make_insertion(after: object, text: str, count: int) -> LineEdit:
    """Create a checked insertion after a line, or 0.

    Raises:
        ToolError: out of range.
    """
    if not is_integer(after):
        raise ToolError("after_line must be a whole number", kind="TypeError")
    if not 0 <= after <= count:
        raise ToolError(f"after_line={after}: must be 0 (the top) to {count} (the last line)", kind="ValueError")
    return LineEdit(start=after + 1, end=after, text=text)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def apply(text: Text, edits: Sequence[LineEdit]) -> str:
    """Apply edits by the line numbers of `text`; other lines keep every byte.

    Raises:
        ToolError: edits overlap.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for before, after in pairwise(ordered):
        if after.start <= before.end:
            raise ToolError(
                f"edits overlap: lines {before.start}-{before.end} and {after.start}-{after.end}; "
                "give every line to one edit only",
                kind="ValueError",
            )
    carriage = text.newline.removesuffix("\n")
    pieces = list(text.lines) if text.newline == "\n" else split_lines(text.raw)
    if pieces and not text.ends_with_newline:
        pieces[-1] += carriage
    for edit in reversed(ordered):
        pieces[edit.start - 1 : edit.end] = [line + carriage for line in payload_lines(edit.text)]
    if not pieces:
        return ""
    if text.ends_with_newline:
        return "\n".join(pieces) + "\n"
    pieces[-1] = pieces[-1].removesuffix(carriage)
    return "\n".join(pieces)


def append(text: Text, payload: str) -> str:
    """Append a payload, after a missing last newline."""
    added = payload.replace("\r\n", "\n").replace("\n", text.newline)
    joint = "" if text.ends_with_newline or not added else text.newline
    return text.raw + joint + added


_CONTEXT = 3
_RUN = 12  # lines of one addition or removal
_MAX_SENT_RUN = 4  # of a removal, for the author of the edit
_MAX_DIFF_LINES = 40
_MAX_RANGES = 40
_WIDTH = 200


def diff(
    before: Sequence[str],
    after: Sequence[str],
    *,
    edits: Sequence[LineEdit] = (),
    regions: Sequence[tuple[int, int]] | None = None,
) -> str:
    """Render a short diff with line numbers, for the model.

    The text of the `edits` that it has sent is not repeated; `regions` of old lines restrict the diff.
    """
    head, old_end, new_end = outer_span(before, after)
    old, new = before[head:old_end], after[head:new_end]
    if not old and not new:
        return ""
    if not edits and len(old) + len(new) > _MAX_COMPARED:
        return f"(lines {head + 1}-{head + len(old)} replaced by {len(new)} lines; too much to compare)"
    start, end = ("equal", 0, head, 0, head), ("equal", old_end, len(before), new_end, len(after))
    changes = _codes(before, edits, len(after)) if edits else [start, *_changes(old, new, head), end]
    groups = _group_changes(changes)
    lines: list[str] = []
    for group in groups:
        spans = [(a, max(b, a + 1)) for tag, a, b, _, _ in group if tag != "equal"]
        if regions is not None and not any(a < last and first <= b for a, b in spans for first, last in regions):
            continue
        lines += ["…"] if lines else []
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [number_line(i + 1, after[i]) for i in range(c, d)]
                continue
            lines += _render_lines(before, a, b, "-", most=_MAX_SENT_RUN if edits else _RUN)
            if not edits:
                lines += _render_lines(after, c, d, "+")
            elif c < d:
                lines.append(f"{c + 1} + … {d - c} line{'s' if d - c > 1 else ''} as sent, to {d}")
    rest = len(lines) - _MAX_DIFF_LINES
    return "\n".join(lines if rest <= 1 else [*lines[:_MAX_DIFF_LINES], f"… {rest} more lines of diff"])


def number_line(number: int, line: str, mark: str = " ") -> str:
    """Format a line with its number."""
    cut = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}… [+{len(line) - _WIDTH} characters]"
    return f"{number} {mark} {cut}" if line else f"{number} {mark}".rstrip()


def summarize_changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Count added and removed lines, with their places."""
    spans = changed_spans(before, after)
    if not spans:
        return ""
    added, removed = sum(d - c for _, _, c, d in spans), sum(b - a for a, b, _, _ in spans)
    places = changed_ranges(spans)
    rest = [f"{len(places) - _MAX_RANGES} more places"] if len(places) > _MAX_RANGES else []
    return f"Changed lines: {', '.join([*places[:_MAX_RANGES], *rest])} (+{added} -{removed})."


def changed_ranges(spans: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Format changed lines by new numbers."""
    return [
        (f"{c + 1}-{d}" if d > c + 1 else str(d)) if d > c else f"after {c} ({b - a} removed)" for a, b, c, d in spans
    ]


def _group_changes(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    group: list[Opcode] = []
    for index, (tag, a, b, c, d) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        first, last = index == 0, index == len(opcodes) - 1
        if not first and not last and b - a <= 2 * _CONTEXT:
            group.append((tag, a, b, c, d))
            continue
        if not first:
            group.append((tag, a, min(b, a + _CONTEXT), c, min(d, c + _CONTEXT)))
            yield group
        group = [(tag, max(a, b - _CONTEXT), b, max(c, d - _CONTEXT), d)]


def _codes(before: Sequence[str], edits: Sequence[LineEdit], count: int) -> list[Opcode]:
    """Return the opcodes of edits without unchanged ends; `count` is the number of new lines."""
    codes: list[Opcode] = []
    old_pos = new_pos = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        old, new = before[edit.start - 1 : edit.end], payload_lines(edit.text)
        head, old_end, new_end = outer_span(old, new)
        a, b = edit.start - 1 + head, edit.start - 1 + old_end
        c, d = new_pos + a - old_pos, new_pos + a - old_pos + new_end - head
        if a < b or c < d:
            codes += [("equal", old_pos, a, new_pos, c), ("replace", a, b, c, d)]
            old_pos, new_pos = b, d
    return [*codes, ("equal", old_pos, len(before), new_pos, count)]


def _render_lines(lines: Sequence[str], start: int, stop: int, mark: str, *, most: int = _RUN) -> Iterator[str]:
    if stop - start <= most + 1:
        yield from (number_line(i + 1, lines[i], mark) for i in range(start, stop))
        return
    half = most // 2
    yield from (number_line(i + 1, lines[i], mark) for i in range(start, start + half))
    yield f"{mark} … {stop - start - 2 * half} more lines"
    yield from (number_line(i + 1, lines[i], mark) for i in range(stop - half, stop))


def unified_hunks(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return unified diff hunks with three lines of context."""
    hunks: list[str] = []
    groups: list[list[_Span]] = []
    for span in changed_spans(before, after):  # group changes whose contexts touch
        if groups and span[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(span)
        else:
            groups.append([span])
    for group in groups:
        (first, _, new_first, _), (_, last, _, new_last) = group[0], group[-1]
        lead, trail = min(_CONTEXT, first), min(_CONTEXT, len(before) - last)
        old = _range(first - lead, last + trail)
        hunks.append(f"@@ -{old} +{_range(new_first - lead, new_last + trail)} @@")
        at = first - lead
        for a, b, c, d in group:
            hunks += [f" {line}" for line in before[at:a]]
            hunks += [f"-{line}" for line in before[a:b]]
            hunks += [f"+{line}" for line in after[c:d]]
            at = b
        hunks += [f" {line}" for line in before[at : last + trail]]
    return hunks


_Span = tuple[int, int, int, int]


def unified_text(before: Sequence[str], after: Sequence[str], max_chars: int) -> str:
    """Return a unified diff, cut in the middle beyond `max_chars`."""
    text = "\n".join(unified_hunks(before, after)) or "(only line endings or the last newline changed)"
    half = max_chars // 2
    cut = f"{text[:half]}\n... [{len(text) - 2 * half} characters truncated] ...\n{text[-half:]}"
    return text if len(text) <= max_chars else cut


def _range(start: int, end: int) -> str:
    return f"{start + (end > start)},{end - start}"


_STRETCH = 256
_MAX_COMPARED = 20_000  # lines on both sides together
_MAX_EFFORT = 2_000_000  # comparisons; difflib's worst case grows with the cube
Opcode = tuple[str, int, int, int, int]


def changed_spans(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return `(a, b, c, d)` where `before[a:b]` became `after[c:d]`."""
    head, old_end, new_end = outer_span(before, after)
    old, new = before[head:old_end], after[head:new_end]
    if len(old) + len(new) > _MAX_COMPARED:
        return [(head, head + len(old), head, head + len(new))]
    return [(a, b, c, d) for tag, a, b, c, d in _changes(old, new, head) if tag != "equal"]


def outer_span(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """Return `first, old_end, new_end`: `before[first:old_end]` became `after[first:new_end]`."""
    first = count_shared_lines(before, after)
    tail = count_shared_lines(before[first:][::-1], after[first:][::-1])
    return first, len(before) - tail, len(after) - tail


def count_shared_lines(first: Sequence[str], second: Sequence[str]) -> int:
    """Count the common leading lines."""
    size = min(len(first), len(second))
    start = 0
    while start < size and first[start : start + _STRETCH] == second[start : start + _STRETCH]:
        start += _STRETCH
    stop = min(size, start + _STRETCH)
    return next((i for i in range(start, stop) if first[i] != second[i]), min(size, stop))


def opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return difflib's opcodes in bounded time, dividing expensive texts at unique lines."""
    codes: list[Opcode] = []
    a = c = 0
    for at, to, size in [*_matching_blocks(old, new), (len(old), len(new), 0)]:
        if a < at or c < to:
            codes.append(("replace" if a < at and c < to else "delete" if a < at else "insert", a, at, c, to))
        if size:
            # Merge adjacent blocks.
            _, first, _, new_start, _ = codes.pop() if codes and codes[-1][0] == "equal" else ("", at, at, to, to)
            codes.append(("equal", first, at + size, new_start, to + size))
        a, c = at + size, to + size
    return codes


def _matching_blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    room = _MAX_EFFORT
    anchors = _anchors(old, new) if _estimate_effort(len(old), len(new)) > room else []
    a = c = 0
    for at, to in [*anchors, (len(old), len(new))]:
        effort = _estimate_effort(at - a, to - c)
        if effort <= room:
            room -= effort
            for match in SequenceMatcher(None, old[a:at], new[c:to]).get_matching_blocks()[:-1]:
                yield a + match.a, c + match.b, match.size
        if at < len(old):
            yield at, to, 1
        a, c = at + 1, to + 1


def _estimate_effort(old: int, new: int) -> int:
    return old * new * min(old, new)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return lines unique on both sides, in the longest common order."""
    in_old = _unique_lines(old)
    in_new = _unique_lines(new)
    pairs = [(at, in_new[line]) for line, at in in_old.items() if line in in_new]
    # The longest increasing subsequence of the second numbers, by patience sorting with back links.
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, to) in enumerate(pairs):
        pile = bisect_left(tops, to)
        before.append(ends[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [to]
        ends[pile : pile + 1] = [number]
    chosen: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _unique_lines(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: at for at, line in enumerate(lines) if counts[line] == 1}


def _changes(old: Sequence[str], new: Sequence[str], head: int) -> list[Opcode]:
    return [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in opcodes(old, new)]
