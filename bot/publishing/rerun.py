"""The command that a failed check is about, run once more by the host after the change: what it proves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.publishing.checking import checking
from bot.publishing.text import code, duration, one_line
from bot.publishing.verdict import Check, Edits

_COMMAND_CHARS = 300
_NOT_FOUND = frozenset({126, 127})
_OTHER = "No step that failed runs this command; see whether it checks the same."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What the host saw before and after a change that is to make failed checks pass.

    Attributes:
        command: what the agent saw fail before it changed anything; empty when it saw nothing fail.
        before: the exit code then.
        after: the exit code when the host ran it once more on the files as they were left; None when it did not end.
        seconds: how long that took.
        other: whether it runs none of the tools of the steps that failed, where these are known.
    """

    command: str = ""
    before: int = 0
    after: int | None = None
    seconds: float = 0.0
    other: bool = False

    @property
    def proven(self) -> bool:
        """Whether it failed before the change and passes after it."""
        return bool(self.command) and self.after == 0

    @property
    def sentence(self) -> str:
        """What it proves, or why nothing was committed, for the comment and the pull request."""
        if not self.command:
            return (
                "The failure was not reproduced: no check failed here before the files were changed, so nothing shows "
                "that this change fixes it."
            )
        shown = code(one_line(self.command, _COMMAND_CHARS))
        before = f"{shown} ended with exit code {self.before} before the change"
        again = "run once more by the bot, in a fresh sandbox"
        if self.proven:
            other = f" {_OTHER}" if self.other else ""
            return f"**Proof:** {before} and with exit code 0 after it, {again}.{other}"
        ended = f"with exit code {self.after} after it"
        if self.after is None:
            ended = f"did not end within {duration(self.seconds)} after it"
        said = f"{before} and {ended}, {again}."
        if self.after in _NOT_FOUND and self.after != self.before:
            said += " What the agent installed outside of the workspace is not there: install it in `setup`."
        return said


def reproduced(checks: Sequence[Check], edits: Edits | None, commands: Sequence[str] = ()) -> Check | None:
    """The check that showed the failure before anything was changed; None when none did.

    Args:
        checks: in the order in which they ended.
        edits: when files were changed; None where none was.
        commands: the `run:` of the workflow's steps that failed. A check by the same tool is the one that is meant;
            where there is none, it is the last one that failed.
    """
    red = [each for each in checks if each.failed and each.exit_code not in _NOT_FOUND and _is_before(each, edits)]
    meant = [each for each in red if not is_other(each, commands)]
    return next(reversed(meant or red), None)


def is_other(check: Check, commands: Sequence[str]) -> bool:
    """Whether a check runs none of the tools of the steps that failed; False where these are not known."""
    wanted = {read.tool for line in _lines(commands) if (read := checking(line, declared=True)) and read.known}
    read = checking(check.command, declared=check.declared)
    return bool(wanted) and (read is None or read.tool not in wanted)


def _is_before(check: Check, edits: Edits | None) -> bool:
    return edits is None or check.ended < edits.first


def _lines(commands: Sequence[str]) -> Iterator[str]:
    for command in commands:
        yield from (line.strip() for line in command.replace("\\\n", " ").splitlines() if line.strip())
