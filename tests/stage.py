"""The whole bot on a stage: a hub, an App, a repository with a bug, and the bot's service with a model of the test's.

async with staged(hub, tmp_path, [FIX]) as stage:
    issue = stage.issue()
    end = await stage.ask(issue.number, "/codepilot fix")
    assert end.state is JobState.DONE and "Fixed" in end.status
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from aiohttp import web
from pydantic import SecretStr

from agent_runtime import Event, Network, Provider, RunLimits, ScriptedProvider
from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import TRANSITIONS, JobState
from bot.jobs.record import StoredRecord
from bot.queue.engine import DurableEngine
from bot.queue.store import NOTICES
from bot.server.serve import BotService, build_service
from bot.settings.models import AgentSettings, Settings
from localhub import App, Comment, Exchange, Issue, LocalHub, Repo
from tests.origin import git
from tests.waiting import eventually

WEBHOOK_SECRET = "acceptance-webhook-secret-4f1c"
BUG = "def add(a, b):\n    return a + b + 1\n"
FIXED_CALC = "def add(a, b):\n    return a + b\n"
FILES = {
    "calc.py": BUG,
    "check.sh": "if grep -qx '    return a + b' calc.py; then echo 1 passed; else echo 1 failed; exit 1; fi\n",
    "README.md": "# Calc\n",
}
COMPLETION = "Fixed `add`: it counted one too many."

_NOTICE = "<!-- codepilot:job=notice-"

Script = Sequence[str | ScriptedReply]


def acting(control: str, *payloads: str, completion: str = "", fence: str = "text") -> str:
    """A reply with a control block, its contents, and perhaps a completion."""
    blocks = [f"Working.\n```codepilot\n{control}\n```\n", *(f"```{fence}\n{text}```\n" for text in payloads)]
    return "".join([*blocks, f"```completion\n{completion}\n```\n" if completion else ""])


FIX = acting(
    'write_file("calc.py")\nexecute("main", "sh check.sh", check=True)',
    FIXED_CALC,
    completion=COMPLETION,
    fence="python",
)
SEE_IT_FAIL = acting('execute("main", "sh check.sh", check=True)')
# The test makes the file `go` in the workspace to let the agent move on.
WAIT_FOR_GO = 'execute("main", "until [ -e go ]; do sleep 0.02; done; rm go")'


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a job.

    Attributes:
        job_id: the job.
        state: its last state.
        reason: the reason that the queue stores.
        status: the status comment's text; empty when there is none.
    """

    job_id: str
    state: JobState
    reason: str
    status: str


