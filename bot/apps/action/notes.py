"""The annotations of a workflow's step: how it ended, and what is to be said beside lines."""

from __future__ import annotations

from collections.abc import Mapping

from bot.apps.action.commands import MOST_ANNOTATIONS, Level, annotation
from bot.apps.action.conclusion import MEANINGS, Conclusion, exit_code
from bot.apps.action.end import StepEnd
from bot.intake.deliveries import IgnoredDelivery
from bot.publishing.check import NO_FILE, annotations_of
from bot.publishing.inputs import in_inputs
from bot.publishing.proof import reason

_LEVELS: Mapping[str, Level] = {"warning": "warning", "notice": "notice"}
_QUIET = frozenset({Conclusion.VERIFIED, Conclusion.UNCHANGED, Conclusion.DONE})


def notes_on(end: StepEnd) -> list[str]:
    """A line each, at most as many of a level as GitHub shows; the end of the run comes first."""
    view, lines = end.view, list[tuple[Level, str]]()
    most: Level = "error" if exit_code(end.conclusion) else "warning"
    if isinstance(end.ended, IgnoredDelivery):
        said = f"Nothing to do: {in_inputs(end.ended.reason)}"
        lines.append(("notice", annotation("notice", said, title="Codepilot")))
    elif end.conclusion not in _QUIET:
        said = " ".join(filter(None, (view.reason, view.remedy))) if view is not None else ""
        said = in_inputs(said or _verdict(end) or MEANINGS[end.conclusion][1])
        lines.append((most, annotation(most, said, title=f"Codepilot: {end.conclusion.value}")))
    if end.ending is not None and view is not None:
        for each in annotations_of(view, end.ending.review):
            # In a step that is green no error, which would be read as its failure.
            level = most if each.level == "failure" else _LEVELS[each.level]
            file = "" if each.path == NO_FILE else each.path
            line = annotation(
                level, each.message, title=each.title, file=file, line=each.start_line, end_line=each.end_line
            )
            lines.append((level, line))
    levels = [level for level, _ in lines]
    return [line for number, (level, line) in enumerate(lines) if levels[:number].count(level) < MOST_ANNOTATIONS]


def _verdict(end: StepEnd) -> str:
    """Why the run came to what it did, in the words of its comment or of its end."""
    view = end.view
    if view is None or view.verdict is None or view.state != "done":
        return end.ending.reason if end.ending is not None else ""
    return reason(view.verdict, view.checks, changed=bool(view.files or view.checks), setup_failed=view.setup_failed)
