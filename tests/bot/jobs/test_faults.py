"""Faults that are not the job's: the table of docs/server.md, row by row, and the patience with each."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.domain.errors import StorageError
from bot.git.errors import ChangeError, CloneError, GitError, PushFailedError, WorkspaceError
from bot.git.process import AuthoritiesError
from bot.github.types import GitHubError
from bot.jobs import faults
from bot.jobs.faults import ACCESS_PATIENCE_SECONDS, Fault, Patience, classify
from bot.jobs.record import JobRecord, StoredRecord
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job

URL = "https://github.com/octo/certificate-503.git"
UNREADABLE = "unreadable answer"
GIT, STORE, MACHINE = "git on GitHub", "the store for unfinished work", "the bot's machine"
UNABLE = f"fatal: unable to access '{URL}/': "


def api(status: int, message: str = "Something.", *, limited: bool = False, retry_after: float = 0.0) -> GitHubError:
    return GitHubError("read o/r", status, message, "Ask.", limited=limited, retry_after=retry_after)


def git(stderr: str, command: str = "fetch", code: int | None = 128) -> GitError:
    return GitError(command, code, stderr)


def with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


PASSING = {
    "no answer": (api(0), "GitHub", "GitHub did not answer."),
    "unreadable answer": (api(200), "GitHub", "GitHub answered 200."),
    "408": (api(408), "GitHub", "GitHub answered 408."),
    "429": (api(429), "GitHub", "GitHub answered 429."),
    "502": (api(502), "GitHub", "GitHub answered 502."),
    "rate limit": (api(403, "rate limit", limited=True), "GitHub", "GitHub limits the bot's requests."),
    "git 429": (git(f"{UNABLE}The requested URL returned error: 429"), GIT, "git on GitHub answered 429."),
    "git 503": (git(f"{UNABLE}The requested URL returned error: 503"), GIT, "git on GitHub answered 503."),
    "git 302": (git(f"{UNABLE}The requested URL returned error: 302"), GIT, "git on GitHub answered 302."),
    "git RPC 502": (git("error: RPC failed; HTTP 502 curl 22 The requested"), GIT, "git on GitHub answered 502."),
    "git DNS": (git(f"{UNABLE}Could not resolve host: github.com"), GIT, "git on GitHub did not answer."),
    "git proxy": (git(f"{UNABLE}Could not resolve proxy: proxy.lan"), GIT, "git on GitHub did not answer."),
    "git reset": (git(f"{UNABLE}Recv failure: Connection reset by peer"), GIT, "git on GitHub did not answer."),
    "git cut off": (
        git("fatal: early EOF\nfatal: index-pack failed"),
        GIT,
        f"git on GitHub sent an {UNREADABLE}.",
    ),
    "git hung up": (
        git("fatal: the remote end hung up unexpectedly", "push"),
        GIT,
        "git on GitHub did not answer.",
    ),
    "git TLS": (git(f"{UNABLE}OpenSSL SSL_connect: SSL_ERROR_SYSCALL"), GIT, "git on GitHub did not answer."),
    "git page": (
        git(f"fatal: {URL}/info/refs not valid: is this a git repository?"),
        GIT,
        f"git on GitHub sent an {UNREADABLE}.",
    ),
    "git certificate": (
        git(f"{UNABLE}SSL certificate problem: certificate has expired"),
        GIT,
        "the bot's machine does not trust the certificate of git on GitHub.",
    ),
    "git push fails inside": (
        git("remote: Internal Server Error\n ! [remote rejected] x -> x (Internal Server Error)", "push"),
        GIT,
        "git on GitHub failed.",
    ),
    "store": (
        StorageError("s3://work at http://10.0.0.7:9000", "timeout", "Check it."),
        STORE,
        "The store for unfinished work cannot be reached.",
    ),
    "disk full": (OSError(errno.ENOSPC, "x", "/var/lib/bot"), MACHINE, "The disk of the machine is full."),
    "quota": (OSError(errno.EDQUOT, "x"), MACHINE, "The disk of the machine is full."),
    "read-only disk": (OSError(errno.EROFS, "x"), MACHINE, "The disk of the machine can only be read."),
    "disk error": (OSError(errno.EIO, "x"), MACHINE, "The disk of the machine failed."),
    "open files": (OSError(errno.EMFILE, "x"), MACHINE, "The machine has too many open files."),
    "memory": (OSError(errno.ENOMEM, "x"), MACHINE, "The machine has too little memory."),
    "fork": (BlockingIOError(errno.EAGAIN, "x"), MACHINE, "The machine is busy."),
    "git on a full disk": (
        git("fatal: write error: No space left on device\nfatal: index-pack failed"),
        MACHINE,
        "The disk of the machine is full.",
    ),
    "checkout on a full disk": (
        git("error: unable to write file a.txt: No space left on device", "read-tree"),
        MACHINE,
        "The disk of the machine is full.",
    ),
    "authorities": (
        AuthoritiesError(FileNotFoundError(errno.ENOENT, "No such file")),
        MACHINE,
        "The bot cannot read the file that CODEPILOT_CA_FILE names.",
    ),
    "no socket": (
        with_cause(api(0), OSError(errno.EMFILE, "Too many open files")),
        MACHINE,
        "The machine has too many open files.",
    ),
}
DOUBTFUL = {
    "401": (api(401, "Bad credentials"), "GitHub", "GitHub refused a request: 401."),
    "403": (api(403, "Forbidden"), "GitHub", "GitHub refused a request: 403."),
    "404": (api(404, "Not Found"), "GitHub", "GitHub refused a request: 404."),
    "git 401": (
        git(f"fatal: could not read Username for '{URL}': terminal prompts disabled"),
        GIT,
        "git on GitHub refused access.",
    ),
    "git 401 to a token": (git(f"fatal: Authentication failed for '{URL}/'"), GIT, "git on GitHub refused access."),
    "git 403": (
        git(f"{UNABLE}The requested URL returned error: 403"),
        GIT,
        "git on GitHub refused access: 403.",
    ),
    "git RPC 403": (
        git("error: RPC failed; HTTP 403 curl 22 The requested URL returned error: 403", "push"),
        GIT,
        "git on GitHub refused access: 403.",
    ),
    "git 404": (
        git(f"remote: Not Found\nfatal: repository '{URL}/' not found"),
        GIT,
        "git on GitHub refused access.",
    ),
    "git without the branch": (
        git("fatal: couldn't find remote ref refs/heads/it's-main"),
        GIT,
        "git on GitHub does not show the branch or commit.",
    ),
    "git without the commit": (
        git(f"fatal: remote error: upload-pack: not our ref {'a' * 40}"),
        GIT,
        "git on GitHub does not show the branch or commit.",
    ),
    "git takes too long": (git("it took more than 600 s", code=None), GIT, "git on GitHub took too long."),
    "git killed": (git("", code=-9), MACHINE, "The machine has too little memory."),
    "git without memory": (
        git("fatal: mmap failed: Cannot allocate memory"),
        MACHINE,
        "The machine has too little memory.",
    ),
}
DEFINITE = {
    "422": api(422, "Validation failed"),
    "no permission": api(403, "Resource not accessible by integration"),
    "archived": api(403, "Repository was archived so is read-only."),
    "deleted": api(410, "This issue was deleted"),
    "git archived": git(
        f"remote: This repository was archived.\n{UNABLE}The requested URL returned error: 403", "push"
    ),
    "git may not write": git(
        f"remote: Write access to repository not granted.\n{UNABLE}The requested URL returned error: 403", "push"
    ),
    "git fsck": git("error: object 1: hasDotgit\nfatal: fsck error in packed object\nfatal: index-pack failed"),
    "git not a fast-forward": git(
        " ! [rejected] a -> certificate (stale info)\nerror: failed to push some refs", "push"
    ),
    "git refused": git("remote: a certificate is missing\n ! [remote rejected] a -> a (certificate declined)", "push"),
    "git command": git("fatal: bad revision 'unable to access'", "rev-parse"),
    "git writes too much": git("it wrote more than 5 bytes", "cat-file", None),
    "workspace": ChangeError("The file cannot be restored.", "Ask."),
    "bug": ZeroDivisionError(),
    "other error of the machine": PermissionError(errno.EACCES, "x"),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_passing_fault(name: str) -> None:
    error, service, public = PASSING[name]
    fault = classify(error)
    assert fault is not None
    assert (fault.service, fault.certainty, fault.public) == (service, "passing", public)


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_doubtful_fault(name: str) -> None:
    error, service, public = DOUBTFUL[name]
    fault = classify(error)
    assert fault is not None
    assert (fault.service, fault.certainty, fault.public) == (service, "doubtful", public)


@pytest.mark.parametrize("name", DEFINITE)
def test_a_definite_answer_is_no_fault(name: str) -> None:
    assert classify(DEFINITE[name]) is None


@pytest.mark.parametrize("error", [CloneError("a", "b"), PushFailedError("a", "b"), WorkspaceError("a", "b")])
def test_the_fault_behind_an_error_counts(error: BaseException) -> None:
    fault = classify(with_cause(error, git(f"{UNABLE}The requested URL returned error: 503")))
    assert fault is not None
    assert fault.service == GIT


@pytest.mark.parametrize(
    "error",
    [
        api(429, limited=True, retry_after=90.0),
        git(f"remote: Retry-After: 90\n{UNABLE}The requested URL returned error: 429"),
    ],
)
def test_a_pause_that_the_server_asks_for_is_part_of_the_fault(error: BaseException) -> None:
    fault = classify(error)
    assert fault is not None
    assert fault.retry_after == 90.0


def test_each_errno_of_the_machine_has_words_of_its_own_without_a_path() -> None:
    path = "/var/lib/codepilot/jobs/x"
    faults = [classify(OSError(number, os.strerror(number), path)) for number in range(200)]
    sentences = [fault.public for fault in faults if fault is not None]
    assert sentences
    assert not any(path in sentence for sentence in sentences)


DOWN = Fault(service="git on GitHub", certainty="passing", public="git on GitHub did not answer.")
REFUSED = Fault(service="GitHub", certainty="doubtful", public="GitHub refused a request: 404.")


async def a_record() -> StoredRecord:
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    return StoredRecord(engine, "j1")


async def let_pass(record: StoredRecord, seconds: float) -> None:
    """Let the outage have begun so long ago, with an attempt due now."""

    def earlier(stored: JobRecord) -> JobRecord:
        outage = stored.service_outage
        assert outage is not None
        doubtful = outage.doubtful_since
        started = replace(outage, since=outage.since - seconds, doubtful_since=doubtful and doubtful - seconds)
        return replace(stored, service_outage=started)

    await record.update(earlier)


async def test_pauses_grow_with_the_outage_up_to_the_longest() -> None:
    record, patience = await a_record(), Patience(seconds=3600, longest_pause=60)
    first = await patience.pause(record, DOWN)
    await let_pass(record, 1800)
    assert (first, await patience.pause(record, DOWN)) == (2.0, 60)


async def test_patience_ends_and_sooner_where_access_is_refused() -> None:
    record, patience = await a_record(), Patience(seconds=3600)
    assert await patience.pause(record, REFUSED) is not None
    await let_pass(record, ACCESS_PATIENCE_SECONDS + 60)
    assert await patience.pause(record, REFUSED) is None
    assert await patience.pause(record, DOWN) is not None
    await let_pass(record, 3700)
    assert await patience.pause(record, DOWN) is None


async def test_one_refusal_late_in_an_outage_ends_nothing() -> None:
    record, patience = await a_record(), Patience(seconds=3600)
    await patience.pause(record, DOWN)
    await let_pass(record, ACCESS_PATIENCE_SECONDS + 60)
    assert await patience.pause(record, REFUSED) is not None


async def test_an_outage_tells_its_service_and_the_end_of_the_patience() -> None:
    record, patience = await a_record(), Patience(seconds=3600)
    for fault, seconds in ((DOWN, 3600), (REFUSED, ACCESS_PATIENCE_SECONDS)):
        await patience.pause(record, fault)
        outage = (await record.read()).service_outage
        assert outage is not None
        assert (outage.service, outage.reason) == (fault.service, fault.public)
        assert outage.until - (outage.doubtful_since or outage.since) == pytest.approx(seconds)


async def test_a_refusal_for_good_is_not_waited_for() -> None:
    record = await a_record()
    assert await Patience().pause(record, classify(api(422))) is None
    assert (await record.read()).service_outage is None


async def test_a_pause_that_is_asked_for_is_kept() -> None:
    record = await a_record()
    assert await Patience().pause(record, replace(DOWN, retry_after=900.0)) == 900.0


async def test_long_pauses_belong_to_one_outage_and_end_with_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    record, patience, clock = await a_record(), Patience(seconds=9000), SimpleNamespace(now=1e9)
    monkeypatch.setattr(faults, "time", SimpleNamespace(time=lambda: clock.now))
    pauses: list[float | None] = []
    while len(pauses) < 4:
        pauses.append(await patience.pause(record, replace(DOWN, retry_after=3600.0)))
        clock.now += pauses[-1] or 0.0
    assert pauses == [3600.0, 3600.0, 1801.0, None]
