"""Transport with control blocks: a reply is prose, Python that calls tools, payloads and a completion."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, Literal, NoReturn, Self

from typing_extensions import override

from agent_runtime.core.errors import FormatCode, LimitError, ToolError
from agent_runtime.core.events import Streamed
from agent_runtime.core.values import CallTool, Plain, ToolAnswer, ToolRequest, ToolResult
from agent_runtime.interpreter.source import InterpreterState, Suspended
from agent_runtime.policy.policy import CallFacts, RunLimits
from agent_runtime.providers.protocol import CallChunk, Piece, ReplyEnd, StopReason
from agent_runtime.tools.files import CHANGED_MEANWHILE, content_count
from agent_runtime.tools.tool import CallPlan, Planner, Registry, Tool, refusal_plan
from agent_runtime.transports.blocks_parser import (
    WRITE,
    ExpectedWrite,
    Payload,
    ReplyParser,
    expected_writes,
    same_file,
)
from agent_runtime.transports.transport import ReplyState, StepSuspended, SuspendedCalls, Transport, read_guide
from agent_runtime.workspace.diffs import is_integer
from agent_runtime.workspace.patches import count_hunks, replace_hunks

NO_ACTION = (
    "Your reply held neither a ```codepilot block nor a ```completion, so nothing happened. To act, write a "
    "```codepilot block; if the task is done or cannot be done, end it with a ```completion block that says so."
)
_FAULTS: dict[FormatCode, str] = {
    "truncated": "was cut off",
    "payload_count": "held more or fewer payloads than its calls need",
    "multiple_control": "held several control blocks",
    "completion_first": "ended the task before it acted",
    "control_syntax": "held a control block that is not valid Python",
    "ambiguous": "could be read in two ways",
    "filename_mismatch": "named other files than its calls",
    "empty": "neither acted nor ended the task",
}
_CHAT = "- A reply with neither block nor completion is an answer."
_JOB = "- A reply with neither block nor completion is an error."
_CONTROL = re.compile(r"^ {0,3}(?:```|~~~)+codepilot\b.*", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ {0,3}```(?:completion|markdown|text)?[ \t]*$", re.MULTILINE)
_MAX_STORED = 50
_MAX_STORED_CHARS = 4_000_000
Arguments = dict[str, Any]
"""Arguments of a `write_file` call by name, without None."""
_SELECTORS = frozenset({"payload", "hunks"})
"""Arguments that select contents; the tool does not take them."""


@dataclass(slots=True, kw_only=True)
class BlockReply(ReplyState):
    """State of a reply with a control block."""

    parser: ReplyParser
    control: str = ""
    payloads: tuple[Payload, ...] = ()


class BlockTransport(Transport[BlockReply]):
    """Control blocks, with the stored contents of failed writes."""

    name = "blocks"
    no_action, no_output = NO_ACTION, "[Control block executed with no output.]"
    correction = "The step itself is done. Send a corrected ```completion"

    def __init__(self) -> None:
        self._binder = PayloadBinder()

    @override
    def render_guide(self, tools: str, *, chat: bool) -> str:
        return Template(read_guide("blocks_guide.md")).substitute(tools=tools, mode=_CHAT if chat else _JOB).strip()

    @override
    def adapt_tool(self, tool: Tool) -> Tool:
        return self._binder.adapt(tool)

    @override
    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> Self:
        self._writers: frozenset[str] = frozenset()  # names that write when later replies use them
        # A registered write_file takes its contents as an argument.
        self._takes_payloads = WRITE not in tools or not tools.get(WRITE).foreign
        return super().open(tools, limits, enclose)

    @override
    def start_reply(self) -> BlockReply:
        return BlockReply(parser=ReplyParser(known_writers=self._writers, payloads=self._takes_payloads))

    @override
    def feed_reply(self, reply: BlockReply, chunk: Piece) -> Sequence[Streamed]:
        if isinstance(chunk, CallChunk):
            return []
        streamed = reply.parser.flush() if isinstance(chunk, ReplyEnd) else reply.parser.feed(chunk.text)
        return [text for text in streamed if not (text.completion and reply.parser.has_control)]

    @override
    def parse_reply(self, reply: BlockReply, stop: StopReason) -> None:
        parsed = reply.parser.finish(stop)
        self._writers |= parsed.writers
        reply.prose, reply.completion, reply.payloads = parsed.prose, parsed.completion, parsed.payloads
        reply.has_calls, reply.control = parsed.control is not None, parsed.control or ""
        reply.contents = tuple(payload.text for payload in parsed.payloads)

    @override
    async def run_calls(
        self,
        reply: BlockReply,
        *,
        call: CallTool,
        show: Callable[[str], None],
        answer: Callable[[ToolRequest, str], ToolAnswer],
        suspended: SuspendedCalls | None = None,
    ) -> None:
        payloads = Payloads(reply.payloads)
        if suspended is None:
            self._binder.begin_step(payloads, reply.control)
            block = self._interpreter.run(reply.control, call=call, show=show)
        else:
            self._binder.resume(payloads, reply.control, suspended.contents)
            block = self._interpreter.resume(InterpreterState.from_plain(suspended.calls), call=call, show=show)
        try:
            await block
        except Suspended as stop:
            state = SuspendedCalls(calls=stop.state.to_plain(), contents=self._binder.state())
            raise StepSuspended(state) from None
        if unused := payloads.unused():
            raise LimitError(
                f"{unused} payload{'s were' if unused > 1 else ' was'} left over: the block made fewer writes than the "
                "reply brings contents."
            )

    @override
    def store_unreached(self) -> str:
        return self._binder.store_unreached()

    @override
    def explain_format_errors(self, code: FormatCode, count: int) -> str:
        return (
            f"{count} replies of the model in a row did not have the expected form; the last one {_FAULTS[code]}. "
            "Try again, or choose another model."
        )

    @override
    def extract_prose(self, reply: str) -> str:
        return _FENCE.sub("", _CONTROL.sub("", reply))

    @override
    def reset(self) -> None:
        self._binder.reset()


def write_file(  # noqa: PLR0917 - the signature that users of the first CodePilot know
    path: str = "",
    start_line: int | None = None,
    end_line: int | None = None,
    after_line: int | None = None,
    mode: Literal["w", "a", "edit", "insert", "multi_edit", "replace", "patch"] = "w",
    edits: list[tuple[int, int]] | None = None,
    version: str | None = None,
    force: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
    payload: int | None = None,
    hunks: list[int] | None = None,
) -> NoReturn:
    """Write the next content: 'w' whole file, 'a' append, 'edit' in place of start_line..end_line, 'insert' below
    after_line, numbers as read; 'replace' two: old lines, new lines; 'patch' in '*** Begin Patch' format, no path. One
    edit or insert per file and step.

    after_line=0 is the top. The old lines must be unique in the file. 'multi_edit' takes one content per (start, end)
    of edits; it counts as the edit of its file. A patch has Add/Update/Delete File sections, and is applied whole or
    not at all. force=True writes what was refused for its syntax or a placeholder. version: refuse if the file has
    another one. payload=N takes the content of a write that was refused, not a new one; of its hunks, those in
    hunks=[3, 8] take new ones. Returns the new version.
    """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
    raise NotImplementedError  # only declared here: `PayloadBinder` plans its calls


class PayloadBinder:
    """Contents of a step's writes.

    The first write of a block plans all certain writes after it. If one is impossible, none is made.
    """

    def __init__(self) -> None:
        self._stored = ContentStore()
        self.begin_step(Payloads(), "")

    def adapt(self, tool: Tool) -> Tool:
        """Replace the signature of `write_file`, which takes contents from payloads."""
        if tool.name != WRITE or tool.planner is None:
            return tool
        hidden = ("after_line", "edits", "version", "force", "payload", "hunks")
        return replace(tool, func=write_file, planner=partial(self._plan, tool.planner), minor=hidden)

    def reset(self) -> None:
        self._stored = ContentStore()
        self.begin_step(Payloads(), "")

    def begin_step(self, payloads: Payloads, control: str) -> None:
        expected = expected_writes(control)
        self._payloads = payloads
        self._expected = expected if sum(write.payloads for write in expected) == payloads.unused() else ()
        self._certain = [write for write in self._expected if write.certain]
        self._is_planned = False
        self._plans: list[tuple[Arguments, CallPlan]] = []
        self._pending: tuple[str, str] | None = None
        self._suspended: tuple[str, str] | None = None

    def state(self) -> dict[str, Plain]:
        return {
            "taken": self._payloads.used,
            "kept": self._stored.to_plain(),
            "tried_ahead": self._is_planned,
            "promise": [*self._pending] if self._pending else None,
        }

    def resume(self, payloads: Payloads, control: str, state: Mapping[str, Any]) -> None:
        """Continue a step. The suspended call is planned again and must have the same effect."""
        self.begin_step(payloads, control)
        payloads.skip(state["taken"])
        self._stored = ContentStore.from_plain(state["kept"])
        self._is_planned = state["tried_ahead"]
        if state["promise"]:
            call, digest = state["promise"]
            self._suspended = self._pending = (call, digest)

    def store_unreached(self) -> str:
        """Store contents of unreached writes and return a note."""
        texts = self._payloads.unused_texts()
        end, unreached = len(texts), list[tuple[ExpectedWrite, tuple[str, ...]]]()
        for write in reversed(self._expected):
            if write.payloads and write.payloads <= end:
                if "hunks" not in write.arguments:  # the patch that these correct is already stored
                    unreached.append((write, texts[end - write.payloads : end]))
                end -= write.payloads
        notes = [f"payload={self._stored.add(contents)} for {each.call}" for each, contents in reversed(unreached)]
        return f"[not reached; the contents are kept: {'; '.join(notes)}]" if notes else ""

    def _plan(self, plan: Planner, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        values = {name: value for name, value in args.items() if value is not None}
        key = json.dumps({"path": "", "mode": "w", "force": False} | values, sort_keys=True)
        suspended, self._suspended = self._suspended, None
        try:
            planned = self._plan_bound(lambda bound: plan(tool, bound, call), values)
        except ToolError as error:
            planned = refusal_plan(CallFacts(tool=tool, args=args, writes=True), error)
        if suspended is not None and suspended[0] == key and suspended[1] != planned.digest and not planned.refusal:
            planned = refusal_plan(planned.facts, ToolError(CHANGED_MEANWHILE))
        self._pending = (key, planned.digest)
        return replace(
            planned,
            facts=replace(planned.facts, args=args),
            apply=partial(self._apply, values, planned),
            on_decline=partial(self._decline, values),
        )

    def _plan_bound(self, plan: Callable[[Arguments], CallPlan], values: Arguments) -> CallPlan:
        payloads = self._payloads.copy()
        bound = self._bind(values, payloads)
        if self._plans:
            expected, planned = self._plans.pop(0)
            if expected == bound and planned.is_current():
                return planned
            self._plans.clear()
        planned = plan(bound)
        if self._is_planned or planned.refusal:
            return planned
        return self._plan_ahead(planned, self._certain[1:], payloads)

    def _plan_ahead(self, first: CallPlan, following: list[ExpectedWrite], payloads: Payloads) -> CallPlan:
        """Plan the certain writes after the first; an impossible one refuses the first."""
        planned: CallPlan | None = first
        for write in following:
            bound = Arguments()
            try:
                bound = self._bind(write.arguments, payloads)
                planned = planned.plan_next(bound) if planned is not None and planned.plan_next is not None else None
            except ToolError as error:
                planned = refusal_plan(first.facts, error)
            if planned is None:
                break
            if planned.refusal:
                refusal = _refusal_of(write, planned.refusal)
                return replace(first, refusal=refusal, digest="", apply=partial(_refuse, write, planned))
            self._plans.append((bound, planned))
        return first

    def _bind(self, values: Mapping[str, Any], payloads: Payloads) -> Arguments:
        count, path = content_count(values), "" if values.get("mode") == "patch" else values.get("path", "")
        if "payload" in values:
            contents = self._stored.get(values["payload"], count)
        else:
            contents = tuple(payloads.take(path) for _ in range(count))
        if "hunks" in values:
            numbers = values["hunks"]
            is_valid = (
                isinstance(numbers, list | tuple) and all(map(is_integer, numbers)) and len({*numbers}) == len(numbers)
            )
            if not is_valid or "payload" not in values or values.get("mode") != "patch":
                error = (
                    "hunks: takes numbers of hunks, each once, of a patch that was refused (mode='patch', payload=N)"
                )
                raise ToolError(error, kind="ValueError")
            contents = (replace_hunks(contents[0], {number: payloads.take("") for number in numbers}),)
        return {**{name: value for name, value in values.items() if name not in _SELECTORS}, "contents": contents}

    def _apply(self, values: Arguments, planned: CallPlan) -> ToolResult:
        self._pending = None
        contents = self._bind(values, self._payloads)["contents"]
        self._is_planned = len(self._certain) > 1
        try:
            result: ToolResult = planned.apply()
        except ToolError as error:
            text = f"{error}\n{self._store(values, contents)}"
            raise ToolError(text, kind=error.kind, value=error.value) from error
        return result

    def _decline(self, values: Arguments) -> str:
        """Take the payloads of a denied write from the next one."""
        self._pending = None
        try:
            contents = self._bind(values, self._payloads)["contents"]
        except ToolError:  # it was impossible anyway
            return ""
        return self._store(values, contents)

    def _store(self, values: Arguments, contents: tuple[str, ...]) -> str:
        number = self._stored.add(contents, values.get("payload"))
        several = values.get("mode") == "patch" and count_hunks(contents[0]) > 1
        hint = " To replace some of its hunks, add hunks=[their numbers] and a payload for each." if several else ""
        return f"(The content is kept: payload={number} stands for it in a repeated call.{hint})"


def _refusal_of(write: ExpectedWrite, error: str) -> str:
    return f"Nothing was written: a later write of this block, line {write.line}, {write.call}, cannot be made: {error}"


def _refuse(write: ExpectedWrite, planned: CallPlan) -> NoReturn:
    try:
        planned.apply()
    except ToolError as error:
        raise ToolError(_refusal_of(write, str(error)), kind=error.kind) from error
    raise AssertionError("a plan that is refused raises")


class Payloads:
    def __init__(self, payloads: Iterable[Payload] = ()) -> None:
        self._payloads = tuple(payloads)
        self._used = 0

    def take(self, path: str) -> str:
        """Return the next payload; an empty path skips the check of its file name."""
        number = self._used + 1
        if number > len(self._payloads):
            raise ToolError(
                f"write_file({path!r}) needs payload {number}, but the reply has {len(self._payloads)}; put one fenced "
                "block for each write below the codepilot block, in the order of the calls",
                kind="ValueError",
            )
        payload = self._payloads[self._used]
        if path and payload.filename is not None and not same_file(payload.filename, path):
            raise ToolError(
                f"payload {number} says filename={payload.filename}, but its turn came with write_file({path!r}); put "
                "the payloads in the order of the calls, or leave filename= out",
                kind="ValueError",
            )
        self._used = number
        return payload.text

    def copy(self) -> Payloads:
        copy = Payloads(self._payloads)
        copy._used = self._used
        return copy

    @property
    def used(self) -> int:
        return self._used

    def skip(self, count: int) -> None:
        if not 0 <= count <= len(self._payloads):
            raise ValueError(f"{count} payloads were taken, but the reply has {len(self._payloads)}")
        self._used = count

    def unused(self) -> int:
        return len(self._payloads) - self._used

    def unused_texts(self) -> tuple[str, ...]:
        return tuple(payload.text for payload in self._payloads[self._used :])


class ContentStore:
    """Unwritten contents by number: the latest 50, up to 4,000,000 characters."""

    def __init__(self) -> None:
        self._contents: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._last = 0

    def add(self, contents: tuple[str, ...], number: int | None = None) -> int:
        """Store the contents of a write, under a new number by default, and return the number."""
        if number is None:
            self._last = number = self._last + 1
        self._contents[number] = contents
        self._contents.move_to_end(number)
        chars = sum(len(text) for texts in self._contents.values() for text in texts)
        while len(self._contents) > 1 and (len(self._contents) > _MAX_STORED or chars > _MAX_STORED_CHARS):
            chars -= sum(map(len, self._contents.popitem(last=False)[1]))
        return number

    def get(self, number: object, count: int) -> tuple[str, ...]:
        if not isinstance(number, int) or isinstance(number, bool) or number not in self._contents:
            numbers = f"kept are {', '.join(map(str, self._contents))}" if self._contents else "nothing is kept"
            raise ToolError(
                f"payload={number!r}: must be the number of a write that was refused; {numbers}", kind="ValueError"
            )
        contents = self._contents[number]
        if len(contents) != count:
            raise ToolError(
                f"payload={number}: holds {len(contents)} content{'s' if len(contents) != 1 else ''}, but this write "
                f"takes {count}; repeat it in the mode in which it was refused",
                kind="ValueError",
            )
        return contents

    def to_plain(self) -> dict[str, Plain]:
        return {"last": self._last, "kept": [[number, *contents] for number, contents in self._contents.items()]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        store = cls()
        store._last = plain["last"]
        store._contents = OrderedDict((number, tuple(contents)) for number, *contents in plain["kept"])
        return store
