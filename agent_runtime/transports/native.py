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
from typing import Any, Literal, NoReturn

from agent_runtime import prompts
from agent_runtime.core.errors import (
    FormatCode,
    FormatError,
    Interrupt,
    LimitError,
    ResumeCode,
    ResumeError,
    SettingsError,
    Suspend,
    ToolError,
)
from agent_runtime.core.events import Replied, Streamed
from agent_runtime.core.text import MAX_REPLY_CHARS
from agent_runtime.core.values import CallTool, Plain, ToolAnswer, ToolRequest
from agent_runtime.interpreter.interpreter import Interpreter, require_readable
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState, Suspended
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.providers.recording import decode_answer, join_calls
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.conversation import ContextTools
from agent_runtime.tools.tool import CallPlan, Planner, Registry, Tool, call_arguments, read_arguments, tool_schema
from agent_runtime.transports.protocol import StepOutput, StepSuspended, read_guide

SCRIPT, FINISH = "script", "finish"
TRANSPORT = "tools"
NAME_CHARS = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS}}}")
"""Call ids and tool names that every service accepts."""
WRITE = "write_file"
NO_ACTION = "Your reply was empty, so nothing happened. Call a tool, or say in words how the task ended."
NO_OUTPUT = "[done, without output]"
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

_SCRIPT_ONLY = frozenset({*IndexTools.value_types, *ContextTools.value_types, "send_input", "terminate_terminal"})
"""Built-in tools for scripts only: a line for each takes half the characters of a schema."""
_OWN_CALL = re.compile(rf"\b(?:{FINISH}|{SCRIPT})\(")
"""A script must not call the transport's own tools."""
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


class NativeTransport:
    """Native tool calls, with the additional tools `script` and `finish`."""

    def guide(self, tools: str, *, chat: bool) -> str:  # noqa: ARG002 - the interface of all transports
        return read_guide("native_guide.md").strip()

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """Return the tool schemas. A registered `script` or `finish` replaces the transport's own."""
        registered = [tools.get(name) for name in tools.names]
        hidden = (
            [] if SCRIPT in tools else [tool for tool in registered if tool.name in _SCRIPT_ONLY and not tool.foreign]
        )
        functions = "".join(f"\n{tool.summary}" for tool in hidden)
        further = f" Further functions:{functions}" if functions else ""
        own = [
            _own_schema(SCRIPT, f"Run Python in which the tools are functions.{further}", "code"),
            _own_schema(FINISH, "End the task. Counts only if every call of this reply succeeds.", "summary"),
        ]
        declared = [tool_schema(tool) for tool in registered if tool not in hidden]
        if invalid := next((tool.name for tool in declared if not NAME.fullmatch(tool.name)), None):
            raise SettingsError(
                f"tool {invalid!r}: with the transport `tools` a name has at most {NAME_CHARS} characters, all of them "
                "ASCII letters, digits and underscores. Register it under another name, or use the transport `blocks`."
            )
        return (*declared, *(schema for schema in own if schema.name not in tools))

    def plain_text(self, reply: str) -> str:
        return reply

    def adapt(self, tool: Tool) -> Tool:
        if tool.name != WRITE or tool.planner is None:
            return tool
        return replace(tool, func=write_file, planner=partial(_plan, tool.planner))

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> NativeSession:
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=tools.names, stubs=tools.stubs, limits=bounds, enclose=enclose)
        return NativeSession(tools, interpreter, limits.max_calls_per_step)

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        if calls.get("transport") != TRANSPORT:
            raise ResumeError(ResumeCode.TRANSPORT, found="blocks", now=TRANSPORT)
        if calls["script"] is not None:
            require_readable(InterpreterState.from_plain(calls["script"]))

    def reset(self) -> None: ...


