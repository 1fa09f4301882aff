"""Parse large files in a worker process: parsers hold the interpreter, and some are slow on hostile files."""

from __future__ import annotations

from agent_runtime.core.errors import BoundExceededError
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.workspace import grammars, incremental, syntax

_NEAR = 32_000  # characters; parsing so many takes 40 ms
_SECONDS = 5.0


def outline(path: str, source: str, after_line: int) -> list[str]:
    """`syntax.outline`; nothing where it takes too long."""
    if len(source) <= _NEAR or not syntax.is_python(path) or len(source) > syntax.LONGEST:
        return syntax.outline(path, source, after_line)
    try:
        return call_bounded(syntax.outline, path, source, after_line, seconds=_SECONDS)
    except BoundExceededError:  # it is a courtesy
        return []


def parsed(source: str) -> list[int] | str | None:
    """`incremental.parsed`; None where it takes too long."""
    if len(source) <= _NEAR:
        return incremental.parsed(source)
    try:
        return call_bounded(incremental.parsed, source, seconds=_SECONDS)
    except BoundExceededError:  # nothing can be said of it
        return None


def fault_in(path: str, source: str) -> str | None:
    """`grammars.fault_in`; None where it takes too long."""
    if len(source) <= _NEAR or not grammars.has_grammar(path):
        return grammars.fault_in(path, source)
    try:
        return call_bounded(grammars.fault_in, path, source, seconds=_SECONDS)
    except BoundExceededError:  # nothing can be said of it
        return None
