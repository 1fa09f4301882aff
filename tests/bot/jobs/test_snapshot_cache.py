"""What the greeter asked serves the worker that comes right after, once."""

from __future__ import annotations

from typing import Any, cast

from bot.jobs.snapshot_cache import FRESH_SECONDS, AccessChecks


def a_visit(name: str) -> Any:  # noqa: ANN401 - it is only handed on
    return cast("Any", name)


def test_it_is_given_out_once_and_only_while_it_is_fresh() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visit = a_visit("a")
    for job in ("a", "b"):
        visits.keep(job, visit)
    assert [visits.take("a") is visit, visits.take("a"), visits.take("c")] == [True, None, None]
    now += FRESH_SECONDS + 1
    assert visits.take("b") is None


def test_what_nobody_takes_is_not_kept() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visits.keep("a", a_visit("a"))
    now += FRESH_SECONDS + 1
    visits.keep("b", a_visit("b"))
    assert set(visits._kept) == {"b"}
