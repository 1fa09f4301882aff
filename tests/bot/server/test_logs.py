from __future__ import annotations

import asyncio
import json
import logging
import sys

import pytest
from structlog.contextvars import bound_contextvars

from bot.publishing.redact import Redactor
from bot.queue.tracing import bind_job
from bot.server.process import SafeFormatter, start_log
from bot.settings.models import LogFormat
from tests.builders import a_job
from tests.logged import logged

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
