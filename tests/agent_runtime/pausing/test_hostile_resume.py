"""What must never come of a pause: a call that nobody approved as it is, or a session that is stuck."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    AsyncRuntime,
    DatabaseSession,
    Ended,
    FileSession,
    InMemorySession,
    Observed,
    Outcome,
    Paused,
    ResumeError,
    Rule,
    SandboxError,
    SessionError,
    Status,
    Usage,
    UsageError,
    on_ask_user,
    on_end,
    on_paused,
    on_permission_request,
)
from agent_runtime.core.errors import ResumeCode
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.run.run import Run
from tests.agent_runtime.pausing.parts import ASKS, DONE, runs, shown
from tests.codes import coded

COUNT = '```codepilot\nexecute("main", "echo run >> runs.txt")\n```\n'


async def test_a_denied_call_is_not_made_though_the_policy_allows_it_by_now(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
    async with start(DONE, rules=()) as later:
        await later.resume(approve=False, note="never")
        assert "execute was not approved: never" in shown(later)
    assert runs(place) == 0


async def test_an_approved_call_is_not_made_when_the_policy_denies_it_by_now(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
    async with start(DONE, rules=(Rule(decision="deny", tool="execute"),)) as later:
        await later.resume(approve=True)
        assert "not allowed" in shown(later)
    assert runs(place) == 0


async def test_an_approval_that_came_to_nothing_does_not_let_a_later_call_through(
    start: Callable[..., AsyncRuntime], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_interpreter: Interpreter) -> None:
        raise SandboxError("the machine has no room for another process")

    async with start(COUNT, COUNT) as runtime:
        await runtime.run("Count")
        with monkeypatch.context() as patch:
            patch.setattr(Interpreter, "_start", broken)
            assert (await runtime.resume(approve=True)).status is Status.SANDBOX_FAILED
        assert (await runtime.run("Count again")).status is Status.PAUSED
    assert runs(place) == 0


async def test_an_approval_is_of_one_call_only_and_not_of_the_one_after_a_call_that_no_longer_fits(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    block = (
        '```codepilot\ntry:\n    deploy("staging")\nexcept Exception as error:\n    print(error)\n'
        'execute("main", "echo run >> runs.txt")\n```\n'
    )
    rules = (Rule(decision="ask", tool="deploy"), *ASKS)
    async with start(block, rules=rules) as runtime:
        runtime.register_tool("deploy", lambda where: where)
        outcome = await runtime.run("Deploy")
        assert outcome.pending is not None
        assert outcome.pending.tool == "deploy"
    async with start(rules=rules) as later:
        later.register_tool("deploy", lambda: "nowhere")
        outcome = await later.resume(approve=True)
        assert outcome.pending is not None
        assert outcome.pending.tool == "execute"
    assert runs(place) == 0


async def test_a_command_approved_for_one_directory_is_asked_about_again_where_it_would_run_in_another(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    (place / "build").mkdir()
    (place / "kept.txt").write_text("kept\n")
    rules = (Rule(decision="ask", tool="execute", commands=("rm *",)),)
    block = '```codepilot\nexecute("main", "cd build")\nexecute("main", "rm -rf *")\n```\n' + DONE
    async with start(block, rules=rules) as runtime:
        first = await runtime.run("Clean up")
        assert first.pending is not None
        assert "build" in first.pending.preview
    async with start(DONE, rules=rules) as later:
        second = await later.resume(approve=True)
        assert (place / "kept.txt").exists()
        assert second.pending is not None
        assert second.pending.request_id != first.pending.request_id
        assert "build" not in second.pending.preview


async def test_a_question_can_be_answered_though_asking_needs_approval(start: Callable[..., AsyncRuntime]) -> None:
    rules = (Rule(decision="ask"),)
    ask = '```codepilot\nprint("port", ask_user("Which port?"))\n```\n'
    async with start(ask, rules=rules) as runtime:
        first = await runtime.run("Go")
        assert first.pending is not None
        assert first.pending.kind == "permission"
        second = await runtime.resume(approve=True)
        assert second.pending is not None
        assert second.pending.kind == "question"
    async with start(DONE, rules=rules) as later:
        assert (await later.resume(note="8080")).status is Status.FINISHED
        assert "port 8080" in shown(later)


async def test_an_answer_to_an_earlier_request_is_refused(start: Callable[..., AsyncRuntime], place: Path) -> None:
    async with start(COUNT, COUNT) as runtime:
        first = await runtime.run("Count")
        assert first.pending is not None
        second = await runtime.resume(approve=False, request_id=first.pending.request_id)
        assert second.pending is not None
        with pytest.raises(ResumeError, match=second.pending.request_id, check=coded(ResumeCode.OTHER_REQUEST)):
            await runtime.resume(approve=True, request_id=first.pending.request_id)
        assert runtime.pending == second.pending
    assert runs(place) == 0


async def test_two_runtimes_that_share_a_session_object_make_an_approved_call_once(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    session = InMemorySession("shared")
    async with start(COUNT + DONE, session=session) as one, start(session=session) as two:
        await one.run("Count")
        answers = await asyncio.gather(one.resume(approve=True), two.resume(approve=True), return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Outcome", "ResumeError"]
    assert runs(place) == 1


async def test_a_tool_that_is_gone_leaves_the_call_waiting(start: Callable[..., AsyncRuntime]) -> None:
    rules = (Rule(decision="ask", tool="deploy"),)
    async with start('```codepilot\nprint(deploy("staging"))\n```\n', rules=rules) as runtime:
        runtime.register_tool("deploy", lambda where: where)
        await runtime.run("Deploy")
    async with start(DONE, rules=rules) as later:
        with pytest.raises(ResumeError, match="deploy", check=coded(ResumeCode.TOOL_MISSING)):
            await later.resume(approve=True)
        assert later.pending is not None
        later.register_tool("deploy", lambda where: f"deployed to {where}")
        assert (await later.resume(approve=True)).status is Status.FINISHED
        assert "deployed to staging" in shown(later)


WRITES = (
    '```codepilot\nwrite_file("guarded.txt")\nwrite_file("free.txt")\n```\n'
    "```text\nguarded\n```\n\n```text\nfree\n```\n" + DONE
)


@pytest.mark.parametrize("attack", ["a reply after it", "a reply cut in two", "what was used"])
async def test_a_log_that_was_changed_around_a_paused_run_is_refused(
    start: Callable[..., AsyncRuntime], place: Path, tmp_path: Path, attack: str
) -> None:
    rules = (Rule(decision="ask", tool="write_file", paths=("guarded.txt",)),)
    async with start(WRITES, rules=rules) as runtime:
        assert (await runtime.run("Write")).status is Status.PAUSED
    path = FileSession("a run", session_dir=tmp_path / "sessions").path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    reply = next(line for line in lines if line.get("kind") == "Replied")
    match attack:
        case "a reply after it":
            lines.append({**reply, "text": WRITES.replace("\nfree\n```", "\nevil\n```")})
        case "a reply cut in two":
            head, tail = reply["text"].split("\n\n", 1)
            at = lines.index(reply)
            lines[at : at + 1] = [{**reply, "text": head}, {**reply, "text": tail}]
        case _:
            reply["usage"]["output_tokens"] += 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with start(rules=rules) as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.MOVED)):
            await later.resume(approve=True)
    assert not (place / "guarded.txt").exists()
    assert not (place / "free.txt").exists()


@pytest.mark.parametrize("signature", ["é" * 64, "", "0" * 64])
async def test_a_signature_that_is_none_is_refused(start: Callable[..., AsyncRuntime], signature: str) -> None:
    session = InMemorySession("forged")
    async with start(COUNT, session=session) as runtime:
        await runtime.run("Count")
        position, paused = next(
            (position, event) for position, event in enumerate(session.events) if isinstance(event, Paused)
        )
        session._events[position] = dataclasses.replace(paused, signature=signature)
    async with start(session=session) as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.ALTERED)):
            await later.resume(approve=True)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "Replied", "step": "one", "text": 5, "usage": {}},
        {"kind": "Replied", "step": 1, "text": "x", "usage": {"input_tokens": "many"}},
        {"kind": "Paused", "pending": {}, "state": 1, "signature": None},
        {"kind": "Observed", "step": 1, "text": ["x"], "ok": "yes"},
        {"kind": "Summarised", "upto": "all", "text": "x", "usage": {}},
        {"kind": "Started", "task": {"goal": 1, "quotes": 7}, "opening": "x"},
        {"kind": "Ended", "outcome": {"status": ["x"]}},
        {"kind": "Shrunk", "tasks": [{}], "outputs": "ab"},
        {"kind": "Imported", "role": ["user"], "text": "x"},
        {"kind": ["Replied"]},
    ],
)
async def test_an_event_of_wrong_types_is_damage_and_nothing_else(
    start: Callable[..., AsyncRuntime], tmp_path: Path, line: dict[str, Any]
) -> None:
    async with start(DONE) as runtime:
        await runtime.run("Go")
    path = FileSession("a run", session_dir=tmp_path / "sessions").path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:1], json.dumps(line) + "\n", *lines[1:]]))
    with pytest.raises(SessionError, match="damaged in line 2"):
        start()


async def test_a_run_stopped_before_it_began_has_used_nothing(
    start: Callable[..., AsyncRuntime],
) -> None:
    async with start(DONE, DONE) as runtime:
        first = await runtime.run("Go")
        assert first.usage.requests
        work = asyncio.create_task(runtime.run("Again"))
        await asyncio.sleep(0)
        runtime.abort()
        second = await work
        assert (second.status, second.steps, second.usage) == (Status.STOPPED, 0, Usage())


async def test_an_async_handler_that_calls_the_run_it_is_part_of_is_told_so(
    start: Callable[..., AsyncRuntime],
) -> None:
    async with start(COUNT) as runtime:
        errors: list[str] = []

        @on_permission_request(runtime)
        async def nested(**_: object) -> bool | None:
            try:
                await runtime.run("Something else")
            except UsageError as error:
                errors.append(str(error))
            return None

        outcome = await asyncio.wait_for(runtime.run("Count"), 20)
        assert outcome.status is Status.PAUSED
        assert "handler" in errors[0]


async def test_what_an_object_with_an_async_call_answers_is_awaited(start: Callable[..., AsyncRuntime]) -> None:
    class Person:
        async def __call__(self, **_: object) -> str:
            return "8080"

    async with start('```codepilot\nprint("port", ask_user("Which port?"))\n```\n' + DONE) as runtime:
        on_ask_user(runtime)(Person())
        await runtime.run("Go")
        assert "port 8080" in shown(runtime)


async def test_a_handler_or_tool_whose_own_work_was_cancelled_does_not_stop_the_run(
    start: Callable[..., AsyncRuntime],
) -> None:
    async with start("```codepilot\nfetch()\n```\n", DONE) as runtime:

        async def fetch() -> str:
            raise asyncio.CancelledError

        runtime.register_tool("fetch", fetch)
        assert (await runtime.run("Go")).status is Status.FINISHED
        assert "CancelledError" in shown(runtime)
    async with start(COUNT, session=InMemorySession("other")) as runtime:

        @on_permission_request(runtime)
        async def broken(**_: object) -> bool:
            raise asyncio.CancelledError

        assert (await runtime.run("Count")).status is Status.PAUSED


async def test_a_session_emptied_behind_the_runtime_s_back_waits_for_nothing(
    start: Callable[..., AsyncRuntime],
) -> None:
    async with start(COUNT, DONE) as runtime:
        await runtime.run("Count")
        runtime.session.reset()
        assert runtime.pending is None
        assert (await runtime.run("Go")).status is Status.FINISHED


Begin = Callable[[Run], Coroutine[Any, Any, Outcome]]


class _Stopping:
    """Awaits a coroutine, and does something at the nth time that it waits for something."""

    def __init__(self, work: Coroutine[Any, Any, Outcome], number: int, do: Callable[[], None]) -> None:
        self.waits = 0
        self._work, self._number, self._do = work, number, do

    def __await__(self) -> Generator[Any, Any, Outcome]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            self.waits += 1
            if self.waits == self._number:
                self._do()
            error = None
            try:
                yield waited
            except BaseException as stop:  # noqa: BLE001 - handed on to the coroutine
                error = stop


def _stopped_at(number: int, seen: list[int]) -> Callable[[AsyncRuntime, Begin], Coroutine[Any, Any, Outcome]]:
    """`AsyncRuntime._run_segment` that aborts the run at its nth wait; `seen` gets the number of waits."""
    original = AsyncRuntime._run_segment

    async def see(self: AsyncRuntime, begin: Begin) -> Outcome:
        async def stopped(run: Run) -> Outcome:
            work = _Stopping(begin(run), number, self.abort)
            try:
                return await work
            finally:
                seen.append(work.waits)

        return await original(self, stopped)

    return see


@pytest.mark.slow
async def test_wherever_a_run_is_stopped_the_next_one_works(
    start: Callable[..., AsyncRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = '```codepilot\nwrite_file("a.txt")\nexecute("main", "echo run >> runs.txt")\n```\n```text\nhello\n```\n'
    for number in range(1, 200):
        session, seen = InMemorySession(f"stopped at {number}"), list[int]()
        async with start(step, DONE, DONE, rules=(), session=session) as runtime:
            with monkeypatch.context() as patch:
                patch.setattr(AsyncRuntime, "_run_segment", _stopped_at(number, seen))
                outcome = await asyncio.wait_for(runtime.run("Go"), 20)
            if seen[0] < number:
                assert outcome.status is Status.FINISHED
                break
            assert outcome.status is Status.STOPPED, number
            assert isinstance(session.events[-1], Ended), number
            assert not runtime.unfinished, number
            assert (await asyncio.wait_for(runtime.run("Go on"), 20)).status is Status.FINISHED, number
    assert number > 10


async def test_links_and_pipes_in_the_place_of_a_session_s_files_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("kept\n")
    session = FileSession("linked", session_dir=tmp_path / "sessions")
    session.path.parent.mkdir()
    session.path.symlink_to(target)
    with pytest.raises(SessionError, match="cannot be used"):
        session.append(Observed(step=1, text="x", ok=True))
    session.path.unlink()
    os.mkfifo(session.path)
    with pytest.raises(SessionError, match="no regular file"):
        session.append(Observed(step=1, text="x", ok=True))
    session.path.unlink()
    session.path.with_suffix(".index-new").symlink_to(target)
    session.append(Observed(step=1, text="x", ok=True))
    session.close()
    session.path.with_suffix(".corrupt").symlink_to(target)
    session.path.write_bytes(session.path.read_bytes() + b"alias ls=evil")
    with pytest.raises(SessionError, match="cannot be used"):
        _ = session.events
    assert target.read_text() == "kept\n"


async def test_who_is_told_of_a_request_finds_it_in_the_store(
    start: Callable[..., AsyncRuntime], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    kept: list[type] = []

    def look(**_: object) -> None:
        kept.append(type(DatabaseSession("kept", db_url=url).read()[-1]))

    async with start(COUNT, DONE, session=DatabaseSession("kept", db_url=url)) as runtime:
        on_paused(runtime)(look)
        on_end(runtime)(look)
        await runtime.run("Count")
        await runtime.resume(approve=False)
    assert kept == [Paused, Ended]


_PROMPTED = """
import sys, threading
from pathlib import Path
from agent_runtime import *
agent = Agent(provider=ScriptedProvider([sys.argv[2]]), work_dir=Path(sys.argv[1]),
              sandbox=pick_sandbox("auto", SandboxSettings()), policy=Policy(rules=(Rule(decision="ask"),)))
runtime = Runtime(agent, quiet=True)

@on_permission_request(runtime)
def prompt(**_):
    print("Allow?", flush=True)
    threading.Event().wait()

runtime.run("Count")
"""


@pytest.mark.slow
async def test_control_c_at_an_open_prompt_ends_the_process(place: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROMPTED, str(place), COUNT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"Allow?\n"
    process.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