class NativeSession:
    """Parser of replies with native tool calls."""

    no_action, no_output, prose_finishes = NO_ACTION, "", True
    mismatch_message = staticmethod(
        partial(prompts.output_note, "The calls themselves are done. Call finish with a corrected summary")
    )

    def __init__(self, tools: Registry, interpreter: Interpreter, max_calls: int) -> None:
        self._tools = tools
        self._interpreter = interpreter
        self._max_calls = max_calls

    def failure_message(self, code: FormatCode, count: int) -> str:
        if code == "truncated":
            fault, remedy = "was cut off at the length limit", "Raise `max_tokens`, or divide the task"
        else:
            fault, remedy = "was empty", "Try again, or choose another `model`"
        return f"{count} replies in a row could not be used; the last one {fault}. {remedy}."

    def parse_history(self, replies: Sequence[Replied]) -> list[NativeStep | None]:
        steps = list[NativeStep | None]()
        for reply in replies:
            try:
                steps.append(self.read(reply.text, "stop", reply.requests))
            except FormatError:  # it was not acted on
                steps.append(None)
        ran_script = False
        for step in filter(None, steps):
            step.ran_script = ran_script
            ran_script = ran_script or any(request.name == SCRIPT for request in step.requests)
        return steps

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> NativeStep:
        reader = self.new_reader()
        reader.feed(TextChunk(text=text))
        for index, request in enumerate(requests):
            reader.feed(CallChunk(index=index, id=request.id, name=request.name, arguments=request.arguments))
        return reader.finish(stop)

    def new_reader(self) -> NativeReader:
        return NativeReader(self._accept)

    def state(self) -> dict[str, Plain]:
        return {}

    async def close(self) -> None:
        await self._interpreter.close()

    def _accept(self, text: str, requests: Sequence[ToolRequest]) -> NativeStep:
        return NativeStep(
            prose=text,
            requests=tuple(requests),
            tools=self._tools,
            interpreter=self._interpreter,
            max_calls=self._max_calls,
        )


class NativeReader:
    """Incremental parser of one reply. Only prose is streamed."""

    def __init__(self, accept: Callable[[str, Sequence[ToolRequest]], NativeStep]) -> None:
        self._accept = accept
        self._text: list[str] = []
        self._chunks: list[CallChunk] = []
        self._chars = 0

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """Calls so far; ids and names that some service would reject are replaced."""
        requests: dict[str, ToolRequest] = {}
        for number, call in enumerate(join_calls(self._chunks), start=1):
            name = call.id if NAME.fullmatch(call.id) and call.id not in requests else f"call_{number}"
            while name in requests:
                name += "_"
            tool = _INVALID_CHARS.sub("_", call.name)[:NAME_CHARS] or "_"
            requests[name] = ToolRequest(id=name, name=tool, arguments=call.arguments)
        return tuple(requests.values())

    def feed(self, chunk: TextChunk | CallChunk) -> list[Streamed]:
        self._chars += len(chunk.text if isinstance(chunk, TextChunk) else chunk.arguments)
        if self._chars > MAX_REPLY_CHARS:
            return []
        if isinstance(chunk, TextChunk):
            self._text.append(chunk.text)
            return [Streamed(text=chunk.text)]
        self._chunks.append(chunk)
        return []

    def flush(self) -> list[Streamed]:
        return []

    def finish(self, stop: StopReason) -> NativeStep:
        if stop == "length":
            raise FormatError("truncated", TRUNCATED)
        if self._chars > MAX_REPLY_CHARS:
            raise FormatError("truncated", TOO_LARGE)
        text, requests = "".join(self._text), self.requests
        if not text.strip() and not requests:
            raise FormatError("empty", NO_ACTION)
        return self._accept(text, requests)


