"""Transport with native tool calls, each answered by its result.

Two tools belong to it: `script` runs Python with the tools as functions, `finish` ends the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from typing_extensions import override

from agent_runtime.core.errors import (
    FormatCode,
    FormatError,
    Interrupt,
    LimitError,
    SettingsError,
    Suspend,
    ToolError,
)
from agent_runtime.core.events import Streamed
from agent_runtime.core.text import MAX_REPLY_CHARS
from agent_runtime.core.values import CallTool, Plain, ToolAnswer, ToolRequest
from agent_runtime.interpreter.interpreter import HELP
from agent_runtime.interpreter.source import InterpreterState, Suspended
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import CallChunk, Piece, ReplyEnd, StopReason, TextChunk, ToolSchema
from agent_runtime.providers.recording import decode_answer, join_calls
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.tool import CallPlan, Planner, Registry, Tool, call_arguments, read_arguments, tool_schema
from agent_runtime.transports.transport import ReplyState, StepSuspended, SuspendedCalls, Transport, read_guide

SCRIPT, FINISH = "script", "finish"
NAME_CHARS = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS}}}")
"""Call ids and tool names that every service accepts."""
WRITE = "write_file"
NO_ACTION = "Your reply was empty, so nothing happened. Call a tool, or say in words how the task ended."
RECEIVED = "[received]"
OWN_TOOLS_HINT = "finish and script are tools, not functions of a script: call finish beside script."
VARIABLES_LOST = "[This run was paused. The variables of its earlier scripts are gone.]"
SKIPPED = "[not made: an earlier call of this reply went over a limit]"

TOO_LARGE = (
    f"The reply has more than {MAX_REPLY_CHARS:,} characters, the most that is read. None of its calls was made. Send "
    "a shorter reply: fewer calls at once, or write a large file in parts (mode='a')."
)

TRUNCATED = (
    "The reply reached the length limit, so its last call may be incomplete. None of its calls was made. Send a "
    "shorter reply: fewer calls at once, or write a large file in parts (mode='a')."
)

_SCRIPT_ONLY = frozenset(
    {*IndexTools.value_types, "list_files", "read_output", "send_input", "terminate_terminal", "ask_user"}
)
"""Built-in tools for scripts only: a line for each takes half the characters of a schema."""
_OWN_CALL = re.compile(rf"\b(?:{FINISH}|{SCRIPT})\(")
"""A script must not call the transport's own tools."""
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(slots=True, kw_only=True)
class NativeReply(ReplyState):
    """State of a reply with native tool calls."""

    text: list[str] = field(default_factory=list)
    chunks: list[CallChunk] = field(default_factory=list)
    chars: int = 0
    ran_script: bool = False
    """Whether an earlier reply of the run has a script."""


