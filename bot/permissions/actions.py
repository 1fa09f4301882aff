"""Declarations of the actions that an agent may propose, and the judgement of its proposals. Pure.

Start with `ActionsKeys`, whose docstrings are the reference for users, and `judge`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from bot.domain.access import Level
from bot.domain.actions import (
    MAX_PROPOSALS,
    Action,
    ActionTarget,
    AddSubIssue,
    Close,
    CloseReason,
    CommentDiscussion,
    CreateDiscussion,
    CreateIssue,
    Declaration,
    Proposal,
    RemoveLabels,
    Reopen,
    RequestReviewers,
    SetDraft,
    SetFields,
    SetType,
    StartWorkflow,
    UpdateBody,
    count_created,
    suggest,
    targets_of,
)
from bot.domain.commands import is_safe_branch

_MAX_LISTED, _MAX_VALUES, _MAX_PREFIX = 100, 50, 60


def _pattern(text: str) -> str:
    if not text.isprintable() or "`" in text or text != text.strip():
        raise ValueError("must be one line without backticks and surrounding spaces; `*` stands for any characters")
    if text.count("*") > 3:  # noqa: PLR2004 - keeps matching fast
        raise ValueError("must have at most three `*`")
    return text


def _exact(text: str) -> str:
    if "*" in text:
        raise ValueError("must be a name, without `*`")
    return _pattern(text)


def _workflow(text: str) -> str:
    if "/" in text or not text.endswith((".yml", ".yaml")):
        raise ValueError("must be the name of a file in `.github/workflows`, e.g. `nightly.yml`")
    return _exact(text)


def _ref(text: str) -> str:
    if not is_safe_branch(text):
        raise ValueError("must be a branch name, e.g. `develop`")
    return _exact(text)


def _prefix(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line")
    return text


_Text = Annotated[str, StringConstraints(min_length=1, max_length=100)]
_Listed = Field(min_length=1, max_length=_MAX_LISTED, strict=False)
_Patterns = Annotated[tuple[Annotated[_Text, AfterValidator(_pattern)], ...], _Listed]
_Names = Annotated[tuple[Annotated[_Text, AfterValidator(_exact)], ...], _Listed]
_Max = Annotated[int, Field(ge=1, le=_MAX_VALUES)]


class _Keys(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
        serialize_by_alias=True,
    )


class BoundsKeys(_Keys):
    max: _Max = 1
    """How often it may be proposed in a run."""


class OriginKeys(BoundsKeys):
    from_: Literal["writers", "anyone"] = "writers"
    """`writers`: not for events of strangers; `anyone`: for all events, and without approval."""


class TargetKeys(OriginKeys):
    target: ActionTarget = "thread"
    """The thread of the run; it and issues `created` in the run; or any thread of the `repository`."""


class LabelsKeys(TargetKeys):
    labels: _Patterns
    """Names of labels; `*` stands for any characters. Permission labels are neither set nor removed,
    labels that start a run are not set."""
    max: _Max = 3
    """The number of labels in a run."""


class TypeKeys(TargetKeys):
    types: _Patterns
    """Names of issue types; `*` stands for any characters."""


class AssigneesKeys(TargetKeys):
    assignees: _Names
    """Logins."""
    max: _Max = 1
    """The number of assignees in a run."""


class MilestoneKeys(TargetKeys):
    milestones: _Patterns
    """Titles of open milestones; `*` stands for any characters."""


class FieldsKeys(TargetKeys):
    fields: _Names
    """Names of issue fields."""
    max: _Max = 3
    """The number of fields in a run."""


class CloseKeys(TargetKeys):
    reasons: Annotated[tuple[CloseReason, ...], _Listed]
    """`completed`, `not-planned`, `duplicate`."""


class CreateIssueKeys(OriginKeys):
    title_prefix: Annotated[str, StringConstraints(max_length=_MAX_PREFIX), AfterValidator(_prefix)] = ""
    """The beginning of each title."""
    labels: Annotated[tuple[Annotated[_Text, AfterValidator(_exact)], ...], Field(max_length=20, strict=False)] = ()
    """The labels that each issue gets."""


class SubIssueKeys(OriginKeys):
    target: ActionTarget = "created"
    """Both issues: the thread of the run and issues `created` in it, or any of the `repository`."""


class ReviewersKeys(TargetKeys):
    reviewers: _Names
    """Logins."""
    max: _Max = 1
    """The number of reviewers in a run."""


class WorkflowKeys(BoundsKeys):
    workflows: Annotated[tuple[Annotated[_Text, AfterValidator(_workflow)], ...], _Listed]
    """Names of files in `.github/workflows`."""
    refs: Annotated[tuple[Annotated[_Text, AfterValidator(_ref)], ...], _Listed]
    """Branches; protected ones are refused."""
    inputs: Annotated[tuple[Annotated[_Text, AfterValidator(_exact)], ...], Field(max_length=20, strict=False)] = ()
    """Names of inputs that may be set, each to one word without characters that a shell obeys."""


class DiscussionKeys(OriginKeys):
    categories: _Names
    """Names of categories."""
    title_prefix: Annotated[str, StringConstraints(max_length=_MAX_PREFIX), AfterValidator(_prefix)] = ""
    """The beginning of each title."""


class ActionsKeys(_Keys):
    """The actions on GitHub that the agent may propose; an action that is not declared does not exist for it."""

    approval: Literal["level", "always"] = "level"
    """`level`: a person approves the actions of a run at the level `ask`; `always`: at the level `auto`, too."""
    add_labels: LabelsKeys | None = None
    """Add labels."""
    remove_labels: LabelsKeys | None = None
    """Remove labels."""
    set_type: TypeKeys | None = None
    """Set the type of an issue."""
    set_assignees: AssigneesKeys | None = None
    """Assign people."""
    set_milestone: MilestoneKeys | None = None
    """Set the milestone."""
    set_fields: FieldsKeys | None = None
    """Set fields of an issue."""
    close: CloseKeys | None = None
    """Close an issue or a pull request, with a reason."""
    reopen: TargetKeys | None = None
    """Reopen an issue or a pull request."""
    create_issue: CreateIssueKeys | None = None
    """Create an issue."""
    add_sub_issue: SubIssueKeys | None = None
    """Make an issue the sub-issue of another."""
    comment: TargetKeys | None = None
    """Write a comment besides the answer."""
    request_reviewers: ReviewersKeys | None = None
    """Request reviews of a pull request."""
    update_body: TargetKeys | None = None
    """Replace the text of an issue or a pull request that the bot itself opened."""
    set_draft: TargetKeys | None = None
    """Convert a pull request to a draft, or mark it as ready for review."""
    start_workflow: WorkflowKeys | None = None
    """Start a workflow that has the event `workflow_dispatch`."""
    create_discussion: DiscussionKeys | None = None
    """Create a discussion."""
    comment_discussion: OriginKeys | None = None
    """Comment on a discussion."""
    notice: BoundsKeys | None = None
    """State a result, such as that there is nothing to do, in the bot's comment."""
    missing_information: BoundsKeys | None = None
    """State which information is missing, in the bot's comment."""

    @model_validator(mode="before")
    @classmethod
    def _accept_names_alone(cls, data: Any) -> Any:  # noqa: ANN401 - as written
        """Accept `reopen:` for `reopen: {}`."""
        return {key: {} if value is None else value for key, value in data.items()} if isinstance(data, dict) else data

    @model_serializer(mode="wrap")
    def _omit_undeclared(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in serialize(self).items() if value is not None}

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The declared kinds, in the order of the documents."""
        declared = {name: bounds for name, bounds in self if isinstance(bounds, BoundsKeys)}
        return tuple(
            Declaration(
                kind=name.replace("_", "-"),
                max=bounds.max,
                target=getattr(bounds, "target", "repository"),
                is_for_anyone=getattr(bounds, "from_", "anyone") == "anyone" and name != "start_workflow",
                always_asks=self.approval == "always",
                allowed={key: value for key, value in bounds if isinstance(value, tuple)},
                title_prefix=getattr(bounds, "title_prefix", ""),
            )
            for name, bounds in declared.items()
        )


def grant_actions(
    declared: Sequence[Declaration], level: Level, kinds: frozenset[str] | None
) -> tuple[Declaration, ...]:
    """Return the declarations that apply at a level, out of the kinds that the operator allows; None allows all."""
    return tuple(
        declaration
        for declaration in declared
        if (kinds is None or declaration.kind in kinds) and (level != "read-only" or declaration.is_for_anyone)
    )


def complete(action: Action, declaration: Declaration) -> Action:
    """Return the action with the declared prefix of its title."""
    prefix = declaration.title_prefix
    if not isinstance(action, CreateIssue | CreateDiscussion) or action.title.startswith(prefix):
        return action
    return replace(action, title=f"{prefix}{action.title}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The present state of an issue or pull request.

    Attributes:
        is_own: whether the bot opened it.
        author: login.
    """

    is_pull: bool
    is_open: bool
    is_locked: bool
    is_own: bool = False
    is_draft: bool = False
    is_merged: bool = False
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts:
    """The present state of the repository, as far as the proposals of a run concern it. Missing means non-existent.

    Attributes:
        thread: number of the job's thread; 0 for a branch.
        subjects: issues and pull requests by number.
        labels: all labels.
        level_labels, start_labels: labels that set a level, and that start a run; in lower case.
        milestones: titles of the open ones.
        people: logins that can be assigned, and be asked for reviews.
        fields: options by the name of the field; empty if it takes any value.
        workflows: inputs by file, of those with `workflow_dispatch`.
        branches: whether they are protected, by name.
        discussions: whether they are locked, by number.
    """

    thread: int
    subjects: Mapping[int, Subject] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    level_labels: frozenset[str] = frozenset()
    start_labels: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    milestones: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workflows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    branches: Mapping[str, bool] = field(default_factory=dict)
    categories: frozenset[str] = frozenset()
    discussions: Mapping[int, bool] = field(default_factory=dict)


