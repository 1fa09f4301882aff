"""Git and other host programs: bounds, settings, credentials, retries, certificates."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import aiohttp
import pytest
from aiohttp import web
from typing_extensions import override

from bot.git.change import LargeFile
from bot.git.errors import CloneError, GitError, GitMissingError, LargeFileError
from bot.git.lfs import upload_objects
from bot.git.mirror import Source
from bot.git.process import Git, ProcessBounds, git_variables, make_connector, run
from bot.git.workspace import Workspaces
from bot.github.connection import GitHubConnection
from bot.github.downloads import LogError, PictureError, fetch_picture, save_log
from bot.github.types import GitHubError, RepoFacts
from tests.origin import Origin, git
from tests.tls_hosts import LOOPBACK, authority, serving

SH = {"PATH": "/usr/bin:/bin"}


async def test_the_result_has_output_errors_and_the_exit_code() -> None:
    ended = await run(["sh", "-c", "cat; echo wrong >&2; exit 3"], env=SH, bounds=ProcessBounds(), stdin=b"hello")
    assert (ended.code, ended.output, ended.stderr, ended.truncated) == (3, b"hello", "wrong\n", False)


async def test_input_and_output_can_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 1_000_000)
    ended = await run(["cat"], env=SH, bounds=ProcessBounds(), stdin=tmp_path / "in", stdout=tmp_path / "out")
    assert (ended.code, ended.output) == (0, b"")
    assert (tmp_path / "out").read_bytes() == b"x" * 1_000_000


async def test_processor_time_is_bounded() -> None:
    ended = await run(["sh", "-c", "while :; do :; done"], env=SH, bounds=ProcessBounds(seconds=15, cpu_seconds=1))
    assert ended.code == -signal.SIGXCPU


async def test_output_is_bounded() -> None:
    ended = await run(["yes"], env=SH, bounds=ProcessBounds(output_bytes=10_000))
    assert ended.truncated
    assert len(ended.output) == 10_000


async def test_stderr_is_bounded_to_its_end() -> None:
    command = "yes | head -c 2000000 >&2; echo end >&2"
    ended = await run(["sh", "-c", command], env=SH, bounds=ProcessBounds())
    assert len(ended.stderr) == 64 * 1024
    assert ended.stderr.endswith("end\n")


async def test_memory_is_bounded() -> None:
    ended = await run(
        ["/usr/bin/perl", "-e", '$x = "x" x 300_000_000'], env=SH, bounds=ProcessBounds(memory_bytes=100 << 20)
    )
    assert ended.code != 0
    assert "memory" in ended.stderr.lower()


async def test_the_size_of_files_is_bounded(tmp_path: Path) -> None:
    command = ["sh", "-c", f"yes > {tmp_path}/file"]
    ended = await run(command, env=SH, bounds=ProcessBounds(file_bytes=100 * 1024))
    assert ended.code != 0
    assert (tmp_path / "file").stat().st_size == 100 * 1024


async def test_a_timeout_leaves_no_process() -> None:
    ended = await run(["sh", "-c", "sleep 1000 & wait"], env=SH, bounds=ProcessBounds(seconds=0.2))
    assert ended.code is None
    assert "0.2 s" in ended.stderr


async def test_a_program_killed_during_its_input_logs_no_error() -> None:
    said = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    for steps in range(1, 20):
        running = asyncio.create_task(run(["cat"], env=SH, bounds=ProcessBounds(), stdin=b"x" * 1_000))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    await run(["true"], env=SH, bounds=ProcessBounds())
    assert said == []


async def test_time_is_bounded_for_a_program_that_writes_on_and_on() -> None:
    for milliseconds in range(20, 30):
        bounds = ProcessBounds(seconds=milliseconds / 1000, output_bytes=10 << 30)
        async with asyncio.timeout(20):
            ended = await run(["cat", "/dev/zero"], env=SH, bounds=bounds)
        assert ended.code is None


async def test_a_program_that_writes_on_and_on_is_not_waited_for() -> None:
    for _ in range(20):
        ended = await run(["head", "-c", "50M", "/dev/zero"], env=SH, bounds=ProcessBounds(output_bytes=10, seconds=20))
        assert ended.truncated
        assert ended.code is not None


async def test_missing_git_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.git.process._program", lambda: "/nowhere/git")
    with pytest.raises(GitMissingError):
        await Git().run("version")


@pytest.mark.parametrize(
    ("bounds", "broken"),
    [
        (ProcessBounds(output_bytes=3), "git version was stopped: it wrote more than 3 bytes."),
        (ProcessBounds(seconds=0.0), "git version was stopped: it took more than 0 s."),
    ],
)
async def test_an_exceeded_bound_is_reported_with_a_remedy(bounds: ProcessBounds, broken: str) -> None:
    with pytest.raises(GitError) as told:
        await Git(bounds=bounds).run("version")
    assert str(told.value).startswith(broken)
    assert "fewer or smaller files" in told.value.remedy
    assert told.value.exit_code is None


async def test_an_error_names_the_subcommand_without_options() -> None:
    with pytest.raises(GitError, match="git ls-tree ended with exit code 128: "):
        await Git().run("--literal-pathspecs", "ls-tree", "nowhere")


REPO = 4711


class Handler(SimpleHTTPRequestHandler):
    """Serves a bare repository, once `trouble` is over."""

    trouble: ClassVar[Callable[[SimpleHTTPRequestHandler], bool]]

    @override
    def do_GET(self) -> None:
        if not type(self).trouble(self):
            super().do_GET()

    @override
    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serve_files(folder: Path, trouble: Callable[[SimpleHTTPRequestHandler], bool]) -> Iterator[str]:
    handler = type("TroubledHandler", (Handler,), {"trouble": staticmethod(trouble)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a": "1"})
    git(tmp_path, "clone", "--quiet", "--bare", origin.url, str(tmp_path / "bare.git"))
    git(tmp_path / "bare.git", "update-server-info")
    return origin


def source(origin: Origin, url: str) -> Source:
    return Source(url=f"{url}/bare.git", token="", ref="refs/heads/main", sha=origin.head())


class Busy:
    """Responds with an error status a number of times."""

    def __init__(self, status: int, times: int) -> None:
        self.status, self.left = status, times

    def __call__(self, request: SimpleHTTPRequestHandler) -> bool:
        if not self.left:
            return False
        self.left -= 1
        request.send_error(self.status)
        return True


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_request_to_a_busy_server_is_retried(status: int, origin: Origin, tmp_path: Path) -> None:
    with serve_files(tmp_path, Busy(status, 2)) as url:
        workspaces = Workspaces(tmp_path / "state", pauses=(0.0, 0.0))
        async with workspaces.open("job", REPO, source(origin, url)) as tree:
            assert (tree.path / "a").read_text() == "1"


async def test_a_permanent_refusal_is_not_retried(origin: Origin, tmp_path: Path) -> None:
    refusing = Busy(404, 10)
    with serve_files(tmp_path, refusing) as url, pytest.raises(CloneError):
        await Workspaces(tmp_path / "state", pauses=(60.0,)).read(REPO, source(origin, url), "a", limit=10)
    assert refusing.left == 9


async def test_a_silent_connection_is_aborted_and_retried(origin: Origin, tmp_path: Path) -> None:
    ended = threading.Event()
    asked = 0

    def silent(_: SimpleHTTPRequestHandler) -> bool:
        nonlocal asked
        asked += 1
        return asked == 1 and ended.wait(100)

    environment = {"GIT_HTTP_LOW_SPEED_TIME": "1"}
    with serve_files(tmp_path, silent) as url:
        workspaces = Workspaces(tmp_path / "state", environment=environment, pauses=(0.0,))
        blob = await workspaces.read(REPO, source(origin, url), "a", limit=10)
        ended.set()
    assert blob is not None
    assert blob.content == b"1"


async def test_a_proxy_that_the_environment_names_is_used(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def pass_on(request: SimpleHTTPRequestHandler) -> bool:
        asked.append(request.path)
        request.path = request.path.removeprefix("http://git.example")
        return False

    with serve_files(tmp_path, pass_on) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        workspaces = Workspaces(tmp_path / "state", environment=git_variables(None), pauses=())
        blob = await workspaces.read(REPO, source(origin, "http://git.example"), "a", limit=10)
    assert blob is not None
    assert blob.content == b"1"
    assert all(path.startswith("http://git.example/bare.git/") for path in asked)


async def test_no_proxy_hosts_are_contacted_directly(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve_files(tmp_path, lambda _: False) as url:
        workspaces = Workspaces(tmp_path / "state", environment=git_variables(None), pauses=())
        blob = await workspaces.read(REPO, source(origin, url), "a", limit=10)
    assert blob is not None
    assert blob.content == b"1"


async def _status(ca_file: Path, port: int) -> int:
    async with (
        aiohttp.ClientSession(connector=make_connector(ca_file)) as client,
        client.get(f"https://{LOOPBACK}:{port}/", server_hostname="hub.example") as answer,
    ):
        return answer.status


async def test_authorities_that_are_put_into_the_file_are_trusted_without_a_restart(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (authority(tmp_path / name, "hub.example") for name in ("first", "second"))
    ca_file = tmp_path / "trusted.pem"
    ca_file.write_bytes(first.pem.read_bytes())
    async with serving(web.Application(), second.server) as port:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await _status(ca_file, port)
        ca_file.write_bytes(second.pem.read_bytes())
        assert await _status(ca_file, port) == 404


_NOBODY = f"https://{LOOPBACK}:1"
_LARGE = LargeFile(path="a.bin", oid="0" * 64, size=1)


@pytest.mark.parametrize(
    ("refused", "ask"),
    [
        (LogError, lambda gone: save_log(_NOBODY, gone.parent / "log", most=1, tail=0, seconds=9, ca_file=gone)),
        (PictureError, lambda gone: fetch_picture(_NOBODY, server_url=_NOBODY, limit=1, seconds=9, ca_file=gone)),
        (
            LargeFileError,
            lambda gone: upload_objects(
                [_LARGE], objects=gone.parent, url=_NOBODY, token="", branch="main", ca_file=gone
            ),
        ),
    ],
)
@pytest.mark.parametrize("left", [None, "no certificate\n"])
async def test_a_missing_ca_file_is_reported_to_user_and_operator(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    refused: type[Exception],
    ask: Callable[[Path], Awaitable[object]],
    left: str | None,
) -> None:
    gone = tmp_path / "trusted.pem"
    if left is not None:
        gone.write_text(left)
    with pytest.raises(refused, match="CODEPILOT_CA_FILE") as told:
        await ask(gone)
    assert str(tmp_path) not in str(told.value)
    assert f"{gone}: the bot cannot read the file that CODEPILOT_CA_FILE names" in caplog.text


async def test_a_request_succeeds_again_once_the_ca_file_is_restored(tmp_path: Path) -> None:
    async with GitHubConnection("a", _NOBODY, ca_file=tmp_path / "gone.pem", max_wait_seconds=0) as connection:
        with pytest.raises(GitHubError, match="CODEPILOT_CA_FILE") as told:
            await connection.read(RepoFacts, "read the repository", "/repos/o/r")
    assert told.value.is_transient
    assert str(tmp_path) not in str(told.value)
