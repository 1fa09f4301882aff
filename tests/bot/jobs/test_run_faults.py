"""Faults of GitHub, git, the blob store and the machine at each place of a job: it waits, or ends with the true reason.

The tables of docs/server.md, "When something fails", cell by cell.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from agent_runtime import CommandEnd, CommandRunner, SandboxError, SessionError
from bot.domain.errors import StorageError
from bot.domain.job import JobState
from bot.git.errors import BranchGoneError, CloneError, GitError, PushFailedError
from bot.github.types import Answer, AppRemovedError, GitHubError
from bot.jobs.faults import ACCESS_PATIENCE_SECONDS, PATIENCE_SECONDS
from bot.jobs.posts import StatusComment
from bot.queue.records import Signal
from tests.fakes.agent import Script, ScriptedAgent, do, execute, reply, wait_for_test, write
from tests.fakes.github import FakeConnection, forbidden, no_answer, not_found, outage
from tests.fakes.site import FakeComment
from tests.fakes.workspaces import FakeMirror
from tests.seam import COMPLETION, FIX, FIXED_CALC, End, Seam, open_seam
from tests.stage import FILES

INTERNAL = ("10.0.0.7", "/var/lib")
HTTP = "fatal: unable to access 'https://10.0.0.7/o/r.git/': The requested URL returned error: "
ALWAYS = 100_000


def git_error(status: int, command: str) -> GitError:
    return GitError(command, 128, f"{HTTP}{status}")


def clone_error(status: int) -> CloneError:
    error = CloneError("The repository could not be fetched: it failed.", "Check it.", ref="refs/heads/main")
    error.__cause__ = git_error(status, "fetch")
    return error


def push_error(status: int) -> PushFailedError:
    error = PushFailedError("The push to `b` failed: it failed.", "Check it.")
    error.__cause__ = git_error(status, "push")
    return error


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/codepilot/jobs")


def session_on_a_full_disk() -> SessionError:
    error = SessionError("The session file /var/lib/codepilot/run cannot be used: No space left on device.")
    error.__cause__ = disk_full()
    return error


def store_away() -> StorageError:
    return StorageError("s3://work at http://10.0.0.7:9000", "timed out", "Check the bucket.")


def pushed(folder: Callable[[], Path]) -> Script:
    """Return the run of a fix that only a push can express: a file becomes executable."""
    mode = do(lambda: (folder() / "calc.py").chmod(stat.S_IRWXU))
    return [reply(write("calc.py", FIXED_CALC), mode, execute("sh check.sh"), completion=COMPLETION)]


def only_folder(stage: Seam) -> Path:
    [job_id] = stage.workspaces.kept_jobs
    return stage.workspaces.files_of(job_id)


async def end_of_outage(stage: Seam, command: FakeComment) -> End:
    """Let time pass, and the job's worker try again now and then, until the job has ended."""
    job_id = await stage.job_of(command)
    for _ in range(40):
        await stage.settle()
        if await stage.state_of(job_id) is not JobState.QUEUED:
            break
        stage.advance(900.0)
    return await stage.end_of(command)


Cell = tuple[Callable[[Seam, int], None], str]
PASSING: dict[str, Cell] = {
    "GitHub, admission": (lambda s, n: s.hub.fail("threads.snapshot", outage(), n), "GitHub answered 502."),
    "GitHub, publish": (
        lambda s, n: s.hub.fail("commits.create_with_branch", no_answer(), n),
        "GitHub did not answer.",
    ),
    "git, clone": (lambda s, n: s.workspaces.fail("fetch", clone_error(503), times=n), "git on GitHub answered 503."),
    "git, settings": (
        lambda s, n: s.workspaces.fail("read", clone_error(429), times=n),
        "git on GitHub answered 429.",
    ),
    "machine, settings": (
        lambda s, n: s.workspaces.fail("read", disk_full(), times=n),
        "The disk of the machine is full.",
    ),
    "machine, clone": (
        lambda s, n: s.workspaces.fail("check_out", disk_full(), times=n),
        "The disk of the machine is full.",
    ),
    "machine, change": (
        lambda s, n: s.workspaces.fail("change", disk_full(), times=n),
        "The disk of the machine is full.",
    ),
}
DOUBTFUL: dict[str, Cell] = {
    "GitHub, admission": (
        lambda s, n: s.hub.fail("threads.snapshot", not_found(), n),
        "GitHub refused a request: 404.",
    ),
    "git, clone": (
        lambda s, n: s.workspaces.fail("fetch", clone_error(404), times=n),
        "git on GitHub refused access: 404.",
    ),
}


