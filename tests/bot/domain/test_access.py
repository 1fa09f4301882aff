"""The values that decisions rest on."""

from __future__ import annotations

from typing import get_args

from bot.domain.access import Caps, Role, Tally, can_command


def test_three_roles_may_command() -> None:
    assert {role for role in get_args(Role) if can_command(role)} == {"admin", "maintain", "write"}


def test_everything_that_is_counted_has_a_most() -> None:
    assert Tally.__slots__ == Caps.__slots__
