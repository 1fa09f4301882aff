"""Find the parts of a conversation that could be shortened. Pure."""

from __future__ import annotations

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
    found: list[Candidate] = []
    first: dict[int, int] = {}
    tokens: dict[int, int] = {}
    for at, entry in enumerate(transcript.entries if pending else ()):
        if entry.task in pending:
            first.setdefault(entry.task, at)
            tokens[entry.task] = tokens.get(entry.task, 0) + entry.tokens
    for task, begins in first.items():
        saves = tokens[task] - estimate(notes.archived_task(task, pending[task]))
        found.append(Candidate(before=before + transcript.tokens_before(begins), saves=saves, task=task))
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
