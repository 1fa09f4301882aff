"""The annotations of a workflow's step: how it ended, and what is to be said beside lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bot.apps.action.commands import MOST_ANNOTATIONS, Level, annotation
from bot.apps.action.conclusion import MEANINGS, Conclusion, exit_code
from bot.apps.action.end import StepEnd
from bot.github.drafts import Annotation
from bot.intake.deliveries import IgnoredDelivery
from bot.publishing.check import NO_FILE, annotations_of
from bot.publishing.inputs import in_inputs
from bot.publishing.proof import reason

_LEVELS: Mapping[str, Level] = {"warning": "warning", "notice": "notice"}
_QUIET = frozenset({Conclusion.VERIFIED, Conclusion.UNCHANGED, Conclusion.DONE})


def notes_on(end: StepEnd) -> list[str]:
    """A line each, at most as many of a level as GitHub shows; the end of the run comes first."""
    lines = [*_of_end(end)]
    if end.ending is not None and end.view is not None:
        most: Level = "error" if exit_code(end.conclusion) else "warning"
        lines += (_of(each, most) for each in annotations_of(end.view, end.ending.review))
    return [*_at_most(lines)]


def _of_end(end: StepEnd) -> Iterator[tuple[Level, str]]:
    if isinstance(end.ended, IgnoredDelivery):
        yield "notice", annotation("notice", f"Nothing to do: {in_inputs(end.ended.reason)}", title="Codepilot")
    elif end.conclusion not in _QUIET:
        level: Level = "error" if exit_code(end.conclusion) else "warning"
        said = " ".join(filter(None, (end.view.reason, end.view.remedy))) if end.view is not None else ""
        said = said or _verdict(end) or MEANINGS[end.conclusion][1]
        yield level, annotation(level, in_inputs(said), title=f"Codepilot: {end.conclusion.value}")


def _verdict(end: StepEnd) -> str:
    """Why the run came to what it did, in the words of its comment or of its end."""
    view = end.view
    if view is None or view.verdict is None or view.state != "done":
        return end.ending.reason if end.ending is not None else ""
    return reason(view.verdict, view.checks, changed=bool(view.files or view.checks), setup_failed=view.setup_failed)


def _of(each: Annotation, most: Level) -> tuple[Level, str]:
    """Its line; in a step that is green, no error, which would be read as its failure."""
    level = most if each.level == "failure" else _LEVELS[each.level]
    if each.path == NO_FILE:
        return level, annotation(level, each.message, title=each.title)
    return level, annotation(
        level, each.message, title=each.title, file=each.path, line=each.start_line, end_line=each.end_line
    )


def _at_most(lines: Iterable[tuple[Level, str]]) -> Iterator[str]:
    counts = Counter[str]()
    for level, line in lines:
        counts[level] += 1
        if counts[level] <= MOST_ANNOTATIONS:
            yield line
