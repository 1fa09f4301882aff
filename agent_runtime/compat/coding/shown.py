"""Texts of results in the form that llm-coding-agent documents. Pure but for the worker that compares large files."""

from __future__ import annotations

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.terminals.command import CommandReport
from agent_runtime.workspace.text import Text
from agent_runtime.workspace.unified import unified_text

_LINE_CHARS = 2_000
_READ_CHARS = 50_000
_DIFF_CHARS = 30_000
_LIGHT_CHARS = 256_000
_SECONDS = 10.0
_MEMORY = 200 * 1024**2


def numbered(path: str, text: Text, offset: int, limit: int) -> str:
    """Some lines of a file as `cat -n` shows them, and how many more there are.

    Raises:
        ToolError: there are no such lines.
    """
    if offset < 0 or limit < 1:
        raise ToolError(f"offset={offset}, limit={limit}: offset must be at least 0, limit at least 1")
    if not text.count:
        return "(empty file)"
    if offset >= text.count:
        raise ToolError(f"offset {offset} is beyond the end of {path} ({text.count} lines)", kind="ValueError")
    shown: list[str] = []
    room = _READ_CHARS
    for number, line in enumerate(text.first(offset + limit)[offset:], offset + 1):
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}... [line truncated]"
        room -= len(cut) + 8
        if room < 0:
            break
        shown.append(f"{number:6d}\t{cut}")
    after = offset + len(shown)
    if left := text.count - after:
        why = "output truncated, " if room < 0 else ""
        shown.append(f"... {why}{left} more lines, use offset={after} to continue")
    return "\n".join(shown)


def replaced(path: str, old: Text, new: Text, count: int) -> str:
    """A replacement that was made, with its diff.

    Args:
        path: of the file.
        old: the file before.
        new: the file after.
        count: how often the old string was replaced.
    """
    head = f"Made {count} replacement{'' if count == 1 else 's'} in {path}:\n--- {path} (before)\n+++ {path} (after)"
    if len(old.raw) + len(new.raw) <= _LIGHT_CHARS:
        return f"{head}\n{unified_text(old.lines, new.lines, _DIFF_CHARS)}"
    try:
        what = f"Comparing {path!r}"
        # A worker cannot import this package, which imports much of the runtime.
        given = (old.lines, new.lines, _DIFF_CHARS)
        return f"{head}\n{call_bounded(unified_text, *given, seconds=_SECONDS, memory=_MEMORY, what=what)}"
    except BoundExceededError as error:
        return f"{head}\n(no diff: {error})"


def ended(report: CommandReport, *, timeout: float) -> str:
    """How a command ended: its output, and its exit code in the last line.

    Raises:
        ToolError: it was stopped before it ended; the text has what it wrote.
    """
    if report.status == "completed" or (report.status == "restarted" and report.exit_code is not None):
        notes = [f"({report.note})"] if report.note else []
        if report.log is not None:
            notes.append(f"(output truncated; all of it: {report.log})")
        return "\n".join([report.output.rstrip("\n") or "(no output)", *notes, f"Exit code: {report.exit_code}"])
    why = report.note or f"the command ended as {report.status}"
    if report.status == "running":
        why = f"command timed out after {timeout:g}s"
    elif report.status == "waiting for input":
        why = "the command asks for input on its terminal, and nobody can type it; it was stopped"
    raise ToolError(f"{why}\nPartial output:\n{report.output}" if report.output else why, kind="TimeoutError")
