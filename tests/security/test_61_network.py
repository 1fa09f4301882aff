"""Threat 61: another host, a direct IP, DNS, the metadata address, the host's loopback, an abstract socket.

There is no network inside at all, so each is refused by the kernel. `test_61_egress.py` is about sandboxes with one.
"""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from tests.sandboxes import run_inside


@pytest.fixture
def loopback_server() -> Iterator[int]:
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_hosts_loopback_cannot_be_reached(loopback_server: int, tmp_path: Path) -> None:
    script = f"exec 3<>/dev/tcp/127.0.0.1/{loopback_server} && echo connected"
    assert "connected" not in run_inside(script, tmp_path).stdout
    with socket.create_connection(("127.0.0.1", loopback_server), timeout=5):
        pass  # the positive control: it is there, outside


@pytest.mark.parametrize("address", ["192.0.2.1/80", "169.254.169.254/80", "203.0.113.7/443", "198.51.100.1/53"])
def test_no_address_can_be_reached(address: str, tmp_path: Path) -> None:
    done = run_inside(f"exec 3<>/dev/tcp/{address} && echo connected", tmp_path)
    assert "connected" not in done.stdout
    assert "unreachable" in done.stderr


def test_no_name_is_resolved(tmp_path: Path) -> None:
    assert run_inside("getent hosts example.org", tmp_path).returncode != 0


def test_there_is_no_interface_but_a_loopback_of_its_own(tmp_path: Path) -> None:
    names = run_inside("tail -n +3 /proc/net/dev | cut -d: -f1", tmp_path).stdout.split()
    assert names == ["lo"]


def test_an_abstract_socket_of_the_host_cannot_be_reached(tmp_path: Path) -> None:
    name = f"\0codepilot-test-{tmp_path.name}"
    script = (
        '/usr/bin/python3 -c "import socket; s = socket.socket(socket.AF_UNIX); '
        f"s.connect(chr(0) + {name[1:]!r}); print('connected')\""
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        done = run_inside(script, tmp_path)
        assert "connected" not in done.stdout
        assert "ConnectionRefusedError" in done.stderr
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)  # the positive control


def test_unix_sockets_of_the_host_are_not_there(tmp_path: Path) -> None:
    done = run_inside("ls /run/docker.sock /var/run/docker.sock /run/dbus /tmp/.X11-unix", tmp_path)
    assert done.stdout == ""


def test_loopback_inside_works(tmp_path: Path) -> None:
    script = (
        "/usr/bin/python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "c = socket.create_connection(s.getsockname()); print('connected')\""
    )
    assert run_inside(script, tmp_path).stdout == "connected\n"


def test_two_runs_of_one_sandbox_have_networks_of_their_own(tmp_path: Path) -> None:
    launch = Bubblewrap(SandboxSettings()).launch(["true"], workspace=tmp_path)
    assert "--unshare-all" in launch.argv
    assert "--share-net" not in launch.argv
