"""Threats 15, 22 and 43 at the gate: forks are read only, no odd branch names, no push to the default branch."""

from __future__ import annotations

from typing import get_args

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Level, Role, ThreadLabel
from bot.domain.commands import Ask, Command, Explain, Fix, Plan, Review, Test, Undo
from bot.domain.job import Actor
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import grant_for
from bot.permissions.repo_config import RepoConfig
from tests.builders import a_job, a_request_for, thread_facts

FORK = thread_facts(head_repo_id=11)
LOOKS: tuple[Command, ...] = (Review(), Explain(), Plan(), Ask())
WORKS: tuple[Command, ...] = (Fix(), Test(), Undo())


def _label(level: Level, *, bound_to: str = FORK.head_sha, by: int = 40, role: Role = "write") -> ThreadLabel:
    labeller = Actor(id=by, login="rita")
    return ThreadLabel(name=f"codepilot:{level}", level=level, labeller=labeller, role=role, bound_to=bound_to)


@pytest.mark.parametrize(
    "changes",
    [
        {"head_repo_id": 11},
        # The same branch name as one of ours does not make it ours.
        {"head_repo_id": 11, "head_ref": "main"},
        {"head_repo_id": None},
        {"head_ref": "main"},
        *(
            {"head_ref": ref}
            for ref in ("-x", "--force", "a..b", "a b", "a:b", "${{ secrets.X }}", "a~1", "a\nb", "a\x7fb", "")
        ),
    ],
    ids=str,
)
def test_even_an_admin_gets_a_refusal_with_its_reason(changes: dict[str, object]) -> None:
    verdict = grant_for(a_request_for(a_job(kind="pull"), roles=("admin",), facts=thread_facts(**changes)))
    assert isinstance(verdict, Refusal)
    assert verdict.reason
    assert not verdict.silent


@pytest.mark.parametrize("configured", [*get_args(Level), None])
@pytest.mark.parametrize("operator", ["ask", "auto"])
@pytest.mark.parametrize("command", [*LOOKS, *WORKS], ids=lambda command: command.verb)
def test_no_code_of_a_fork_runs_and_nothing_is_pushed_whatever_is_configured(
    command: Command, operator: Level, configured: Level | None
) -> None:
    verdict = grant_for(
        a_request_for(
            a_job(kind="pull", command=command),
            facts=FORK,
            config=RepoConfig(level=configured),
            bounds=Bounds(limits=RunLimits(), level=operator),
        )
    )
    if command in WORKS:
        assert isinstance(verdict, Refusal)
    else:
        assert isinstance(verdict, Grant)
        assert not verdict.can_execute
        assert verdict.publish in {"review", "nothing"}


@pytest.mark.parametrize("level", ["ask", "auto"])
def test_a_maintainers_label_for_this_commit_lets_code_run_and_still_nothing_is_pushed(level: Level) -> None:
    verdict = grant_for(a_request_for(a_job(kind="pull"), facts=FORK, labels=(_label(level),)))
    assert isinstance(verdict, Grant)
    assert (verdict.level, verdict.can_execute, verdict.publish) == (level, True, "nothing")
    assert "Nothing is pushed to a fork: the patch is kept." in verdict.notes


@pytest.mark.parametrize(
    "label",
    [
        _label("auto", bound_to="b" * 40),
        _label("auto", bound_to=""),
        _label("auto", by=3),
        _label("auto", role="triage"),
        _label("read-only"),
    ],
    ids=["another commit", "unseen", "its author's", "no write access", "read-only"],
)
def test_no_other_label_does(label: ThreadLabel) -> None:
    verdict = grant_for(a_request_for(a_job(kind="pull"), facts=FORK, labels=(label,)))
    assert isinstance(verdict, Refusal)
    assert verdict.cause == "read-only"
    # Each of its remedies is told, also one after the other.
    assert ("label" if label.level == "read-only" else "fork") in verdict.variant


def test_when_nobody_can_tell_who_opened_it_no_label_counts() -> None:
    facts = thread_facts(head_repo_id=11, author_id=None)
    assert isinstance(grant_for(a_request_for(a_job(kind="pull"), facts=facts, labels=(_label("auto"),))), Refusal)
