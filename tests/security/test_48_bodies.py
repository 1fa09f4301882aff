"""Threat 48: large, deep, compressed and slow bodies are refused early, in bounded memory."""

from __future__ import annotations

import asyncio
import gzip
import io
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import aiohttp
import pytest

from bot.queue.memory import InMemoryEngine
from bot.server.webhook import MAX_BODY_BYTES
from tests.builders import a_comment_event, a_request, signature
from tests.source_files import ROOT
from tests.webhook_receiver import Receiver, receiving


@pytest.fixture
def queue() -> InMemoryEngine:
    return InMemoryEngine()


async def _raw(receiver: Receiver, head: str, body: bytes = b"", *, hang_up: bool = False) -> tuple[int, str]:
    """Send a raw request; return status code and body, or 0 without a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
    try:
        writer.write(f"POST /webhook HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + body)
        await writer.drain()
        if hang_up:
            writer.write_eof()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        size = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:"))
        return int(lines[0].split()[1]), (await reader.readexactly(size)).decode()
    except asyncio.IncompleteReadError:
        return 0, ""
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_body_that_says_it_is_too_large_is_refused_before_a_byte_is_read(queue: InMemoryEngine) -> None:
    async with receiving(queue) as receiver:
        status, answer = await _raw(receiver, f"Content-Length: {MAX_BODY_BYTES + 1}")
    assert status == 413
    assert "26,214,400 bytes" in answer


async def test_a_body_of_unsaid_length_is_refused(queue: InMemoryEngine) -> None:
    async with receiving(queue) as receiver:
        status, _ = await _raw(receiver, "Transfer-Encoding: chunked", b"5\r\nhello\r\n")
    assert status == 411


async def test_no_more_than_the_content_length_is_read(queue: InMemoryEngine) -> None:
    headers, body = a_request(a_comment_event())
    async with receiving(queue, max_body_bytes=len(body)) as receiver:
        assert (await receiver.post(headers, body))[0] == 202
        assert (await receiver.post(headers, body + b" "))[0] == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
async def test_compressed_bodies_are_refused_and_never_unpacked(queue: InMemoryEngine, encoding: str) -> None:
    bomb = gzip.compress(b"[" * 50_000_000)
    headers, _ = a_request({})
    signed = {**headers, "Content-Encoding": encoding, "X-Hub-Signature-256": signature(bomb)}
    async with receiving(queue) as receiver:
        status, answer = await receiver.post(signed, bomb)
    assert (status, answer["status"]) == (415, "refused")


async def test_a_slow_body_is_given_up(queue: InMemoryEngine) -> None:
    async with receiving(queue, read_seconds=0.05) as receiver:
        status, _ = await _raw(receiver, "Content-Length: 100", b"{")
    assert status == 408


async def test_a_body_that_breaks_off_is_refused(queue: InMemoryEngine) -> None:
    async with receiving(queue) as receiver:
        status, _ = await _raw(receiver, "Content-Length: 100", b"{", hang_up=True)
        assert status in {0, 400}
        assert (await receiver.post(*a_request(a_comment_event())))[0] == 202


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[" * 1_000_000 + b"]" * 1_000_000, 400),
        (b'{"comment":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 200),  # no trigger reads this member
    ],
    ids=["list", "in a member", "in another member"],
)
async def test_deep_json_is_not_read_and_harms_nobody(queue: InMemoryEngine, body: bytes, expected: int) -> None:
    headers, _ = a_request({})
    async with receiving(queue) as receiver:
        status, answer = await receiver.post({**headers, "X-Hub-Signature-256": signature(body)}, body)
        assert (status, "nested" in answer["reason"]) == (expected, expected != 200)
        assert (await receiver.post(*a_request(a_comment_event())))[0] == 202


async def test_large_bodies_that_never_end_fill_no_memory_and_keep_no_ordinary_one_out(queue: InMemoryEngine) -> None:
    lines = f"Content-Length: {MAX_BODY_BYTES}\r\nX-Hub-Signature-256: sha256={'0' * 64}"
    head = f"POST /webhook HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n".encode()
    async with receiving(queue) as receiver:
        hogs = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
            writer.write(head + b"x" * 1000)
            await writer.drain()
            hogs.append((reader, writer))
        status, answer = await _raw(receiver, lines)
        assert status == 503, answer
        assert (await receiver.post(*a_request(a_comment_event())))[0] == 202
        for _, writer in hogs:
            writer.close()
            await writer.wait_closed()


async def test_numbers_and_names_of_any_size_do_no_harm(queue: InMemoryEngine) -> None:
    async with receiving(queue) as receiver:
        for path in ("comment__id", "repository__id", "issue__number", "sender__id"):
            for number in (10**4000, 2**63, -1, 0):
                status, answer = await receiver.post(*a_request(a_comment_event(**{path: number})))
                assert (status, answer["status"]) == (200, "ignored"), answer
                assert path.replace("__", ".") in answer["reason"]


_SERVER = """
import asyncio, sys
from pathlib import Path
from aiohttp import web
from bot.queue.memory import InMemoryEngine
from bot.server.webhook import make_app, make_runner
from tests.webhook_receiver import webhook_options

async def main():
    folder = Path(sys.argv[1])
    runner = make_runner(make_app(webhook_options(folder=folder), InMemoryEngine()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_large_deliveries_at_once_take_next_to_no_memory_here(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, tmp_path, cwd=ROOT, stdout=PIPE, stderr=DEVNULL
    )
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}/webhook"
        rows = [f"line {number} of many" for number in range(1_000_000)]
        requests = [a_request({**a_comment_event(comment__id=n), "rows": rows}, delivery_id=f"d{n}") for n in (1, 2, 3)]
        before = _most_memory(process.pid)
        async with aiohttp.ClientSession() as client:

            async def post(headers: dict[str, str], body: bytes) -> int:
                async with client.post(url, data=io.BytesIO(body), headers=headers) as answer:
                    return answer.status

            assert await asyncio.gather(*(post(*each) for each in requests)) == [202] * 3
        assert _most_memory(process.pid) - before < 48 * 1024**2
    finally:
        process.kill()
        await process.wait()


def _most_memory(pid: int) -> int:
    """Peak memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
