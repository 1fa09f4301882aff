"""Runs whose model asks for calls by its service's own tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agent_runtime import (
    AsyncRuntime,
    CompletionWithdrawn,
    Event,
    EventType,
    FileSession,
    Observed,
    Policy,
    Recorder,
    Replied,
    ResumeError,
    Rule,
    RunLimits,
    Sandbox,
    SettingsError,
    Status,
    Streamed,
    Task,
    ToolResult,
    ToolReturned,
    compare_recording,
    replay_recording,
)
from agent_runtime.context.transcript import Transcript
from agent_runtime.core.errors import ResumeCode
from agent_runtime.core.events import Shrunk
from agent_runtime.core.values import Plain
from agent_runtime.run.state import RunProgress
from agent_runtime.sessions.codec import parse
from agent_runtime.transports.native import OWN_TOOLS_HINT, VARIABLES_LOST
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.transports.native.parts import Model, answers, asks, finish, requests_of, require_answered
from tests.codes import coded

Start = Callable[..., AsyncRuntime]
READ = ("read_file", {"path": "a.txt"})
ASKS = Policy(rules=(Rule(decision="ask", tool="write_file", reason="writes need a person"),))
DONE = asks(finish())


async def test_calls_run_in_order_and_each_is_answered_by_its_own_result(start: Start, place: Path) -> None:
    first = asks(("write_file", {"path": "b.txt", "content": "new\n"}), ("read_file", {"path": "b.txt"}), READ)
    async with start(first, DONE) as runtime:
        outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 2)
    wrote, read, other = requests_of(runtime)[1].messages[-1].answers
    assert [each.id for each in (wrote, read, other)] == ["c0", "c1", "c2"]
    assert all(each.ok for each in (wrote, read, other))
    assert "1 | new" in read.text
    assert "2 | two" in other.text
    assert (place / "b.txt").read_text() == "new\n"


async def test_lines_that_an_earlier_answer_of_the_reply_has_are_not_repeated(start: Start, place: Path) -> None:
    (place / "a.py").write_text("def f():\n    x = 1\n    return x\n\n\ndef g():\n    return 2\n")
    first = asks(("read_file", {"path": ["a.py::f", "a.py::g"]}), ("read_file", {"path": "a.py", "max_chars": 9_000}))
    async with start(first, DONE) as runtime:
        await runtime.run("Do it")
        two, whole = answers(runtime)[:2]
    assert two.text.count("[read_file] 'a.py' (lines ") == 2
    assert whole.text.split("\n")[1:] == ["[lines 1-3: above]", "4 |", "5 |", "6 | def g():", "7 |     return 2"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("reed_file", {"path": "a.txt"}), "no tool 'reed_file'. Did you mean 'read_file'"),
        (("read_file", '{"path": "a.t'), "not JSON"),
        (("read_file", "[1]"), "must be a JSON object"),
        (("read_file", '{"path": NaN}'), "NaN is no number in JSON"),
        (("read_file", "[" * 100_000), "nest too deeply"),
        (("find", '{"pattern": "\\ud83d"}'), r"half of a character ('\ud83d')"),
        (("list_files", '{"pattern": "\\ud83d"}'), "half of a character"),
        (("read_file", {"path": "a.txt", "start_line": "first"}), "argument start_line"),
        (("read_file", {"path": "a.txt", "lines": 3}), "unexpected keyword argument 'lines'"),
        (("read_file", {}), "missing a required argument: 'path'"),
        (("read_file", {"path": "../x"}), "workspace"),
        (("write_file", {"path": "b.txt"}), "`content`"),
        (("write_file", {"path": "a.txt", "mode": "replace", "content": "x"}), "`old` and `content`"),
        (("finish", {"text": "Done."}), 'takes {"summary": "text"}'),
        (("script", {"code": "if"}), "does not parse"),
        (("script", {"code": "read_file(1)"}), "read_file"),
        (("script", {"code": "assert False"}), "AssertionError"),
        (("execute", {"session_id": "main", "command": "ls"}), "read-only run"),
    ],
)
async def test_a_call_that_cannot_be_made_is_answered_and_those_after_it_are_made(
    start: Start, call: tuple[str, object], told: str
) -> None:
    policy = Policy(denied_tools={"execute": "read-only run"})
    async with start(asks(call, READ, finish()), DONE, policy=policy) as runtime:
        outcome = await runtime.run("Do it")
    failed, read, ended = answers(runtime)[:3]
    assert (failed.ok, read.ok, ended.ok) == (False, True, True)
    assert told in failed.text
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 2)


@pytest.mark.parametrize(
    "call",
    [
        ("write_file", {"path": "secret/a.txt", "content": "x"}),
        ("write_file", {"path": "b/../secret/a.txt", "content": "x", "mode": "a"}),
        (
            "write_file",
            {"mode": "patch", "content": "*** Begin Patch\n*** Add File: secret/a.txt\n+x\n*** End Patch\n"},
        ),
        ("script", {"code": 'write_file("secret/a.txt", "x")'}),
        ("execute", {"session_id": "main", "command": "cd /; rm -rf x"}),
        ("script", {"code": 'execute("main", "true && rm -rf x")'}),
    ],
)
async def test_rules_about_files_and_commands_hold_for_every_way_of_calling(
    start: Start, place: Path, call: tuple[str, object]
) -> None:
    rules = (
        Rule(decision="deny", tool="write_file", paths=("secret/**",), reason="not yours"),
        Rule(decision="deny", tool="execute", commands=("rm *",), reason="not yours"),
    )
    async with start(asks(call), DONE, policy=Policy(rules=rules)) as runtime:
        assert (await runtime.run("Do it")).status is Status.FINISHED
    assert not answers(runtime)[0].ok
    assert "not yours" in answers(runtime)[0].text
    assert not (place / "secret").exists()


async def test_a_summary_counts_only_if_every_call_of_its_reply_succeeds(start: Start) -> None:
    live: list[Event] = []
    bad = ("read_file", {"path": "nowhere.txt"})
    async with start(asks(finish(), bad), asks(READ, finish("")), policy=None) as runtime:
        runtime.hooks.add(live.append)
        outcome = await runtime.run("Do it")
    assert (outcome.summary, outcome.steps) == ("Done.", 2)
    assert sum(isinstance(each, CompletionWithdrawn) for each in live) == 1
    assert "".join(each.text for each in live if isinstance(each, Streamed)) == "Done.\n"


async def test_only_prose_is_streamed_while_a_reply_arrives(start: Start) -> None:
    live: list[Event] = []
    async with start(asks(READ, finish(), text="Looking.")) as runtime:
        runtime.hooks.add(live.append)
        await runtime.run("Do it")
    told = [(each.text, each.completion) for each in live if isinstance(each, Streamed)]
    assert ("".join(text for text, completion in told if not completion), told[-1]) == ("Looking.", ("Done.\n", True))
    kinds = [type(each) for each in live]
    assert kinds.index(ToolReturned) > kinds.index(Replied)


@pytest.mark.parametrize(
    ("chat", "replies", "status"),
    [
        (False, ["It is blue."], Status.FINISHED),
        (True, ["It is blue."], Status.ANSWERED),
        (True, [asks(READ), "It is blue."], Status.FINISHED),
        (False, [asks(READ), "It is blue."], Status.FINISHED),
    ],
)
async def test_a_reply_without_calls_ends_the_task(
    start: Start, *, chat: bool, replies: list[object], status: Status
) -> None:
    async with start(*replies, chat=chat) as runtime:
        outcome = await runtime.run("What colour is it?")
    assert (outcome.status, outcome.summary) == (status, "It is blue.")


async def test_a_reply_that_was_cut_off_or_is_empty_does_nothing(start: Start, place: Path) -> None:
    cut = asks(("write_file", {"path": "b.txt", "content": "x"}), stop="length")
    async with start(cut, "", DONE) as runtime:
        outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 3)
    assert not (place / "b.txt").exists()
    observed = [event.text for event in runtime.session.events if isinstance(event, Observed)]
    assert "1 of 3 in a row: truncated" in observed[0]
    assert "2 of 3 in a row: empty" in observed[1]


async def test_a_script_does_several_things_in_one_call(start: Start) -> None:
    code = (
        'for n in range(2):\n    write_file(f"{n}.txt", content=f"number {n}\\n")\nprint(len(list_files()))\nkept = 7\n'
    )
    async with start(asks(("script", {"code": code}), ("script", {"code": "print(kept)"})), DONE) as runtime:
        assert (await runtime.run("Do it")).status is Status.FINISHED
    [first, second, _] = answers(runtime)
    assert first.text.endswith("3")
    assert "[write_file] '1.txt'" in first.text
    assert second.text == "7"
    assert [event.tool for event in runtime.session.events if isinstance(event, ToolReturned)] == [
        "write_file",
        "write_file",
        "list_files",
    ]


async def test_calls_of_a_reply_are_bounded_those_of_its_scripts_included(start: Start) -> None:
    policy = Policy(limits=RunLimits(max_calls_per_step=3))
    script = ("script", {"code": 'read_file("a.txt")\nread_file("a.txt")'})
    async with start(asks(READ, script, READ, READ), DONE, policy=policy) as runtime:
        assert (await runtime.run("Do it")).status is Status.FINISHED
    assert [each.ok for each in answers(runtime)] == [True, True, False, False, True]
    assert "more than 3 calls" in answers(runtime)[2].text
    assert sum(isinstance(event, ToolReturned) for event in runtime.session.events) == 3


async def test_the_output_of_a_reply_is_limited(start: Start, place: Path) -> None:
    (place / "long.txt").write_text("".join(f"line {n}\n" for n in range(2_000)))
    policy = Policy(limits=RunLimits(max_output_chars_per_step=1_000))
    call = ("read_file", {"path": "long.txt", "end_line": 2_000})
    async with start(asks(call, call, ("nope", {})), DONE, policy=policy) as runtime:
        await runtime.run("Do it")
    assert sum(len(each.text) for each in answers(runtime)) < 1_600
    assert "read_file('long.txt', 1, 2000)" in answers(runtime)[1].text


async def test_the_same_calls_over_and_over_end_the_run(start: Start) -> None:
    async with start(*[asks(("nope", {}))] * 9) as runtime:
        outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.steps) == (Status.REPEATED_CALLS, 5)


async def test_a_pause_keeps_the_answers_so_far_and_makes_no_call_twice(start: Start, place: Path) -> None:
    write = ("write_file", {"path": "b.txt", "mode": "a", "content": "x\n"})
    note = ("count", "{}")
    counted: list[str] = []

    def count() -> str:
        """Count."""
        counted.append("once")
        return "counted"

    async with start(asks(note, write, note, finish()), policy=ASKS) as runtime:
        runtime.register_tool("count", count)
        outcome = await runtime.run("Do it")
        assert outcome.status is Status.PAUSED
        assert outcome.pending is not None
        assert (outcome.pending.tool, outcome.pending.args) == ("write_file", write[1])
        assert "+x" in outcome.pending.preview
    assert (len(counted), (place / "b.txt").exists()) == (1, False)
    async with start(policy=ASKS) as later:
        later.register_tool("count", count)
        outcome = await later.resume(approve=True)
        assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 1)
        assert [(each.id, each.ok) for each in answers(later)] == [(f"c{n}", True) for n in range(4)]
        assert VARIABLES_LOST not in answers(later)[1].text
    assert (len(counted), (place / "b.txt").read_text()) == (2, "x\n")


async def test_a_pause_that_an_earlier_version_stored_with_format_2_is_resumed(
    start: Start, place: Path, tmp_path: Path
) -> None:
    session = FileSession("a run", session_dir=tmp_path / "sessions")
    for event in parse((Path(__file__).parent / "pause_format_2.jsonl").read_bytes(), "the log").events:
        session.append(event)
    await session.commit()
    session.close()
    async with start(policy=ASKS) as later:
        outcome = await later.resume(approve=True)
        assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 1)
        assert [(each.id, each.ok) for each in answers(later)] == [(f"c{n}", True) for n in range(4)]
        assert "2 | two" in answers(later)[1].text
    assert (place / "b.txt").read_text() == "B\n"


async def test_a_script_that_waits_goes_on_where_it_stood(start: Start, place: Path) -> None:
    code = 'kept = "before"\nprint(kept)\nwrite_file("b.txt", content="x")\nprint("after", kept)'
    async with start(asks(READ, ("script", {"code": code}), READ), policy=ASKS) as runtime:
        assert (await runtime.run("Do it")).status is Status.PAUSED
    async with start(DONE, policy=ASKS) as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED
        told = requests_of(later)[0].messages[-1].answers
    assert [each.ok for each in told] == [True, True, True]
    assert told[1].text.index("before") < told[1].text.index("[write_file]") < told[1].text.index("after before")
    assert (place / "b.txt").read_text() == "x"


@pytest.mark.parametrize("apart", [True, False])
async def test_a_note_says_that_a_pause_discarded_the_variables_of_scripts(start: Start, *, apart: bool) -> None:
    first, write = ("script", {"code": "kept = 5"}), ("write_file", {"path": "b.txt", "content": "x"})
    steps = (asks(first), asks(write)) if apart else (asks(first, write),)
    async with start(*steps, policy=ASKS) as runtime:
        assert (await runtime.run("Do it")).status is Status.PAUSED
    async with start(DONE, policy=ASKS) as later:
        await later.resume(approve=True)
        answer = requests_of(later)[0].messages[-1].answers[-1]
    assert answer.ok
    assert VARIABLES_LOST in answer.text


async def test_a_script_that_calls_finish_gets_a_hint_that_it_is_a_tool(start: Start) -> None:
    async with start(asks(("script", {"code": 'finish("Done.")'})), DONE) as runtime:
        await runtime.run("Do it")
        [answer] = requests_of(runtime)[1].messages[-1].answers
    assert not answer.ok
    assert answer.text.endswith(OWN_TOOLS_HINT)


async def test_a_question_waits_like_any_call(start: Start) -> None:
    async with start(asks(READ, ("ask_user", {"question": "Which colour?"}), READ)) as runtime:
        outcome = await runtime.run("Paint it")
        assert outcome.pending is not None
        assert (outcome.pending.kind, outcome.pending.reason) == ("question", "Which colour?")
    async with start(DONE) as later:
        assert (await later.resume(note="blue")).status is Status.FINISHED
    assert [each.ok for each in answers(later)[:3]] == [True, True, True]
    assert "blue" in answers(later)[1].text
    assert sum(isinstance(event, ToolReturned) for event in later.session.events) == 3


async def test_a_denied_call_is_answered_so_and_the_model_goes_on(start: Start, place: Path) -> None:
    write = ("write_file", {"path": "b.txt", "content": "x"})
    async with start(asks(write, READ, finish()), policy=ASKS) as runtime:
        await runtime.run("Do it")
    async with start(asks(finish("Left it.")), policy=ASKS) as later:
        outcome = await later.resume(approve=False, note="not now")
        assert (outcome.summary, outcome.steps) == ("Left it.", 2)
        denied, read, _ = requests_of(later)[0].messages[-1].answers
    assert (denied.ok, read.ok) == (False, True)
    assert "not approved: not now" in denied.text
    assert not (place / "b.txt").exists()


@pytest.mark.parametrize(("first", "second"), [("tools", "blocks"), ("blocks", "tools")])
async def test_a_paused_step_is_gone_on_with_only_by_its_own_transport(start: Start, first: str, second: str) -> None:
    block = '```codepilot\nwrite_file("b.txt")\n```\n```\nx\n```\n'
    reply = block if first == "blocks" else asks(("write_file", {"path": "b.txt", "content": "x"}))
    async with start(reply, policy=ASKS, transport=first) as runtime:
        assert (await runtime.run("Do it")).status is Status.PAUSED
    async with start(policy=ASKS, transport=second) as later:
        with pytest.raises(ResumeError, check=coded(ResumeCode.TRANSPORT)):
            await later.resume(approve=True)


@pytest.mark.parametrize("first", ["tools", "blocks"])
async def test_a_suspended_run_keeps_its_transport_by_default(start: Start, place: Path, first: str) -> None:
    block = '```codepilot\nwrite_file("b.txt")\n```\n```\nx\n```\n```completion\nDone.\n```\n'
    reply = block if first == "blocks" else asks(("write_file", {"path": "b.txt", "content": "x\n"}), finish())
    async with start(reply, policy=ASKS, transport=first) as runtime:
        assert (await runtime.run("Do it")).status is Status.PAUSED
    # The model of today prefers the other one.
    async with start(DONE if first == "blocks" else "Done.", policy=ASKS, transport=None) as later:
        assert (await later.resume(approve=True)).status is Status.FINISHED
    assert (place / "b.txt").read_text() == "x\n"


async def test_a_session_may_be_gone_on_with_by_the_other_transport(start: Start) -> None:
    async with start(asks(READ, text="I look."), DONE) as runtime:
        await runtime.run("Look")
    async with start("```completion\nSeen.\n```\n", transport="blocks") as later:
        assert (await later.run("And now?")).summary == "Seen."
        told = requests_of(later)[0]
    assert told.tools == ()
    assert not any(message.requests or message.answers for message in told.messages)
    assert '[call] read_file({"path": "a.txt"})' in told.messages[1].text
    assert "2 | two" in told.messages[2].text
    async with start(DONE) as last:
        assert (await last.run("And then?")).status is Status.FINISHED


async def test_the_result_fits_a_schema_or_is_asked_for_again(start: Start) -> None:
    schema: dict[str, Plain] = {"type": "object", "required": ["n"]}
    replies = [asks(READ, finish("none")), "also none", asks(finish('{"n": 3}'))]
    async with start(*replies) as runtime:
        outcome = await runtime.run(Task(goal="Count", output_schema=schema))
    assert (outcome.status, outcome.structured_output, outcome.steps) == (Status.FINISHED, {"n": 3}, 3)


async def test_each_request_extends_the_one_before_and_every_call_is_answered(start: Start) -> None:
    replies = [
        asks(READ, ("nope", {}), text="Step."),
        asks(READ, finish(), stop="length"),
        asks(("script", {"code": "1/0"})),
    ]
    async with start(*replies * 3, DONE, *replies, "Done.") as runtime:
        await runtime.run("Do it")
        runtime.send_message("And hurry")
        await runtime.run("Do it again")
        for before, after in pairwise(requests_of(runtime)):
            assert (before.system, before.tools) == (after.system, after.tools)
            assert after.messages[: len(before.messages)] == before.messages
        log = [*runtime.session.events]
    for end in range(1, len(log)):
        shown = Transcript().messages(log[:end])
        if shown and shown[-1].role == "user":
            require_answered(shown)
    seen = [position for position, event in enumerate(log) if isinstance(event, Observed)]
    shorter = Transcript().messages([*log, Shrunk(outputs=tuple(seen))])
    require_answered(shorter)
    assert not any("two" in each.text for message in shorter for each in message.answers)


async def test_a_step_that_was_cut_off_leaves_no_request_unanswered(start: Start) -> None:
    begun = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with start(asks(READ, ("wait", {})), DONE) as runtime:
        runtime.register_tool("wait", wait)
        work = asyncio.create_task(runtime.run("Wait"))
        await begun.wait()
        runtime.abort()
        assert (await work).status is Status.STOPPED
        assert (await runtime.run("Go on")).status is Status.FINISHED
        told = requests_of(runtime)[-1].messages[-1]
    assert [each.ok for each in told.answers] == [False, False]
    assert "Reading a.txt" in told.text


async def test_a_run_whose_process_died_after_a_reply_goes_on(start: Start, tmp_path: Path, place: Path) -> None:
    async with start(asks(("write_file", {"path": "b.txt", "content": "x"})), DONE) as runtime:
        await runtime.run("Do it")
        log = [*runtime.session.events]
    cut = next(position for position, event in enumerate(log) if isinstance(event, ToolReturned)) + 1
    session = FileSession("cut", session_dir=tmp_path / "sessions")
    for event in log[:cut]:
        session.append(event)
    await session.commit()
    agent = start(DONE).agent
    async with AsyncRuntime(agent, session) as later:
        assert (await later.resume()).status is Status.FINISHED
        told = requests_of(later)[0].messages[-1]
    assert [each.ok for each in told.answers] == [False]
    assert "Writing b.txt" in told.text
    assert RunProgress(session.events).read().usage.requests == 2


async def test_pictures_stand_in_the_answer_of_their_call(start: Start) -> None:
    def look() -> ToolResult:
        """Look."""
        return ToolResult(value=None, text="a plot", images=(picture("plot"),))

    for sees in (True, False):
        async with start(asks(("look", {}), READ), DONE, sees=sees) as runtime:
            runtime.register_tool("look", look)
            await runtime.run("Look")
            first, second = requests_of(runtime)[1].messages[-1].answers
        assert (len(first.images), second.images) == (sees, ())
        assert ("not shown" in first.text) is not sees


async def test_pictures_of_a_script_that_waits_are_kept(start: Start) -> None:
    def look() -> ToolResult:
        """Look."""
        return ToolResult(value=None, text="a plot", images=(picture("plot"),))

    code = 'look()\nwrite_file("b.txt", content="x")'
    async with start(asks(("script", {"code": code})), policy=ASKS, sees=True) as runtime:
        runtime.register_tool("look", look)
        assert (await runtime.run("Look")).status is Status.PAUSED
    async with start(DONE, policy=ASKS, sees=True) as later:
        later.register_tool("look", look)
        assert (await later.resume(approve=True)).status is Status.FINISHED
    assert answers(later)[0].images == (picture("plot"),)


async def test_a_registered_tool_goes_before_the_transports_own(start: Start) -> None:
    def finish_(summary: str) -> str:
        """Ours."""
        return f"took {summary}"

    async with start(asks(finish("it")), "Ended.") as runtime:
        runtime.register_tool("finish", finish_)
        assert (await runtime.run("Do it")).summary == "Ended."
    assert answers(runtime)[0].text == "took it"


async def test_hooks_hear_of_native_calls_as_of_all_others(start: Start) -> None:
    heard: list[tuple[str, object]] = []
    async with start(asks(READ, ("nope", {})), DONE) as runtime:
        for kind in (EventType.TOOL_CALL, EventType.TOOL_RESULT, EventType.RUNTIME_ERROR, EventType.FINISH):
            runtime.hooks.register(kind, lambda kind=kind, **given: heard.append((kind, given.get("tool"))))
        await runtime.run("Do it")
    assert heard == [
        (EventType.TOOL_CALL, "read_file"),
        (EventType.TOOL_RESULT, "read_file"),
        (EventType.RUNTIME_ERROR, None),
        (EventType.FINISH, None),
    ]


def test_a_model_without_tool_calls_is_refused(start: Start) -> None:
    class Speaks(Model):
        tool_calling = "unsupported"

    agent = start(DONE).agent
    with pytest.raises(SettingsError, match="no tool calls of its own"):
        AsyncRuntime(replace(agent, provider=Speaks([])))


async def test_a_run_is_recorded_replayed_and_compared_like_any_other(
    start: Start, tmp_path: Path, sandbox: Sandbox
) -> None:
    replies = [asks(READ, ("nope", "{"), text="Looking."), asks(("script", {"code": 'read_file("a.txt")'}), finish())]
    recorder = Recorder(start(*replies).agent, tmp_path / "run.jsonl", secrets=("never",))
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        await runtime.run("Do it")
    replayed = await replay_recording(tmp_path / "run.jsonl", work_dir=recorder.agent.work_dir, sandbox=sandbox)
    assert replayed.difference is None
    assert (replayed.requests, replayed.remaining) == (2, 0)
    assert [each.summary for each in replayed.outcomes] == ["Done."]
    compared = await compare_recording(tmp_path / "run.jsonl")
    assert (compared.requests, compared.differences) == (2, ())
