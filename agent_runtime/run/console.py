"""The default handlers of a runtime: print to standard output, ask on the terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable

from agent_runtime.core.outcome import PendingCall
from agent_runtime.run.hooks import EventType, HookSystem

_RESULT_CHARS = 200


def install(hooks: HookSystem) -> Callable[[str], str | None] | None:
    """Register defaults that give way, kind by kind, to the first handler of the caller's own.

    Lines that are piped into the program answer questions. They approve nothing: their author saw no call.

    Returns:
        What asks a question that no handler answers; None when nobody can be asked.
    """
    for kind, handler in (
        (EventType.STREAM, _stream),
        (EventType.TOOL_CALL, _tool_call),
        (EventType.TOOL_RESULT, _tool_result),
        (EventType.ASK_USER, _question),
        (EventType.SECURITY_ERROR, _error),
        (EventType.RUNTIME_ERROR, _error),
        (EventType.COMPLETION_WITHDRAWN, _withdrawn),
        (EventType.MAX_STEPS, _max_steps),
        (EventType.PAUSED, _paused),
        (EventType.END, _end),
    ):
        hooks.register(kind, handler, default=True)
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        hooks.register(EventType.PERMISSION_REQUEST, _permission, default=True)
        return _input
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin is not None else 0
    except (OSError, ValueError):  # closed, or no file
        return None
    return _input if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def _stream(text: str, **_: object) -> None:
    _say(text, end="")


def _tool_call(tool: str, label: str = "", **_: object) -> None:
    _say(f"\n[{tool}] {label or tool}")


def _tool_result(result: str, **_: object) -> None:
    _say(result if len(result) <= _RESULT_CHARS else f"{result[:_RESULT_CHARS]}…")


def _question(question: str, **_: object) -> None:
    _say(f"\n{question}")


def _error(error: str, **_: object) -> None:
    _say(f"\n{error}")


def _max_steps(**_: object) -> None:
    _say("\nThe step limit was reached.")


def _withdrawn(**_: object) -> None:
    _say("\nThat step failed, so its completion does not count.")


def _paused(pending: PendingCall, **_: object) -> None:
    what = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
    _say(f"\nWaiting for {what} (request {pending.request_id}):\n{pending.preview}")


def _end(**_: object) -> None:
    _say("")


def _permission(tool: str, preview: str, pending: PendingCall, **_: object) -> bool:
    _say(f"\n{tool} asks for permission: {pending.reason}\n{preview}")
    return (_input("Allow? [y/N] ") or "").strip().lower() in {"y", "yes"}


def _input(prompt: str) -> str | None:
    """A line from the terminal; None when it was closed."""
    try:
        return input(f"{prompt.rstrip()} " if prompt.endswith("] ") else "> ")
    except EOFError:
        return None


def _say(text: str, end: str = "\n") -> None:
    """Print a text with its control codes and invisible characters escaped: none may hide or forge what follows it.

    Harmless are line breaks, tabs, the hard space, and the joiner inside an emoji.
    """
    shown = (each if each.isprintable() or each in "\n\t\u00a0\u200d" else repr(each)[1:-1] for each in text)
    sys.stdout.write("".join(shown) + end)
    sys.stdout.flush()
