"""Each program of CodePilot 0.9.1's document runs as it is written, but for its import, with a model on loopback."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import re
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from agent_runtime import AsyncRuntime, Runtime, SessionInUseError
from tests.agent_runtime.differences import read_differences
from tests.agent_runtime.seed.parts import reply
from tests.model_server import ModelServer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The model 'claude-sonnet-4-5' is deprecated"),
    pytest.mark.filterwarnings("ignore:An Outcome never equals a text"),
]
_DOCUMENT = (Path(__file__).parent / "programs.txt").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^## (?P<heading>[^\n]+)$|^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def _read_blocks() -> dict[str, str]:
    """Return the blocks by heading and number, for example `18. Custom Tools 1`."""
    blocks: dict[str, str] = {}
    heading, number = "", 0
    for match in _BLOCK.finditer(_DOCUMENT):
        if match["heading"]:
            heading, number = match["heading"], 0
        else:
            number += 1
            blocks[f"{heading} {number}"] = match["code"]
    return blocks


BLOCKS = _read_blocks()
_AGENT = {
    "name": "CodePilot",
    "role": "Autonomous software engineering agent.",
    "model": {"provider": "anthropic", "name": "claude-sonnet-4-5", "api_key_env": "ANTHROPIC_API_KEY"},
    "runtime": {"work_dir": "./workspace", "max_steps": 20},
}
_CAREFUL = [{"name": name, "config": {"require_permission": True}} for name in ("write_file", "execute")]
_RESUMING = "8. Resuming a Session 1"
_SERVER = "21. Building a Web Server Integration 1"
DONE = reply(done="Done.")
TWO = (reply(done="First."), reply(done="Second."))
WRITES = reply('write_file("config.py")', "A = 1", done="Written.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of the document.

    Attributes:
        block: its heading and number.
        code: in place of the block.
        replies: of the model.
        before: definitions that the document takes for granted.
        after: added to show the effect.
        typed: lines on its standard input.
        asks: whether the agent file asks before writes and commands.
        is_exception: whether it has another effect than in the document; `differences.toml` has the reason.
        prints: parts of its output, in order.
    """

    block: str
    code: str = ""
    replies: tuple[str, ...] = (DONE,)
    before: str = ""
    after: str = ""
    typed: str = ""
    asks: bool = False
    is_exception: bool = False
    prints: tuple[str, ...]


RUNTIME = "from codepilot import EventType, Runtime, on_finish, on_permission_request, on_stream\n"
STARTED = RUNTIME + 'runtime = Runtime("agent.yaml")\n'
SAVED = (
    RUNTIME
    + """
for name in ("shop", "blog"):
    with Runtime("agent.yaml", session="file", session_id=name) as runtime:
        runtime.run("Do it")
"""
)
TWO = (reply(done="First."), reply(done="Second."))
WRITES = reply('write_file("config.py")', "A = 1", done="Written.")

