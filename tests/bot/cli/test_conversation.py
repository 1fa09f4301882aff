"""A conversation: real runtime, real sandbox, scripted model, and a person who answers what is asked."""

from __future__ import annotations

import io
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from rich.console import Console
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Chunk,
    Event,
    FileSession,
    ModelOutageError,
    ModelRejectedError,
    Policy,
    Provider,
    Request,
    Rule,
    RunLimits,
    SandboxSettings,
    ScriptedProvider,
    Status,
    ToolCalled,
    pick_sandbox,
)
from agent_runtime.providers.scripted import ScriptedReply
from bot.cli.chat import Chat, LeftError
from bot.cli.screen import ChatAnswer, ChatScreen, Permissions

_DONE = "\n```completion\nDone.\n```\n"


def step(code: str, *, done: bool = False) -> str:
    return f"On it.\n```codepilot\n{code}\n```\n{_DONE if done else ''}"


def touch(name: str) -> str:
    return f'execute("main", "touch {name}", check=True)'


class Person:
    """Answers in turn, and remembers what was asked; an exception for an answer is raised."""

    def __init__(self, *answers: str | type[BaseException] | Callable[[], str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, text: str) -> str:
        self.asked.append(text)
        answer = self._answers.pop(0)
        if isinstance(answer, type):
            raise answer
        return answer if isinstance(answer, str) else answer()


class Table:
    """One workspace at which conversations take place, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.work_dir = folder / "work"
        self.work_dir.mkdir()
        self.shown = io.StringIO()
        self.listeners: list[Callable[[Event], None]] = []
        self._sessions = folder / "sessions"

    def conversation(
        self,
        *replies: str | ScriptedReply,
        person: Person | None = None,
        permissions: Permissions = "auto",
        asks: str = "execute",
        provider: Provider | None = None,
    ) -> Chat:
        screen = ChatScreen(Console(file=self.shown, color_system=None))
        agent = Agent(
            provider=provider or ScriptedProvider(replies),
            work_dir=self.work_dir,
            sandbox=pick_sandbox("auto", SandboxSettings()),
            policy=Policy(
                rules=(Rule(decision="ask", tool=asks, reason="you asked"),),
                limits=RunLimits(outage_seconds=0.0),
            ),
        )
        runtime = AsyncRuntime(
            agent,
            FileSession("talk", session_dir=self._sessions),
            stream=True,
            listeners=(screen.on_event, *self.listeners),
            state_key=b"0123456789abcdef",
        )
        return Chat(runtime, screen, person, permissions=permissions)

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.work_dir.iterdir())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


class Down(ScriptedProvider):
    """A model whose service is down."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        if self.remaining:
            raise ModelOutageError("The service is down.")
        async for chunk in super().reply(request):
            yield chunk


def test_a_run_whose_model_is_down_is_said_to_wait_and_goes_on_next_time(table: Table) -> None:
    with table.conversation(provider=Down(["never"])) as talk:
        assert talk.turn("Make it.").status is Status.MODEL_UNAVAILABLE
    assert "The service is down." in table.shown.getvalue()
    with table.conversation(_DONE) as talk:
        outcome = talk.go_on()
        assert outcome is not None
        assert outcome.summary == "Done."
        assert talk.go_on() is None


class Refusing(ScriptedProvider):
    """A model whose service does not take the key."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        if self.remaining:
            raise ModelRejectedError("The service refuses this key (401).")
        async for chunk in super().reply(request):
            yield chunk


def test_a_first_request_that_fails_is_said_to(table: Table) -> None:
    with table.conversation(provider=Refusing(["never"])) as talk:
        assert talk.turn("Make it.").status is Status.FAILED
    assert "The service refuses this key (401)." in table.shown.getvalue()


def test_what_is_approved_happens_once(table: Table) -> None:
    person = Person("what?", "y")
    with table.conversation(step('execute("main", "echo x >> log", check=True)', done=True), person=person) as talk:
        outcome = talk.turn("Write a log")
    assert outcome.status is Status.FINISHED
    assert (table.work_dir / "log").read_text(encoding="utf-8") == "x\n"
    assert person.asked == ["Allow? ", "Allow? "]
    assert "execute requires approval (you asked)" in table.shown.getvalue()
    assert "echo x >> log" in table.shown.getvalue()


def test_the_model_is_told_why_something_was_denied(table: Table) -> None:
    told = ScriptedReply(text=step("print(1)", done=True), expect=("use the staging server",))
    with table.conversation(step(touch("a")), told, person=Person("n use the staging server")) as talk:
        assert talk.turn("Deploy").status is Status.FINISHED
    assert table.files == []


def test_who_approves_everything_approves_what_a_session_waits_with(table: Table) -> None:
    replies = step(touch("a"), done=True)
    with table.conversation(replies) as talk:
        assert talk.turn("Make a").status is Status.PAUSED
    with table.conversation(replies, permissions="all") as talk:
        outcome = talk.go_on()
    assert outcome is not None
    assert outcome.status is Status.FINISHED
    assert table.files == ["a"]


def test_always_is_remembered_for_the_same_command_and_no_other(table: Table) -> None:
    person = Person("a", "y")
    code = f"{touch('a')}\n{touch('a')}\n{touch('b')}"
    with table.conversation(step(code, done=True), person=person) as talk:
        assert talk.turn("Make files").status is Status.FINISHED
    assert table.files == ["a", "b"]
    assert len(person.asked) == 2


@pytest.mark.parametrize("leaving", [EOFError, KeyboardInterrupt])
def test_what_is_left_open_waits_for_the_next_conversation(table: Table, leaving: type[BaseException]) -> None:
    with table.conversation(step(touch("a"), done=True), person=Person(leaving)) as talk:
        assert talk.turn("Make a file").status is Status.PAUSED
    assert table.files == []
    with table.conversation(person=Person("y")) as talk:
        outcome = talk.go_on()
        assert outcome is not None
        assert outcome.status is Status.FINISHED
        assert talk.go_on() is None
    assert table.files == ["a"]


def test_with_nobody_to_ask_the_run_pauses_and_is_answered_later(table: Table) -> None:
    with table.conversation(step(touch("a"), done=True)) as talk:
        assert talk.turn("Make a file").status is Status.PAUSED
    with table.conversation() as talk:
        assert talk.answer(ChatAnswer(approved=True)).status is Status.FINISHED
    assert table.files == ["a"]


def test_a_question_is_answered_in_words(table: Table) -> None:
    code = 'port = ask_user("Which port?")\nprint("port:", port)'
    told = ScriptedReply(text=step("print(1)", done=True), expect=("port: 8080",))
    person = Person(" 8080 ")
    with table.conversation(step(code), told, person=person) as talk:
        assert talk.turn("Start the server").status is Status.FINISHED
    assert person.asked == ["Your answer: "]
    assert "? Which port?" in table.shown.getvalue()


@pytest.mark.parametrize(("permissions", "files"), [("all", ["a"]), ("none", [])])
def test_somebody_else_may_have_answered_for_good(table: Table, permissions: Permissions, files: list[str]) -> None:
    code = f"try:\n    {touch('a')}\nexcept PermissionError:\n    pass"
    with table.conversation(step(code, done=True), permissions=permissions, person=Person()) as talk:
        assert talk.turn("Make a file").status is Status.FINISHED
    assert table.files == files


def test_an_approval_is_void_when_a_file_has_changed_meanwhile(table: Table) -> None:
    def change() -> str:
        (table.work_dir / "mine.txt").write_text("changed\n", encoding="utf-8")
        return "y"

    told = ScriptedReply(text=step("print(1)", done=True), expect=("not approved",))
    with table.conversation(step(touch("a")), told, person=Person(change, "n")) as talk:
        assert talk.turn("Make a file").status is Status.FINISHED
    assert "the workspace has changed" in table.shown.getvalue()
    assert table.files == ["mine.txt"]


def test_the_first_interrupt_stops_the_run_and_the_conversation_goes_on(table: Table) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, ToolCalled) and "sleep" in event.label:
            signal.raise_signal(signal.SIGINT)

    table.listeners.append(interrupt)
    sleep = step('execute("main", "sleep 60", timeout=60)')
    with table.conversation(sleep, step(touch("a"), done=True), asks="nothing") as talk:
        assert talk.turn("Sleep").status is Status.STOPPED
        assert talk.turn("Make a file").status is Status.FINISHED
    assert table.files == ["a"]


def test_the_second_interrupt_leaves(table: Table) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, ToolCalled):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    table.listeners.append(interrupt)
    sleep = step('execute("main", "sleep 60", timeout=60)')
    with pytest.raises(LeftError), table.conversation(sleep, asks="nothing") as talk:
        talk.turn("Sleep")


def test_after_a_reset_nothing_waits(table: Table) -> None:
    with table.conversation(step(touch("a"), done=True)) as talk:
        talk.turn("Make a file")
        talk.reset()
        assert talk.go_on() is None
