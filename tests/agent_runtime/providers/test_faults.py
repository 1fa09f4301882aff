"""Each class of answers and of failed connections, met by the vendors' own SDKs on a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from agent_runtime.core.errors import ModelError, ModelOutageError, ModelRejectedError, ModelUnreachableError
from agent_runtime.providers import sdk
from agent_runtime.providers.models import ModelOptions
from tests.agent_runtime.providers.answers import DEFINITE, OUTAGES, UNREADABLE
from tests.agent_runtime.providers.conversations import KEY, WIRES, Naps, ask, collect, conversation, provider_at
from tests.model_server import Breaks, ModelServer, Reply, Sends, Wire

pytestmark = pytest.mark.parametrize("wire", WIRES)


def options(naps: Naps | None = None) -> ModelOptions:
    return ModelOptions(silence=0.2, retry=(naps or Naps()).retry())


@pytest.mark.parametrize("answer", OUTAGES)
async def test_an_outage_is_retried_and_then_waited_for(
    wire: Wire, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ModelServer(replies=lambda _: OUTAGES[answer]) as server:
        with pytest.raises(ModelOutageError) as caught:
            await ask(server, wire, options=options())
    is_billed = isinstance(OUTAGES[answer], Breaks)
    assert len(server.requests) == (1 if "stalls before" in answer else 2 if is_billed else 3)
    assert len({request.body for request in server.requests}) == 1
    for private in ("127.0.0.1", "10.1.2.3", "corp.internal", "<", KEY):
        assert private not in str(caught.value)
    assert len(caplog.records) == 1
    assert server._url in caplog.text


@pytest.mark.parametrize("answer", OUTAGES)
async def test_a_reply_after_an_outage_counts(wire: Wire, answer: str) -> None:
    replies = [OUTAGES[answer], "All well."]
    async with ModelServer(replies=replies) as server:
        if "stalls before" in answer:
            with pytest.raises(ModelOutageError):
                await ask(server, wire, options=options())
        reply = await ask(server, wire, options=options())
    assert reply.text == "All well."


@pytest.mark.parametrize("answer", DEFINITE)
async def test_a_definite_answer_is_not_retried(wire: Wire, answer: str) -> None:
    reply, error = DEFINITE[answer]
    async with ModelServer(replies=lambda _: reply) as server:
        with pytest.raises(ModelError) as caught:
            await ask(server, wire, options=options())
    assert type(caught.value).__name__ == error
    assert len(server.requests) == 1


async def test_an_event_that_cannot_be_read_is_retried_and_then_definite(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    event = UNREADABLE[wire]
    name = "" if wire == "chat" else f"event: {event['type']}\n"
    bad = Sends(f"{name}data: {json.dumps(event)}\n\n".encode())
    async with ModelServer(replies=[bad, "All well.", *[bad] * 3]) as server:
        assert (await ask(server, wire, options=options())).text == "All well."
        with pytest.raises(ModelUnreachableError, match="cannot be read") as caught:
            await ask(server, wire, options=options())
    assert not isinstance(caught.value, ModelOutageError)
    assert "TypeError" in caplog.text
    assert "TypeError" not in str(caught.value)


async def test_a_document_that_is_no_error_is_definite(wire: Wire) -> None:
    document: Reply = Sends(json.dumps({"id": "1", "content": [], "choices": []}).encode(), "application/json")
    async with ModelServer(replies=[document] * 3) as server:
        with pytest.raises(ModelUnreachableError, match="in place of a stream") as caught:
            await ask(server, wire, options=options())
    assert not isinstance(caught.value, ModelOutageError)


@asynccontextmanager
async def _refusing() -> AsyncIterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def _resetting(scheme: str = "http") -> AsyncIterator[str]:
    def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with server:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def _without_tls() -> AsyncIterator[str]:
    async with ModelServer(replies=[]) as server:
        yield server._url.replace("http:", "https:")


@asynccontextmanager
async def _without_a_name() -> AsyncIterator[str]:
    yield "http://models.invalid"


@asynccontextmanager
async def _full() -> AsyncIterator[str]:
    """A port whose queue of connections is full: a further one gets no answer."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        with socket.socket() as first, socket.socket() as second:
            for waiting in (first, second):
                waiting.settimeout(0)
                waiting.connect_ex(address)
            yield f"http://127.0.0.1:{address[1]}"


@pytest.mark.parametrize(
    ("place", "words", "offline"),
    [
        pytest.param(_refusing, r"\(3 attempts\): its host refuses connections", True, id="refused"),
        pytest.param(_resetting, r"3 attempts; the last one: no connection \(ReadError\)", False, id="reset"),
        pytest.param(_without_tls, r"3 attempts; the last one: no connection \(ConnectError\)", False, id="no TLS"),
        pytest.param(_without_a_name, r"\(3 attempts\): the name of its host cannot be", True, id="no such name"),
        pytest.param(_full, r"\(1 attempt\): its host did not answer", True, id="connect time-out"),
    ],
)
async def test_a_failed_connection_is_an_outage(
    wire: Wire,
    place: Callable[[], AbstractAsyncContextManager[str]],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    offline: bool,
) -> None:
    monkeypatch.setattr(sdk, "_CONNECT_SECONDS", 0.2)
    async with place() as url:
        provider = provider_at(url, wire, options())
        with pytest.raises(ModelOutageError, match=words) as caught:
            await collect(provider.reply(conversation()))
        await provider.close()
    assert url.partition("//")[2] not in str(caught.value)
    assert caught.value.offline is offline


async def test_a_request_that_cannot_be_encoded_is_definite(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    async with ModelServer(replies=[]) as server:
        with pytest.raises(ModelRejectedError, match=r"could not be made \(UnicodeEncodeError\)"):
            await ask(server, wire, conversation(status="half a character: \ud800"), options=options())
    assert "UnicodeEncodeError" in caplog.text
