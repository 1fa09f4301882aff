"""What a person may ask for, and the one grammar in which they ask. Pure.

A comment is a command when the first line that a reader sees as the author's own words begins with the trigger:
`/codepilot <verb> …`. Quotes, fenced and indented code and HTML comments are not the author's words and are passed
over; any other line before the command means that there is none. A line right below a quote still belongs to the quote,
as Markdown draws it, until a blank line ends it. Where Markdown is in doubt, there is no command.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

DEFAULT_TRIGGER = "/codepilot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Change the code and publish the change. `goal` is the free text after the verb; may be empty."""

    goal: str
    verb: Literal["fix"] = "fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """Say what the bot can do."""

    verb: Literal["help"] = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A verb that does not exist; answered with the nearest one that does and the help.

    Attributes:
        word: what was written, at most 40 characters of it.
        nearest: the closest known verb, or None when nothing is close.
    """

    word: str
    nearest: str | None
    verb: Literal["unknown"] = "unknown"


Command = Fix | Help | Unknown
"""Everything a person can ask for; unhandled kinds fail type checking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One word of the grammar.

    Attributes:
        name: the word, in lower case.
        arguments: what may follow it, as the help shows it; empty for nothing.
        meaning: one sentence for the help.
        make: the free text after the verb to the command.
    """

    name: str
    arguments: str
    meaning: str
    make: Callable[[str], Command]


VERBS: tuple[Verb, ...] = (
    Verb(
        name="fix",
        arguments="[what to do]",
        meaning="Change the code and publish the change; without words, fix what the thread describes.",
        make=lambda goal: Fix(goal=goal),
    ),
    Verb(name="help", arguments="", meaning="Show this list.", make=lambda _: Help()),
)
"""Every verb, in the order of the help; to add one, add it here and to `Command`."""

_BY_NAME = {verb.name: verb for verb in VERBS}
_MAX_WORD = 40

_QUOTE = re.compile(r" {0,3}>")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*$)|~{3,})")
_COMMENT = re.compile(r" {0,3}<!--")
_INDENTED = re.compile(r" {0,3}\t| {4}")
_STARTS_A_BLOCK = re.compile(r" {0,3}(?:[-+*#<=_|]|\d{1,9}[.)])")
"""Lines that end a quote above them without a blank line."""


def parse_command(comment_body: str, *, trigger: str = DEFAULT_TRIGGER) -> Command | None:
    """Find the command in a comment, or None when it holds none.

    Trigger and verb are whole words in any case. The free text after the verb, on its line and below, is the goal, with
    white space around it removed and nothing else changed. A trigger alone is `Help`; a first word that is no verb is
    `Unknown`, whatever follows it.
    """
    lines = re.split(r"\r\n|\r|\n", comment_body)
    start = _first_own_line(lines)
    if start is None:
        return None
    found = re.match(rf" {{0,3}}{re.escape(trigger)}(?:\s+(?P<verb>\S+)(?P<rest>.*))?\s*$", lines[start], re.IGNORECASE)
    if found is None:
        return None
    word = found["verb"]
    if word is None:
        return Help()
    verb = _BY_NAME.get(word.lower())
    if verb is None:
        return _unknown(word)
    return verb.make("\n".join([found["rest"], *lines[start + 1 :]]).strip())


def help_text(*, trigger: str = DEFAULT_TRIGGER) -> str:
    """Every verb with its meaning, as a Markdown list."""
    usages = ((f"{trigger} {verb.name} {verb.arguments}".strip(), verb.meaning) for verb in VERBS)
    return "\n".join(f"- `{usage}`: {meaning}" for usage, meaning in usages)


def _unknown(word: str) -> Unknown:
    word = word[:_MAX_WORD]
    near = difflib.get_close_matches(word.lower(), _BY_NAME, n=1)
    return Unknown(word=word, nearest=near[0] if near else None)


def _first_own_line(lines: list[str]) -> int | None:
    """The first line in the author's own words, by number; None when there is none or Markdown is in doubt."""
    number, below_quote = 0, False
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            below_quote = False
        elif _QUOTE.match(line):
            below_quote = True
        elif fence := _FENCE.match(line):
            number = _fence_end(lines, number, fence["mark"])
        elif _COMMENT.match(line):
            end = _comment_end(lines, number)
            if end is None:
                return None
            number = end
        elif _INDENTED.match(line):
            pass
        elif not below_quote:
            return number
        elif _STARTS_A_BLOCK.match(line):
            return None
        number += 1
    return None


def _fence_end(lines: list[str], start: int, mark: str) -> int:
    """The line that closes the fence opened at `start`, or the last line when none does."""
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
    ends = (number for number in range(start + 1, len(lines)) if closing.match(lines[number]))
    return next(ends, len(lines) - 1)


def _comment_end(lines: list[str], start: int) -> int | None:
    """The line that closes the HTML comment opened at `start`; None when it is not clear where the comment ends.

    That is so when nothing closes it, when text follows on the closing line, and for `<!-->` and `<!--->`, which are
    whole comments to some and the start of one to others.
    """
    rest = lines[start].partition("<!--")[2]
    if rest.startswith((">", "->")):
        return None
    if "-->" in rest:
        return None if rest.partition("-->")[2].strip() else start
    for number in range(start + 1, len(lines)):
        _, end, after = lines[number].partition("-->")
        if end:
            return None if after.strip() else number
    return None
