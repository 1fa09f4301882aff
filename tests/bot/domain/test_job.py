from __future__ import annotations

import pytest

from bot.domain.job import Thread


def test_branches_have_keys_of_their_own_beside_every_number() -> None:
    keys = [Thread.of_branch(name).key for name in ("main", "Main", "release/2")]
    assert len({*keys}) == len(keys)
    assert all(-(2**63) <= key < 0 for key in keys)
    assert Thread(kind="issue", number=7, title="", body="", author="").key == 7


@pytest.mark.parametrize(
    ("kind", "number", "branch"), [("branch", 0, ""), ("branch", 7, "main"), ("issue", 7, "main"), ("pull", 0, "main")]
)
def test_only_a_branch_has_a_branchs_name(kind: str, number: int, branch: str) -> None:
    with pytest.raises(ValueError, match="cannot have branch"):
        Thread(kind=kind, number=number, title="", body="", author="", branch=branch)  # type: ignore[arg-type]
