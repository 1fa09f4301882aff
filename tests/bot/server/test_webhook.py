"""Deliveries, large ones among them, and the endpoints for monitoring."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr
from typing_extensions import override

from bot.domain.access import BotProfile, TrustedBots
from bot.domain.errors import ConfigError, QueueError
from bot.domain.job import JobState
from bot.queue.deliveries import read_delivery
from bot.queue.engine import DurableEngine
from bot.queue.memory import InMemoryEngine
from bot.queue.store import JobStore
from bot.server import webhook
from bot.server.webhook import MAX_LINES, Endpoints, StrangerLogFilter
from tests.builders import a_comment_event, a_request, signature
from tests.held_jobs import HeldJobs
from tests.logged import logged
from tests.webhook_receiver import Receiver, receiving, webhook_options


@pytest.fixture
def queue() -> InMemoryEngine:
    return InMemoryEngine()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JobStore]:
    """For what happens to a database."""
    store = JobStore(f"sqlite:///{tmp_path / 'queue.sqlite'}")
    yield store
    await store.close()


@pytest.fixture
async def receiver(queue: InMemoryEngine) -> AsyncIterator[Receiver]:
    async with receiving(queue) as listening:
        yield listening


async def test_a_command_is_stored_then_acknowledged(receiver: Receiver, queue: InMemoryEngine) -> None:
    status, answer = await receiver.post(*a_request(a_comment_event()))
    assert (status, answer["status"]) == (202, "accepted")
    stored = await queue.get(answer["job"])
    assert stored is not None
    assert (stored.state, stored.job.delivery_id) == (JobState.QUEUED, "72d3162e-cc78-11e3-81ab-4c9367dc0958")


async def test_the_same_delivery_again_is_a_duplicate(receiver: Receiver) -> None:
    _, first = await receiver.post(*a_request(a_comment_event()))
    status, again = await receiver.post(*a_request(a_comment_event()))
    assert (status, again) == (200, {"status": "duplicate", "job": first["job"]})


async def test_what_asks_for_nothing_is_ignored_with_the_reason(receiver: Receiver) -> None:
    status, answer = await receiver.post(*a_request(a_comment_event("Thanks!")))
    assert (status, answer["status"]) == (200, "ignored")
    assert "no command" in answer["reason"]
    headers, body = a_request({"zen": "Keep it logically awesome."})
    status, answer = await receiver.post({**headers, "X-GitHub-Event": "ping"}, body)
    assert (status, answer["status"]) == (200, "ignored")


async def test_own_and_trusted_ids_reach_the_trigger(queue: InMemoryEngine) -> None:
    by_bot = a_comment_event(sender__type="Bot")
    async with receiving(queue, trusted_bots=TrustedBots(ids=frozenset({20}))) as receiver:
        assert (await receiver.post(*a_request(by_bot)))[0] == 202
    async with receiving(queue, own_ids=frozenset({20})) as receiver:
        assert "own" in (await receiver.post(*a_request(by_bot)))[1]["reason"]


async def test_work_waits_for_its_greeting_and_a_word_to_other_jobs_waits_for_nothing(queue: InMemoryEngine) -> None:
    async with receiving(queue, held_seconds=3600.0) as receiver:
        _, work = await receiver.post(*a_request(a_comment_event("/codepilot fix", comment__id=1), delivery_id="1"))
        _, word = await receiver.post(*a_request(a_comment_event("/codepilot stop", comment__id=2), delivery_id="2"))
    jobs = HeldJobs(queue)
    assert await jobs.begin() is None
    assert await jobs.begin("steer") == word["job"] != work["job"]


async def test_a_large_genuine_delivery_is_taken(receiver: Receiver) -> None:
    status, _ = await receiver.post(*a_request(a_comment_event(issue__body="x" * 2_000_000)))
    assert status == 202


async def test_when_the_job_cannot_be_stored_github_is_told_to_try_again(
    store: JobStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    only_readable(store, yes=True)
    async with receiving(DurableEngine(store)) as receiver:
        status, answer = await receiver.post(*a_request(a_comment_event()))
    assert (status, answer["status"]) == (503, "failed")
    assert str(tmp_path) not in answer["reason"]
    assert str(tmp_path) in caplog.text


async def test_every_line_of_the_log_carries_the_delivery(receiver: Receiver) -> None:
    with logged() as log:
        for body in ("/codepilot fix", "/codepilot fix", "Thanks!"):
            await receiver.post(*a_request(a_comment_event(body), delivery_id="abc-1"))
        headers, raw = a_request([], delivery_id="abc-1")
        await receiver.post(headers, raw)
        await receiver.post({**headers, "X-Hub-Signature-256": "x"}, raw)
    lines = log.lines("bot.server.webhook")
    assert [line["delivery"] for line in lines] == ["abc-1"] * 5
    accepted, duplicate, *others = lines
    assert accepted["job"] == duplicate["job"]
    assert (accepted["repository"], accepted["repository_id"], accepted["thread"]) == ("octo/calc", 10, 7)
    assert not any("job" in line for line in others)


async def test_an_unproven_id_cannot_forge_a_log_line(receiver: Receiver) -> None:
    with logged() as log:
        await receiver.post({"X-GitHub-Delivery": "x y: accepted"}, b"{}")
    [line] = log.lines("bot.server.webhook")
    assert line["delivery"] == "-"
    assert line["message"].startswith("refused (401)")


def only_readable(store: JobStore, *, yes: bool) -> None:
    """Have the store's one connection refuse what writes, or take it again."""
    with closing(store.engine.raw_connection()) as connection:
        connection.cursor().execute(f"PRAGMA query_only = {yes:d}")


