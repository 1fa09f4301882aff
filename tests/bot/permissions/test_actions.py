"""Declared actions: what a file may declare, what a run is granted, and what is objected to a proposal."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Level
from bot.domain.actions import KINDS, MAX_PROPOSALS, Declaration, Proposal, append_proposal, parse_action
from bot.domain.commands import Ask, Command, Describe, Explain, Fix, Options, RecipeBounds, Undo
from bot.permissions.actions import ActionFacts, Subject, check_declared, complete, judge, matches
from bot.permissions.levels import Grant
from bot.permissions.permissions import grant_for
from bot.permissions.repo_config import (
    RepoConfig,
    RepoConfigError,
    fallback_config,
    merge_configs,
    parse_config,
    parse_recipe,
)
from bot.queue.records import decode_job, encode_job
from tests.builders import a_job, a_request_for, thread_facts

_ALL = """\
actions:
  add-labels: {labels: [bug, "area/*", "codepilot:auto", codepilot, ghost], max: 3, from: anyone}
  remove-labels: {labels: ["*"]}
  set-type: {types: [Bug, Epic]}
  set-assignees: {assignees: [mona, nobody], max: 2}
  set-milestone: {milestones: ["v*"]}
  set-fields: {fields: [Priority, Effort]}
  close: {reasons: [completed, not-planned, duplicate], target: repository}
  reopen: {target: repository}
  create-issue: {title-prefix: "[split] ", labels: [bug], max: 5}
  add-sub-issue: {max: 5}
  comment: {target: repository, max: 2}
  request-reviewers: {reviewers: [Mona, hubot], max: 2, target: repository}
  update-body: {target: repository}
  set-draft: {target: repository}
  start-workflow: {workflows: [nightly.yml, gone.yml], inputs: [suite, extra], refs: [develop, main, gone]}
  create-discussion: {categories: [Ideas, Gone]}
  comment-discussion:
  notice:
  missing-information:
