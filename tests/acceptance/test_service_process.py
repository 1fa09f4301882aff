"""The real `codepilot serve`, set up by environment variables only, killed and stopped at bad moments."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from localhub import LocalHub
from tests.forked import Forked, codepilot, completed
from tests.ports import free_port
from tests.sandboxes import processes_with
from tests.source_files import ROOT
from tests.stage import COMPLETION, FIX, FIXED_CALC, WEBHOOK_SECRET, Stage, acting, build, watch
from tests.waiting import eventually

CODEPILOT = Path(sys.executable).parent / "codepilot"
SETTINGS = ("CODEPILOT_WEBHOOK_SECRET", "CODEPILOT_APP_ID", "CODEPILOT_PRIVATE_KEY_FILE", "ANTHROPIC_API_KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One life of the service."""

    process: asyncio.subprocess.Process | Forked
    log: Path
    address: str

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A stage whose bot is a process of its own."""

    stage: Stage
    variables: Mapping[str, str]
    marker: str

    @asynccontextmanager
    async def serving(self, *arguments: str, installed: bool = False) -> AsyncIterator[Served]:
        """The service up and told to the hub; killed at the end if it still lives.

        Args:
            arguments: of `codepilot serve`.
            installed: whether to start the program as an operator does, rather than to fork it.
        """
        log = self.stage.directory / f"serve-{len(list(self.stage.directory.glob('serve-*')))}.log"
        log.touch()
        process: asyncio.subprocess.Process | Forked
        if installed:
            with log.open("wb") as stderr:
                process = await asyncio.create_subprocess_exec(
                    CODEPILOT, "serve", *arguments, env=self.variables, stderr=stderr
                )
        else:
            process = codepilot(["serve", *arguments], env=self.variables, stderr=log)
        try:

            def listening() -> str:
                assert process.returncode is None, log.read_text()
                found = re.search(r"listening on (http://\S+)/webhook", log.read_text())
                return found[1] if found else ""

            address = await eventually(listening, within=60)
            self.stage.hub.set_webhook(self.stage.app, f"{address}/webhook", WEBHOOK_SECRET)
            yield Served(process=process, log=log, address=address)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def rewrite(self, reply: str) -> None:
        """Have the model of the next service say something else."""
        Path(self.variables["CODEPILOT_MODEL"]).write_text(yaml.safe_dump([{"reply": reply}]))

    async def waiting(self, job_id: str) -> Path:
        """Wait until the agent waits for the file `go`; gives where to make it."""
        await eventually(lambda: len(processes_with(self.marker)) > 0, within=60)
        return self.stage.files_of(job_id) / "go"


@asynccontextmanager
async def site(
    hub: LocalHub, directory: Path, *, script: Sequence[Mapping[str, str]] | None = None
) -> AsyncIterator[Site]:
    """A hub with an App, and the environment of a service for it; its agent waits for `go` unless told otherwise."""
    app, repo = build(hub)
    key, replies, marker = directory / "app.pem", directory / "script.yaml", f"marker-of-{os.getpid()}-{directory.name}"
    key.touch(mode=0o600)
    key.write_text(app.private_key_pem)
    wait = acting(f'execute("main", "sh -c \'until [ -e go ]; do sleep 0.02; done; rm go\' {marker}")')
    replies.write_text(yaml.safe_dump(script or [{"reply": wait}, {"reply": FIX, "expect": "exit_code: 0"}]))
    (directory / "bot").mkdir(mode=0o700)
    variables = {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "CODEPILOT_APP_ID": str(app.id),
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "CODEPILOT_PROVIDER": "scripted",
        "CODEPILOT_MODEL": str(replies),
        "CODEPILOT_DATA_DIR": str(directory / "bot"),
        "CODEPILOT_API_URL": hub.api_url,
        "CODEPILOT_SERVER_URL": hub.url,
        "CODEPILOT_PORT": "0",
        "CODEPILOT_ALLOW_ROOT": "yes",
        "CODEPILOT_LEVEL": "auto",
        "CODEPILOT_DRAIN_SECONDS": "0",
    }
    store = JobStore(f"sqlite:///{directory / 'bot' / 'jobs.sqlite'}")
    try:
        stage = Stage(hub=hub, directory=directory, app=app, repo=repo, queue=DurableEngine(store), address="")
        watch(stage)
        with closing(stage):
            yield Site(stage=stage, variables=variables, marker=marker)
    finally:
        await store.close()


def end_at(moment: str, service: Served, how: signal.Signals, call: str) -> None:
    """The request was done, its answer is not sent yet: the worst moment to end."""
    path = call.replace("/api/v3", "", 1).replace("/api/", "/", 1)
    if path.startswith(moment) and service.process.returncode is None:
        service.process.send_signal(how)


def done_once(stage: Stage, number: int) -> None:
    """One status comment, one commit, one pull request, the default branch untouched."""
    [status] = stage.bot_comments(number)
    assert COMPLETION in status
    assert sum(f"/issues/{number}/comments" in call and call.startswith("POST") for call in stage.calls) == 1
    [(branch, sha)] = stage.bot_branches().items()
    assert stage.git("rev-list", "--count", f"main..{branch}") == "1"
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert len(stage.pulls()) == 1
    assert stage.nothing_left()


@pytest.mark.slow
async def test_a_service_killed_while_the_agent_works_finishes_the_job_once(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as first:
            command = stage.say(issue.number, "/codepilot fix")
            job_id = await stage.job_of(command)
            await here.waiting(job_id)
            await first.kill()
        await eventually(lambda: not processes_with(here.marker))
        assert len(stage.bot_comments(issue.number)) == 1
        async with here.serving() as second:
            (await here.waiting(job_id)).touch()
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, second.log.read_text()
            done_once(stage, issue.number)
            stored = await stage.queue.get(job_id)
            assert stored is not None
            assert stored.attempts == 2
            for secret in (WEBHOOK_SECRET, "PRIVATE KEY", "ghs_"):
                assert secret not in second.log.read_text()
        await eventually(lambda: not processes_with(here.marker))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "moments"),
    [
        (signal.SIGKILL, ("POST /repos/mona/calc/issues/1/comments", "POST /graphql", "POST /repos/mona/calc/pulls")),
        (signal.SIGKILL, ("PATCH /repos/mona/calc/issues/comments/",)),
        (signal.SIGTERM, ("POST /repos/mona/calc/issues/1/comments", "POST /graphql")),
    ],
    ids=["killed: comment, commit, pull request", "killed: last edit", "stopped: comment, commit"],
)
async def test_a_service_that_ends_before_it_reads_an_answer_publishes_nothing_twice(
    hub: LocalHub, tmp_path: Path, how: signal.Signals, moments: tuple[str, ...]
) -> None:
    async with site(hub, tmp_path, script=[{"reply": FIX}]) as here:
        stage = here.stage
        issue = stage.issue()
        command = None
        for moment in moments:
            async with here.serving() as service:
                stage.on_call = partial(end_at, moment, service, how)
                command = command or stage.say(issue.number, "/codepilot fix")
                await asyncio.wait_for(service.process.wait(), 60)
                assert service.process.returncode == (-how if how is signal.SIGKILL else 0), service.log.read_text()
                stage.on_call = None
        assert command is not None
        async with here.serving() as last:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, last.log.read_text()
            assert "Not published" not in end.status
            done_once(stage, issue.number)


@pytest.mark.slow
async def test_work_that_is_done_is_published_without_asking_the_model_again(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path, script=[{"reply": FIX}]) as here:
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as service:
            stage.on_call = partial(end_at, "POST /graphql", service, signal.SIGKILL)
            command = stage.say(issue.number, "/codepilot fix")
            await asyncio.wait_for(service.process.wait(), 60)
            stage.on_call = None
        # Asked a second time, a model would say something else.
        here.rewrite("```completion\nI did nothing.\n```\n")
        async with here.serving() as last:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, last.log.read_text()
            assert "the work is already finished;" in last.log.read_text()
            assert "sh check.sh" in end.status
            done_once(stage, issue.number)
        assert list((tmp_path / "bot" / "patches").iterdir()) == []


@pytest.mark.slow
async def test_a_service_told_to_stop_gives_its_job_back(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        stage = here.stage
        issue = stage.issue()
        async with here.serving(installed=True) as first:
            command = stage.say(issue.number, "/codepilot fix")
            job_id = await stage.job_of(command)
            await here.waiting(job_id)
            first.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(first.process.wait(), 60) == 0, first.log.read_text()
            assert "Traceback" not in first.log.read_text()
        stored = await stage.queue.get(job_id)
        assert stored is not None
        assert (stored.state, stored.attempts) == (JobState.QUEUED, 0)
        assert (stage.files_of(job_id) / "calc.py").is_file()
        assert processes_with(here.marker) == []
        async with here.serving() as second:
            (await here.waiting(job_id)).touch()
            assert (await stage.end_of(command)).state is JobState.DONE, second.log.read_text()
            done_once(stage, issue.number)


@pytest.mark.slow
async def test_a_run_of_a_killed_service_goes_on_in_its_files(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        stage = here.stage
        issue = stage.issue()
        wait = f"sh -c 'until [ -e go ]; do sleep 0.02; done; rm go' {here.marker}"
        here.rewrite(acting(f'write_file("calc.py")\nexecute("main", "{wait}")', FIXED_CALC))
        async with here.serving() as first:
            command = stage.say(issue.number, "/codepilot fix")
            await here.waiting(await stage.job_of(command))
            await first.kill()
        # Right in the files as they were left, wrong in those of the commit.
        here.rewrite(acting('execute("main", "sh check.sh", check=True)', completion=COMPLETION))
        async with here.serving() as second:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, second.log.read_text()
            assert "restarted:" not in second.log.read_text()
            done_once(stage, issue.number)


@pytest.mark.slow
async def test_a_command_that_was_given_while_the_service_was_down_is_done_once_when_it_is_up(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with site(hub, tmp_path, script=[{"reply": FIX}]) as made:
        here = replace(made, variables={**made.variables, "CODEPILOT_PORT": str(free_port())})
        stage = here.stage
        async with here.serving():
            pass
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        [missed] = await eventually(
            lambda: [each for each in hub.deliveries if each.event == "issue_comment" and each.status != "pending"]
        )
        assert missed.status_code == 0
        for _ in range(2):
            async with here.serving() as service:
                end = await stage.end_of(command)
                assert end.state is JobState.DONE, service.log.read_text()
        done_once(stage, issue.number)
        assert [each.redelivery for each in hub.deliveries if each.guid == missed.guid] == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "ready"), [((), "working as"), (("--no-work",), "listening on")])
async def test_a_service_whose_queue_was_deleted_ends_so_that_the_next_one_makes_another(
    hub: LocalHub, tmp_path: Path, arguments: tuple[str, ...], ready: str
) -> None:
    async with site(hub, tmp_path) as here:
        async with here.serving(*arguments) as service:
            await eventually(lambda: ready in service.log.read_text() or None)
            (tmp_path / "bot" / "jobs.sqlite").unlink()
            assert await asyncio.wait_for(service.process.wait(), 60) == 2
            records = re.split(r"\n(?!  \| )", service.log.read_text().rstrip())
            assert re.match("codepilot: the job database .* was deleted or replaced while this process", records[-1])
            # DBOS may log what it tries on the missing file until it has ended.
            assert not [each for each in records if "Traceback" in each and " WARNING dbos " not in each]
        async with here.serving():
            assert (tmp_path / "bot" / "jobs.sqlite").exists()


async def test_a_taken_port_is_told_in_one_sentence(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            done = await asyncio.to_thread(
                completed, ["serve"], env={**here.variables, "CODEPILOT_PORT": port}, at=tmp_path
            )
        assert done.returncode == 2
        assert f"127.0.0.1:{port}, which is not available:" in done.stderr
        assert "Traceback" not in done.stderr


async def test_a_missing_git_is_told_at_the_start(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path) as here:
        done = await asyncio.to_thread(completed, ["serve"], env={**here.variables, "PATH": "/nowhere"}, at=tmp_path)
        assert done.returncode == 2
        assert "`git` is not on the PATH; install it" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["CODEPILOT_DATA_DIR", "CODEPILOT_MCP"])
async def test_a_path_that_cannot_be_used_is_told_with_its_setting(hub: LocalHub, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mcp: [{name: docs}]\n")
    path = tmp_path / "file" / "data" if name == "CODEPILOT_DATA_DIR" else tmp_path / "file"
    async with site(hub, tmp_path) as here:
        done = await asyncio.to_thread(completed, ["serve"], env={**here.variables, name: str(path)}, at=tmp_path)
        assert done.returncode == 2
        assert re.search(rf"{name} .*{path}", done.stderr)
        assert "Traceback" not in done.stderr


_STUCK = """
import asyncio, re
from bot.server import serve as server
from bot.settings import load
from bot.__main__ import finish
from bot.server.process import Watchdog

