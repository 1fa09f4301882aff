"""An agent that delegates: scripted models, real workspaces, real sandboxes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    ChildRecorded,
    ChildResult,
    ChildWatched,
    Delegation,
    Ended,
    Event,
    FileSession,
    InMemorySession,
    Observed,
    PendingCall,
    Persona,
    Policy,
    Recovered,
    Replied,
    Rule,
    RunLimits,
    Sandbox,
    ScriptedProvider,
    Session,
    Started,
    Status,
    Task,
    ToolCalled,
    Usage,
)
from tests.agent_runtime.delegation.scripts import DONE, Children, block
from tests.agent_runtime.transports.native.parts import Model, asks, finish
from tests.waiting import eventually


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "b.txt").write_text("first\n")
    (root / "built.log").write_text("x")
    (root / ".gitignore").write_text("*.log\n")
    return root


@pytest.fixture
def start(project: Path, sandbox: Sandbox) -> Callable[..., AsyncRuntime]:
    def make(
        *replies: str,
        children: Children,
        listeners: tuple[Callable[[Event], None], ...] = (),
        session: Session | None = None,
        delegation: Delegation | None = None,
        **more: object,
    ) -> AsyncRuntime:
        given = replace(delegation or Delegation(), provider=children)
        settings: dict[str, object] = {"delegation": given, "chat": False} | more
        agent = Agent(provider=ScriptedProvider(replies), work_dir=project, sandbox=sandbox, **settings)  # type: ignore[arg-type] # of this test
        return AsyncRuntime(agent, session or "memory", listeners=listeners, state_key=b"sixteen bytes or more")

    return make


def observations(runtime: AsyncRuntime) -> str:
    return "\n".join(event.text for event in runtime.session.events if isinstance(event, Observed))


def children_of(runtime: AsyncRuntime) -> list[tuple[str, Event]]:
    return [(event.task, event.event) for event in runtime.session.events if isinstance(event, ChildRecorded)]


def calls_in(events: list[Event]) -> list[tuple[str, int]]:
    watched = [(event.task, event.event) for event in events if isinstance(event, ChildWatched)]
    return [(task, event.number) for task, event in watched if isinstance(event, ToolCalled)]


async def test_two_tasks_are_delegated_and_their_changes_taken_over(
    start: Callable[..., AsyncRuntime], project: Path
) -> None:
    alpha = (
        'write_file("a.txt", mode="replace")\n'
        'execute("main", "ls; rm b.txt; cat built.log; chmod +x a.txt", check=True)'
    )
    children = Children(
        ALPHA=[block(alpha, "two\n", "2\n", completion="Alpha is done.")],
        BETA=[block('write_file("new/c.txt")', "three\n", completion="Beta is done.")],
    )
    code = 'ids = [delegate("ALPHA"), delegate("BETA")]\nfor id in ids:\n    print(collect(id))\nprint(collect("t1"))'
    async with start(block(code, completion="All done."), children=children) as runtime:
        outcome = await runtime.run("Share the work")
        assert (outcome.status, outcome.summary) == (Status.FINISHED, "All done."), observations(runtime)
        assert observations(runtime) == "['a.txt', 'b.txt']\n['new/c.txt']\n[]"  # and no word of changes by others
        assert outcome.usage.requests == 3
        told = children_of(runtime)
        assert {task for task, _ in told} == {"t1", "t2"}
        assert [str(event.outcome) for task, event in told if task == "t1" and isinstance(event, Ended)] == [
            "Alpha is done."
        ]
        results = {each.task: each for each in runtime.session.events if isinstance(each, ChildResult)}
        assert results["t1"].changes == ("modified: a.txt", "deleted: b.txt")
        assert "-two\n+2\n" in results["t1"].diff
    assert (project / "a.txt").read_text() == "one\n2\n"
    assert (project / "a.txt").stat().st_mode & 0o111
    assert not (project / "b.txt").exists()
    assert (project / "new" / "c.txt").read_text() == "three\n"
    assert (project / "built.log").exists()


async def test_a_file_that_a_task_makes_git_ignore_is_not_reported_as_deleted(
    start: Callable[..., AsyncRuntime], project: Path
) -> None:
    code = 'execute("main", "printf \'?.txt\\n\' >> .gitignore; echo second >> b.txt", check=True)'
    children = Children(ALPHA=[block(code, completion="Alpha is done.")])
    async with start(block('print(collect(delegate("ALPHA")))', completion="Done."), children=children) as runtime:
        await runtime.run("Share the work")
        (result,) = [each for each in runtime.session.events if isinstance(each, ChildResult)]
        assert result.changes == ("modified: .gitignore", "modified: b.txt")
        assert "+second" in result.diff
        assert observations(runtime) == "['.gitignore', 'b.txt']"
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert (project / "b.txt").read_text() == "first\nsecond\n"


async def test_nothing_is_taken_where_both_have_changed_a_file(
    start: Callable[..., AsyncRuntime], project: Path
) -> None:
    change = 'write_file("a.txt")\nwrite_file("b.txt")\nexecute("main", "ln -s /etc/passwd link; echo 1 > more.log")'
    children = Children(ALPHA=[block(change, "theirs\n", "theirs\n", completion="Changed.")])
    first = block('write_file("a.txt")\ndelegate("ALPHA")\nwrite_file("a.txt")\ncollect("t1")', "1\n", "mine\n")
    second = block('print(task_status("t1")["diff"])\nprint(collect("t1", ["b.txt"]))', completion="Done.")
    async with start(first, second, children=children) as runtime:
        assert (await runtime.run("Both change a.txt")).status is Status.FINISHED
        assert "nothing was taken over from task t1" in observations(runtime)
        assert "a.txt: changed in the workspace since the task began" in observations(runtime)
        assert "link: 'link' leads out of the workspace" in observations(runtime)
        assert "['b.txt']" in observations(runtime)
        assert "-mine\n+theirs" in observations(runtime)
    assert (project / "a.txt").read_text() == "mine\n"
    assert (project / "b.txt").read_text() == "theirs\n"
    assert not (project / "link").is_symlink()


async def test_a_child_has_no_more_than_its_parent(start: Callable[..., AsyncRuntime], project: Path) -> None:
    (project / "hidden.txt").write_text("a secret")
    rules = (
        Rule(decision="deny", tool="write_file", paths=("b.txt",)),
        Rule(decision="deny", tool="read_file", paths=("hidden.txt",)),
    )
    attempts = [
        block('write_file("b.txt")', "x\n"),
        block('print(read_file("hidden.txt"))'),
        block("print(list_files())"),
        block('execute("main", "echo x > b.txt; echo y > hidden.txt", check=True)', completion="By the shell."),
    ]
    children = Children(ALPHA=attempts)
    code = 'delegate("ALPHA", persona="reader")\ncollect("t1")'
    tools = ("read_file", "write_file", "execute", "delegate", "find")
    bounds = Delegation(personas=(Persona(name="reader", tools=tools),))
    limits = RunLimits(max_steps=21, max_tokens=1_000_000)
    async with start(
        block(code), DONE, children=children, delegation=bounds, policy=Policy(rules=rules, limits=limits)
    ) as runtime:
        runtime.register_tool("custom", lambda: 1)
        runtime.register_tool("find", lambda pattern: [], replace=True)  # the built-in one may be more than it may have
        assert (await runtime.run("Have it done")).status is Status.FINISHED
        seen = [event.text for _, event in children_of(runtime) if isinstance(event, Observed)]
        assert "write_file is not allowed in this run" in seen[0]
        assert "read_file is not allowed in this run" in seen[1]
        assert "Format error 1" in seen[2]
        assert "collect is not allowed in this run: a rule denies 'b.txt'" in observations(runtime)
        assert "a secret" not in "".join(each.diff for each in runtime.session.events if isinstance(each, ChildResult))
    assert (project / "b.txt").read_text() == "first\n"
    system, names = children.requests[0].system, ("list_files", "delegate", "custom", "find", "execute")
    told = [name for name in names if f"\n{name}(" in system]
    assert told == ["execute"]


async def test_a_child_gets_a_share_of_the_remaining_limits_and_tasks_are_limited(
    start: Callable[..., AsyncRuntime],
) -> None:
    loops = [block(f"print({number})") for number in range(9)]
    children = Children(ALPHA=loops, BETA=[DONE])
    code = 'delegate("ALPHA")\nprint(collect("t1"))'
    bounds = Delegation(max_tasks=2)
    again = block('print(delegate("BETA"), collect("t2"))\ndelegate("BETA")')
    async with start(
        block(code), again, DONE, children=children, delegation=bounds, policy=Policy(limits=RunLimits(max_steps=10))
    ) as runtime:
        outcome = await runtime.run("Have it done")
        assert "task t1 ended as max_steps (4 steps" in observations(runtime)
        assert "this run has delegated 2 tasks, and may no more" in observations(runtime)
        assert outcome.usage.requests == 3 + 4 + 1


@pytest.mark.parametrize("answer", [True, False, None])
async def test_the_parents_handlers_are_asked_for_a_childs_approvals(
    start: Callable[..., AsyncRuntime],
    answer: bool | None,  # noqa: FBT001 - a parameter of the test
) -> None:
    rules = (Rule(decision="ask", tool="execute", reason="commands need a person"),)
    run = block('execute("main", "echo hello", check=True)', completion="Ran it.")
    children = Children(ALPHA=[run, DONE])
    asked: list[str] = []
    code = 'delegate("ALPHA")\nprint(collect("t1"))'
    async with start(block(code), DONE, children=children, policy=Policy(rules=rules)) as runtime:

        def decide(pending: PendingCall, **_: object) -> bool | None:
            asked.append(pending.reason)
            return answer

        runtime.hooks.register("permission_request", decide)
        assert (await runtime.run("Have it run")).status is Status.FINISHED
        assert asked == ["[task t1] commands need a person"]
        ends = [event.outcome.status for _, event in children_of(runtime) if isinstance(event, Ended)]
        assert ends == [Status.STOPPED if answer is None else Status.FINISHED]
        if answer is None:
            assert "task t1 waits for approval of execute" in observations(runtime)


async def test_a_parent_that_pauses_stops_its_children_and_keeps_their_changes(
    start: Callable[..., AsyncRuntime], project: Path, tmp_path: Path
) -> None:
    rules = (Rule(decision="ask", tool="execute", commands=("date",)),)
    wait = block('write_file("a.txt")\nexecute("main", "touch up; sleep 100", timeout=100)', "changed\n")
    children = Children(ALPHA=[wait], BETA=[block('write_file("b.txt")', "second\n", completion="Beta.")])
    code = 'delegate("ALPHA")\ndelegate("BETA")\ncollect("t2")\nlate()\nexecute("main", "date")'
    later = block('print(task_status("t1"), task_status("t2"))\ncollect("t1")')

    def session() -> FileSession:
        return FileSession("delegating", session_dir=tmp_path / "sessions")

    seen: list[Event] = []

    async def late() -> None:
        await eventually(lambda: ("t1", 2) in calls_in(seen))

    async with start(
        block(code), children=children, session=session(), policy=Policy(rules=rules), listeners=(seen.append,)
    ) as runtime:
        runtime.register_tool("late", late)
        outcome = await runtime.run("Have it done")
        assert outcome.status is Status.PAUSED, observations(runtime)
        assert outcome.usage.requests == 3
        ends = {task: event.outcome.status for task, event in children_of(runtime) if isinstance(event, Ended)}
        assert ends == {"t1": Status.STOPPED, "t2": Status.FINISHED}
    async with start(later, DONE, children=Children(), session=session(), policy=Policy(rules=rules)) as runtime:
        outcome = await runtime.resume(approve=True)
        assert outcome.status is Status.FINISHED
        assert "these tasks were stopped: t1" in observations(runtime)
        # Either of the two may have started first.
        assert re.search(r"gone with the process that ran them: (t1, t2|t2, t1)\.", observations(runtime))
        assert "+changed" in observations(runtime)
        assert "there is no task 't1' with a copy of the workspace" in observations(runtime)
        assert outcome.usage.requests == 5
    assert (project / "b.txt").read_text() == "second\n"
    assert (project / "a.txt").read_text() == "one\ntwo\n"


async def test_a_parent_that_is_aborted_ends_its_children_and_their_copies_go(
    start: Callable[..., AsyncRuntime], tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    deep = "for n in 1 2 3; do mkdir -p $n && cd $n; done; chmod 000 ../3"
    children = Children(
        ALPHA=[block(f'execute("main", {deep!r})\nexecute("other", "sleep 100", timeout=100, new_terminal=True)')]
    )
    seen: list[Event] = []
    bounds = Delegation(copies=copies)
    async with start(
        block('delegate("ALPHA")\ncollect("t1")'), children=children, delegation=bounds, listeners=(seen.append,)
    ) as runtime:
        work = asyncio.create_task(runtime.run("Have it done"))
        await eventually(lambda: ("t1", 2) in calls_in(seen))
        assert len(list(copies.iterdir())) == 1
        runtime.abort()
        assert (await work).status is Status.STOPPED
        ends = [event.outcome for _, event in children_of(runtime) if isinstance(event, Ended)]
        assert [each.status for each in ends] == [Status.STOPPED], children_of(runtime)
        assert not list(copies.iterdir())


async def test_after_a_pause_in_the_same_process_stopped_tasks_are_still_there(
    start: Callable[..., AsyncRuntime], project: Path
) -> None:
    rules = (Rule(decision="ask", tool="execute", commands=("date",)),)
    wait = block('write_file("a.txt")\nexecute("main", "sleep 100", timeout=100)', "changed\n")
    first = block('delegate("ALPHA")\nlate()\nexecute("main", "date")')
    then = block('print(collect("t1", ["a.txt"]))\ndelegate("BETA")', completion="Done.")
    seen: list[Event] = []
    children = Children(ALPHA=[wait], BETA=[block('execute("main", "sleep 100", timeout=100)')])

    async def late() -> None:
        await eventually(lambda: ("t1", 2) in calls_in(seen))

    async with start(first, then, children=children, policy=Policy(rules=rules), listeners=(seen.append,)) as runtime:
        runtime.register_tool("late", late)
        assert (await runtime.run("Have it done")).status is Status.PAUSED
        assert (await runtime.resume(approve=True)).status is Status.FINISHED, observations(runtime)
        assert "gone with the process" not in observations(runtime)
        ends = {task: event.outcome.status for task, event in children_of(runtime) if isinstance(event, Ended)}
        assert ends == {"t1": Status.STOPPED, "t2": Status.STOPPED}  # the second one by its parent's end
    assert (project / "a.txt").read_text() == "changed\n"


async def test_after_its_process_died_the_model_gets_a_list_of_lost_tasks(start: Callable[..., AsyncRuntime]) -> None:
    session = InMemorySession("died")
    used = Usage(requests=1, input_tokens=7)
    session.append(Started(task=Task(goal="Share"), opening="Share", run_id="r1"))
    session.append(Replied(step=1, text=block('delegate("ALPHA")'), usage=used))
    session.append(ChildRecorded(task="t1", event=Started(task=Task(goal="ALPHA"), opening="ALPHA", run_id="r2")))
    session.append(ChildRecorded(task="t1", event=Replied(step=1, text="", usage=used)))
    look = block('print(task_status("t1"))\nprint(delegate("BETA"), collect("t2"))', completion="Done.")
    async with start(look, children=Children(BETA=[DONE]), session=session) as runtime:
        outcome = await runtime.resume()
        assert outcome.status is Status.FINISHED, observations(runtime)
        assert outcome.usage.input_tokens > 14
        told = "".join(event.text for event in runtime.session.events if isinstance(event, Recovered))
        assert "gone with the process that ran them: t1" in told
        assert "The process that ran it ended." in observations(runtime)
        assert "t2 []" in observations(runtime)


async def test_both_use_the_models_own_tool_calls(project: Path, sandbox: Sandbox) -> None:
    child = Model([asks(("write_file", {"path": "b.txt", "content": "second\n"}), finish("Beta."))])
    calls = [("delegate", {"prompt": "Write b.txt"}), ("task_status", {"task": "t1"}), ("collect", {"task": "t1"})]
    agent = Agent(
        provider=Model([asks(*calls), asks(finish())]),
        work_dir=project,
        sandbox=sandbox,
        delegation=Delegation(provider=child),
        transport="tools",
        chat=False,
    )
    async with AsyncRuntime(agent) as runtime:
        outcome = await runtime.run("Share the work")
        assert outcome.status is Status.FINISHED, observations(runtime)
        told = [
            answer.text for event in runtime.session.events if isinstance(event, Observed) for answer in event.answers
        ]
        assert "ended as finished" in told[2]
        assert "modified: b.txt" in told[2]
    assert (project / "b.txt").read_text() == "second\n"
