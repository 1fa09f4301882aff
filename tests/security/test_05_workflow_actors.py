"""Threat 5: who started a workflow and who ran it again must both have write access."""

from __future__ import annotations

from typing import get_args

import pytest

from bot.domain.access import Role
from bot.domain.job import Actor, Job
from bot.permissions.levels import Refusal
from bot.permissions.permissions import grant_for
from tests.builders import a_request_for
from tests.payloads import a_payload, job, read

STRANGER = {"id": 21, "login": "stranger", "type": "User"}


def _rerun() -> Job:
    return job("workflow_run", workflow_run__triggering_actor=STRANGER)


def test_the_job_names_the_user_of_a_rerun() -> None:
    assert _rerun().actor == Actor(id=20, login="octo-owner")
    assert _rerun().other_actors == (Actor(id=21, login="stranger"),)


def test_the_starting_user_counts_and_not_the_sender() -> None:
    found = job("workflow_run", workflow_run__actor=STRANGER, sender={"id": 20, "login": "octo-owner", "type": "User"})
    assert {found.actor.id, *(other.id for other in found.other_actors)} == {20, 21}
    assert found.actor.id == 21


@pytest.mark.parametrize("role", sorted({*get_args(Role)} - {"admin", "maintain", "write"}))
@pytest.mark.parametrize("weak", [0, 1])
def test_one_of_the_two_without_write_access_is_enough_for_a_refusal(role: Role, weak: int) -> None:
    roles: list[Role] = ["admin", "admin"]
    roles[weak] = role
    assert isinstance(grant_for(a_request_for(_rerun(), roles=tuple(roles))), Refusal)


@pytest.mark.parametrize("part", ["actor", "triggering_actor"])
@pytest.mark.parametrize("account", [None, {}, {"id": 0, "login": "x", "type": "User"}, {"login": "x", "type": "User"}])
def test_a_run_without_an_actor_is_no_job(part: str, account: object) -> None:
    assert not isinstance(read("workflow_run", a_payload("workflow_run", **{f"workflow_run__{part}": account})), Job)
