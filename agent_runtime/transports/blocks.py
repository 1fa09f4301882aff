"""The transport of control blocks: a reply is prose, Python that calls tools, payloads and a completion.

`blocks_parser` reads the reply's text. Here its control block runs, and each `write_file` in it takes the next payload
(`Payloads`, `PayloadBinder`). Contents that were not written are kept, so that the model need not send them again
(`KeptContents`). Writes that are sure to follow each other are checked before the first is made (`expected_writes`).
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, Literal, NoReturn, Self

from agent_runtime import prompts
from agent_runtime.core.errors import FormatError, LimitError, ResumeCode, ResumeError, ToolError
from agent_runtime.core.events import Replied, Streamed
from agent_runtime.core.values import CallTool, Plain, ToolAnswer, ToolRequest, ToolResult
from agent_runtime.interpreter.interpreter import Interpreter, require_readable
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState, Suspended
from agent_runtime.policy.policy import CallFacts, RunLimits
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.files import CHANGED_MEANWHILE, contents_of_call
from agent_runtime.tools.tool import Planned, Planner, Registry, Tool, refused
from agent_runtime.transports.blocks_parser import (
    WRITE,
    ExpectedWrite,
    Payload,
    Reply,
    ReplyParser,
    expected_writes,
    same_file,
    unreadable,
)
from agent_runtime.transports.protocol import StepOutput, StepSuspended, read_guide
from agent_runtime.workspace.diffs import is_whole
from agent_runtime.workspace.patches import hunk_count, with_hunks

NO_ACTION = (
    "Your reply held neither a ```codepilot block nor a ```completion, so nothing happened. To act, write a "
    "```codepilot block; if the task is done or cannot be done, end it with a ```completion block that says so."
)

NO_OUTPUT = "[Control block executed with no output.]"
unfit = partial(prompts.unfit, "The step itself is done. Send a corrected ```completion")
_CHAT = "- A reply without control block and completion is an answer in conversation."
_JOB = "- A reply with neither control block nor completion is an error: act, or finish with a completion alone."
_CONTROL = re.compile(r"^ {0,3}(?:```|~~~)+codepilot\b.*", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ {0,3}```(?:completion|markdown|text)?[ \t]*$", re.MULTILINE)
_MOST_KEPT = 50
_MOST_KEPT_CHARS = 4_000_000
Arguments = dict[str, Any]
"""Of a call of `write_file` as a control block makes it, by name, without those that are None."""
_OURS = frozenset({"payload", "hunks"})
"""Arguments that say where the contents are, and that the tool does not know."""


class BlockTransport:
    """Control blocks, and the contents that their writes did not come to write."""

    def __init__(self) -> None:
        self._binder = PayloadBinder()

    def guide(self, tools: str, *, chat: bool) -> str:
        """Return the part of the system prompt about replies and tools; see `Transport.guide`."""
        return Template(read_guide("blocks_guide.md")).substitute(tools=tools, mode=_CHAT if chat else _JOB).strip()

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:  # noqa: ARG002 - the interface of all transports
        """None: the guide declares the tools."""
        return ()

    def words(self, reply: str) -> str:
        """What stands before a control block, without the fences of a completion."""
        return _FENCE.sub("", _CONTROL.sub("", reply))

    def adapt(self, tool: Tool) -> Tool:
        """A tool as control code calls it."""
        return self._binder.adapt(tool)

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> BlockLeg:
        """Begin a leg of a run; see `Transport.open`."""
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=tools.names, stubs=tools.stubs, limits=bounds, enclose=enclose)
        # Somebody else's write_file takes what it writes as an argument.
        payloads = WRITE not in tools or not tools.get(WRITE).foreign
        return BlockLeg(self._binder, interpreter, payloads=payloads)

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that the interpreter that is installed can go on with a block.

        Raises:
            ResumeError: another version took it, or it cannot be read; or it was suspended with another transport.
        """
        if "transport" in calls:
            raise ResumeError(ResumeCode.TRANSPORT, found=calls["transport"], now="blocks")
        require_readable(InterpreterState.from_plain(calls))

    def reset(self) -> None:
        """Forget the contents that were kept."""
        self._binder.reset()


