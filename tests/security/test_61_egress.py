"""Threat 61, with a network: listed hosts work, everything else is denied and logged.

Test hosts are on the loopback, which the real policy refuses, so the proxy gets a policy that allows this address and
a resolver with made-up names. Everything else is as in a run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pip
import pytest
from aiohttp import web

from agent_runtime.core.errors import SandboxError
from agent_runtime.core.values import Connection, Network, NetworkLimits
from agent_runtime.sandbox import egress as egress_module
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.egress import _PROGRAM, Egress, listen_in_namespace
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.tools.shell import ShellTools
from tests.sandboxes import parent_of, processes_with
from tests.tls_hosts import LOOPBACK, Authority, authority, serving
from tests.waiting import eventually

_PIP = Path(pip.__file__).parent.parent

# What the attacks are written in: `/usr/bin/python3` inside, with a word for a tunnel.
_TOOLS = """
import os, socket, ssl, sys

def tunnel(target, port=3128):
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
    answer = b""
    while b"\\r\\n\\r\\n" not in answer:
        if not (data := connection.recv(1)):
            break
        answer += data
    print(answer.decode().partition("\\r\\n")[0])
    return connection

def get(target, name, path="/"):
    context = ssl.create_default_context(cafile="/workspace/ca.pem")
    with context.wrap_socket(tunnel(target), server_hostname=name) as secure:
        secure.sendall(f"GET {path} HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        answer = b""
        while data := secure.recv(65536):
            answer += data
    return answer.partition(b"\\r\\n\\r\\n")[2].decode()
"""


@dataclass
class Job:
    """A sandbox with network access."""

    shell: ShellTools
    workspace: Path
    egress: Egress
    seen: list[Connection] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    async def run(self, command: str, seconds: float = 30) -> str:
        """Return a command's output in the terminal `main`."""
        result = (await self.shell.execute("main", command, seconds)).value
        assert isinstance(result, dict)
        assert result["status"] == "completed", result["output"]
        return str(result["output"])

    async def attack(self, code: str) -> str:
        """Return a program's output, or the last line of its traceback."""
        (self.workspace / "attack.py").write_text(f"{_TOOLS}\n{code}\n")
        return await self.run("/usr/bin/python3 -I attack.py 2>&1")


@dataclass
class Site:
    """A host on the loopback, with its requests."""

    ours: Authority
    port: int
    asked: list[str]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=f"hello from {request.host}" if request.path == "/" else "x" * 100_000)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    (tmp_path / "site").mkdir()
    ours = authority(tmp_path / "site", "a.example", "b.example")
    async with serving(app, ours.server) as port:
        yield Site(ours=ours, port=port, asked=asked)


def _on_loopback(address: str) -> str | None:
    return None if address == LOOPBACK else egress_module.refusal_reason(address)


