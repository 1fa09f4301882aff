"""The tools about the conversation: archived tasks, questions and skills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Policy,
    Recorder,
    Sandbox,
    ScriptedProvider,
    Started,
    Status,
    ToolReturned,
    read_skills,
    replay_recording,
)
from agent_runtime.context.transcript import render_messages
from agent_runtime.core.errors import ToolError
from agent_runtime.core.events import Archived, Recorded, Revealed, Shrunk, Summarised
from agent_runtime.core.values import Plain, Usage
from agent_runtime.tools.conversation import ContextTools, QuestionTools
from agent_runtime.tools.tool import Registry
from tests.agent_runtime.context.logs import started, task_of

Call = Callable[..., Awaitable[str]]
LOG: list[Recorded] = [
    *task_of("alpha", 3, chars=2_000),
    *task_of("beta", 2, chars=2_000),
    *task_of("gamma", 2, chars=20_000),
    started("delta"),
]


@dataclass
class ListLog:
    """A log that nobody watches."""

    events: list[Recorded]

    def record(self, event: Recorded) -> None:
        self.events.append(event)


@pytest.fixture
def log() -> list[Recorded]:
    return [*LOG]


@pytest.fixture
def call(log: list[Recorded]) -> Call:
    """Calls a tool as control code does: by name, through the argument check."""
    registry = Registry()
    registry.add_family(ContextTools(ListLog(log)))

    async def call(name: str, *args: Plain, **kwargs: Plain) -> str:
        tool = registry.get(name)
        return (await tool.apply(await tool.plan(tool.bind(args, kwargs)))).text

    return call


def archived(log: list[Recorded]) -> list[tuple[int, str]]:
    return [(event.task, event.summary) for event in log if isinstance(event, Archived)]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {"task": 1, "summary": "A."}, [(1, "A.")]),
        ((), {"position": 2, "summary": " B. \n"}, [(2, "B.")]),
        ((3, "C."), {}, [(3, "C.")]),
        ((), {"task": (1, 2), "summary": ["A.", "B."]}, [(1, "A."), (2, "B.")]),
        ((), {"task": [3, 1], "summary": ("C.", "A.")}, [(3, "C."), (1, "A.")]),
        ((), {"task": [1], "summary": "A."}, [(1, "A.")]),
    ],
)
async def test_tasks_are_archived_one_or_many(
    call: Call, log: list[Recorded], args: tuple[Plain, ...], kwargs: dict[str, Plain], expected: list[tuple[int, str]]
) -> None:
    text = await call("archive_context", *args, **kwargs)
    assert archived(log) == expected
    assert "archived, about" in text


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"task": 9, "summary": "x"}, "archive_context: there is no task 9; there are tasks 1 to 4"),
        ({"task": 0, "summary": "x"}, "archive_context: there is no task 0"),
        ({"task": 4, "summary": "x"}, "task 4 is the current one; archive it when the next task has begun"),
        ({"task": 1, "position": 1, "summary": "x"}, "both task and position are given"),
        ({"summary": "x"}, "no task is given; write archive_context"),
        ({"task": 1}, r"1 task\(s\), but 0 summaries"),
        ({"task": (1, 2), "summary": "x"}, r"2 task\(s\), but 1 summaries"),
        ({"task": [], "summary": []}, "the list of tasks is empty"),
        ({"task": [1, 1], "summary": ["x", "y"]}, "task 1 given twice"),
        ({"task": 1, "summary": " "}, "a summary is empty"),
        ({"task": 1, "summary": "x" * 5_000}, "5,000 characters; use at most 4,000"),
        ({"task": "first", "summary": "x"}, "archive_context: argument task"),
    ],
)
async def test_an_invalid_call_reports_the_error_and_archives_nothing(
    call: Call, log: list[Recorded], kwargs: dict[str, Plain], complaint: str
) -> None:
    with pytest.raises(ToolError, match=complaint):
        await call("archive_context", **kwargs)
    assert log == LOG


async def test_one_wrong_task_of_many_archives_none(call: Call, log: list[Recorded]) -> None:
    with pytest.raises(ToolError, match="task 9"):
        await call("archive_context", task=[1, 9], summary=["A.", "?"])
    assert log == LOG


async def test_a_task_is_archived_once(call: Call) -> None:
    await call("archive_context", task=1, summary="A.")
    with pytest.raises(ToolError, match=r"task 1 .* reveal_context\(1\)"):
        await call("archive_context", task=1, summary="A.")


async def test_a_task_that_a_summary_tells_cannot_be_archived(call: Call, log: list[Recorded]) -> None:
    log.append(Summarised(upto=len(task_of("alpha", 3)), text="Alpha.", usage=Usage()))
    with pytest.raises(ToolError, match=r"\[GLOBAL SUMMARY\]"):
        await call("archive_context", task=1, summary="A.")
    assert "alpha 2:" in await call("reveal_context", 1)


async def test_revealing_a_task_before_its_replacement_costs_nothing(call: Call, log: list[Recorded]) -> None:
    await call("archive_context", task=1, summary="A.")
    assert "task 1" in await call("reveal_context", 1)
    assert log[-1] == Revealed(task=1)
    assert render_messages(log) == render_messages(LOG)


async def test_a_replaced_task_is_shown_again_as_it_was(call: Call, log: list[Recorded]) -> None:
    await call("archive_context", task=1, summary="A.")
    log.append(Shrunk(tasks=(1,)))
    before = render_messages(log)
    text = await call("reveal_context", 1)
    assert text.startswith("[TASK 1 REVEALED]\n[USER]\n[Task] alpha\n\n[YOU]\nStep 1 of alpha.")
    assert text.endswith("[YOU]\nDone.\n[end of task 1]")
    assert render_messages(log) == before
    await call("archive_context", task=1, summary="A, again.")


async def test_a_very_long_task_is_shown_with_its_middle_left_out(call: Call, log: list[Recorded]) -> None:
    await call("archive_context", task=3, summary="C.")
    log.append(Shrunk(tasks=(3,)))
    text = await call("reveal_context", 3)
    assert len(text) < 25_000
    assert "characters left out" in text


async def test_a_task_that_is_not_archived_cannot_be_revealed(call: Call) -> None:
    with pytest.raises(ToolError, match="task 1 is not archived"):
        await call("reveal_context", 1)
    with pytest.raises(ToolError, match=r"reveal_context: .* task 7"):
        await call("reveal_context", 7)


async def test_the_list_has_previews_of_summaries_and_the_saved_tokens(call: Call, log: list[Recorded]) -> None:
    assert await call("list_archived_context") == "[list_archived_context] no task is archived"
    await call("archive_context", task=(1, 2), summary=["A " * 200, "B."])
    log.append(Shrunk(tasks=(1,)))
    first, second = (await call("list_archived_context")).splitlines()
    assert first.startswith("[ARCHIVED TASK 1] about 1,")
    assert first.endswith("A A…")
    assert len(first) < 160
    assert second.startswith("[ARCHIVED TASK 2] about ")
    assert second.endswith(" tokens saved (still shown in full): B.")


class Person:
    """Answers every question alike."""

    def __init__(self, answer: str) -> None:
        self.questions: list[str] = []
        self._answer = answer

    async def ask(self, question: str) -> str:
        self.questions.append(question)
        return self._answer


async def test_the_call_returns_the_answer() -> None:
    person = Person("port 8080")
    result = await QuestionTools(person.ask).ask_user(" Which port?\n")
    assert (result.value, result.text) == ("port 8080", "[ask_user] port 8080")
    assert person.questions == ["Which port?"]


async def test_an_empty_answer_is_marked() -> None:
    assert (await QuestionTools(Person("").ask).ask_user("Well?")).text == "[ask_user] (an empty answer)"


@pytest.mark.parametrize("question", ["", " \n", "x" * 4001])
async def test_an_unanswerable_question_is_not_asked(question: str) -> None:
    person = Person("yes")
    with pytest.raises(ToolError, match="ask_user: question"):
        await QuestionTools(person.ask).ask_user(question)
    assert person.questions == []


def test_the_declaration_for_the_model_is_one_line() -> None:
    registry = Registry()
    registry.add_family(QuestionTools(Person("yes").ask))
    assert registry.declarations.splitlines() == [
        "def ask_user(question: str) -> str:",
        '    """Ask what only the user can decide."""',
    ]
    assert registry.listing == "ask_user(question): Ask what only the user can decide."
    assert registry.get("ask_user").describe_call({"question": "Which port?"}) == "Asking: Which port?"


SKILL = "---\nname: release\ndescription: Make a release.\n---\nTag it.\n"
REPLY = """Reading.
```codepilot
print(read_skill("release"))
try:
    read_skill("other")
except ValueError as error:
    print(error)
```
```completion
Done.
```
"""


async def test_skills_are_listed_once_and_read_on_demand(place: Path, sandbox: Sandbox) -> None:
    folder = place / ".claude" / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    provider = ScriptedProvider([REPLY, "```completion\nDone.\n```\n"])
    agent = Agent(provider=provider, work_dir=place, sandbox=sandbox, policy=Policy(default="ask"))
    skilled = replace(agent, skills=read_skills(place))
    recorder = Recorder(skilled, place.parent / "run.jsonl")
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        assert (await runtime.run("Release")).status is Status.FINISHED
        assert (await runtime.run("Again")).status is Status.FINISHED
        first, second = [event.opening for event in runtime.session.events if isinstance(event, Started)]
        read, refused = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
    assert "# Skills" in first
    assert "- release: Make a release." in first
    assert "# Skills" not in second
    assert (read.value, read.text) == (
        "Tag it.",
        "[skill release, whose other files are in .claude/skills/release/]\nTag it.",
    )
    assert "there are: release" in refused.text
    assert (await replay_recording(place.parent / "run.jsonl", work_dir=place, sandbox=sandbox)).is_same
    async with AsyncRuntime(agent) as runtime:
        assert "read_skill" not in runtime.registry.names
