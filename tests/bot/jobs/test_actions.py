"""Proposals of an agent: their states before and after an answer, and what is read to judge them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.actions import AddLabels, Comment, CreateIssue, Declaration, Notice, Proposal
from bot.jobs.actions import ActionPlan, explain_unanswerable, list_inputs
from bot.jobs.record import ActionResult, ActionsRecord
from bot.jobs.steering import read_numbers

PLAN = ActionPlan(
    thread=7,
    proposals=(
        Proposal(number=1, action=AddLabels(labels=("bug",))),
        Proposal(number=2, action=CreateIssue(title="Part", body="Text"), handle="new-1"),
        Proposal(number=3, action=Comment(body="Done", issue="new-1")),
        Proposal(number=4, action=Notice(text="Nothing else")),
    ),
    asking=frozenset({2, 3}),
    objections={4: "it is too long"},
)


def _states(plan: ActionPlan) -> list[tuple[str, str]]:
    return [(view.state, view.note) for view in plan.views]


def test_what_needs_no_approval_is_ready_while_the_rest_waits() -> None:
    assert _states(PLAN) == [("proposed", ""), ("waiting", ""), ("waiting", ""), ("refused", "it is too long")]
    assert [proposal.number for proposal in PLAN.ready] == [1]
    assert [proposal.number for proposal in PLAN.waiting] == [2, 3]


def test_an_approval_makes_all_but_the_denied_ones_ready() -> None:
    plan = replace(PLAN, record=ActionsRecord(struck=(3,), denial=""))
    assert [proposal.number for proposal in plan.ready] == [1, 2]
    assert _states(plan)[2] == ("denied", "")
    assert not plan.waiting


def test_a_denial_leaves_what_needed_no_approval() -> None:
    plan = replace(PLAN, record=ActionsRecord(denial="@mona said no: too many"))
    assert [proposal.number for proposal in plan.ready] == [1]
    assert _states(plan)[1:3] == [("denied", "@mona said no: too many")] * 2


def test_an_interrupted_request_is_repeated_and_a_result_is_not() -> None:
    results = {1: ActionResult(state="requested"), 2: ActionResult(state="applied", created=12, url="u", note="#12")}
    plan = replace(PLAN, record=ActionsRecord(denial="", results=results))
    assert [proposal.number for proposal in plan.ready] == [1, 3]
    assert plan.number_of("new-1") == 12
    assert plan.views[1].url == "u"


def test_a_dry_run_asks_nobody() -> None:
    plan = replace(PLAN, is_dry=True)
    assert not plan.waiting
    assert _states(plan)[:2] == [("proposed", "not applied in a dry run")] * 2


@pytest.mark.parametrize(("kind", "has_from"), [("add-labels", True), ("start-workflow", False)])
def test_the_remedy_without_approvals_names_only_keys_of_the_kind(kind: str, *, has_from: bool) -> None:
    remedy = explain_unanswerable(Declaration(kind=kind), is_free=False)
    assert ("from: anyone" in remedy) is has_from
    assert "`auto`" in remedy


def test_the_removal_of_always_is_no_remedy_at_a_level_that_asks_too() -> None:
    declaration = Declaration(kind="comment", always_asks=True)
    assert "Remove `approval: always`" in explain_unanswerable(declaration, is_free=True)
    assert "Remove" not in explain_unanswerable(declaration, is_free=False)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("2", (2,)),
        ("2, 4 and #5 because they are wrong 6", (2, 4, 5)),
        ("#3: no", (3,)),
        ("too many, 2 at most", ()),
        ("1234", ()),
        ("", ()),
    ],
)
def test_a_denial_names_single_actions_by_number(words: str, numbers: tuple[int, ...]) -> None:
    assert read_numbers(words) == numbers


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("on: workflow_dispatch", ()),
        ("on: [push, workflow_dispatch]", ()),
        ("on:\n  workflow_dispatch:\n", ()),
        ("on:\n  workflow_dispatch:\n    inputs:\n      suite: {type: string}\n      level:\n", ("suite", "level")),
        ("on: push", None),
        ("on:\n  push:\n", None),
        ("- on: workflow_dispatch", None),
        ("on: [", None),
        ("\xff", None),
        ("[" * 5_000, None),
    ],
)
def test_inputs_are_read_from_workflows_that_a_person_can_start(text: str, inputs: tuple[str, ...] | None) -> None:
    assert list_inputs(text.encode("latin-1")) == inputs
