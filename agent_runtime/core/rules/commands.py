"""Patterns of commands, and how surely a command is one of them. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import Enum
from functools import cache

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.rules.shell import ParsedCommand

RUNS_OTHERS = frozenset(
    {
        ".", "alias", "bash", "builtin", "busybox", "bwrap", "chroot", "chrt", "command", "coproc", "dash", "doas",
        "enable", "env", "eval", "exec", "fakeroot", "fish", "flock", "hash", "ionice", "ksh", "ltrace", "nice",
        "nohup", "npx", "nsenter", "parallel", "pkexec", "prlimit", "runuser", "script", "set", "setarch", "setsid",
        "sh", "shopt", "source", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout",
        "trap", "unalias", "unshare", "uvx", "watch", "xargs", "xvfb-run", "zsh",
    }
)  # fmt: skip
"""Programs and words that run what their arguments name, or change what later names mean."""
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", None})


class Fit(Enum):
    """How surely a command is one that a pattern means."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPattern:
    """A command as a rule names it, e.g. `git diff *`.

    It is split into words as a shell would. A word means itself; `*` as the last word stands for any further words,
    none included; a lone `*` before the end for any one word; `*` inside a word for any characters of it. A `*` of the
    last two kinds stands for no `..` in a path, and a word that begins with it for no option.

    Attributes:
        text: as it was given.
        words: one a word; None for a `*` at the end.
    """

    text: str
    words: tuple[re.Pattern[str] | None, ...]
    named: bool

    @classmethod
    @cache
    def parse(cls, text: str) -> CommandPattern:
        """Read a pattern.

        Raises:
            SettingsError: it is empty, or a quote in it is not closed.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise SettingsError(f"command pattern {text!r}: {error}; close it, or leave it out") from error
        if not words:
            raise SettingsError("a command pattern is empty; name a program, e.g. 'pytest *', or '*' for any command")
        rest = words[-1] == "*"
        wanted = [_word(word) for word in (words[:-1] if rest else words)]
        return cls(text=text, words=(*wanted, None) if rest else tuple(wanted), named="*" not in words[0])

    def covers(self, command: ParsedCommand) -> bool:
        """Whether the command is one of these, and nothing else happens: what an approval needs."""
        if command.doubt or (not self.named and _may_run_others(command.words or ())):
            return False
        return self._fit(command.words) is Fit.YES

    def touches(self, command: ParsedCommand) -> Fit:
        """Whether the command may be one of these, also by another path to the program: what a warning needs."""
        words = command.words
        fit = self._fit(words)
        if fit is not Fit.NO or not words or words[0] is None:
            return fit
        name = _name(words[0])
        fit = self._fit((name, *words[1:]))
        return Fit.MAYBE if fit is Fit.NO and _may_run_others(words) else fit

    def _fit(self, words: tuple[str | None, ...] | None) -> Fit:
        if words is None:
            return Fit.MAYBE
        for index, wanted in enumerate(self.words):
            if wanted is None:
                return Fit.YES
            word = words[index] if index < len(words) else ""
            if word is None:
                return Fit.MAYBE
            if index >= len(words) or not wanted.fullmatch(word):
                return Fit.NO
        rest = set(words[len(self.words) :])
        return Fit.YES if not rest else Fit.MAYBE if rest == {None} else Fit.NO


def _may_run_others(words: tuple[str | None, ...]) -> bool:
    first = words[0] if words else ""
    if first is None:
        return True
    name = _name(first)
    return name in RUNS_OTHERS or (name == "find" and not _FIND_RUNS.isdisjoint(words))


def _word(word: str) -> re.Pattern[str]:
    if "*" not in word:
        return re.compile(re.escape(word))
    no_option = "(?!-)" if word.startswith("*") else ""
    first, *middle, last = re.split(r"\*+", word)
    # What stands between two stars is taken where it stands first, and never given back: no pattern backtracks.
    taken = "".join(f"(?>.*?{re.escape(part)})" for part in middle)
    inside = f"{re.escape(first)}{taken}(?=.{{{len(last)}}}).*+(?<={re.escape(last)})"
    return re.compile(rf"{no_option}(?!(?:.*/)?\.\.(?:/|\Z)){inside}", re.DOTALL)


def _name(word: str) -> str:
    return word.rpartition("/")[2]
