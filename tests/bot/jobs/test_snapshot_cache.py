"""What the greeter asked serves the worker that comes right after, once."""

from __future__ import annotations

from bot.github.client import GitHub
from bot.github.types import Snapshot
from bot.jobs.access import FRESH_SECONDS, AccessCheck, AccessChecks, PhaseReader
from tests.job_contexts import REPO

GITHUB = GitHub.for_token("a-token", "https://api.github.com", redact=str)


def an_access_check() -> AccessCheck:
    snapshot = Snapshot(repo=REPO, default_head="a" * 40)
    return AccessCheck(snapshot=snapshot, roles=("write",), reader=PhaseReader(GITHUB))


def test_it_is_given_out_once_and_only_while_it_is_fresh() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visit = an_access_check()
    for job in ("a", "b"):
        visits.keep(job, visit)
    assert [visits.take(job, GITHUB) for job in ("a", "a", "c")] == [visit, None, None]
    now += FRESH_SECONDS + 1
    assert visits.take("b", GITHUB) is None


def test_what_nobody_takes_is_not_kept() -> None:
    now = 100.0
    visits = AccessChecks(lambda: now)
    visits.keep("a", an_access_check())
    now += FRESH_SECONDS + 1
    visits.keep("b", an_access_check())
    assert set(visits._kept) == {"b"}