async def health(receiver: Receiver) -> int:
    async with receiver.client.get(f"http://127.0.0.1:{receiver.port}/readyz") as answer:
        assert await answer.json() == {"status": "ok" if answer.status == 200 else "failed"}
        return answer.status


async def test_the_bot_is_healthy_while_jobs_can_be_written(store: JobStore) -> None:
    async with receiving(DurableEngine(store), checked_seconds=0.0) as receiver:
        for readable, status in ((False, 200), (True, 503), (False, 200)):
            only_readable(store, yes=readable)
            assert await health(receiver) == status


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_nothing_is_accepted_into_a_file_that_nobody_will_open_again(
    store: JobStore, tmp_path: Path, how: str
) -> None:
    async with receiving(DurableEngine(store), checked_seconds=0.0) as receiver:
        (tmp_path / "queue.sqlite").rename(tmp_path / "away")
        if how == "replaced":
            (tmp_path / "queue.sqlite").touch()
        assert await health(receiver) == 503
        assert (await receiver.post(*a_request(a_comment_event())))[0] == 503


async def test_health_is_asked_of_the_disk_once_in_a_while_however_many_ask(store: JobStore) -> None:
    async with receiving(DurableEngine(store), checked_seconds=3600.0) as receiver:
        assert await health(receiver) == 200
        only_readable(store, yes=True)
        assert [await health(receiver) for _ in range(5)] == [200] * 5


@pytest.mark.parametrize("size", [0, 1_000_000])
@pytest.mark.parametrize("target", ["repository", "organization", None])
async def test_what_another_webhook_than_the_apps_sends_is_refused_with_the_remedy(
    receiver: Receiver, target: str | None, size: int
) -> None:
    payload = a_comment_event(issue__body="x" * size)
    del payload["installation"]
    headers, body = a_request(payload)
    if target:
        headers["X-GitHub-Hook-Installation-Target-Type"] = target
    status, answer = await receiver.post(headers, body)
    assert (status, answer["status"]) == (400, "refused")
    assert "App's webhook" in answer["reason"]
    assert "delete this webhook" in answer["reason"]


def deliveries_in(folder: Path) -> list[Path]:
    return list(folder.glob("delivery-*"))