@dataclass(slots=True, kw_only=True)
class Stage:
    """The hub, the repository and the bot of a test.

    Attributes:
        queue: the bot's queue, or in tests of the process a second view of its file.
        address: where the bot listens.
        providers: the models that were made, one a run.
        events: of all runs.
        calls: `METHOD path` of every API request, oldest first, with `QUERY` for what GraphQL only reads; without those
            that met a fault.
        on_call: told of each of these after it was done, before its answer is sent.
        open_for_work: set it to let the worker of a stage that is `held` begin.
    """

    hub: LocalHub
    directory: Path
    app: App
    repo: Repo
    queue: DurableEngine
    address: str
    providers: list[ScriptedProvider] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    on_call: Callable[[str], None] | None = None
    open_for_work: asyncio.Event = field(default_factory=asyncio.Event)
    _rows: sqlite3.Connection | None = field(default=None, init=False)

    def issue(self, title: str = "Adding is off by one", body: str = "`add(1, 1)` gives 3.") -> Issue:
        """Open an issue."""
        return self.hub.open_issue(self.repo, author="mona", title=title, body=body)

    def pull(self, branch: str = "topic") -> Issue:
        """Open a pull request from a branch of the repository that adds a file, the bug left in."""
        self.hub.commit(self.repo, {"topic.txt": "A topic.\n"}, message="Add a topic", author="mona", branch=branch)
        return self.hub.open_pull(self.repo, author="mona", head=branch, title="Add a topic", body="As discussed.")

    def say(self, number: int, body: str, *, author: str = "mona") -> Comment:
        """Comment."""
        return self.hub.comment(self.repo, number, author=author, body=body)

    async def answer(self, comment: Comment) -> dict[str, str]:
        """Return the bot's answer to the first delivery of a comment."""

        def find_answer() -> dict[str, str] | None:
            for delivery in self.hub.deliveries:
                if delivery.event == "issue_comment" and delivery.status_code:
                    payload = json.loads(delivery.body)
                    if payload["comment"]["id"] == comment.id and payload["action"] == "created":
                        return {"guid": delivery.guid, **json.loads(delivery.response_body)}
            return None

        return await eventually(find_answer)

    async def answer_to(self, event: str, action: str) -> dict[str, str]:
        """Return the bot's answer to the newest delivery of an event."""
        guid = [each.guid for each in self.hub.deliveries if (each.event, each.action) == (event, action)][-1]

        def find_answer() -> dict[str, str] | None:
            for delivery in self.hub.deliveries:
                if delivery.guid == guid and delivery.status_code:
                    return {"guid": guid, **json.loads(delivery.response_body)}
            return None

        return await eventually(find_answer)

    async def job_of(self, comment: Comment) -> str:
        """The job that a comment became."""
        answer = await self.answer(comment)
        assert "job" in answer, answer
        return answer["job"]

    async def end_of(self, comment: Comment, *, within: float = 30.0) -> End:
        """Wait until a comment's job has ended."""
        return await self.ended(await self.job_of(comment), within=within)

    async def ended(self, job_id: str, *, within: float = 30.0) -> End:
        """Wait until a job has ended."""

        async def over() -> End | None:
            state = await self.state_of(job_id)
            if state is None or TRANSITIONS[state]:
                return None
            stored = await self.queue.get(job_id)
            assert stored is not None
            posted = (await StoredRecord(self.queue, job_id).read()).comment.posted
            if not stored.job.thread.number:
                return End(job_id=job_id, state=stored.state, reason=stored.reason, status="")
            number = stored.job.thread.number
            bodies = {each.id: each.body for each in self.hub.comments(self.repo, number)}
            bodies |= {each.id: each.body for each in self.hub.review_comments(self.repo, number)}
            status = bodies.get(posted.id, "") if posted else ""
            return End(job_id=job_id, state=stored.state, reason=stored.reason, status=status)

        return await eventually(over, within=within)

    async def state_of(self, job_id: str) -> JobState | None:
        """A job's state; from a file without the engine, which many tests that wait for it would keep busy."""
        file = self.queue._store.path
        if file is None:
            stored = await self.queue.get(job_id)
            return stored.state if stored else None
        if self._rows is None:
            self._rows = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)
        rows = self._rows.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchall()
        return JobState(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the file of the jobs."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    async def refusal(self, end: End) -> str:
        """The cause of the refusal that a job ended with, of which its comment gives the reason."""
        stored = await self.queue.get(end.job_id)
        assert stored is not None
        assert stored.state is JobState.REFUSED, end
        assert end.reason
        assert end.reason in end.status
        newest = sa.select(NOTICES.c.cause).order_by(NOTICES.c.until.desc()).limit(1)
        newest = newest.where(NOTICES.c.repo_id == stored.job.repo.id, NOTICES.c.thread == stored.job.thread.key)
        cause = await self.queue._store.run(lambda tx: tx.rows.execute(newest).scalar_one())
        return str(cause).partition(" by ")[0]  # the job that told it may stand in a row of its own

    async def end_after(self, event: str, action: str) -> End:
        """Wait until the job of the newest delivery of an event has ended, and the work that it began."""
        answer = await self.answer_to(event, action)
        assert "job" in answer, answer
        end = await self.ended(answer["job"])
        following = (await StoredRecord(self.queue, end.job_id).read()).leads_to
        return end if following is None else await self.ended(following)

    async def waits(self, comment: Comment) -> str:
        """Wait until a comment's job waits for a person; the job."""
        job_id = await self.job_of(comment)

        async def waiting() -> str | None:
            return job_id if await self.state_of(job_id) is JobState.WAITING else None

        waits: str = await eventually(waiting, within=30.0)
        return waits

    async def ask(self, number: int, body: str, *, author: str = "mona") -> End:
        """Comment, and wait until the job has ended."""
        return await self.end_of(self.say(number, body, author=author))

    def bot_comments(self, number: int) -> list[str]:
        """Return the bot's comments in a thread without its notices, oldest first."""
        return [body for body in self._bot_texts(number) if _NOTICE not in body]

    def notices(self, number: int) -> list[str]:
        """Return the bot's notices in a thread, oldest first."""
        return [body for body in self._bot_texts(number) if _NOTICE in body]

    def _bot_texts(self, number: int) -> list[str]:
        comments = self.hub.comments(self.repo, number)
        return [each.body for each in comments if each.author_id == self.app.bot.id]

    def reactions(self, comment: Comment) -> list[str]:
        """Return the reactions to a comment."""
        return [each.content for each in self.hub.reactions(comment)]

    def bot_branches(self) -> dict[str, str]:
        """The branches the bot made, and where they stand."""
        return {name: sha for name, sha in self.hub.branches(self.repo).items() if name.startswith("codepilot/")}

    def pulls(self) -> list[Issue]:
        """All pull requests."""
        return [each for each in self.hub.issues(self.repo) if each.pull is not None]

    def git(self, *arguments: str) -> str:
        """Ask the hub's own copy of the repository."""
        return git(self.repo.path, *arguments)

    def file(self, ref: str, path: str) -> str:
        """A file's text at a branch or commit, its last newline left out."""
        return self.git("show", f"{ref}:{path}")

    def files_of(self, job_id: str) -> Path:
        """Return the directory of a running job's files."""
        return self.data / "workspaces" / "jobs" / job_id / "files"

    async def at_work(self) -> None:
        """Wait until an agent calls a tool."""
        await eventually(lambda: any(type(each).__name__ == "ToolCalled" for each in self.events) or None)

    async def let_go(self, job_id: str) -> None:
        """Wait until the agent waits for the file `go` (see `WAIT_FOR_GO`), and make it."""
        await self.at_work()
        (self.files_of(job_id) / "go").touch()

    @property
    def installation(self) -> int:
        """The App's installation."""
        [installation] = [each.id for each in self.hub._site.store.installations if each.app_id == self.app.id]
        return installation

    @property
    def data(self) -> Path:
        """The bot's data directory."""
        return self.directory / "bot"

    def nothing_published(self) -> bool:
        """Return whether no branch and no commit of the bot is on the hub."""
        authors = self.git("log", "--all", "--format=%an").splitlines()
        return not self.bot_branches() and not any("codepilot" in name for name in authors)

    def nothing_left(self) -> bool:
        """Return whether no job's directory, but those that are being removed, and no keep ref is on the bot's disk."""
        folders = (each for each in (self.data / "workspaces" / "jobs").iterdir() if each.is_dir())
        jobs = [each for each in folders if not each.name.startswith(".removed-")]
        mirrors = (self.data / "workspaces" / "mirrors").glob("*.git")
        return not jobs and not any(git(each, "for-each-ref", "refs/keep") for each in mirrors)


def agent_settings(
    data: Path, *, limits: RunLimits | None = None, trigger: str = "/codepilot", network: Network | None = None
) -> AgentSettings:
    """Settings of an agent whose model the test gives."""
    bounds = limits or RunLimits()
    return AgentSettings(
        provider="scripted",
        model="given by the test",
        network=network or Network(),
        triggers=(trigger,),
        level="auto",
        max_steps=bounds.max_steps,
        max_cost_usd=bounds.max_cost_usd,
        max_seconds=int(bounds.max_seconds),
        outage_seconds=bounds.outage_seconds,
        data_dir=data,
    )


def build(hub: LocalHub, files: dict[str, str] | None = None) -> tuple[App, Repo]:
    """The App and the repository; `files` empty makes an empty repository."""
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files=FILES if files is None else files)
    app = hub.add_app("codepilot", webhook_secret=WEBHOOK_SECRET)
    hub.install(app, repo)
    return app, repo


