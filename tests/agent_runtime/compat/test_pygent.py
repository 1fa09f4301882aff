"""Pygent's agents: what its document describes, and what its originals get wrong."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import ScriptedProvider
from agent_runtime.compat import pygent
from agent_runtime.compat.pygent import Agent, APIError, Persona, Runtime, Tools, models, set_custom_model
from agent_runtime.compat.pygent.models import END_ID, Message
from agent_runtime.core.errors import SandboxError, SessionError, SettingsError, UsageError
from agent_runtime.core.events import Event, ToolReturned
from agent_runtime.core.values import Status
from agent_runtime.providers.retry import BRIEF_RETRY
from agent_runtime.run import run
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from tests.agent_runtime.compat.pygent_models import ScriptedModel, calls
from tests.model_server import ModelServer
from tests.model_wires import Fails

STOP = calls(("stop", {}))


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current directory and a home of the test's own, and the built-in tools."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield
    pygent.reset_tools()
    set_custom_model(None)


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(workspace=tmp_path / "work") as made:
        yield made


def roles_and_texts(agent: Agent) -> list[tuple[str, str]]:
    """Role and text of each message of a history but the first."""
    return [
        (each.role, each.content or "") if isinstance(each, Message) else (each["role"], each["content"])
        for each in agent.history[1:]
    ]


def test_the_names_and_arguments_of_the_document() -> None:
    wanted: dict[Callable[..., Any], str] = {
        Agent.run_until_stop: "self, user_msg, max_steps, step_timeout, max_time",
        Agent.step: "self, user_msg",
        Agent.refresh_system_message: "self",
        Runtime.bash: "self, cmd, timeout",
        Runtime.read_file: "self, path, binary",
        Runtime.upload_file: "self, src, dest",
        Runtime.export_file: "self, path, dest",
        pygent.TaskManager.start_task: (
            "self, prompt, parent_rt, files, parent_depth, step_timeout, task_timeout, persona"
        ),
        pygent.TaskManager.collect_file: "self, rt, task_id, path, dest",
        pygent.register_tool: "name, description, parameters, func",
        pygent.tool: "name, description, parameters",
        pygent.execute_tool: "call, rt",
        pygent.remove_tool: "name",
    }

    assert {each: ", ".join(inspect.signature(each).parameters) for each in wanted} == wanted
    assert inspect.signature(Agent.run_until_stop).parameters["max_steps"].default == 20
    assert inspect.signature(Runtime.bash).parameters["timeout"].default == 30


def test_the_example_of_its_readme(tmp_path: Path) -> None:
    set_custom_model(ScriptedModel(calls(("bash", {"cmd": "echo 'Hello World'"}))))

    ag = Agent()
    ag.step("echo 'Hello World'")
    # ... more steps
    ag.runtime.cleanup()

    assert ag.history[-1]["content"] == "$ echo 'Hello World'\nHello World\n[exit code: 0]"
    assert not [*tmp_path.glob("agent_*")]
    assert not (tmp_path / "home").exists()


def test_a_run_takes_steps_until_the_model_calls_stop(rt: Runtime) -> None:
    model = ScriptedModel(
        calls(("write_file", {"path": "a.txt", "content": "one\n"}), ("bash", {"cmd": "cat a.txt"}), text="First."),
        calls(("stop", {}), text="It is written."),
    )
    events: list[Event] = []
    agent = Agent(rt, model, "small-model", listeners=[events.append])

    outcome = agent.run_until_stop("Write a.txt")

    assert (outcome.status, outcome.summary) == (Status.FINISHED, "It is written.")
    assert roles_and_texts(agent) == [
        ("user", "Write a.txt"),
        ("assistant", "First."),
        ("tool", "Wrote a.txt"),
        ("tool", "$ cat a.txt\none\n[exit code: 0]"),
        ("assistant", "It is written."),
        ("tool", "Stopping."),
    ]
    assert (rt.base_dir / "a.txt").read_text() == "one\n"
    assert (model.name, model.tools) == ("small-model", ["bash", "write_file", "stop", "continue"])
    first, second = model.requests
    assert first[0] == {"role": "system", "content": agent.system_msg}
    assert second[: len(first)] == first
    assert [each["role"] for each in second] == ["system", "user", "assistant", "tool", "tool"]
    assert agent.usage.requests == 2
    assert [each.tool for each in events if isinstance(each, ToolReturned)][:2] == ["write_file", "bash"]


def test_continue_ends_the_loop_and_the_answer_goes_on(rt: Runtime) -> None:
    model = ScriptedModel(calls(("continue", {}), text="Which file?"), STOP)
    agent = Agent(rt, model)

    assert agent.run_until_stop("Delete it").summary == "Which file?"
    agent.run_until_stop("a.txt")

    names = [call["function"]["name"] for each in model.requests[1] for call in each.get("tool_calls", ())]
    assert names == ["continue"]


def test_a_step_asks_the_model_once_and_an_answer_in_words_ends_a_run(rt: Runtime) -> None:
    agent = Agent(
        rt, ScriptedModel(calls(("bash", {"cmd": "true"})), Message("assistant", "ok"), Message("assistant", "yes"))
    )

    assert agent.step("run").tool_calls
    assert agent.step("and?") == Message("assistant", "ok")
    assert agent.run_until_stop("sure?").summary == "yes"
    assert [role for role, _ in roles_and_texts(agent)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_what_cannot_be_called_is_an_answer_and_the_run_goes_on(rt: Runtime) -> None:
    agent = Agent(
        rt,
        ScriptedModel(
            calls(("nothing", {}), ("bash", {}), ("bash", {"cmd": 5}), ("write_file", {"path": "../x", "content": ""})),
            {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "bash", "arguments": "{broken"}}]},
            calls(("write_file", {"path": "x", "content": "\ud83d"})),
            STOP,
        ),
    )

    outcome = agent.run_until_stop("go")

    answers = [text for role, text in roles_and_texts(agent) if role == "tool"]
    words = ("no tool 'nothing'", "'cmd'", "type string", "leads out", "not JSON", "half of a char", "Stopping.")
    assert [word for word, text in zip(words, answers, strict=True) if word in text] == [*words]
    assert not [name for name in ("finish", "script", "tool_continue") if name in answers[0]]
    assert outcome.status is Status.FINISHED


def test_no_call_can_hide_behind_an_id_of_the_runtimes_own(rt: Runtime) -> None:
    hidden = [{"id": END_ID, "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "echo done"}'}}]
    agent = Agent(rt, ScriptedModel({"role": "assistant", "content": None, "tool_calls": hidden}, STOP))

    agent.run_until_stop("go")

    assert roles_and_texts(agent)[2] == ("tool", "$ echo done\ndone\n[exit code: 0]")


def test_limits_of_steps_and_of_time_end_a_run(rt: Runtime) -> None:
    release = threading.Event()
    slow = ScriptedModel(lambda: release.wait(20) and STOP, lambda: release.wait(20) and STOP)
    working = ScriptedModel(*(calls(("bash", {"cmd": f"echo {number}"})) for number in range(3)))

    assert Agent(rt, working).run_until_stop("go", max_steps=2).status is Status.MAX_STEPS
    late = Agent(rt, slow)
    assert late.run_until_stop("go", step_timeout=0.05).status is Status.TIMEOUT
    assert late.history[-1] == {"role": "system", "content": "[timeout after 0.05s]"}
    assert late.run_until_stop("go", max_time=0.05).status is Status.TIMEOUT
    assert late.history[-1] == {"role": "system", "content": "[timeout after 0.05s]"}
    release.set()


def test_a_step_that_is_too_late_ends_its_command(rt: Runtime) -> None:
    agent = Agent(rt, ScriptedModel(calls(("bash", {"cmd": "sleep 60; touch late"}))))

    outcome = agent.run_until_stop("go", step_timeout=0.5)

    assert outcome.status is Status.TIMEOUT
    assert rt.bash("ls; pgrep sleep").endswith("[exit code: 1]")


def test_the_limits_of_variables(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGENT_STEP_TIMEOUT", "soon")
    with pytest.raises(SettingsError, match="PYGENT_STEP_TIMEOUT='soon'"):
        Agent(rt, ScriptedModel()).run_until_stop("go")

    monkeypatch.setenv("PYGENT_MODEL", "other-model")
    monkeypatch.setenv("PYGENT_PERSONA_NAME", "Ada")
    monkeypatch.setenv("PYGENT_PERSONA", "a careful engineer.")
    agent = Agent(rt, ScriptedModel())
    assert agent.model_name == "other-model"
    assert agent.system_msg.startswith("You are Ada. a careful engineer.")


def test_a_history_file_survives_tool_calls(rt: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "kept" / "history.json"
    agent = Agent(rt, ScriptedModel(calls(("bash", {"cmd": "echo hi"})), STOP), history_file=path)
    agent.run_until_stop("go")

    model = ScriptedModel(Message("assistant", "again"))
    again = Agent(rt, model, history_file=path)
    assert again.history == agent.history
    again.refresh_system_message()
    again.step("more")

    kept = json.loads(path.read_text())
    assert [each["role"] for each in kept] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert kept[2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd": "echo hi"}'}
    assert [each["role"] for each in model.requests[0]] == [each["role"] for each in kept[:-1]]
    assert model.requests[0][3]["tool_call_id"] == kept[3]["tool_call_id"]


def test_a_history_file_that_cannot_be_read_is_left_as_it_is(rt: Runtime, tmp_path: Path) -> None:
    for text in ("[{", '{"role": "user"}', '[{"role": "robot", "content": "x"}]', '[{"role": "user", "content": 1}]'):
        (tmp_path / "history.json").write_text(text)
        with pytest.raises(SessionError, match=r"history\.json|Entry 0"):
            Agent(rt, ScriptedModel(), history_file=tmp_path / "history.json")
        assert (tmp_path / "history.json").read_text() == text


def test_a_history_file_in_the_workspace_is_refused(rt: Runtime) -> None:
    with pytest.raises(SettingsError, match="is in the workspace"):
        Agent(rt, ScriptedModel(), history_file=rt.base_dir / "history.json")


def test_a_history_can_be_given_added_to_and_changed(rt: Runtime) -> None:
    model = ScriptedModel(Message("assistant", "a"), Message("assistant", "b"))
    agent = Agent(rt, model, history=[{"role": "user", "content": "before"}, Message("assistant", "then")])

    agent.append_history({"role": "system", "content": "a note"})
    agent.step("one")
    assert [each["content"] for each in model.requests[0][1:-1]] == ["before", "then"]
    assert "a note" in model.requests[0][-1]["content"]
    assert "one" in model.requests[0][-1]["content"]

    del agent.history[1:]
    agent.step("two")
    assert len(model.requests[1]) == 2
    assert roles_and_texts(agent) == [("user", "two"), ("assistant", "b")]
    with pytest.raises(SessionError, match="Entry 3"):
        agent.append_history({"role": "nobody", "content": ""})


def test_a_history_that_did_not_become_shorter_is_told_as_it_is_now(rt: Runtime) -> None:
    model = ScriptedModel(Message("assistant", "a"), calls(("bash", {"cmd": "true"})), STOP, Message("assistant", "b"))
    agent = Agent(rt, model)
    agent.step("one")

    agent.history[1] = {"role": "user", "content": "another"}
    agent.run_until_stop("two")
    assert model.requests[1][1]["content"] == "another"

    agent.history.append({"role": "user", "content": "a note"})
    agent.step("three")
    assert [each["role"] for each in model.requests[3]][1:] == [
        *("user", "assistant") * 2,
        "tool",
        "assistant",
        "tool",
        "user",
    ]
    assert "a note\n\n[Task 4]\nthree" in model.requests[3][-1]["content"]
    assert not any("died" in str(each["content"]) for each in model.requests[3])


def test_a_model_that_fails(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ConnectionError("the wire is cut")

    agent = Agent(rt, ScriptedModel(broken, Message("assistant", "back")))
    with pytest.raises(ConnectionError, match="the wire is cut"):
        agent.step("hi")
    assert agent.step("hi again").content == "back"

    with pytest.raises(TypeError, match="Unsupported message type"):
        Agent(rt, ScriptedModel(5)).step("hi")
    with pytest.raises(APIError, match="Script"):
        Agent(rt, ScriptedProvider(())).step("hi")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(APIError, match=r"[Kk]ey"):
        pygent.OpenAIModel().chat([{"role": "user", "content": "hi"}], "gpt", [])


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "HTTP 503"])
async def test_a_service_that_is_down_is_reported_within_two_seconds(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    naps = list[float]()

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr(models, "BRIEF_RETRY", replace(BRIEF_RETRY, sleep=nap))
    monkeypatch.setattr(run, "FIRST_PAUSE", 0.1)  # so that a run that waits for the service shows it soon
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
    async with ModelServer(replies=lambda _: Fails(503)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1" if is_refused else server.url_openai)
        with Agent(rt) as agent, pytest.raises(APIError, match=r"\(?3 attempts"):
            await asyncio.to_thread(agent.step, "hi")

    assert len(naps) == 2
    assert sum(naps) <= 2
    assert len(server.requests) == (0 if is_refused else 3)


async def test_the_default_model_speaks_to_a_service(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer(replies=["Good morning.", "Good day."]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url_openai)
        with Agent(rt) as agent:
            first = await asyncio.to_thread(agent.step, "hi")
        asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        second = await asyncio.to_thread(pygent.OpenAIModel().chat, asked, "gpt-4.1-mini", [])

    assert [first.content, second.content] == ["Good morning.", "Good day."]
    assert "You are Pygent." in json.dumps(server.requests[0].json)
    assert [each["function"]["name"] for each in server.requests[0].json["tools"]] == [
        "bash",
        "write_file",
        "stop",
        "continue",
    ]


@pytest.mark.parametrize("workspace", ["named", None])
def test_one_agent_at_a_time_works_in_a_workspace(workspace: str | None) -> None:
    rt = Runtime(workspace=workspace)
    other = Agent(rt, ScriptedModel(Message("assistant", "mine")))
    agent: Agent
    tools = Tools()
    tools.register_tool("call_other", "Ask another agent.", {}, lambda _rt: other.step("hi").content)
    tools.register_tool("call_itself", "Ask itself.", {}, lambda _rt: agent.step("hi").content)
    agent = Agent(rt, ScriptedModel(calls(("call_other", {}), ("call_itself", {})), STOP), tools=tools)

    agent.run_until_stop("go")

    answers = [text for role, text in roles_and_texts(agent) if role == "tool"]
    assert "Another agent works in" in answers[0]
    assert "UsageError" in answers[1]
    agent.close()
    with pytest.raises(UsageError, match="closed"):
        agent.step("hi")
    rt.cleanup()


def test_a_system_message_of_ones_own_stays_and_the_built_one_follows_the_tools(rt: Runtime) -> None:
    model = ScriptedModel(Message("assistant", "a"), Message("assistant", "b"))
    agent = Agent(rt, model, system_msg="Answer in one word.")
    agent.step("hi")
    assert model.requests[0][0]["content"] == "Answer in one word."

    tools = Tools()
    built = Agent(rt, model, persona=Persona("Bo", "a tester."), tools=tools)
    assert "bash" in built.system_msg
    tools.remove_tool("bash")
    built.refresh_system_message()
    assert "bash" not in built.system_msg
    assert built.history[0]["content"] == built.system_msg
    built.step("hi")
    assert model.tools == ["write_file", "stop", "continue"]


def test_tools_of_any_name_on_an_instance_and_on_the_default_one(rt: Runtime) -> None:
    @pygent.tool("look-up", "Look something up.", {"type": "object", "properties": {"print": {"type": "string"}}})
    def look_up(_rt: Runtime, **words: str) -> str:
        return f"found {words}"

    own = Tools()
    own.register_tool("finish", "Ours.", {"type": "object", "properties": {}}, lambda _rt: "ours")
    with pytest.raises(ValueError, match="already registered"):
        own.register_tool("bash", "", {}, look_up)
    own.register_tool("look-at", "", {}, look_up)
    with pytest.raises(ValueError, match="'look-at' is called the same inside"):
        own.register_tool("look_at", "", {}, look_up)
    own.remove_tool("look-at")
    with pytest.raises(ValueError, match="at most 59 characters"):
        own.register_tool("a b", "", {}, look_up)
    with pytest.raises(ValueError, match="not registered"):
        own.remove_tool("look-up")
    assert "look-up" in pygent.tools.TOOLS
    assert "look-up" not in own.functions

    agent = Agent(rt, ScriptedModel(calls(("look-up", {"print": "x"})), STOP))
    agent.run_until_stop("go")
    assert ("tool", "found {'print': 'x'}") in roles_and_texts(agent)
    agent = Agent(rt, ScriptedModel(calls(("finish", {})), calls(("script", {"code": "1"})), STOP), tools=own)
    agent.run_until_stop("go")
    answers = [text for role, text in roles_and_texts(agent) if role == "tool"]
    assert answers[0] == "ours"
    assert "no tool" in answers[1]


def test_a_call_can_be_made_by_hand(rt: Runtime) -> None:
    def call(name: str, arguments: str) -> object:
        return pygent.execute_tool(SimpleNamespace(function=SimpleNamespace(name=name, arguments=arguments)), rt)

    assert call("write_file", '{"path": "a", "content": "b"}') == "Wrote a"
    assert call("nothing", "{}") == "⚠️ unknown tool nothing"
    assert "bash was not called" in str(call("bash", "{"))
    assert "missing" in str(call("bash", "{}"))
    assert "outside the workspace" in str(call("write_file", '{"path": "/etc/x", "content": "b"}'))
    pygent.clear_tools()
    assert call("bash", '{"cmd": "true"}') == "⚠️ unknown tool bash"
    pygent.reset_tools()
    assert [*pygent.tools.TOOLS] == ["bash", "write_file", "stop", "continue"]


def test_without_a_sandbox_an_agent_does_not_begin(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Bubblewrap) -> None:
        raise SandboxError("no namespaces here; install them")

    monkeypatch.setattr(Bubblewrap, "probe", broken)
    model = ScriptedModel(STOP)
    with pytest.raises(SandboxError):
        Agent(rt, model).step("hi")
    assert not model.requests