@dataclass(slots=True, kw_only=True)
class NativeStep:
    prose: str
    requests: tuple[ToolRequest, ...]
    tools: Registry
    interpreter: Interpreter
    max_calls: int
    results: list[ToolAnswer] = field(default_factory=list)
    ran_script: bool = False

    @property
    def has_calls(self) -> bool:
        """Whether a call other than `finish` exists."""
        return any(
            not self._is_own(request, FINISH) or isinstance(self._summarize(request), ToolError)
            for request in self.requests
        )

    @property
    def contents(self) -> tuple[str, ...]:
        return tuple(f"{request.name}({request.arguments})" for request in self.requests)

    @property
    def completion(self) -> str | None:
        """The summary of the last valid `finish` call."""
        summaries = [self._summarize(request) for request in self.requests if self._is_own(request, FINISH)]
        return next((summary for summary in reversed(summaries) if isinstance(summary, str)), None)

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        if self.has_calls:
            return tuple(self.results)
        return tuple(self._answer_finish(request) for request in self.requests)

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Run the calls; after a failure, raise Interrupt with an empty text."""
        await self._run_calls(_CallCounter(call, self.max_calls), output, None)

    async def resume(
        self,
        state: Mapping[str, Any],  # noqa: ARG002 - the interface of all steps
        calls: Mapping[str, Any],
        call: CallTool,
        output: StepOutput,
    ) -> None:
        self.results = [decode_answer(item) for item in calls["answers"]]
        ran_script = self.ran_script or any(self._is_own(item, SCRIPT) for item in self.requests[: len(self.results)])
        if ran_script and calls["script"] is None:
            output.add_print(VARIABLES_LOST)
        await self._run_calls(_CallCounter(call, self.max_calls, calls["made"]), output, calls["script"])

    def end(self, *, ok: bool) -> str:  # noqa: ARG002 - the interface of all steps
        return ""

    async def _run_calls(self, call: _CallCounter, output: StepOutput, script: Mapping[str, Plain] | None) -> None:
        """Run the calls without an answer; `script` is the state of a suspended first one."""
        for request in self.requests[len(self.results) :]:
            if call.is_exceeded:
                self.results.append(ToolAnswer(id=request.id, text=SKIPPED, ok=False))
                continue
            waiting, script = script, None
            failure = ""
            try:
                await self._run_call(request, call, output, waiting)
            except (ToolError, Interrupt) as error:
                failure = str(error)
                if isinstance(error, FormatError) and _OWN_CALL.search(request.arguments):
                    failure = f"{failure}\n{OWN_TOOLS_HINT}"
            except Suspend:
                raise StepSuspended(self._state(call, None)) from None
            except Suspended as stop:
                raise StepSuspended(self._state(call, stop.state.to_plain())) from None
            if failure:
                output.add_result(failure, call=request.name)
            part = output.drain()
            self.results.append(
                ToolAnswer(id=request.id, text=part.text or NO_OUTPUT, ok=not failure, images=part.images)
            )
        if not all(result.ok for result in self.results):
            raise Interrupt

    async def _run_call(
        self, request: ToolRequest, call: _CallCounter, output: StepOutput, waiting: Mapping[str, Plain] | None
    ) -> None:
        if self._is_own(request, FINISH):
            answer = self._answer_finish(request)
            if not answer.ok:
                raise ToolError(answer.text)
            output.add_print(answer.text)
        elif self._is_own(request, SCRIPT):
            if waiting is not None:
                await self.interpreter.resume(InterpreterState.from_plain(waiting), call=call, show=output.add_print)
            else:
                await self.interpreter.run(_own_argument(request, "code"), call=call, show=output.add_print)
        elif request.name not in self.tools:
            # No list of tools: the service has it, and an intermediate provider may have renamed them.
            close = get_close_matches(request.name[:100], self.tools.names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ToolError(f"there is no tool {request.name[:100]!r}.{hint}")
        else:
            values = read_arguments(request.name, request.arguments)
            args, kwargs = call_arguments(self.tools.get(request.name), values)
            await call(request.name, args, kwargs, show=True)

    def _state(self, call: _CallCounter, script: dict[str, Plain] | None) -> dict[str, Plain]:
        answers: list[Plain] = [asdict(result) for result in self.results]
        return {"transport": TRANSPORT, "answers": answers, "made": call.count, "script": script}

    def _is_own(self, request: ToolRequest, name: str) -> bool:
        """Whether a call is of the transport's own tool and not of a registered one."""
        return request.name == name and name not in self.tools

    def _answer_finish(self, request: ToolRequest) -> ToolAnswer:
        summary = self._summarize(request)
        if isinstance(summary, ToolError):
            return ToolAnswer(id=request.id, text=str(summary), ok=False)
        return ToolAnswer(id=request.id, text=RECEIVED)

    def _summarize(self, request: ToolRequest) -> str | ToolError:
        try:
            return _own_argument(request, "summary")
        except ToolError as error:
            return error


class _CallCounter:
    def __init__(self, call: CallTool, max_calls: int, count: int = 0) -> None:
        self.count, self.is_exceeded = count, False
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
    """Write content: 'w' the whole file, 'a' append, 'edit' in place of start_line..end_line, 'insert' below after_line
    (0: top), numbers as read; 'replace' in place of the lines old (unique); 'patch' no path: '*** Begin Patch' with
    Add/Update/Delete File sections, all or nothing. Per reply one edit/insert per file. force writes what was refused.

    This is the declaration only: a call of it is planned by the tool's own planner.
    """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
    raise NotImplementedError


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
