"""Texts that slow readers down, at any size, and the processor time of a reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

from agent_runtime.core.errors import AgentError, Interrupt, ToolError
from agent_runtime.interpreter.source import CodeError
from bot.domain.errors import BotError

Read = Callable[[str], object]

_TURN_SECONDS = 0.1
"""Limit of processor time for one turn of the event loop; docs/security.md names it."""
_MEASURABLE_SECONDS = 0.02
# A doubled text takes 2.2 times as long where time grows as n·log n, and 4 times where it grows as n².
_MODERATE = 2.2
_STEEP = 2.8
_TRIES = 3

_REPEATED = {
    "words": "lorem ipsum ",
    "long line": "a",
    "lines": "a\n",
    "blank lines": "\n",
    "blanks": " ",
    "statements": "a;",
    "dots": "a.",
    "full stops": ".",
    "dotted keys": "a.a.a.a = 1\n",
    "assignments": "a = b\n",
    "pairs": "a: b\n",
    "attributions": "2024-01-02 10:00:\n",
    "mail headers": "From: a\nDate:\n",
    "parentheses": "(",
    "mixed brackets": "([{",
    "calls": "a(",
    "flow": "[a, ",
    "objects": '{"a":',
    "unclosed quote": '"',
    "alternating quotes": "\"'",
    "triple quotes": '"""a',
    "escapes": "\\",
    "ticks": "`a``",
    "fences": "```\n",
    "nested fences": "~~~ a\n",
    "list": "- a\n",
    "nested list": "- ",
    "quotes": "> ",
    "emphasis": "*a**",
    "link": "[a](",
    "picture": "![a](<",
    "tags": "<a ",
    "comments": "<!--",
    "entities": "&amp;",
    "pipes": "a|",
    "tables": "|a|b|\n|-|-|\n",
    "here documents": "<<a\n",
    "substitutions": "$(a ",
    "parameters": "@a ",
    "expressions": "${{ a }} ",
    "lambdas": "lambda:",
    "anchors": "- &a a\n- *a\n",
    "hunks": "@@ a\n a\n",
    "files": "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n",
    "errors": "a.py:1:1: error: a\n",
    "steps": "##[group]Run a\n",
    "colours": "\x1b[1m",
    "titles": "\x1b]0;",
    "carriage returns": "a\r",
    "combining": "e\u0301",
    "invisible": "\u200d",
    "undecoded": "\ufffda",
    "tokens": "ghp_a",
    "encoded": "eyJaaaaaaaa.",
}


def _repeat(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def _chain(size: int) -> str:
    """Each name is bound to the next one below."""
    number = size // 14
    return "".join(f"n{each} = n{each + 1}\n" for each in range(number)) + f"n{number} = write_file\n"


def _nested_blocks(size: int) -> str:
    """Ninety nested functions, the innermost with all other code."""
    depth = min(90, max(1, size // 400))
    head = "".join(f"{' ' * level}def f{level}():\n" for level in range(depth))
    return head + _repeat(f"{' ' * depth}x = f0\n", max(0, size - len(head)))


def _nested_calls(size: int) -> str:
    """Nested `write` calls."""
    return "write_file(" * 150 + "[" + _repeat("a,", max(0, size - 1_800)) + "]" + ")" * 150 + "\n"


def _closed(opening: str, closing: str, most: int = 100_000) -> Callable[[int], str]:
    def fill(size: int) -> str:
        depth = min(most, size // len(opening + closing))
        return opening * depth + "a" + closing * depth

    return fill


SHAPES: dict[str, Callable[[int], str]] = {
    **{name: partial(_repeat, unit) for name, unit in _REPEATED.items()},
    "chain": _chain,
    "nested blocks": _nested_blocks,
    "nested calls": _nested_calls,
    "closed substitutions": _closed("$(a ", ")"),
    "closed parentheses": _closed("(", ")", 190),
    "closed lists": _closed("[", "]"),
    "values": lambda size: '{"a": [' + _repeat("[],", size) + "0]}",
    "escaped text": lambda size: '{"a": "' + _repeat("\\u00e9", size // 6 * 6) + '"}',
    "distinct keys": lambda size: "".join(f"k{number}: v\n" for number in range(size // 8)),
    "distinct lines": lambda size: "".join(f"line {number}\n" for number in range(size // 10)),
}


def processor_seconds(read: Read, text: str) -> float:
    """Return the processor time of this process for a text, which the reader may refuse."""
    start = time.process_time()
    with suppress(ValueError, RecursionError, AgentError, ToolError, Interrupt, CodeError, BotError):
        read(text)
    return time.process_time() - start


def slowness() -> float:
    """Return how many times slower than the machine of the bound this one is now; at least 1."""
    return max(1.0, min(_reference() for _ in range(3)) / _REFERENCE_SECONDS)


_REFERENCE_SECONDS = 0.004


def _reference() -> float:
    start = time.process_time()
    sum(number % 7 for number in range(60_000))
    return time.process_time() - start


def faults(read: Read, size: int, *, turn: bool) -> list[str]:
    """List the shapes for which a reader takes too long.

    Args:
        read: the reader.
        size: characters; the most that it takes, or more where it says so itself.
        turn: whether all of it happens in one turn of the event loop.
    """
    return [fault for name, shape in SHAPES.items() if (fault := _fault(read, name, shape, size, turn=turn))]


def _fault(read: Read, name: str, shape: Callable[[int], str], size: int, *, turn: bool) -> str:
    """Return the bound that one shape exceeds in each of several tries; empty if it is within both."""
    text = shape(size)
    seconds = processor_seconds(read, text)
    if seconds < _MEASURABLE_SECONDS:
        return ""
    if turn and seconds > _TURN_SECONDS:
        seconds = min(seconds, _least(read, text))
        if seconds > _TURN_SECONDS * slowness():
            return f"{name}: {seconds * 1000:.0f} ms for {size:,} characters"
    half = shape(size // 2)
    of_half = processor_seconds(read, half)
    if seconds <= _MODERATE * of_half or seconds <= _STEEP * min(of_half, processor_seconds(read, half)):
        return ""
    # A text that is refused early when it is short, but not when it is long, grows steeply in one doubling alone.
    if processor_seconds(read, shape(size * 2)) <= _MODERATE * seconds:
        return ""
    sizes = (size // 4, size // 2, size, size * 2)
    if all(_is_steep(read, shape(smaller), shape(larger)) for smaller, larger in pairwise(sizes)):
        times = ((each, processor_seconds(read, shape(each)) * 1000) for each in sizes)
        return f"{name}: {', '.join(f'{each:,} characters {ms:.1f} ms' for each, ms in times)}"
    return ""


def _is_steep(read: Read, smaller: str, larger: str) -> bool:
    bound = _STEEP * _least(read, smaller)
    return all(processor_seconds(read, larger) > bound for _ in range(_TRIES))


def _least(read: Read, text: str) -> float:
    return min(processor_seconds(read, text) for _ in range(_TRIES))
