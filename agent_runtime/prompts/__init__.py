"""Prompt templates and short notes for the model."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

WITHDRAWN = (
    "[The completion was withdrawn because this step failed. Fix it, or finish saying what is open. An empty "
    "completion repeats the withdrawn one.]"
)
UNSETTLED = (
    "[The completion was withdrawn, once, because of these commands: {commands}. Look at them, then finish again, "
    "saying what is open. Programs that still run then are ended. An empty completion repeats the withdrawn one.]"
)
NOTHING_PROVEN = (
    "An empty completion repeats the withdrawn one only in a step that acts and succeeds. Act again, or finish in "
    "words of your own."
)


def repetition_warning(steps: int, limit: int) -> str:
    return (
        f"[These are the same calls as in the {steps - 1} steps before. After {limit} such steps in a row the run ends:"
        " do something else, or finish saying what is open.]"
    )


def output_note(consequence: str, problems: str, attempts: int) -> str:
    """Return the note on a completion that violates the output schema."""
    remaining = f"{attempts} more after that" if attempts else "it is the last one that is looked at"
    return (
        "[The completion was not accepted: it must be JSON that fits the output schema of the first message, or hold "
        f"such JSON in one ```json block.]\n{problems}\n[{consequence}; {remaining}.]"
    )


def objection_note(consequence: str, objection: str) -> str:
    """Return the note on a completion that the host does not accept."""
    return f"[The completion was not accepted.]\n{objection}\n[Put this right first. {consequence}.]"


def system_prompt(*, name: str, role: str, replies: str, step_chars: int, instructions: str = "") -> str:
    """Return the system prompt, byte-stable for the provider's cache; `replies` is the transport's guide."""
    values = {"name": name, "role": role, "replies": replies, "instructions": instructions}
    return _template("system.md").substitute(values, step_chars=f"{step_chars:,}").strip()


def summary_request(*, place: str, max_tokens: int) -> str:
    """Return the request to summarise a conversation's oldest part."""
    return _template("summary.md").substitute(place=place, max_tokens=max_tokens).strip()


@cache
def _template(name: str) -> Template:
    return Template(files(__name__).joinpath(name).read_text(encoding="utf-8"))
