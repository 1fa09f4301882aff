"""Threats 1, 2 and 12, as far as the gate alone can show them: without write access nothing runs, whatever the verb."""

from __future__ import annotations

from typing import get_args

import pytest

from agent_runtime import RunLimits
from bot.gate.permissions import Grant, Refusal, Role, grant_for
from bot.intake.commands import VERBS, Command, parse_command
from bot.intake.deliveries import Delivery
from bot.intake.triggers import job_from
from bot.jobs.job import Job
from tests.builders import a_comment_event, a_job, thread_facts

WRITERS = {"admin", "maintain", "write"}


def _command(word: str) -> Command:
    command = parse_command(f"/codepilot {word} x")
    assert command is not None
    return command


@pytest.mark.parametrize("kind", ["issue", "pull"])
@pytest.mark.parametrize("word", [*(verb.name for verb in VERBS), "no-such-verb"])
@pytest.mark.parametrize("role", get_args(Role))
def test_every_verb_passes_the_one_choke_point(role: Role, word: str, kind: str) -> None:
    verdict = grant_for(a_job(kind=kind, command=_command(word)), role=role, facts=thread_facts(), limits=RunLimits())
    if role in WRITERS:
        assert isinstance(verdict, Grant)
    else:
        assert isinstance(verdict, Refusal)
        assert verdict.silent


@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR"])
def test_author_association_raises_nobody(association: str) -> None:
    payload = a_comment_event()
    payload["comment"]["author_association"] = association
    delivery = Delivery(id="d", event="issue_comment", action="created", payload=payload, installation=None)
    job = job_from(delivery, trigger="/codepilot", own_ids=frozenset())
    assert isinstance(job, Job)
    assert association not in repr(job)
    assert isinstance(grant_for(job, role="none", facts=thread_facts(), limits=RunLimits()), Refusal)
