"""Approvals and answers: the gate asks handlers, and suspends the step if none answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Never

from agent_runtime.core.errors import ResumeCode, ResumeError, Suspend, ToolError
from agent_runtime.core.events import EventType, PermissionAsked, QuestionAsked
from agent_runtime.core.values import PendingCall, PendingKind, Plain
from agent_runtime.processes.spawn import run_in_daemon_thread
from agent_runtime.run.hooks import Handler, NoAnswer
from agent_runtime.run.state import RunState
from agent_runtime.tools.tool import is_cancelled

_QUESTION_CHARS = 4_000

_SHORTER = {
    "execute": "Put it in a script with write_file, and execute that.",
    "send_input": "Put it in a file with write_file, or send it in several calls.",
    "write_file": "Write it in several calls of a few hundred lines each.",
}


class Gate:
    """Requests to a runtime's handlers. An unanswered one suspends the step and is in `waiting`."""

    def __init__(
        self, state: RunState, *, console: Callable[[str], str | None] | None = None, request_prefix: str = ""
    ) -> None:
        """Create the gate of a run.

        `console` asks questions that no handler answers; `request_prefix` is for child runs.
        """
        self.waiting: PendingCall | None = None
        self._state = state
        self._hooks = state.hooks
        self._console = console
        self._prefix = request_prefix
        self._stored: tuple[PendingCall, Answer] | None = None

    def set_answer(self, answer: Answer, pending: PendingCall) -> None:
        """Set the answer to the request of a resumed run; only the same request uses it."""
        self._stored = (pending, answer)

    def denial(self, tool: str) -> ToolError | None:
        """Return the error of a call that a person has already denied."""
        stored = self._stored
        if stored is None or stored[0].kind != "permission" or stored[0].tool != tool or stored[1].approved:
            return None
        return _denial(tool, stored[1])

    async def permit(self, *, tool: str, args: dict[str, Plain], reason: str, description: str, preview: str) -> None:
        """Ask for approval of a call.

        With an empty `preview`, the call is too long to show: only a handler that decides by arguments can approve it.

        Raises:
            ToolError: the call is denied, or too long.
            Suspend: no handler answered.
        """
        if self._stored is not None:
            stored = self._stored[0]
            if stored.kind == "question" and stored.tool == tool:
                return  # it was approved before it asked
            if stored.tool == tool and _canonical(stored.args) == _canonical(args):
                if stored.preview == preview:
                    return
                reason = f"The call would now do something else than was approved ({reason})"
        pending = _create_request("permission", tool, args, f"{self._prefix}{reason}", preview)
        self._state.emit(PermissionAsked(pending=pending))
        kind = EventType.PERMISSION_REQUEST
        handlers = self._hooks.handlers(kind) if pending.preview else self._hooks.argument_handlers()
        answers, failed = await self._ask(
            kind, handlers, tool=tool, description=description, preview=preview, pending=pending
        )
        if failed and all(answer is True for answer in answers):
            answers = []  # the failed handler might have denied
        if not answers and not preview:
            raise ToolError(
                f"{tool} was not made: it is too long to approve. People approve only what they were shown whole. "
                f"{_SHORTER.get(tool, 'Make it shorter.')}",
                kind="PermissionError",
            )
        if not answers:
            self._suspend(pending)
        if any(answer is not True for answer in answers):  # any denial denies
            note = next((answer for answer in answers if isinstance(answer, str)), "")
            raise _denial(tool, Answer(approved=False, note=note))

    async def ask_question(self, question: str) -> str:
        text, answer = f"{self._prefix}{question}", None
        if self._stored is not None and (self._stored[0].kind, self._stored[0].reason) == ("question", text):
            answer = self._stored[1]
        else:
            kind = EventType.ASK_USER
            pending = _create_request("question", "ask_user", {"question": question}, text, text[:_QUESTION_CHARS])
            self._state.emit(QuestionAsked(pending=pending))
            answers, _ = await self._ask(kind, self._hooks.handlers(kind), question=text, pending=pending)
            if texts := [item for item in answers if not isinstance(item, NoAnswer)]:
                return str(texts[-1])
            if declined := [item for item in answers if isinstance(item, NoAnswer)]:
                answer = Answer(approved=False, note=declined[-1].why)
            elif self._console is not None:
                with self._state.clock.pause():
                    typed = await run_in_daemon_thread(partial(self._console, text))
                answer = None if typed is None else Answer(approved=True, note=typed)
            if answer is None:
                self._suspend(pending)
        if not answer.approved:
            raise ToolError(f"the user gave no answer{_suffix(answer)}. Go on with what you know.")
        return answer.note

    async def find_objection(self, completion: str) -> str:
        """Return the handlers' objection to a completion; empty for none."""
        kind = EventType.COMPLETION
        objections, _ = await self._ask(kind, self._hooks.handlers(kind), completion=completion)
        return "\n".join(map(str, objections))

    def discard_answer(self) -> None:
        """Discard the answer after its call: no other call may use it."""
        self._stored = None

    def _suspend(self, pending: PendingCall) -> Never:
        if not self._state.may_store(pending):  # requests are stored and shown unchanged
            raise ToolError(
                f"{pending.tool} cannot wait for an answer: it holds a secret, which is never stored. Leave it out.",
                kind="PermissionError",
            )
        self.waiting = pending
        raise Suspend

    async def _ask(
        self, kind: EventType, handlers: Iterable[Handler], **arguments: object
    ) -> tuple[list[object], bool]:
        """Collect answers other than None, and whether a handler failed. Sync ones run in threads."""
        answers, failed = list[object](), False
        with self._state.clock.pause():
            for handler in handlers:
                try:
                    if inspect.iscoroutinefunction(handler):
                        answer = await handler(**arguments)
                    else:
                        answer = await run_in_daemon_thread(partial(handler, **arguments))
                    # A lambda or an object around an async function cannot be recognised as async beforehand.
                    answer = await answer if inspect.isawaitable(answer) else answer
                except (Exception, SystemExit, asyncio.CancelledError) as error:
                    # A handler's error does not end the run; a cancellation of the run does.
                    if is_cancelled(error):
                        raise
                    self._hooks.report_failure(handler, kind, error)
                    failed = True
                else:
                    answers += [] if answer is None else [answer]
        return answers, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    approved: bool
    """For a question, whether there is an answer."""
    note: str = ""
    """The answer, or a reason for a denial."""


