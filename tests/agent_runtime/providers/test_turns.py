"""A reply that arrives all at once does not keep the event loop from everything else."""

from __future__ import annotations

import asyncio

import pytest

from agent_runtime.providers import sdk
from tests.agent_runtime.providers.conversations import WIRES, ask
from tests.model_server import ModelServer, Wire
from tests.model_wires import CHUNK_CHARS


@pytest.mark.parametrize("wire", WIRES)
async def test_other_tasks_get_their_turn_between_the_events_of_a_reply(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "_TURN_SECONDS", 0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    words = "word " * 2000
    async with ModelServer(replies=[words]) as server:
        running = asyncio.create_task(other())
        reply = await ask(server, wire)
        running.cancel()
    assert reply.text == words
    assert turns > len(words) // CHUNK_CHARS