class BlockLeg:
    """Reads replies with control blocks, and remembers which names write that earlier blocks have defined."""

    no_action, no_output, prose_finishes = NO_ACTION, NO_OUTPUT, False
    unfit, unreadable = staticmethod(unfit), staticmethod(unreadable)

    def __init__(self, binder: PayloadBinder, interpreter: Interpreter, *, payloads: bool = True) -> None:
        """Read replies.

        Args:
            binder: gives writes their payloads; the one that the tools were adapted by.
            interpreter: runs control blocks.
            payloads: whether writes take payloads.
        """
        self._binder = binder
        self._interpreter = interpreter
        self._payloads = payloads
        self._writers: frozenset[str] = frozenset()

    def recall(self, replies: Sequence[Replied]) -> list[BlockStep | None]:
        """Read earlier replies again; see `TransportLeg.recall`."""
        self._writers = frozenset()
        taken = list[BlockStep | None]()
        for reply in replies:
            try:
                taken.append(self.read(reply.text, "stop"))
            except FormatError:  # it was not acted on
                taken.append(None)
        return taken

    def read(
        self,
        text: str,
        stop: StopReason,
        requests: Sequence[ToolRequest] = (),  # noqa: ARG002 - the interface of all transports
    ) -> BlockStep:
        """Read a whole reply at once.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        reader = self.reader()
        reader.feed(TextChunk(text=text))
        return reader.finish(stop)

    def reader(self) -> BlockReader:
        """Begin to read the next reply."""
        return BlockReader(self, ReplyParser(known_writers=self._writers, payloads=self._payloads))

    def accept(self, reply: Reply) -> BlockStep:
        """The step of a reply that follows the protocol."""
        self._writers |= reply.writers
        return BlockStep(reply=reply, binder=self._binder, interpreter=self._interpreter)

    def state(self) -> dict[str, Plain]:
        """Which payloads were taken, and which contents are kept."""
        return self._binder.state()

    async def close(self) -> None:
        """End the interpreter; idempotent."""
        await self._interpreter.close()


class BlockReader:
    """Reads one reply with a control block."""

    def __init__(self, leg: BlockLeg, parser: ReplyParser) -> None:
        self._leg = leg
        self._parser = parser

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """None: a control block is text."""
        return ()

    def feed(self, chunk: TextChunk | CallChunk) -> list[Streamed]:
        """Take the next chunk; gives its prose, and the completion of a reply without a control block."""
        return self._shown(self._parser.feed(chunk.text)) if isinstance(chunk, TextChunk) else []

    def flush(self) -> list[Streamed]:
        """The reply is over; gives the text that was held back."""
        return self._shown(self._parser.flush())

    def finish(self, stop: StopReason) -> BlockStep:
        """Judge the whole reply.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        return self._leg.accept(self._parser.finish(stop))

    def _shown(self, texts: Sequence[Streamed]) -> list[Streamed]:
        """Leave out the completion of a reply that makes calls: they have yet to prove it."""
        return [each for each in texts if not (each.completion and self._parser.acts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStep:
    """The control block of one reply, its payloads, and its completion."""

    reply: Reply
    binder: PayloadBinder
    interpreter: Interpreter

    @property
    def acts(self) -> bool:
        """Whether there is a control block."""
        return self.reply.control is not None

    @property
    def contents(self) -> tuple[str, ...]:
        """The payloads' texts."""
        return tuple(payload.text for payload in self.reply.payloads)

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        """None: a block asks by itself."""
        return ()

    @property
    def completion(self) -> str | None:
        """The text for the user."""
        return self.reply.completion

    @property
    def prose(self) -> str:
        """All other text."""
        return self.reply.prose

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Run the control block; see `ReplyStep.run`.

        Raises:
            LimitError: it took fewer payloads than the reply brings.
        """
        control = self.reply.control or ""
        self.binder.begin_step(Payloads(self.reply.payloads), control)
        await self._see(self.interpreter.run(control, call=call, show=output.add_print))

    async def resume(
        self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, output: StepOutput
    ) -> None:
        """Go on in the middle of the block; see `ReplyStep.resume`.

        Raises:
            LimitError: as for `run`.
        """
        self.binder.resume(Payloads(self.reply.payloads), self.reply.control or "", state)
        await self._see(self.interpreter.resume(InterpreterState.from_plain(calls), call=call, show=output.add_print))

    def end(self, *, ok: bool) -> str:
        """Keep the contents that a block which failed did not come to write."""
        return "" if ok else self.binder.keep_unreached()

    async def _see(self, block: Awaitable[None]) -> None:
        try:
            await block
        except Suspended as stop:
            raise StepSuspended(stop.state.to_plain()) from None
        if left := self.binder.left():
            raise LimitError(
                f"{left} payload{'s were' if left > 1 else ' was'} left over: the block made fewer writes than the "
                "reply brings contents."
            )


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
    """Write the next payload(s): 'w' the whole file, 'a' append, 'edit' in place of start_line..end_line,
    'insert' below after_line (0: top), 'multi_edit' one payload per (start, end) of edits, numbers as read;
    'replace' two payloads: old lines (unique), new lines; 'patch' one payload, no path: '*** Begin Patch' with
    Add/Update/Delete File sections, all or nothing. Per step one edit/insert/multi_edit per file. force=True
    writes what was refused; payload=N reuses a refused write's content, but hunks=[3, 8] of a patch take new
    ones. Returns the new version.

    This is the declaration only: a call of it is planned by `PayloadBinder`.
    """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
    raise NotImplementedError


class PayloadBinder:
    """Gives each write of a step its contents, and keeps those that were not written.

    At the first write of a block all that are sure to follow it are planned, on top of each other. If one cannot be
    made, none is; the plans of the others are used when their calls come, unless a file has changed by then.
    """

    def __init__(self) -> None:
        self._kept = KeptContents()
        self.begin_step(Payloads(), "")

    def adapt(self, tool: Tool) -> Tool:
        """A tool as control code calls it: `write_file` takes its contents from the payloads."""
        if tool.name != WRITE or tool.planner is None:
            return tool
        return replace(tool, func=write_file, planner=partial(self._plan, tool.planner))

    def reset(self) -> None:
        """Forget the contents that were kept."""
        self._kept = KeptContents()
        self.begin_step(Payloads(), "")

    def begin_step(self, payloads: Payloads, control: str) -> None:
        """Take over a reply's payloads.

        Args:
            payloads: the contents that the reply brings.
            control: its control block, whose writes are all checked before the first is made where they can be told.
        """
        expected = expected_writes(control)
        self._payloads = payloads
        self._expected = expected if sum(each.payloads for each in expected) == payloads.left() else ()
        self._certain = [each for each in self._expected if each.certain]
        self._looked_ahead = False
        self._ahead: list[tuple[Arguments, Planned]] = []
        self._waiting: tuple[str, str] | None = None
        self._held: tuple[str, str] | None = None

    def state(self) -> dict[str, Plain]:
        """Where the step stands; see `resume`. A call that was planned and waits counts as not made."""
        return {
            "taken": self._payloads.taken,
            "kept": self._kept.to_plain(),
            "tried_ahead": self._looked_ahead,
            "promise": [*self._waiting] if self._waiting else None,
        }

    def resume(self, payloads: Payloads, control: str, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a step. The call that waited is planned again, and must come to the same.

        Args:
            payloads: the reply's, from the first on.
            control: its control block.
            state: what `state` gave when the step was paused.

        Raises:
            ValueError: more payloads were taken than the reply has.
        """
        self.begin_step(payloads, control)
        payloads.skip(state["taken"])
        self._kept = KeptContents.from_plain(state["kept"])
        self._looked_ahead = state["tried_ahead"]
        if state["promise"]:
            call, digest = state["promise"]
            self._held = self._waiting = (call, digest)

    def left(self) -> int:
        """How many payloads no call has taken."""
        return self._payloads.left()

    def keep_unreached(self) -> str:
        """Keep what a block that failed did not come to write; gives what the model should know of it."""
        ahead = self._payloads.ahead()
        left, unreached = len(ahead), list[tuple[ExpectedWrite, tuple[str, ...]]]()
        for write in reversed(self._expected):
            if write.payloads and write.payloads <= left:
                if "hunks" not in write.arguments:  # the patch that these correct is kept already
                    unreached.append((write, ahead[left - write.payloads : left]))
                left -= write.payloads
        told = [f"payload={self._kept.keep(contents)} for {each.call}" for each, contents in reversed(unreached)]
        return f"[not reached; the contents are kept: {'; '.join(told)}]" if told else ""

    def _plan(self, plan: Planner, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
        """The plan of a write with its contents; these are taken when it is made or denied."""
        given = {name: value for name, value in args.items() if value is not None}
        made = json.dumps({"path": "", "mode": "w", "force": False} | given, sort_keys=True)
        held, self._held = self._held, None
        try:
            planned = self._planned(lambda bound: plan(tool, bound, call), given)
        except ToolError as error:
            planned = refused(CallFacts(tool=tool, args=args, writes=True), error)
        if held is not None and held[0] == made and held[1] != planned.digest and not planned.refusal:
            planned = refused(planned.facts, ToolError(CHANGED_MEANWHILE))
        self._waiting = (made, planned.digest)
        return replace(
            planned,
            facts=replace(planned.facts, args=args),
            apply=partial(self._apply, given, planned),
            declined=partial(self._decline, given),
        )

    def _planned(self, plan: Callable[[Arguments], Planned], given: Arguments) -> Planned:
        payloads = self._payloads.copy()
        bound = self._bound(given, payloads)
        if self._ahead:
            expected, planned = self._ahead.pop(0)
            if expected == bound and planned.is_current():
                return planned
            self._ahead.clear()
        planned = plan(bound)
        if self._looked_ahead or planned.refusal:
            return planned
        return self._look_ahead(planned, self._certain[1:], payloads)

    def _look_ahead(self, first: Planned, following: list[ExpectedWrite], payloads: Payloads) -> Planned:
        """Plan the writes that are sure to follow the first; one that cannot be made refuses the first."""
        planned: Planned | None = first
        for write in following:
            bound = Arguments()
            try:
                bound = self._bound(write.arguments, payloads)
                planned = planned.follow(bound) if planned is not None and planned.follow is not None else None
            except ToolError as error:
                planned = refused(first.facts, error)
            if planned is None:
                break
            if planned.refusal:
                told = _refusal_of(write, planned.refusal)
                return replace(first, refusal=told, digest="", apply=partial(_refuse, write, planned))
            self._ahead.append((bound, planned))
        return first

    def _bound(self, given: Mapping[str, Any], payloads: Payloads) -> Arguments:
        """The arguments of a write as the tool takes them: with kept contents, or the next payloads, which are taken.

        Raises:
            ToolError: nothing is kept under that number, or there are not enough payloads.
        """
        count, path = contents_of_call(given), "" if given.get("mode") == "patch" else given.get("path", "")
        if "payload" in given:
            contents = self._kept.get(given["payload"], count)
        else:
            contents = tuple(payloads.take(path) for _ in range(count))
        if "hunks" in given:
            numbers = given["hunks"]
            sound = (
                isinstance(numbers, list | tuple) and all(map(is_whole, numbers)) and len({*numbers}) == len(numbers)
            )
            if not sound or "payload" not in given or given.get("mode") != "patch":
                told = "hunks: takes numbers of hunks, each once, of a patch that was refused (mode='patch', payload=N)"
                raise ToolError(told, kind="ValueError")
            contents = (with_hunks(contents[0], {number: payloads.take("") for number in numbers}),)
        return {**{name: value for name, value in given.items() if name not in _OURS}, "contents": contents}

    def _apply(self, given: Arguments, planned: Planned) -> ToolResult:
        self._waiting = None
        contents = self._bound(given, self._payloads)["contents"]
        self._looked_ahead = len(self._certain) > 1
        try:
            result: ToolResult = planned.apply()
        except ToolError as error:
            told = f"{error}\n{self._keep(given, contents)}"
            raise ToolError(told, kind=error.kind, value=error.value) from error
        return result

    def _decline(self, given: Arguments) -> str:
        """Take what a write that is denied would have written, so that the next write does not get it."""
        self._waiting = None
        try:
            contents = self._bound(given, self._payloads)["contents"]
        except ToolError:  # it could not have been made anyway
            return ""
        return self._keep(given, contents)

    def _keep(self, given: Arguments, contents: tuple[str, ...]) -> str:
        """Keep what was not written, and say so."""
        number = self._kept.keep(contents, given.get("payload"))
        several = given.get("mode") == "patch" and hunk_count(contents[0]) > 1
        told = " To replace some of its hunks, add hunks=[their numbers] and a payload for each." if several else ""
        return f"(The content is kept: payload={number} stands for it in a repeated call.{told})"


def _refusal_of(write: ExpectedWrite, why: str) -> str:
    return f"Nothing was written: a later write of this block, line {write.line}, {write.call}, cannot be made: {why}"


def _refuse(write: ExpectedWrite, planned: Planned) -> NoReturn:
    try:
        planned.apply()
    except ToolError as error:
        raise ToolError(_refusal_of(write, str(error)), kind=error.kind) from error
    raise AssertionError("a plan that is refused raises")


class Payloads:
    """One step's payloads; the loop makes one of these for each reply."""

    def __init__(self, payloads: Iterable[Payload] = ()) -> None:
        self._payloads = tuple(payloads)
        self._taken = 0

    def take(self, path: str) -> str:
        """The next payload's text, for the file `path`; an empty path leaves the name on the fence unchecked.

        Raises:
            ToolError: there is none left, or it names another file; nothing is taken then.
        """
        number = self._taken + 1
        if number > len(self._payloads):
            raise ToolError(
                f"write_file({path!r}) needs payload {number}, but the reply has {len(self._payloads)}; put one fenced "
                "block for each write below the codepilot block, in the order of the calls",
                kind="ValueError",
            )
        payload = self._payloads[self._taken]
        if path and payload.filename is not None and not same_file(payload.filename, path):
            raise ToolError(
                f"payload {number} says filename={payload.filename}, but its turn came with write_file({path!r}); put "
                "the payloads in the order of the calls, or leave filename= out",
                kind="ValueError",
            )
        self._taken = number
        return payload.text

    def copy(self) -> Payloads:
        """The same payloads, to try something out on."""
        twin = Payloads(self._payloads)
        twin._taken = self._taken
        return twin

    @property
    def taken(self) -> int:
        """How many payloads calls have taken."""
        return self._taken

    def skip(self, count: int) -> None:
        """Count payloads as taken that were taken before a run was paused.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= count <= len(self._payloads):
            raise ValueError(f"{count} payloads were taken, but the reply has {len(self._payloads)}")
        self._taken = count

    def left(self) -> int:
        """How many payloads no call has taken."""
        return len(self._payloads) - self._taken

    def ahead(self) -> tuple[str, ...]:
        """The texts that no call has taken."""
        return tuple(payload.text for payload in self._payloads[self._taken :])


class KeptContents:
    """Contents that were sent but not written, by number, so that they need not be sent again.

    The oldest go first when there are more than 50, or more than 4,000,000 characters of them.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._last = 0

    def keep(self, contents: tuple[str, ...], number: int | None = None) -> int:
        """Keep the contents of one write; the answer is their number.

        Args:
            contents: of the write.
            number: of other contents, which these replace; None for a number of their own.
        """
        if number is None:
            self._last = number = self._last + 1
        self._kept[number] = contents
        self._kept.move_to_end(number)
        chars = sum(len(text) for kept in self._kept.values() for text in kept)
        while len(self._kept) > 1 and (len(self._kept) > _MOST_KEPT or chars > _MOST_KEPT_CHARS):
            chars -= sum(map(len, self._kept.popitem(last=False)[1]))
        return number

    def get(self, number: object, count: int) -> tuple[str, ...]:
        """The contents of a number.

        Raises:
            ToolError: there are none under it, or not as many as the write takes.
        """
        if not isinstance(number, int) or isinstance(number, bool) or number not in self._kept:
            numbers = f"kept are {', '.join(map(str, self._kept))}" if self._kept else "nothing is kept"
            raise ToolError(
                f"payload={number!r}: must be the number of a write that was refused; {numbers}", kind="ValueError"
            )
        contents = self._kept[number]
        if len(contents) != count:
            raise ToolError(
                f"payload={number}: holds {len(contents)} content{'s' if len(contents) != 1 else ''}, but this write "
                f"takes {count}; repeat it in the mode in which it was refused",
                kind="ValueError",
            )
        return contents

    def to_plain(self) -> dict[str, Plain]:
        """All of them, to be kept while a run is paused."""
        return {"last": self._last, "kept": [[number, *contents] for number, contents in self._kept.items()]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What `to_plain` gave."""
        kept = cls()
        kept._last = plain["last"]
        kept._kept = OrderedDict((number, tuple(contents)) for number, *contents in plain["kept"])
        return kept
