"""A run that waits for a person: in this process, and in others that come later."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    FileSession,
    ModelOptions,
    Paused,
    Policy,
    Provider,
    ResumeError,
    Rule,
    RunLimits,
    Runtime,
    SandboxSettings,
    ScriptedProvider,
    Status,
    ToolReturned,
    on_ask_user,
    on_permission_request,
    pick_sandbox,
    provider_for,
)
from agent_runtime.core.errors import ResumeCode
from agent_runtime.providers.scripted import ScriptedReply
from agent_runtime.sandbox.protocol import Sandbox
from tests.agent_runtime.pausing.parts import ASKS, DONE, runs, shown
from tests.agent_runtime.transports.native.parts import asks, finish
from tests.codes import coded
from tests.forked import Forked
from tests.model_server import ModelServer, Wire
from tests.waiting import eventually

COUNT = (
    '```codepilot\nbefore = "kept"\nexecute("main", "echo run >> runs.txt", check=True)\nprint(before, "after")\n```\n'
    + DONE
)


async def test_a_call_that_nobody_answers_pauses_the_run_before_it_is_made(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    async with start(COUNT) as runtime:
        outcome = await runtime.run("Count")
        assert outcome.status is Status.PAUSED
        assert outcome.pending == runtime.pending
        assert outcome.pending is not None
        assert outcome.pending.tool == "execute"
        assert outcome.pending.args == {"session_id": "main", "command": "echo run >> runs.txt", "check": True}
        assert outcome.pending.reason == "commands need a person"
        assert "echo run >> runs.txt" in outcome.pending.preview
        assert len(outcome.pending.request_id) == 8
        assert outcome.pending.workspace
    assert runs(place) == 0


async def test_an_approved_call_is_made_once_and_the_block_goes_on_where_it_stood(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
    async with start() as later:
        outcome = await later.resume(approve=True)
        assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 1)
        assert outcome.usage.requests == 1
        assert "kept after" in shown(later)
        with pytest.raises(ResumeError, check=coded(ResumeCode.NOTHING_WAITS)):
            await later.resume(approve=True)
    assert runs(place) == 1


async def test_a_denied_call_is_not_made_and_the_model_goes_on(start: Callable[..., AsyncRuntime], place: Path) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
    async with start("```completion\nCould not run it.\n```\n") as later:
        outcome = await later.resume(approve=False, note="not on this machine")
        assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Could not run it.", 2)
        assert "execute was not approved: not on this machine." in shown(later)
    assert runs(place) == 0


async def test_in_the_same_process_it_goes_on_just_so(start: Callable[..., AsyncRuntime], place: Path) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
        outcome = await runtime.resume(approve=True)
        assert outcome.status is Status.FINISHED
        assert "terminals died" not in shown(runtime)
    assert runs(place) == 1


async def test_an_empty_completion_repeats_one_that_was_withdrawn_before_the_pause(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    failed = "```codepilot\nassert False\n```\n" + DONE
    async with start(failed, COUNT.replace("Done.\n", "")) as runtime:
        assert (await runtime.run("Count")).status is Status.PAUSED
    async with start() as later:
        outcome = await later.resume(approve=True)
    assert (outcome.status, outcome.summary, runs(place)) == (Status.FINISHED, "Done.", 1)


class _SlowSession(FileSession):
    """Takes for ever to make a pause durable."""

    @override
    async def commit(self) -> None:
        await super().commit()
        if isinstance(self.events[-1], Paused):
            await asyncio.Event().wait()


async def test_a_request_can_be_answered_whose_run_was_cut_off_while_its_pause_was_made_durable(
    start: Callable[..., AsyncRuntime], place: Path, tmp_path: Path
) -> None:
    async with start(
        COUNT, session=_SlowSession("a run", session_dir=tmp_path / "sessions"), resumable=True
    ) as runtime:
        running = asyncio.create_task(runtime.run("Count"))
        await eventually(lambda: runtime.pending is not None)
        running.cancel()
        await asyncio.wait([running])
    async with start() as later:
        outcome = await later.resume(approve=True)
    assert (outcome.status, outcome.summary, runs(place)) == (Status.FINISHED, "Done.", 1)


async def test_scratch_files_are_gone_after_a_pause_and_the_model_is_told(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    block = '```codepilot\nwrite_file("/tmp/x.py")\nexecute("main", "echo run >> runs.txt")\n```\n```\n1\n```\n'
    async with start(block) as runtime:
        assert (await runtime.run("Count")).status is Status.PAUSED
    async with start(DONE) as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED
        assert "Deleted: /tmp/x.py (changed while the run was paused" in shown(later)
    assert runs(place) == 1


async def test_steps_that_repeat_themselves_are_counted_across_pauses(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    again = '```codepilot\nexecute("main", "echo run >> runs.txt")\n```\n'
    async with start(again) as runtime:
        outcome = await runtime.run("Count")
    for _ in range(4):
        async with start(again) as later:
            outcome = await later.resume(approve=True)
            assert outcome.status is Status.PAUSED
    async with start(again) as last:
        outcome = await last.resume(approve=True)
    assert (outcome.status, outcome.steps, runs(place)) == (Status.REPEATED_CALLS, 5, 5)


async def test_every_waiting_call_of_a_block_is_asked_for_itself(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    block = '```codepilot\nfor n in range(3):\n    execute("main", f"echo run {n} >> runs.txt")\n```\n' + DONE
    async with start(block) as runtime:
        outcome = await runtime.run("Count")
    requests = set()
    for number in range(3):
        assert outcome.pending is not None
        assert outcome.pending.args["command"] == f"echo run {number} >> runs.txt"
        requests.add(outcome.pending.request_id)
        async with start() as later:
            outcome = await later.resume(approve=True)
    assert outcome.status is Status.FINISHED
    assert len(requests) == 3
    assert (place / "runs.txt").read_text() == "run 0\nrun 1\nrun 2\n"


async def test_a_waiting_write_takes_the_content_that_was_shown(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    rules = (Rule(decision="ask", tool="write_file", paths=("guarded/**",)),)
    reply = (
        '```codepilot\nwrite_file("free.txt")\nwrite_file("guarded/a.txt")\n'
        'write_file("a.txt", 1, 1, mode="edit")\n```\n'
        "```text\nfree\n```\n```text\nguarded\n```\n```text\nONE\n```\n"
    ) + DONE
    async with start('```codepilot\nread_file("a.txt")\n```\n', reply, rules=rules) as runtime:
        outcome = await runtime.run("Write")
    assert outcome.pending is not None
    assert "guarded/a.txt" in outcome.pending.preview
    assert "+guarded" in outcome.pending.preview
    assert (place / "free.txt").read_text() == "free\n"
    assert not (place / "guarded").exists()
    async with start(rules=rules) as later:
        outcome = await later.resume(approve=True)
        assert (outcome.status, outcome.steps) == (Status.FINISHED, 2), shown(later)
    assert (place / "guarded" / "a.txt").read_text() == "guarded\n"
    assert (place / "a.txt").read_text() == "ONE\ntwo\n"


async def test_an_approval_is_void_when_files_have_changed_and_holds_again_when_they_are_as_they_were(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
    (place / "a.txt").write_text("one\nother\n")
    async with start() as later:
        with pytest.raises(ResumeError, match=r"a\.txt", check=coded(ResumeCode.FILES_CHANGED)):
            await later.resume(approve=True)
        assert later.pending is not None
        assert runs(place) == 0
        (place / "a.txt").write_text("one\ntwo\n")
        assert (await later.resume(approve=True)).status is Status.FINISHED
    assert runs(place) == 1


async def test_a_denial_needs_no_unchanged_workspace(start: Callable[..., AsyncRuntime], place: Path) -> None:
    read = '```codepilot\nread_file("a.txt")\nexecute("main", "echo run >> runs.txt")\n```\n'
    async with start(read) as runtime:
        await runtime.run("Count")
    (place / "a.txt").write_text("one\nother\n")
    async with start(DONE) as later:
        assert (await later.resume(approve=False)).status is Status.FINISHED
        assert "a.txt" in shown(later)


async def test_another_key_an_altered_state_and_an_altered_reply_are_refused(
    start: Callable[..., AsyncRuntime], place: Path, tmp_path: Path
) -> None:
    async with start(COUNT) as runtime:
        await runtime.run("Count")
        path = FileSession("a run", session_dir=tmp_path / "sessions").path
    async with start(key=b"another key of sixteen bytes") as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.ALTERED)):
            await later.resume(approve=True)
    whole = path.read_text()
    for old, new, code in (
        ("gAAAAA", "gAAAAB", ResumeCode.ALTERED),
        ("echo run >> runs.txt", "echo evil >> runs.txt", ResumeCode.MOVED),
        ("Done.", "Done!", ResumeCode.MOVED),
    ):
        path.write_text(whole.replace(old, new))
        async with start() as later:
            with pytest.raises(ResumeError, check=coded(code)):
                await later.resume(approve=True)
    path.write_text(whole)
    assert runs(place) == 0
    async with start() as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED


async def test_a_new_task_does_not_push_a_waiting_call_aside(start: Callable[..., AsyncRuntime]) -> None:
    async with start(COUNT, DONE) as runtime:
        first = await runtime.run("Count")
        assert first.pending is not None
        with pytest.raises(ResumeError, match=first.pending.request_id, check=coded(ResumeCode.UNANSWERED)):
            await runtime.run("Something else")
        await runtime.reset()
        assert runtime.pending is None
        with pytest.raises(ResumeError, check=coded(ResumeCode.NOTHING_WAITS)):
            await runtime.resume(approve=True)


async def test_terminals_that_died_meanwhile_are_said_to_have_died(start: Callable[..., AsyncRuntime]) -> None:
    rules = (Rule(decision="ask", tool="write_file"),)
    block = '```codepilot\nexecute("main", "cd /tmp")\nwrite_file("b.txt")\n```\n```text\nb\n```\n'
    async with start(block, rules=rules) as runtime:
        assert (await runtime.run("Go")).status is Status.PAUSED
    async with start(DONE, rules=rules) as later:
        await later.resume(approve=True)
        assert "these terminals died, with all that ran in them: main" in shown(later)


async def test_a_question_waits_for_its_answer(start: Callable[..., AsyncRuntime]) -> None:
    ask = '```codepilot\nanswer = ask_user("Which port?")\nprint("port", answer)\n```\n'
    async with start(ask) as runtime:
        outcome = await runtime.run("Go")
        assert outcome.pending is not None
        assert (outcome.pending.kind, outcome.pending.reason) == ("question", "Which port?")
    async with start(DONE) as later:
        assert later.outcome is not None
        assert (later.outcome.status, later.outcome.pending) == (Status.PAUSED, outcome.pending)
        with pytest.raises(ResumeError, check=coded(ResumeCode.NO_ANSWER)):
            await later.resume()
        ended = await later.resume(note="8080")
        assert ended.status is Status.FINISHED
        assert later.outcome == ended
        assert "port 8080" in shown(later)
        calls = [event for event in later.session.events if isinstance(event, ToolReturned)]
        assert [(call.number, call.tool, call.ok) for call in calls] == [(1, "ask_user", True)]


async def test_a_handler_that_answers_keeps_the_run_going(start: Callable[..., AsyncRuntime], place: Path) -> None:
    block = COUNT.replace("```codepilot\n", '```codepilot\nprint(ask_user("Sure?"))\n')
    async with start(block) as runtime:
        asked: list[str] = []

        @on_permission_request(runtime)
        def allow(tool: str, description: str, **_: object) -> bool:
            asked.append(f"{tool}: {description}")
            return True

        @on_ask_user(runtime)
        async def answer(question: str, **_: object) -> str:
            return f"{question} Yes."

        outcome = await runtime.run("Count")
        assert outcome.status is Status.FINISHED
        assert "Sure? Yes." in shown(runtime)
    assert len(asked) == 1
    assert runs(place) == 1


@pytest.mark.parametrize(
    ("answers", "status", "made"),
    [
        ([True, True], Status.FINISHED, 1),
        ([True, None], Status.FINISHED, 1),
        ([True, False], Status.FINISHED, 0),
        ([False, True], Status.FINISHED, 0),
        ([None, None], Status.PAUSED, 0),
        ([RuntimeError("broken")], Status.PAUSED, 0),
        ([True, RuntimeError("broken")], Status.PAUSED, 0),
        (["yes"], Status.FINISHED, 0),
    ],
)
async def test_any_denial_denies_and_only_a_plain_true_approves(
    start: Callable[..., AsyncRuntime], place: Path, answers: list[object], status: Status, made: int
) -> None:
    async with start(COUNT, DONE) as runtime:
        for answer in answers:

            def handler(_answer: object = answer, **_: object) -> object:
                if isinstance(_answer, Exception):
                    raise _answer
                return _answer

            on_permission_request(runtime, add=True)(handler)
        outcome = await runtime.run("Count")
    assert outcome.status is status
    assert runs(place) == made


async def test_the_run_s_clock_stands_still_while_a_person_is_asked(place: Path, sandbox: Sandbox) -> None:
    agent = Agent(
        provider=ScriptedProvider([COUNT]),
        work_dir=place,
        sandbox=sandbox,
        policy=Policy(rules=ASKS, limits=RunLimits(max_seconds=60)),
    )
    async with AsyncRuntime(agent) as runtime:
        seconds: list[float] = []

        @on_permission_request(runtime)
        async def think(**_: object) -> bool:
            deadline = runtime._state.clock._deadline
            assert deadline is not None
            assert deadline.when() is None
            seconds.append(1)
            return True

        outcome = await runtime.run("Count")
    assert outcome.status is Status.FINISHED
    assert seconds


def _leg(place: Path, mode: str, provider: list[str] | tuple[Wire, str]) -> None:
    """Make the run or go on with it, and say how it ended."""
    if isinstance(provider, list):
        made: Provider = ScriptedProvider(provider)
    else:
        wire, url = provider
        options = ModelOptions(api=None if wire == "anthropic" else wire)
        name = "anthropic" if wire == "anthropic" else "openai"
        made = provider_for(name, api_key="sk-made-up-0123456789", base_url=url, options=options)
    policy = Policy(rules=(Rule(decision="ask", tool="execute"),))
    agent = Agent(
        provider=made, work_dir=place, sandbox=pick_sandbox("auto", SandboxSettings()), policy=policy, chat=False
    )
    session = FileSession("child", session_dir=place.parent / "sessions")
    with Runtime(agent, session, state_key=b"k" * 32, quiet=True) as runtime:
        outcome = runtime.run("Count") if mode == "run" else runtime.resume(approve=mode == "approve")
        sys.stdout.write(f"{outcome.status} {outcome.pending.request_id if outcome.pending else outcome.summary}")


async def child(place: Path, mode: str, provider: list[str] | tuple[Wire, str]) -> str:
    with Forked(_leg, place, mode, provider, piped=True) as process:
        said = await asyncio.wait_for(asyncio.to_thread(process.stdout.read), 60)
        assert await process.wait() == 0
        return said


@pytest.mark.slow
async def test_it_is_paused_in_one_process_and_goes_on_in_another(place: Path) -> None:
    assert (await child(place, "run", [COUNT])).startswith("paused ")
    assert runs(place) == 0
    assert await child(place, "approve", []) == "finished Done."
    assert runs(place) == 1


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["anthropic", "responses", "chat"])
async def test_over_every_wire_the_process_that_goes_on_asks_with_the_same_beginning(place: Path, wire: Wire) -> None:
    async with ModelServer([COUNT.removesuffix(DONE), DONE]) as server:
        provider = (wire, server.url_anthropic if wire == "anthropic" else server.url_openai)
        assert (await child(place, "run", provider)).startswith("paused ")
        assert await child(place, "approve", provider) == "finished Done."
        first, second = (request.json for request in server.requests)
    assert runs(place) == 1
    assert "kept after" in json.dumps(second)
    assert first["model"] == second["model"]
    field = "input" if wire == "responses" else "messages"
    before, after = (_texts(body[field]) for body in (first, second))
    known = [text for text in before if "Agentic step" not in text]
    assert after[: len(known)] == known
    assert any(COUNT.removesuffix(DONE) in text for text in after)


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    """The text of each block of each message, cache marks aside."""
    texts = []
    for message in messages:
        content = message["content"]
        texts += [content] if isinstance(content, str) else [block["text"] for block in content]
    return texts


async def test_a_run_goes_on_whose_secrets_were_scrubbed_from_what_it_recorded(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    told = '```codepilot\nprint("the " + "pass" + "word is hidden")\n```\n'

    def scrub(text: str) -> str:
        return text.replace("password", "[redacted]")

    async with start(told, COUNT, scrub=scrub) as runtime:
        assert (await runtime.run("Look for the password")).status is Status.PAUSED
        assert "the [redacted] is hidden" in shown(runtime)
        assert "password" not in str(runtime.messages)
    kept = [path.read_text() for path in place.parent.rglob("*.jsonl")]
    assert kept
    assert not any("password" in text for text in kept)
    async with start(scrub=scrub) as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED
    assert runs(place) == 1


WAITS = {"session_id": "main", "command": "echo run >> runs.txt"}


@pytest.mark.parametrize(
    "reply",
    [
        '```codepilot\nexecute("main", "echo run >> runs.txt")\nwrite_file("kept.txt")\n'
        'execute("main", "cat kept.txt; echo run >> runs.txt")\nwrite_file("last.txt")\n```\n'
        "```\nthe password\n```\n```\nand the password\n```\n" + DONE,
        asks(
            ("execute", WAITS),
            ("write_file", {"path": "kept.txt", "content": "the password\n"}),
            ("execute", WAITS),
            ("write_file", {"path": "last.txt", "content": "and the password\n"}),
            finish(),
        ),
    ],
    ids=["blocks", "tools"],
)
async def test_the_calls_behind_one_that_waited_are_made_with_the_secrets_that_the_log_has_not(
    start: Callable[..., AsyncRuntime], place: Path, reply: str | ScriptedReply
) -> None:
    def scrub(text: str) -> str:
        return text.replace("password", "[redacted]")

    async with start(reply, scrub=scrub) as runtime:
        assert (await runtime.run("Count")).status is Status.PAUSED
    for ends in (Status.PAUSED, Status.FINISHED):
        async with start(DONE if isinstance(reply, str) else asks(finish()), scrub=scrub) as later:
            assert (await later.resume(approve=True)).status is ends, shown(later)
        kept = [path.read_text() for path in place.parent.rglob("*.jsonl")]
        assert kept
        assert not any("password" in text for text in kept)
    assert runs(place) == 2
    assert (place / "kept.txt").read_text() == "the password\n"
    assert (place / "last.txt").read_text() == "and the password\n"


async def test_a_call_that_holds_a_secret_is_refused_where_it_would_have_to_wait(
    start: Callable[..., AsyncRuntime], place: Path
) -> None:
    leaks = '```codepilot\nexecute("main", "echo run password >> runs.txt")\n```\n'

    async with start(leaks, DONE, scrub=lambda text: text.replace("password", "[redacted]")) as runtime:
        assert (await runtime.run("Count")).status is Status.FINISHED
        assert "execute cannot wait for an answer: it holds a secret" in shown(runtime)
    assert runs(place) == 0
