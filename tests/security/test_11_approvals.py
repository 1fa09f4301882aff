"""Threats 10 and 11: an approval counts for one commit, comes from a person, and not from the fork's own author."""

from __future__ import annotations

import pytest

from bot.domain.access import Role, ThreadLabel, TrustedBots
from bot.domain.job import Actor
from bot.permissions.levels import Refusal, ThreadState, decide_level
from bot.permissions.permissions import approver_refusal
from tests.builders import a_job, a_request_for, thread_facts

JOB = a_job(kind="pull")
AUTHOR, RITA = Actor(id=3, login="mona"), Actor(id=40, login="rita")
FORK, OURS = thread_facts(head_repo_id=11), thread_facts()


def _refused(
    approver: Actor, *, role: Role = "write", facts: ThreadState = OURS, bound_to_sha: str = ""
) -> Refusal | None:
    return approver_refusal(
        JOB,
        approver=approver,
        role=role,
        facts=facts,
        author_id=AUTHOR.id,
        bound_to_sha=bound_to_sha,
        trusted_bots=TrustedBots(ids=frozenset({77})),
    )


def test_the_author_of_a_fork_does_not_approve_even_with_write_access() -> None:
    refusal = _refused(AUTHOR, role="admin", facts=FORK)
    assert refusal is not None
    assert refusal.cause == "own-fork"
    assert _refused(RITA, facts=FORK) is None


def test_the_author_of_a_fork_does_not_raise_it_by_a_label() -> None:
    def level(labeller: Actor) -> str:
        label = ThreadLabel(name="x", level="auto", labeller=labeller, role="admin", bound_to=FORK.head_sha)
        return decide_level(a_request_for(JOB, facts=FORK, labels=(label,))).level

    assert (level(AUTHOR), level(RITA)) == ("read-only", "auto")


@pytest.mark.parametrize("bot", [Actor(id=1, login="codepilot[bot]"), Actor(id=77, login="trusted")])
def test_no_bot_approves(bot: Actor) -> None:
    refusal = _refused(bot, role="admin")
    assert refusal is not None
    assert refusal.cause == "bot-approval"


@pytest.mark.parametrize("role", ["triage", "read", "none"])
def test_an_approval_requires_write_access(role: Role) -> None:
    refusal = _refused(RITA, role=role)
    assert refusal is not None
    assert refusal.silent


def test_an_approval_for_another_head_is_refused_with_both_commits() -> None:
    refusal = _refused(RITA, bound_to_sha="c" * 40)
    assert refusal is not None
    assert refusal.cause == "moved-head"
    assert "cccccccccc" in refusal.reason
    assert "aaaaaaaaaa" in refusal.reason
    assert _refused(RITA, bound_to_sha="a" * 40) is None