class Stuck(Watchdog):
    def start(self):
        super().start()
        asyncio.get_running_loop().call_later(0.1, re.match, "(a|a)*b", "a" * 200)

finish(server.serve(load.load(), Stuck(stuck_seconds=1)))
"""


@pytest.mark.slow
@pytest.mark.long
async def test_a_service_whose_loop_is_stuck_ends_and_can_be_started_again(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path, script=[{"reply": FIX}]) as here:
        log = tmp_path / "stuck.log"
        with log.open("wb") as stderr:
            stuck = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _STUCK, env=here.variables, stderr=stderr, cwd=ROOT
            )
        assert await asyncio.wait_for(stuck.wait(), 60) == -signal.SIGABRT, log.read_text()
        assert "has not run its event loop" in log.read_text()
        assert 're/__init__.py", line' in log.read_text()
        async with here.serving() as service:
            end = await here.stage.ask(here.stage.issue().number, "/codepilot fix")
            assert end.state is JobState.DONE, service.log.read_text()


def test_missing_settings_are_all_named_at_once(tmp_path: Path) -> None:
    done = completed(["serve"], env={"PATH": os.environ["PATH"]}, at=tmp_path)
    assert done.returncode == 2
    for name in SETTINGS:
        assert f"{name} is not set" in done.stderr
    assert "Example: CODEPILOT_APP_ID=123456" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "app.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    key.chmod(0o644)
    variables = {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "CODEPILOT_APP_ID": "1",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "ANTHROPIC_API_KEY": "sk-ant-made-up",
    }
    done = completed(["serve"], env=variables, at=tmp_path)
    assert done.returncode == 2
    assert "CODEPILOT_PRIVATE_KEY_FILE" in done.stderr
    assert "AAAA" not in done.stderr
