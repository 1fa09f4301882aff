"""The prompt: which tools it offers where, and the same bytes in every job of one repository and configuration."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from agent_runtime import Observed, Started, Status, Task, ToolReturned
from agent_runtime.context import first_message
from agent_runtime.core.values import TransportName
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import Request
from agent_runtime.sandbox.protocol import Sandbox
from tests.agent_runtime.run.test_runtime import DONE, Recorder, runtime_for
from tests.agent_runtime.transports.native.parts import answers, asks, finish

ARCHIVE = ("archive_context", "reveal_context", "list_archived_context")
TRANSPORTS: tuple[TransportName, ...] = ("blocks", "tools")


def block(code: str) -> str:
    return f"```codepilot\n{code}\n```\n"


def prompt_of(request: Request) -> str:
    """The part of a request that is the same in each: what a provider's cache serves."""
    return "\n".join([request.system, *(json.dumps(asdict(tool), separators=(",", ":")) for tool in request.tools)])


async def prompts(place: Path, sandbox: Sandbox, *goals: str, **settings: object) -> list[str]:
    """Run a task for each goal in one session and return the prompt of each request."""
    runtime = runtime_for(place, sandbox, [DONE] * len(goals), **settings)
    async with runtime:
        for goal in goals:
            await runtime.run(Task(goal=goal))
    assert isinstance(runtime.agent.provider, Recorder)
    return [prompt_of(request) for request in runtime.agent.provider.requests]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return repository(tmp_path / "first")


def repository(path: Path) -> Path:
    path.mkdir()
    (path / "stats.py").write_text("def mean(values): return sum(values) / len(values)\n")
    return path


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_jobs_on_one_repository_send_the_same_prompt(
    place: Path, tmp_path: Path, sandbox: Sandbox, transport: TransportName
) -> None:
    settings = {"transport": transport, "index_seconds": 0}
    first, second = await prompts(place, sandbox, "Fix `mean`", "Then write a test", **settings)
    elsewhere, *_ = await prompts(repository(tmp_path / "second"), sandbox, "Explain stats.py", **settings)
    assert first == second == elsewhere


@pytest.mark.parametrize(("transport", "most"), [("blocks", 3_000), ("tools", 3_850)])
async def test_the_prompt_with_all_tools_is_short(
    place: Path, sandbox: Sandbox, transport: TransportName, most: int
) -> None:
    answered, prompt = [
        (await prompts(place, sandbox, "Look", transport=transport, chat=chat))[0] for chat in (True, False)
    ]
    assert max(len(answered), len(prompt)) <= most
    async with runtime_for(place, sandbox, []) as runtime:
        assert all(name in prompt for name in {*runtime.registry.names} - {*ARCHIVE})
    assert "the completion" in prompt or "its completion" in prompt


async def test_help_shows_all_of_a_tool(place: Path, sandbox: Sandbox) -> None:
    code = 'help(write_file)\ntext = help("find")\nprint(len(text) > 100)\nhelp("nothing")'
    async with runtime_for(place, sandbox, [block(code), DONE]) as runtime:
        await runtime.run("Look")
    [shown, *_] = [event.text for event in runtime.session.events if isinstance(event, Observed)]
    assert "hunks: list[int] = None" in shown, "a parameter that the prompt leaves out"
    assert "def find(" not in shown, "a result that is used is not shown"
    assert "True\n" in shown
    assert "there is no tool 'nothing'; there are: read_file," in shown


async def test_parameters_that_the_prompt_leaves_out_work(place: Path, sandbox: Sandbox) -> None:
    code = 'find("mean", scope="files", target=["stats.py"], max_results=1)\nread_output("main", timeout=0, check=True)'
    async with runtime_for(place, sandbox, [block(f'execute("main", "true")\n{code}'), DONE]) as runtime:
        await runtime.run("Look")
    assert all(event.ok for event in runtime.session.events if isinstance(event, ToolReturned))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_tools_that_cannot_serve_are_not_offered(place: Path, sandbox: Sandbox, transport: TransportName) -> None:
    for attended in (True, False):
        [prompt] = await prompts(place, sandbox, "Look", transport=transport, attended=attended)
        assert ("ask_user" in prompt) is attended
        assert not any(name in prompt for name in ARCHIVE), "nothing can be archived in a first task"