@pytest.mark.parametrize("name", PASSING)
async def test_a_job_outlasts_a_passing_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    fail, public = PASSING[name]
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        fail(stage, 3)
        command = stage.say(issue.number, "/codepilot fix")
        await stage.settle()
        record = await stage.record(await stage.job_of(command))
        assert record.service_outage is not None
        assert record.service_outage.reason == public
        assert (await stage.end_of(command)).state is JobState.DONE
        assert len(stage.providers) == len(stage.pulls()) == 1
        [comment] = stage.bot_comments(issue.number)
        assert not any(words in comment for words in INTERNAL)
    waits = [line for line in caplog.records if "trying again in" in line.getMessage()]
    assert 0 < len(waits) <= 3
    assert [line for line in caplog.records if line.exc_info] == []


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_a_job_outlasts_a_doubtful_answer(tmp_path: Path, name: str) -> None:
    fail, public = DOUBTFUL[name]
    async with open_seam(tmp_path, FIX) as stage:
        fail(stage, 3)
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.settle()
        outage_record = (await stage.record(await stage.job_of(command))).service_outage
        assert outage_record is not None
        assert outage_record.reason == public
        assert (await stage.end_of(command)).state is JobState.DONE


@pytest.mark.parametrize(
    ("name", "seconds", "words"),
    [
        ("GitHub, publish", PATIENCE_SECONDS, "GitHub did not answer."),
        ("git, clone", PATIENCE_SECONDS, "The repository could not be fetched"),
        ("machine, clone", PATIENCE_SECONDS, "The disk of the machine is full."),
        ("machine, change", PATIENCE_SECONDS, "The disk of the machine is full."),
    ],
)
async def test_a_fault_that_outlives_the_patience_ends_the_job_with_the_true_reason(
    tmp_path: Path, name: str, seconds: float, words: str
) -> None:
    fail, _ = PASSING[name]
    async with open_seam(tmp_path, FIX) as stage:
        fail(stage, ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        assert words in end.status
        assert not any(internal in end.status for internal in INTERNAL)
        last = (await stage.record(end.job_id)).service_outage
        assert last is not None
        assert last.retry_at - last.since > seconds


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_branch_that_git_does_not_show_is_gone_only_if_the_api_agrees(
    tmp_path: Path, *, is_shown: bool
) -> None:
    branch = "main" if is_shown else "other"
    error = BranchGoneError("`main` no longer exists.", "Push it again.", ref=f"refs/heads/{branch}", sha="a" * 40)
    error.__cause__ = GitError("fetch", 128, "fatal: couldn't find remote ref refs/heads/main")
    async with open_seam(tmp_path, FIX) as stage:
        stage.workspaces.fail("fetch", error, times=ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        last = (await stage.record(end.job_id)).service_outage
        assert last is not None
        assert last.retry_at - last.since > ACCESS_PATIENCE_SECONDS
        assert ("`main` no longer exists." in end.status) is not is_shown
        assert ("GitHub's API shows it all the same" in end.status) is is_shown
        assert ("Push it again." in end.status) is not is_shown


@pytest.mark.parametrize("is_shown", [True, False])
async def test_access_is_called_missing_only_if_the_api_agrees(tmp_path: Path, *, is_shown: bool) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        error = clone_error(403)
        error.sha = stage.head("main") if is_shown else "a" * 40
        stage.workspaces.fail("fetch", error, times=ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        assert ("GitHub's API shows it all the same" in end.status) is is_shown


async def test_a_push_that_fails_keeps_the_finished_work_and_publishes_it_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        stage.workspaces.fail("push", push_error(503), times=2)
        stage.workspaces.fail("push", push_error(403), times=1)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == len(stage.pulls()) == len(stage.bot_branches()) == 1


REFUSED = GitHubError("create a pull request", 403, "Forbidden", "")
UNAUTHORIZED = GitHubError("create a pull request", 401, "Bad credentials", "")
INVALID = GitHubError("create a pull request", 422, "Validation Failed", "")


@pytest.mark.parametrize("error", [UNAUTHORIZED, REFUSED, not_found(), no_answer()], ids=["401", "403", "404", "none"])
async def test_a_pull_request_is_asked_for_again_after_one_answer_that_may_pass(
    tmp_path: Path, error: GitHubError
) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        stage.hub.fail("pulls.create", error)
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert stage.hub.take_fault("pulls.create") is None
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == len(stage.pulls()) == len(stage.bot_branches()) == 1
        assert "could not be created" not in end.status


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (not_found(), ACCESS_PATIENCE_SECONDS),
        (no_answer(), PATIENCE_SECONDS),
        (INVALID, None),
        (forbidden("Resource not accessible by integration"), None),
    ],
    ids=["404", "none", "422", "permission"],
)
async def test_a_pull_request_that_github_refuses_leaves_the_commit(
    tmp_path: Path, error: GitHubError, seconds: float | None
) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        stage.hub.fail("pulls.create", error, ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.DONE, end
        text = "GitHub did not answer." if not error.status else f"GitHub answered {error.status}"
        assert re.search(rf"The commit was pushed, but the pull request could not be created\. .*{text}", end.status)
        assert len(stage.providers) == len(stage.bot_branches()) == 1
        outage_record = (await stage.record(end.job_id)).service_outage
        assert (outage_record is None) is (seconds is None)
        if outage_record is not None and seconds is not None:
            assert outage_record.retry_at - outage_record.since <= seconds < stage.clock() - outage_record.since


async def test_a_push_that_never_succeeds_leaves_the_patch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        stage.workspaces.fail("push", push_error(503), times=ALWAYS)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        assert "The push to `b` failed" in end.status
        assert stage.kept_patch(end.job_id)
        assert stage.pulls() == []


async def test_a_full_disk_in_mid_run_lets_the_run_go_on_later(tmp_path: Path) -> None:
    faults = [session_on_a_full_disk()]

    def write_event() -> None:
        if faults:
            raise faults.pop()

    script = [reply(write("calc.py", FIXED_CALC), do(write_event)), *FIX]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert faults == []
        assert len(stage.pulls()) == 1


async def test_a_result_waits_for_the_store(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.patches.failure = store_away()
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.settle()
        assert await stage.state_of(await stage.job_of(command)) is JobState.QUEUED
        assert stage.pulls() == []
        stage.patches.failure = None
        assert (await stage.end_of(command)).state is JobState.DONE
        assert len(stage.pulls()) == 1


async def test_a_store_that_stays_away_is_told_without_its_address(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.patches.failure = store_away()
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        assert "The store for unfinished work cannot be reached." in end.status
        assert not any(internal in f"{end.status}{end.reason}" for internal in INTERNAL)
        check = stage.check_of(end.job_id)
        assert "+    return a + b" in f"{check}"
        assert len(stage.providers) == 1


async def test_a_store_that_goes_away_with_a_finished_result_is_told_without_its_address(tmp_path: Path) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        stage.workspaces.fail("push", push_error(503), times=ALWAYS)
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.settle()
        stage.patches.failure = store_away()
        end = await end_of_outage(stage, command)
        assert end.state is JobState.FAILED
        assert "The store for unfinished work cannot be reached." in end.status
        assert not any(internal in f"{end.status}{end.reason}" for internal in INTERNAL)
        assert f"`codepilot patch {end.job_id}` prints it." in end.status
        stage.patches.failure = None
        assert stage.kept_patch(end.job_id)


async def test_a_stopped_run_publishes_its_work_although_the_store_is_away(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(write("calc.py", FIXED_CALC), wait_for_test())]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.at_work()
        stage.patches.failure = store_away()
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert not any(internal in f"{end.status}{end.reason}" for internal in INTERNAL)
        [branch] = stage.bot_branches()
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def test_a_stopped_job_without_work_does_not_wait_for_git(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.workspaces.fail("fetch", clone_error(503), times=ALWAYS)
        command = stage.say(issue.number, "/codepilot fix")
        await stage.settle()
        job_id = await stage.job_of(command)
        assert await stage.state_of(job_id) is JobState.QUEUED
        since = stage.clock()
        stage.say(issue.number, "/codepilot stop")
        await stage.ended(job_id)
        assert stage.clock() - since < ACCESS_PATIENCE_SECONDS
        assert stage.providers == []


async def test_a_job_that_is_stopped_during_its_fetch_does_not_wait_for_git(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")

        async def stop_and_fail(*_: object, **__: object) -> None:
            if len(stage.hub.comments(stage.repo, issue.number)) < 3:
                await stage.end_of(stage.say(issue.number, "/codepilot stop"))
            raise clone_error(503)

        since = stage.clock()
        with patch.object(FakeMirror, "provide", stop_and_fail):
            assert (await stage.end_of(command)).state is JobState.STOPPED
        assert stage.clock() - since < ACCESS_PATIENCE_SECONDS
        assert stage.providers == []


async def test_a_stopped_job_with_finished_work_waits_for_git_and_publishes_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        issue = stage.issue()
        stage.workspaces.fail("push", push_error(503), times=3)
        command = stage.say(issue.number, "/codepilot fix")
        await stage.settle()
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert not any(internal in f"{end.status}{end.reason}" for internal in INTERNAL)
        assert len(stage.bot_branches()) == len(stage.providers) == 1


async def test_a_file_that_the_thread_links_to_is_waited_for(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        link = f"{stage.hub.url}/{stage.repo.full_name}/blob/main/calc.py"
        issue = stage.issue(body=f"See {link}")
        # The settings are read before, as one file and as many.
        stage.workspaces.fail("read", clone_error(503), after=2)
        command = stage.say(issue.number, "/codepilot fix")
        await stage.settle()
        assert (await stage.record(await stage.job_of(command))).service_outage is not None
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        [play] = stage.providers
        assert "def add" in play.opening


async def test_a_refused_job_keeps_its_work_although_git_is_away(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), wait_for_test())]
    async with open_seam(tmp_path, script) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        command = stage.say(stage.issue().number, "/codepilot fix", author="rita")
        await stage.at_work()
        await stage.restart()
        stage.hub.add_collaborator(stage.repo, "rita", "read")
        stage.workspaces.fail("change", clone_error(503), times=3)
        end = await stage.end_of(command)
        assert "write access" in end.status
        assert "+    return a + b" in (stage.kept_patch(end.job_id) or "")


async def test_a_disk_that_is_full_during_set_up_is_waited_for(tmp_path: Path) -> None:
    files = {**FILES, ".github/codepilot.yml": "setup:\n  - npm ci\n"}
    async with open_seam(tmp_path, FIX, files=files) as stage:
        faults = [disk_full()] * 3

        async def run(_runner: object, command: str, *, seconds: float) -> CommandEnd:
            if faults:
                raise faults.pop()
            return CommandEnd(command=command, exit_code=0, output="", seconds=seconds)

        with patch.object(CommandRunner, "run", run):
            command = stage.say(stage.issue().number, "/codepilot fix")
            await stage.settle()
            outage_record = (await stage.record(await stage.job_of(command))).service_outage
            assert outage_record is not None
            assert outage_record.reason == "The disk of the machine is full."
            end = await stage.end_of(command)
        assert faults == []
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == len(stage.pulls()) == 1


async def test_a_report_is_posted_although_the_disk_was_full(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        faults = [disk_full()] * 3
        put = StatusComment.put

        async def post(comment: StatusComment, body: str) -> None:
            if COMPLETION in body and faults:
                raise faults.pop()
            await put(comment, body)

        with patch.object(StatusComment, "put", post):
            end = await stage.end_of(command)
        assert faults == []
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert len(stage.providers) == len(stage.pulls()) == 1


@pytest.mark.parametrize("has_work", [False, True])
async def test_a_stop_does_not_wait_for_a_doubtful_answer(tmp_path: Path, *, has_work: bool) -> None:
    script = [reply(write("calc.py", FIXED_CALC), wait_for_test()), *FIX]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        if not has_work:
            stage.hub.fail("threads.snapshot", not_found(), ALWAYS)
        command = stage.say(issue.number, "/codepilot fix")
        if has_work:
            await stage.at_work()
            await stage.restart()
            stage.workspaces.fail("change", clone_error(404), times=ALWAYS)
        await stage.settle()
        job_id = await stage.job_of(command)
        assert await stage.state_of(job_id) is JobState.QUEUED
        since = stage.clock()
        # The command to stop needs GitHub, too.
        signal = Signal(kind="stop", text="Stopped by @mona.", by="mona", id="s1")
        assert await stage.queue.send(job_id, signal)
        end = await stage.ended(job_id)
        assert stage.clock() - since < ACCESS_PATIENCE_SECONDS
        assert end.state is JobState.STOPPED, end
        assert stage.pulls() == []


REMOVED = AppRemovedError("create a token for the installation", 404, "Not Found", "Install it.")
SUSPENDED = GitHubError("create a token for the installation", 403, "This installation has been suspended", "Wait.")


@pytest.mark.parametrize("error", [REMOVED, SUSPENDED], ids=["removed", "suspended"])
async def test_a_job_without_its_app_ends_at_once_and_the_log_has_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: GitHubError
) -> None:
    async def refuse(*_: object, **__: object) -> Answer:
        raise error

    async with open_seam(tmp_path, FIX) as stage:
        stage.is_acknowledging = error is REMOVED
        command = stage.say(stage.issue().number, "/codepilot fix")
        with patch.object(FakeConnection, "request", refuse):
            assert (await stage.end_of(command)).state is JobState.FAILED
            for _ in range(10):
                stage.advance(3600.0)
                await stage.settle()
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.getMessage() for record in warnings] == [f"the job's result could not be reported: {error}"]
        stage.advance(3600.0)
        await stage.settle()
        # A suspension ends; an App that was removed has nothing to say there.
        assert bool(stage.bot_comments(1)) is (error is SUSPENDED)


def clone_without_answer() -> CloneError:
    error = CloneError("The repository could not be fetched: git on GitHub did not answer.", "Check it.")
    error.__cause__ = RESET
    return error


def push_unavailable() -> PushFailedError:
    error = PushFailedError("The push to `b` failed: git on GitHub answered 503.", "Give the command again later.")
    error.__cause__ = git_error(503, "push")
    return error


def fail_store(stage: Seam) -> None:
    stage.patches.failure = store_away()


RESET = GitError("fetch", 128, "fatal: unable to access 'https://10.0.0.7/': Recv failure: Connection reset by peer")
ENDINGS: list[tuple[str, str, Callable[[Seam], None]]] = [
    ("GitHub", "GitHub did not answer.", lambda s: s.hub.fail("repos.branch_head", no_answer(), ALWAYS)),
    ("GitHub", "GitHub answered 403: …", lambda s: s.hub.fail("repos.branch_head", REFUSED, ALWAYS)),
    (
        "git",
        "The repository could not be fetched: git on GitHub did not answer.",
        lambda s: s.workspaces.fail("fetch", clone_without_answer(), times=ALWAYS),
    ),
    (
        "git",
        "The push to `…` failed: git on GitHub answered 503.",
        lambda s: s.workspaces.fail("push", push_unavailable(), times=ALWAYS),
    ),
    ("store", "The store for unfinished work cannot be reached.", fail_store),
    (
        "machine",
        "The disk of the machine is full.",
        lambda s: s.workspaces.fail("read", disk_full(), times=ALWAYS),
    ),
]


@pytest.mark.parametrize(("row", "text", "fail"), ENDINGS, ids=[f"{row}: {text}" for row, text, _ in ENDINGS])
async def test_a_fault_ends_in_the_words_of_the_documentation(
    tmp_path: Path, row: str, text: str, fail: Callable[[Seam], None]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith(f"| {row} | ")]
    assert text in line
    async with open_seam(tmp_path, pushed(lambda: only_folder(stage))) as stage:
        fail(stage)
        end = await end_of_outage(stage, stage.say(stage.issue().number, "/codepilot fix"))
        assert end.state is JobState.FAILED
        shown = f"{end.status}{stage.bot_comments(1)}"
        assert re.search(re.escape(text).replace("…", ".*"), shown), shown
        assert not any(internal in shown for internal in INTERNAL)


async def test_a_sandbox_whose_programs_do_not_end_repeats_the_job_with_its_files(tmp_path: Path) -> None:
    close, closings = ScriptedAgent.close, list[bool]()

    async def close_late(agent: ScriptedAgent) -> None:
        await close(agent)
        closings.append(True)
        if len(closings) == 1:
            error = SandboxError("Programs of the sandbox did not end.")
            raise error from BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async with open_seam(tmp_path, FIX) as stage:
        with patch.object(ScriptedAgent, "close", close_late):
            end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert len(closings) == 2
        assert len(stage.agents.plays) == 1  # the model is not paid again
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
