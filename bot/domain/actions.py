"""Actions on GitHub that an agent proposes in a run. Pure values: nothing is applied here.

A proposal is parsed from plain values (`parse_action`). `bot/permissions/actions.py` has the declarations of a
repository, and judges proposals by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from bot.domain.errors import BotError

MAX_PROPOSALS = 20
"""Proposals of one run."""
MAX_BODY, MAX_TITLE, MAX_NAME, MAX_NAMES = 30_000, 180, 100, 20
_MAX_PROBLEMS = 3
MAX_NUMBER = 2**31 - 1
"""GitHub refuses to read a larger number, and with it the others of the request."""

_NUMBER = re.compile(r"#?([1-9][0-9]{0,9})")
_CREATED = re.compile(r"new-[1-9][0-9]?")
_HANDLE = re.compile(r"(?<![\w-])new-[1-9][0-9]?(?![\w-])")
# Of a workflow's input: workflows paste it into commands, so it is one word without a character that a shell obeys.
_INPUT = re.compile(r"[A-Za-z0-9][\w.,:/@+-]{0,99}", re.ASCII)


class ActionError(BotError):
    """A proposal has a wrong form or is not declared; the text is for the agent."""


def _parse_issue(value: object) -> int | str:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if value is None or text == "0":
        return 0
    if _CREATED.fullmatch(text):
        return text
    if (number := _NUMBER.fullmatch(text)) is None or int(number[1]) > MAX_NUMBER:
        raise ValueError("must be the number of an issue or pull request of this repository, or `new-1`")
    return int(number[1])


def _check_name(text: str) -> str:
    if "`" in text:
        raise ValueError("must have no backticks")
    return _check_line(text)


def _check_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


def _check_input(text: str) -> str:
    if not _INPUT.fullmatch(text):
        raise ValueError("must be one word of at most 100 letters, digits and _.,:/@+-, as commands may contain it")
    return text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Issue = Annotated[int | str, PlainValidator(_parse_issue, json_schema_input_type=int | str)]
"""The number of an issue or pull request; 0 for the job's thread, `new-1` for the first issue that the run creates."""
_Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME, strip_whitespace=True), AfterValidator(_check_name)
]
Names = Annotated[tuple[_Name, ...], Field(min_length=1, max_length=MAX_NAMES), BeforeValidator(_as_list)]
_Title = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TITLE, strip_whitespace=True), AfterValidator(_check_line)
]
_Body = Annotated[str, StringConstraints(min_length=1, max_length=MAX_BODY, strip_whitespace=True)]
_Line = Annotated[
    str, StringConstraints(min_length=1, max_length=1_000, strip_whitespace=True), AfterValidator(_check_line)
]
_Values = Annotated[dict[_Name, Annotated[_Name, BeforeValidator(_as_text)]], Field(min_length=1, max_length=MAX_NAMES)]
_Inputs = Annotated[
    dict[_Name, Annotated[str, AfterValidator(_check_input), BeforeValidator(_as_text)]], Field(max_length=MAX_NAMES)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLabels:
    labels: Names
    issue: Issue = 0
    kind: Literal["add-labels"] = "add-labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLabels:
    labels: Names
    issue: Issue = 0
    kind: Literal["remove-labels"] = "remove-labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetType:
    """Set the issue type, which an organisation defines."""

    type: _Name
    issue: Issue = 0
    kind: Literal["set-type"] = "set-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAssignees:
    """Add assignees."""

    assignees: Names
    issue: Issue = 0
    kind: Literal["set-assignees"] = "set-assignees"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMilestone:
    """Set the milestone, by its title."""

    milestone: _Name
    issue: Issue = 0
    kind: Literal["set-milestone"] = "set-milestone"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFields:
    """Set issue fields, which an organisation defines."""

    fields: _Values
    issue: Issue = 0
    kind: Literal["set-fields"] = "set-fields"


CloseReason = Literal["completed", "not-planned", "duplicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close an issue or pull request; `duplicate_of` is 0 for other reasons."""

    reason: CloseReason
    duplicate_of: Issue = 0
    issue: Issue = 0
    kind: Literal["close"] = "close"

    def __post_init__(self) -> None:
        if (self.reason == "duplicate") != bool(self.duplicate_of):
            raise ValueError("`reason` must be `duplicate` if there is `duplicate_of`, and only then")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    issue: Issue = 0
    kind: Literal["reopen"] = "reopen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIssue:
    title: _Title
    body: _Body
    kind: Literal["create-issue"] = "create-issue"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSubIssue:
    """Make `sub_issue` a sub-issue of `issue`."""

    sub_issue: Issue
    issue: Issue = 0
    kind: Literal["add-sub-issue"] = "add-sub-issue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    body: _Body
    issue: Issue = 0
    kind: Literal["comment"] = "comment"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReviewers:
    reviewers: Names
    issue: Issue = 0
    kind: Literal["request-reviewers"] = "request-reviewers"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBody:
    body: _Body
    issue: Issue = 0
    kind: Literal["update-body"] = "update-body"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDraft:
    draft: bool
    issue: Issue = 0
    kind: Literal["set-draft"] = "set-draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkflow:
    """Start a workflow by its file name in `.github/workflows`."""

    workflow: _Name
    ref: _Name
    inputs: _Inputs = field(default_factory=dict)
    kind: Literal["start-workflow"] = "start-workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDiscussion:
    category: _Name
    title: _Title
    body: _Body
    kind: Literal["create-discussion"] = "create-discussion"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentDiscussion:
    discussion: Annotated[int, Field(gt=0, le=MAX_NUMBER)]
    body: _Body
    kind: Literal["comment-discussion"] = "comment-discussion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """State in the status comment that there is nothing to do, or another result."""

    text: _Line
    kind: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingInformation:
    """State in the status comment which information the author must add."""

    text: _Line
    kind: Literal["missing-information"] = "missing-information"


Action = (
    AddLabels
    | RemoveLabels
    | SetType
    | SetAssignees
    | SetMilestone
    | SetFields
    | Close
    | Reopen
    | CreateIssue
    | AddSubIssue
    | Comment
    | RequestReviewers
    | UpdateBody
    | SetDraft
    | StartWorkflow
    | CreateDiscussion
    | CommentDiscussion
    | Notice
    | MissingInformation
)

KINDS: Mapping[str, type[Action]] = {kind.__dataclass_fields__["kind"].default: kind for kind in get_args(Action)}
"""Classes of actions by kind, in the order of the documents."""


ActionTarget = Literal["thread", "created", "repository"]
"""The job's thread; it and the issues created in the run; any thread of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A kind of actions that a repository's owner allows, with its bounds.

    Attributes:
        max: labels, people and fields count, otherwise actions of the kind, in one run.
        is_for_anyone: whether it is applied without approval, and for events of strangers.
        always_asks: whether a person approves it at each level that can ask.
        allowed: allowed values by their key, e.g. `labels`; for `create-issue` the labels of each issue.
    """

    kind: str
    max: int = 1
    target: ActionTarget = "thread"
    is_for_anyone: bool = False
    always_asks: bool = False
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    title_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An action that the agent proposes.

    Attributes:
        number: from 1, in the run.
        handle: `new-1` for the first issue to create; else empty.
    """

    number: int
    action: Action
    handle: str = ""

    def sentence(self, thread: int) -> str:
        """Return the action for people; `thread` is the number of the job's thread, 0 for a branch."""
        return f"{describe(self.action, thread)}{f' ({self.handle})' if self.handle else ''}"


def append_proposal(proposals: tuple[Proposal, ...], action: Action) -> tuple[Proposal, ...]:
    """Return the proposals with another one, which gets its number and handle."""
    handle = f"new-{count_created(proposals) + 1}" if isinstance(action, CreateIssue) else ""
    return (*proposals, Proposal(number=len(proposals) + 1, action=action, handle=handle))


def count_created(proposals: Collection[Proposal]) -> int:
    return sum(isinstance(proposal.action, CreateIssue) for proposal in proposals)


def parse_action(kind: str, values: Mapping[str, object], kinds: Collection[str] = KINDS) -> Action:
    """Parse an action of one of `kinds`.

    Raises:
        ActionError: it has another kind, or wrong fields.
    """
    if kind not in kinds:
        raise ActionError(f"There is no action {_code(str(kind)[:MAX_NAME])}. {suggest(str(kind), kinds)}")
    names = [name for name in _field_names(KINDS[kind]) if name != "kind"]
    for name in values:
        if name not in names:
            raise ActionError(f"{kind}: there is no field {_code(str(name)[:MAX_NAME])}. {suggest(str(name), names)}")
    try:
        action: Action = TypeAdapter(KINDS[kind]).validate_python(dict(values))
    except ValidationError as error:
        problems = map(_describe_problem, error.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS])
        raise ActionError(f"{kind}: {'; '.join(problems)}.") from None
    return action


def suggest(word: str, choices: Collection[str]) -> str:
    """Return a hint for an unknown word: the nearest of the choices, then all."""
    nearest = get_close_matches(word[:MAX_NAME], choices, n=1, cutoff=0.5)
    hint = f"Did you mean {_code(nearest[0])}? " if nearest else ""
    if not choices:
        return "There are none."
    return f"{hint}There {'is' if len(choices) == 1 else 'are'} {', '.join(map(_code, choices))}."


def _field_names(kind: type[Action]) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def _describe_problem(problem: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    path = ".".join(map(str, problem["loc"]))[:MAX_NAME]
    match problem["type"]:
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"the field `{path}` is missing"
        case "value_error":
            text = str(problem["ctx"]["error"])
        case "too_short" | "string_too_short":
            text = "must not be empty"
        case "too_long" | "string_too_long" as kind:
            unit = "characters" if kind.startswith("string") else "entries"
            text = f"must have at most {problem['ctx']['max_length']:,} {unit}"
        case _:
            text = str(problem["msg"])
    return f"`{path}` {text}" if path else text


_TEXTS, _MAPPINGS = ("title", "body", "text"), ("inputs", "fields")
_REFERENCES = frozenset({"issue", "sub_issue", "duplicate_of", "discussion"})


def with_texts(action: Action, clean: Callable[[str], str]) -> Action:
    """Return the action with each text of the agent replaced: title, body, text, and values of inputs and fields."""
    names = _field_names(type(action))
    changes: dict[str, Any] = {name: clean(getattr(action, name)) for name in _TEXTS if name in names}
    for name in set(_MAPPINGS).intersection(names):
        changes[name] = {key: clean(value) for key, value in getattr(action, name).items()}
    return replace(action, **changes)


def name_created(text: str, created: Callable[[str], int]) -> str:
    """Return a text with the numbers of created issues for their handles; `created` returns 0 for others."""
    return _HANDLE.sub(lambda match: f"#{number}" if (number := created(match[0])) else match[0], text)


def targets_of(action: Action) -> tuple[int | str, ...]:
    """Return the issues and pull requests that the action changes or links; 0 for the job's thread."""
    names = _field_names(type(action))
    linked: list[int | str] = [getattr(action, name) for name in ("sub_issue", "duplicate_of") if name in names]
    own = (getattr(action, "issue", 0),) if "issue" in names else ()
    return (*own, *filter(None, linked))


def replace_targets(action: Action, resolve: Callable[[str], int | str]) -> Action:
    """Return the action with the handles of created issues replaced, such as `new-1`."""
    names = set(_field_names(type(action))).intersection(("issue", "sub_issue", "duplicate_of"))
    handles = {name: value for name in names if isinstance(value := getattr(action, name), str)}
    changes: dict[str, Any] = {name: resolve(handle) for name, handle in handles.items()}
    return replace(action, **changes)


_SENTENCES: Mapping[str, str] = {
    "add-labels": "Label {issue} with {labels}",
    "remove-labels": "Remove {labels} from the labels of {issue}",
    "set-type": "Set the type of {issue} to {type}",
    "set-assignees": "Assign {assignees} to {issue}",
    "set-milestone": "Set the milestone of {issue} to {milestone}",
    "set-fields": "Set {fields} in {issue}",
    "reopen": "Reopen {issue}",
    "create-issue": "Create the issue {title}",
    "add-sub-issue": "Make {sub_issue} a sub-issue of {issue}",
    "comment": "Comment on {issue}",
    "request-reviewers": "Request reviews of {issue} from {reviewers}",
    "update-body": "Replace the text of {issue}",
    "create-discussion": "Create the discussion {title} in {category}",
    "comment-discussion": "Comment on the discussion {discussion}",
}


def describe(action: Action, thread: int) -> str:
    """Return the action as a sentence for people, without the bodies that it writes."""
    issue = _reference(getattr(action, "issue", 0), thread)
    match action:
        case Notice(text=text):
            return f"Notice: {text}"
        case MissingInformation(text=text):
            return f"Missing information: {text}"
        case Close(reason=reason, duplicate_of=original):
            how = f"a duplicate of {_reference(original, thread)}" if original else reason.replace("-", " ")
            return f"Close {issue} as {how}"
        case SetDraft(draft=draft):
            return f"Convert {issue} to a draft" if draft else f"Mark {issue} as ready for review"
        case StartWorkflow(workflow=name, ref=ref, inputs=inputs):
            values = f" with {_show(inputs)}" if inputs else ""
            return f"Start the workflow {_show(name)} on {_show(ref)}{values}"
        case _:
            pass
    shown = {name: _show(getattr(action, name)) for name in _field_names(type(action))}
    shown |= {name: _reference(getattr(action, name), thread) for name in _REFERENCES.intersection(shown)}
    return _SENTENCES[action.kind].format_map(shown)


def _reference(issue: int | str, thread: int) -> str:
    number = issue or thread
    return str(number) if isinstance(number, str) else f"#{number}" if number else "this branch"


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_code(name)} to {_code(text)}" for name, text in value.items())
    return ", ".join(map(_code, value)) if isinstance(value, tuple) else _code(str(value))


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"
