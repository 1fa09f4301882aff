"""CodingAgent: the results, callbacks, pauses and logs that llm-coding-agent documents."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import llm
import pytest
from llm.logs import LogStore
from llm.parts import ReasoningPart, ToolResultPart
from sqlite_utils import Database

from agent_runtime.compat.coding import CodingAgent
from agent_runtime.compat.coding.agent import CodingCall
from agent_runtime.core.errors import ModelError, ResumeError, SettingsError, UsageError
from tests.agent_runtime.compat.llm_models import Call, KeyedModel, ScriptedModel, execute, read, write


def test_a_result_has_the_answer_the_calls_and_what_was_used_and_the_conversation_goes_on(project: Path) -> None:
    model = ScriptedModel([read("hello.txt"), write("fix.txt")], "Fixed.", "Added.")
    agent = CodingAgent(model, project, approve=True)
    result = agent.run("Fix the failing test in tests/test_parser.py")

    assert result.text == "Fixed."
    assert [(call.name, call.arguments["path"]) for call, _ in result.tool_calls] == [
        ("CodingTools_read_file", "hello.txt"),
        ("CodingTools_write_file", "fix.txt"),
    ]
    assert [done.output.splitlines()[0] for _, done in result.tool_calls] == ["     1\tone", "Wrote 5 bytes to fix.txt"]
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (2, 200, 20)
    assert agent.run("Now add a changelog entry").text == "Added."
    assert "changelog" in model.told()[-1]
    assert "Fix the failing test" in str(model.prompts[-1].messages[1])
    agent.close()


def test_a_read_of_50_000_characters_is_shown_in_full(project: Path) -> None:
    (project / "big.txt").write_text("".join(f"{'x' * 90} {number}\n" for number in range(480)))
    model = ScriptedModel([read("big.txt")], "Read.")
    with CodingAgent(model, project, approve=True) as agent:
        agent.run("Read it.")
    assert f"{'x' * 90} 240\n" in model.told()[-1]


def test_a_declined_call_is_marked_and_the_model_goes_on(project: Path) -> None:
    shown: list[str] = []

    def approve(tool: llm.Tool | None, call: llm.ToolCall) -> bool:
        assert tool is not None
        assert isinstance(call, CodingCall)
        shown.append(call.preview)
        return str(call.arguments["path"]) != "no.txt"

    made: list[str] = []
    model = ScriptedModel([read("hello.txt"), write("no.txt"), write("yes.txt")], "Done.")
    with CodingAgent(
        model, project, approve, on_tool=lambda call, _result: made.append(call.arguments["path"])
    ) as agent:
        result = agent.run("Write both.")

    outputs = [done.output for _, done in result.tool_calls]
    declined = [isinstance(done.exception, llm.CancelToolCall) for _, done in result.tool_calls]
    assert declined == [False, True, False]
    assert outputs[1].startswith("Cancelled: ")
    assert "Cancelled" in model.told()[1]
    assert made == ["hello.txt", "yes.txt"]
    assert not (project / "no.txt").exists()
    assert (project / "yes.txt").read_text() == "made\n"
    assert "+made" in shown[0]


def test_each_result_is_that_of_its_call_whatever_could_not_be_made(project: Path) -> None:
    long = "x\n" * 20_000
    writes: list[Call] = [("write_file", {"path": f"{name}.txt", "content": long}) for name in ("no", "yes")]
    incomplete: Call = ("write_file", {"path": "incomplete.txt"})
    model = ScriptedModel([incomplete, ("nothing", {}), *writes, read("yes.txt")], "Done.")
    heard: list[tuple[str, str]] = []
    with CodingAgent(
        model,
        project,
        lambda _tool, call: call.arguments["path"] != "no.txt",
        on_tool=lambda call, done: heard.append((call.arguments["path"], done.output[:8])),
    ) as agent:
        result = agent.run("Write both.")

    calls = [(call.arguments.get("path"), done.output[:8], bool(done.exception)) for call, done in result.tool_calls]
    assert calls == [
        ("incomplete.txt", "Error: C", False),
        (None, "Error: t", False),
        ("no.txt", "Cancelle", True),
        ("yes.txt", "Wrote 40", False),
        ("yes.txt", "     1\tx", False),
    ]
    assert heard == [("yes.txt", "Wrote 40"), ("yes.txt", "     1\tx")]


def test_without_anybody_to_ask_a_run_pauses_and_resume_approves_what_it_listed(project: Path) -> None:
    model = ScriptedModel(
        [read("hello.txt"), write("a.txt"), execute("cat a.txt"), read("a.txt")], [write("b.txt")], "Both."
    )
    with CodingAgent(model, project) as agent:
        paused = agent.run("Write.")
        assert [call.name for call in paused.pending_tool_calls] == [
            "CodingTools_write_file",
            "CodingTools_execute_command",
            "CodingTools_read_file",
        ]
        assert (paused.paused, len(paused.tool_calls), (project / "a.txt").exists()) == (True, 1, False)
        with pytest.raises(ResumeError):
            agent.run("Something else.")

        again = agent.resume()
        assert [done.output for _, done in again.tool_calls][1] == "made\nExit code: 0"
        assert [call.arguments["path"] for call in again.pending_tool_calls] == ["b.txt"]

        ended = agent.resume(approve=False)
        assert (ended.text, ended.paused, (project / "b.txt").exists()) == ("Both.", False, False)
        assert isinstance(ended.tool_calls[0][1].exception, llm.CancelToolCall)
        with pytest.raises(ValueError, match="did not pause"):
            agent.resume()


def test_a_call_like_one_that_was_approved_on_resume_asks_again(project: Path) -> None:
    twins = [execute("echo a >> log.txt")] * 2
    with CodingAgent(ScriptedModel(twins, twins[:1], "Done."), project) as agent:
        assert len(agent.run("Append.").pending_tool_calls) == 2
        assert len(agent.resume().pending_tool_calls) == 1
        assert (project / "log.txt").read_text() == "a\na\n"
        assert agent.resume().text == "Done."


@pytest.mark.parametrize(
    ("path", "mine"), [("hello.txt", b"mine\n"), ("new.bin", b"\0mine"), ("new.log", b"m" * 10_000_001)]
)
def test_a_write_is_not_made_over_what_changed_while_somebody_looked_at_it(
    project: Path, path: str, mine: bytes
) -> None:
    def approve(_tool: llm.Tool | None, _call: llm.ToolCall) -> bool:
        (project / path).write_bytes(mine)
        return True

    with CodingAgent(ScriptedModel([write(path)], "Well."), project, approve) as agent:
        result = agent.run("Write.")

    assert result.tool_calls[0][1].output.startswith("Error: Nothing was written")
    assert (project / path).read_bytes() == mine


def test_a_long_result_is_given_whole(project: Path) -> None:
    (project / "long.txt").write_text("".join(f"line {number}\n" for number in range(1_500)))
    with CodingAgent(ScriptedModel([read("long.txt")], "Read."), project) as agent:
        output = agent.run("Read it.").tool_calls[0][1].output

    assert [line.partition("\t")[2] for line in output.split("\n")] == [f"line {number}" for number in range(1_500)]


def test_pending_calls_that_files_moved_under_cannot_be_approved(project: Path) -> None:
    with CodingAgent(ScriptedModel([write("hello.txt")], "Ended."), project) as agent:
        agent.run("Write.")
        (project / "hello.txt").write_text("mine\n")

        with pytest.raises(ResumeError):
            agent.resume()
        assert agent.resume(approve=False).text == "Ended."
    assert (project / "hello.txt").read_text() == "mine\n"


def test_a_run_ends_at_its_chain_limit(project: Path) -> None:
    with CodingAgent(ScriptedModel(*[[read("hello.txt")]] * 9), project, chain_limit=3) as agent:
        result = agent.run("Read for ever.")

    assert (result.hit_limit, len(result.tool_calls), result.paused) == (True, 3, False)


def test_callbacks_run_where_the_caller_waits_and_their_errors_reach_it(project: Path) -> None:
    places: set[str] = set()

    def approve(_tool: llm.Tool | None, _call: llm.ToolCall) -> bool:
        places.add(threading.current_thread().name)
        raise KeyError("approve")

    model = ScriptedModel([write("a.txt")], "Later.")
    with CodingAgent(
        model, project, approve, on_text=lambda _text: places.add(threading.current_thread().name)
    ) as agent:
        with pytest.raises(KeyError):
            agent.run("Write.")
        assert agent.run("Go on.").text == "Later."

    assert places == {threading.current_thread().name}
    assert not (project / "a.txt").exists()


def test_another_model_is_told_what_the_first_one_said_and_did(project: Path) -> None:
    first, second = ScriptedModel([read("hello.txt")], "Read."), ScriptedModel("Three lines.", model_id="second")
    with CodingAgent(first, project) as agent:
        agent.run("Read it.")
        agent.set_model(second)
        agent.run("How long is it?")

    assert agent.model is second
    assert [message.role for message in second.prompts[0].messages] == [
        "system", "user", "assistant", "tool", "assistant", "user"
    ]  # fmt: skip
    thought = second.prompts[0].messages[2].parts[0]
    assert isinstance(thought, ReasoningPart)
    assert thought.provider_metadata == {"signature": "s"}


def test_a_service_that_breaks_off_is_asked_three_times(project: Path) -> None:
    model = ScriptedModel(*[ConnectionResetError("reset")] * 3, "Well.")
    with CodingAgent(model, project) as agent, pytest.raises(ModelError, match="in 3 attempts"):
        agent.run("Read it.")


def test_each_response_is_kept_once_it_is_complete_and_reads_as_it_was_said(project: Path, tmp_path: Path) -> None:
    db = Database(tmp_path / "logs.db")
    model = ScriptedModel([read("hello.txt")], [read("none.txt")], RuntimeError("gone"), "Well.")
    with CodingAgent(model, project, db=db) as agent:
        with pytest.raises(ModelError, match="gone"):
            agent.run("Read it.")
        assert db["turns"].count == 2
        agent.run("Try again.")

    store = LogStore(db)  # type: ignore[no-untyped-call]
    messages = store.thread_messages(agent.conversation.id)
    assert messages == [*model.prompts[-1].messages, *agent.conversation.responses[-1]._messages_now()]
    assert store.verify() == []
    assert list(db.query("select name from threads")) == [{"name": "Read it."}]
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert results[1].output.startswith("Error: file not found: ")


def test_a_call_whose_arguments_cannot_be_read_is_asked_for_again(project: Path) -> None:
    with CodingAgent(ScriptedModel(json.JSONDecodeError("cut off", "{", 1), "Well."), project) as agent:
        assert agent.run("Read it.").text == "Well."
        assert len(agent.conversation.responses) == 1


def test_a_conversation_goes_on_with_its_history_and_what_was_left_open_is_answered(project: Path) -> None:
    model = ScriptedModel([write("a.txt")], "Well.")
    conversation = llm.Conversation(model=model)
    with CodingAgent(model, project) as paused:
        paused.run("Write.")
    conversation.loaded_messages = [
        *paused.conversation.responses[0].prompt.messages,
        *paused.conversation.responses[0]._messages_now(),
    ]
    with CodingAgent(None, project, conversation=conversation) as agent:
        assert agent.run("And now?").text == "Well."

    roles = [message.role for message in model.prompts[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert agent.conversation is conversation
    assert not (project / "a.txt").exists()


def test_two_agents_do_not_work_in_one_directory_at_a_time(project: Path) -> None:
    refused: list[str] = []

    def approve(_tool: llm.Tool | None, _call: llm.ToolCall) -> bool:
        with CodingAgent(ScriptedModel("Hello."), project) as second, pytest.raises(UsageError) as error:
            second.run("Hello?")
        refused.append(str(error.value))
        return True

    with CodingAgent(ScriptedModel([write("a.txt")], "Done."), project, approve) as first:
        assert first.run("Write.").text == "Done."
    assert str(project) in refused[0]
    with CodingAgent(ScriptedModel("Hello."), project) as third:
        assert third.run("Hello?").text == "Hello."


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"disabled_tools": ["fly"]}, "fly"),
        ({"root": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"sandbox": "paper"}, "paper"),
    ],
)
def test_settings_that_cannot_work_are_named(project: Path, settings: dict[str, object], wrong: str) -> None:
    with pytest.raises(SettingsError, match=wrong):
        CodingAgent(**{"model": ScriptedModel(), "root": project, **settings})  # type: ignore[arg-type]


def test_key_and_options_reach_the_model(project: Path) -> None:
    model = KeyedModel()
    with CodingAgent(model, project, approve=True, key="mine", options={"temperature": 0.5}) as agent:
        assert agent.run("Where?").text == "Done."
    assert model.given == [("mine", 0.5)] * 2


def test_a_model_that_calls_no_tools_is_refused(project: Path) -> None:
    model = ScriptedModel()
    model.supports_tools = False
    with pytest.raises(SettingsError, match="scripted-model"):
        CodingAgent(model, project)


def test_a_tool_that_was_disabled_is_neither_told_nor_made(project: Path) -> None:
    model = ScriptedModel([execute("touch made")], "Well.")
    with CodingAgent(model, project, approve=True, disabled_tools=["execute_command"]) as agent:
        result = agent.run("Run it.")

    assert "CodingTools_execute_command" not in {tool.name for tool in model.prompts[0].tools}
    assert result.tool_calls[0][1].output.startswith("Error: ")
    assert not (project / "made").exists()
