"""A run of 60 steps with every tool, through the whole runtime: what each request has of the one before."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    MemorySettings,
    Policy,
    RunLimits,
    SandboxSettings,
    ScriptedProvider,
    Status,
    Task,
    ToolReturned,
    pick_sandbox,
)
from agent_runtime.context.transcript import Transcript, render_messages
from agent_runtime.core.events import Event, Recorded, Shrunk, Summarised
from agent_runtime.core.values import IMAGE_TOKENS, ToolRequest, TransportName
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.providers.scripted import ScriptedReply
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.transports.native.parts import require_answered

STEPS = 60
IMAGES = (picture("issue #1"), picture("issue #2", shade=9))
SMALL = 12_000 + len(IMAGES) * IMAGE_TOKENS
DONE = "```completion\nDone.\n```\n"
EVERY_TOOL = [
    'write_file("notes.txt")\n```\n```text\none\ntwo\n',
    'read_file("notes.txt")',
    'write_file("notes.txt", 1, 1, mode="edit")\n```\n```text\nfirst\n',
    'find("first")',
    "list_files()",
    'execute("server", "read -r line; echo got $line", timeout=0.2, new_terminal=True)',
    'send_input("server", "hello\\n")',
    'read_output("server")',
    'terminate_terminal("server")',
    'ask_user("Shall I go on?")',
    'archive_context(task=(1,), summary=["Read the long file; it holds numbers."])',
    "list_archived_context()",
    'read_file("long.txt")',
    "reveal_context(1)",
    'execute("main", "head -c 3000 long.txt")',
    'read_file("nowhere.txt")',
]


class Recorder(ScriptedProvider):
    """The scripted model, which notes on a timeline what it was asked."""

    def __init__(self, replies: list[str | ScriptedReply], timeline: list[Request | Event]) -> None:
        super().__init__(replies, sees_images=True)
        self._timeline = timeline

    @override
    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        self._timeline.append(request)
        return super().reply(request)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "long.txt").write_text("".join(f"line {n} of a file with many words in it\n" for n in range(300)))
    return root


def block(code: str) -> str:
    return f"On.\n```codepilot\n{code}\n```\n"


def native(code: str) -> ScriptedReply:
    """The same step by native tool calls: what a block writes is an argument there."""
    call, _, content = code.partition("\n```\n```text\n")
    if content:
        call = f"{call.removesuffix(')')}, content={content!r})"
    script = ToolRequest(id="c1", name="script", arguments=json.dumps({"code": call}))
    listed = ToolRequest(id="c2", name="list_files", arguments="{}")
    return ScriptedReply(text="On.", calls=(script, listed))


async def two_runs(
    project: Path, memory: MemorySettings, transport: TransportName
) -> tuple[list[Request | Event], list[Recorded], set[str]]:
    """A short task, then the long one.

    Returns:
        Requests and events in the order in which they came; the session's log; the names of all tools.
    """
    timeline: list[Request | Event] = []
    steps = [
        EVERY_TOOL[step % len(EVERY_TOOL)] if step < 30 else 'read_file("long.txt", 1, 60)' for step in range(STEPS)
    ]
    # A task is archived once, and shown again once.
    steps = [step for number, step in enumerate(steps) if number < 15 or "_context(task" not in step]
    step: Callable[[str], str | ScriptedReply] = block if transport == "blocks" else native
    done = DONE if transport == "blocks" else "Done."
    replies = [*map(step, ['read_file("long.txt")'] * 3), done, *map(step, steps), *[done] * 10]
    agent = Agent(
        provider=Recorder(replies, timeline),
        work_dir=project,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=2 * STEPS, max_repeated_calls=2 * STEPS)),
        chat=False,
        memory=memory,
        transport=transport,
    )
    async with AsyncRuntime(agent, listeners=[timeline.append], console=lambda _question: "yes") as runtime:
        assert (await runtime.run("Look at the long file")).status is Status.FINISHED
        assert (await runtime.run(Task(goal="Use everything", images=IMAGES))).status is Status.FINISHED
        return timeline, [*runtime.session.events], set(runtime.registry.names)


def breaks(timeline: list[Request | Event]) -> tuple[int, int]:
    """How many requests do not extend the one before although the log says nothing of it, and how often it does."""
    unexplained = explained = 0
    places = [place for place, each in enumerate(timeline) if isinstance(each, Request)]
    for before, after in itertools.pairwise(places):
        earlier, later = timeline[before], timeline[after]
        assert isinstance(earlier, Request)
        assert isinstance(later, Request)
        if (later.system, later.tools) != (earlier.system, earlier.tools):
            unexplained += 1
        elif later.messages[: len(earlier.messages)] != earlier.messages:
            said = any(isinstance(each, Shrunk | Summarised) for each in timeline[before:after])
            explained, unexplained = explained + said, unexplained + (not said)
    return unexplained, explained


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["blocks", "tools"])
async def test_each_request_extends_the_one_before_except_where_the_log_says_so(
    project: Path, transport: TransportName
) -> None:
    timeline, log, tools = await two_runs(project, MemorySettings(), transport)
    requests = [each for each in timeline if isinstance(each, Request)]
    assert len(requests) >= STEPS
    shown = [[message.images for message in request.messages if message.images] for request in requests]
    assert shown == [[]] * 4 + [[IMAGES]] * (len(requests) - 4)  # the first task takes four
    assert {event.tool for event in log if isinstance(event, ToolReturned)} == tools
    assert breaks(timeline) == (0, sum(isinstance(event, Shrunk) for event in log))
    assert not any(isinstance(event, Summarised) for event in log)
    assert requests[-1].messages == render_messages(log)[: len(requests[-1].messages)]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["blocks", "tools"])
async def test_with_a_small_window_summaries_come_and_the_log_still_tells_the_same(
    project: Path, transport: TransportName
) -> None:
    timeline, log, _ = await two_runs(project, MemorySettings(max_context_tokens=SMALL), transport)
    for each in timeline:
        if isinstance(each, Request):
            require_answered(each.messages)
    summaries = [event for event in log if isinstance(event, Summarised)]
    assert summaries
    unexplained, explained = breaks(timeline)
    assert (unexplained, explained > 0) == (0, True)
    fresh, growing = Transcript(max_entry_chars=SMALL), Transcript(max_entry_chars=SMALL)
    for end in range(len(log)):
        growing.update(log[:end])
    assert growing.messages(log) == fresh.messages(log)
