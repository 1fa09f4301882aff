"""The options of a command: `--model NAME`, `--dry-run` and their like. Pure.

Options are read from the command's own line, wherever they are in it, so that none is mistaken for a wish: a
`--dry-run` passed over would publish. Words that only speak of options are in backticks, after a `--` that comes
before all text, or on the lines below.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bot.domain.commands import Malformed, Options
from bot.domain.typos import is_typo


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        argument: what its value is, as the help shows it; empty for an option that takes none.
        meaning: one sentence for the help.
        field: which attribute of `Options` it sets.
        value: its text to its value, or None when the text cannot be one.
    """

    argument: str
    meaning: str
    field: str
    value: Callable[[str], object | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A command's line, read: its options, and the text without them."""

    options: Options
    text: str


_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}")
_DOLLARS = re.compile(r"\$?(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?)")
_STEPS = re.compile(r"[0-9]{1,6}")
# What git-check-ref-format(1) allows, without a leading dash. No shell reads these names: they reach git as whole
# arguments after `refs/heads/`, GitHub as quoted parts of addresses, and people as code.
_BRANCH = re.compile(
    r"(?![-./]|@$)(?:(?!\.\.|//|@\{|/\.|\.lock(?:/|$))[^\x00-\x20~^:?*\[\\\x7f\ud800-\udfff])+(?<![./])"
)
_BRANCH_BYTES = 244
"""With `refs/heads/` before it, a name of a file that every file system takes."""


def is_safe_branch(name: str) -> bool:
    """Whether the bot handles branches of this name: those of every name that git takes."""
    return _BRANCH.fullmatch(name) is not None and len(name.encode()) <= _BRANCH_BYTES


def _model(text: str) -> str | None:
    return text if _MODEL.fullmatch(text) else None


def _dollars(text: str) -> float | None:
    found = _DOLLARS.fullmatch(text)
    return (float(found["number"]) or None) if found else None


def _branch(text: str) -> str | None:
    return text if is_safe_branch(text) else None


def _steps(text: str) -> int | None:
    return (int(text) or None) if _STEPS.fullmatch(text) else None


OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "model": Option(argument="NAME", meaning="One of the operator's models.", field="model", value=_model),
        "budget": Option(
            argument="USD",
            meaning="The run's cost limit in US dollars; cannot exceed the operator's.",
            field="budget_usd",
            value=_dollars,
        ),
        "max-steps": Option(
            argument="N",
            meaning="The run's step limit; cannot exceed the operator's.",
            field="max_steps",
            value=_steps,
        ),
        "candidates": Option(
            argument="N",
            meaning="The number of parallel attempts; the best is published. Cannot exceed the operator's limit.",
            field="candidates",
            value=_steps,
        ),
        "base": Option(
            argument="BRANCH",
            meaning="The branch to start from and to open a new pull request against; on issues only.",
            field="base",
            value=_branch,
        ),
        "dry-run": Option(
            argument="",
            meaning="Show what would be published without publishing it.",
            field="dry_run",
            value=lambda _: True,
        ),
        "new": Option(
            argument="",
            meaning="Open another pull request even if one of mine is already open for the issue.",
            field="new",
            value=lambda _: True,
        ),
    }
)
"""Every option, by its name without the hyphens, in the order of the help."""

_WORD = re.compile(r"\S+")
_TICKS = re.compile(r"`+")
# Keyboards of telephones make one dash of two hyphens.
_WRITTEN = re.compile(
    r"(?P<dashes>-{1,2}|[\u2010-\u2015\u2212])(?P<name>[A-Za-z][A-Za-z0-9_-]{0,39})(?:=(?P<value>.*))?"
)
_OTHERWISE = "To mention an option without using it, put it in backticks, or put `--` before the text."


