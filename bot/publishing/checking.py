"""Decide whether a command's exit code proves anything, and which earlier runs it supersedes. Pure.

The words of a command say it, read about as bash does. Nothing is guarded by this: exit codes come out of the sandbox,
where hostile code can forge them (decision 15), and readers of the comment see every command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from bot.publishing.known_checks import (
    AIMLESS,
    FORMATTERS,
    INTERPRETERS,
    LOOKS,
    PREPARE,
    RUNNERS,
    SCRIPTED,
    SELECTORS,
    TARGETED,
    TARGETS,
    TOOLS,
    VERBOSITY,
)

_MOST_CHARS = 10_000
_PUNCTUATION = "();<>|&\n"
_SETS = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
# The content of a here-document, with the lines around it that say where it begins and ends.
_HERE = re.compile(
    r"(?<!<)<<-?[ \t]*['\"\\]?(?P<end>\w+)['\"]?(?P<rest>[^\n]*)\n(?:.*?\n)?\t*(?P=end)(?=\n|\Z)", re.DOTALL
)
_VERSION = re.compile(r"(?<=[a-z])[0-9.]+\Z")
# Where a program that is called by its place is the same as by its name: in a virtual environment, in the system.
_ANY_PLACE = re.compile(r"(?:^|/)(?:bin|\.bin)/[\w.+-]+\Z|/(?:mvnw|gradlew)\Z")
_PIPES = frozenset({"|", "|&"})
_BEFORE = frozenset({"", ";", "(", "&&", *_PIPES})

_Kind = Literal["check", "other", "ad_hoc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """A command line whose exit code says whether something is right.

    Attributes:
        known: whether it runs a program that is known to test, build or lint; else it is any other command, such as a
            script that the agent wrote.
        tool: what is run, without its arguments, in one spelling.
        rest: the arguments, without those that only change what is shown.
    """

    known: bool
    tool: tuple[str, ...]
    rest: tuple[str, ...]

    def covers(self, earlier: Checking) -> bool:
        """Whether its result supersedes that of an earlier run: the same check, or one that selects less narrowly."""
        if self.tool != earlier.tool or self.known != earlier.known:
            return False
        if self.rest == earlier.rest:
            return True
        left = list(earlier.rest)
        for word in self.rest:
            if word not in left:
                return False
            left.remove(word)
        return self.known and all(not word.startswith("-") or word.startswith(SELECTORS) for word in left)


@lru_cache(maxsize=2_000)
def checking(command: str, *, declared: bool) -> Checking | None:
    """What a command line checks; None where its exit code proves nothing.

    Args:
        command: as it was given to bash.
        declared: whether it was run with `check=True`, so that every stage of a pipe had to succeed.
    """
    if len(command) > _MOST_CHARS:
        return _any_other(command) if declared else None
    command = command.strip()
    try:
        # Nothing is known of what runs on unseen.
        parts = [] if command.endswith("&") else list(_simple_commands(command))
    except ValueError:  # a quote that is not closed
        parts = []
    kinds = [_kind(words) for _, words in parts]
    best = "check" if "check" in kinds else "ad_hoc" if "ad_hoc" in kinds else "other"
    if best == "other" or (best == "ad_hoc" and not declared):
        return None
    # The exit code of the whole has to be that of its checks.
    first = next(index for index, kind in enumerate(kinds) if kind != "other")
    after = [joint for joint, _ in parts[first + 1 :]]
    if parts[first][0] not in _BEFORE or any(joint != "&&" and not (joint in _PIPES and declared) for joint in after):
        return None
    if best == "ad_hoc":
        return _any_other(command)
    if kinds.count("check") > 1:
        return Checking(known=True, tool=tuple(word for _, words in parts for word in words), rest=())
    where = [word for _, words in parts if words[0] == "cd" for word in words]
    plain = _plain(parts[kinds.index("check")][1])
    # The program with what says which of its checks is meant, and the other arguments.
    known = TOOLS | FORMATTERS.keys()
    size = next((size for size in (3, 2) if " ".join(plain[:size]) in known), 1)
    if plain[0] in TARGETED | SCRIPTED:
        size = len(plain)
    rest = tuple(word for word in plain[size:] if not VERBOSITY.fullmatch(word))
    return Checking(known=True, tool=(*where, *plain[:size]), rest=rest)


def _any_other(command: str) -> Checking:
    return Checking(known=False, tool=(" ".join(command.split()),), rest=())


def _simple_commands(command: str) -> Iterator[tuple[str, list[str]]]:
    """Each simple command with what joins it to the one before; of a here-document, what it is given to."""
    command = _HERE.sub(r"\g<rest>", command).replace("\\\n", " ")
    reader = shlex.shlex(command, posix=True, punctuation_chars=_PUNCTUATION)
    reader.whitespace, reader.commenters, reader.whitespace_split = " \t\r", "", True
    joint, words, skipping, comment = "", list[str](), False, False
    for token in reader:
        if not token or token.strip(_PUNCTUATION):
            comment = comment or token.startswith("#")
            if not (skipping or comment):
                words.append(token)
            skipping = False
        elif "<<" in token:
            break
        elif set(token) & set("<>"):
            if words and words[-1].isdigit():
                words.pop()
            skipping = True
        elif not comment or "\n" in token:
            if words:
                yield joint, words
            joint, words, comment = token.strip("\n"), [], False
    if words:
        yield joint, words


def _kind(words: Sequence[str]) -> _Kind:
    plain = _plain(words)
    # What only sets variables has no program.
    if not plain or any(word in AIMLESS for word in plain[1:]):
        return "other"
    if _is_tool(plain):
        return "check"
    named = {plain[0], " ".join(plain[:2])}
    if named & (LOOKS | PREPARE | TARGETED | SCRIPTED | FORMATTERS.keys()):
        return "other"
    return "other" if plain[0] in INTERPRETERS and len(plain) == 1 else "ad_hoc"


def _is_tool(plain: Sequence[str]) -> bool:
    beginnings = [" ".join(plain[:size]) for size in (1, 2, 3)]
    if not TOOLS.isdisjoint(beginnings):
        return True
    formatter = next((each for each in beginnings if each in FORMATTERS), None)
    if formatter is not None:
        return any(word.startswith(FORMATTERS[formatter]) for word in plain)
    goals = [word for word in plain[1:] if not word.startswith("-") and not _SETS.fullmatch(word)]
    if plain[0] in SCRIPTED:
        runs = goals[:1] in (["run"], ["run-script"])
        goals = goals[1:2] if runs else [each for each in goals[:1] if each != "ci"]
        return any(map(TARGETS.fullmatch, goals))
    return plain[0] in TARGETED and (not goals or any(map(TARGETS.fullmatch, goals)))


def _plain(words: Sequence[str]) -> list[str]:
    """The words without variables and without what only starts another program; the program by its bare name."""
    left = list(words)
    while left:
        if _SETS.fullmatch(left[0]):
            left.pop(0)
            continue
        if "/" not in left[0] or _ANY_PLACE.search(left[0]):
            name = left[0].rpartition("/")[2]
            left[0] = name if name in TOOLS | PREPARE else _VERSION.sub("", name)
        runner = next((each for each in RUNNERS if left[: len(each)] == list(each) and len(left) > len(each)), None)
        if runner is None:
            break
        left = left[len(runner) :]
        if runner in {("timeout",), ("nice",)}:
            while len(left) > 1 and (left[0].startswith("-") or left[0][:1].isdigit()):
                left.pop(0)
    return left