def check_declared(action: Action, declaration: Declaration, earlier: Sequence[Proposal], thread: int) -> str:
    """Return the objection of the declaration to an action, or an empty text.

    Args:
        earlier: the proposals before it.
        thread: number of the job's thread; 0 for a branch.
    """
    if len(earlier) >= MAX_PROPOSALS:
        return f"a run has at most {MAX_PROPOSALS} proposals"
    count = sum(map(_count_changes, (proposal.action for proposal in earlier if proposal.action.kind == action.kind)))
    if count + _count_changes(action) > declaration.max:
        return f"`max` allows {declaration.max} in a run, and {count} {'is' if count == 1 else 'are'} proposed already"
    if any(proposal.action == action for proposal in earlier):
        return "the same is proposed already"
    for key, values in _values_of(action).items():
        allowed = declaration.allowed.get(key, ())
        for value in values:
            if not any(matches(value, pattern, key) for pattern in allowed):
                return f"`{value}` is not among the declared {key}. {suggest(value, allowed)}"
    return _check_targets(action, declaration, earlier, thread)


def _check_targets(action: Action, declaration: Declaration, earlier: Sequence[Proposal], thread: int) -> str:
    created, targets = count_created(earlier), targets_of(action)
    if isinstance(action, Close):  # its original is only linked
        targets = targets[:1]
    for target in targets:
        if isinstance(target, str):
            if int(target.removeprefix("new-")) > created:
                return f"there is no {target}: propose `create-issue` first, the first of which is new-1"
            if declaration.target == "thread":
                return f"`target: thread` allows only this thread, not {target}"
        elif target in {0, thread}:
            if not thread:
                return "this run has no thread; name the issue or pull request in `issue`"
        elif declaration.target != "repository":
            created_too = "" if declaration.target == "thread" else " and the issues created in this run"
            return f"`target: {declaration.target}` allows only this thread{created_too}, not #{target}"
    return ""


