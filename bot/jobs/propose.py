"""The agent's tool `propose`: it checks the form and the declaration of an action, and does nothing.

The session records its calls, which `Progress` collects; at the end of the run they are judged and applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any

from agent_runtime import ToolError
from bot.domain.actions import KINDS, ActionError, Declaration, Proposal, append_proposal, parse_action
from bot.permissions.actions import DECLARED_AS, check_declared, complete

_INTRODUCTION = """\
Propose an action on GitHub. It does nothing now: the host checks it and applies it after the run, perhaps once a \
person approves. Without issue it is about this thread."""
_CREATED = 'The first issue that you create is issue="new-1", the next "new-2".'
_TYPES: dict[str, Any] = {
    "labels": list[str],
    "assignees": list[str],
    "reviewers": list[str],
    "fields": dict,
    "inputs": dict,
    "draft": bool,
    "discussion": int,
    "issue": int | str,
    "sub_issue": int | str,
    "duplicate_of": int | str,
}
"""Types of fields that are no text."""


def propose_tool(
    declarations: Sequence[Declaration], *, thread: int, earlier: Callable[[], tuple[Proposal, ...]]
) -> Callable[..., Awaitable[str]]:
    """Return the tool for a run.

    Args:
        thread: number of the job's thread; 0 for a branch.
        earlier: returns the proposals of the run.
    """
    declared = {entry.kind: entry for entry in declarations}

    async def propose(action: str, **values: object) -> str:
        try:
            proposed = parse_action(action, values, tuple(declared))
        except ActionError as error:
            raise ToolError(f"propose: {error}", kind="ValueError") from None
        proposals = earlier()
        if objection := check_declared(proposed, declared[action], proposals, thread):
            raise ToolError(f"propose: {action}: {objection}", kind="ValueError")
        proposal = append_proposal(proposals, complete(proposed, declared[action]))[-1]
        return f"Proposal {proposal.number}: {proposal.sentence(thread)}"

    tool: Any = propose
    tool.__doc__ = describe_declarations(declarations)
    names = dict.fromkeys(name for entry in declarations for name in _field_names(entry))
    parameters = [
        Parameter("action", Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
        *(Parameter(name, Parameter.KEYWORD_ONLY, annotation=_TYPES.get(name, str), default=...) for name in names),
        Parameter("others", Parameter.VAR_KEYWORD),  # an unknown field is answered with the nearest one
    ]
    tool.__signature__ = Signature(parameters, return_annotation=str)
    return propose


def describe_declarations(declarations: Sequence[Declaration]) -> str:
    """Return the description of the tool, the same for the same declarations."""
    lines = [f"- {entry.kind}({', '.join(_describe_fields(entry))}), max {entry.max}" for entry in declarations]
    creates = any(entry.kind == "create-issue" for entry in declarations)
    return "\n".join([f"{_INTRODUCTION}{f' {_CREATED}' if creates else ''}", *lines])


def _field_names(declaration: Declaration) -> Iterator[str]:
    for part in fields(KINDS[declaration.kind]):
        is_left_out = part.name == "issue" and declaration.target == "thread"
        is_left_out = is_left_out or (part.name == "inputs" and not declaration.allowed.get("inputs"))
        if part.name != "kind" and not is_left_out:
            yield part.name


def _describe_fields(declaration: Declaration) -> Iterator[str]:
    for name in _field_names(declaration):
        allowed = declaration.allowed.get(DECLARED_AS.get(name, ""), ())
        if name in {"issue", "sub_issue"} and declaration.target == "created":
            allowed = ("new-…",) if name == "sub_issue" else ("this thread", "new-…")
        yield f"{name}: {' | '.join(f'`{value}`' for value in allowed)}" if allowed else name
