"""Which workflow run a failing check is of."""

from __future__ import annotations

import pytest

from bot.github.types import RedCheck
from bot.jobs.material import run_behind

SERVER = "https://github.com"


def check(html_url: str) -> RedCheck:
    return RedCheck(name="test", conclusion="failure", summary="", annotations=(), html_url=html_url)


def test_the_run_of_the_first_check_that_has_one_is_meant() -> None:
    checks = [check(""), check(f"{SERVER}/o/r/runs/7"), check(f"{SERVER}/o/r/actions/runs/12/job/34")]
    assert run_behind(SERVER, "o/r", checks) == 12


@pytest.mark.parametrize(
    "address",
    [
        f"{SERVER}/o/other/actions/runs/12/job/34",
        f"{SERVER}/o/rx/actions/runs/12/job/34",
        "https://evil.example/o/r/actions/runs/12/job/34",
        f"https://evil.example/?{SERVER}/o/r/actions/runs/12/job/34",
        f"{SERVER}/o/r/actions/runs/{'9' * 30}/job/34",
        f"{SERVER}/o/r/actions/runs/12",
    ],
)
def test_other_addresses_name_no_run_of_this_repository(address: str) -> None:
    assert run_behind(SERVER, "o/r", [check(address)]) == 0
