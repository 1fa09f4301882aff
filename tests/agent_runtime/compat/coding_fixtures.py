"""The fixtures that the published tests of llm-coding-agent use and its distribution leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import llm
import pytest
from llm.cli import cli
from llm.plugins import load_plugins, pm
from typing_extensions import override

from agent_runtime.compat.coding import command

__all__ = ["fake_model_factory"]

load_plugins()  # type: ignore[no-untyped-call]
pm.register(command, name="coding")
command.register_commands(cli)


class FakeModel(llm.Model):
    """Gives one turn of a script a request: a text, or the names of tools with their arguments."""

    can_stream = True
    supports_tools = True

    def __init__(self, script: Sequence[object], model_id: str) -> None:
        self.model_id = model_id
        self.script = list(script)
        self.prompts: list[llm.Prompt] = []
        self.conversations: list[llm.Conversation | None] = []

    @override
    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str]:
        self.prompts.append(prompt)
        self.conversations.append(conversation)
        turn = self.script.pop(0)
        if isinstance(turn, list):
            for name, arguments in turn:
                response.add_tool_call(llm.ToolCall(name=name, arguments=arguments))
        else:
            yield str(turn)


@pytest.fixture
def fake_model_factory() -> Callable[..., FakeModel]:
    """Makes such models."""
    return lambda script, model_id="fake-model": FakeModel(script, model_id)
