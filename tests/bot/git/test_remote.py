"""A git server that is busy, or silent, for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from bot.git.errors import CloneError
from bot.git.mirror import Source
from bot.git.process import git_variables
from bot.git.workspace import Workspaces
from tests.origin import Origin, git

REPO = 4711


class Handler(SimpleHTTPRequestHandler):
    """Serves a bare repository, once `trouble` is over."""

    trouble: ClassVar[Callable[[SimpleHTTPRequestHandler], bool]]

    @override
    def do_GET(self) -> None:
        if not type(self).trouble(self):
            super().do_GET()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, trouble: Callable[[SimpleHTTPRequestHandler], bool]) -> Iterator[str]:
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
    """Answers so often with a status, and then no more."""

    def __init__(self, status: int, times: int) -> None:
        self.status, self.left = status, times

    def __call__(self, request: SimpleHTTPRequestHandler) -> bool:
        if not self.left:
            return False
        self.left -= 1
        request.send_error(self.status)
        return True


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_server_that_is_busy_is_asked_again(status: int, origin: Origin, tmp_path: Path) -> None:
    with serving(tmp_path, Busy(status, 2)) as url:
        workspaces = Workspaces(tmp_path / "state", pauses=(0.0, 0.0))
        async with workspaces.open("job", REPO, source(origin, url)) as tree:
            assert (tree.path / "a").read_text() == "1"


async def test_what_the_server_refuses_for_good_is_not_asked_again(origin: Origin, tmp_path: Path) -> None:
    refusing = Busy(404, 10)
    with serving(tmp_path, refusing) as url, pytest.raises(CloneError):
        await Workspaces(tmp_path / "state", pauses=(60.0,)).read(REPO, source(origin, url), "a", limit=10)
    assert refusing.left == 9


async def test_a_connection_that_is_silent_is_given_up_and_made_anew(origin: Origin, tmp_path: Path) -> None:
    ended = threading.Event()
    asked = 0

    def silent(_: SimpleHTTPRequestHandler) -> bool:
        nonlocal asked
        asked += 1
        return asked == 1 and ended.wait(100)

    environment = {"GIT_HTTP_LOW_SPEED_TIME": "1"}
    with serving(tmp_path, silent) as url:
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

    with serving(tmp_path, pass_on) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        workspaces = Workspaces(tmp_path / "state", environment=git_variables(None), pauses=())
        blob = await workspaces.read(REPO, source(origin, "http://git.example"), "a", limit=10)
    assert blob is not None
    assert blob.content == b"1"
    assert all(path.startswith("http://git.example/bare.git/") for path in asked)


async def test_a_host_that_the_environment_leaves_out_is_asked_without_the_proxy(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(tmp_path, lambda _: False) as url:
        workspaces = Workspaces(tmp_path / "state", environment=git_variables(None), pauses=())
        blob = await workspaces.read(REPO, source(origin, url), "a", limit=10)
    assert blob is not None
    assert blob.content == b"1"
