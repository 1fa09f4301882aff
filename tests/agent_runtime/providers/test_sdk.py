from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_runtime.core.errors import ModelRejectedError
from agent_runtime.providers import sdk
from agent_runtime.providers.anthropic import AnthropicProvider
from agent_runtime.providers.faults import AttemptFailedError
from agent_runtime.providers.models import ModelOptions, Thinking
from agent_runtime.providers.sdk import read_timeout
from tests.agent_runtime.providers.conversations import WIRES, ask
from tests.model_server import ModelServer, Wire
from tests.model_wires import CHUNK_CHARS


@pytest.mark.parametrize(
    ("model", "options", "seconds"),
    [
        pytest.param("claude-sonnet-4-5", ModelOptions(), 300, id="of before models thought by themselves"),
        pytest.param("claude-sonnet-4-5", ModelOptions(thinking=Thinking()), 900, id="told to think"),
        pytest.param("claude-sonnet-5-5", ModelOptions(), 900, id="thinks by itself"),
        pytest.param("claude-sonnet-5-5", ModelOptions(thinking=Thinking(enabled=False)), 300, id="told not to"),
        pytest.param("gpt-4.1", ModelOptions(), 300, id="a plain one of OpenAI"),
        pytest.param("gpt-6.2-sol", ModelOptions(), 900, id="a reasoning one of OpenAI"),
        pytest.param("gpt-6.2-sol", ModelOptions(reasoning_effort="none"), 300, id="told not to reason"),
        pytest.param("a-model-of-ones-own", ModelOptions(), 900, id="one that nothing is known of"),
        pytest.param("claude-opus-5-5", ModelOptions(silence=42.0), 42, id="as the caller says"),
    ],
)
def test_a_model_that_may_think_is_given_more_time(model: str, options: ModelOptions, seconds: float) -> None:
    assert read_timeout(model, options) == seconds


@pytest.mark.parametrize("wire", WIRES)
async def test_other_tasks_get_their_turn_between_the_events_of_a_reply(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "_MAX_WORK_SECONDS", 0)
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


async def test_certificates_that_cannot_be_loaded_are_no_outage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    sdk._ssl_context.cache_clear()
    async with ModelServer(replies=[]) as server:
        with pytest.raises(ModelRejectedError, match="SSL_CERT_FILE"):
            await ask(server, "anthropic")


async def test_only_the_beginning_of_a_document_in_place_of_a_stream_is_read() -> None:
    pieces = iter([b"<" * 1000] * 1000)

    async def aiter_bytes() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    response = SimpleNamespace(headers={"content-type": "text/html"}, aiter_bytes=aiter_bytes)
    with pytest.raises(AttemptFailedError, match="a page"):
        await AnthropicProvider(api_key="key")._require_stream(response)
    assert len(list(pieces)) > 900
