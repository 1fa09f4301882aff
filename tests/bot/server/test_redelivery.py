"""Failed deliveries are redelivered: which, how far back, and by one receiver at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bot.domain.errors import QueueError
from bot.github.app import AppAccess, Attempt, open_deliveries
from bot.github.types import GitHubError, parse
from bot.queue.store import JobStore
from bot.server import redelivery
from bot.server.redelivery import (
    MAX_AGE_SECONDS,
    FileSweepTurns,
    PostgresSweepTurns,
    Redelivery,
    SweepState,
    failed_deliveries,
)
from localhub import App, LocalHub, WebhookDelivery
from tests.postgres import postgres_server, postgres_url
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

DEAD = "http://127.0.0.1:9/hook"


def an_attempt(number: int, guid: str, status: int, event: str = "issue_comment") -> Attempt:
    return Attempt(id=number, guid=guid, event=event, at=float(number), status=status)


@pytest.mark.parametrize(
    ("attempts", "ids"),
    [
        ([an_attempt(2, "b", 0), an_attempt(1, "a", 503)], [1, 2]),
        ([an_attempt(2, "a", 202), an_attempt(1, "a", 502)], []),
        ([an_attempt(2, "a", 502), an_attempt(1, "a", 0)], [2]),
        # What was refused was heard, and would be refused again.
        ([an_attempt(3, "c", 401), an_attempt(2, "b", 400), an_attempt(1, "a", 200)], []),
        ([an_attempt(1, "a", 0, event="push")], []),
    ],
)
def test_what_nobody_has_heard_is_wanted_oldest_first(attempts: list[Attempt], ids: list[int]) -> None:
    assert [each.id for each in failed_deliveries(attempts)] == ids


@dataclass(kw_only=True)
class Place:
    """A hub whose App's webhook leads nowhere."""

    hub: LocalHub
    app: App
    sweeps: FileSweepTurns
    clock: list[float] = field(default_factory=lambda: [time.time()])

    def another(self) -> Redelivery:
        """The sweeping part of another process."""
        app, hub = self.app, self.hub
        access = AppAccess(app_id=app.id, private_key=app.private_key_pem, api_url=hub.api_url)
        opened = partial(open_deliveries, access)
        return Redelivery(opened, self.sweeps, clock=lambda: self.clock[0])

    @cached_property
    def redelivery(self) -> Redelivery:
        """That of the first one."""
        return self.another()

    def failed(self, count: int, *, seconds_ago: float = 0.0, status: int = 0) -> list[str]:
        """Deliveries that were not heard; their GUIDs."""
        store = self.hub._site.store
        guids = [f"guid-{store.new_id()}" for _ in range(count)]
        for guid in guids:
            store.deliveries.put(
                WebhookDelivery(
                    id=store.new_id(),
                    guid=guid,
                    app_id=self.app.id,
                    event="issue_comment",
                    action="created",
                    installation_id=None,
                    repository_id=None,
                    delivered_at=self.hub._site.now().fromtimestamp(
                        self.clock[0] - seconds_ago, tz=self.hub._site.now().tzinfo
                    ),
                    redelivery=False,
                    url=DEAD,
                    request_headers={},
                    body=b"{}",
                    status="failed",
                    status_code=status,
                )
            )
        return guids

    def succeed(self) -> None:
        """Let everybody have heard what was delivered again."""
        for each in self.hub.deliveries:
            if each.redelivery:
                self.hub._site.store.deliveries.put(replace(each, status="OK", status_code=202))

    def again(self) -> list[str]:
        """What was delivered again."""
        return [each.guid for each in self.hub.deliveries if each.redelivery]


@pytest.fixture
def place(hub: LocalHub, tmp_path: Path) -> Place:
    app = hub.add_app("codepilot", webhook_url=DEAD, webhook_secret="s")
    return Place(hub=hub, app=app, sweeps=FileSweepTurns(tmp_path / "redelivery.lock"))


async def test_all_pages_are_looked_at_as_far_back_as_a_day_and_no_sweep_asks_for_more_than_its_share(
    place: Place,
) -> None:
    place.failed(2, seconds_ago=MAX_AGE_SECONDS + 1)
    wanted = place.failed(230, seconds_ago=3600)
    assert await place.redelivery.sweep() == 100
    assert place.again() == wanted[:100]
    place.succeed()
    place.clock[0] += 1800
    assert await place.redelivery.sweep() == 100
    assert place.again() == wanted[:200]


@pytest.mark.parametrize("odd", [{}, {"id": None}, None, "delivery"])
def test_a_list_that_nobody_can_read_is_an_error_of_githubs(odd: Any) -> None:  # noqa: ANN401 - parsed JSON
    with pytest.raises(GitHubError, match=r"Could not list the deliveries; .* an answer without a valid"):
        parse(Attempt, "list the deliveries", odd)


async def test_a_sweep_begins_where_the_one_before_began(place: Place) -> None:
    assert await place.redelivery.sweep() == 0
    place.failed(1, seconds_ago=3600)
    new = place.failed(1)
    place.clock[0] += 60
    assert await place.redelivery.sweep() == 1
    assert place.again() == new


