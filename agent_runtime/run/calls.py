"""The tool calls of a run: each is planned, decided by the policy, put to a person if need be, made and recorded.

`Calls` is called by the interpreter and by the transports; `run.loop` tells it when a step begins and ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from functools import partial

from agent_runtime.core.errors import FormatError, Interrupt, Suspend, ToolError
from agent_runtime.core.events import Refused, ToolCalled, ToolProgressed, ToolReturned
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.source import to_plain
from agent_runtime.policy.policy import Denied, NeedsApproval, Permitted, Policy
from agent_runtime.processes.spawn import run_in_thread, traced
from agent_runtime.run.approvals import Gate
from agent_runtime.run.state import RunState
from agent_runtime.tools.tool import CallPlan, Registry, describe_in_line
from agent_runtime.transports.protocol import StepOutput

_FAILURE_CHARS = 30_000


_RECORDED_CHARS = 10_000


class Calls:
    """Answers the tool calls of a run's steps, and notifies listeners of each.

    Attributes:
        number: the number of calls that the run has made.
        shown: the output of the current step.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        policy: Policy,
        gate: Gate,
        state: RunState,
        max_output_chars: Mapping[str, int] | None = None,
        max_step_chars: int | None = None,
    ) -> None:
        """Answer calls of the tools in `registry`.

        Args:
            registry: the tools.
            policy: decides each call.
            gate: asks people for approval.
            state: the log to which each call's result is appended, and its listeners.
            max_output_chars: tool name → the maximum length of a result for the model.
            max_step_chars: the maximum length of a step's output; None for the policy's own bound.
        """
        self.number = 0
        self.shown = StepOutput(0)
        self._registry = registry
        self._policy = policy
        self._gate = gate
        self._state = state
        self._max_output_chars = max_output_chars or {}
        self._max_step_chars = max_step_chars or policy.limits.max_output_chars_per_step

    def begin_step(self) -> None:
        """Collect the output of a new step."""
        self.shown = StepOutput(self._max_step_chars)

    async def finish_step(self, work: Awaitable[None]) -> tuple[str, bool]:
        """Wait for a step's calls.

        Args:
            work: the transport at work on them.

        Returns:
            The output for the model, and whether no call failed.

        Raises:
            FormatError: the calls do not fit the tools; none was made.
            StepSuspended: a call waits for a person.
            SandboxError: the machine failed, not the model.
        """
        failure, ok = "", True
        try:
            await work
        except FormatError:
            raise
        except Interrupt as error:
            failure, ok = clipped(str(error), _FAILURE_CHARS), False
        return "\n\n".join(filter(None, (self.shown.text(), failure))), ok

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        """Answer one call: check it against the policy, run it, record it.

        Raises:
            ToolError: the call was refused, is wrong, or failed; the control block sees it as an exception.
            Suspend: the call waits for a person, and has not been made.
        """
        try:
            return await self._answer(tool, args, kwargs, show=show)
        finally:
            self._gate.forget()

    async def _answer(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        called = self._registry.get(tool)
        bound = called.bind(args, kwargs)
        planned = await called.plan(bound)
        refusal = self._gate.denial(tool) or await self._refusal(bound, planned)
        self.number += 1
        label = called.describe_call(bound)
        recorded = {name: shortened(value) for name, value in bound.items()}
        self._state.emit(ToolCalled(number=self.number, tool=tool, args=recorded, label=label))
        record = partial(self._record, tool, recorded, label, time.monotonic())
        try:
            await asyncio.sleep(0)  # a listener may have stopped the run
            if refusal is not None:
                raise _with_note(refusal, planned.on_decline())
            with traced(f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
                result = await called.apply(planned, partial(self._report_progress, self.number, tool))
        except ToolError as error:
            record(to_plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        except Suspend:  # a question without an answer; it will be asked again
            self.number -= 1
            raise
        if show:
            most = self._max_output_chars.get(tool)
            self.shown.add_result(result.text, call=label, lines=result.lines, max_chars=most, images=result.images)
        record(result.value, result.text, ok=True)
        return result.value

    async def _refusal(self, args: dict[str, Plain], planned: CallPlan) -> ToolError | None:
        """Return the error of a call that may not be made, or None; ask for approval where the policy requires it.

        Raises:
            Suspend: approval is required, and no handler answered.
        """
        tool = planned.facts.tool
        if self._policy.always_allows(tool) and not planned.facts.is_external:
            return None
        match self._policy.decide(planned.facts):
            case Permitted():
                return None
            case Denied(reason=reason):
                denied = ToolError(f"{tool} is not allowed in this run: {reason}", kind="PermissionError")
                self._state.emit(Refused(error=str(denied)))
                return denied
            case NeedsApproval() if planned.refusal:  # it cannot succeed; the call itself says why
                return None
            case NeedsApproval(reason=reason):
                try:
                    preview = await run_in_thread(planned.preview)
                    description = await run_in_thread(partial(describe_in_line, planned.facts))
                    await self._gate.permit(
                        tool=tool, args=args, reason=reason, description=description, preview=preview
                    )
                except ToolError as error:
                    return error
                return None

    def _report_progress(self, number: int, tool: str, text: str) -> None:
        self._state.emit(ToolProgressed(number=number, tool=tool, text=clipped(text, _RECORDED_CHARS)))

    def _record(  # noqa: PLR0917 - the first four are the call, bound once
        self, tool: str, args: dict[str, Plain], label: str, begun: float, value: Plain, text: str, *, ok: bool
    ) -> None:
        self._state.record(
            ToolReturned(
                number=self.number,
                tool=tool,
                args=args,
                value=shortened(value),
                text=clipped(text, _RECORDED_CHARS),
                ok=ok,
                seconds=time.monotonic() - begun,
                label=label,
                ended=time.time(),
            )
        )


def _with_note(refusal: ToolError, note: str) -> ToolError:
    return ToolError(f"{refusal}\n{note}", kind=refusal.kind, value=refusal.value) if note else refusal


def shortened(value: Plain) -> Plain:
    """Return plain data with its long texts clipped; else a log would hold every file that was ever read."""
    if isinstance(value, str):
        return clipped(value, _RECORDED_CHARS)
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shortened(item) for item in value)
    return value


def clipped(text: str, limit: int) -> str:
    """Return the head and the tail of a long text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
