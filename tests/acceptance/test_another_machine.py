"""Jobs that wait, or were given back, continue on a machine that has the database and the blob store, and no files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_runtime import SessionUnavailableError
from bot.domain.job import Job, JobState
from bot.jobs import pipeline
from bot.jobs.context import JobServices
from bot.jobs.record import StoredRecord
from bot.publishing.status_view import unpack_log
from localhub import LocalHub
from tests import s3
from tests.pauses import ASKING, Pause, pause_of
from tests.stage import COMPLETION, FILES, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

IGNORING = {
    **FILES,
    ".gitignore": "cache/\n",
    ".github/codepilot.yml": "setup: [mkdir -p cache, echo made > cache/by-setup]\n",
}
ASKS = acting(
    'write_file("calc.py")\nexecute("main", "cat cache/by-setup >> ran.txt")', FIXED_CALC, completion=COMPLETION
)
ANEW = "The run started again from the beginning: its earlier work was lost"
NOTHING_LEFT = "```completion\nNothing left to do.\n```\n"


@pytest.fixture(scope="module")
def server() -> Iterator[s3.S3]:
    with s3.running() as running:
        yield running


@pytest.fixture(params=["directory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any]:
    if request.param == "directory":
        return {"storage_url": (tmp_path / "shared").as_uri()}
    server: s3.S3 = request.getfixturevalue("server")
    access = server.access
    return {
        "storage_url": f"s3://{s3.BUCKET}/{tmp_path.name}",
        "aws_access_key_id": access.access_key_id,
        "aws_secret_access_key": access.secret_access_key,
        "aws_region": access.region,
        "aws_endpoint_url": access.endpoint,
    }


def move(stage: Stage) -> None:
    """Have the next service be on another machine: it has no file of any job, and no mirror."""
    (stage.data / "workspaces").rename(stage.directory / "other-machine")


async def published_after(stage: Stage, number: int, pause: Pause) -> str:
    """The commit of a run that is approved, and then made the call that it waited at."""
    stage.say(number, f"/codepilot approve {pause.short_id}")
    end = await stage.ended(pause.job_id)
    assert end.state is JobState.DONE, end
    [(_, sha)] = stage.bot_branches().items()
    assert stage.file(sha, "ran.txt") == "made"
    return sha


async def written(stage: Stage, job_id: str) -> None:
    """Wait until the agent has changed its file."""
    file = stage.files_of(job_id) / "calc.py"
    await eventually(lambda: (file.exists() and file.read_text() == FIXED_CALC) or None)


async def test_a_paused_run_that_is_approved_elsewhere_goes_on_at_the_call_with_the_same_files(
    hub: LocalHub, tmp_path: Path, storage: Mapping[str, Any]
) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, serving=storage, files=IGNORING) as first:
        number = first.issue().number
        command = first.say(number, "/codepilot fix")
        pause = await pause_of(first, command)
    move(first)
    async with staged(hub, tmp_path, [], operator=ASKING, serving=storage, after=first) as stage:
        sha = await published_after(stage, number, pause)
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert "cache" not in stage.git("ls-tree", "-r", "--name-only", sha)
        assert stage.nothing_left()


async def test_a_run_that_a_worker_gave_back_goes_on_elsewhere(hub: LocalHub, tmp_path: Path) -> None:
    storage = {"storage_url": (tmp_path / "shared").as_uri()}
    checks = 'write_file("calc.py")\nexecute("main", "python3 -m py_compile calc.py", check=True)'
    waits = f'execute("main", "touch cache/checked")\n{WAIT_FOR_GO}'
    script = [acting(f"{checks}\n{waits}", FIXED_CALC)]
    files = {**IGNORING, ".gitignore": "cache/\n__pycache__/\n"}
    async with staged(hub, tmp_path, script, serving=storage, files=files) as first:
        job_id = await first.job_of(first.say(first.issue().number, "/codepilot fix"))
        await eventually(lambda: (first.files_of(job_id) / "cache/checked").exists() or None)
    move(first)
    rest = [f"```completion\n{COMPLETION}\n```\n"]
    async with staged(hub, tmp_path, rest, serving=storage, after=first) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == 1
        [(_, sha)] = stage.bot_branches().items()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        # The check that passed before counts: nothing has changed the files since.
        result = (await StoredRecord(stage.queue, job_id).read()).result
        assert result is not None
        assert [each.standing for each in result.progress.judged_checks] == ["counts"]
        assert [each.pull.draft for each in hub.issues(stage.repo) if each.pull is not None] == [False]


async def test_a_run_whose_files_are_nowhere_begins_again(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]
    serving = {"dashboard_token": SecretStr("the-operators-token-of-the-test")}
    async with staged(hub, tmp_path, script, serving=serving) as first:
        job_id = await first.job_of(first.say(first.issue().number, "/codepilot fix"))
        await written(first, job_id)
    move(first)
    again = [acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)]
    async with staged(hub, tmp_path, again, serving=serving, after=first) as stage:
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert "restarted from the beginning" in caplog.text
        result = (await StoredRecord(stage.queue, job_id).read()).result
        assert result is not None
        assert [each.label for each in result.progress.activities] == ["Writing calc.py"]  # and none of the lost run
        # What the lost run has cost counts, and its log is kept.
        assert (result.progress.usage.requests, result.outcome.usage.requests) == (2, 2)
        log = unpack_log(await stage.queue.load_log(job_id) or b"")
        assert log is not None
        assert log.usage.requests == 2
        assert [each.title for each in log.entries if each.kind in {"reply", "note"}] == ["Step 1", ANEW, "Step 1"]


async def test_a_lost_run_counts_once_though_its_session_could_not_be_dropped_at_first(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(hub, tmp_path, [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]) as first:
        job_id = await first.job_of(first.say(first.issue().number, "/codepilot fix"))
        await written(first, job_id)
    move(first)
    forget, tries = JobServices.forget_session, itertools.count()

    def forgotten(services: JobServices, job: Job) -> None:
        if next(tries) < 2:
            raise SessionUnavailableError("the disk is full")
        forget(services, job)

    monkeypatch.setattr(JobServices, "forget_session", forgotten)
    monkeypatch.setattr(pipeline, "_SESSION_SECONDS", 0.1)
    again = [acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)]
    async with staged(hub, tmp_path, again, after=first) as stage:
        assert (await stage.ended(job_id)).state is JobState.DONE
        result = (await StoredRecord(stage.queue, job_id).read()).result
        assert result is not None
        assert (result.progress.usage.requests, result.outcome.usage.requests) == (2, 2)
        assert next(tries) > 2


async def test_a_store_that_is_down_is_waited_for(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.server.serve._LONGEST_PAUSE_SECONDS", 0.2)
    storage = {"storage_url": (tmp_path / "shared").as_uri()}
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, serving=storage, files=IGNORING) as first:
        number = first.issue().number
        pause = await pause_of(first, first.say(number, "/codepilot fix"))
    move(first)
    async with staged(hub, tmp_path, [], operator=ASKING, serving=storage, after=first) as stage:
        (tmp_path / "shared").rename(tmp_path / "away")
        stage.say(number, f"/codepilot approve {pause.short_id}")
        await eventually(lambda: "trying again in" in caplog.text or None)
        (tmp_path / "away").rename(tmp_path / "shared")
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.DONE, end
        [(_, sha)] = stage.bot_branches().items()
        assert stage.file(sha, "ran.txt") == "made"


async def test_a_store_that_is_down_when_a_job_comes_to_wait_gets_its_files_later(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = {"storage_url": (tmp_path / "shared").as_uri()}
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, serving=storage, files=IGNORING) as first:
        (tmp_path / "shared").rename(tmp_path / "away")
        number = first.issue().number
        pause = await pause_of(first, first.say(number, "/codepilot fix"))
        await eventually(lambda: "only this machine can continue the job until its files are stored" in caplog.text)
    (tmp_path / "away").rename(tmp_path / "shared")
    async with staged(hub, tmp_path, [], operator=ASKING, serving=storage, after=first):
        await eventually(lambda: any((tmp_path / "shared").rglob("snapshots/*/head")), within=60)
    move(first)
    async with staged(hub, tmp_path, [], operator=ASKING, serving=storage, after=first) as stage:
        await published_after(stage, number, pause)


async def test_nothing_is_stored_by_default(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, files=IGNORING) as stage:
        await pause_of(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert not list(stage.data.rglob("snapshots"))
