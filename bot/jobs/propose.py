"""The agent's tool `propose`: it checks the form and the declaration of an action, and does nothing.

The session records its calls, which `Progress` collects; at the end of the run they are judged and applied.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any

from agent_runtime import Quote, ToolError
from bot.domain.actions import KINDS, ActionError, Declaration, Proposal, append_proposal, parse_action
from bot.github.actions import StateList
from bot.github.types import GitHubError
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.permissions.actions import DECLARED_AS, check_declared, complete, matches
from bot.prompt.sanitize import clean_line

log = logging.getLogger(__name__)
_LINE_CHARS = 200
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


async def list_choices(context: JobContext, assignment: Assignment) -> tuple[Quote, ...]:
    """Return the present values for patterns in the declarations, and the open issues for duplicates.

    Raises:
        GitHubError: a request failed for a moment.
    """
    declared = {entry.kind: entry for entry in assignment.grant.actions}
    if not declared:
        return ()
    try:
        choices = await _read_choices(context, assignment, declared)
    except GitHubError as error:
        if error.is_transient:
            raise
        log.warning("the values for actions were not read: %s", error)
        return ()
    listed = {source: [clean_line(line, limit=_LINE_CHARS) for line in lines] for source, lines in choices.items()}
    return tuple(Quote(source=source, text="\n".join(lines)) for source, lines in listed.items() if lines)


async def _read_choices(
    context: JobContext, assignment: Assignment, declared: Mapping[str, Declaration]
) -> dict[str, Sequence[str]]:
    actions, repo, choices = context.github.actions, assignment.snapshot.repo.full_name, dict[str, Sequence[str]]()
    patterns = {
        kind: [value for values in entry.allowed.values() for value in values if "*" in value]
        for kind, entry in declared.items()
    }
    if label_patterns := [*patterns.get("add-labels", ()), *patterns.get("remove-labels", ())]:
        config = assignment.settings.config
        reserved = config.labels.level_labels | config.start_labels(context.services.bounds.start_label)
        choices["labels of this repository"] = [
            f"{label.name}: {label.description}".removesuffix(": ")
            for label in await actions.list_labels(repo)
            if label.name.casefold() not in reserved
            and any(matches(label.name, pattern, "labels") for pattern in label_patterns)
        ]
    field_names = declared["set-fields"].allowed["fields"] if "set-fields" in declared else ()
    lists: list[StateList] = ["fields"] if field_names else []
    lists += ["types"] if patterns.get("set-type") else []
    lists += ["milestones"] if patterns.get("set-milestone") else []
    if lists:
        state = await actions.read_state(repo, lists=lists)
        fields_read = (entry for entry in state.fields if entry.name in field_names)
        choices["issue types"], choices["open milestones"] = state.types, state.milestones
        choices["fields of issues"] = [f"{entry.name}: {', '.join(entry.options)}" for entry in fields_read]
    if "close" in declared and "duplicate" in declared["close"].allowed["reasons"]:
        own, issues = context.job.thread.number, await actions.list_open_issues(repo)
        choices["titles of open issues"] = [f"#{issue.number} {issue.title}" for issue in issues if issue.number != own]
    return choices
