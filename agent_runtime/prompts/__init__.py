"""Every word that the model is told, as templates; a name without a value is an error."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

CHAT = "- A reply without control block and completion is an answer in conversation."
JOB = "- A reply with neither control block nor completion is an error: act, or finish with a completion alone."

NO_ACTION = (
    "Your reply held neither a ```codepilot block nor a ```completion, so nothing happened. To act, write a "
    "```codepilot block; if the task is done or cannot be done, end it with a ```completion block that says so."
)
NO_OUTPUT = "[Control block executed with no output.]"
WITHDRAWN = "[The completion was withdrawn because this step failed. Fix it, or finish saying what is open.]"


def repeated(steps: int, limit: int) -> str:
    """A warning for an agent that goes in circles."""
    return (
        f"[These are the same calls as in the {steps - 1} steps before. After {limit} such steps in a row the run ends:"
        " do something else, or finish saying what is open.]"
    )


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


def system_prompt(*, name: str, role: str, tools: str, chat: bool, instructions: str = "") -> str:
    """The system prompt; byte-stable for the same arguments, so that the provider's cache stays warm."""
    return (
        _template("system.md")
        .substitute(name=name, role=role, tools=tools, mode=CHAT if chat else JOB, instructions=instructions)
        .strip()
    )


def summary_request(*, place: str, max_tokens: int) -> str:
    """What asks for the summary of a conversation's oldest part.

    Args:
        place: up to where, in words.
        max_tokens: its length.
    """
    return _template("summary.md").substitute(place=place, max_tokens=max_tokens).strip()


@cache
def _template(name: str) -> Template:
    return Template(files(__name__).joinpath(name).read_text(encoding="utf-8"))