PROGRAMS = (
    Program(block="Getting Started 1", prints=("Done.",)),
    Program(block="Getting Started 2", prints=("Done.",)),
    Program(block="3. Basic Usage 1", prints=("Done.",)),
    Program(block="3. Basic Usage 2", prints=("Done.",)),
    Program(block="4. Streaming 1", prints=("Done.",)),
    Program(block="Non-streaming mode 1", before=RUNTIME, after='runtime.run("Do it")', prints=("Done.",)),
    Program(block="5. Multi-turn Execution 1", replies=(*TWO, DONE), prints=("First.", "Second.", "Done.")),
    Program(
        block="In-memory (default) 1", before=RUNTIME, after="print(runtime.session.session_id)", prints=("my-session",)
    ),
    Program(block="File-backed 1", before=RUNTIME, after="print(runtime.session.path)", prints=("ecommerce-api",)),
    Program(
        block="Database-backed 1",
        before=RUNTIME + "import os\nuser_id = 7\nos.environ['DATABASE_URL'] = 'sqlite:///other.db'\n",
        after='print(runtime.run("Do it"), runtime.session.session_id)',
        prints=("Done.", "user-7"),
    ),
    Program(
        block="Database-backed 2",
        before=RUNTIME
        + """
with Runtime("agent.yaml", session="db", session_id="user-42", db_url="sqlite:///./codepilot.db") as runtime:
    runtime.run("Do it")
""",
        prints=("user-42                           2 messages",),
    ),
    Program(
        block="Listing saved sessions 1",
        before=SAVED,
        replies=TWO,
        prints=("shop                              2 messages  updated",),
    ),
    Program(
        block="Inspecting a session without loading messages 1",
        before=SAVED.replace("shop", "ecommerce-api"),
        replies=TWO,
        prints=("Last updated: ", "File path: ", "ecommerce-api"),
    ),
    Program(
        block="9. Resetting a Session 1", before=RUNTIME, after="print(len(runtime.messages))", prints=("Done.", "2")
    ),
    Program(
        block="10. Hooks 1",
        replies=("Reading.\n" + reply('read_file("notes.txt")'), DONE),
        prints=("Reading.", "[tool:read_file]", "Read me.", "Done."),
    ),
    Program(
        block="Manual hook registration 1",
        before=STARTED + "save_to_db = print\n",
        after='runtime.run("Do it")',
        prints=("Done.",),
    ),
    Program(
        block="11. Permission Gating 1",
        asks=True,
        typed="y\n",
        replies=(WRITES,),
        prints=("[write_file] Write 'config.py'", "Approve? [y/N]:", "Written."),
    ),
    Program(
        block="11. Permission Gating 2",
        asks=True,
        before=STARTED,
        after='print(runtime.run("Do it"))',
        replies=(WRITES,),
        prints=("Written.",),
    ),
    Program(
        block="12. Mid-task Message Injection 1",
        before="import asyncio\n",
        after='runtime.send_message("Be brief")\nasyncio.run(run_agent())',
        prints=("[Your message is now in context]: Be brief", "Done."),
    ),
    Program(
        block="Receiving it in your app 1",
        before=STARTED + "save_to_database = print\n",
        after="print(summary == 'Done.', summary)",
        is_exception=True,
        prints=("Done.", "False Done."),
    ),
    Program(
        block="17. Chat Mode 1",
        before=RUNTIME,
        replies=("It returns {}.\n", DONE),
        prints=("It returns {}.", "Done."),
    ),
    Program(
        block="18. Custom Tools 1",
        before="""
from types import SimpleNamespace
my_search_api = str.upper
slack_client = SimpleNamespace(chat_postMessage=print)
""",
        replies=(reply('web_search("pool")'), DONE),
        is_exception=True,
        prints=("There is no execution buffer: return the text from the tool", "Done."),
    ),
    Program(
        block="Overriding a built-in tool 1",
        before=STARTED,
        after='runtime.run("Do it")',
        replies=(reply('execute("main", "ls")'), DONE),
        is_exception=True,
        prints=("take the tool, execute = runtime.registry.get('execute').func", "Done."),
    ),
    Program(block="19. Aborting the Agent 1", after="print(agent_task.result())", prints=("The run was stopped",)),
    Program(block="Simple conversational CLI 1", typed="Do it\nreset\nquit\n", prints=("Done.", "History cleared.")),
    Program(
        block="File-backed CLI with named sessions 1",
        typed="Do it\nreset\n",
        prints=("Done.", "Session cleared.", "Goodbye."),
    ),
    Program(block="Hook decorators 1", after="print(on_finish)", prints=("on_finish",)),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the program: with the document's `agent.yaml`, and a home of its own."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.txt").write_text("Read me.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-made-up")
    return tmp_path


def _execute(code: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute a program as a notebook does, with `await` outside of functions; close its runtimes; return its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    run = asyncio.run

    async def await_and_close(work: Coroutine[Any, Any, object]) -> object:
        try:
            return await work
        finally:
            for value in names.values():
                if isinstance(value, AsyncRuntime):
                    await value.close()

    monkeypatch.setattr(asyncio, "run", lambda work: run(await_and_close(work)))
    code = code.replace("from codepilot import", "from agent_runtime import")
    compiled = compile(code, "program.py", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(compiled, names))  # noqa: S307 - the document's code
        else:
            exec(compiled, names)  # noqa: S102 - the document's code
    except SystemExit as ended:
        assert not ended.code  # noqa: PT017 - the programs end so
    finally:
        for value in names.values():
            if isinstance(value, Runtime):
                value.close()
    return names


async def _run(program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = _AGENT | ({"tools": _CAREFUL} if program.asks else {})
    (folder / "agent.yaml").write_text(yaml.safe_dump({"agent": agent}), encoding="utf-8")
    code = "\n".join([program.before, program.code or BLOCKS[program.block], program.after])
    async with ModelServer(program.replies) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url_anthropic)
        monkeypatch.setattr("sys.stdin", io.StringIO(program.typed))
        monkeypatch.setattr("sys.argv", ["program.py"])
        await asyncio.to_thread(_execute, code.replace("/data/", f"{folder}/data/"), monkeypatch)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.block)
async def test_a_program_runs_as_documented(
    program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run(program, folder, monkeypatch)
    printed = capsys.readouterr().out
    position = 0
    for part in program.prints:
        position = printed.find(part, position)
        assert position >= 0, f"{part!r} is missing or early in:\n{printed}"
        position += len(part)


async def test_resuming_in_another_process_runs_and_in_the_same_one_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SessionInUseError, match=r"program\.py"):
        await _run(Program(block=_RESUMING, before=RUNTIME, prints=()), folder, monkeypatch)
    for code in BLOCKS[_RESUMING].split("# -------- later, new process --------"):
        await _run(Program(block=_RESUMING, before=RUNTIME, code=code, prints=()), folder, monkeypatch)
    assert "Done." in capsys.readouterr().out


async def test_the_web_server_sends_each_event(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = ("Reading.\n" + reply('read_file("notes.txt")'), DONE)
    events: list[dict[str, Any]] = []
    is_read = threading.Event()

    def serve(app: FastAPI, _: Runtime) -> None:
        async def tick() -> None:
            """Wake the loop now and then, as uvicorn does: the document's handlers put events from another thread."""
            for _ in range(10_000):
                await asyncio.sleep(0.01)
                if is_read.is_set():  # the last event is put after the outcome is known
                    return

        with TestClient(app) as client, client.websocket_connect("/events") as socket:
            assert client.portal is not None
            client.portal.start_task_soon(tick)
            try:
                assert client.post("/run", params={"task": "Look"}).json() == {"status": "started"}
                while not events or events[-1]["type"] != "finish":
                    events.append(socket.receive_json())
            finally:
                is_read.set()
            assert client.post("/reset").json() == {"status": "reset"}

    monkeypatch.setattr("builtins.serve", serve, raising=False)
    await _run(Program(block=_SERVER, after="serve(app, runtime)", replies=replies, prints=()), folder, monkeypatch)
    assert list(dict.fromkeys(event["type"] for event in events)) == ["stream", "tool_call", "tool_result", "finish"]
    assert events[-1]["summary"] == "Done."


def test_no_program_of_the_document_is_left_out() -> None:
    assert {program.block for program in PROGRAMS} | {_RESUMING, _SERVER} == BLOCKS.keys()
    assert len(BLOCKS) == 29


def test_the_table_of_differences_has_each_program_with_another_effect() -> None:
    listed = {program for row in read_differences("codepilot") for program in row.programs}
    assert listed == {_RESUMING, *(program.block for program in PROGRAMS if program.is_exception)}