def parse_answer(
    pending: PendingCall | None, *, approve: bool | None, note: str, request_id: str | None
) -> Answer | None:
    """Create the answer to the pending request.

    Raises:
        ResumeError: it answers another request, or is incomplete.
    """
    if request_id is not None and (pending is None or pending.request_id != request_id):
        now = f"the run waits for {pending.request_id}" if pending else "nothing waits for an answer"
        raise ResumeError(ResumeCode.OTHER_REQUEST, request=request_id, now=now)
    if pending is None:
        return None
    if approve is None and pending.kind == "permission":
        raise ResumeError(ResumeCode.NO_DECISION, request=pending.request_id)
    if approve is None and not note:
        raise ResumeError(ResumeCode.NO_ANSWER, request=pending.request_id)
    return Answer(approved=approve is None or approve, note=note)


def _denial(tool: str, answer: Answer) -> ToolError:
    return ToolError(
        f"{tool} was not approved{_suffix(answer)}. Find another way, or finish without it.", kind="PermissionError"
    )


def _canonical(args: dict[str, Plain]) -> str:
    """Serialise for comparison: a session's log turns tuples into lists."""
    return json.dumps(args, sort_keys=True)


def _suffix(answer: Answer) -> str:
    return f": {answer.note.rstrip('. ')}" if answer.note else ""


def _create_request(kind: PendingKind, tool: str, args: dict[str, Plain], reason: str, preview: str) -> PendingCall:
    return PendingCall(
        request_id=secrets.token_hex(4), kind=kind, tool=tool, args=args, reason=reason, preview=preview, workspace=""
    )
