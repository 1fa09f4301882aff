"""Tool calls of a run: plan, decide, ask for approval, make and record."""

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
    """The tool calls of a run's steps; called by the interpreter and the transports."""

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
        self.number = 0
        self.output = StepOutput(0)
        self._registry = registry
        self._policy = policy
        self._gate = gate
        self._state = state
        self._max_output_chars = max_output_chars or {}
        self._max_step_chars = max_step_chars or policy.limits.max_output_chars_per_step

    def begin_step(self) -> None:
        """Start the output of a new step."""
        self.output = StepOutput(self._max_step_chars)

    async def finish_step(self, work: Awaitable[None]) -> tuple[str, bool]:
        """Await a step's calls; return the output for the model, and whether all succeeded."""
        failure, ok = "", True
        try:
            await work
        except FormatError:
            raise
        except Interrupt as error:
            failure, ok = clip(str(error), _FAILURE_CHARS), False
        return "\n\n".join(filter(None, (self.output.text(), failure))), ok

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        """Make one call.

        Raises:
            ToolError: it was refused or failed; control code gets an exception.
            Suspend: it waits for a person.
        """
        try:
            return await self._make_call(tool, args, kwargs, show=show)
        finally:
            self._gate.discard_answer()

    async def _make_call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        entry = self._registry.get(tool)
        bound = entry.bind(args, kwargs)
        planned = await entry.plan(bound)
        refusal = self._gate.denial(tool) or await self._refusal(bound, planned)
        self.number += 1
        label = entry.describe_call(bound)
        recorded = {name: clip_value(value) for name, value in bound.items()}
        self._state.emit(ToolCalled(number=self.number, tool=tool, args=recorded, label=label))
        record = partial(self._record, tool, recorded, label, time.monotonic())
        try:
            await asyncio.sleep(0)  # a listener may have stopped the run
            if refusal is not None:
                note = planned.on_decline()
                raise ToolError(f"{refusal}\n{note}", kind=refusal.kind, value=refusal.value) if note else refusal
            with traced(f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
                result = await entry.apply(planned, partial(self._report_progress, self.number, tool))
        except ToolError as error:
            record(to_plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        except Suspend:  # a question without an answer; it will be repeated
            self.number -= 1
            raise
        if show:
            limit = self._max_output_chars.get(tool)
            self.output.add_result(result.text, call=label, lines=result.lines, max_chars=limit, images=result.images)
        record(result.value, result.text, ok=True)
        return result.value

    async def _refusal(self, args: dict[str, Plain], planned: CallPlan) -> ToolError | None:
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
        self._state.emit(ToolProgressed(number=number, tool=tool, text=clip(text, _RECORDED_CHARS)))

    def _record(  # noqa: PLR0917 - the first four are the call, bound once
        self, tool: str, args: dict[str, Plain], label: str, started: float, value: Plain, text: str, *, ok: bool
    ) -> None:
        self._state.record(
            ToolReturned(
                number=self.number,
                tool=tool,
                args=args,
                value=clip_value(value),
                text=clip(text, _RECORDED_CHARS),
                ok=ok,
                seconds=time.monotonic() - started,
                label=label,
                ended=time.time(),
            )
        )


def clip_value(value: Plain) -> Plain:
    """Return plain data with clipped texts, so that a log does not contain every file."""
    if isinstance(value, str):
        return clip(value, _RECORDED_CHARS)
    if isinstance(value, dict):
        return {key: clip_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clip_value(item) for item in value)
    return value


def clip(text: str, limit: int) -> str:
    """Return head and tail of a long text."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
