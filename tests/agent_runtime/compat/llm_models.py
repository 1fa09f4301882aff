"""Models of the `llm` package that say what a test has written, and remember what they were asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llm
from llm.cli import cli
from llm.parts import StreamEvent
from llm.plugins import load_plugins, pm
from typing_extensions import override

from agent_runtime.compat.coding import command as command_module

Call = tuple[str, dict[str, object]]
Turn = str | Exception | Sequence[Call]


class ScriptedModel(llm.Model):
    """Gives one turn a request: a text, calls of `CodingTools`, or an error."""

    can_stream = True
    supports_tools = True

    def __init__(self, *script: Turn, model_id: str = "scripted-model") -> None:
        self.model_id = model_id
        self.script = list(script)
        self.prompts: list[llm.Prompt] = []

    @override
    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str | StreamEvent]:
        self.prompts.append(prompt)
        turn = self.script.pop(0)
        if isinstance(turn, Exception):
            raise turn
        response.set_usage(input=100, output=10)
        if isinstance(turn, str):
            yield turn
            return
        yield StreamEvent(type="reasoning", chunk="Hm.", provider_metadata={"signature": "s"})
        for tool, arguments in turn:
            response.add_tool_call(llm.ToolCall(name=f"CodingTools_{tool}", arguments=arguments))

    def told(self) -> list[str]:
        """What the newest request brought: results of calls, then the user's words."""
        prompt = self.prompts[-1]
        return [*(each.output for each in prompt.tool_results), *filter(None, [prompt.prompt])]


class Temperature(llm.Options):
    """The options of `KeyedModel`."""

    temperature: float | None = None


class KeyedModel(llm.KeyModel):
    """Needs a key, takes an option, and runs one command; keeps what it was given."""

    model_id = "keyed-model"
    needs_key = "keyed"
    can_stream = True
    supports_tools = True
    Options = Temperature  # type: ignore[assignment]  # how plugins declare theirs

    def __init__(self) -> None:
        self.given: list[tuple[str | None, float | None]] = []
        self.answers: list[str] = []

    @override
    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
        key: str | None = None,
    ) -> Iterator[str]:
        assert isinstance(prompt.options, Temperature)
        self.given.append((key, prompt.options.temperature))
        self.answers += [each.output for each in prompt.tool_results]
        if prompt.tool_results:
            yield "Done."
        else:
            response.add_tool_call(llm.ToolCall(name="CodingTools_execute_command", arguments={"command": "pwd"}))


@contextmanager
def plugged(models: object) -> Iterator[None]:
    """Let `llm` have a plugin with models, and ours, which is registered already where its entry point is installed."""
    load_plugins()  # type: ignore[no-untyped-call]
    if not any(name == "codepilot" for name, _ in pm.list_name_plugin()):
        pm.register(command_module, name="codepilot")
        command_module.register_commands(cli)
    pm.register(models, name="models of a test")
    try:
        yield
    finally:
        pm.unregister(name="models of a test")


def write(path: str, content: str = "made\n") -> Call:
    """A call that writes a file."""
    return "write_file", {"path": path, "content": content}


def read(path: str) -> Call:
    """A call that reads a file."""
    return "read_file", {"path": path}


def execute(command: str) -> Call:
    """A call that runs a command."""
    return "execute_command", {"command": command}