class NativeTransport(Transport[NativeReply]):
    """Native tool calls, with the additional tools `script` and `finish`."""

    name, uses_tool_calls, prose_finishes = "tools", True, True
    no_action = NO_ACTION
    correction = "The calls themselves are done. Call finish with a corrected summary"

    @override
    def render_guide(self, tools: str, *, chat: bool) -> str:
        return read_guide("native_guide.md").strip()

    @override
    def declare_tools(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """Return the tool schemas. A registered `script` or `finish` replaces the transport's own."""
        registered = tools.listed
        hidden = (
            [] if SCRIPT in tools else [tool for tool in registered if tool.name in _SCRIPT_ONLY and not tool.foreign]
        )
        functions = "\n".join([*tools.brief_lines(hidden), f"{HELP}(find): all that a tool takes."])
        own = [
            _own_schema(SCRIPT, f"Run Python. Further functions:\n{functions}", "code"),
            _own_schema(FINISH, "End the task.", "summary"),
        ]
        declared = [tool_schema(tool, is_brief=True) for tool in registered if tool not in hidden]
        if invalid := next((tool.name for tool in declared if not NAME.fullmatch(tool.name)), None):
            raise SettingsError(
                f"tool {invalid!r}: with the transport `tools` a name has at most {NAME_CHARS} characters, all of them "
                "ASCII letters, digits and underscores. Register it under another name, or use the transport `blocks`."
            )
        return (*declared, *(schema for schema in own if schema.name not in tools))

    @override
    def adapt_tool(self, tool: Tool) -> Tool:
        if tool.name != WRITE or tool.planner is None:
            return tool
        return replace(tool, func=write_file, planner=partial(_plan, tool.planner), minor=("force",))

    @override
    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> Self:
        self._ran_script = False
        return super().open(tools, limits, enclose)

    @override
    def start_reply(self) -> NativeReply:
        return NativeReply(ran_script=self._ran_script)

    @override
    def feed_reply(self, reply: NativeReply, chunk: Piece) -> Sequence[Streamed]:
        if isinstance(chunk, ReplyEnd):
            requests: dict[str, ToolRequest] = {}
            for number, call in enumerate(join_calls(reply.chunks), start=1):
                # Replace ids and names that some service would reject.
                name = call.id if NAME.fullmatch(call.id) and call.id not in requests else f"call_{number}"
                while name in requests:
                    name += "_"
                tool = _INVALID_CHARS.sub("_", call.name)[:NAME_CHARS] or "_"
                requests[name] = ToolRequest(id=name, name=tool, arguments=call.arguments)
            reply.requests = tuple(requests.values())
            return []
        reply.chars += len(chunk.text if isinstance(chunk, TextChunk) else chunk.arguments)
        if reply.chars > MAX_REPLY_CHARS:
            return []
        if isinstance(chunk, TextChunk):
            reply.text.append(chunk.text)
            return [Streamed(text=chunk.text)]
        reply.chunks.append(chunk)
        return []

    @override
    def parse_reply(self, reply: NativeReply, stop: StopReason) -> None:
        if stop == "length":
            raise FormatError("truncated", TRUNCATED)
        if reply.chars > MAX_REPLY_CHARS:
            raise FormatError("truncated", TOO_LARGE)
        reply.prose = "".join(reply.text)
        if not reply.prose.strip() and not reply.requests:
            raise FormatError("empty", NO_ACTION)
        self._ran_script = self._ran_script or any(request.name == SCRIPT for request in reply.requests)
        reply.contents = tuple(f"{request.name}({request.arguments})" for request in reply.requests)
        summaries = [_read_summary(request) for request in reply.requests if self._is_own(request, FINISH)]
        valid = [summary for summary in summaries if isinstance(summary, str)]
        reply.completion = valid[-1] if valid else None
        reply.has_calls = len(valid) < len(reply.requests)
        if not reply.has_calls:
            reply.answers = [ToolAnswer(id=request.id, text=RECEIVED) for request in reply.requests]

    @override
    async def run_calls(
        self,
        reply: NativeReply,
        *,
        call: CallTool,
        show: Callable[[str], None],
        answer: Callable[[ToolRequest, str], ToolAnswer],
        suspended: SuspendedCalls | None = None,
    ) -> None:
        """Run the calls without an answer; after a failure, raise Interrupt with an empty text."""
        counter, script = _CallCounter(call, self._max_calls), None
        if suspended is not None:
            counter.count, script = suspended.calls["made"], suspended.calls["script"]
            reply.answers = [decode_answer(item) for item in suspended.calls["answers"]]
            answered = reply.requests[: len(reply.answers)]
            if script is None and (reply.ran_script or any(self._is_own(item, SCRIPT) for item in answered)):
                show(VARIABLES_LOST)
        for request in reply.requests[len(reply.answers) :]:
            if counter.is_exceeded:
                reply.answers.append(ToolAnswer(id=request.id, text=SKIPPED, ok=False))
                continue
            failure = ""
            try:
                await self._run_call(request, counter, show, script)
            except (ToolError, Interrupt) as error:
                failure = str(error)
                if isinstance(error, FormatError) and _OWN_CALL.search(request.arguments):
                    failure = f"{failure}\n{OWN_TOOLS_HINT}"
            except (Suspend, Suspended) as stop:
                state = {
                    "transport": self.name,
                    "answers": [asdict(item) for item in reply.answers],
                    "made": counter.count,
                    "script": stop.state.to_plain() if isinstance(stop, Suspended) else None,
                }
                raise StepSuspended(SuspendedCalls(calls=state)) from None
            script = None
            reply.answers.append(answer(request, failure))
        if not all(item.ok for item in reply.answers):
            raise Interrupt

    async def _run_call(
        self,
        request: ToolRequest,
        call: _CallCounter,
        show: Callable[[str], None],
        script: Mapping[str, Any] | None,
    ) -> None:
        """Run one call; `script` is the state of a suspended one."""
        if self._is_own(request, FINISH):
            if isinstance(summary := _read_summary(request), ToolError):
                raise summary
            show(RECEIVED)
        elif self._is_own(request, HELP):
            show(self._tools.describe(_own_argument(request, "tool")))
        elif self._is_own(request, SCRIPT):
            if script is not None:
                await self._interpreter.resume(InterpreterState.from_plain(script), call=call, show=show)
            else:
                await self._interpreter.run(_own_argument(request, "code"), call=call, show=show)
        elif request.name not in self._tools:
            # No list of tools: the service has it, and an intermediate provider may have renamed them.
            close = get_close_matches(request.name[:100], self._tools.names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            reason = f" ({missing})" if (missing := self._tools.missing.get(request.name)) else ""
            raise ToolError(f"there is no tool {request.name[:100]!r}{reason}.{hint}")
        else:
            values = read_arguments(request.name, request.arguments)
            args, kwargs = call_arguments(self._tools.get(request.name), values)
            await call(request.name, args, kwargs, show=True)

    def _is_own(self, request: ToolRequest, name: str) -> bool:
        """Whether a call is of the transport's own tool and not of a registered one."""
        return request.name == name and name not in self._tools

    @override
    def explain_format_errors(self, code: FormatCode, count: int) -> str:
        if code == "truncated":
            fault, remedy = "was cut off at the length limit", "Raise `max_tokens`, or divide the task"
        else:
            fault, remedy = "was empty", "Try again, or choose another model"
        return f"{count} replies in a row could not be used; the last one {fault}. {remedy}."


def _read_summary(request: ToolRequest) -> str | ToolError:
    try:
        return _own_argument(request, "summary")
    except ToolError as error:
        return error


class _CallCounter:
    def __init__(self, call: CallTool, max_calls: int) -> None:
        self.count, self.is_exceeded = 0, False
        self._call, self._max_calls = call, max_calls

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        if self.count >= self._max_calls:
            self.is_exceeded = True
            raise LimitError(f"The reply made more than {self._max_calls} calls and was stopped.")
        self.count += 1
        try:
            return await self._call(tool, args, kwargs, show=show)
        except Suspend:  # it counts when it is repeated
            self.count -= 1
            raise


def write_file(
    path: str = "",
    content: str | None = None,
    mode: Literal["w", "a", "edit", "insert", "replace", "patch"] = "w",
    *,
    old: str | None = None,
    start_line: int | None = None,
    end_line: int | None = None,
    after_line: int | None = None,
    force: bool = False,
) -> NoReturn:
    """Write content: 'w' whole file, 'a' append, 'edit' in place of start_line..end_line, 'insert' below after_line,
    numbers as read; 'replace' in place of the lines old; 'patch' in '*** Begin Patch' format, no path. One edit or
    insert per file and reply.

    after_line=0 is the top. The lines of old must be unique in the file. A patch has Add/Update/Delete File sections,
    and is applied whole or not at all. force=True writes what was refused for its syntax or a placeholder.
    """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
    raise NotImplementedError  # only declared here: the tool's own planner plans its calls


def _plan(plan: Planner, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
    values = {name: value for name, value in args.items() if value is not None}
    content, old = values.pop("content", None), values.pop("old", None)
    if content is None or (values.get("mode") == "replace") != (old is not None):
        names = "`old` and `content`" if values.get("mode") == "replace" else "`content`, and `old` for 'replace' only"
        raise ToolError(f"write_file: this mode takes {names}", kind="ValueError")
    planned = plan(tool, {**values, "contents": (content,) if old is None else (old, content)}, call)
    return replace(planned, facts=replace(planned.facts, args=args))


def _own_schema(name: str, description: str, argument: str) -> ToolSchema:
    parameters: dict[str, Plain] = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return ToolSchema(name=name, description=description, parameters=parameters)


def _own_argument(request: ToolRequest, name: str) -> str:
    values = read_arguments(request.name, request.arguments)
    value = values.pop(name, None)
    if not isinstance(value, str) or values:
        raise ToolError(f'{request.name}: takes {{"{name}": "text"}} and nothing else', kind="TypeError")
    return value
