"""The report of `codepilot replay`. Pure."""

from __future__ import annotations

from agent_runtime import Comparison, Outcome, Replayed

_ANOTHER_START = "note: the directory has changed since the recording, so a difference may come from the directory."


def replay_report(found: Replayed) -> str:
    """A replay, told to the person who asked for it."""
    lines = [] if found.same_start else [_ANOTHER_START]
    total = found.requests + found.left
    lines.append(f"{found.requests} of {total} requests were made as recorded.")
    if found.difference is not None:
        lines += ["", found.difference]
    elif found.is_same:
        lines.append("Every run ended as in the recording.")
    else:
        lines += [f"then: {_ends(found.recorded)}", f"now:  {_ends(found.outcomes)}"]
    return "\n".join(lines)


def comparison_report(found: Comparison) -> str:
    """A comparison, told to the person who asked for it."""
    summaries = f"; {found.summaries} for a summary were not" if found.summaries else ""
    head = f"{_count(found.requests, 'request')} compared{summaries}. {_count(len(found.differences), 'difference')}."
    return "\n\n".join([head, *found.differences])


def _ends(outcomes: tuple[Outcome, ...]) -> str:
    return ", ".join(f"{outcome.status} ({outcome})" for outcome in outcomes) or "no run ended"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
