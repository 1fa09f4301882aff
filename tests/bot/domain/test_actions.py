"""Actions: parsing from plain values, sentences, and the texts that are cleaned."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from bot.domain.actions import (
    KINDS,
    MAX_BODY,
    Action,
    ActionError,
    AddLabels,
    CreateIssue,
    Proposal,
    append_proposal,
    describe,
    name_created,
    parse_action,
    targets_of,
    with_texts,
)

_EXAMPLES: list[tuple[str, dict[str, Any], str]] = [
    ("add-labels", {"labels": ["bug", "area/api"], "issue": 12}, "Label #12 with `bug`, `area/api`"),
    ("add-labels", {"labels": "bug", "issue": "#12"}, "Label #12 with `bug`"),
    ("remove-labels", {"labels": ["bug"]}, "Remove `bug` from the labels of #7"),
    ("set-type", {"type": "Bug", "issue": "new-2"}, "Set the type of new-2 to `Bug`"),
    ("set-assignees", {"assignees": ["mona"]}, "Assign `mona` to #7"),
    ("set-milestone", {"milestone": "v2"}, "Set the milestone of #7 to `v2`"),
    ("set-fields", {"fields": {"Effort": 3}}, "Set `Effort` to `3` in #7"),
    ("close", {"reason": "not-planned"}, "Close #7 as not planned"),
    ("close", {"reason": "duplicate", "duplicate_of": 3}, "Close #7 as a duplicate of #3"),
    ("reopen", {"issue": "9"}, "Reopen #9"),
    ("create-issue", {"title": "Drop `x`", "body": "Why."}, "Create the issue `Drop 'x'`"),
    ("add-sub-issue", {"sub_issue": "new-1"}, "Make new-1 a sub-issue of #7"),
    ("comment", {"body": "Hello.", "issue": 8}, "Comment on #8"),
    ("request-reviewers", {"reviewers": ["mona", "hubot"]}, "Request reviews of #7 from `mona`, `hubot`"),
    ("update-body", {"body": "New."}, "Replace the text of #7"),
    ("set-draft", {"draft": True}, "Convert #7 to a draft"),
    ("set-draft", {"draft": False}, "Mark #7 as ready for review"),
    ("start-workflow", {"workflow": "a.yml", "ref": "develop"}, "Start the workflow `a.yml` on `develop`"),
    (
        "start-workflow",
        {"workflow": "a.yml", "ref": "develop", "inputs": {"suite": "unit"}},
        "Start the workflow `a.yml` on `develop` with `suite` to `unit`",
    ),
    ("create-discussion", {"category": "Ideas", "title": "T", "body": "B"}, "Create the discussion `T` in `Ideas`"),
    ("comment-discussion", {"discussion": 4, "body": "B"}, "Comment on the discussion #4"),
    ("notice", {"text": "Nothing to do."}, "Notice: Nothing to do."),
    ("missing-information", {"text": "The version."}, "Missing information: The version."),
]


@pytest.mark.parametrize(("kind", "values", "sentence"), _EXAMPLES)
def test_an_action_is_parsed_described_and_stored(kind: str, values: dict[str, Any], sentence: str) -> None:
    action = parse_action(kind, values)
    assert (action.kind, describe(action, 7)) == (kind, sentence)
    stored = TypeAdapter(Proposal).dump_json(Proposal(number=1, action=action))
    assert TypeAdapter(Proposal).validate_json(stored).action == action


def test_each_kind_has_an_example() -> None:
    assert {kind for kind, _, _ in _EXAMPLES} == set(KINDS)
    assert len(KINDS) == len(get_args(Action))


def test_an_action_without_a_thread_is_about_the_branch() -> None:
    assert describe(parse_action("reopen", {}), 0) == "Reopen this branch"


@pytest.mark.parametrize(
    ("kind", "values", "objection"),
    [
        (
            "add-label",
            {},
            "There is no action `add-label`. Did you mean `add-labels`? There are `add-labels`, `close`.",
        ),
        ("reopen", {}, "There is no action `reopen`. There are `add-labels`, `close`."),
        ("add-labels", {"lables": ["x"]}, "there is no field `lables`. Did you mean `labels`?"),
        ("add-labels", {"labels": ["x"], "kind": "close"}, "there is no field `kind`"),
        ("add-labels", {}, "the field `labels` is missing"),
        ("add-labels", {"labels": []}, "`labels` must not be empty"),
        ("add-labels", {"labels": ["x"] * 21}, "`labels` must have at most 20 entries"),
        ("add-labels", {"labels": ["a`b"]}, "`labels.0` must have no backticks"),
        ("add-labels", {"labels": ["a\nb"]}, "`labels.0` must be one line of printable characters"),
        ("add-labels", {"labels": ["x" * 101]}, "`labels.0` must have at most 100 characters"),
        ("add-labels", {"labels": "x", "issue": True}, "`issue` must be the number of an issue or pull request"),
        ("add-labels", {"labels": "x", "issue": "octo/other#7"}, "`issue` must be the number of an issue"),
        ("add-labels", {"labels": "x", "issue": "new-0"}, "`issue` must be the number of an issue"),
        ("close", {"reason": "duplicate", "duplicate_of": 2**31}, "`duplicate_of` must be the number of an issue"),
        ("close", {"reason": "done"}, "'completed', 'not-planned' or 'duplicate'"),
        ("close", {"reason": "duplicate"}, "`reason` must be `duplicate` if there is `duplicate_of`, and only then"),
        ("close", {"reason": "completed", "duplicate_of": 3}, "and only then"),
    ],
)
def test_an_error_names_the_nearest_kind_or_the_field(kind: str, values: dict[str, Any], objection: str) -> None:
    with pytest.raises(ActionError) as error:
        parse_action(kind, values, ("add-labels", "close"))
    assert objection in str(error.value)


@pytest.mark.parametrize("text", ["$(id)", "a;b", "a b", "-x", "", "`id`", "a\nb", "x" * 101, "${{ x }}", "ä"])
def test_an_input_of_a_workflow_is_one_word_that_a_shell_takes_as_it_is(text: str) -> None:
    with pytest.raises(ActionError, match="one word"):
        parse_action("start-workflow", {"workflow": "a.yml", "ref": "develop", "inputs": {"suite": text}})


@pytest.mark.parametrize("field", ["title", "body"])
def test_texts_are_bounded(field: str) -> None:
    with pytest.raises(ActionError, match=f"`{field}` must have at most"):
        parse_action("create-issue", {"title": "T", "body": "B", field: "x" * (MAX_BODY + 1)})


def test_every_text_of_an_action_can_be_replaced() -> None:
    for kind, values, _ in _EXAMPLES:
        action = parse_action(kind, values)
        cleaned = with_texts(action, lambda text: f"clean {text}")
        for name in ("title", "body", "text"):
            assert getattr(cleaned, name, "clean").startswith("clean")
        for name in ("inputs", "fields"):
            assert all(value.startswith("clean") for value in getattr(cleaned, name, {}).values())


def test_the_handles_of_created_issues_become_their_numbers() -> None:
    numbers = {"new-1": 40, "new-12": 51}
    text = "After new-1, new-12 and new-2; not brand-new-1 or new-10x."
    named = name_created(text, lambda handle: numbers.get(handle, 0))
    assert named == "After #40, #51 and new-2; not brand-new-1 or new-10x."


def test_targets_are_the_issue_and_the_linked_ones() -> None:
    assert targets_of(parse_action("add-sub-issue", {"sub_issue": "new-1"})) == (0, "new-1")
    assert targets_of(parse_action("close", {"reason": "duplicate", "duplicate_of": 3, "issue": 5})) == (5, 3)
    assert targets_of(parse_action("close", {"reason": "completed", "issue": 5})) == (5,)
    assert targets_of(parse_action("create-issue", {"title": "T", "body": "B"})) == ()


def test_proposals_are_numbered_and_issues_to_create_have_handles() -> None:
    proposals: tuple[Proposal, ...] = ()
    for action in (AddLabels(labels=("bug",)), CreateIssue(title="A", body="a"), CreateIssue(title="B", body="b")):
        proposals = append_proposal(proposals, action)
    assert [(proposal.number, proposal.handle) for proposal in proposals] == [(1, ""), (2, "new-1"), (3, "new-2")]
    assert proposals[1].sentence(7) == "Create the issue `A` (new-1)"
