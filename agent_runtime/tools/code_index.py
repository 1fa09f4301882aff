"""The tools that query the code index: `semantic_search`, and the traces of callers and callees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, TypeVar

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.index.index import MAX_CALLS, Call, WorkspaceIndex
from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools.tool import Planned, of_call

T = TypeVar("T")

_READY_SECONDS = 60.0
_MOST_FOUND = 50
_DEEPEST = 4
_MOST_LISTED = 200
_MODES = ("search", "trace_callers", "trace_callees", "trace_graph")


class IndexTools:
    """`semantic_search` and the traces on one workspace."""

    value_types: ClassVar[dict[str, str]] = {
        "semantic_search": "list[Any]",
        "trace_callers": "list[Any]",
        "trace_callees": "list[Any]",
        "trace_graph": "list[Any]",
    }
    labels: ClassVar[dict[str, str]] = {
        "semantic_search": "Searching for {query}",
        "trace_callers": "Looking for the callers of {symbol}",
        "trace_callees": "Looking for what {symbol} calls",
        "trace_graph": "Looking for what depends on {symbol}",
    }
    stub_types: ClassVar[str] = ""

    def __init__(self, index: WorkspaceIndex) -> None:
        """Ask `index`."""
        self._index = index

    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
        """Check a call; see `Tool.plan`.

        Raises:
            ToolError: a wrong argument.
        """
        for name in ("query", "symbol"):
            if not str(args.get(name, "_")).strip():
                raise ToolError(f"{name} must not be empty", kind="ValueError")
        if args.get("mode", "search") not in _MODES:
            raise ToolError(f"mode={args['mode']!r}: must be one of {', '.join(_MODES)}", kind="ValueError")
        for name, most in (("top_k", _MOST_FOUND), ("depth", _DEEPEST)):
            if not 1 <= args.get(name, 1) <= most:
                raise ToolError(f"{name}={args[name]}: must be 1 to {most}", kind="ValueError")
        return Planned(facts=CallFacts(tool=tool, args=args), preview=partial(of_call, tool, args), apply=call)

    async def semantic_search(self, query: str, mode: str = "search", depth: int = 2, top_k: int = 5) -> ToolResult:
        """Definitions by what they do.

        Raises:
            ToolError: there is no index.
        """
        if mode != "search":
            return await (self.trace_graph(query, depth) if mode == "trace_graph" else getattr(self, mode)(query))
        found = await self._asked(partial(self._index.search, query, top_k))
        lines = [f"{each.path}:{each.first}-{each.last} {each.kind} {each.qualified}" for each in found]
        head = f"[semantic_search] {len(found)} definition(s), best first:"
        plain: list[Plain] = [
            {"path": each.path, "symbol": each.qualified, "kind": each.kind, "first": each.first, "last": each.last}
            for each in found
        ]
        return self._result([head, *lines], plain)

    async def trace_callers(self, symbol: str) -> ToolResult:
        """Calls of 'Class.f' or 'path::Class.f'.

        Raises:
            ToolError: there is no index, or nothing has that name.
        """
        calls = await self._calls(symbol, self._index.callers)
        sure = sum(call.sure for call in calls)
        lines = [f"[trace_callers] {symbol}: {_number(calls)} call(s), {sure} of them sure:"]
        return self._result([*lines, *_by_file(calls, _around)], [_called(each) for each in calls])

    async def trace_callees(self, symbol: str) -> ToolResult:
        """Its calls.

        Raises:
            ToolError: there is no index, or nothing has that name.
        """
        calls = await self._calls(symbol, self._index.callees)
        lines = [f"[trace_callees] {symbol}: {_number(calls)} call(s):"]
        return self._result([*lines, *_by_file(calls, lambda call: call.callee)], [_called(each) for each in calls])

    async def trace_graph(self, symbol: str, depth: int = 2) -> ToolResult:
        """Both.

        Raises:
            ToolError: there is no index, or nothing has that name.
        """
        edges = await self._asked(partial(self._index.graph, symbol, depth))
        if not edges:
            await self._require(symbol)
        lines = [f"[trace_graph] {symbol}, to depth {depth}, {_number(edges)} call(s):"]
        for way in ("callers", "callees"):
            lines += [
                f"{way}:",
                *(
                    f"{'  ' * edge.depth}{edge.path}:{edge.line} {edge.name}{'' if edge.sure else ' (maybe)'}"
                    for edge in edges
                    if edge.way == way
                ),
            ]
        return self._result(lines, [asdict(edge) for edge in edges])

    async def _calls(self, symbol: str, ask: Callable[[str], Awaitable[list[Call]]]) -> list[Call]:
        calls = await self._asked(partial(ask, symbol))
        if not calls:
            await self._require(symbol)
        return calls

    async def _asked(self, ask: Callable[[], Awaitable[list[T]]]) -> list[T]:
        """An answer of the index as the workspace is now.

        Raises:
            ToolError: there is no index, or it has no answer within its bounds.
        """
        if not await self._index.wait_ready(_READY_SECONDS):
            why = self._index.state.problem or "the code index is still being built; try again in a while"
            raise ToolError(f"{why}. Use find()", kind="TimeoutError")
        found = await ask()
        if self._index.failure:
            raise ToolError(f"the code index gave no answer: {self._index.failure}. Use find()", kind="TimeoutError")
        return found

    async def _require(self, symbol: str) -> None:
        """Tell that nothing calls a symbol from that there is none.

        Raises:
            ToolError: there is none.
        """
        if not await self._asked(partial(self._index.find_definitions, symbol)):
            raise ToolError(f"no definition is called {symbol!r}; use find() or semantic_search()", kind="ValueError")

    def _result(self, lines: list[str], value: list[Plain]) -> ToolResult:
        shown = lines[:_MOST_LISTED]
        if len(lines) > len(shown):
            shown.append(f"… {len(lines) - len(shown)} more line(s)")
        if self._index.state.problem:
            shown.append(f"[{self._index.state.problem}]")
        return ToolResult(value=value, text="\n".join(shown))


def _called(call: Call) -> dict[str, Plain]:
    caller = call.caller.qualified if call.caller else ""
    return {"path": call.path, "line": call.line, "caller": caller, "callee": call.callee, "sure": call.sure}


def _number(found: Sequence[object]) -> str:
    """How many there are, as far as the index tells."""
    return f"{len(found)}{' or more' if len(found) >= MAX_CALLS else ''}"


def _around(call: Call) -> str:
    return f"in {call.caller.qualified}" if call.caller else "at the top of the file"


def _by_file(calls: list[Call], told: Callable[[Call], str]) -> list[str]:
    lines: list[str] = []
    path = ""
    for call in calls:
        if call.path != path:
            path = call.path
            lines.append(path)
        lines.append(f"  {call.line} {told(call)}{'' if call.sure else ' (maybe)'}")
    return lines
