"""The watchdog and the signals that end the service, and its log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.contextvars import bound_contextvars

from bot.publishing.redact import Redactor
from bot.queue.tracing import bind_job
from bot.server.process import SafeFormatter, start_log
from bot.settings.models import LogFormat
from tests.builders import a_job
from tests.logged import logged
from tests.source_files import ROOT
from tests.waiting import eventually

_SCRIPT = """
import asyncio, re, sys
from bot.__main__ import finish
from bot.server.process import Watchdog

watchdog = Watchdog(stuck_seconds=STUCK, ending_seconds=ENDING)

def hostile():
    re.match("(a|a)*b", "a" * 200)  # holds the interpreter's lock for years

async def never_ends():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("told", flush=True)

async def main():
    watchdog.start()
    print("up", flush=True)
    WHAT

finish(main(), stopping=watchdog.start_deadline)
"""


@asynccontextmanager
async def running(
    code: str, *, stuck_seconds: float | None = 0.5, ending_seconds: float = 0.5
) -> AsyncIterator[Process]:
    """A process that runs `code` once it is up; unwatched without `stuck_seconds`."""
    script = _SCRIPT.replace("WHAT", code).replace("STUCK", str(stuck_seconds)).replace("ENDING", str(ending_seconds))
    if stuck_seconds is None:
        script = script.replace("watchdog.start()", "pass")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=PIPE, stderr=PIPE, cwd=ROOT, env={"PATH": os.environ["PATH"]}
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def exit_and_errors(process: Process) -> tuple[int, str]:
    """Return a process's exit code and its standard error."""
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_a_loop_that_is_stuck_while_c_code_holds_the_lock_ends_the_process_with_its_stacks() -> None:
    async with running("hostile()") as process:
        code, errors = await exit_and_errors(process)
    assert code == -signal.SIGABRT
    assert f"process {process.pid} " in errors
    assert "in hostile" in errors
    assert "in main" in errors


async def test_sigterm_ends_a_process_whose_loop_is_stuck() -> None:
    async with running("hostile()") as process:
        process.send_signal(signal.SIGTERM)
        code, _ = await exit_and_errors(process)
    assert code == -signal.SIGABRT


async def test_a_process_that_does_not_end_when_told_to_is_ended() -> None:
    async with running("await never_ends()") as process:
        process.send_signal(signal.SIGTERM)
        code, errors = await exit_and_errors(process)
    assert code == -signal.SIGABRT
    assert "has not ended" in errors


async def test_a_second_signal_ends_the_process_at_once() -> None:
    # Unwatched, so that nothing else ends it.
    async with running("await never_ends()", stuck_seconds=None) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"told\n"
        process.send_signal(signal.SIGTERM)
        assert await exit_and_errors(process) == (-signal.SIGTERM, "")


@pytest.mark.slow
async def test_a_process_that_is_stopped_is_left_alone() -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=2.0, ending_seconds=30.0) as process:
        watcher = await _watcher_of(process)
        process.send_signal(signal.SIGSTOP)
        # It looks ten times in the seconds for which a loop may be stuck.
        looked = _looks(watcher)
        await eventually(lambda: _looks(watcher) > looked + 12)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert await exit_and_errors(process) == (0, "")


def _looks(watcher: int) -> int:
    """Return the number of a process's voluntary context switches."""
    status = Path(f"/proc/{watcher}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


async def _watcher_of(process: Process) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    [watcher] = await eventually(lambda: children.read_text().split())
    return int(watcher)


async def test_the_watcher_ends_with_the_process() -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=10.0) as process:
        watcher = await _watcher_of(process)
        process.kill()
        await process.wait()
        await eventually(lambda: not Path(f"/proc/{watcher}/stat").exists())


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_ends_a_healthy_process_without_a_word(ended: signal.Signals) -> None:
    async with running("await asyncio.sleep(60)", stuck_seconds=10.0, ending_seconds=30.0) as process:
        process.send_signal(ended)
        assert await exit_and_errors(process) == (0, "")


SECRET = "webhook-secret-of-the-test"


@pytest.fixture(params=["text", "json"])
def style(request: pytest.FixtureRequest) -> LogFormat:
    found: LogFormat = request.param
    return found


def _logged(style: LogFormat, message: str, *args: object, error: BaseException | None = None) -> str:
    trace = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("bot", logging.INFO, __file__, 1, message, args, trace)
    return SafeFormatter(Redactor([SECRET]), style).format(record)


def test_a_secret_in_an_argument_or_a_traceback_is_redacted(style: LogFormat) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - any error with a traceback will do
        int(SECRET)
    shown = _logged(style, "asked with %s", SECRET, error=caught.value)
    assert SECRET not in shown
    assert "asked with [redacted]" in shown
    assert "base 10: '[redacted]'" in shown


def test_a_secret_in_what_is_bound_is_redacted(style: LogFormat) -> None:
    with bound_contextvars(repository=SECRET):
        shown = _logged(style, "done")
    assert SECRET not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_strangers_line_neither_passes_for_ours_nor_commands_a_runner(style: LogFormat, end: str) -> None:
    hostile = f"it failed{end}::add-mask::a{end}##[add-mask]b\x1b[2J"
    with bound_contextvars(thread=hostile):
        shown = _logged(style, "told: %s", hostile)
    first, *rest = shown.split("\n")
    assert not first.startswith("::")
    assert all(line.startswith("  | ") for line in rest)
    assert "##[" not in shown
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert rest if style == "text" else json.loads(first)["message"].startswith("told: it failed\n")


def test_a_line_for_people_names_what_it_is_about_before_what_it_says() -> None:
    with bound_contextvars(job="j1", repository="octo/app", odd="two words]"):
        shown = _logged("text", "done")
    assert shown.endswith('INFO bot [job=j1 odd="two words]" repository=octo/app] done')
    assert _logged("text", "done").endswith("INFO bot done")


def test_a_line_for_programs_is_one_object_with_the_time_in_utc() -> None:
    with bound_contextvars(job="j1", attempt=2):
        found = json.loads(_logged("json", "done"))
    time = found.pop("time")
    assert time.endswith("+00:00")
    assert found == {"level": "info", "logger": "bot", "message": "done", "job": "j1", "attempt": 2}


async def test_the_tasks_and_threads_of_a_job_log_with_its_names() -> None:
    log = logging.getLogger("agent_runtime.of.the.test")
    job = a_job("j1")

    async def work() -> None:
        log.warning("in a task")
        await asyncio.to_thread(log.warning, "in a thread")

    with logged() as found:
        with bind_job(job, attempt=2):
            await asyncio.create_task(work())
        log.warning("after it")
    *of_job, after = found.lines(log.name)
    assert [line["message"] for line in of_job] == ["in a task", "in a thread"]
    names = {"job": "j1", "delivery": job.delivery_id, "repository_id": job.repo.id, "attempt": 2}
    assert all(names.items() <= line.items() for line in of_job)
    assert "job" not in after


def test_a_library_with_a_handler_of_its_own_writes_through_ours(capsys: pytest.CaptureFixture[str]) -> None:
    library, root = logging.getLogger("dbos"), logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    library.addHandler(logging.StreamHandler(sys.stderr))
    library.propagate = False
    try:
        start_log(Redactor([SECRET]), "json")
        library.warning("connecting with %s", SECRET)
    finally:
        root.handlers[:], library.handlers[:], library.propagate = before, [], True
        root.setLevel(level)
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "connecting with [redacted]"
