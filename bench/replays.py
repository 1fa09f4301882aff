"""The recorded runs of `bench/recordings`: what they cost with the present prompt, and how they are played again.

Usage: python -m bench.replays FOLDER [NAME ...] [--native] [--write]. Downloads the packages and what their tests need
into the folder, unless they are there, plays the recorded replies on today's code in the sandbox, and prints what the
requests cost. `--native` makes the same calls through the service's own tool calls. `--write` replaces the recordings.

Each reply was written by hand as a strong model would write it, by looking only at what the runtime had shown. A
recording has the events that make up the conversation. The first message and the results in it are those of the day
when it was written, so a change of these shows in a replay only; the prompt and the rendering are always today's.
"""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Policy,
    Quote,
    RunLimits,
    SandboxSettings,
    ScriptedProvider,
    Task,
    pick_sandbox,
)
from agent_runtime.context.transcript import Transcript, estimate, estimate_message
from agent_runtime.core.events import Ended, Observed, Recorded, Replied, Started
from agent_runtime.core.values import ToolRequest, Usage
from agent_runtime.providers.models import Rate
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.providers.recording import EVENT, TapeWriter, load_tape
from agent_runtime.providers.scripted import ScriptedReply
from agent_runtime.recordings import events_of
from agent_runtime.run.approvals import Gate
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sandbox.select import SandboxName
from agent_runtime.sessions.codec import encode
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.transports.blocks_parser import parse
from bench.packages import unpacked

RECORDINGS = Path(__file__).with_name("recordings")
ISSUES: dict[str, dict[str, Any]] = tomllib.loads((RECORDINGS / "issues.toml").read_text(encoding="utf-8"))
RATE = Rate(input=1, cache_read=0.1, cache_write=1.25, output=5)
"""Priced tokens: those of a request as multiples of a plain one."""
_GOAL = "Fix the problem described in this issue."
_STEPS = 30
_STATUS = f"[Agentic step 2 / {_STEPS}] 2026-11-28 17:37 UTC\nmain: idle, pid 10, cwd /workspace"
"""A status as it stands at the end of a request; no event has it."""
_KEPT_EVENTS = (Started, Replied, Observed, Ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The requests of one run, in priced tokens, and the characters that they consist of."""

    requests: int
    tokens: float
    prompt: int
    first_message: int
    results: int


def price(requests: Sequence[Request], replies: Iterable[Replied]) -> Cost:
    """Price a run whose provider caches everything that a request shares with the one before."""
    usage, cached = Usage(), 0
    for request, reply in zip(requests, replies, strict=True):
        tokens = _prompt_tokens(request) + sum(map(estimate_message, request.messages))
        calls = "".join(f"{call.name}{call.arguments}" for call in reply.requests)
        usage += Usage(
            input_tokens=estimate(request.status),
            cached_tokens=cached,
            cache_write_tokens=tokens - cached,
            output_tokens=estimate(reply.text) + (estimate(calls) if calls else 0),
        )
        cached = tokens
    first, *others = [message for message in requests[-1].messages if message.role == "user"]
    return Cost(
        requests=len(requests),
        tokens=RATE.cost(usage) * 1_000_000,
        prompt=len(requests[0].system) + sum(map(len, _tool_texts(requests[0]))),
        first_message=len(first.full_text),
        results=sum(len(message.full_text) for message in others),
    )


def read_recording(name: str) -> list[Recorded]:
    """Return the events of a recorded run."""
    return events_of(load_tape(RECORDINGS / f"{name}.jsonl"))


def render_recording(events: Sequence[Recorded], prompt: Request) -> list[Request]:
    """Make the requests of a recorded run with today's rendering; `prompt` has the system prompt, tools and status."""
    transcript = Transcript(sees_images=False, calls_tools=bool(prompt.tools))
    return [
        replace(prompt, messages=transcript.messages(events[:position]))
        for position, event in enumerate(events)
        if isinstance(event, Replied)
    ]


def replies_of(events: Sequence[Recorded]) -> list[Replied]:
    """Return the replies of a recorded run."""
    return [event for event in events if isinstance(event, Replied)]


async def present_prompt(transport: Literal["blocks", "tools"]) -> Request:
    """Return a request without messages, with today's prompt and tools for a workspace with sources."""
    with tempfile.TemporaryDirectory() as directory:
        agent = replace(_agent(ScriptedProvider([]), Path(directory), level="local"), transport=transport, indexed=True)
        state = RunState(InMemorySession(), HookSystem())
        toolbox = Toolbox(agent, state, ask=Gate(state).ask_question)
        try:
            return Request(system=toolbox.system_prompt, messages=(), status=_STATUS, tools=toolbox.schemas)
        finally:
            await toolbox.close()


def _prompt_tokens(request: Request) -> int:
    return sum(map(estimate, (request.system, *_tool_texts(request))))


def _tool_texts(request: Request) -> list[str]:
    return [json.dumps(asdict(tool)) for tool in request.tools]


class _Recorder(ScriptedProvider):
    def __init__(self, replies: Sequence[Replied]) -> None:
        super().__init__(
            [ScriptedReply(text=reply.text, calls=reply.requests) for reply in replies], chunk_chars=100_000
        )
        self.requests: list[Request] = []

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self.requests.append(request)
        async with aclosing(super().reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk


def _agent(provider: ScriptedProvider, work_dir: Path, *, level: SandboxName = "auto") -> Agent:
    return Agent(
        provider=provider,
        work_dir=work_dir,
        sandbox=pick_sandbox(level, SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=_STEPS)),
    )


def task_of(issue: dict[str, Any]) -> Task:
    """Return the task of a run: the issue's text, as a quote."""
    return Task(goal=_GOAL, quotes=(Quote(source="issue #1", text=issue["text"].strip()),))


async def play(name: str, work_dir: Path, replies: Sequence[Replied]) -> tuple[list[Request], list[Recorded], str]:
    """Run the task again with these replies; return the requests, the events and how the run ended."""
    provider = _Recorder(replies)
    async with AsyncRuntime(_agent(provider, work_dir)) as runtime:
        outcome = await runtime.run(task_of(ISSUES[name]))
        events = list(runtime.session.events)
    ending = f"{outcome.status}, {provider.remaining} replies left" if provider.remaining else str(outcome.status)
    return provider.requests, events, ending


def write_recording(events: Sequence[Recorded], path: Path) -> None:
    """Write the events that make up the conversation, without the place of this machine's Python."""
    writer = TapeWriter()
    kept = [event for event in events if isinstance(event, _KEPT_EVENTS)]
    notes = [writer.note_line(EVENT, json.loads(encode(event))) for event in kept]
    text = "".join([writer.header_line("written by hand", {}), *notes]).replace(sys.base_prefix, "/usr")
    path.write_text(text, encoding="utf-8")


def to_native_calls(reply: Replied) -> Replied:
    """Turn a reply with a control block into the same calls as native ones; one that does more becomes a `script`."""
    parsed = parse(reply.text)
    contents = [payload.text for payload in parsed.payloads]
    code = parsed.control or ""
    calls: list[tuple[str, dict[str, Any]]] = []
    for statement in ast.parse(code).body:
        call = _literal_call(statement)
        if call is None:  # a loop or a variable: the block as a whole
            calls = [("script", {"code": code})]
            break
        name, arguments = call
        if name == "write_file":
            old = {"old": contents.pop(0)} if arguments.get("mode") == "replace" else {}
            arguments |= old | {"content": contents.pop(0)}
        calls.append((name, arguments))
    if parsed.completion is not None:
        calls.append(("finish", {"summary": parsed.completion}))
    requests = tuple(
        ToolRequest(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls, start=1)
    )
    return replace(reply, text=parsed.prose.strip(), requests=requests)


_POSITIONAL = {
    "read_file": ("path", "start_line", "end_line"),
    "write_file": ("path", "start_line", "end_line"),
    "find": ("pattern",),
    "execute": ("session_id", "command"),
    "list_files": ("pattern", "path"),
}


def _literal_call(statement: ast.stmt) -> tuple[str, dict[str, Any]] | None:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)) if name in _POSITIONAL:
            try:
                positional = dict(zip(_POSITIONAL[name], map(ast.literal_eval, args), strict=False))
                named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
            except ValueError:
                return None
            return name, positional | named
    return None


