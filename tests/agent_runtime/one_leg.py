"""One leg of a control block's way, in a process of its own: `python -m tests.agent_runtime.one_leg`.

Standard input is JSON: `state` (what an earlier leg ended with) or else `source`, `calls` (how many calls to answer
before suspending), and `then` (blocks to run afterwards). Standard output is JSON: `told` (what was printed, and what
was called) and `state` (None when the block came to its end).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from agent_runtime.core.errors import Suspend
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState, Suspended

STUBS = "def ask(question: str) -> str: ..."


class Answers:
    """Answers some calls, then asks for the block to be frozen."""

    def __init__(self, calls: int) -> None:
        self.told: list[str] = []
        self._left = calls

    async def call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        if not self._left:
            raise Suspend
        self._left -= 1
        (question,) = (*args, *kwargs.values())
        self.told.append(f"{tool}{'!' if show else ''}({question!r})")
        return f"answer to {question}"


async def leg(wanted: Mapping[str, Any], *, limits: InterpreterLimits | None = None) -> dict[str, Any]:
    """Take the leg in this process."""
    interpreter, answers = Interpreter(tools=["ask"], stubs=STUBS, limits=limits), Answers(wanted["calls"])
    show = answers.told.append
    try:
        if wanted.get("state"):
            state = InterpreterState.from_plain(wanted["state"])
            await interpreter.resume(state, call=answers.call, show=show)
        else:
            await interpreter.run(wanted["source"], call=answers.call, show=show)
        for source in wanted.get("then", ()):
            await interpreter.run(source, call=answers.call, show=show)
    except Suspended as suspended:
        return {"told": answers.told, "state": suspended.state.to_plain()}
    finally:
        await interpreter.close()
    return {"told": answers.told, "state": None}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(leg(json.load(sys.stdin)))))  # noqa: T201 - the answer
