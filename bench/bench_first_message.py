"""Measure the first message: which definitions that real fixes touched it shows or names, its size and its time.

Usage: python -m bench.bench_first_message FOLDER [tuned|held] [--busy N] [--transport NAME] [--only PACKAGE]

`tuned` are the issues of `issues.toml`, `held` those of `held_back.toml`. Their packages are downloaded into the folder
with pip and npm, unless they are there; nothing of them is installed, and no model is asked. `--busy` starts N
processes that never rest; then each first message is built once, without a stored index. `--transport tools` is for
native tool calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from typing_extensions import override

from agent_runtime import Agent, AsyncRuntime, Quote, SandboxSettings, ScriptedProvider, Task, pick_sandbox
from agent_runtime.core.values import TransportName
from agent_runtime.index.index import Definition, WorkspaceIndex
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.workspace.files import Workspace
from bench.packages import unpacked

_CORPORA = {"tuned": "issues.toml", "held": "held_back.toml"}
_GOAL = "Fix the problem described in this issue."
_NUMBERED = re.compile(r" *(\d+)(?:-(\d+))? \|")
"""A line, or those of a docstring that are left out of a whole definition."""
_MORE = re.compile(r"… \d+ more$")
_FRAME = re.compile(r'(?P<path>[\w./\\-]+\.\w+)(?:", line |:)(?P<line>\d+)')
_PLAIN = re.compile(r"[a-z]+")
_READY = 600.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A first message with the time to build it; `worker_seconds` is the processor time of the index's workers."""

    text: str
    seconds: float
    own_seconds: float
    worker_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """The definitions that a fix touched in a message; `in_issue` are those that the issue or its traceback names."""

    touched: int
    whole: int
    mapped: int
    in_issue: int
    whole_in_issue: int

    @property
    def cells(self) -> str:
        return f"{self.whole} | {self.mapped} | {self.touched} | {self.whole_in_issue} of {self.in_issue}"


