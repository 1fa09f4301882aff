"""The texts that tell a model how to reply with control blocks."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

_CHAT = "- A reply without control block and completion is an answer in conversation."
_JOB = "- A reply with neither control block nor completion is an error: act, or finish with a completion alone."

NO_ACTION = (
    "Your reply held neither a ```codepilot block nor a ```completion, so nothing happened. To act, write a "
    "```codepilot block; if the task is done or cannot be done, end it with a ```completion block that says so."
)
NO_OUTPUT = "[Control block executed with no output.]"


def unfit(problems: str, left: int) -> str:
    """What is wrong with a completion that does not fit the task's output schema.

    Args:
        problems: one line each.
        left: how many more completions are looked at after this.
    """
    rest = f"{left} more after that" if left else "it is the last one that is looked at"
    return (
        "[The completion was not accepted: it must be JSON that fits the output schema of the first message, or hold "
        f"such JSON in one ```json block.]\n{problems}\n"
        f"[The step itself is done. Send a corrected ```completion; {rest}.]"
    )


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
