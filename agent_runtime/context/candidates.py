"""Find the parts of a conversation that could be shortened. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent_runtime.context.estimate import estimate
from agent_runtime.context.planner import Candidate
from agent_runtime.context.results import Results
from agent_runtime.context.transcript import Transcript
from agent_runtime.prompts import notes

_NOTE_TOKENS = 50
"""What stands in place of results; see `notes.left_out`."""
_AGAIN = 0.5
"""Every other result that is far behind is taken to be needed again: better a cost too high than a step too many."""


def candidates(transcript: Transcript, results: Results, *, before: int) -> list[Candidate]:
    """Archived tasks, results that were shown again later, and results that are far behind.

    Args:
        transcript: the conversation, up to date with the log.
        results: the same.
        before: tokens that stand before the whole conversation: the system prompt's.
    """
    pending = transcript.pending
    found = [*_tasks(transcript, pending, before)] if pending else []
    for positions, again in ((results.superseded(), 0.0), (results.far_behind(), _AGAIN)):
        found += [
            Candidate(
                before=before + transcript.tokens_before(index),
                saves=entry.tokens - _NOTE_TOKENS,
                again=again,
                output=position,
            )
            for position in positions
            if (index := transcript.index(position)) is not None
            and (entry := transcript.entries[index]).task not in pending
        ]
    return found


def _tasks(transcript: Transcript, pending: dict[int, str], before: int) -> Iterator[Candidate]:
    first: dict[int, int] = {}
    tokens: dict[int, int] = {}
    for index, entry in enumerate(transcript.entries):
        if entry.task in pending:
            first.setdefault(entry.task, index)
            tokens[entry.task] = tokens.get(entry.task, 0) + entry.tokens
    for task, index in first.items():
        summary = estimate(notes.archived_task(task, pending[task]))
        yield Candidate(before=before + transcript.tokens_before(index), saves=tokens[task] - summary, task=task)