def read_options(line: str, *, allowed: Collection[str], of: str) -> Read | Malformed:
    """Take the options out of a command's line.

    Args:
        line: what stands on it after the verb.
        allowed: names of the options that the command takes.
        of: the command, as a remedy names it.
    """
    words = list(_WORD.finditer(_with_code_hidden(line)))
    chosen: dict[str, Any] = {}
    kept: list[str] = []
    number, end = 0, 0
    while number < len(words):
        word = words[number][0]
        if word == "--" and not kept:
            kept.append(line[words[number].end() :])
            break
        name = _named(word, leading=not kept)
        if isinstance(name, Malformed):
            return name
        if name is None:
            kept.append(line[end : words[number].end()])
            width = 1
        else:
            following = words[number + 1][0] if number + 1 < len(words) else None
            taken = _taken(name, word, following, allowed=allowed, of=of)
            if isinstance(taken, Malformed):
                return taken
            value, width = taken
            if OPTIONS[name].field in chosen:
                return Malformed(reason=f"`--{name}` is given twice. Write it once.")
            chosen[OPTIONS[name].field] = value
        number += width
        end = words[number - 1].end()
    return Read(options=Options(**chosen), text="".join(kept).strip())


def _with_code_hidden(line: str) -> str:
    """The line with backticks all over its code, which makes one long word of each that is no option.

    As in Markdown, as many backticks as began the code end it, and where none do there is no code.
    """
    runs = list(_TICKS.finditer(line))
    closing: dict[int, re.Match[str] | None] = {}
    later: dict[int, re.Match[str]] = {}
    for run in reversed(runs):
        closing[run.start()] = later.get(len(run[0]))
        later[len(run[0])] = run
    pieces, at = [], 0
    for run in runs:
        end = closing[run.start()]
        if end is not None and run.start() >= at:
            pieces += [line[at : run.start()], "`" * (end.end() - run.start())]
            at = end.end()
    return "".join([*pieces, line[at:]])


def _named(word: str, *, leading: bool) -> str | Malformed | None:
    """The option that a word names, or what is wrong with it; None for a word of the text.

    After the start of the text, only a word close to an option is taken for one mistyped.
    """
    found = _WRITTEN.fullmatch(word)
    if found is None:
        unreadable = leading and word.startswith("--")
        return (
            Malformed(reason=f"An option is not valid. The options are {_all()}. {_OTHERWISE}") if unreadable else None
        )
    name, right = found["name"].lower(), found["dashes"] == "--"
    if name in OPTIONS and right:
        return name
    meant = [each for each in OPTIONS if name == each or is_typo(name, each)]
    if not meant and not (leading and right):
        return None
    nearest = meant or difflib.get_close_matches(name, OPTIONS, n=1)
    hint = f" Did you mean `--{nearest[0]}`?" if nearest else ""
    return Malformed(
        reason=f"There is no option `{found['dashes']}{found['name']}`.{hint} The options are {_all()}. {_OTHERWISE}"
    )


def _taken(
    name: str, word: str, following: str | None, *, allowed: Collection[str], of: str
) -> tuple[object, int] | Malformed:
    """An option's value, and how many words it took."""
    option = OPTIONS[name]
    if name not in allowed:
        takes = f"only {_listed(allowed)}" if allowed else "no options"
        return Malformed(reason=f"`--{name}` is not supported here: {of} takes {takes}. {_OTHERWISE}")
    _, joined, text = word.partition("=")
    if not option.argument:
        return Malformed(reason=f"`--{name}` takes no value. Write it without one.") if joined else (True, 1)
    value = option.value(text if joined else following or "")
    if value is None:
        example = {
            "NAME": "a model's name",
            "USD": "an amount, for example `2.50`",
            "N": "a whole number, for example `40`",
            "BRANCH": "a branch's name",
        }
        return Malformed(reason=f"`--{name}` requires {example[option.argument]}. {_OTHERWISE}")
    return value, 1 if joined else 2


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`--{name}`" for name in names)


def _all() -> str:
    return _listed(OPTIONS)