async def test_the_second_task_is_told_of_the_archive(place: Path, sandbox: Sandbox) -> None:
    archive = block('archive_context(task=1, summary="Nothing was done.")')
    async with runtime_for(place, sandbox, [DONE, archive, DONE, DONE]) as runtime:
        for _ in range(3):
            await runtime.run("Look")
    events = runtime.session.events
    openings = [event.opening for event in events if isinstance(event, Started)]
    assert [all(name in opening for name in ARCHIVE) for opening in openings] == [False, True, False]
    [archived] = [event for event in events if isinstance(event, ToolReturned)]
    assert (archived.tool, archived.ok) == ("archive_context", True)


async def test_a_question_where_nobody_answers_does_not_wait(place: Path, sandbox: Sandbox) -> None:
    async with runtime_for(place, sandbox, [block('ask_user("Which?")'), DONE], attended=False) as runtime:
        outcome = await runtime.run("Look")
    assert outcome.status is Status.FINISHED
    [answer] = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
    assert "nobody can be asked in this run; decide for yourself" in answer.text


@pytest.mark.parametrize(
    ("settings", "call", "reason"),
    [
        ({"indexed": False}, 'semantic_search("mean")', "there is no code index here; use find"),
        ({"tools": ("find",)}, 'ask_user("Which?")', "nobody can be asked; decide for yourself"),
    ],
)
async def test_a_tool_that_is_not_there_says_why(
    place: Path, sandbox: Sandbox, settings: dict[str, object], call: str, reason: str
) -> None:
    name, _, _ = call.partition("(")
    replies = [block(call), block(f"help({name!r})"), DONE]
    async with runtime_for(place, sandbox, replies, **settings) as runtime:
        await runtime.run("Look")
    [refused, unknown, *_] = [event for event in runtime.session.events if isinstance(event, Observed)]
    assert f"it calls {name} ({reason}" in refused.text
    assert f"there is no tool {name!r}; {reason}" in unknown.text


async def test_a_native_call_of_a_tool_that_is_not_there_is_told_why(place: Path, sandbox: Sandbox) -> None:
    replies = [asks(("semantic_search", {"query": "mean"})), asks(finish())]
    async with runtime_for(place, sandbox, replies, transport="tools", indexed=False) as runtime:  # type: ignore[arg-type]
        await runtime.run("Look")
    assert "there is no tool 'semantic_search' (there is no code index here; use find)." in answers(runtime)[0].text


@pytest.mark.parametrize("tools", [None, ("execute",)])
async def test_read_file_is_named_beside_the_map_where_the_agent_has_it(
    place: Path, sandbox: Sandbox, tools: tuple[str, ...] | None
) -> None:
    async with runtime_for(place, sandbox, [DONE], index_seconds=0, tools=tools) as runtime:
        await runtime.run(Task(goal="Fix it"))
        [started] = [event for event in runtime.session.events if isinstance(event, Started)]
    assert " mean" in started.opening
    assert ("read_file" in started.opening) == (tools is None)


async def test_a_later_task_is_not_denied_the_map_of_the_first(
    place: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_for(place, sandbox, [DONE, DONE])
    async with runtime:
        await runtime.run(Task(goal="Fix `mean`"))
        monkeypatch.setattr(first_message, "CODE_SECONDS", 0.0)
        await runtime.run(Task(goal="Test `mean`"))
    assert isinstance(runtime.agent.provider, Recorder)
    first, *_, second = [
        message.text for message in runtime.agent.provider.requests[-1].messages if message.role == "user"
    ]
    assert "stats.py\n mean" in first
    assert second.startswith("[Task 2]")
    assert notes.NO_CODE not in second
