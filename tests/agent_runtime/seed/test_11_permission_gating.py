"""§11: a call that needs approval asks first; any denial denies; without an answer the run pauses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    AsyncRuntime,
    FileSession,
    NoAnswer,
    Policy,
    ResumeError,
    Rule,
    Runtime,
    Status,
    on_ask_user,
    on_permission_request,
)
from agent_runtime.core.errors import ResumeCode
from tests.agent_runtime.seed.parts import Model, files_in, reply, watch, write_agent_file
from tests.codes import coded

Start = Callable[..., tuple[AsyncRuntime, Model]]

TOUCH = reply('execute("main", "touch made")', done="Made.")
WITHOUT = reply(done="Went on without.")
ASKS = Policy(rules=(Rule(decision="ask", tool="execute"), Rule(decision="ask", tool="write_file")))


async def test_require_permission_in_the_agent_file_asks_before_each_call(tmp_path: Path) -> None:
    tools: list[dict[str, Any]] = [
        {"name": name, "config": {"require_permission": True}} for name in ("execute", "write_file")
    ]
    path = write_agent_file(
        tmp_path,
        reply('execute("main", "echo one")\nwrite_file("a.txt")\nprint("on")', "content", done="Done."),
        tools=tools,
    )
    asked: list[tuple[str, str, str]] = []
    async with AsyncRuntime(path) as runtime:

        @on_permission_request(runtime)
        def gate(tool: str, description: str, preview: str, **_: object) -> bool:
            asked.append((tool, description, preview))
            return True

        assert (await runtime.run("Deploy")).status is Status.FINISHED
    assert [each[:2] for each in asked] == [
        ("execute", "Execute: echo one"),
        ("write_file", "Write 'a.txt' (full file)"),
    ]
    assert "echo one" in asked[0][2]
    assert "+content" in asked[1][2]
    assert (tmp_path / "workspace" / "a.txt").exists()


async def test_the_documented_gate_approves_a_file_by_its_name_and_not_by_its_content(
    start: Start, place: Path
) -> None:
    writes = (reply(f'write_file("{path}")', "import config.py # pytest") for path in ("evil.py", "config.py"))
    runs = (reply(f'execute("main", "{command}")') for command in ("touch made", "echo pytest"))
    runtime, _ = start(*writes, *runs, reply(done="Done."), policy=ASKS)

    @on_permission_request(runtime)
    def auto_gate(tool: str, description: str, **_: object) -> bool:
        if tool == "write_file" and "config.py" in description:
            return True
        return tool == "execute" and "pytest" in description

    assert str(await runtime.run("Try")) == "Done."
    assert files_in(place) == ["config.py"]


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        ([True], True),
        ([False], False),
        ([True, True], True),
        ([True, False], False),
        ([False, True], False),
        ([None, True], True),
        ([None, False], False),
        (["yes"], False),
        ([1], False),
    ],
)
async def test_an_approval_takes_a_plain_true_and_nobody_who_denies(
    start: Start,
    place: Path,
    answers: list[object],
    made: bool,  # noqa: FBT001 - a test's parameter
) -> None:
    runtime, _ = start(TOUCH, WITHOUT, policy=ASKS)
    for answer in answers:
        on_permission_request(runtime, add=True)(lambda _answer=answer, **_: _answer)
    outcome = await runtime.run("Make it")
    assert (place / "made").exists() is made
    assert str(outcome) == ("Made." if made else "Went on without.")


async def test_a_second_handler_replaces_the_first(start: Start, place: Path) -> None:
    runtime, _ = start(TOUCH, policy=ASKS)
    on_permission_request(runtime)(lambda **_: True)
    on_permission_request(runtime)(lambda **_: None)
    assert (await runtime.run("Make it")).status is Status.PAUSED
    assert not (place / "made").exists()


@pytest.mark.parametrize(("answer", "status"), [(True, Status.PAUSED), ("no", Status.FINISHED)])
async def test_an_approval_beside_a_handler_that_failed_does_not_count(
    start: Start, place: Path, answer: object, status: Status
) -> None:
    runtime, _ = start(TOUCH, WITHOUT, policy=ASKS)
    on_permission_request(runtime)(lambda **_: answer)
    on_permission_request(runtime, add=True)(lambda **_: 1 // 0)
    assert (await runtime.run("Make it")).status is status
    assert not (place / "made").exists()


async def test_a_denial_is_told_to_the_model_as_an_exception_it_may_catch(start: Start) -> None:
    runtime, model = start(
        reply('try:\n    execute("main", "true")\nexcept PermissionError as error:\n    print("caught", error)'),
        reply(done="Fine."),
        policy=ASKS,
    )
    on_permission_request(runtime)(lambda **_: False)
    await runtime.run("Try")
    assert "caught execute was not approved" in model.read[1]


async def test_a_handler_may_be_async_and_one_that_raises_has_said_nothing(start: Start, place: Path) -> None:
    runtime, _ = start(TOUCH, policy=ASKS)
    errors = watch(runtime)

    @on_permission_request(runtime)
    def broken(**_: object) -> bool:
        raise RuntimeError("no idea")

    assert (await runtime.run("Make it")).status is Status.PAUSED
    assert any("no idea" in str(arguments.get("error")) for _, arguments in errors)

    @on_permission_request(runtime)
    async def gate(**_: object) -> bool:
        return True

    await runtime.reset()
    again, _ = start(TOUCH, policy=ASKS, using={"hooks": runtime.hooks})
    assert (await again.run("Make it")).status is Status.FINISHED
    assert (place / "made").exists()


async def test_an_async_handler_behind_a_sync_one_is_waited_for(start: Start, place: Path) -> None:
    async def decide(answer: object) -> object:
        return answer

    runtime, _ = start(TOUCH, policy=ASKS)
    on_permission_request(runtime)(lambda **_: decide(True))  # noqa: FBT003 - the answer
    assert str(await runtime.run("Make it")) == "Made."
    assert (place / "made").exists()


async def test_with_nobody_to_ask_the_run_pauses_and_goes_on_in_another_runtime(
    start: Start, place: Path, tmp_path: Path
) -> None:
    def session() -> FileSession:
        return FileSession("s", session_dir=tmp_path / "sessions")

    key = b"sixteen bytes, at least"
    first, _ = start(TOUCH, policy=ASKS, using={"session": session(), "state_key": key})
    outcome = await first.run("Make it")
    assert outcome.status is Status.PAUSED
    assert outcome.pending is not None
    assert (outcome.pending.kind, outcome.pending.tool) == ("permission", "execute")
    assert "touch made" in outcome.pending.preview
    with pytest.raises(ResumeError, check=coded(ResumeCode.NO_DECISION)):
        await first.resume()
    with pytest.raises(ResumeError, match=outcome.pending.request_id, check=coded(ResumeCode.UNANSWERED)):
        await first.run("Something else")
    await first.close()
    assert not (place / "made").exists()
    second, _ = start(policy=ASKS, using={"session": session(), "state_key": key})
    assert second.pending == outcome.pending
    assert str(await second.resume(approve=True)) == "Made."
    assert (place / "made").exists()
    with pytest.raises(ResumeError, check=coded(ResumeCode.NOTHING_WAITS)):
        await second.resume(approve=True)


async def test_a_question_waits_for_its_answer_the_same_way(start: Start) -> None:
    asks = reply('colour = ask_user("Which colour?")\nprint(f"It will be {colour}.")')
    runtime, model = start(asks, reply(done="Painted."), asks, reply(done="Unpainted."))
    outcome = await runtime.run("Paint it")
    assert outcome.pending is not None
    assert (outcome.pending.kind, outcome.pending.reason) == ("question", "Which colour?")
    assert str(await runtime.resume(note="Green")) == "Painted."
    assert "It will be Green." in model.read[1]
    await runtime.run("Paint it again")
    assert str(await runtime.resume(approve=False, note="gone home")) == "Unpainted."
    assert "the user gave no answer: gone home" in model.read[-1]


async def test_a_handler_answers_a_question(start: Start) -> None:
    runtime, model = start(reply('print(ask_user("Which colour?").upper())'), reply(done="Painted."))

    @on_ask_user(runtime)
    def answer(question: str, **_: object) -> str:
        return "green" if question == "Which colour?" else "?"

    assert (await runtime.run("Paint")).status is Status.FINISHED
    assert "GREEN" in model.read[1]


async def test_a_handler_can_say_that_no_answer_comes(start: Start) -> None:
    runtime, model = start(reply('ask_user("Which colour?")'), reply(done="Painted."))
    runtime.hooks.register("ask_user", lambda **_: NoAnswer(why="nobody is here"))
    assert (await runtime.run("Paint")).status is Status.FINISHED
    assert "the user gave no answer: nobody is here. Go on with what you know." in model.read[1]


def test_the_blocking_runtime_pauses_and_resumes(start_sync: Callable[..., tuple[Runtime, Model]], place: Path) -> None:
    runtime, _ = start_sync(TOUCH, policy=ASKS)
    assert runtime.run("Make it").status is Status.PAUSED
    assert runtime.pending is not None
    assert runtime.unfinished
    assert str(runtime.resume(True, "go on")) == "Made."  # noqa: FBT003 - documented that way
    assert (place / "made").exists()


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ("echo fine", False),
        ("echo a; touch made", True),
        ("echo $(touch made)", True),
        ("echo a > made", True),
        ("echo a | tee made", True),
        ("echo a && echo b", False),
    ],
)
async def test_an_allowed_command_opens_no_door_for_another(start: Start, command: str, waits: bool) -> None:  # noqa: FBT001 - a test's parameter
    rules = (Rule(decision="allow", tool="execute", commands=("echo *",)), Rule(decision="ask", tool="execute"))
    runtime, _ = start(reply(f'execute("main", "{command}")', done="Done."), policy=Policy(rules=rules))
    assert ((await runtime.run("Do it")).status is Status.PAUSED) is waits


async def test_rules_about_paths_decide_by_file(start: Start, place: Path) -> None:
    (place / "secrets").mkdir()
    (place / "secrets" / "key.txt").write_text("hidden")
    rules = (
        Rule(decision="deny", tool="*", paths=("secrets/**",), reason="these are not for agents"),
        Rule(decision="allow", tool="write_file", paths=("docs/**",)),
        Rule(decision="ask", tool="write_file"),
    )
    runtime, model = start(
        reply('write_file("docs/a.md")\nread_file("secrets/key.txt")', "text"),
        reply('write_file("src.py")', "x = 1"),
        policy=Policy(rules=rules),
    )
    outcome = await runtime.run("Write")
    assert "these are not for agents" in model.read[1]
    assert "hidden" not in model.read[1]
    assert (place / "docs" / "a.md").exists()
    assert outcome.pending is not None
    assert outcome.pending.args["path"] == "src.py"


def test_lines_that_are_piped_into_the_program_answer_questions_and_approve_nothing(tmp_path: Path) -> None:
    tools = [{"name": "ask_user"}, {"name": "execute", "config": {"require_permission": True}}]
    control = 'print("It is", ask_user("Which colour?"))\nexecute("main", "true")'
    path = write_agent_file(tmp_path, reply(control, done="Done."), tools=tools)
    program = "import sys\nfrom agent_runtime import Runtime\nwith Runtime(sys.argv[1]) as runtime:\n"
    program += "    print(runtime.run('Paint').status, runtime.pending.kind)\n"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], input="green\ny\n", capture_output=True, text=True, check=True
    )
    assert "Which colour?" in done.stdout
    assert done.stdout.splitlines()[-1] == "paused permission"
