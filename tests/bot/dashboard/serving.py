"""A dashboard on a database and a port of its own, with sessions and patches that the test gives."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from agent_runtime import Event, Usage
from bot.dashboard.app import Dashboard, LivePages
from bot.dashboard.auth import People, Proxies, SignIns
from bot.dashboard.views import DashboardReader
from bot.domain.job import Job
from bot.github.app import OAuthClient
from bot.jobs.context import JobServices
from bot.publishing.redact import Redactor
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableSpending
from bot.queue.protocols import BudgetRequest
from bot.queue.store import JobStore
from tests.clocks import Clock

TOKEN = "the-token-of-the-dashboard"
SECRET = "the-secret-of-the-operator"


@dataclass(slots=True, kw_only=True)
class Served:
    """A dashboard with its stores and a client.

    Attributes:
        engine: has the jobs.
        spending: has their costs.
        client: keeps cookies, and follows no redirect.
        sign_ins: the sessions of signed-in people.
        clock: of the sign-ins.
        events: the session of every job.
        patch: the patch of every job.
    """

    engine: DurableEngine
    spending: DurableSpending
    client: aiohttp.ClientSession
    sign_ins: SignIns
    clock: Clock
    events: list[Event] = field(default_factory=list)
    patch: str = ""

    async def get(self, path: str = "", **options: Any) -> tuple[int, str, aiohttp.ClientResponse]:  # noqa: ANN401 - aiohttp's
        async with self.client.get(f"/dashboard{path}", allow_redirects=False, **options) as answer:
            return answer.status, await answer.text(), answer

    async def post(self, path: str, **form: str) -> tuple[int, str, aiohttp.ClientResponse]:
        async with self.client.post(f"/dashboard{path}", allow_redirects=False, data=form) as answer:
            return answer.status, await answer.text(), answer

    async def spend(self, job: Job, cost: float | None, *, verb: str = "fix", labels: tuple[str, ...] = ()) -> None:
        """Store the cost of a run."""
        usage = Usage(requests=1, output_tokens=1_000, cost_usd=cost)
        await self.spending.reserve(BudgetRequest(job=job, verb=verb, labels=labels, budget_usd=None))
        await self.spending.settle(job, usage)

    def cookie(self, name: str) -> str:
        """The value of a cookie that was set; empty without one."""
        return next((each.value for each in self.client.cookie_jar if each.key == name), "")

    async def sign_in(self, token: str = TOKEN, **form: str) -> tuple[int, str, aiohttp.ClientResponse]:
        """Fill in the form, as a person does."""
        await self.get("/sign-in")
        return await self.post("/sign-in", token=token, **{"form": self.cookie("codepilot_dashboard_form"), **form})


@asynccontextmanager
async def served(
    folder: Path, *, token: str | None = TOKEN, directory: object | None = None, proxies: Proxies = ()
) -> AsyncIterator[Served]:
    store, clock = JobStore(f"sqlite:///{folder / 'jobs.sqlite'}"), Clock()
    clock.now = time.time()
    engine, spending = DurableEngine(store), DurableSpending(store)
    sign_ins = SignIns(b"k" * 32, SecretStr(token) if token else None, clock=clock)
    app = web.Application()
    jar = aiohttp.CookieJar(unsafe=True)  # for an address in digits
    runner = web.AppRunner(app, shutdown_timeout=5.0)
    site: list[Served] = []
    services = SimpleNamespace(
        server_url="https://github.com",
        redactor=Redactor([SECRET]),
        strip_local_paths=lambda text: text,
        session_events=lambda _job: site[0].events,
        sessions=SimpleNamespace(version=lambda _job_id: str(len(site[0].events))),
        work=SimpleNamespace(excerpt=lambda _job_id: site[0].patch),
    )
    reader = DashboardReader(engine, cast("JobServices", services), list, spending, trace_url="")
    live = LivePages(engine.pulse, reader.log_stamp, poll_seconds=0.02)
    people = None if directory is None else People(cast("OAuthClient", directory), sign_ins, clock=clock)
    Dashboard(reader, sign_ins, live, people, proxies).mount(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}", cookie_jar=jar) as client:
            site.append(Served(engine=engine, spending=spending, client=client, sign_ins=sign_ins, clock=clock))
            yield site[0]
    finally:
        await runner.cleanup()
        await store.close()
