"""Threats 15, 22 and 43 at the gate: no work on forks, no odd branch names, no push to the default branch."""

from __future__ import annotations

import pytest

from agent_runtime import RunLimits
from bot.gate.permissions import Refusal, grant_for
from tests.builders import a_job, thread_facts


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
            for ref in ("-x", "--force", "a..b", "a b", "${{ secrets.X }}", "`id`", "a\nb", "\u202eab", "")
        ),
    ],
    ids=str,
)
def test_even_an_admin_gets_a_refusal_with_its_reason(changes: dict[str, object]) -> None:
    verdict = grant_for(a_job(kind="pull"), role="admin", facts=thread_facts(**changes), limits=RunLimits())
    assert isinstance(verdict, Refusal)
    assert verdict.reason
    assert not verdict.silent
