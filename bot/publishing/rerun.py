"""The command that a failed check is about, run once more by the host after the change: what it proves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.publishing.checking import Checking, checking
from bot.publishing.text import code, duration, one_line
from bot.publishing.verdict import Check, Edits

_COMMAND_CHARS = 300
_PATTERN = re.compile(r"[*?\[{$]")
_NAME_CHARS, _NAMES = 100, 10
_NOT_FOUND = frozenset({126, 127})
_OTHER = "No failed step runs this command; make sure that it checks the same thing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What the host saw before and after a change that is to make failed checks pass.

    Attributes:
        command: what the agent saw fail before it changed anything; empty when it saw nothing fail.
        before: the exit code then.
        after: the exit code when the host ran it once more on the files as they were left; None when it did not end.
        seconds: how long that took.
        other: whether it is no part of what the steps that failed run, where that is known.
        passed_there: whether the command passed when the agent ran it after the change.
        beside: what the run made that git ignores, and so is no part of the change.
    """

    command: str = ""
    before: int = 0
    after: int | None = None
    seconds: float = 0.0
    other: bool = False
    passed_there: bool = False
    beside: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether it failed before the change and passes after it."""
        return bool(self.command) and self.after == 0

    @property
    def sentence(self) -> str:
        """What it proves, or why nothing was committed, for the comment and the pull request."""
        if not self.command:
            return (
                "The failure was not reproduced: no check failed here before the files were changed, so nothing "
                "shows that this change fixes it."
            )
        shown = code(one_line(self.command, _COMMAND_CHARS))
        before = f"{shown} ended with exit code {self.before} before the change"
        again = "run again by the bot in a fresh sandbox"
        if self.proven:
            other = f" {_OTHER}" if self.other else ""
            names = ", ".join(code(one_line(each, _NAME_CHARS)) for each in self.beside[:_NAMES])
            beside = f" It ran with ignored files in place that are not in the commit: {names}." if names else ""
            return f"**Proof:** {before} and with exit code 0 after it, {again}.{other}{beside}"
        ended = f"with exit code {self.after} after it"
        if self.after is None:
            ended = f"did not finish within {duration(self.seconds)} after it"
        said = f"{before} and {ended}, {again}."
        if self.after in _NOT_FOUND and self.after != self.before:
            return (
                f"{said} Anything the agent installed outside of the workspace is not available: install it in `setup`."
            )
        if self.passed_there:
            return f"{said} It passed in the agent's terminal, whose variables and functions are not available here."
        return said


def reproduced(checks: Sequence[Check], edits: Edits | None, commands: Sequence[str] = ()) -> Check | None:
    """The check that showed the failure before anything was changed; None when none did.

    Args:
        checks: in the order in which they ended.
        edits: when files were changed; None where none was.
        commands: the `run:` of the workflow's steps that failed. A check by the same tool is the one that is meant;
            where there is none, it is the last one that failed.
    """
    red = [
        each
        for each in checks
        if each.failed and each.exit_code not in _NOT_FOUND and (edits is None or each.ended < edits.first)
    ]
    meant = [each for each in red if not is_other(each, commands)]
    return next(reversed(meant or red), None)


def is_other(check: Check, commands: Sequence[str]) -> bool:
    """Whether a check is no part of what the steps that failed run; False where these run nothing that is known."""
    steps = [read for line in step_lines(commands) if (read := checking(line, declared=True)) and read.known]
    own = checking(check.command, declared=check.declared)
    return bool(steps) and (own is None or not any(_is_part(own, step) for step in steps))


def _is_part(own: Checking, step: Checking) -> bool:
    """Whether it is the same tool on the same files, on some of them or on more."""
    if own.tool != step.tool:
        return False
    there, here = _targets(step), _targets(own)
    return not (there and here) or any(_is_within(word, target) for word in here for target in there)


def _targets(read: Checking) -> list[str]:
    """The words that are neither options nor what may be their values."""
    pairs = zip(("", *read.rest), read.rest, strict=False)
    return [word for before, word in pairs if not word.startswith("-") and not before.startswith("-")]


def _is_within(word: str, target: str) -> bool:
    """Whether a path, or a test in a file, is a target of the step, or below it. A pattern or a variable may be any."""
    word, target = word.removeprefix("./"), target.removeprefix("./")
    fixed = _PATTERN.split(target, maxsplit=1)[0]
    if fixed != target or target in {"", "."}:
        return word.startswith(fixed.removesuffix("."))
    return word == target or word.startswith((f"{target.rstrip('/')}/", f"{target}::"))


def step_lines(commands: Sequence[str]) -> Iterator[str]:
    """The commands in the `run:` of several steps, one a line."""
    for command in commands:
        yield from (line.strip() for line in command.replace("\\\n", " ").splitlines() if line.strip())
