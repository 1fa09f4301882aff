"""The tools `delegate`, `task_status` and `collect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, Status, ToolResult
from agent_runtime.delegation.children import ChildRuns, TaskStatus
from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools import changes as changes_module
from agent_runtime.tools.changes import external_write
from agent_runtime.tools.tool import CallPlan, ToolFamily, preview_call
from agent_runtime.workspace.files import StagedFile

_MAX_LISTED = 30
_SUMMARY_CHARS = 4_000


class DelegationTools(ToolFamily):
    value_types: ClassVar[dict[str, str]] = {"delegate": "str", "task_status": "dict[str, Any]", "collect": "list[str]"}
    labels: ClassVar[dict[str, str]] = {
        "delegate": "Delegating: {prompt}",
        "task_status": "Looking at task {task}",
        "collect": "Collecting task {task}",
    }

    def __init__(self, tasks: ChildRuns) -> None:
        self._tasks = tasks

    async def delegate(self, prompt: str, files: list[str] | None = None, persona: str | None = None) -> ToolResult:
        """Have another agent do a task meanwhile, in its own copy of the workspace (files: only these). It knows only
        what prompt says. Returns the task's name; collect(task) waits for it and takes over its changes.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        task = await self._tasks.start(prompt, files=files, persona=persona)
        return ToolResult(value=task, text=f"[delegate] task {task} is running")

    async def task_status(self, task: str) -> ToolResult:
        """How a task is getting on: state, steps, summary, changes, diff."""
        status = self._tasks.status(task)
        value: dict[str, Plain] = {
            "state": status.state,
            "steps": status.steps,
            "tokens": status.usage.total_tokens,
            "summary": str(status.outcome)[:_SUMMARY_CHARS] if status.outcome else "",
            "changes": [*status.changes],
            "diff": status.diff,
        }
        lines = [f"[task_status {task}] {describe(status)}", *_shorten_list(status.changes)]
        return ToolResult(value=value, text="\n".join(lines))

    async def collect(self, task: str, paths: list[str] | None = None) -> ToolResult:
        """Wait until a task ends, and take over the files that it changed (paths: only these), all or none: not where
        the workspace has changed the same file since. A task that did not finish needs paths. Returns the files.
        """  # noqa: D205 - as above
        return self._collect(task, self._tasks.plan_merge(task, paths).writes)

    @override
    async def prepare(self, tool: str, args: dict[str, Any]) -> None:
        """Wait for the task of a `collect` call, because its changes are unknown until then."""
        if tool != "collect":
            return
        task, status = args["task"], await self._tasks.wait(args["task"])
        if status.outcome is None:
            raise ToolError(f"collect: task {task} {describe(status)}")
        if status.outcome.status not in {Status.FINISHED, Status.ANSWERED} and args.get("paths") is None:
            files = "\n".join(_shorten_list(status.changes)) or "It changed no file."
            raise ToolError(
                f"collect: task {task} {describe(status)}\n{files}\nTo take files of it, name them in paths."
            )

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        """Plan the writes of a `collect` call; see `Tool.plan`."""
        facts = CallFacts(tool=tool, args=args)
        if tool != "collect":
            return CallPlan(facts=facts, preview=partial(preview_call, tool, args), apply=call)
        merge = self._tasks.plan_merge(args["task"], args.get("paths"))
        if merge.conflicts:
            conflicts = "\n".join(merge.conflicts[:_MAX_LISTED])
            raise ToolError(
                f"collect: nothing was taken over from task {args['task']}, because of\n{conflicts}", kind="ValueError"
            )
        return CallPlan(
            facts=CallFacts(tool=tool, args=args, paths=tuple(write.path for write in merge.writes), writes=True),
            preview=partial(changes_module.preview, [external_write(write) for write in merge.writes], {}),
            apply=partial(self._collect, args["task"], merge.writes),
        )

    def _collect(self, task: str, writes: Sequence[StagedFile]) -> ToolResult:
        self._tasks.apply_merge(task, writes)
        lines = [
            f"{'created' if write.old is None else 'deleted' if write.data is None else 'modified'}: {write.path}"
            for write in writes
        ]
        head = f"[collect {task}] {describe(self._tasks.status(task))}"
        summary = (
            ["Taken over:", *_shorten_list(lines)] if lines else ["It changed no file that was not taken over already."]
        )
        return ToolResult(value=[write.path for write in writes], text="\n".join([head, *summary]))


def describe(status: TaskStatus) -> str:
    """Describe the progress of a task in one sentence."""
    used = f"{status.steps} steps, {status.usage.total_tokens:,} tokens"
    if status.outcome is not None:
        return f"ended as {status.state} ({used}): {str(status.outcome)[:_SUMMARY_CHARS]}"
    if status.pending is not None:
        request = "an answer" if status.pending.kind == "question" else f"approval of {status.pending.tool}"
        return (
            f"waits for {request} ({used}): {status.pending.reason[:_SUMMARY_CHARS]}\nNobody has answered. Make this "
            "call yourself if it must be made, or go on without the task."
        )
    return f"is {status.state} ({used})"


def _shorten_list(lines: Sequence[str]) -> list[str]:
    omitted = len(lines) - _MAX_LISTED
    return [*lines[:_MAX_LISTED], *([f"… and {omitted:,} more"] if omitted > 0 else [])]