@asynccontextmanager
async def job(
    workspace: Path,
    *hosts: str,
    ours: Authority | None = None,
    limits: NetworkLimits | None = None,
    settings: SandboxSettings | None = None,
    leads_to: Callable[[str], Sequence[str]] = lambda _: [LOOPBACK],
    broken: Exception | None = None,
) -> AsyncIterator[Job]:
    """A job that may reach `hosts`; `broken` is a fault of the proxy."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return leads_to(host)

    def told(connection: Connection) -> None:
        made.seen.append(connection)
        if broken is not None:
            raise broken

    def lost(reason: str) -> None:
        made.lost.append(reason)

    await asyncio.to_thread(_furnish, workspace, ours)
    network = Network(allowed=Network.of(*hosts).allowed, limits=limits or NetworkLimits())
    egress = Egress(network, on_connection=told, on_lost=lost, resolve=resolve, refusal=_on_loopback)
    shell = ShellTools(Bubblewrap(settings or SandboxSettings()), workspace, egress=egress)
    made = Job(shell=shell, workspace=workspace, egress=egress)
    try:
        yield made
    finally:
        await shell.close()


def _furnish(workspace: Path, ours: Authority | None) -> None:
    workspace.mkdir()
    if ours is not None:
        shutil.copy(ours.pem, workspace / "ca.pem")


def _wheel(folder: Path) -> Path:
    """A minimal package with its metadata."""
    path, info = folder / "tidings-1.0-py3-none-any.whl", "tidings-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tidings.py", "NEWS = 'installed through the proxy'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tidings\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"tidings.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@asynccontextmanager
async def _index(folder: Path, ours: Authority) -> AsyncIterator[int]:
    """A package index with files on another host, like PyPI."""
    wheel = _wheel(folder)

    async def project(request: web.Request) -> web.Response:
        files = f"https://files.index.example:{request.url.port}/{wheel.name}"
        return web.Response(text=f'<a href="{files}">{wheel.name}</a>', content_type="text/html")

    async def file(_: web.Request) -> web.FileResponse:
        return web.FileResponse(wheel)

    app = web.Application()
    app.router.add_get("/simple/tidings/", project)
    app.router.add_get(f"/{wheel.name}", file)
    async with serving(app, ours.server) as port:
        yield port


_INSTALL = (
    "PYTHONPATH={pip} /usr/bin/python3 -S -m pip --isolated --disable-pip-version-check install --no-cache-dir "
    "--retries 0 --target /tmp/made --cert ca.pem --index-url https://index.example:{port}/simple tidings 2>&1"
)


@pytest.mark.slow
async def test_pip_installs_a_package_from_an_index_on_the_list(tmp_path: Path) -> None:
    ours = authority(tmp_path, "index.example", "files.index.example")
    sandbox = SandboxSettings(read_only=(_PIP,))
    async with _index(tmp_path, ours) as port:
        hosts = (f"index.example:{port}", f"files.index.example:{port}")
        install = _INSTALL.format(pip=_PIP, port=port)
        async with job(tmp_path / "whole", *hosts, ours=ours, settings=sandbox) as whole:
            assert "Successfully installed tidings-1.0" in await whole.run(install, 60)
            imported = await whole.run("PYTHONPATH=/tmp/made /usr/bin/python3 -c 'import tidings; print(tidings.NEWS)'")
            assert imported == "installed through the proxy\n"
            await eventually(lambda: len(whole.seen) == 2)
            assert {(each.host, each.port) for each in whole.seen} == {
                ("index.example", port),
                ("files.index.example", port),
            }
            assert all(each.allowed and each.received_bytes > 500 for each in whole.seen)
        # An index needs the host of its files on the list as well; who looks on is told so.
        async with job(tmp_path / "half", hosts[0], ours=ours, settings=sandbox) as half:
            said = await half.run(install, 60)
            assert f"files.index.example:{port} is not on the list of hosts that this sandbox may reach" in said
            await eventually(lambda: [each for each in half.seen if not each.allowed])


async def test_with_a_network_there_is_still_no_other_way_out(site: Site, tmp_path: Path) -> None:
    name = f"\0codepilot-test-{tmp_path.name}"
    attempts = [
        ("direct('127.0.0.1', {port})", "ConnectionRefusedError"),
        ("direct('192.0.2.1', 443)", "Network is unreachable"),
        ("direct('169.254.169.254', 80)", "Network is unreachable"),
        ("direct('8.8.8.8', 53)", "Network is unreachable"),
        ("socket.getaddrinfo('a.example', 443)", "gaierror"),
        ("socket.socket(socket.AF_UNIX).connect({name!r})", "ConnectionRefusedError"),
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "OSError"),
        ("socket.socket(socket.AF_VSOCK)", "OSError"),
    ]
    async with job(tmp_path / "work", f"a.example:{site.port}", ours=site.ours) as each:
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(name)
            abstract.listen()
            for attempt, why in attempts:
                code = attempt.format(port=site.port, name=name)
                said = await each.attack(f"def direct(*to): socket.create_connection(to, 5)\n{code}\nprint('met')")
                assert why in said.splitlines()[-1], said
        assert each.seen == []
        said = await each.attack(f"print(get('a.example:{site.port}', 'a.example'))")  # the positive control
        assert "hello from a.example" in said


async def test_unlisted_hosts_are_denied_and_logged(site: Site, tmp_path: Path) -> None:
    async with job(tmp_path / "work", f"a.example:{site.port}", ours=site.ours) as each:
        targets = [f"b.example:{site.port}", "a.example:443", "169.254.169.254:80", f"127.0.0.1:{site.port}"]
        said = await each.attack("\n".join(f"tunnel({target!r})" for target in targets))
        assert said.count("HTTP/1.1 403 ") == len(targets)
        await eventually(lambda: len(each.seen) == len(targets))
        assert [(one.host, one.port, one.allowed) for one in each.seen] == [
            (target.partition(":")[0], int(target.partition(":")[2]), False) for target in targets
        ]
        assert site.asked == []


async def test_a_name_unlike_the_one_asked_for_gets_nowhere(site: Site, tmp_path: Path) -> None:
    async with job(tmp_path / "work", f"a.example:{site.port}", ours=site.ours) as each:
        said = await each.attack(f"print(get('a.example:{site.port}', 'b.example'))")
        assert "HTTP/1.1 200" in said
        assert "access denied" in said.lower()
        said = await each.attack(
            f"c = tunnel('a.example:{site.port}'); c.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); print(c.recv(100))"
        )
        assert "hello" not in said
        await eventually(lambda: len(each.seen) == 2)
        assert [one.allowed for one in each.seen] == [False, False]
        assert site.asked == []


async def test_a_name_that_is_led_elsewhere_gets_nowhere(site: Site, tmp_path: Path) -> None:
    answers = [[LOOPBACK], ["10.0.0.1"], ["169.254.169.254"], ["::ffff:10.0.0.1"]]
    target = f"a.example:{site.port}"
    async with job(tmp_path / "work", target, ours=site.ours, leads_to=lambda _: answers.pop(0)) as each:
        assert "hello from" in await each.attack(f"print(get({target!r}, 'a.example'))")
        said = await each.attack(f"for _ in range(3): tunnel({target!r})")
        assert said.count("HTTP/1.1 403 the name a.example leads to") == 3
        assert not answers


async def test_a_job_gets_no_more_bytes_than_it_may(site: Site, tmp_path: Path) -> None:
    target, limits = f"a.example:{site.port}", NetworkLimits(total_bytes=150_000)
    async with job(tmp_path / "work", target, ours=site.ours, limits=limits) as each:
        assert "x" * 1000 in await each.attack(f"print(get({target!r}, 'a.example', '/much'))")
        said = await each.attack(f"print(len(get({target!r}, 'a.example', '/much')))")
        assert "100000" not in said
        # Nor does a new sandbox get it more.
        await each.shell.reset()
        assert "403 the limit of 150000 bytes is used up" in await each.attack(f"tunnel({target!r})")
        assert sum(one.sent_bytes + one.received_bytes for one in each.seen) <= 150_000


async def test_too_many_connections_end_the_network_and_the_job_is_told(site: Site, tmp_path: Path) -> None:
    target, limits = f"a.example:{site.port}", NetworkLimits(connections=20, at_once=4)
    async with job(tmp_path / "work", target, ours=site.ours, limits=limits) as each:
        said = await each.attack("for _ in range(30): tunnel('b.example:443')")
        assert said.count("403") == 20
        assert said.splitlines()[-1].startswith(("ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError"))
        await eventually(lambda: each.lost)
        assert each.lost == ["20 connections were made, and a sandbox may make no more"]
        assert "ConnectionRefusedError" in await each.attack(f"tunnel({target!r})")


async def test_open_connections_do_not_block_others(site: Site, tmp_path: Path) -> None:
    target, limits = f"a.example:{site.port}", NetworkLimits(at_once=4, handshake_seconds=0.5)
    async with job(tmp_path / "work", target, ours=site.ours, limits=limits) as each:
        said = await each.attack(
            "held = [socket.create_connection(('127.0.0.1', 3128)) for _ in range(8)]\n"
            f"for one in held: one.sendall(b'CONN')\nprint(get({target!r}, 'a.example'))"
        )
        assert "hello from" in said


async def test_connections_beyond_the_bound_wait_for_their_turn(site: Site, tmp_path: Path) -> None:
    target, limits = f"a.example:{site.port}", NetworkLimits(at_once=1)
    async with job(tmp_path / "work", target, ours=site.ours, limits=limits) as each:
        said = await each.attack(
            "held, waiting = [socket.create_connection(('127.0.0.1', 3128)) for _ in range(2)]\n"
            "waiting.sendall(b'CONNECT b.example:443 HTTP/1.0\\r\\n\\r\\n')\n"
            "waiting.settimeout(0.5)\n"
            "try: print('at once', waiting.recv(12))\n"
            "except TimeoutError: print('not yet')\n"
            "held.close()\nwaiting.settimeout(20)\nprint(waiting.recv(12))"
        )
        assert said == "not yet\nb'HTTP/1.1 403'\n"


async def test_a_proxy_that_breaks_takes_the_network_with_it_and_says_so(site: Site, tmp_path: Path) -> None:
    target = f"a.example:{site.port}"
    async with job(tmp_path / "work", target, ours=site.ours, broken=KeyError("a fault of ours")) as each:
        await each.attack(f"print(get({target!r}, 'a.example'))")
        await eventually(lambda: each.lost)
        assert each.lost == ["the proxy broke: KeyError('a fault of ours')"]
        said = await each.attack(f"tunnel({target!r})")
        assert "ConnectionRefusedError" in said.splitlines()[-1]


def _is_ours(pid: int) -> bool:
    with suppress(OSError):  # ended meanwhile
        return parent_of(pid) == os.getpid()
    return False


async def test_nothing_of_the_proxy_runs_inside(site: Site, tmp_path: Path) -> None:
    """So there is no forwarder to kill, stop or replace."""
    target = f"a.example:{site.port}"
    async with job(tmp_path / "work", target, ours=site.ours) as each:
        assert "hello" in await each.attack(f"print(get({target!r}, 'a.example'))")
        programs = (await each.run("cat /proc/[0-9]*/comm | sort | uniq -c")).split()
        assert set(programs[1::2]) <= {"bash", "cat", "sort", "uniq", "setsid"}
        assert (await each.run("find / -type s 2>/dev/null; cat /proc/net/unix | tail -n +2 | grep -c '[/@]'")) == "0\n"
        assert not any(map(_is_ours, processes_with(str(_PROGRAM)))), "others are of other jobs"
        said = await each.attack("socket.create_server(('127.0.0.1', 3128), reuse_port=True)")
        assert "Address already in use" in said
        await each.run("kill -9 -1; kill -STOP -1; true")
        assert "hello" in await each.attack(f"print(get({target!r}, 'a.example'))")


async def test_two_jobs_have_ways_out_of_their_own(site: Site, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        jobs = [
            await stack.enter_async_context(job(tmp_path / name, f"{name}.example:{site.port}", ours=site.ours))
            for name in ("a", "b")
        ]
        for name, other, each in (("a", "b", jobs[0]), ("b", "a", jobs[1])):
            said = await each.attack(f"print(get('{name}.example:{site.port}', '{name}.example'))")
            assert f"hello from {name}.example" in said
            assert "403" in await each.attack(f"tunnel('{other}.example:{site.port}')")
            listening = await each.run("grep -c ' 0A ' /proc/net/tcp; cat /proc/net/tcp6 | tail -n +2")
            assert listening == "1\n"
            await eventually(lambda each=each: len(each.seen) == 2)
        assert [one.host for one in jobs[0].seen] == ["a.example", "b.example"]
        assert [one.host for one in jobs[1].seen] == ["b.example", "a.example"]
        await jobs[0].shell.close()
        assert "hello" in await jobs[1].attack(f"print(get('b.example:{site.port}', 'b.example'))")


async def test_without_a_network_no_port_is_open_and_no_variable_speaks_of_one(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shell = ShellTools(Bubblewrap(SandboxSettings()), tmp_path / "work")
    try:
        result = (await shell.execute("main", "tail -n +2 /proc/net/tcp; env | grep -ic proxy", 10)).value
        assert isinstance(result, dict)
        assert result["output"] == "0\n"
    finally:
        await shell.close()


def test_an_unavailable_network_namespace_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "no namespace").open("w") as file, pytest.raises(SandboxError, match="cannot be opened"):
        listen_in_namespace(file.fileno())
