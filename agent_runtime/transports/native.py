"""The transport of native tool calls: tools are declared to the service, and each call is answered by its result.

Two tools are the transport's own: `script` runs Python in which the tools are functions, and `finish` ends the task.
`write_file` takes its contents as arguments here.
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
from agent_runtime.providers.recording import decode_answer, whole_calls
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.conversation import ContextTools
from agent_runtime.tools.tool import Planned, Planner, Registry, Tool, call_arguments, read_arguments, tool_schema
from agent_runtime.transports.protocol import StepOutput, StepSuspended, read_guide

SCRIPT, FINISH = "script", "finish"
TRANSPORT = "tools"
NAME_CHARS = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS}}}")
"""What every service takes back as the id of a call and as the name of a tool."""
WRITE = "write_file"
NO_ACTION = "Your reply was empty, so nothing happened. Call a tool, or say in words how the task ended."
NO_OUTPUT = "[done, without output]"
ENDED = "[received]"
OWN_TOOLS = "finish and script are tools, not functions of a script: call finish beside script."
FORGOTTEN = "[This run was paused. The variables of its earlier scripts are gone.]"
NOT_MADE = "[not made: an earlier call of this reply went over a limit]"

TOO_LARGE = (
    f"The reply has more than {MAX_REPLY_CHARS:,} characters, the most that is read. None of its calls was made. Send "
    "a shorter reply: fewer calls at once, or write a large file in parts (mode='a')."
)

CUT_OFF = (
    "The reply reached the length limit, so its last call may be incomplete. None of its calls was made. Send a "
    "shorter reply: fewer calls at once, or write a large file in parts (mode='a')."
)

_SELDOM = frozenset({*IndexTools.value_types, *ContextTools.value_types, "send_input", "terminate_terminal"})
"""Built-in tools that only scripts call: a line for each takes half the characters of a schema."""
_OWN_CALL = re.compile(rf"\b(?:{FINISH}|{SCRIPT})\(")
"""A call of one of the transport's own tools in the code of a script."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class NativeTransport:
    """The service's own tool calls, and two tools of ours: `script` runs control code, `finish` ends the task."""

    def guide(self, tools: str, *, chat: bool) -> str:  # noqa: ARG002 - the interface of all transports
        """Return the part of the system prompt about replies; the tools are declared beside the prompt."""
        return read_guide("native_guide.md").strip()

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """The declarations for the service; a registered tool goes before one of ours of the same name.

        Raises:
            SettingsError: a registered tool has a name that services refuse.
        """
        each = [tools.get(name) for name in tools.names]
        seldom = [] if SCRIPT in tools else [tool for tool in each if tool.name in _SELDOM and not tool.foreign]
        functions = "".join(f"\n{tool.line}" for tool in seldom)
        further = f" Further functions:{functions}" if functions else ""
        own = [
            _own_schema(SCRIPT, f"Run Python in which the tools are functions.{further}", "code"),
            _own_schema(FINISH, "End the task. Counts only if every call of this reply succeeds.", "summary"),
        ]
        declared = [tool_schema(tool) for tool in each if tool not in seldom]
        if wrong := next((tool.name for tool in declared if not NAME.fullmatch(tool.name)), None):
            raise SettingsError(
                f"tool {wrong!r}: with the transport `tools` a name has at most {NAME_CHARS} characters, all of them "
                "ASCII letters, digits and underscores. Register it under another name, or use the transport `blocks`."
            )
        return (*declared, *(schema for schema in own if schema.name not in tools))

    def words(self, reply: str) -> str:
        """The reply: its calls stand beside it."""
        return reply

    def adapt(self, tool: Tool) -> Tool:
        """Return a tool as a model calls it: `write_file` takes its contents as arguments."""
        if tool.name != WRITE or tool.planner is None:
            return tool
        return replace(tool, func=write_file, planner=partial(_plan, tool.planner))

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> NativeLeg:
        """Begin a leg of a run; see `Transport.open`."""
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=tools.names, stubs=tools.stubs, limits=bounds, enclose=enclose)
        return NativeLeg(tools, interpreter, limits.max_calls_per_step)

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that a step of this transport was suspended, and that its script can be gone on with.

        Raises:
            ResumeError: it was another transport's, or another version of the interpreter suspended its script.
        """
        if calls.get("transport") != TRANSPORT:
            raise ResumeError(ResumeCode.TRANSPORT, found="blocks", now=TRANSPORT)
        if calls["script"] is not None:
            require_readable(InterpreterState.from_plain(calls["script"]))

    def reset(self) -> None:
        """Nothing is kept of earlier runs."""


class NativeLeg:
    """Reads replies with native tool calls."""

    no_action, no_output, prose_finishes = NO_ACTION, "", True
    unfit = staticmethod(partial(prompts.unfit, "The calls themselves are done. Call finish with a corrected summary"))

    def __init__(self, tools: Registry, interpreter: Interpreter, max_calls: int) -> None:
        """Read replies.

        Args:
            tools: what can be called.
            interpreter: runs scripts.
            max_calls: how many calls one reply may make.
        """
        self._tools = tools
        self._interpreter = interpreter
        self._max_calls = max_calls

    def unreadable(self, code: FormatCode, count: int) -> str:
        """Return the message to people about unreadable replies; see `TransportLeg.unreadable`."""
        if code == "truncated":
            fault, remedy = "was cut off at the length limit", "Raise `max_tokens`, or divide the task"
        else:
            fault, remedy = "was empty", "Try again, or choose another `model`"
        return f"{count} replies in a row could not be used; the last one {fault}. {remedy}."

    def recall(self, replies: Sequence[Replied]) -> list[NativeStep | None]:
        """Read earlier replies again; see `TransportLeg.recall`."""
        taken = list[NativeStep | None]()
        for reply in replies:
            try:
                taken.append(self.read(reply.text, "stop", reply.requests))
            except FormatError:  # it was not acted on
                taken.append(None)
        scripted = False
        for step in filter(None, taken):
            step.scripted = scripted
            scripted = scripted or any(each.name == SCRIPT for each in step.requests)
        return taken

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> NativeStep:
        """Read a whole reply at once.

        Raises:
            FormatError: as for `ReplyReader.finish`.
        """
        reader = self.reader()
        reader.feed(TextChunk(text=text))
        for index, each in enumerate(requests):
            reader.feed(CallChunk(index=index, id=each.id, name=each.name, arguments=each.arguments))
        return reader.finish(stop)

    def reader(self) -> NativeReader:
        """Begin to read the next reply."""
        return NativeReader(self._accept)

    def state(self) -> dict[str, Plain]:
        """Where a step stands is told by its suspension alone."""
        return {}

    async def close(self) -> None:
        """End the interpreter; idempotent."""
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
    """Reads one reply. Only its prose is streamed: calls are told when they are made, a summary when it counts."""

    def __init__(self, accept: Callable[[str, Sequence[ToolRequest]], NativeStep]) -> None:
        """Begin.

        Args:
            accept: makes the step of a reply, from its text and its calls.
        """
        self._accept = accept
        self._text: list[str] = []
        self._pieces: list[CallChunk] = []
        self._chars = 0

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """The calls so far; ids and names that not every service would take back are replaced."""
        taken: dict[str, ToolRequest] = {}
        for number, call in enumerate(whole_calls(self._pieces), start=1):
            name = call.id if NAME.fullmatch(call.id) and call.id not in taken else f"call_{number}"
            while name in taken:
                name += "_"
            tool = _OTHER.sub("_", call.name)[:NAME_CHARS] or "_"
            taken[name] = ToolRequest(id=name, name=tool, arguments=call.arguments)
        return tuple(taken.values())

    def feed(self, chunk: TextChunk | CallChunk) -> list[Streamed]:
        """Take the next chunk; gives its prose."""
        self._chars += len(chunk.text if isinstance(chunk, TextChunk) else chunk.arguments)
        if self._chars > MAX_REPLY_CHARS:
            return []
        if isinstance(chunk, TextChunk):
            self._text.append(chunk.text)
            return [Streamed(text=chunk.text)]
        self._pieces.append(chunk)
        return []

    def flush(self) -> list[Streamed]:
        """Nothing is held back."""
        return []

    def finish(self, stop: StopReason) -> NativeStep:
        """Judge the whole reply.

        Raises:
            FormatError: it was cut off, is too large, or is empty; none of its calls may be made.
        """
        if stop == "length":
            raise FormatError("truncated", CUT_OFF)
        if self._chars > MAX_REPLY_CHARS:
            raise FormatError("truncated", TOO_LARGE)
        text, requests = "".join(self._text), self.requests
        if not text.strip() and not requests:
            raise FormatError("empty", NO_ACTION)
        return self._accept(text, requests)


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
        self.given = [decode_answer(each) for each in calls["answers"]]
        scripted = self.scripted or any(self._is_own(each, SCRIPT) for each in self.requests[: len(self.given)])
        if scripted and calls["script"] is None:
            output.add_print(FORGOTTEN)
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
                output.add_result(failure, call=request.name)
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
            output.add_print(answer.text)
        elif self._is_own(request, SCRIPT):
            if waiting is not None:
                await self.interpreter.resume(InterpreterState.from_plain(waiting), call=call, show=output.add_print)
            else:
                await self.interpreter.run(_own_argument(request, "code"), call=call, show=output.add_print)
        elif request.name not in self.tools:
            # The service has all names: a provider in front of it may have renamed them, and hidden our own.
            close = get_close_matches(request.name[:100], self.tools.names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ToolError(f"there is no tool {request.name[:100]!r}.{hint}")
        else:
            values = read_arguments(request.name, request.arguments)
            args, kwargs = call_arguments(self.tools.get(request.name), values)
            await call(request.name, args, kwargs, show=True)

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
            return _own_argument(request, "summary")
        except ToolError as error:
            return error


class _Counted:
    """Answers the calls of a step, direct ones and those of its scripts, up to a number."""

    def __init__(self, call: CallTool, most: int, made: int = 0) -> None:
        self.made, self.is_over = made, False
        self._call, self._most = call, most

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        if self.made >= self._most:
            self.is_over = True
            raise LimitError(f"The reply made more than {self._most} calls and was stopped.")
        self.made += 1
        try:
            return await self._call(tool, args, kwargs, show=show)
        except Suspend:  # it counts when it is put again
            self.made -= 1
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


def _plan(plan: Planner, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
    """The plan of a write, with its contents as the tool takes them.

    Raises:
        ToolError: there is nothing to write.
    """
    given = {name: value for name, value in args.items() if value is not None}
    content, old = given.pop("content", None), given.pop("old", None)
    if content is None or (given.get("mode") == "replace") != (old is not None):
        wanted = "`old` and `content`" if given.get("mode") == "replace" else "`content`, and `old` for 'replace' only"
        raise ToolError(f"write_file: this mode takes {wanted}", kind="ValueError")
    planned = plan(tool, {**given, "contents": (content,) if old is None else (old, content)}, call)
    return replace(planned, facts=replace(planned.facts, args=args))


def _own_schema(name: str, description: str, argument: str) -> ToolSchema:
    parameters: dict[str, Plain] = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return ToolSchema(name=name, description=description, parameters=parameters)


def _own_argument(request: ToolRequest, name: str) -> str:
    """Return the only argument of a call of one of the transport's own tools.

    Raises:
        ToolError: it is missing, or there are others.
    """
    values = read_arguments(request.name, request.arguments)
    value = values.pop(name, None)
    if not isinstance(value, str) or values:
        raise ToolError(f'{request.name}: takes {{"{name}": "text"}} and nothing else', kind="TypeError")
    return value
