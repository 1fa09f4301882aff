"""One reply with native tool calls: its calls, made in order, each with an answer of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from agent_runtime.core.calls import CallTool, Plain, ToolAnswer, ToolRequest
from agent_runtime.core.errors import FormatError, Interrupt, LimitError, Suspend, ToolError
from agent_runtime.interpreter import Interpreter, InterpreterState, Suspended
from agent_runtime.providers.taped_values import unpacked_answer
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.schema import call_arguments, read_arguments
from agent_runtime.transports.native.guide import ENDED, FINISH, FORGOTTEN, NO_OUTPUT, NOT_MADE, OWN_TOOLS, SCRIPT
from agent_runtime.transports.protocol import StepOutput, StepSuspended

TRANSPORT = "tools"
_OWN_CALL = re.compile(rf"\b(?:{FINISH}|{SCRIPT})\(")
"""A call of one of the transport's own tools in the code of a script."""


class _Counted:
    """Answers the calls of a step, direct ones and those of its scripts, up to a number."""

    def __init__(self, call: CallTool, most: int, made: int = 0) -> None:
        self.made, self.is_over = made, False
        self._call, self._most = call, most

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        if self.made >= self._most:
            self.is_over = True
            raise LimitError(f"The reply made more than {self._most} calls and was stopped.")
        self.made += 1
        try:
            return await self._call(tool, args, kwargs, shown=shown)
        except Suspend:  # it counts when it is put again
            self.made -= 1
            raise


@dataclass(slots=True, kw_only=True)
class NativeStep:
    """The calls of one reply.

    Attributes:
        prose: the reply's text.
        requests: its calls.
        tools: what can be called.
        interpreter: runs scripts.
        max_calls: how many calls may be made, those of scripts included.
        given: the answers so far.
        scripted: whether the run had a script before.
    """

    prose: str
    requests: tuple[ToolRequest, ...]
    tools: Registry
    interpreter: Interpreter
    max_calls: int
    given: list[ToolAnswer] = field(default_factory=list)
    scripted: bool = False

    @property
    def acts(self) -> bool:
        """Whether it asks for more than to finish."""
        return any(
            not self._is_own(each, FINISH) or isinstance(self._summary(each), ToolError) for each in self.requests
        )

    @property
    def contents(self) -> tuple[str, ...]:
        """Its calls, as the model wrote them."""
        return tuple(f"{each.name}({each.arguments})" for each in self.requests)

    @property
    def completion(self) -> str | None:
        """The summary of the last call of `finish` that has one."""
        found = [self._summary(each) for each in self.requests if self._is_own(each, FINISH)]
        return next((each for each in reversed(found) if isinstance(each, str)), None)

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        """The answers to its calls so far; one that only finishes needs no work for its own."""
        if self.acts:
            return tuple(self.given)
        return tuple(self._ended(each) for each in self.requests)

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Make its calls; see `ReplyStep.run`.

        Raises:
            Interrupt: a call failed, and its answer says so; the text is empty.
            StepSuspended: a call waits for a person.
        """
        await self._go_on(_Counted(call, self.max_calls), output, None)

    async def resume(
        self,
        state: Mapping[str, Any],  # noqa: ARG002 - the interface of all steps
        calls: Mapping[str, Any],
        call: CallTool,
        output: StepOutput,
    ) -> None:
        """Go on at the call that waited; see `ReplyStep.resume`."""
        self.given = [unpacked_answer(each) for each in calls["answers"]]
        scripted = self.scripted or any(self._is_own(each, SCRIPT) for each in self.requests[: len(self.given)])
        if scripted and calls["script"] is None:
            output.printed(FORGOTTEN)
        await self._go_on(_Counted(call, self.max_calls, calls["made"]), output, calls["script"])

    def end(self, *, ok: bool) -> str:  # noqa: ARG002 - the interface of all steps
        """Nothing is left to tell: each call has its answer."""
        return ""

    async def _go_on(self, call: _Counted, output: StepOutput, script: Mapping[str, Plain] | None) -> None:
        """Make the calls that have no answer yet; the first of them is a `script` that waited, if there is one."""
        for request in self.requests[len(self.given) :]:
            if call.is_over:
                self.given.append(ToolAnswer(id=request.id, text=NOT_MADE, ok=False))
                continue
            waiting, script = script, None
            failure = ""
            try:
                await self._made(request, call, output, waiting)
            except (ToolError, Interrupt) as error:
                failure = str(error)
                if isinstance(error, FormatError) and _OWN_CALL.search(request.arguments):
                    failure = f"{failure}\n{OWN_TOOLS}"
            except Suspend:
                raise StepSuspended(self._standing(call, None)) from None
            except Suspended as stop:
                raise StepSuspended(self._standing(call, stop.state.to_plain())) from None
            if failure:
                output.result(failure, call=request.name)
            told = output.take()
            self.given.append(
                ToolAnswer(id=request.id, text=told.text or NO_OUTPUT, ok=not failure, images=told.images)
            )
        if not all(each.ok for each in self.given):
            raise Interrupt

    async def _made(
        self, request: ToolRequest, call: _Counted, output: StepOutput, waiting: Mapping[str, Plain] | None
    ) -> None:
        """Make one call; what it shows goes to `output`.

        Raises:
            ToolError: it was refused or failed.
            Interrupt: its script failed.
            Suspend: it waits for a person; or `Suspended`, one in its script.
        """
        if self._is_own(request, FINISH):
            answer = self._ended(request)
            if not answer.ok:
                raise ToolError(answer.text)
            output.printed(answer.text)
        elif self._is_own(request, SCRIPT):
            if waiting is not None:
                await self.interpreter.resume(InterpreterState.from_plain(waiting), call=call, show=output.printed)
            else:
                await self.interpreter.run(_text_of(request, "code"), call=call, show=output.printed)
        elif request.name not in self.tools:
            # The service has all names: a provider in front of it may have renamed them, and hidden our own.
            close = get_close_matches(request.name[:100], self.tools.names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ToolError(f"there is no tool {request.name[:100]!r}.{hint}")
        else:
            values = read_arguments(request.name, request.arguments)
            args, kwargs = call_arguments(self.tools.get(request.name), values)
            await call(request.name, args, kwargs, shown=True)

    def _standing(self, call: _Counted, script: dict[str, Plain] | None) -> dict[str, Plain]:
        answers: list[Plain] = [asdict(each) for each in self.given]
        return {"transport": TRANSPORT, "answers": answers, "made": call.made, "script": script}

    def _is_own(self, request: ToolRequest, name: str) -> bool:
        """Whether a call is of one of the transport's own tools; a registered tool of that name goes before it."""
        return request.name == name and name not in self.tools

    def _ended(self, request: ToolRequest) -> ToolAnswer:
        """The answer to a call of `finish`."""
        summary = self._summary(request)
        if isinstance(summary, ToolError):
            return ToolAnswer(id=request.id, text=str(summary), ok=False)
        return ToolAnswer(id=request.id, text=ENDED)

    def _summary(self, request: ToolRequest) -> str | ToolError:
        try:
            return _text_of(request, "summary")
        except ToolError as error:
            return error


def _text_of(request: ToolRequest, name: str) -> str:
    """The one argument of a call of one of the transport's own tools.

    Raises:
        ToolError: it has another one, or none.
    """
    values = read_arguments(request.name, request.arguments)
    value = values.pop(name, None)
    if not isinstance(value, str) or values:
        raise ToolError(f'{request.name}: takes {{"{name}": "text"}} and nothing else', kind="TypeError")
    return value