async def test_a_large_delivery_that_nobody_listens_to_is_ignored_and_leaves_nothing(
    queue: InMemoryEngine, tmp_path: Path
) -> None:
    async with receiving(queue, folder=tmp_path) as receiver:
        # Not even parsed.
        body = b"[" * 1_000_000
        headers = {**a_request({}, event="push")[0], "X-Hub-Signature-256": signature(body)}
        status, answer = await receiver.post(headers, body)
        assert (status, answer["status"]) == (200, "ignored")
        assert (await receiver.post(*a_request(a_comment_event(issue__body="x" * 1_000_000))))[0] == 202
    assert deliveries_in(tmp_path) == []


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /webhook HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
    ],
)
async def test_what_is_no_http_costs_one_line_of_the_log_at_most(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
    writer.write(request_)
    writer.write_eof()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    assert len(caplog.text.splitlines()) <= 1
    assert "Traceback" not in caplog.text


async def test_strangers_write_a_few_lines_a_minute_and_how_many_they_were(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MAX_LINES + 5):
        await receiver.post({}, b"{}")
    assert len(caplog.records) == MAX_LINES
    await receiver.post(*a_request(a_comment_event()))  # ours are written all the same
    clock = [0.0]
    sparing, made = StrangerLogFilter(lambda: clock[0]), []
    for second in range(70):
        clock[0] = float(second)
        record = logging.makeLogRecord({"msg": "refused", "stranger": True})
        made += [record.getMessage()] if sparing.filter(record) else []
    assert made == ["refused"] * MAX_LINES + ["refused (40 similar lines were omitted)"] + ["refused"] * 9


async def test_many_comments_at_once_are_all_stored_once(receiver: Receiver, queue: InMemoryEngine) -> None:
    requests = [a_request(a_comment_event(comment__id=1 + n % 100), delivery_id=f"d{n}") for n in range(200)]
    answers = await asyncio.gather(*(receiver.post(*request) for request in requests))
    assert sorted(status for status, _ in answers) == [200] * 100 + [202] * 100
    assert (await queue.counts())[JobState.QUEUED] == 100


def test_a_door_without_a_secret_is_not_made() -> None:
    with pytest.raises(ConfigError, match="CODEPILOT_WEBHOOK_SECRET"):
        webhook_options(secret=SecretStr(""))


TOKEN = "a-token-of-the-test"


class _Broken(InMemoryEngine):
    """An engine whose database is gone."""

    checks = 0

    @override
    async def check(self) -> None:
        self.checks += 1
        raise QueueError("the database is gone")


@asynccontextmanager
async def _metrics_client(
    *,
    token: str | None,
    private: bool,
    engine: InMemoryEngine | None = None,
    draining: bool = False,
    checked_seconds: float = 1.0,
) -> AsyncIterator[aiohttp.ClientSession]:
    async def metrics() -> bytes:
        return b"codepilot_jobs 1\n"

    app, secret = web.Application(), SecretStr(token) if token else None
    Endpoints(
        engine or InMemoryEngine(),
        metrics,
        token=secret,
        private=private,
        draining=lambda: draining,
        checked_seconds=checked_seconds,
    ).mount(app)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("private", [True, False], ids=["port for metrics", "receiver"])
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff"])
async def test_without_the_token_nobody_reads_the_metrics(authorization: str | None, *, private: bool) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    async with (
        _metrics_client(token=TOKEN, private=private) as client,
        client.get("/metrics", headers=headers) as answer,
    ):
        assert answer.status == 401
        assert "codepilot_jobs" not in await answer.text()


@pytest.mark.parametrize("private", [True, False], ids=["port for metrics", "receiver"])
async def test_who_shows_the_token_reads_the_metrics(*, private: bool) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        _metrics_client(token=TOKEN, private=private) as client,
        client.get("/metrics", headers=headers) as answer,
    ):
        assert (answer.status, await answer.text()) == (200, "codepilot_jobs 1\n")


async def test_without_a_token_this_machine_reads_them_on_the_port_for_them() -> None:
    async with _metrics_client(token=None, private=True) as client, client.get("/metrics") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
async def test_without_a_token_no_client_of_a_proxy_reads_them_on_the_port_for_them(name: str) -> None:
    headers = {name: "127.0.0.1"}
    async with _metrics_client(token=None, private=True) as client, client.get("/metrics", headers=headers) as answer:
        assert answer.status == 403


async def test_without_a_token_a_proxy_on_this_machine_gets_none_and_is_told_the_remedy() -> None:
    async with _metrics_client(token=None, private=False) as client, client.get("/metrics") as answer:
        assert answer.status == 403
        assert "CODEPILOT_METRICS_TOKEN" in (await answer.json())["reason"]


async def test_a_database_that_is_gone_makes_the_bot_not_ready_and_is_no_reason_to_restart_it() -> None:
    async with _metrics_client(token=None, private=False, engine=_Broken()) as client:
        async with client.get("/readyz") as answer:
            assert answer.status == 503
        async with client.get("/healthz") as answer:
            assert answer.status == 200


async def test_a_database_that_is_gone_is_asked_once_in_a_while_however_many_ask() -> None:
    engine = _Broken()
    async with _metrics_client(token=None, private=False, engine=engine, checked_seconds=3600.0) as client:
        answers = [(await client.get("/readyz")).status for _ in range(5)]
    assert answers == [503] * 5
    assert engine.checks == 1


async def test_a_process_that_is_about_to_stop_is_not_ready_but_healthy() -> None:
    async with _metrics_client(token=None, private=True, draining=True) as client:
        answers = {path: (await client.get(path)).status for path in ("/healthz", "/readyz")}
    assert answers == {"/healthz": 200, "/readyz": 503}


HEADERS = {"Content-Type": "application/json", "X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": "guid-1"}


async def test_a_delivery_that_a_busy_machine_cannot_read_in_time_is_not_refused_for_good(tmp_path: Path) -> None:
    path = tmp_path / "delivery"
    path.write_bytes(b'{"comment": [' + b"{}," * 200_000 + b"{}]}")
    # The webhook answers 503 to it, as to any other `OSError`, and has GitHub deliver it again later.
    with pytest.raises(TimeoutError):
        await read_delivery(path, HEADERS, BotProfile(), seconds=0.01)


def test_a_delivery_that_is_gone_before_it_is_swept_keeps_nothing_from_starting(tmp_path: Path) -> None:
    left = tmp_path / "delivery-left"
    left.touch()
    os.utime(left, (0, 0))
    (tmp_path / "delivery-gone").symlink_to("nowhere")  # listed, and not there when it is looked at
    webhook.sweep_deliveries(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["delivery-gone"]