def main(folder: Path, part: str, busy: int, transport: TransportName, only: str) -> None:
    issues = tomllib.loads(Path(__file__).with_name(_CORPORA[part]).read_text(encoding="utf-8"))["issue"]
    issues = [issue for issue in issues if only in issue["package"]]
    roots = {issue["package"]: unpacked(folder, issue["package"]) for issue in issues}
    firsts, agains = list[_Count](), list[_Count]()
    print("| package | index | whole | mapped | touched | whole of the named | characters | wall | own | workers |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    messages: list[tuple[dict[str, Any], _Message, _Count]] = []
    for issue in issues:
        root, name = roots[issue["package"]], issue["package"].partition(": ")[2]
        definitions = asyncio.run(_find_touched(root, issue["touched"]))
        with tempfile.TemporaryDirectory() as kept:
            place = Path(kept) / "index"
            with _busy_processes(busy):
                first = asyncio.run(_build_message(root, issue["text"], place, transport=transport))
            firsts.append(_count(first.text, issue["text"], definitions))
            _print_row(name, "building", firsts[-1], first, issue["text"])
            messages.append((issue, first, firsts[-1]))
            if busy:
                continue
            asyncio.run(_build_index(root, place))  # where it was not ready in time
            again = asyncio.run(_build_message(root, issue["text"], place, transport=transport))
            agains.append(_count(again.text, issue["text"], definitions))
            _print_row(name, "stored", agains[-1], again, issue["text"])
    for state, counts in (("building", firsts), ("stored", agains)):
        if counts:
            _print_total(state, counts)
    without_code = [(issue["package"], count) for issue, message, count in messages if not _read_excerpts(message.text)]
    packages = [package for package, count in without_code if count.in_issue]
    longest = max(message.seconds for _, message, _ in messages)
    print(
        f"\nWithout code: {len(without_code)} of {len(messages)}; where the issue names a touched function: {packages}."
    )
    print(f"Longest wall time without a stored index: {longest:.2f} s.")


def _print_row(name: str, state: str, count: _Count, message: _Message, issue_text: str) -> None:
    own = len(message.text) - len(issue_text) - len(_GOAL)
    print(
        f"| {name} | {state} | {count.cells} | {len(message.text):,} ({own:,} beside the task) "
        f"| {message.seconds:.2f} s | {message.own_seconds:.2f} s | {message.worker_seconds:.2f} s |",
        flush=True,
    )


def _print_total(state: str, counts: Sequence[_Count]) -> None:
    touched, whole, mapped, in_issue, whole_in_issue = (
        sum(getattr(count, field) for count in counts)
        for field in ("touched", "whole", "mapped", "in_issue", "whole_in_issue")
    )
    print(
        f"\n{state}: {whole} of {touched} definitions whole, {mapped} more mapped: {(whole + mapped) / touched:.0%}; "
        f"{whole_in_issue} of the {in_issue} named ones whole: {whole_in_issue / max(1, in_issue):.0%}."
    )


class _Listener(ScriptedProvider):
    """Notes the first request, and finishes."""

    def __init__(self) -> None:
        super().__init__(["```completion\nDone.\n```\n"])
        self.requested_at = 0.0
        self.own_seconds = 0.0
        self.worker_seconds = dict[str, float]()
        self.request = Request(system="", messages=())

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requested_at, self.request = time.perf_counter(), request
        self.own_seconds, self.worker_seconds = time.process_time(), _read_worker_seconds()
        async with aclosing(super().reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def _build_message(root: Path, text: str, index_dir: Path, *, transport: TransportName) -> _Message:
    """Return the first message of a run on an issue; `index_dir` is where the code index is kept."""
    listener, sandbox = _Listener(), pick_sandbox("auto", SandboxSettings())
    agent = Agent(
        provider=listener, work_dir=root, sandbox=sandbox, chat=False, kept_index=index_dir, transport=transport
    )
    async with AsyncRuntime(agent) as runtime:
        start, own, workers = time.perf_counter(), time.process_time(), _read_worker_seconds()
        await runtime.run(Task(goal=_GOAL, quotes=(Quote(source="issue #1", text=text.strip()),)))
    return _Message(
        text=listener.request.messages[0].text,
        seconds=listener.requested_at - start,
        own_seconds=listener.own_seconds - own,
        worker_seconds=sum(seconds - workers.get(pid, 0.0) for pid, seconds in listener.worker_seconds.items()),
    )


def _read_worker_seconds() -> dict[str, float]:
    """Return the processor seconds of this process's living workers by process id; those of sandboxes do not count."""
    seconds: dict[str, float] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == os.getpid() and b"bounded_worker" in command:
            seconds[place.name] = sum(map(int, fields[11:15])) / _TICKS
    return seconds


@contextmanager
def _busy_processes(number: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _build_index(root: Path, index_dir: Path) -> None:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, index_dir)
        await index.wait_ready(_READY)
        await index.close()


async def _find_touched(root: Path, names: Sequence[str]) -> list[Definition]:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace)
        await index.wait_ready(_READY)
        definitions = [(await index.find_definitions(name))[0] for name in names]
        await index.close()
    return definitions


def _count(message: str, issue_text: str, definitions: Sequence[Definition]) -> _Count:
    shown, mapped = _read_excerpts(message), _read_map(message)
    whole = [shown.get(each.path, set()).issuperset(range(each.header, each.last + 1)) for each in definitions]
    is_mapped = [each.qualified in mapped.get(each.path, set()) for each in definitions]
    in_issue = [_is_named(issue_text, each) for each in definitions]
    return _Count(
        touched=len(definitions),
        whole=sum(whole),
        mapped=sum(name and not lines for name, lines in zip(is_mapped, whole, strict=True)),
        in_issue=sum(in_issue),
        whole_in_issue=sum(lines and name for lines, name in zip(whole, in_issue, strict=True)),
    )


def _read_excerpts(message: str) -> dict[str, set[int]]:
    """Return the numbers of the lines that a message shows of each file."""
    shown: dict[str, set[int]] = {}
    path = ""
    for line in message.splitlines():
        if number := _NUMBERED.match(line):
            shown.setdefault(path, set()).update(range(int(number[1]), int(number[2] or number[1]) + 1))
        else:
            path = line.partition(" (")[0]
    return shown


def _read_map(message: str) -> dict[str, set[str]]:
    """Return the qualified names below each path of the map: ` Class: method method` and ` function function`."""
    mapped: dict[str, set[str]] = {}
    path = ""
    for line in message.splitlines():
        if not line.startswith(" "):
            path = line.partition(" (")[0]
        elif not _NUMBERED.match(line):
            owner, colon, members = _MORE.sub("", line).strip().rpartition(": ")
            names = members.split()
            mapped.setdefault(path, set()).update(
                [owner] if colon else [], (f"{owner}.{n}" if colon else n for n in names)
            )
    return mapped


def _is_named(issue_text: str, definition: Definition) -> bool:
    """Whether a text has a definition's name (a plain word only as code), or a frame of a traceback in its lines."""
    name = re.escape(definition.name)
    code = rf"[.`]{name}\b|\b{name}(?:\(|`)" if _PLAIN.fullmatch(definition.name) else rf"(?<!\w){name}(?!\w)"
    if re.search(code, issue_text):
        return True
    tail = definition.path.split("/")[-2:]
    return any(
        frame["path"].split("/")[-len(tail) :] == tail and definition.first <= int(frame["line"]) <= definition.last
        for frame in _FRAME.finditer(issue_text)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=_CORPORA, nargs="?", default="tuned")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--transport", choices=get_args(TransportName), default="blocks")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.part, arguments.busy, arguments.transport, arguments.only)
