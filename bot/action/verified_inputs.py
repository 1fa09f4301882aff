"""Verify the inputs that the agent obeys against the workflow file at its commit.

Where the file cannot be read or does not identify the step, the whole prompt is a quote and the job only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_runtime import BoundExceededError, run_bounded
from bot.action.workflow_file import Piece, divide_inputs
from bot.domain.access import is_app
from bot.domain.errors import BotError
from bot.domain.job import InputValue, UnverifiedInputs
from bot.events.delivery import Delivery
from bot.github.client import GitHub
from bot.settings.models import ActionInputs, ActionSettings

_MAX_FILE_BYTES = 200_000
_FILE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)/(?P<path>\.github/workflows/[^/@]+\.ya?ml)@.+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_WORD = re.compile(r"\w")

_NOT_VERIFIED = (
    "To allow more, use this action in a step of a workflow file that calls no other workflows, not in a composite "
    "action, and give the job `contents: read`."
)
_NO_GOAL = "To allow more, write the task as text in the workflow file, before the expression."
_NOT_IN_MCP = "To allow more, write `${NAME}` in its place, and set NAME in `env:` of the step."
_NOT_OWN = "To allow more, write it out in the workflow file, or use an input of `workflow_dispatch` or a variable."


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedInputs:
    """The obeyed inputs, divided by the workflow file.

    Attributes:
        goal: words that only people with write access can have written, with marks for the values.
        values: that others may have written; the whole prompt, if the step is not identified.
        unverified: set if there are no such words, or another input may be a stranger's.
    """

    goal: str = ""
    values: tuple[InputValue, ...] = ()
    unverified: UnverifiedInputs | None = None


async def verify_inputs(
    settings: ActionSettings, delivery: Delivery, github_for: Callable[[], GitHub]
) -> VerifiedInputs:
    """Divide the inputs that the agent obeys: `prompt`, `recipe`, `output-schema` and `mcp`."""
    inputs = settings.inputs
    # Of the others no part can be a quote, so their values are not divided.
    given = {"recipe": inputs.recipe, "output-schema": inputs.output_schema, "mcp": inputs.mcp}
    values = {name: None for name, value in given.items() if value}
    asked = {"prompt": inputs.prompt, **values} if inputs.prompt else values
    if not asked:
        return VerifiedInputs()
    try:
        divided = await _divide(settings, delivery, asked, github_for)
    except (BotError, BoundExceededError, ValueError) as error:
        whole = (InputValue(source="the input prompt of the workflow", text=inputs.prompt),) if inputs.prompt else ()
        return VerifiedInputs(values=whole, unverified=_unverified(inputs, str(error).rstrip("."), _NOT_VERIFIED))
    goal, quoted, own = _join(divided.pop("prompt", []))
    unverified = None
    if inputs.prompt and not inputs.recipe and not _WORD.search(own):
        unverified = _unverified(inputs, "the input `prompt` has no words of the workflow file itself", _NO_GOAL)
        goal = ""
    for name, pieces in divided.items():
        if (foreign := next((each for each in pieces if not each.trusted), None)) is not None:
            because = f"others than people with write access can set `{foreign.expression}` in the input `{name}`"
            unverified = _unverified(inputs, because, _NOT_IN_MCP if name == "mcp" else _NOT_OWN)
    return VerifiedInputs(goal=goal, values=quoted, unverified=unverified)


def _unverified(inputs: ActionInputs, because: str, remedy: str) -> UnverifiedInputs:
    verb = "" if inputs.recipe else inputs.command or ("fix" if inputs.prompt else "")
    return UnverifiedInputs(because=because, remedy=remedy, verb=verb)


async def _divide(
    settings: ActionSettings, delivery: Delivery, values: dict[str, Any], github_for: Callable[[], GitHub]
) -> dict[str, list[Piece]]:
    file = _FILE.fullmatch(settings.workflow_ref)
    if file is None or file["repo"].casefold() != settings.repository.casefold():
        raise ValueError("the runner names no workflow file of this repository (GITHUB_WORKFLOW_REF)")
    if not _COMMIT.fullmatch(settings.workflow_sha):
        raise ValueError("the runner names no commit of the workflow file (GITHUB_WORKFLOW_SHA)")
    path = file["path"]
    async with github_for() as github:
        content = await github.repos.read_file(settings.repository, path, settings.workflow_sha)
    if content is None:
        raise ValueError(f"`{path}` cannot be read at commit {settings.workflow_sha[:10]}")
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"`{path}` has more than {_MAX_FILE_BYTES:,} bytes")
    step = {
        "job": settings.job,
        "action": settings.action,
        "action_path": settings.action_path,
        "workspace": settings.workspace,
        "dispatched_by": "bot" if delivery.event == "workflow_dispatch" and not _has_person(delivery) else "",
    }
    text = content.decode("utf-8", "replace")
    divided: dict[str, Any] = await run_bounded(divide_inputs, text, step, values, task=f"Reading {path}")
    return {name: [Piece(*each) for each in pieces] for name, pieces in divided.items()}


def _has_person(delivery: Delivery) -> bool:
    """Whether a person caused an event; a bot that starts a workflow may pass on a stranger's words."""
    sender = delivery.data.get("sender")
    return isinstance(sender, dict) and sender.get("type") == "User" and not is_app(str(sender.get("login")))


def _join(pieces: Sequence[Piece]) -> tuple[str, tuple[InputValue, ...], str]:
    goal, own, values = list[str](), list[str](), list[InputValue]()
    for piece in pieces:
        if piece.trusted:
            goal.append(piece.text)
            own.append(piece.text)
        elif piece.text.strip():
            name = f"value {len(values) + 1} of the workflow's prompt"
            values.append(InputValue(source=f"{name}, ${{{{ {piece.expression} }}}}", text=piece.text))
            goal.append(f"[{name}, quoted below]")
    return "".join(goal).strip(), tuple(values), "".join(own)
