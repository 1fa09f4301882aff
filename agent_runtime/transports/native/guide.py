"""The texts that tell a model how to reply with native tool calls."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files

from agent_runtime import prompts
from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import FormatCode
from agent_runtime.providers.protocol import ToolSchema

SCRIPT, FINISH = "script", "finish"

NO_ACTION = "Your reply was empty, so nothing happened. Call a tool, or say in words how the task ended."
NO_OUTPUT = "[done, without output]"
ENDED = "[received]"
OWN_TOOLS = "finish and script are tools, not functions of a script: call finish beside script."
FORGOTTEN = "[This run was paused. The variables of its earlier scripts are gone.]"
NOT_MADE = "[not made: an earlier call of this reply went over a limit]"
CUT_OFF = (
    "The reply reached the length limit, so its last call may be incomplete. None of its calls was made. Send a "
    "shorter reply: fewer calls at once, or write a large file in parts (mode='a')."
)
unfit = partial(prompts.unfit, "The calls themselves are done. Call finish with a corrected summary")


def script_schema(functions: str) -> ToolSchema:
    """The tool that runs control code.

    Args:
        functions: declarations of the tools that only scripts call.
    """
    further = f" Further functions:\n{functions}" if functions else ""
    return ToolSchema(
        name=SCRIPT, description=f"Run Python in which the tools are functions.{further}", parameters=_texts("code")
    )


def finish_schema() -> ToolSchema:
    """The tool that ends the task."""
    return ToolSchema(
        name=FINISH,
        description="End the task. Counts only if every call of this reply succeeds.",
        parameters=_texts("summary"),
    )


def unreadable(code: FormatCode, count: int) -> str:
    """What a person is told when so many replies in a row were not understood."""
    told = "was cut off at the length limit" if code == "truncated" else "was empty"
    remedy = "Raise `max_tokens`, or divide the task" if code == "truncated" else "Try again, or choose another `model`"
    return f"{count} replies in a row could not be used; the last one {told}. {remedy}."


def guide(_tools: str, *, chat: bool) -> str:  # noqa: ARG001 - the interface of all transports
    """How to reply; which tools there are is told beside the prompt."""
    return _text()


def _texts(*names: str) -> dict[str, Plain]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": [*names]}


@cache
def _text() -> str:
    return files(__package__).joinpath("guide.md").read_text(encoding="utf-8").strip()
