"""Report how a run went by what the host saw: the headline, the reason for it, the checks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.publishing.pieces import denied_line
from bot.publishing.rerun import Rerun
from bot.publishing.text import code, duration, one_line
from bot.publishing.verdict import Check, Standing, Verdict, failing, verdict_of
from bot.publishing.view import DeniedCall

_COMMAND_CHARS = 160
_ROWS = 10

_HEADLINES = {
    Verdict.VERIFIED: ("✅", "Done, checks passed"),
    Verdict.UNVERIFIED: ("⚠️", "Not verified"),
    Verdict.RED: ("❌", "Checks fail"),
    Verdict.UNCHANGED: ("⚪", "Nothing changed"),
    Verdict.SETUP_FAILED: ("⚠️", "Setup failed"),
}
_NOTES: dict[Standing, str] = {
    "counts": "",
    "outdated": "before the last change",
    "superseded": "superseded by a later run",
    "before": "before the first change",
}


_COMMITS = {
    Verdict.VERIFIED: "The agent's checks passed.",
    Verdict.UNVERIFIED: "Not verified: no check is known to pass on this change.",
    Verdict.RED: "The agent's checks fail on this change.",
    Verdict.UNCHANGED: "",
    Verdict.SETUP_FAILED: "Setup failed before the agent started.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the host saw of a run, for those who read its change.

    Attributes:
        verdict: what it came to.
        checks: what `judged` gave.
        setup_failed: the setup command that failed, and how; or empty.
        denied: calls that needed a person where nobody could be asked.
        rerun: for a job that failed checks began: what the command that failed comes to after the change.
        partial: whether the checks ran with files in place that are left out of the change.
    """

    verdict: Verdict = Verdict.UNVERIFIED
    checks: tuple[Check, ...] = ()
    setup_failed: str = ""
    denied: tuple[DeniedCall, ...] = ()
    rerun: Rerun | None = None
    partial: bool = False

    @property
    def markdown(self) -> str:
        """The headline, the reason for it, the checks and what was denied, for the description of a pull request."""
        sign, words = headline(self.verdict, self.checks)
        why = reason(self.verdict, self.checks, changed=True, setup_failed=self.setup_failed, partial=self.partial)
        denied = "\n".join(f"- {denied_line(each)}" for each in self.denied[:_ROWS])
        parts = (
            f"**{sign} {words}.** {why}".rstrip(),
            "\n".join(table(self.checks)),
            f"**Denied, because nobody can approve calls in this run**\n\n{denied}" if denied else "",
        )
        return "\n\n".join(filter(None, parts))

    @property
    def sentence(self) -> str:
        """The same for a commit's message, which holds no word of a model."""
        return _COMMITS[self.verdict]


def headline(verdict: Verdict, checks: Sequence[Check]) -> tuple[str, str]:
    """A sign, and a few words."""
    sign, words = _HEADLINES[verdict]
    if verdict is Verdict.VERIFIED and _only_ad_hoc(checks):
        return sign, "Done, the failed command passes now" if _rerun(checks) else "Done, an ad-hoc check passed"
    return sign, words


def reason(
    verdict: Verdict, checks: Sequence[Check], *, changed: bool, setup_failed: str = "", partial: bool = False
) -> str:
    """Why the headline says so, in sentences of Markdown; empty where there is nothing to add.

    Args:
        verdict: what the run came to.
        checks: what `judged` gave.
        changed: whether files changed, or nothing was to be changed.
        setup_failed: the setup command that failed, and how.
        partial: whether the checks ran with files in place that are left out of the change.
    """
    match verdict:
        case Verdict.VERIFIED:
            if not _only_ad_hoc(checks):
                return ""
            again = _rerun(checks)
            return (
                f"After the change, the bot ran {_named(again)} again and it passed. {_UNKNOWN}" if again else _AD_HOC
            )
        case Verdict.UNVERIFIED:
            whole = verdict_of(checks, changed=changed)
            return _PARTIAL if partial and whole is Verdict.VERIFIED else _unverified(checks)
        case Verdict.RED:
            failed = failing(checks)
            said = f"{_named(failed[-1])} ended with exit code {failed[-1].exit_code}"
            if failed[-1].standing == "outdated":
                said += " and was not run again after the last change"
            if others := len(failed) - 1:
                said += f"; {others} other {'check' if others == 1 else 'checks'} failed, too"
            return f"{said}."
        case Verdict.UNCHANGED:
            return "The agent changed no files."
        case Verdict.SETUP_FAILED:
            before = f"Before the agent started, {setup_failed}. Dependencies installed by setup may be missing."
            rest = verdict_of(checks, changed=changed, partial=partial)
            after = {Verdict.VERIFIED: "The agent's own checks passed.", Verdict.UNCHANGED: ""}
            said = after.get(rest, "") or reason(rest, checks, changed=changed, partial=partial)
            return " ".join(filter(None, [before, said]))


_AD_HOC = "Only an ad-hoc check passed: no known test, build or lint command ran after the last change."
_UNKNOWN = "It is not a known test, build or lint command."
_PARTIAL = "No check ran on the published change, without the withheld files."


def _unverified(checks: Sequence[Check]) -> str:
    hanging = [each for each in checks if each.standing == "counts" and each.exit_code is None]
    if hanging:
        return f"{_named(hanging[-1])} did not finish."
    if any(each.standing == "outdated" for each in checks):
        return "Files changed after the last check, and no check ran on the result."
    if checks:
        return "No check ran after the change."
    return "No known test, build or lint command ran."


def table(checks: Sequence[Check]) -> list[str]:
    """The checks as the lines of a Markdown table, those that count before others where there is no room for all."""
    if not checks:
        return []
    by_weight = sorted(range(len(checks)), key=lambda n: (checks[n].standing in {"superseded", "before"}, -n))
    rows: list[str] = []
    for check in (checks[number] for number in sorted(by_weight[:_ROWS])):
        hangs = check.exit_code is None
        ended = "passed" if check.passed else "did not end" if hangs else f"exit code {check.exit_code}"
        notes = [
            _NOTES[check.standing],
            "run by the bot" if check.by_host else "",
            "ad hoc" if check.ad_hoc and check.standing != "superseded" else "",
        ]
        result = ", ".join(filter(None, [ended, *notes]))
        # A table's parser takes every bar without a backslash before it for the end of a cell, in code as well.
        cell = _named(check).replace("|", "\\|")
        sign = "✅" if check.passed else "⏱️" if hangs else "❌"
        if check.standing in {"superseded", "before"} or (check.standing == "outdated" and not failing([check])):
            sign = "▫️"
        rows.append(f"| {sign} | {cell} | {result} | {duration(check.seconds)} |")
    if more := len(checks) - len(rows):
        rows.append(f"| | {more} more, older or superseded | | |")
    return ["| | Check | Result | Time |", "|---|---|---|---|", *rows]


def _named(check: Check) -> str:
    return code(one_line(check.command, _COMMAND_CHARS))


def _rerun(checks: Sequence[Check]) -> Check | None:
    """The check that failed before the change and passed when the bot itself ran it again."""
    return next((each for each in checks if each.by_host and each.standing == "counts" and each.passed), None)


def _only_ad_hoc(checks: Sequence[Check]) -> bool:
    return all(each.ad_hoc for each in checks if each.standing == "counts" and each.passed)
