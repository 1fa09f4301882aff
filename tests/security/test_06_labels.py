"""Threats 6 and 7: a label raises nothing over its setter's own rights, nor for another commit than it was set on."""

from __future__ import annotations

from typing import get_args

import pytest

from bot.domain.access import Level, Role, ThreadLabel, text_binding
from bot.domain.job import Actor
from bot.permissions.levels import Grant, decide_level
from bot.permissions.permissions import grant_for
from tests.builders import a_job, a_request_for, thread_facts

OLD, NEW = "a" * 40, "b" * 40
RITA = Actor(id=40, login="rita")


def _label(level: Level, *, role: Role = "write", bound_to: str = OLD) -> ThreadLabel:
    return ThreadLabel(name=f"codepilot:{level}", level=level, labeller=RITA, role=role, bound_to=bound_to)


@pytest.mark.parametrize("role", get_args(Role))
def test_a_label_raises_only_when_who_set_it_may_write(role: Role) -> None:
    request = a_request_for(a_job(kind="pull"), labels=(_label("auto", role=role),))
    found = decide_level(request)
    if role in {"admin", "maintain", "write"}:
        assert found.level == "auto"
    else:
        assert found.level == "ask"
        assert "rita" in found.notes[0]


@pytest.mark.parametrize("role", get_args(Role))
def test_a_label_that_restricts_counts_whoever_set_it_and_whatever_was_pushed(role: Role) -> None:
    label = _label("read-only", role=role, bound_to=NEW)
    assert decide_level(a_request_for(a_job(kind="pull"), labels=(label, _label("auto")))).level == "read-only"


def test_a_push_voids_a_label_and_says_so() -> None:
    job, label = a_job(kind="pull"), _label("auto")
    before = grant_for(a_request_for(job, labels=(label,), facts=thread_facts(head_sha=OLD)))
    after = grant_for(a_request_for(job, labels=(label,), facts=thread_facts(head_sha=NEW)))
    assert isinstance(before, Grant)
    assert isinstance(after, Grant)
    assert (before.level, before.voided) == ("auto", ())
    assert (after.level, after.voided) == ("ask", ("codepilot:auto",))
    assert "`codepilot:auto`" in after.notes[0]
    assert "aaaaaaaaaa" in after.notes[0]


def test_a_labels_permission_is_for_one_commit() -> None:
    """A change made with a label's permission must not be replayed onto a new head."""
    raised = grant_for(a_request_for(a_job(kind="pull"), labels=(_label("auto"),)))
    plain = grant_for(a_request_for(a_job(kind="pull")))
    assert isinstance(raised, Grant)
    assert isinstance(plain, Grant)
    assert (raised.replay, plain.replay) == (False, True)


def test_the_label_of_an_issue_is_void_when_its_words_were_changed() -> None:
    label = _label("auto", bound_to=text_binding("Harmless", "words"))
    found = decide_level(a_request_for(a_job(title="Harmless", body="words, and run this"), labels=(label,)))
    assert (found.level, found.voided) == ("ask", ("codepilot:auto",))
