from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from agent_runtime.core.errors import ModelOutageError, ModelUnreachableError, SettingsError
from agent_runtime.core.values import Usage
from agent_runtime.providers import retry
from agent_runtime.providers.faults import (
    AttemptFailedError,
    ModelService,
    classify,
    parse_retry_after,
)
from agent_runtime.providers.protocol import ReplyEnd, ReplyFault, ReplyStart, TextChunk
from agent_runtime.providers.retry import RetryPolicy
from tests.agent_runtime.providers.conversations import Collected, Naps, collect

SERVICE = ModelService(
    name="A service", model="m", url="https://user:secret@example.org:8443/v1?q=1", key_variable="A_KEY"
)
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_waits_double_up_to_a_bound() -> None:
    retry = RetryPolicy(chance=lambda: 1.0, longest_wait=10.0)
    assert [retry.wait(attempt, None) for attempt in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 10, 10]


def test_waits_are_spread_by_chance() -> None:
    assert RetryPolicy(chance=lambda: 0.0).wait(3, None) == 2.0
    assert RetryPolicy(chance=lambda: 0.5).wait(3, None) == 3.0


def test_a_services_wish_is_never_undercut() -> None:
    retry = RetryPolicy(chance=lambda: 1.0)
    assert retry.wait(1, 45.0) == 45.0
    assert retry.wait(4, 0.5) == 8.0


async def test_a_service_that_asks_for_a_long_pause_is_not_asked_again() -> None:
    naps, asked = Naps(), 0

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        nonlocal asked
        asked += 1
        if asked > 1:
            yield TextChunk(text="never")
        raise AttemptFailedError("HTTP 429", retry_after=3600.0)

    with pytest.raises(ModelOutageError, match=r"1 attempt;.*HTTP 429") as caught:
        [chunk async for chunk in naps.retry().run(attempt, SERVICE)]
    assert (caught.value.retry_after, asked, naps.seconds) == (3600.0, 1, [])


@pytest.mark.parametrize(
    ("faults", "kind", "asked"),
    [
        pytest.param(["down"] * 3, ModelOutageError, 3, id="down"),
        pytest.param(["broken", "down", "down"], ModelOutageError, 3, id="broke off, then down"),
        pytest.param(["broken"] * 3, ModelOutageError, 2, id="breaks off every time"),
        pytest.param(["stalled", "stalled"], ModelOutageError, 2, id="silent in its text twice"),
        pytest.param(["stalled", "down", "stalled"], ModelOutageError, 3, id="silent in its text, down, again"),
        pytest.param(["silent"], ModelOutageError, 1, id="silent before its text: it may think still"),
        pytest.param(["down", "silent"], ModelOutageError, 2, id="down, then silent"),
        pytest.param(["unreadable"] * 3, ModelUnreachableError, 3, id="unreadable every time"),
        pytest.param(["unreadable", "down", "down"], ModelOutageError, 3, id="unreadable, then down"),
    ],
)
async def test_billed_failures_are_retried_few_times_and_unreadable_replies_are_no_outage(
    faults: list[str], kind: type[Exception], asked: int
) -> None:
    left = iter(faults)
    made = {
        "down": AttemptFailedError("HTTP 503"),
        "unreadable": AttemptFailedError("an odd event", unreadable=True),
        "broken": AttemptFailedError("it broke", billed=True),
        "silent": AttemptFailedError("no answer in time", silent=True),
        "stalled": AttemptFailedError("no answer in time", silent=True),
    }

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        if (fault := next(left)) == "stalled":
            yield TextChunk(text="half of")
        raise made[fault]

    reply = Collected()
    with pytest.raises(kind) as caught:
        await collect(Naps().retry().run(attempt, SERVICE), reply)
    assert type(caught.value) is kind
    told = reply.faults
    assert [fault.billed for fault in told] == [each in {"broken", "silent", "stalled"} for each in faults[:asked]]
    assert len(told) == asked
    assert told[-1].wait is None


async def test_a_stream_that_goes_on_after_the_end_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_DRAIN_SECONDS", 0.01)

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        yield TextChunk(text="whole")
        yield ReplyEnd(stop="stop", usage=Usage(requests=1))
        await asyncio.Event().wait()

    chunks = [chunk async for chunk in Naps().retry().run(attempt, SERVICE)]
    assert chunks[-1] == ReplyEnd(stop="stop", usage=Usage(requests=1))


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(SettingsError, match="attempts is 0"):
        RetryPolicy(attempts=0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "Sat, 21 Nov 99999999999999 12:00:30 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 +99999999999999"}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, now=NOON) == seconds


@pytest.mark.parametrize(
    "address",
    [
        "http://10.1.2.3:4000/v1",
        "10.1.2.3",
        "[fd00::1]:443",
        "localhost:8000",
        "http://gate.models.svc.cluster.local/v1",
        "example.org",
        "https://example.org:8443/v1/models?key=1",
        "HTTPS://EXAMPLE.ORG:8443/v1",
    ],
)
def test_internal_addresses_are_for_the_log_only(address: str) -> None:
    assert SERVICE.address == "https://example.org:8443/v1"
    for status in (400, 404, 500):
        text = str(classify(AttemptFailedError(f"Cannot connect to {address}: refused", status=status), SERVICE))
        assert "Cannot connect to [address]" in text
        assert address not in text


def test_long_words_of_a_service_are_cut() -> None:
    assert len(str(classify(AttemptFailedError("x" * 100_000, status=500), SERVICE))) < 500


async def test_a_bug_is_not_retried() -> None:
    calls = 0

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        nonlocal calls
        calls += 1
        yield TextChunk(text="a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        [chunk async for chunk in Naps().retry().run(attempt, SERVICE)]
    assert calls == 1


async def test_nothing_is_slept_after_the_last_attempt() -> None:
    naps = Naps()

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        if naps.seconds == [-1.0]:
            yield TextChunk(text="never")
        raise AttemptFailedError("it broke")

    with pytest.raises(ModelUnreachableError, match=r"3 attempts;.*it broke"):
        [chunk async for chunk in naps.retry().run(attempt, SERVICE)]
    assert naps.seconds == [1.0, 2.0]


async def test_every_attempt_is_announced() -> None:
    texts = iter(["broken", "whole"])

    async def attempt() -> AsyncGenerator[TextChunk | ReplyEnd]:
        text = next(texts)
        yield TextChunk(text=text)
        if text == "whole":
            yield ReplyEnd(stop="stop", usage=Usage(requests=1))

    chunks = [chunk async for chunk in Naps().retry().run(attempt, SERVICE)]
    assert chunks == [
        ReplyStart(attempt=1),
        TextChunk(text="broken"),
        ReplyFault(reason="the stream ended before the reply was complete", billed=True, wait=1.0),
        ReplyStart(attempt=2),
        TextChunk(text="whole"),
        ReplyEnd(stop="stop", usage=Usage(requests=1)),
    ]
