"""Short diffs between two versions of a text, for every edit. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from agent_runtime.workspace.edits import LineEdit, lines_of

_CONTEXT = 3
_RUN = 12  # lines of one addition or removal that are shown
_RUN_BESIDE_SENT = 4  # of a removal where the author of the addition needs only to see that the place is right
_LINES = 40
_RANGES = 40
_WIDTH = 200
_STRETCH = 256
_COMPARED = 20_000  # lines on both sides together
_EFFORT = 2_000_000  # comparisons; difflib's worst case grows with the cube

Opcode = tuple[str, int, int, int, int]


def numbered(number: int, line: str, width: int, mark: str = " ") -> str:
    """One line of a listing."""
    cut = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}… [+{len(line) - _WIDTH} characters]"
    return f"{number:>{width}} {mark} {cut}" if line else f"{number:>{width}} {mark}".rstrip()


def diff(
    before: Sequence[str],
    after: Sequence[str],
    *,
    sent: Sequence[LineEdit] = (),
    within: Sequence[tuple[int, int]] | None = None,
) -> str:
    """A short diff, empty when nothing changed.

    Removed lines carry their old numbers and `-`, added and unchanged ones their new numbers, with `+` or nothing.

    Args:
        before: the old lines.
        after: the new lines.
        sent: the edits that made one of the other, where the reader has just sent them: of the lines that they bring
            only the numbers are shown.
        within: ranges of old lines, from 1; changes elsewhere are left out. None for all changes.
    """
    head = _same(before, after)
    tail = _same(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if not old and not new:
        return ""
    if not sent and len(old) + len(new) > _COMPARED:
        return f"(lines {head + 1}-{head + len(old)} replaced by {len(new)} lines; too much to compare)"
    end = ("equal", len(before) - tail, len(before), len(after) - tail, len(after))
    changes = _sent(before, sent, len(after)) if sent else [("equal", 0, head, 0, head), *_changes(old, new, head), end]
    groups = _groups(changes)
    width = len(str(max(len(before), len(after))))
    shown: list[str] = []
    for group in groups:
        spans = [(a, max(b, a + 1)) for tag, a, b, _, _ in group if tag != "equal"]
        if within is not None and not any(a < last and first <= b for a, b in spans for first, last in within):
            continue
        shown += ["…"] if shown else []
        for tag, a, b, c, d in group:
            if tag == "equal":
                shown += [numbered(i + 1, after[i], width) for i in range(c, d)]
                continue
            shown += _run(before, a, b, width, "-", most=_RUN_BESIDE_SENT if sent else _RUN)
            if not sent:
                shown += _run(after, c, d, width, "+")
            elif c < d:
                shown.append(f"{c + 1:>{width}} + … {d - c} line{'s' if d - c > 1 else ''} as sent, to {d}")
    rest = len(shown) - _LINES
    return "\n".join(shown if rest <= 1 else [*shown[:_LINES], f"… {rest} more lines of diff"])


def counted(before: Sequence[str], after: Sequence[str]) -> str:
    """How many lines were added and removed, and where; empty when none was."""
    spans = changed_spans(before, after)
    if not spans:
        return ""
    added, removed = sum(d - c for _, _, c, d in spans), sum(b - a for a, b, _, _ in spans)
    places = ranges(spans)
    more = [f"{len(places) - _RANGES} more places"] if len(places) > _RANGES else []
    return f"Changed lines: {', '.join([*places[:_RANGES], *more])} (+{added} -{removed})."


def ranges(spans: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Changed lines by their new numbers; where lines only went, the line that they stood behind."""
    return [
        (f"{c + 1}-{d}" if d > c + 1 else str(d)) if d > c else f"after {c} ({b - a} removed)" for a, b, c, d in spans
    ]


def outer_span(before: Sequence[str], after: Sequence[str]) -> tuple[int, int, int]:
    """The part that all differences lie in: `before[first:old_end]` became `after[first:new_end]`."""
    first = _same(before, after)
    tail = _same(before[first:][::-1], after[first:][::-1])
    return first, len(before) - tail, len(after) - tail


