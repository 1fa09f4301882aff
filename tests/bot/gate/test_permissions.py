from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import RunLimits
from bot.gate.permissions import Grant, Refusal, Role, ThreadFacts, grant_for
from bot.intake.commands import Command, Fix, Help, Unknown
from tests.builders import a_job, thread_facts

LIMITS = RunLimits(max_steps=3)
ISSUE = thread_facts(head_ref="main")
PULL = thread_facts()
COMMANDS: list[Command] = [Fix(goal="x"), Help(), Unknown(word="fxi", nearest="fix")]


def _grant(kind: str, facts: ThreadFacts, *, role: Role = "write", command: Command | None = None) -> Grant | Refusal:
    return grant_for(a_job(kind=kind, command=command), role=role, facts=facts, limits=LIMITS)


@pytest.mark.parametrize("role", ["admin", "maintain", "write"])
def test_who_may_write_may_have_an_issue_fixed_on_a_new_branch(role: Role) -> None:
    grant = _grant("issue", ISSUE, role=role)
    assert isinstance(grant, Grant)
    assert (grant.publish, grant.bound_to_sha, grant.policy.limits) == ("new_branch", "a" * 40, LIMITS)


def test_a_pull_request_of_the_same_repository_is_fixed_on_its_own_branch() -> None:
    grant = _grant("pull", PULL)
    assert isinstance(grant, Grant)
    assert grant.publish == "pull_branch"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
@pytest.mark.parametrize("kind", ["issue", "pull"])
@pytest.mark.parametrize("role", ["triage", "read", "none"])
def test_without_write_access_there_is_no_answer_to_any_verb(role: Role, kind: str, command: Command) -> None:
    refusal = _grant(kind, PULL, role=role, command=command)
    assert isinstance(refusal, Refusal)
    assert refusal.silent


@pytest.mark.parametrize(
    ("kind", "facts", "word"),
    [
        ("issue", replace(ISSUE, is_open=False), "issue is closed"),
        ("pull", replace(PULL, is_open=False), "pull request is closed"),
        ("issue", replace(ISSUE, locked=True), "locked"),
        ("issue", replace(ISSUE, archived=True), "archived"),
        ("issue", replace(ISSUE, head_sha=""), "no commit"),
        ("pull", replace(PULL, head_repo_id=11), "fork"),
        ("pull", replace(PULL, head_repo_id=None), "gone"),
        ("pull", replace(PULL, head_ref="main"), "default branch"),
        ("pull", replace(PULL, head_ref="--upload-pack=x"), "Rename"),
        ("pull", replace(PULL, head_ref="a..b"), "Rename"),
        ("pull", replace(PULL, head_ref="$(id)"), "Rename"),
        ("pull", replace(PULL, head_ref="a\n"), "Rename"),
        ("pull", replace(PULL, base_ref="${{ x }}"), "Rename"),
        ("issue", replace(ISSUE, default_branch="ä", head_ref="ä"), "Rename"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(kind: str, facts: ThreadFacts, word: str) -> None:
    refusal = _grant(kind, facts)
    assert isinstance(refusal, Refusal)
    assert word in refusal.reason
    assert not refusal.silent


@pytest.mark.parametrize(
    "ref", ["main", "mona/patch-1", "dependabot/npm_and_yarn/x-1.2", "release@2", "fix#12", "a+b=c,d"]
)
def test_ordinary_branch_names_are_taken(ref: str) -> None:
    assert isinstance(_grant("pull", replace(PULL, head_ref=ref, default_branch="trunk")), Grant)


@pytest.mark.parametrize("command", [Help(), Unknown(word="x", nearest=None)], ids=lambda command: command.verb)
@pytest.mark.parametrize("facts", [PULL, replace(PULL, head_repo_id=11), replace(PULL, is_open=False, locked=True)])
def test_help_is_given_anywhere_and_publishes_nothing(facts: ThreadFacts, command: Command) -> None:
    grant = _grant("pull", facts, command=command)
    assert isinstance(grant, Grant)
    assert grant.publish == "nothing"
