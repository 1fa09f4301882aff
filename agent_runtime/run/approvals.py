"""Approvals and answers of people: the gate puts a request to handlers, and suspends the step if none answers."""

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
from agent_runtime.core.events import PermissionAsked, QuestionAsked
from agent_runtime.core.values import PendingCall, PendingKind, Plain
from agent_runtime.processes.spawn import run_in_daemon_thread
from agent_runtime.run.hooks import EventType, Handler, NoAnswer
from agent_runtime.run.state import RunState
from agent_runtime.tools.tool import is_cancelled

_QUESTION_CHARS = 4_000

_SHORTER = {
    "execute": "Put it in a script with write_file, and execute that.",
    "send_input": "Put it in a file with write_file, or send it in several calls.",
    "write_file": "Write it in several calls of a few hundred lines each.",
}


class Gate:
    """Puts requests to the handlers of a runtime; one that nobody answers suspends the step.

    Attributes:
        waiting: the request that suspended the step.
    """

    def __init__(
        self, state: RunState, *, console: Callable[[str], str | None] | None = None, asks_for: str = ""
    ) -> None:
        """Ask the handlers of a run.

        Args:
            state: whose handlers are asked, and whose clock stands still meanwhile: people take their time.
            console: asked a question that no handler answers.
            asks_for: what people are told before the reason of each request; for a child run, whose it is.
        """
        self.waiting: PendingCall | None = None
        self._state = state
        self._hooks = state.hooks
        self._console = console
        self._asks_for = asks_for
        self._given: tuple[PendingCall, Answer] | None = None

    def give(self, answer: Answer, pending: PendingCall) -> None:
        """The answer to the request at which a resumed run stands; the very same request takes it instead of asking."""
        self._given = (pending, answer)

    def denial(self, tool: str) -> ToolError | None:
        """The error for a call that a person has denied already, whatever the policy says of it by now."""
        given = self._given
        if given is None or given[0].kind != "permission" or given[0].tool != tool or given[1].approved:
            return None
        return _denied(tool, given[1])

    async def permit(self, *, tool: str, args: dict[str, Plain], reason: str, description: str, preview: str) -> None:
        """Let a call through that somebody approves.

        One that is too long to be shown, which an empty `preview` says, waits for nobody: only a handler that decides
        by the arguments can approve it.

        Raises:
            ToolError: it was denied, or is too long.
            Suspend: nobody answered.
        """
        if self._given is not None:
            shown = self._given[0]
            if shown.kind == "question" and shown.tool == tool:
                return  # it was let through before it came to ask
            if shown.tool == tool and _text(shown.args) == _text(args):
                if shown.preview == preview:
                    return
                reason = f"what the call would do is no longer what was approved ({reason})"
        pending = _pending("permission", tool, args, f"{self._asks_for}{reason}", preview)
        self._state.emit(PermissionAsked(pending=pending))
        answer = await self._permission(pending, description)
        if answer is None and not preview:
            raise ToolError(
                f"{tool} was not made: it is too long to approve. People approve only what they were shown whole. "
                f"{_SHORTER.get(tool, 'Make it shorter.')}",
                kind="PermissionError",
            )
        if answer is None:
            self._suspend(pending)
        if not answer.approved:
            raise _denied(tool, answer)

    async def question(self, question: str) -> str:
        """The user's answer to a question of the agent.

        Raises:
            ToolError: the user declined to answer.
            Suspend: nobody answered.
        """
        asked = f"{self._asks_for}{question}"
        if self._given is not None and (self._given[0].kind, self._given[0].reason) == ("question", asked):
            answer = self._given[1]
        else:
            pending = _pending("question", "ask_user", {"question": question}, asked, asked[:_QUESTION_CHARS])
            self._state.emit(QuestionAsked(pending=pending))
            said = await self._answer(pending)
            if said is None:
                self._suspend(pending)
            answer = said
        if not answer.approved:
            raise ToolError(f"the user gave no answer{_said(answer)}. Go on with what you know.")
        return answer.note

    def forget(self) -> None:
        """The call that an answer was given for has been decided, or its run is over; no other may profit from it."""
        self._given = None

    def _suspend(self, pending: PendingCall) -> Never:
        if not self._state.may_store(pending):  # people see a request as it is, and it is stored until they answer
            raise ToolError(
                f"{pending.tool} cannot wait for an answer: it holds a secret, which is never stored. Leave it out.",
                kind="PermissionError",
            )
        self.waiting = pending
        raise Suspend

    async def _permission(self, pending: PendingCall, description: str) -> Answer | None:
        """Any denial denies, a text says why; an approval needs one handler; one that fails has said nothing."""
        kind = EventType.PERMISSION_REQUEST
        handlers = self._hooks.handlers(kind) if pending.preview else self._hooks.by_arguments()
        shown = {"description": description, "preview": pending.preview}
        answers = await self._ask(kind, handlers, tool=pending.tool, **shown, pending=pending)
        said = [answer for answer in answers if answer is not None]
        if not said:
            return None
        why = next((answer for answer in said if isinstance(answer, str)), "")
        return Answer(approved=all(answer is True for answer in said), note=why)

    async def _answer(self, pending: PendingCall) -> Answer | None:
        """The last answer that was given; that there is none to come counts where nobody gave one."""
        kind = EventType.ASK_USER
        answers = await self._ask(kind, self._hooks.handlers(kind), question=pending.reason, pending=pending)
        said = [answer for answer in answers if answer is not None]
        if given := [answer for answer in said if not isinstance(answer, NoAnswer)]:
            return Answer(approved=True, note=str(given[-1]))
        if declined := [answer for answer in said if isinstance(answer, NoAnswer)]:
            return Answer(approved=False, note=declined[-1].why)
        if self._console is None:
            return None
        with self._state.clock.stopped():
            typed = await run_in_daemon_thread(partial(self._console, pending.reason))
        return None if typed is None else Answer(approved=True, note=typed)

    async def _ask(self, kind: EventType, handlers: Iterable[Handler], **arguments: object) -> list[object]:
        """Every handler's answer. A sync one runs in a thread, so that waiting for a person holds up nobody."""
        answers: list[object] = []
        with self._state.clock.stopped():
            for handler in handlers:
                try:
                    if inspect.iscoroutinefunction(handler):
                        answer = await handler(**arguments)
                    else:
                        answer = await run_in_daemon_thread(partial(handler, **arguments))
                    # A lambda or an object around an async function cannot be told from a sync one beforehand.
                    answers.append(await answer if inspect.isawaitable(answer) else answer)
                except (Exception, SystemExit, asyncio.CancelledError) as error:
                    # Whatever a stranger's handler does, the run goes on; unless it is the run that is to end.
                    if is_cancelled(error):
                        raise
                    self._hooks.failed(handler, kind, error)
        return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person said to a request.

    Attributes:
        approved: whether the call may be made; for a question, whether there is an answer.
        note: the answer, or a word about a denial.
    """

    approved: bool
    note: str = ""


def answer_to(pending: PendingCall | None, *, approve: bool | None, note: str, request_id: str | None) -> Answer | None:
    """What a person said to the request that waits; None where nothing waits, and nothing was said.

    Raises:
        ResumeError: they answered another request, or did not say what this one asks.
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


def _denied(tool: str, answer: Answer) -> ToolError:
    return ToolError(
        f"{tool} was not approved{_said(answer)}. Find another way, or finish without it.", kind="PermissionError"
    )


def _text(args: dict[str, Plain]) -> str:
    """For comparing: what went through a session's log has lists where there were tuples."""
    return json.dumps(args, sort_keys=True)


def _said(answer: Answer) -> str:
    return f": {answer.note.rstrip('. ')}" if answer.note else ""


def _pending(kind: PendingKind, tool: str, args: dict[str, Plain], reason: str, preview: str) -> PendingCall:
    return PendingCall(
        request_id=secrets.token_hex(4), kind=kind, tool=tool, args=args, reason=reason, preview=preview, workspace=""
    )