@asynccontextmanager
async def staged(
    hub: LocalHub,
    directory: Path,
    *scripts: Script,
    files: dict[str, str] | None = None,
    limits: RunLimits | None = None,
    edit_seconds: float = 10.0,
    provider: Callable[[], Provider] | Literal["settings"] | None = None,
    held: bool = False,
    trigger: str = "/codepilot",
    network: Network | None = None,
    operator: Mapping[str, Any] | None = None,
    serving: Mapping[str, Any] | None = None,
    after: Stage | None = None,
) -> AsyncIterator[Stage]:
    """The bot at work, one script a run; a run beyond the last one fails loudly.

    Args:
        hub: where it works.
        directory: where everything is kept.
        scripts: the replies of each run's model.
        files: the repository's, in place of `FILES`.
        limits: bounds of a run.
        edit_seconds: between two edits of a status comment.
        provider: makes the model of a run, in place of the scripts; `settings` for those that `operator` names.
        trigger: the word that starts a command.
        network: what the agent's commands may reach; nothing by default.
        held: whether the worker waits for `Stage.open_for_work`, while the webhook server listens.
        operator: further settings of the operator, by their names in `AgentSettings`.
        serving: the same, by their names in `Settings`.
        after: a stage whose service has ended; this one is another service on the same hub and data directory.
    """
    app, repo = (after.app, after.repo) if after else build(hub, files)
    agent = agent_settings(directory / "bot", limits=limits, trigger=trigger, network=network)
    settings = Settings(
        agent=replace(agent, **(operator or {})),
        webhook_secret=SecretStr(WEBHOOK_SECRET),
        app_id=app.id,
        private_key=SecretStr(app.private_key_pem),
        api_url=hub.api_url,
        server_url=hub.url,
        jobs=2,
        host="127.0.0.1",
        port=0,
        **{"drain_seconds": 0, **(serving or {})},
    )
    made: list[ScriptedProvider] = []
    events: list[Event] = []
    gate = asyncio.Event()
    if not held:
        gate.set()
    async with (
        build_service(
            settings,
            listeners=[events.append],
            edit_seconds=edit_seconds,
            provider=None if provider == "settings" else provider or _playing(scripts, made),
            seconds_between_writes=0.0,
            git_pauses=(0.0, 0.0),
        ) as bot,
        _at_work(bot, gate) as address,
    ):
        hub.set_webhook(app, f"{address}/webhook", WEBHOOK_SECRET)
        stage = Stage(
            hub=hub,
            directory=directory,
            app=app,
            repo=repo,
            queue=bot.queue,
            address=address,
            providers=made,
            events=events,
            open_for_work=gate,
        )
        watch(stage)
        with closing(stage):
            yield stage


