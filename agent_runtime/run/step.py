"""One step's work: its tool calls, and what the model is shown of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from functools import partial

from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import FormatError, Interrupt, Suspend, ToolError
from agent_runtime.core.events import Refused, ToolCalled, ToolProgressed, ToolReturned
from agent_runtime.core.policy import Denied, NeedsApproval, Permitted, Policy
from agent_runtime.interpreter.plain import plain
from agent_runtime.processes.spawn import in_thread
from agent_runtime.processes.tracing import traced
from agent_runtime.run.approvals import Gate
from agent_runtime.run.shown import ShownOutput
from agent_runtime.run.state import RunState
from agent_runtime.tools.planned import Planned
from agent_runtime.tools.preview import in_one_line
from agent_runtime.tools.registry import Registry

_FAILURE_CHARS = 30_000
_RECORDED_CHARS = 10_000


class Calls:
    """Answers the tool calls of a run's steps, and tells watchers of each.

    Attributes:
        number: how many calls the run has made.
        shown: what the present step shows.
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
            policy: what they may be called for.
            gate: asks people where the policy says so.
            state: the log to which each call's result is appended, and those who are told.
            max_output_chars: tool name → characters of one result that the model is shown at most.
            max_step_chars: characters that one step may show; None for the policy's own bound.
        """
        self.number = 0
        self.shown = ShownOutput(0)
        self._registry = registry
        self._policy = policy
        self._gate = gate
        self._state = state
        self._max_output_chars = max_output_chars or {}
        self._max_step_chars = max_step_chars or policy.limits.max_output_chars_per_step

    def begin_step(self) -> None:
        """Clear what the step has shown, and collect again."""
        self.shown = ShownOutput(self._max_step_chars)

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        """Answer one call: check it against the policy, run it, record it.

        Raises:
            ToolError: refused, wrong, or failed; the control block sees it as an exception.
            Suspend: the call waits for a person, and has not been made.
        """
        try:
            return await self._answered(tool, args, kwargs, shown=shown)
        finally:
            self._gate.forget()

    async def _answered(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        found = self._registry.get(tool)
        bound = found.bind(args, kwargs)
        planned = await found.plan(bound)
        refused = self._gate.denial(tool) or await self._refusal(bound, planned)
        self.number += 1
        label = found.described(bound)
        recorded = {name: shortened(value) for name, value in bound.items()}
        self._state.emit(ToolCalled(number=self.number, tool=tool, args=recorded, label=label))
        begun = time.monotonic()
        returned = partial(self._returned, tool, recorded, label, begun)
        try:
            await asyncio.sleep(0)  # a listener may have stopped the run
            if refused is not None:
                raise _declined(refused, planned.declined())
            with traced(f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
                result = await found.apply(planned, partial(self._progressed, self.number, tool))
        except ToolError as error:
            returned(plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        except Suspend:  # a question that nobody answers; it will be put again
            self.number -= 1
            raise
        if shown:
            most = self._max_output_chars.get(tool)
            self.shown.result(result.text, call=label, lines=result.lines, most=most, images=result.images)
        returned(result.value, result.text, ok=True)
        return result.value

    async def _refusal(self, args: dict[str, Plain], planned: Planned) -> ToolError | None:
        """Why a call may not be made, or None when it may; asks where the policy says so.

        Raises:
            Suspend: somebody has to be asked, and nobody answered.
        """
        tool = planned.facts.tool
        if self._policy.always_allows(tool) and not planned.facts.outside:
            return None
        match self._policy.decide(planned.facts):
            case Permitted():
                return None
            case Denied(reason=reason):
                refused = ToolError(f"{tool} is not allowed in this run: {reason}", kind="PermissionError")
                self._state.emit(Refused(error=str(refused)))
                return refused
            case NeedsApproval() if planned.refusal:  # it cannot succeed; the call itself says why
                return None
            case NeedsApproval(reason=reason):
                try:
                    preview = await in_thread(planned.preview)
                    described = in_one_line(planned.facts)
                    await self._gate.permit(tool=tool, args=args, reason=reason, description=described, preview=preview)
                except ToolError as denied:
                    return denied
                return None

    def _progressed(self, number: int, tool: str, text: str) -> None:
        self._state.emit(ToolProgressed(number=number, tool=tool, text=clipped(text, _RECORDED_CHARS)))

    def _returned(  # noqa: PLR0917 - the first four are the call, bound once
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


def _declined(refused: ToolError, told: str) -> ToolError:
    """A denial, and what else its author should know."""
    return ToolError(f"{refused}\n{told}", kind=refused.kind, value=refused.value) if told else refused


def shortened(value: Plain) -> Plain:
    """Plain data whose long texts are clipped: a log of calls that keeps every file that was read grows without end."""
    if isinstance(value, str):
        return clipped(value, _RECORDED_CHARS)
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if isinstance(value, tuple):
        return tuple(shortened(item) for item in value)
    return value


def clipped(text: str, limit: int) -> str:
    """The head and the tail of a text, and how much is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"


async def observed(work: Awaitable[None], shown: ShownOutput) -> tuple[str, bool]:
    """See the calls of one step to their end.

    Args:
        work: the transport at work on them.
        shown: collects what they show.

    Returns:
        What the model is shown, and whether nothing was raised.

    Raises:
        FormatError: they do not fit the tools; nothing ran.
        StepSuspended: one waits for a person.
        SandboxError: the machine failed, not the model.
    """
    failure, ok = "", True
    try:
        await work
    except FormatError:
        raise
    except Interrupt as stop:
        failure, ok = clipped(str(stop), _FAILURE_CHARS), False
    return "\n\n".join(part for part in (shown.text(), failure) if part), ok