"""
_DECLARED = {entry.kind: entry for entry in parse_config(_ALL.encode()).actions.declarations}
_ISSUE = Subject(is_pull=False, is_open=True, is_locked=False, author="mona")
_PULL = replace(_ISSUE, is_pull=True)
_FACTS = ActionFacts(
    thread=7,
    subjects={
        7: _ISSUE,
        8: _PULL,
        9: replace(_ISSUE, is_locked=True),
        10: replace(_ISSUE, is_open=False),
        11: replace(_PULL, is_open=False, is_merged=True),
        12: replace(_PULL, is_own=True, is_draft=True, author="codepilot[bot]"),
        13: _ISSUE,
    },
    labels=frozenset({"Bug", "area/api", "codepilot:auto", "codepilot"}),
    level_labels=frozenset({"codepilot:read-only", "codepilot:ask", "codepilot:auto"}),
    start_labels=frozenset({"codepilot"}),
    types=frozenset({"Bug"}),
    milestones=frozenset({"v2"}),
    people=frozenset({"Mona"}),
    fields={"Priority": ("High", "Low"), "Effort": ()},
    workflows={"nightly.yml": ("suite",)},
    branches={"develop": False, "main": True},
    categories=frozenset({"Ideas"}),
    discussions={4: False, 5: True},
)


def _judged(kind: str, *earlier: tuple[str, dict[str, Any]], **values: Any) -> str:  # noqa: ANN401 - of any action
    proposals: tuple[Proposal, ...] = ()
    for other, other_values in earlier:
        proposals = append_proposal(proposals, parse_action(other, other_values))
    return judge(parse_action(kind, values), _DECLARED[kind], _FACTS, proposals)


_ISSUE_TEXT = {"title": "T", "body": "B"}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("add-labels", {"labels": ["bug", "AREA/api"]}),
        ("remove-labels", {"labels": ["codepilot"]}),
        ("set-type", {"type": "Bug"}),
        ("set-assignees", {"assignees": ["mona"]}),
        ("set-milestone", {"milestone": "v2"}),
        ("set-fields", {"fields": {"Priority": "High", "Effort": 3}}),
        ("close", {"reason": "completed"}),
        ("close", {"reason": "not-planned", "issue": 8}),
        ("close", {"reason": "duplicate", "duplicate_of": 13}),
        ("reopen", {"issue": 10}),
        ("create-issue", _ISSUE_TEXT),
        ("comment", {"body": "B", "issue": 10}),
        ("request-reviewers", {"reviewers": ["mona"], "issue": 12}),
        ("update-body", {"body": "B", "issue": 12}),
        ("set-draft", {"draft": False, "issue": 12}),
        ("start-workflow", {"workflow": "nightly.yml", "ref": "develop", "inputs": {"suite": "unit"}}),
        ("create-discussion", {"category": "Ideas", **_ISSUE_TEXT}),
        ("comment-discussion", {"discussion": 4, "body": "B"}),
        ("notice", {"text": "T"}),
        ("missing-information", {"text": "T"}),
    ],
)
def test_a_declared_action_that_github_accepts_is_applied(kind: str, values: dict[str, Any]) -> None:
    assert not _judged(kind, **values)


def test_an_issue_of_the_run_is_linked_and_labelled() -> None:
    assert not _judged("add-sub-issue", ("create-issue", _ISSUE_TEXT), sub_issue="new-1")


@pytest.mark.parametrize(
    ("kind", "values", "objection"),
    [
        ("add-labels", {"labels": ["docs"]}, "`docs` is not among the declared labels. There are `bug`, `area/*`"),
        ("add-labels", {"labels": ["area"]}, "is not among the declared labels. Did you mean `area/*`?"),
        ("add-labels", {"labels": ["area/new"]}, "`area/new` does not exist; create it"),
        ("add-labels", {"labels": ["Codepilot:Auto"]}, "sets a permission level"),
        ("add-labels", {"labels": ["codepilot"]}, "starts a run"),
        ("add-labels", {"labels": ["bug", "area/api", "ghost", "area/x"]}, "`max` allows 3 in a run"),
        ("add-labels", {"labels": ["bug"], "issue": 13}, "`target: thread` allows only this thread, not #13"),
        ("remove-labels", {"labels": ["codepilot:read-only"]}, "sets a permission level"),
        ("set-type", {"type": "Epic"}, "there is no issue type named `Epic`"),
        ("set-type", {"type": "bug"}, "is not among the declared types"),
        (
            "set-assignees",
            {"assignees": ["nobody"]},
            "with access to this repository named `nobody`",
        ),
        ("set-assignees", {"assignees": ["rita"]}, "is not among the declared assignees"),
        ("set-milestone", {"milestone": "v1"}, "there is no open milestone named `v1`"),
        (
            "set-fields",
            {"fields": {"Priority": "Hi"}},
            "`Hi` is no option of the field `Priority`. Did you mean `High`?",
        ),
        ("set-fields", {"fields": {"Size": "1"}}, "is not among the declared fields"),
        ("close", {"reason": "completed", "issue": 10}, "closed already"),
        ("close", {"reason": "completed", "issue": 9}, "#9 is locked"),
        ("close", {"reason": "completed", "issue": 99}, "#99 does not exist"),
        ("close", {"reason": "duplicate", "duplicate_of": 7}, "the same issue"),
        ("close", {"reason": "duplicate", "duplicate_of": 8}, "only an issue can be the duplicate"),
        ("close", {"reason": "duplicate", "duplicate_of": 99}, "#99 does not exist"),
        ("reopen", {}, "open already"),
        ("reopen", {"issue": 11}, "merged"),
        ("add-sub-issue", {"sub_issue": "new-1"}, "there is no new-1: propose `create-issue` first"),
        ("add-sub-issue", {"sub_issue": 13}, "allows only this thread and the issues created in this run, not #13"),
        ("comment", {"body": "B", "issue": 9}, "#9 is locked"),
        ("request-reviewers", {"reviewers": ["mona"], "issue": 8}, "`mona` is its author"),
        (
            "request-reviewers",
            {"reviewers": ["hubot"], "issue": 12},
            "no person with access to this repository",
        ),
        ("request-reviewers", {"reviewers": ["mona"]}, "not an open pull request"),
        ("request-reviewers", {"reviewers": ["mona"], "issue": 11}, "not an open pull request"),
        ("update-body", {"body": "B"}, "somebody else wrote it"),
        ("set-draft", {"draft": True, "issue": 12}, "a draft already"),
        ("set-draft", {"draft": False, "issue": 8}, "ready for review already"),
        ("set-draft", {"draft": False}, "not an open pull request"),
        (
            "start-workflow",
            {"workflow": "gone.yml", "ref": "develop"},
            "no workflow with the event `workflow_dispatch`",
        ),
        ("start-workflow", {"workflow": "other.yml", "ref": "develop"}, "is not among the declared workflows"),
        ("start-workflow", {"workflow": "nightly.yml", "ref": "main"}, "the branch `main` is protected"),
        ("start-workflow", {"workflow": "nightly.yml", "ref": "gone"}, "there is no branch named `gone`"),
        ("start-workflow", {"workflow": "nightly.yml", "ref": "Develop"}, "is not among the declared refs"),
        (
            "start-workflow",
            {"workflow": "nightly.yml", "ref": "develop", "inputs": {"extra": "1"}},
            "there is no input named `extra`",
        ),
        (
            "start-workflow",
            {"workflow": "nightly.yml", "ref": "develop", "inputs": {"shell": "1"}},
            "is not among the declared inputs",
        ),
        ("create-discussion", {"category": "Gone", **_ISSUE_TEXT}, "there is no category of discussions named `Gone`"),
        ("comment-discussion", {"discussion": 5, "body": "B"}, "the discussion #5 is locked"),
        ("comment-discussion", {"discussion": 6, "body": "B"}, "the discussion #6 is locked, or does not exist"),
    ],
)
def test_an_objection_names_the_reason(kind: str, values: dict[str, Any], objection: str) -> None:
    assert objection in _judged(kind, **values)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_pattern_matches_as_a_glob_does(pattern: str, value: str) -> None:
    assert matches(value, pattern, "types") == fnmatchcase(value, pattern)


def test_a_run_has_a_maximum_of_each_kind_and_of_all() -> None:
    assert "`max` allows 3 in a run, and 2 are proposed already" in _judged(
        "add-labels", ("add-labels", {"labels": ["bug", "area/api"]}), labels=["bug", "ghost"]
    )
    assert "`max` allows 2 in a run" in _judged(
        "comment", ("comment", {"body": "1"}), ("comment", {"body": "2"}), body="3"
    )
    assert "at most 20 proposals" in _judged(
        "notice", *[("reopen", {"issue": n}) for n in range(MAX_PROPOSALS)], text="T"
    )


def test_the_same_is_not_proposed_twice() -> None:
    assert "proposed already" in _judged("comment", ("comment", {"body": "1"}), body="1")


def test_labels_that_the_owner_sets_on_new_issues_must_exist() -> None:
    facts = replace(_FACTS, labels=frozenset())
    assert "`bug` does not exist" in judge(parse_action("create-issue", _ISSUE_TEXT), _DECLARED["create-issue"], facts)


def test_without_a_thread_the_issue_must_be_named() -> None:
    action = parse_action("comment", {"body": "B"})
    assert "no thread" in check_declared(action, _DECLARED["comment"], (), 0)
    named = parse_action("comment", {"body": "B", "issue": 13})
    assert not check_declared(named, _DECLARED["comment"], (), 0)
    assert "only this thread" in check_declared(named, replace(_DECLARED["comment"], target="thread"), (), 0)


def test_a_new_issue_is_out_of_reach_of_the_target_thread() -> None:
    assert "not new-1" in _judged("set-milestone", ("create-issue", _ISSUE_TEXT), milestone="v2", issue="new-1")


def test_a_title_begins_with_the_declared_prefix_once() -> None:
    action = parse_action("create-issue", _ISSUE_TEXT)
    titled = complete(action, _DECLARED["create-issue"])
    assert getattr(titled, "title") == "[split] T"  # noqa: B009 - of a union
    assert complete(titled, _DECLARED["create-issue"]) == titled
    assert complete(parse_action("notice", {"text": "T"}), _DECLARED["notice"]).kind == "notice"


def test_a_file_can_declare_every_kind() -> None:
    assert list(_DECLARED) == list(KINDS)
    assert _DECLARED["add-labels"] == Declaration(
        kind="add-labels",
        max=3,
        is_for_anyone=True,
        allowed={"labels": ("bug", "area/*", "codepilot:auto", "codepilot", "ghost")},
    )
    assert (_DECLARED["comment"].max, _DECLARED["comment"].target) == (2, "repository")
    assert _DECLARED["create-issue"].title_prefix == "[split] "
    assert [kind for kind, entry in _DECLARED.items() if entry.is_for_anyone] == [
        "add-labels",
        "notice",
        "missing-information",
    ]
    assert not any(entry.always_asks for entry in _DECLARED.values())
    always = parse_config(b"actions: {approval: always, reopen: {}}").actions.declarations
    assert [entry.always_asks for entry in always] == [True]


@pytest.mark.parametrize(
    ("text", "objection"),
    [
        ("add-label: {labels: [x]}", "`actions.add-label`: unknown key. Did you mean 'add-labels'?"),
        ("create-issue: {title_prefix: x}", "unknown key. Did you mean 'title-prefix'?"),
        ("add-labels:", "`actions.add-labels.labels`: must be set"),
        ("add-labels: {labels: []}", "must not be empty"),
        ("add-labels: {labels: [x], max: 0}", "must be at least 1"),
        ("add-labels: {labels: [x], max: 51}", "must be at most 50"),
        ("add-labels: {labels: ['a*b*c*d*e']}", "at most three `*`"),
        ("add-labels: {labels: [x], target: anything}", "must be one of 'thread', 'created' or 'repository'"),
        ("add-labels: {labels: [x], from: all}", "must be one of 'writers' or 'anyone'"),
        ("set-assignees: {assignees: ['*']}", "must be a name, without `*`"),
        ("start-workflow: {workflows: [nightly], refs: [develop]}", "e.g. `nightly.yml`"),
        ("start-workflow: {workflows: [../x.yml], refs: [develop]}", "must be the name of a file"),
        ("start-workflow: {workflows: [x.yml], refs: ['-x']}", "must be a branch name"),
        ("start-workflow: {workflows: [x.yml]}", "`actions.start-workflow.refs`: must be set"),
        ("start-workflow: {workflows: [x.yml], refs: [develop], from: anyone}", "unknown key"),
        ("approve: {}", "unknown key"),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_key(text: str, objection: str) -> None:
    with pytest.raises(RepoConfigError) as error:
        parse_config(f"actions:\n  {text}\n".encode())
    assert objection in str(error.value)


def test_declarations_survive_the_stores_of_configurations_and_jobs() -> None:
    config = parse_config(_ALL.encode())
    assert RepoConfig.model_validate_json(config.model_dump_json(exclude_unset=True)).actions == config.actions
    job = replace(a_job(), recipe=_recipe(_ALL).bounds)
    assert decode_job(encode_job(job)) == job


def _recipe(actions: str = "") -> Any:  # noqa: ANN401 - a recipe
    return parse_recipe(f"---\non: comment\n{actions}---\nDo it.\n".encode(), "tidy")


_TWO = "actions:\n  comment: {}\n  add-labels: {labels: [bug], from: anyone}\n"


def _granted(command: Command, *, kind: str = "issue", recipe: RecipeBounds | None = None, **changes: Any) -> Grant:  # noqa: ANN401 - of a request
    job = replace(a_job(kind=kind, command=command), recipe=recipe)
    decided = grant_for(a_request_for(job, **{"config": parse_config(_TWO.encode()), **changes}))
    assert isinstance(decided, Grant), decided
    return decided


def _kinds(grant: Grant) -> list[str]:
    return [entry.kind for entry in grant.actions]


@pytest.mark.parametrize(
    ("level", "kinds"),
    [("auto", ["add-labels", "comment"]), ("ask", ["add-labels", "comment"]), ("read-only", ["add-labels"])],
)
def test_a_read_only_run_has_only_the_actions_for_anyone(level: Level, kinds: list[str]) -> None:
    grant = _granted(Explain(), bounds=Bounds(limits=RunLimits(), level=level))
    assert (_kinds(grant), grant.actions_level) == (kinds, level)


def test_a_command_that_only_reads_keeps_the_level_of_its_actions() -> None:
    grant = _granted(Ask())
    assert (grant.level, grant.actions_level) == ("read-only", "ask")


def test_a_recipe_has_its_own_actions_alone_at_the_level_before_it() -> None:
    grant = _granted(Ask(), recipe=_recipe("level: read-only\nactions: {reopen: {}}\n").bounds)
    assert (_kinds(grant), grant.actions_level) == (["reopen"], "ask")
    assert _kinds(_granted(Ask(), recipe=_recipe().bounds)) == []


@pytest.mark.parametrize("command", [Explain(), Describe()], ids=lambda command: command.verb)
def test_a_fork_has_only_the_actions_for_anyone(command: Command) -> None:
    grant = _granted(command, kind="pull", facts=thread_facts(head_repo_id=11))
    assert (_kinds(grant), grant.actions_level) == (["add-labels"], "read-only")


def test_nothing_is_granted_that_is_not_declared_or_has_no_agent() -> None:
    assert not _granted(Fix(), config=RepoConfig()).actions
    assert not _granted(Undo(), kind="pull").actions


def test_candidates_propose_nothing_and_the_comment_says_so() -> None:
    grant = _granted(Fix(options=Options(candidates=2)))
    assert not grant.actions
    assert any("Several candidates propose no actions" in note for note in grant.notes)


def test_the_operator_restricts_the_kinds_and_the_comment_says_so() -> None:
    grant = _granted(Fix(), bounds=Bounds(limits=RunLimits(), actions=frozenset({"comment"})))
    assert _kinds(grant) == ["comment"]
    assert any("turned off" in note and "`add-labels`" in note for note in grant.notes)
    assert not _granted(Fix(), bounds=Bounds(limits=RunLimits(), actions=frozenset())).actions


def test_a_repository_replaces_the_actions_of_its_organisation() -> None:
    organisation = parse_config(_TWO.encode())
    assert merge_configs(organisation, RepoConfig()).actions == organisation.actions
    own = merge_configs(organisation, parse_config(b"actions: {reopen: {}}"))
    assert [entry.kind for entry in own.actions.declarations] == ["reopen"]
    assert not merge_configs(organisation, fallback_config()).actions.declarations


def test_labels_of_levels_and_starts_are_told_apart() -> None:
    config = parse_config(b"labels: {start: Go, auto: YOLO}").with_recipes(
        [parse_recipe(b"---\non: {label: Tidy}\n---\nDo it.\n", "tidy")], ()
    )
    assert config.labels.level_labels == {"codepilot:read-only", "codepilot:ask", "yolo"}
    assert config.start_labels("codepilot") == {"codepilot", "go", "codepilot:fix-ci", "tidy"}
    assert "codepilot" in RepoConfig().start_labels("Codepilot")
