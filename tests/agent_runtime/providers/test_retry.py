from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from agent_runtime.errors import ModelUnreachableError, SettingsError
from agent_runtime.outcome import Usage
from agent_runtime.providers.faults import BrokenOffError, Failure, Service, retry_after, verdict
from agent_runtime.providers.protocol import ReplyEnd, ReplyStart, TextChunk
from agent_runtime.providers.retry import Retry
from tests.agent_runtime.providers.conversations import Naps

SERVICE = Service(name="A service", model="m", url="https://user:secret@example.org:8443/v1?q=1", key_variable="A_KEY")
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_waits_double_up_to_a_bound() -> None:
    retry = Retry(chance=lambda: 1.0, longest_wait=10.0)
    assert [retry.wait(attempt, None) for attempt in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 10, 10]


def test_waits_are_spread_by_chance() -> None:
    assert Retry(chance=lambda: 0.0).wait(3, None) == 2.0
    assert Retry(chance=lambda: 0.5).wait(3, None) == 3.0


def test_a_services_wish_is_never_undercut_but_bounded() -> None:
    retry = Retry(chance=lambda: 1.0)
    assert retry.wait(1, 45.0) == 45.0
    assert retry.wait(4, 0.5) == 8.0
    assert retry.wait(1, 86_400.0) == 120.0


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(SettingsError, match="attempts is 0"):
        Retry(attempts=0)


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
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOON) == seconds


def test_an_address_is_shown_without_credentials_and_query() -> None:
    assert SERVICE.place == "https://example.org:8443/v1"
    text = str(verdict(Failure(status=404), SERVICE))
    assert "https://example.org:8443/v1" in text
    assert "secret" not in text


def test_long_words_of_a_service_are_cut() -> None:
    assert len(str(verdict(Failure(status=500, message="x" * 100_000), SERVICE))) < 500


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
        raise BrokenOffError("it broke")

    with pytest.raises(ModelUnreachableError, match="3 attempts; the last one: it broke"):
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
        ReplyStart(attempt=2),
        TextChunk(text="whole"),
        ReplyEnd(stop="stop", usage=Usage(requests=1)),
    ]