def watch(stage: Stage) -> None:
    """Note every API request in `stage.calls`, beside whoever watches already."""
    server = stage.hub._server
    judge = server.served

    def served(exchange: Exchange) -> None:
        reads = exchange.path.endswith("/graphql") and b"mutation" not in exchange.request_body
        stage.calls.append(f"{'QUERY' if reads else exchange.method} {exchange.path}")
        if stage.on_call is not None:
            stage.on_call(stage.calls[-1])
        if judge is not None:
            judge(exchange)

    server.served = served


def _playing(scripts: Iterable[Script], made: list[ScriptedProvider]) -> Callable[[], ScriptedProvider]:
    waiting = list(scripts)

    def play() -> ScriptedProvider:
        made.append(ScriptedProvider(waiting.pop(0) if waiting else ()))
        return made[-1]

    return play


@asynccontextmanager
async def _at_work(bot: BotService, gate: asyncio.Event) -> AsyncIterator[str]:
    await bot.runner.setup()
    await web.TCPSite(bot.runner, "127.0.0.1", 0).start()

    async def work() -> None:
        await gate.wait()
        await bot.worker.run()

    worker = asyncio.create_task(work())
    try:
        yield f"http://127.0.0.1:{bot.runner.addresses[0][1]}"
        # A worker that died would otherwise show only as a job that never ends.
        assert not worker.done(), worker
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await bot.runner.cleanup()
