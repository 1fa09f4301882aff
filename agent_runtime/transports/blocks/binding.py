"""Bind a reply's payloads to the writes that take them, before the tool sees the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn

from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.tools.planned import Planned, refused
from agent_runtime.tools.tool import Planner, Tool
from agent_runtime.tools.writing import CHANGED_MEANWHILE, contents_of_call
from agent_runtime.transports.blocks.expected_writes import ExpectedWrite, expected_writes
from agent_runtime.transports.blocks.payload_plan import WRITE
from agent_runtime.transports.blocks.payloads import KeptContents, Payloads
from agent_runtime.workspace.edits import is_whole
from agent_runtime.workspace.patches import hunk_count, with_hunks

Arguments = dict[str, Any]
"""Of a call of `write_file` as a control block makes it, by name, without those that are None."""

_OURS = frozenset({"payload", "hunks"})
"""Arguments that say where the contents are, and that the tool does not know."""


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
