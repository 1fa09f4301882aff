"""A conversation: real runtime, real sandbox, scripted model, and a person who answers what is asked."""

from __future__ import annotations

import io
import signal
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    ModelSettings,
    Policy,
    Provider,
    Request,
    Rule,
    RunLimits,
    SandboxSettings,
    ScriptedProvider,
    SettingsError,
    Status,
    ToolCalled,
    pick_sandbox,
)
from agent_runtime.policy.policy import CallFacts, Decision, Denied, NeedsApproval, Permitted
from agent_runtime.providers.scripted import ScriptedReply
from bot.cli.chat import Chat, ChatModels, ChatOptions, LeftError, load_agent_file, make_agent
from bot.cli.screen import PERMISSIONS, ChatAnswer, ChatScreen, Permissions
from tests.bot.cli.test_chat_commands import Desk

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
        outcome = talk.resume()
        assert outcome is not None
        assert outcome.summary == "Done."
        assert talk.resume() is None


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
        outcome = talk.resume()
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
        outcome = talk.resume()
        assert outcome is not None
        assert outcome.status is Status.FINISHED
        assert talk.resume() is None
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
        assert talk.resume() is None


_AGENT = """\
agent:
  name: A
  model:
    provider: anthropic
    name: one
    fallback: [{provider: openai}]
  runtime: {max_steps: 7, max_cost_usd: 1, sandbox: SANDBOX}
  permissions:
    - {allow: execute, commands: ["pytest *"]}
    - {deny: "*", paths: [secrets/**]}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with no key in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC", "OPENAI", "DASHSCOPE", "CODEPILOT"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    return tmp_path


def write(folder: Path, name: str = "agent.yaml", *, sandbox: str = "auto") -> Path:
    path = folder / name
    path.write_text(_AGENT.replace("SANDBOX", sandbox), encoding="utf-8")
    return path


def trusting(**options: Any) -> ChatOptions:  # noqa: ANN401 - of `ChatOptions`
    return ChatOptions(**options, trust=True)


def test_the_agent_file_beside_it_is_read_when_none_is_named(here: Path) -> None:
    write(here)
    assert load_agent_file(trusting()).model.name == "one"


def test_a_named_agent_file_works_where_it_lies_unless_told_otherwise(here: Path) -> None:
    (here / "elsewhere").mkdir()
    path = write(here / "elsewhere", "mine.yaml")
    assert load_agent_file(trusting(agent=path)).work_dir == here / "elsewhere"
    assert load_agent_file(trusting(agent=path, directory=here)).work_dir == here


def test_without_a_file_the_model_is_the_one_whose_key_is_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="No model: set "):
        load_agent_file(trusting())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    settings = load_agent_file(trusting(model="gpt-mine"))
    assert (settings.model.provider, settings.model.name, settings.work_dir) == ("openai", "gpt-mine", here)


def test_the_command_line_goes_before_the_file(here: Path) -> None:
    write(here)
    settings = load_agent_file(trusting(model="two", max_steps=3, budget=0.5))
    assert (settings.model.provider, settings.model.name, len(settings.fallback)) == ("anthropic", "two", 1)
    assert (settings.limits.max_steps, settings.limits.max_cost_usd) == (3, 0.5)
    assert load_agent_file(trusting()).limits.max_steps == 7


def test_a_named_provider_stands_alone(here: Path) -> None:
    write(here)
    settings = load_agent_file(trusting(provider="openai"))
    assert (settings.model.provider, settings.model.name, settings.model.key_variable) == (
        "openai",
        None,
        "OPENAI_API_KEY",
    )
    assert settings.fallback == ()
    with pytest.raises(SettingsError, match="'openai'"):
        load_agent_file(trusting(provider="openia"))


def test_an_address_is_that_of_a_compatible_server_which_needs_no_key(here: Path) -> None:
    model = load_agent_file(trusting(base_url="http://localhost:11434/v1", model="qwen3")).model
    assert (model.provider, model.base_url, model.api_key()) == ("openai", "http://localhost:11434/v1", None)
    write(here)
    model = load_agent_file(trusting(base_url="http://localhost:8000")).model
    assert (model.provider, model.base_url) == ("anthropic", "http://localhost:8000")


def test_another_address_needs_a_model_of_its_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(SettingsError, match=r"--base-url is another server than openai's: name a model .* --model"):
        load_agent_file(trusting(base_url="http://localhost:11434/v1"))
    assert load_agent_file(trusting(base_url="https://eu.api.openai.com/v1")).model.name is None
    options = load_agent_file(trusting(base_url="http://localhost:11434/v1", model="qwen3")).model.options
    assert (options.model_setting, options.url_setting) == ("--model", "--base-url")


def test_the_address_in_the_environment_is_for_its_own_service(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert load_agent_file(trusting()).model.base_url == "http://localhost:11434/v1"
    other = trusting(base_url="http://localhost:1/v1", model="m")
    assert load_agent_file(other).model.base_url == "http://localhost:1/v1"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1")
    model = load_agent_file(trusting()).model
    assert (model.provider, model.base_url, model.key_variable) == ("anthropic", None, "ANTHROPIC_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert load_agent_file(trusting(provider="openai")).model.api_key() == "sk-1"


def test_a_key_goes_only_to_the_address_that_it_was_meant_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(base_url: str) -> str | None:
        return load_agent_file(trusting(base_url=base_url, provider="openai", model="m")).model.api_key()

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    foreign = "http://localhost:1/v1", "https://api.openai.com.evil.example/v1", "http://api.openai.com/v1", "https://["
    assert [key(url) for url in foreign] == [None] * 4
    assert key("https://eu.api.openai.com/v1") == "sk-of-openai"
    monkeypatch.setenv("CODEPILOT_API_KEY", "sk-of-the-server")
    assert key("http://localhost:1/v1") == "sk-of-the-server"
    (here / "agent.yaml").write_text(
        "agent: {name: A, model: {provider: openai, base_url: 'https://one.example/v1', api_key_env: OPENAI_API_KEY}}\n"
    )
    assert load_agent_file(trusting()).model.api_key() == "sk-of-openai"
    assert load_agent_file(trusting(base_url="https://two.example/v1", model="m")).model.api_key() == "sk-of-the-server"


def test_a_script_needs_no_key(here: Path) -> None:
    assert load_agent_file(trusting(script=here / "script.yaml")).model.options.script == here / "script.yaml"


def test_the_file_s_rules_hold_and_a_sandbox_lets_commands_run(here: Path) -> None:
    write(here)
    assert [rule.decision for rule in load_agent_file(trusting()).rules] == ["allow", "deny"]


def decided(here: Path, call: CallFacts, permissions: Permissions) -> type[Decision]:
    """The decision on a call of an agent that replays a script."""
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    return type(make_agent(trusting(permissions=permissions, script=here / "script.yaml")).policy.decide(call))


@pytest.mark.parametrize("permissions", PERMISSIONS)
@pytest.mark.parametrize("command", ["make", "pytest -q"])
def test_without_a_sandbox_every_command_is_asked_about(here: Path, permissions: Permissions, command: str) -> None:
    write(here, sandbox="local")
    assert decided(here, CallFacts(tool="execute", command=command), permissions) is NeedsApproval


def test_asking_about_everything_leaves_denied_what_is_denied(here: Path) -> None:
    write(here)
    written = {path: CallFacts(tool="write_file", paths=(path,), writes=True) for path in ("secrets/a", "a")}
    assert decided(here, written["secrets/a"], "ask") is Denied
    assert decided(here, written["a"], "ask") is NeedsApproval
    assert decided(here, written["a"], "auto") is Permitted
    assert decided(here, CallFacts(tool="execute", command="pytest -q"), "ask") is NeedsApproval
    assert decided(here, CallFacts(tool="execute", command="pytest -q"), "auto") is Permitted


def test_an_agent_does_not_get_at_its_own_session(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(here))
    options = ChatOptions(script=here / "script.yaml", session="s")
    with pytest.raises(SettingsError, match="--dir"):
        make_agent(options)
    (here / "project").mkdir()
    assert make_agent(replace(options, directory=here / "project")).work_dir == here / "project"


def test_a_session_needs_a_home_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise RuntimeError("Could not determine home directory.")

    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    monkeypatch.setattr(Path, "home", missing)
    with pytest.raises(SettingsError, match=r"HOME.*--session"):
        make_agent(ChatOptions(script=here / "script.yaml", session="s"))
    assert make_agent(ChatOptions(script=here / "script.yaml")).work_dir == here


def test_a_run_can_be_answered_at_a_terminal_and_in_a_session(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    (here / "project").mkdir()
    monkeypatch.setenv("HOME", str(here))
    options = ChatOptions(script=here / "script.yaml", directory=here / "project")
    assert not make_agent(options).attended
    assert make_agent(replace(options, session="s")).attended
    monkeypatch.setattr("bot.cli.chat._has_person", lambda: True)
    assert make_agent(options).attended


def test_a_repository_s_own_instructions_are_read(here: Path) -> None:
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    (here / "AGENTS.md").write_text("Use tabs.\n", encoding="utf-8")
    assert make_agent(ChatOptions(script=here / "script.yaml")).repository_instructions == {"AGENTS.md": "Use tabs."}


HERE = ModelSettings.for_provider("anthropic", name="claude-opus-5-5")


@pytest.fixture(autouse=True)
def _no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("said", "provider", "name"),
    [
        ("claude-haiku-5-5", "anthropic", "claude-haiku-5-5"),
        ("gpt-6.2-sol", "openai", "gpt-6.2-sol"),
        ("qwen3.7-max", "alibaba", "qwen3.7-max"),
        ("alibaba/new", "alibaba", "new"),
        ("openai", "openai", None),
        ("anthropic", "anthropic", None),
        ("unheard-of", "anthropic", "unheard-of"),
        ("meta/llama", "anthropic", "meta/llama"),
    ],
)
def test_a_model_is_named_by_itself_or_with_its_service(said: str, provider: str, name: str | None) -> None:
    found = ChatModels(HERE).find_model(said)
    assert (found.provider, found.name) == (provider, name)


def test_a_server_of_ones_own_is_asked_for_any_name() -> None:
    found = ChatModels(ModelSettings.for_provider("openai").at_url("http://localhost:1/v1")).find_model(
        "claude-haiku-5-5"
    )
    assert (found.provider, found.base_url, found.name) == ("openai", "http://localhost:1/v1", "claude-haiku-5-5")


def test_a_model_that_cannot_be_used_leaves_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(provider: Provider) -> None:
        raise SettingsError(f"not {provider.model}")

    models = ChatModels(HERE)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for said, told in (("two words", "spaces"), ("scripted", "--script"), ("gpt-6.2-sol", "OPENAI_API_KEY is not set")):
        with pytest.raises(SettingsError, match=told):
            models.switch(said, refused)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(SettingsError, match=r"not gpt-6\.2-sol"):
        models.switch("gpt-6.2-sol", refused)
    assert models.current is HERE


def test_a_chat_shows_its_model_and_switches_to_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.env |= {"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "sk-1"}
    said = "/model\n/model gpt-6-luna\n/model qwen-plus\nmodel\n/quit\n"
    done = desk.codepilot("chat", stdin=said)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    shown = [line for line in done.stderr.splitlines() if line.startswith("The model is ")]
    assert shown == [
        "The model is claude-sonnet-5-5 (anthropic).",
        "The model is gpt-6-luna (openai).",
        "The model is gpt-6-luna (openai).",
    ]
    assert "DASHSCOPE_API_KEY is not set" in done.stderr
    assert "  openai: gpt-6.2-sol, " in done.stderr
