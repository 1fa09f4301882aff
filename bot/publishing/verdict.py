"""Judge a finished run by rules of the host and not by the model's words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from bot.publishing.checking import Checking, checking

Standing = Literal["counts", "outdated", "superseded", "before"]
_MOST_COMPARED = 200


class Verdict(StrEnum):
    """What is known of a run that was to change something and ended by itself (`StatusView.state` is `done`).

    Every other end has its state alone: failed, stopped, refused, waiting.
    """

    VERIFIED = "verified"
    """A check passed after the last change, and the last run of every check passed."""
    UNVERIFIED = "unverified"
    """Something changed, and no check passed on it as it is now or as far as it is published, or one did not end."""
    RED = "red"
    """The last run of some check failed."""
    UNCHANGED = "unchanged"
    """Nothing changed."""
    SETUP_FAILED = "setup_failed"
    """A `setup` command of the repository failed before the agent started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A command that the agent ran, and whose exit code says whether something is right.

    Attributes:
        command: as it was given to bash.
        exit_code: None when it was stopped before it ended.
        seconds: how long it took.
        ended: when, in seconds since the epoch.
        declared: whether it was run with `check=True`.
        directory: where, when the terminal had gone elsewhere; else empty.
        by_host: whether the host ran it once more after the agent had ended.
        standing: what it says of the result: `counts`; `outdated`, as files were changed later; `superseded` by a later
            run; `before` anything was changed, as where a failure is reproduced.
    """

    command: str
    exit_code: int | None
    seconds: float
    ended: float = 0.0
    declared: bool = True
    directory: str = ""
    by_host: bool = False
    standing: Standing = "counts"

    @property
    def passed(self) -> bool:
        """Whether it ended and succeeded."""
        return self.exit_code == 0

    @property
    def failed(self) -> bool:
        """Whether it ended and did not succeed."""
        return self.exit_code not in {None, 0}

    @property
    def ad_hoc(self) -> bool:
        """Whether it is no program that is known to test, build or lint, but e.g. a script that the agent wrote."""
        read = checking(self.command, declared=self.declared)
        return read is None or not read.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """When files were changed, in seconds since the epoch.

    Attributes:
        first: the first change that is known.
        last: the last one.
    """

    first: float
    last: float

    @classmethod
    def joined(cls, *edits: Edits | None) -> Edits | None:
        """All of them together."""
        some = [each for each in edits if each is not None]
        if not some:
            return None
        return cls(first=min(each.first for each in some), last=max(each.last for each in some))


def judged(checks: Sequence[Check], edits: Edits | None) -> tuple[Check, ...]:
    """The checks, each with what it says of the result.

    Args:
        checks: in the order in which they ended.
        edits: when files were changed; None where none was.
    """
    later: set[Checking] = set()
    told: list[Check] = []
    for check in reversed(checks):
        mine = checking(check.command, declared=check.declared)
        # Nobody looks through hundreds of checks; each is compared with so many others at most.
        narrower = len(later) <= _MOST_COMPARED
        standing: Standing = "counts"
        if mine is not None and (mine in later or (narrower and any(each.covers(mine) for each in later))):
            standing = "superseded"
        elif edits is not None and check.ended < edits.first:
            standing = "before"
        elif edits is not None and check.ended < edits.last:
            standing = "outdated"
        told.append(replace(check, standing=standing))
        if mine is not None:
            later.add(mine)
    return tuple(reversed(told))


def failing(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks whose last run failed, of those that `judged` gave.

    What the agent tried by a script of its own before it changed something else says nothing any more.
    """
    return tuple(
        each
        for each in checks
        if each.failed and (each.standing == "counts" or (each.standing == "outdated" and not each.ad_hoc))
    )


def verdict_of(checks: Sequence[Check], *, changed: bool, setup_failed: bool = False, partial: bool = False) -> Verdict:
    """What a run came to.

    Args:
        checks: what `judged` gave.
        changed: whether there is a change; of a run that is only to test, True.
        setup_failed: whether a `setup` command of the repository failed.
        partial: whether the checks ran with files in place that are left out of the change.
    """
    counted = [each for each in checks if each.standing == "counts"]
    if setup_failed:
        return Verdict.SETUP_FAILED
    if not changed:
        return Verdict.UNCHANGED
    if failing(checks):
        return Verdict.RED
    ended = all(each.exit_code is not None for each in counted)
    passed = ended and any(each.passed for each in counted)
    return Verdict.VERIFIED if passed and not partial else Verdict.UNVERIFIED
