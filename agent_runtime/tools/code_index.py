"""Tools of the code index: `semantic_search` and the call traces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.index.index import MAX_CALLS, Call, WorkspaceIndex
from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools.tool import CallPlan, ToolFamily, preview_call

T = TypeVar("T")

_READY_SECONDS = 60.0
_MAX_RESULTS = 50
_MAX_DEPTH = 4
_MAX_LISTED = 200
_MODES = ("search", "trace_callers", "trace_callees", "trace_graph")


class IndexTools(ToolFamily):
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

    minor_parameters: ClassVar[dict[str, tuple[str, ...]]] = {
        "semantic_search": ("mode", "depth", "top_k"),
        "trace_graph": ("depth",),
    }
    briefs: ClassVar[dict[str, str]] = dict.fromkeys(_MODES[1:], "Trace calls of 'Class.f'.")

    def __init__(self, index: WorkspaceIndex) -> None:
        self._index = index

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        """Validate a call; see `Tool.plan`."""
        for name in ("query", "symbol"):
            if not str(args.get(name, "_")).strip():
                raise ToolError(f"{name} must not be empty", kind="ValueError")
        if args.get("mode", "search") not in _MODES:
            raise ToolError(f"mode={args['mode']!r}: must be one of {', '.join(_MODES)}", kind="ValueError")
        for name, maximum in (("top_k", _MAX_RESULTS), ("depth", _MAX_DEPTH)):
            if not 1 <= args.get(name, 1) <= maximum:
                raise ToolError(f"{name}={args[name]}: must be 1 to {maximum}", kind="ValueError")
        return CallPlan(facts=CallFacts(tool=tool, args=args), preview=partial(preview_call, tool, args), apply=call)

    async def semantic_search(self, query: str, mode: str = "search", depth: int = 2, top_k: int = 5) -> ToolResult:
        """Definitions by what they do.

        top_k: at most so many. mode: "trace_callers", "trace_callees" or "trace_graph" is the tool of that name.
        """
        if mode != "search":
            return await (self.trace_graph(query, depth) if mode == "trace_graph" else getattr(self, mode)(query))
        hits = await self._query(partial(self._index.search, query, top_k))
        lines = [f"{hit.path}:{hit.first}-{hit.last} {hit.kind} {hit.qualified}" for hit in hits]
        head = f"[semantic_search] {len(hits)} definition(s), best first:"
        plain: list[Plain] = [
            {"path": hit.path, "symbol": hit.qualified, "kind": hit.kind, "first": hit.first, "last": hit.last}
            for hit in hits
        ]
        return self._result([head, *lines], plain)

    async def trace_callers(self, symbol: str) -> ToolResult:
        """Trace the calls of 'Class.f' or 'path::Class.f'."""
        calls = await self._calls(symbol, self._index.callers)
        sure = sum(call.sure for call in calls)
        lines = [f"[trace_callers] {symbol}: {_format_count(calls)} call(s), {sure} of them sure:"]
        return self._result([*lines, *_by_file(calls, _caller_label)], [_to_plain(call) for call in calls])

    async def trace_callees(self, symbol: str) -> ToolResult:
        """Trace the calls that a definition makes."""
        calls = await self._calls(symbol, self._index.callees)
        lines = [f"[trace_callees] {symbol}: {_format_count(calls)} call(s):"]
        return self._result([*lines, *_by_file(calls, lambda call: call.callee)], [_to_plain(call) for call in calls])

    async def trace_graph(self, symbol: str, depth: int = 2) -> ToolResult:
        """Trace callers and callees, and theirs, to a depth of 1 to 4."""
        edges = await self._query(partial(self._index.graph, symbol, depth))
        if not edges:
            await self._require_symbol(symbol)
        lines = [f"[trace_graph] {symbol}, to depth {depth}, {_format_count(edges)} call(s):"]
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
        calls = await self._query(partial(ask, symbol))
        if not calls:
            await self._require_symbol(symbol)
        return calls

    async def _query(self, ask: Callable[[], Awaitable[list[T]]]) -> list[T]:
        if not await self._index.wait_ready(_READY_SECONDS):
            reason = self._index.state.problem or "the code index is still being built; try again in a while"
            raise ToolError(f"{reason}. Use find()", kind="TimeoutError")
        results = await ask()
        if self._index.failure:
            raise ToolError(f"the code index gave no answer: {self._index.failure}. Use find()", kind="TimeoutError")
        return results

    async def _require_symbol(self, symbol: str) -> None:
        """Distinguish a symbol without calls from an unknown one."""
        if not await self._query(partial(self._index.find_definitions, symbol)):
            raise ToolError(f"no definition is called {symbol!r}; use find() or semantic_search()", kind="ValueError")

    def _result(self, lines: list[str], value: list[Plain]) -> ToolResult:
        listed = lines[:_MAX_LISTED]
        if len(lines) > len(listed):
            listed.append(f"… {len(lines) - len(listed)} more line(s)")
        if self._index.state.problem:
            listed.append(f"[{self._index.state.problem}]")
        return ToolResult(value=value, text="\n".join(listed))


def _to_plain(call: Call) -> dict[str, Plain]:
    caller = call.caller.qualified if call.caller else ""
    return {"path": call.path, "line": call.line, "caller": caller, "callee": call.callee, "sure": call.sure}


def _format_count(results: Sequence[object]) -> str:
    return f"{len(results)}{' or more' if len(results) >= MAX_CALLS else ''}"


def _caller_label(call: Call) -> str:
    return f"in {call.caller.qualified}" if call.caller else "at the top of the file"


def _by_file(calls: list[Call], describe: Callable[[Call], str]) -> list[str]:
    lines: list[str] = []
    path = ""
    for call in calls:
        if call.path != path:
            path = call.path
            lines.append(path)
        lines.append(f"  {call.line} {describe(call)}{'' if call.sure else ' (maybe)'}")
    return lines