def changed_spans(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Where two versions differ: `before[a:b]` became `after[c:d]`, as `(a, b, c, d)`, in order.

    Versions with very much between their first and their last difference are taken to differ in all of that.
    """
    head, old_end, new_end = outer_span(before, after)
    old, new = before[head:old_end], after[head:new_end]
    if len(old) + len(new) > _COMPARED:
        return [(head, head + len(old), head, head + len(new))]
    return [(a, b, c, d) for tag, a, b, c, d in _changes(old, new, head) if tag != "equal"]


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items two sequences share at the beginning; whole stretches are compared at once."""
    size = min(len(one), len(other))
    start = 0
    while start < size and one[start : start + _STRETCH] == other[start : start + _STRETCH]:
        start += _STRETCH
    stop = min(size, start + _STRETCH)
    return next((i for i in range(start, stop) if one[i] != other[i]), min(size, stop))


def opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """The opcodes of difflib, in bounded time.

    What difflib would take too long for is parted at lines that stand once on either side, and only the parts are
    compared closely; one that has no such line and is still too long is taken to differ as a whole.
    """
    found: list[Opcode] = []
    a = c = 0
    for at, to, size in [*_equal(old, new), (len(old), len(new), 0)]:
        if a < at or c < to:
            found.append(("replace" if a < at and c < to else "delete" if a < at else "insert", a, at, c, to))
        if size:
            # Two stretches that touch are one.
            _, first, _, there, _ = found.pop() if found and found[-1][0] == "equal" else ("", at, at, to, to)
            found.append(("equal", first, at + size, there, to + size))
        a, c = at + size, to + size
    return found


def _equal(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Stretches that are equal: where they begin on either side, and how long they are."""
    room = _EFFORT
    anchors = _anchors(old, new) if _effort(len(old), len(new)) > room else []
    a = c = 0
    for at, to in [*anchors, (len(old), len(new))]:
        effort = _effort(at - a, to - c)
        if effort <= room:
            room -= effort
            for match in SequenceMatcher(None, old[a:at], new[c:to]).get_matching_blocks()[:-1]:
                yield a + match.a, c + match.b, match.size
        if at < len(old):
            yield at, to, 1
        a, c = at + 1, to + 1


def _effort(old: int, new: int) -> int:
    """How many comparisons difflib may need."""
    return old * new * min(old, new)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that stand once on either side, as many as there are in the same order on both."""
    once = _once(old)
    there = _once(new)
    pairs = [(at, there[line]) for line, at in once.items() if line in there]
    # The longest increasing run of the second numbers: patience sorting, with a link from each to the one before it.
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


def _once(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: at for at, line in enumerate(lines) if counts[line] == 1}


def _changes(old: Sequence[str], new: Sequence[str], head: int) -> list[Opcode]:
    return [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in opcodes(old, new)]


def _groups(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their context; a gap of unchanged lines longer than two contexts parts two groups."""
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


def _sent(before: Sequence[str], edits: Sequence[LineEdit], count: int) -> list[Opcode]:
    """The opcodes of some edits, without the lines at their ends that stay as they were.

    Args:
        before: the old lines.
        edits: of them, none on top of another.
        count: of the new lines.
    """
    codes: list[Opcode] = []
    at = to = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        old, new = before[edit.start - 1 : edit.end], lines_of(edit.text)
        head = _same(old, new)
        tail = _same(old[head:][::-1], new[head:][::-1])
        a, b = edit.start - 1 + head, edit.end - tail
        c, d = to + a - at, to + a - at + len(new) - head - tail
        if a < b or c < d:
            codes += [("equal", at, a, to, c), ("replace", a, b, c, d)]
            at, to = b, d
    return [*codes, ("equal", at, len(before), to, count)]


def _run(lines: Sequence[str], start: int, stop: int, width: int, mark: str, *, most: int = _RUN) -> Iterator[str]:
    if stop - start <= most + 1:
        yield from (numbered(i + 1, lines[i], width, mark) for i in range(start, stop))
        return
    half = most // 2
    yield from (numbered(i + 1, lines[i], width, mark) for i in range(start, start + half))
    yield f"{'':>{width}} {mark} … {stop - start - 2 * half} more lines"
    yield from (numbered(i + 1, lines[i], width, mark) for i in range(stop - half, stop))
