"""The texts that tell a model how to reply with control blocks."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files
from string import Template

from agent_runtime import prompts

_CHAT = "- A reply without control block and completion is an answer in conversation."
_JOB = "- A reply with neither control block nor completion is an error: act, or finish with a completion alone."

NO_ACTION = (
    "Your reply held neither a ```codepilot block nor a ```completion, so nothing happened. To act, write a "
    "```codepilot block; if the task is done or cannot be done, end it with a ```completion block that says so."
)
NO_OUTPUT = "[Control block executed with no output.]"
unfit = partial(prompts.unfit, "The step itself is done. Send a corrected ```completion")


def guide(tools: str, *, chat: bool) -> str:
    """How to reply, and which tools there are.

    Args:
        tools: their declarations.
        chat: whether a reply that neither acts nor finishes is an answer.
    """
    return _template().substitute(tools=tools, mode=_CHAT if chat else _JOB).strip()


@cache
def _template() -> Template:
    return Template(files(__package__).joinpath("guide.md").read_text(encoding="utf-8"))
