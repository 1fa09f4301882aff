"""Measure the first message: how many functions that real fixes touched stand whole in it, its size and its time.

Usage: python -m bench.bench_first_message FOLDER [all|tuned|held]. The packages of `bench/issues.toml` are downloaded
into the folder with pip and npm, unless they are there; nothing of them is installed, and no model is asked.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from agent_runtime import Agent, AsyncRuntime, Quote, SandboxSettings, ScriptedProvider, Task, pick_sandbox
from agent_runtime.context.transcript import estimate
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.workspace.files import Workspace
from bench.packages import unpacked

_ISSUES = Path(__file__).with_name("issues.toml")
_GOAL = "Fix the problem described in this issue."
_NUMBERED = re.compile(r" *(\d+)(?:-(\d+))? \|")
"""A line, or those of a docstring that are left out of a whole definition."""
_READY = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A first message with its system prompt and the time to build it."""

    text: str
    prompt: str
    seconds: float


def main(folder: Path, part: str) -> None:
    found = touched = 0
    print("| package | whole | first message | of which not the task | tokens | system prompt | first | again |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for issue in tomllib.loads(_ISSUES.read_text(encoding="utf-8"))["issue"]:
        if part != "all" and issue.get("held", False) != (part == "held"):
            continue
        root = unpacked(folder, issue["package"])
        with tempfile.TemporaryDirectory() as kept:
            place = Path(kept) / "index"
            message = asyncio.run(_first_message(root, issue["text"], place))
            asyncio.run(_built(root, place))  # where it was not ready in time
            again = asyncio.run(_first_message(root, issue["text"], place))
        whole = asyncio.run(_whole(root, issue["touched"], again.text))
        found, touched = found + sum(whole), touched + len(whole)
        own = len(again.text) - len(issue["text"]) - len(_GOAL)
        print(
            f"| {issue['package'].partition(': ')[2]} | {sum(whole)} of {len(whole)} | {len(again.text):,} | {own:,} "
            f"| {estimate(again.text):,} | {estimate(again.prompt):,} "
            f"| {message.seconds:.2f} s | {again.seconds:.2f} s |"
        )
    print(f"\n{found} of {touched} functions stand whole in the first message.")


class _Listener(ScriptedProvider):
    """Notes the first request, and finishes."""

    def __init__(self) -> None:
        super().__init__(["```completion\nDone.\n```\n"])
        self.requested_at = 0.0
        self.request = Request(system="", messages=())

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requested_at, self.request = time.perf_counter(), request
        async with aclosing(super().reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def _first_message(root: Path, text: str, index_dir: Path) -> _Message:
    """The first message of a run on an issue; `index_dir` is where the code index is kept."""
    listener, sandbox = _Listener(), pick_sandbox("auto", SandboxSettings())
    agent = Agent(provider=listener, work_dir=root, sandbox=sandbox, chat=False, kept_index=index_dir)
    async with AsyncRuntime(agent) as runtime:
        begun = time.perf_counter()
        await runtime.run(Task(goal=_GOAL, quotes=(Quote(source="issue #1", text=text.strip()),)))
    request = listener.request
    return _Message(text=request.messages[0].text, prompt=request.system, seconds=listener.requested_at - begun)


async def _built(root: Path, index_dir: Path) -> None:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, index_dir)
        await index.wait_ready(_READY)
        await index.close()


async def _whole(root: Path, touched: list[str], text: str) -> list[bool]:
    """Return for each definition whether a text holds all of its lines."""
    shown: dict[str, set[int]] = {}
    path = ""
    for line in text.splitlines():
        if number := _NUMBERED.match(line):
            shown.setdefault(path, set()).update(range(int(number[1]), int(number[2] or number[1]) + 1))
        else:
            path = line.rpartition(" (")[0]
    told = []
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace)
        await index.wait_ready(_READY)
        for name in touched:
            definition = (await index.find_definitions(name))[0]
            wanted = range(definition.header, definition.last + 1)
            told.append(shown.get(definition.path, set()).issuperset(wanted))
        await index.close()
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all")