async def test_a_sweep_that_fails_is_made_up_for(place: Place) -> None:
    place.failed(1, seconds_ago=3600)
    place.hub.faults.add("GET", "*/app/hook/deliveries", "rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await place.redelivery.sweep()
    assert await place.redelivery.sweep() == 1


async def test_what_is_never_heard_is_given_up_one_day(place: Place) -> None:
    place.failed(1)
    done = []
    for _ in range(20):
        done.append(await place.redelivery.sweep())
        place.hub._site.store.deliveries.put(replace(place.hub.deliveries[-1], status="failed"))
    assert done == [1] * 12 + [0] * 8


async def test_one_process_sweeps_at_a_time(place: Place) -> None:
    place.failed(1)
    async with place.sweeps.take() as held:
        assert held is not None
        assert await place.redelivery.sweep() == 0
    assert await place.redelivery.sweep() == 1


async def test_another_process_goes_on_where_the_last_one_ended_and_with_its_tries(place: Place) -> None:
    [old] = place.failed(1, seconds_ago=3600)
    for number in range(1, 13):
        assert await place.another().sweep() == 1
        async with place.sweeps.take() as turn:
            assert turn is not None
            assert turn.state == SweepState(at=place.clock[0], tries={old: number})
        place.hub._site.store.deliveries.put(replace(place.hub.deliveries[-1], status="failed"))
    assert await place.another().sweep() == 0


async def test_the_tries_of_a_sweep_that_fails_half_way_count(place: Place) -> None:
    place.failed(1)
    place.hub.faults.add("POST", "*/app/hook/deliveries/*/attempts", "rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await place.redelivery.sweep()
    async with place.sweeps.take() as turn:
        assert turn is not None
        assert (turn.state.at, list(turn.state.tries.values())) == (0.0, [1])


@pytest.mark.parametrize("content", ["", "{", '{"at": "x"}', "x" * 2_000_000])
async def test_of_what_an_older_version_or_a_power_cut_left_nothing_is_taken_for_seen(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "redelivery.lock"
    path.write_text(content)
    async with FileSweepTurns(path).take() as turn:
        assert turn is not None
        assert turn.state == SweepState()
        await turn.save(SweepState(at=5.0))
    async with FileSweepTurns(path).take() as turn:
        assert turn is not None
        assert turn.state == SweepState(at=5.0)


LEFT = SweepState(at=12.5, tries={"guid": 3})


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[tuple[JobStore, JobStore]]:
    """Those of two receivers."""
    both = JobStore(postgres_url), JobStore(postgres_url)
    yield both
    for store in both:
        await store.close()


async def test_one_receiver_has_the_turn_and_the_next_goes_on_where_it_was(stores: tuple[JobStore, JobStore]) -> None:
    first, second = map(PostgresSweepTurns, stores)
    async with first.take() as turn:
        assert turn is not None
        assert turn.state == SweepState()
        async with second.take() as none:
            assert none is None
        await turn.save(LEFT)
    async with second.take() as turn:
        assert turn is not None
        assert turn.state == LEFT


async def test_a_receiver_that_loses_its_connection_loses_the_turn(stores: tuple[JobStore, JobStore]) -> None:
    first, second = map(PostgresSweepTurns, stores)
    others = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid != pg_backend_pid()"
    )

    async def has_it() -> bool | None:
        async with second.take() as turn:
            return turn is not None or None

    async with first.take():
        await stores[1].run(lambda tx: tx.rows.execute(others).all())
        taken_over: bool = await eventually(has_it)
        assert taken_over


async def test_a_database_that_is_gone_is_named(postgres_url: str) -> None:
    store = JobStore(postgres_url)
    sweeps = PostgresSweepTurns(store)
    await store.close()
    store.engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(QueueError):
        async with sweeps.take():
            pass


async def test_what_fails_in_a_turn_is_not_taken_for_the_database(stores: tuple[JobStore, JobStore]) -> None:
    with pytest.raises(ConnectionResetError):
        async with PostgresSweepTurns(stores[0]).take():
            raise ConnectionResetError
    async with PostgresSweepTurns(stores[1]).take() as turn:
        assert turn is not None


async def test_the_connection_of_a_turn_that_is_cancelled_is_used_by_one_thread_at_a_time(
    stores: tuple[JobStore, JobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, end, begun, ended = redelivery._try_lock, redelivery._unlock, Event(), Event()
    ended_meanwhile = []

    def slow_begin(rows: Connection) -> bool:
        begun.set()
        ended_meanwhile.append(ended.wait(0.2))
        return begin(rows)

    def told_end(rows: Connection) -> None:
        ended.set()
        end(rows)

    monkeypatch.setattr(redelivery, "_try_lock", slow_begin)
    monkeypatch.setattr(redelivery, "_unlock", told_end)

    async def take() -> None:
        async with PostgresSweepTurns(stores[0]).take():
            pass

    taking = asyncio.create_task(take())
    await eventually(begun.is_set)
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert ended.is_set()
    assert ended_meanwhile == [False]
