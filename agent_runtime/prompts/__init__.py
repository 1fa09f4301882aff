"""The texts that the model reads: templates and short notes; a name without a value is an error."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

WITHDRAWN = (
    "[The completion was withdrawn because this step failed. Fix it, or finish saying what is open. An empty "
    "completion repeats the withdrawn one.]"
)
NOTHING_PROVEN = (
    "An empty completion repeats the withdrawn one only in a step that acts and succeeds. Act again, or finish in "
    "words of your own."
)


def repeated(steps: int, limit: int) -> str:
    """A warning for an agent that goes in circles."""
    return (
        f"[These are the same calls as in the {steps - 1} steps before. After {limit} such steps in a row the run ends:"
        " do something else, or finish saying what is open.]"
    )


def unfit(how: str, problems: str, left: int) -> str:
    """Return the note on a completion that does not fit the task's output schema.

    Args:
        how: the consequence, and how to correct the completion.
        problems: one line each.
        left: how many more completions are looked at after this.
    """
    rest = f"{left} more after that" if left else "it is the last one that is looked at"
    return (
        "[The completion was not accepted: it must be JSON that fits the output schema of the first message, or hold "
        f"such JSON in one ```json block.]\n{problems}\n[{how}; {rest}.]"
    )


def system_prompt(*, name: str, role: str, replies: str, step_chars: int, instructions: str = "") -> str:
    """The system prompt; byte-stable for the same arguments, so that the provider's cache stays warm.

    Args:
        name: of the agent.
        role: what it is, as one sentence.
        replies: how it replies and which tools it has, as its transport tells it.
        step_chars: characters that one step may show.
        instructions: further ones.
    """
    values = {"name": name, "role": role, "replies": replies, "instructions": instructions}
    return _template("system.md").substitute(values, step_chars=f"{step_chars:,}").strip()


def summary_request(*, place: str, max_tokens: int) -> str:
    """Return the request for a summary of a conversation's oldest part.

    Args:
        place: up to where, in words.
        max_tokens: its length.
    """
    return _template("summary.md").substitute(place=place, max_tokens=max_tokens).strip()


@cache
def _template(name: str) -> Template:
    return Template(files(__name__).joinpath(name).read_text(encoding="utf-8"))
