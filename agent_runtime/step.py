"""One step's work: the tool calls of a control block, and what the model is shown of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from agent_runtime.errors import FormatError, Interrupt, LimitError, ToolError
from agent_runtime.events import Event, ToolCalled, ToolProgressed, ToolReturned
from agent_runtime.interpreter import Interpreter
from agent_runtime.interpreter.plain import plain
from agent_runtime.policy import Policy
from agent_runtime.tools.payloads import Payloads
from agent_runtime.tools.protocol import Plain
from agent_runtime.tools.registry import Registry

_FAILURE_CHARS = 30_000
_RECORDED_CHARS = 10_000


class Shown:
    """What a step shows the model, in order, bounded: past the bound it keeps counting but not collecting."""

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._parts: list[tuple[str, bool]] = []

    def printed(self, text: str) -> None:
        """Add what the control block printed."""
        self._add(text, printed=True)

    def result(self, text: str) -> None:
        """Add the result of a call, set apart from its neighbours."""
        self._add(text, printed=False)

    def text(self) -> str:
        """Everything, as the model reads it: runs of prints and results, a blank line between them."""
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were shown in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)

    def _add(self, text: str, *, printed: bool) -> None:
        room = max(0, self._max - self._used)
        kept = text[:room]
        self._used += len(kept)
        self._dropped += len(text) - len(kept)
        if kept:
            self._parts.append((kept, printed))


class Calls:
    """Answers the tool calls of a run's control blocks, and tells watchers of each."""

    def __init__(self, *, registry: Registry, policy: Policy, emit: Callable[[Event], None]) -> None:
        self._registry = registry
        self._policy = policy
        self._emit = emit
        self._number = 0
        self._shown = Shown(0)

    def begin_step(self) -> Shown:
        """Start collecting anew; the returned object holds what the step shows."""
        self._shown = Shown(self._policy.limits.max_output_chars_per_step)
        return self._shown

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        """Answer one call: check it against the policy, run it, record it.

        Raises:
            ToolError: refused, wrong, or failed; the control block sees it as an exception.
        """
        found = self._registry.get(tool)
        bound = found.bind(args, kwargs)
        self._number += 1
        label = found.described(bound)
        recorded = {name: shortened(value) for name, value in bound.items()}
        self._emit(ToolCalled(number=self._number, tool=tool, args=recorded, label=label))
        begun = time.monotonic()
        returned = partial(self._returned, tool, recorded, label, begun)
        try:
            self._check_allowed(tool)
            result = await found.call(bound, partial(self._progressed, self._number, tool))
        except ToolError as error:
            returned(plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        if shown:
            self._shown.result(result.text)
        returned(result.value, result.text, ok=True)
        return result.value

    def _check_allowed(self, tool: str) -> None:
        if reason := self._policy.refusal(tool):
            raise ToolError(f"{tool} is not allowed in this run: {reason}", kind="PermissionError")

    def _progressed(self, number: int, tool: str, text: str) -> None:
        self._emit(ToolProgressed(number=number, tool=tool, text=clipped(text, _RECORDED_CHARS)))

    def _returned(  # noqa: PLR0917 - the first four are the call, bound once
        self, tool: str, args: dict[str, Plain], label: str, begun: float, value: Plain, text: str, *, ok: bool
    ) -> None:
        self._emit(
            ToolReturned(
                number=self._number,
                tool=tool,
                args=args,
                value=shortened(value),
                text=clipped(text, _RECORDED_CHARS),
                ok=ok,
                seconds=time.monotonic() - begun,
                label=label,
            )
        )


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


async def execute(control: str, *, interpreter: Interpreter, calls: Calls, payloads: Payloads) -> tuple[str, bool]:
    """Run one control block.

    Returns:
        What the model is shown, and whether nothing was raised.

    Raises:
        FormatError: the block does not fit the tools; nothing ran.
        SandboxError: the machine failed, not the model.
    """
    shown = calls.begin_step()
    failure = ""
    try:
        await interpreter.run(control, call=calls, show=shown.printed)
        if left := payloads.left():
            raise LimitError(
                f"{left} payload{'s were' if left > 1 else ' was'} left over: the block made fewer writes than the "
                "reply brings contents."
            )
    except FormatError:
        raise
    except Interrupt as stop:
        failure = clipped(str(stop), _FAILURE_CHARS)
    return "\n\n".join(part for part in (shown.text(), failure) if part), not failure
