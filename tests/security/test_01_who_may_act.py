"""Threats 1, 2, 5 and 12 at the gate: without write access nothing runs, whatever the verb and the trigger."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from bot.domain.access import BotProfile, Role
from bot.domain.commands import (
    AccessLost,
    Approve,
    Ask,
    AssignEvent,
    BadUsage,
    BareCommand,
    ChecksFailed,
    CloseEvent,
    Command,
    Continue,
    Deny,
    Describe,
    Explain,
    Fix,
    Help,
    LabelEvent,
    Plan,
    PushEvent,
    RecipeDue,
    Remember,
    ReplyEvent,
    Resolve,
    Retry,
    Review,
    ShowStatus,
    StartRecipe,
    Stop,
    Test,
    Unclear,
    Undo,
    UnknownVerb,
)
from bot.domain.job import Actor, Job, OriginKind
from bot.events.delivery import Delivery
from bot.events.triggers import job_from
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import grant_for
from tests.builders import a_comment_event, a_job, a_request_for, thread_facts

WRITERS = {"admin", "maintain", "write"}
COMMANDS: tuple[Command, ...] = (
    Fix(),
    Review(),
    Describe(),
    Resolve(),
    Explain(),
    Plan(),
    Ask(),
    Test(),
    BareCommand(goal="x"),
    Undo(),
    Remember(rule="x"),
    Continue(message="x"),
    Approve(request_id="7f3a"),
    Deny(),
    Stop(),
    Retry(),
    ShowStatus(),
    StartRecipe(name="weekly"),
    RecipeDue(name="weekly"),
    Help(),
    UnknownVerb(word="fxi", nearest="fix"),
    BadUsage(reason="x"),
    Unclear(words="hold on"),
    LabelEvent(label="codepilot:auto", bound_to="a" * 40),
    PushEvent(head_sha="b" * 40),
    ChecksFailed(run_id=1, name="CI", conclusion="failure", head_sha="c" * 40, branch="main"),
    AssignEvent(assignee_id=1),
    ReplyEvent(message="x"),
    CloseEvent(),
    AccessLost(),
)


def _job(command: Command, kind: str, origin: OriginKind) -> Job:
    job = a_job(kind=kind, command=command)
    return replace(job, origin=replace(job.origin, kind=origin))


def test_every_kind_of_command_is_tried() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(Command))


@pytest.mark.parametrize("origin", get_args(OriginKind))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_every_verb_from_every_trigger_passes_the_one_choke_point(command: Command, origin: OriginKind) -> None:
    for role in get_args(Role):
        for kind in ("issue", "pull"):
            verdict = grant_for(a_request_for(_job(command, kind, origin), roles=(role,)))
            if role in WRITERS:
                assert isinstance(verdict, Grant) or not verdict.silent
            elif origin == "workflow" and isinstance(
                command, (Review, Describe, Explain, Plan, Ask, Resolve, StartRecipe)
            ):
                # The workflow's file commands; who started it by an event gets no more than eyes.
                assert isinstance(verdict, Refusal) or (verdict.level, verdict.can_execute) == ("read-only", False)
                assert isinstance(verdict, Refusal) or verdict.publish in {"nothing", "review"}
            else:
                assert isinstance(verdict, Refusal), (role, kind)
                assert verdict.silent


@pytest.mark.parametrize("roles", [("write", "read"), ("read", "write"), ("write",), (), ("write", "write", "none")])
def test_everybody_behind_a_job_must_have_write_access(roles: tuple[Role, ...]) -> None:
    job = replace(a_job(), other_actors=(Actor(id=21, login="re-runner"),))
    verdict = grant_for(a_request_for(job, roles=roles))
    assert isinstance(verdict, Refusal)
    assert verdict.cause == "no-write-access"
    assert isinstance(grant_for(a_request_for(job, roles=("write", "admin"))), Grant)


@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR"])
def test_author_association_grants_nothing(association: str) -> None:
    payload = a_comment_event()
    payload["comment"]["author_association"] = association
    delivery = Delivery(payload, event="issue_comment", delivery_id="d")
    job = job_from(delivery, BotProfile())
    assert isinstance(job, Job)
    assert association not in repr(job)
    assert isinstance(grant_for(a_request_for(job, roles=("none",), facts=thread_facts())), Refusal)