def judge(action: Action, declaration: Declaration, facts: ActionFacts, earlier: Sequence[Proposal] = ()) -> str:
    """Return the objection to an action, with the remedy, or an empty text if it may be applied.

    Args:
        earlier: the proposals before it, also refused ones.
    """
    return (
        check_declared(action, declaration, earlier, facts.thread)
        or _judge_threads(action, facts)
        or _judge_values(action, declaration, facts)
    )


def _judge_threads(action: Action, facts: ActionFacts) -> str:
    subjects: list[Subject] = []
    numbers = [target or facts.thread for target in targets_of(action)]
    if len(numbers) > len(set(numbers)):
        return "it is the same issue"
    for number in numbers:
        created = Subject(is_pull=False, is_open=True, is_locked=False, is_own=True)
        subject = created if isinstance(number, str) else facts.subjects.get(number)
        if subject is None:
            return f"#{number} does not exist in this repository"
        if subject.is_locked:
            return f"#{number} is locked; unlock the conversation first"
        subjects.append(subject)
    if not subjects:
        return ""
    subject, has_pull = subjects[0], any(entry.is_pull for entry in subjects)
    reviewers = action.reviewers if isinstance(action, RequestReviewers) else ()
    is_duplicate = isinstance(action, Close) and action.reason == "duplicate"
    is_open_pull, draft = subject.is_pull and subject.is_open, getattr(action, "draft", None)
    objections = (
        (isinstance(action, Close) and not subject.is_open, "it is closed already"),
        (is_duplicate and has_pull, "only an issue can be the duplicate of an issue"),
        (isinstance(action, Reopen) and subject.is_open, "it is open already"),
        (isinstance(action, Reopen) and subject.is_merged, "it is merged"),
        (isinstance(action, SetType | SetFields) and has_pull, "a pull request has no type and no fields"),
        (isinstance(action, AddSubIssue) and has_pull, "a pull request can neither have nor be a sub-issue"),
        (isinstance(action, RequestReviewers | SetDraft) and not is_open_pull, "it is not an open pull request"),
        (subject.author.casefold() in map(str.casefold, reviewers), f"`{subject.author}` is its author"),
        (draft is True and subject.is_draft, "it is a draft already"),
        (draft is False and not subject.is_draft, "it is ready for review already"),
        (isinstance(action, UpdateBody) and not subject.is_own, "somebody else wrote it, and I replace only my texts"),
    )
    return next((objection for applies, objection in objections if applies), "")


