"""`LocalHub`: the whole hub as one object, started on an event loop or in a thread.

Its base classes are the actions of people, each named by login: `AccountActions`, `ThreadActions`, `AutomationActions`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from localhub.hub.threads import ThreadActions
from localhub.operations import checks, webhooks
from localhub.operations.webhooks import WebhookSender
from localhub.pages import Pages
from localhub.server.dispatch import MAX_REQUEST, Exchange, Faults, Server, own_host
from localhub.server.downloads import Attachments, WorkflowFiles
from localhub.server.git_http import GitHttp
from localhub.server.large_files import LargeFiles
from localhub.state.model import App, Artifact, CheckRun, Repo, WebhookDelivery, WorkflowRun
from localhub.state.store import Site, Store


class AutomationActions(ThreadActions):
    """The part of `LocalHub` about CI: workflow runs, their artifacts, and check runs of other Apps."""

    def workflow_run(
        self,
        repo: Repo,
        *,
        head_sha: str,
        head_branch: str,
        conclusion: str,
        actor: str,
        triggering_actor: str | None = None,
        head_repository: Repo | None = None,
        workflow: str = "CI",
        path: str = ".github/workflows/ci.yml",
        event: str = "push",
        jobs: Sequence[checks.EndedJob] = (),
    ) -> WorkflowRun:
        """Say that a run of a GitHub Actions workflow has ended.

        Args:
            repo: where the workflow is.
            head_sha: the commit it ran on.
            head_branch: the branch it ran on.
            conclusion: in GitHub's words, e.g. `success`, `failure`.
            actor: the login of who caused it.
            triggering_actor: who started it, by default the actor; the sender of the event.
            head_repository: where the commit is; a fork for a fork's pull request.
            workflow: its name.
            path: its file.
            event: what it ran for, e.g. `push`, `pull_request`.
            jobs: its jobs, with their logs.
        """
        with self._site.lock:
            ended = checks.EndedRun(
                workflow=workflow,
                path=path,
                event=event,
                head_branch=head_branch,
                head_sha=head_sha,
                head_repository=self._now(head_repository or repo),
                conclusion=conclusion,
                actor=self._user(actor),
                triggering_actor=self._user(triggering_actor or actor),
                jobs=jobs,
            )
            return checks.end_workflow_run(self._site, self._now(repo), ended)

    def run_again(self, run: WorkflowRun, *, by: str) -> WorkflowRun:
        """Ask for another attempt of a run, as a person does on its page."""
        with self._site.lock:
            now = self._site.store.workflow_runs[run.id]
            return checks.rerun_failed_jobs(self._site, self._site.store.repos[now.repo_id], now, self._user(by))

    def end_attempt(self, run: WorkflowRun, *, conclusion: str, jobs: Sequence[checks.EndedJob] = ()) -> WorkflowRun:
        """Say that the attempt that was asked for has ended.

        Raises:
            ValueError: none was asked for.
        """
        with self._site.lock:
            now = self._site.store.workflow_runs[run.id]
            if not now.is_queued:
                raise ValueError(f"no further attempt of run {run.id} was asked for; call run_again first")
            repo = self._site.store.repos[now.repo_id]
            return checks.end_rerun(self._site, repo, now, conclusion=conclusion, jobs=jobs)

    def workflow_runs(self, repo: Repo) -> list[WorkflowRun]:
        """The runs of a repository's workflows, oldest first."""
        with self._site.lock:
            return [run for run in self._site.store.workflow_runs if run.repo_id == repo.id]

    def keep_artifact(
        self,
        repo: Repo,
        name: str,
        files: Mapping[str, bytes],
        *,
        run_id: int,
        days: int = 90,
        fork: Repo | None = None,
    ) -> Artifact:
        """Keep files for a workflow's run, as `actions/upload-artifact` does; `fork` has the branch that it ran for."""
        with self._site.lock:
            life, head = timedelta(days=days), fork or repo
            return checks.keep_artifact(self._site, repo, name, files, run_id=run_id, life=life, head_repo_id=head.id)

    def artifacts(self, repo: Repo) -> list[Artifact]:
        """The artifacts of a repository's workflow runs, oldest first."""
        with self._site.lock:
            return [each for each in self._site.store.artifacts if each.repo_id == repo.id]

    def check(self, repo: Repo, app: App, *, head_sha: str, name: str, conclusion: str, summary: str = "") -> CheckRun:
        """Say that another App's check of a commit has ended, as CI that is no workflow reports it."""
        with self._site.lock:
            ended = checks.EndedCheck(app=app, head_sha=head_sha, name=name, conclusion=conclusion, summary=summary)
            return checks.end_check_run(self._site, self._now(repo), ended)


