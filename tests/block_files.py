"""The file tools as a control block calls them: payloads bound to writes, without a run around it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.tool import CallPlan, Progress, Registry, Tool
from agent_runtime.transports.blocks import PayloadBinder, Payloads, write_file
from agent_runtime.transports.blocks_parser import Payload
from agent_runtime.workspace.files import Workspace


class BlockFiles(FileTools):
    """`FileTools` whose writes take payloads; `begin_step` is given those of a reply."""

    def __init__(self, workspace: Workspace, **options: Any) -> None:  # noqa: ANN401 - those of FileTools
        self.payloads = PayloadBinder()
        super().__init__(workspace, **options)
        self.registry = Registry(self.payloads.adapt)
        self.registry.add_family(self)

    def take(self, *contents: str | Payload, control: str = "") -> BlockFiles:
        """Begin a step with the contents of a reply."""
        self.payloads.begin_step(payloads_of(contents), control)
        self.begin_step()
        return self

    def planned(self, tool: str, args: dict[str, Plain]) -> CallPlan:
        return self.registry.get(tool)._plan(args)

    def write(self, *args: Any, **kwargs: Any) -> ToolResult:  # noqa: ANN401 - wrong types, too
        """One `write_file` of the control block."""
        given = inspect.signature(write_file).bind(*args, **kwargs).arguments
        made: ToolResult = self.payloads._plan(self.plan, "write_file", given, write_file).apply()
        return made

    def end(self, *, ok: bool = True) -> str:
        """What is told at the step's end."""
        return "\n\n".join(filter(None, ["" if ok else self.payloads.store_unreached(), self.end_step()]))

    def state(self) -> dict[str, Plain]:
        return {**self.step_state(), **self.payloads.state()}

    def go_on(self, state: dict[str, Any], *contents: str | Payload, control: str = "") -> None:
        """Resume a step in another process, after `restore`."""
        self.payloads.resume(payloads_of(contents), control, state)
        self.resume_step(state)

    def forget(self) -> None:
        self.reset()
        self.payloads.reset()


async def call(
    tool: Tool,
    args: dict[str, Any],  # wrong types, too
    progress: Progress = lambda _text: None,
) -> ToolResult:
    """Plan a call and make it, as where nobody need be asked."""
    return await tool.apply(await tool.plan(args), progress)


def payloads_of(contents: Iterable[str | Payload]) -> Payloads:
    return Payloads(Payload(text=each, filename=None) if isinstance(each, str) else each for each in contents)