def _judge_values(action: Action, declaration: Declaration, facts: ActionFacts) -> str:
    values = _values_of(action)
    labels = declaration.allowed.get("labels", ()) if isinstance(action, CreateIssue) else values.get("labels", ())
    existing: dict[str, tuple[str, Collection[str]]] = {
        "types": ("issue type", facts.types),
        "assignees": ("person with access to this repository", facts.people),
        "reviewers": ("person with access to this repository", facts.people),
        "milestones": ("open milestone", facts.milestones),
        "fields": ("issue field", facts.fields),
        "refs": ("branch", facts.branches),
        "categories": ("category of discussions", facts.categories),
    }
    if isinstance(action, StartWorkflow):
        inputs = facts.workflows.get(action.workflow, ())
        existing |= {"workflows": ("workflow with the event `workflow_dispatch`", facts.workflows)}
        existing |= {"inputs": ("input", inputs)}
    for key, (noun, names) in existing.items():
        folded = {_fold(name, key) for name in names}
        absent = next((value for value in values.get(key, ()) if _fold(value, key) not in folded), None)
        if absent is not None:
            return f"there is no {noun} named `{absent}`"
    for name, value in action.fields.items() if isinstance(action, SetFields) else ():
        if facts.fields[name] and value not in facts.fields[name]:
            return f"`{value}` is no option of the field `{name}`. {suggest(value, facts.fields[name])}"
    if isinstance(action, StartWorkflow) and facts.branches[action.ref]:
        return f"the branch `{action.ref}` is protected; start the workflow yourself"
    if isinstance(action, CommentDiscussion) and facts.discussions.get(action.discussion, True):
        return f"the discussion #{action.discussion} is locked, or does not exist in this repository"
    return _judge_labels(labels, facts, adds=not isinstance(action, RemoveLabels))


def _judge_labels(labels: Sequence[str], facts: ActionFacts, *, adds: bool) -> str:
    existing = frozenset(map(str.casefold, facts.labels))
    for label in labels:
        name = label.casefold()
        if name in facts.level_labels:
            return f"the label `{label}` sets a permission level, which only people do"
        if adds and name in facts.start_labels:
            return f"the label `{label}` starts a run, which only people do"
        if name not in existing:
            return f"the label `{label}` does not exist; create it in the repository first"
    return ""


_COUNTED = frozenset({"labels", "assignees", "reviewers", "fields"})
"""Values of which each counts for `max`."""


def _count_changes(action: Action) -> int:
    return sum(len(values) for key, values in _values_of(action).items() if key in _COUNTED) or 1


DECLARED_AS: Mapping[str, str] = {
    "labels": "labels",
    "type": "types",
    "assignees": "assignees",
    "milestone": "milestones",
    "fields": "fields",
    "reason": "reasons",
    "reviewers": "reviewers",
    "workflow": "workflows",
    "ref": "refs",
    "inputs": "inputs",
    "category": "categories",
}
"""Keys of declarations by the field of the actions whose values they bound."""


def _values_of(action: Action) -> Mapping[str, tuple[str, ...]]:
    """Return the values that the declaration must allow, by its keys."""
    values = {key: getattr(action, name) for name, key in DECLARED_AS.items() if hasattr(action, name)}
    return {key: (value,) if isinstance(value, str) else tuple(value) for key, value in values.items()}


_IGNORES_CASE = frozenset({"labels", "assignees", "reviewers"})
"""Names whose case GitHub ignores."""


def _fold(name: str, key: str) -> str:
    return name.casefold() if key in _IGNORES_CASE else name


def matches(value: str, pattern: str, key: str) -> bool:
    """Whether a value fits a pattern, in which `*` stands for any characters. Takes linear time."""
    text, (first, *rest) = _fold(value, key), _fold(pattern, key).split("*")
    if not rest:
        return text == first
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    for part in middle:
        start = text.find(part, at, end)
        if start < 0:
            return False
        at = start + len(part)
    return at <= end and text.startswith(first) and text.endswith(last)