class LocalHub(AutomationActions):
    """A GitHub in one process: REST, GraphQL, git over HTTP, webhooks and pages on one port.

    `async with` runs it on the caller's event loop, `with` in a thread. All methods but `start` and `stop` may be
    called from any thread while the hub runs. The person who acts is named by login. Every change sends the webhooks
    that GitHub would send.

        with LocalHub(directory) as hub:
            mona = hub.add_user("mona")
            repo = hub.add_repo("mona/widgets", files={"README.md": "# Widgets"})
            app = hub.add_app("codepilot", webhook_url="http://127.0.0.1:8000/webhook", webhook_secret="…")
            hub.install(app, repo)
            hub.comment(repo, hub.open_issue(repo, author="mona", title="It breaks").number, author="mona", body="…")
    """

    def __init__(
        self,
        directory: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        tls: ssl.SSLContext | None = None,
        first_id: int = 1001,
    ) -> None:
        """Prepare a hub.

        Args:
            directory: where the bare repositories go; made if need be.
            host: the address to listen at.
            port: the port, 0 for any that is free.
            now: the clock, in UTC.
            tls: a certificate for `host` and its key; clients such as `gh` speak nothing but HTTPS.
            first_id: the lowest number given to anything; another one for a client that remembers another hub.
        """
        self.faults = Faults()
        self._host = host
        self._port = port
        self._tls = tls
        self._site = Site(directory=directory, now=now, send=webhooks.unsent, store=Store(first_id=first_id))
        self._server = Server(site=self._site, faults=self.faults)
        self._sender: WebhookSender | None = None
        self._runner: web.AppRunner | None = None
        self._thread = ExitStack()

    async def start(self) -> None:
        """Start listening and set `url`."""
        app = web.Application(client_max_size=MAX_REQUEST, middlewares=[own_host(self._site, self._host)])
        self._server.add_to(app)
        GitHttp(self._site, self.faults, self._server.threads).add_to(app)
        LargeFiles(self._site, self.faults).add_to(app)
        Attachments(self._site).add_to(app)
        WorkflowFiles(self._site).add_to(app)
        Pages(self._site, self._server.threads).add_to(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        port = self._runner.addresses[0][1]
        self._site.url = f"{'https' if self._tls else 'http'}://{self._host}:{port}"
        self._sender = WebhookSender(self._site)
        self._site.send = self._sender.send

    async def stop(self) -> None:
        """Stop listening; deliveries under way are given up."""
        self._site.send = webhooks.unsent
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._sender is not None:
            await self._sender.close()
            self._sender = None
        self._server.threads.shutdown()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            loop = stack.enter_context(_loop_in_a_thread())
            asyncio.run_coroutine_threadsafe(self.start(), loop).result()
            stack.callback(lambda: asyncio.run_coroutine_threadsafe(self.stop(), loop).result())
            self._thread = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def observe(
        self,
        *,
        on_exchange: Callable[[Exchange], None] | None = None,
        on_delivery: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Show every API exchange and every webhook payload (event, payload) to somebody who checks them."""
        self._server.served = on_exchange
        self._site.seen_payload = on_delivery

    @property
    def url(self) -> str:
        """The root of the pages; a repository's git address is `{url}/{owner}/{repo}.git`."""
        return self._site.url

    @property
    def api_url(self) -> str:
        """The root of REST, for PyGithub's `base_url`."""
        return self._site.api_url

    @property
    def graphql_url(self) -> str:
        """The address of GraphQL."""
        return f"{self.url}/api/graphql"

    @property
    def deliveries(self) -> tuple[WebhookDelivery, ...]:
        """Every attempt to deliver a webhook, oldest first."""
        with self._site.lock:
            return tuple(self._site.store.deliveries)

    def redeliver(self, guid: str) -> WebhookDelivery:
        """Send a delivery again under its GUID.

        Raises:
            LookupError: there is no such delivery.
        """
        with self._site.lock:
            for delivery in self._site.store.deliveries:
                if delivery.guid == guid:
                    return webhooks.redeliver(self._site, delivery)
        raise LookupError(f"no delivery has the GUID {guid}")


@contextmanager
def _loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="localhub", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