def workspace(folder: Path, name: str) -> Path:
    """Return a checkout of a package with an environment for its tests, made in the folder unless it is there."""
    issue = ISSUES[name]
    place = folder / "checkouts" / name
    if not place.exists():
        source = unpacked(folder, issue["package"])
        new = place.with_name(f"{name}.new")
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(source, new)
        packages = new / ".venv"
        run = subprocess.run
        run([sys.executable, "-m", "venv", packages], check=True)
        run([packages / "bin" / "pip", "install", "--quiet", "pytest", *issue.get("needs", [])], check=True)
        (site,) = packages.glob("lib/python*/site-packages")
        (site / "workspace.pth").write_text("/workspace/src\n/workspace\n", encoding="utf-8")
        (packages / ".gitignore").write_text("*\n", encoding="utf-8")  # as virtualenv, uv and newer Pythons do
        git = ["git", "-C", str(new), "-c", "user.name=mona", "-c", "user.email=mona@example.com"]
        run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
        (new / ".git/info/exclude").write_text("__pycache__/\n.pytest_cache/\n", encoding="utf-8")
        run([*git, "add", "--all"], check=True)
        run([*git, "commit", "--quiet", "--message", f"Release {issue['package']}"], check=True)
        new.rename(place)
    return place


async def _main(folder: Path, names: Sequence[str], *, native: bool, write: bool) -> None:
    total: dict[str, float] = {"requests": 0, "tokens": 0}
    print("| run | requests | priced tokens | prompt | first message | results | ended | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
    for name in names:
        replies = replies_of(read_recording(name))
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory, name)
            shutil.copytree(workspace(folder, name), copy, symlinks=True)
            begun = time.perf_counter()
            requests, events, ending = await play(name, copy, [*map(to_native_calls, replies)] if native else replies)
            seconds = time.perf_counter() - begun
        cost = price(requests, replies_of(events))
        total = {"requests": total["requests"] + cost.requests, "tokens": total["tokens"] + cost.tokens}
        print(
            f"| {name} | {cost.requests} | {cost.tokens:,.0f} | {cost.prompt:,} | {cost.first_message:,} "
            f"| {cost.results:,} | {ending} | {seconds:.1f} |"
        )
        if write:
            write_recording(events, RECORDINGS / f"{name}.jsonl")
    print(f"| all | {total['requests']:.0f} | {total['tokens']:,.0f} | | | | | |")


if __name__ == "__main__":
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    place, *chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    asyncio.run(_main(Path(place), chosen or list(ISSUES), native="--native" in options, write="--write" in options))
