"""A PostgreSQL server of the tests' own: on the loopback, on a free port, in a directory that goes away with it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

PASSWORD = "correct-horse-battery-staple"
_NUMBERS = itertools.count()
_USER_INSTEAD_OF_ROOT = "nobody"  # PostgreSQL refuses to run as root


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """A running server."""

    port: int

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside of any transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


def programs() -> Path | None:
    """Where this machine's newest PostgreSQL lies; None when there is none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    # Debian keeps the servers of all versions side by side and off the PATH.
    versions = (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return max(versions, key=lambda path: int(path.parent.name), default=None)


@contextmanager
def running(bin_directory: Path, *, fsync: bool = False) -> Iterator[Postgres]:
    """Start a server and stop it again; `fsync` for one whose commits are on the disk."""
    user = _USER_INSTEAD_OF_ROOT if os.geteuid() == 0 else None
    # Not below pytest's directory: that is closed to other users.
    with tempfile.TemporaryDirectory(prefix="postgres-") as name, socket.create_server(("127.0.0.1", 0)) as free:
        home = Path(name)
        port = free.getsockname()[1]
        free.close()
        password = home / "password"
        password.write_text(PASSWORD)
        if user:
            for path in (home, password):
                shutil.chown(path, user)
        options = ["--auth=scram-sha-256", "--username=tester", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [bin_directory / "initdb", "--no-sync", *options, "-D", home / "data"],
            check=True, stdout=subprocess.DEVNULL, cwd=home, user=user,
        )  # fmt: skip
        options = ["listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories="]
        options.append(f"fsync={'on' if fsync else 'off'}")
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [bin_directory / "postgres", "-D", home / "data", *(f"--{option}" for option in options)],
                stdout=log, stderr=log, cwd=home, user=user,
            )  # fmt: skip
        try:
            postgres = Postgres(port=port)
            _wait_for(postgres, server, home / "log")
            yield postgres
        finally:
            server.send_signal(signal.SIGQUIT)  # at once; nobody needs the data any more
            server.wait(30)


def _wait_for(postgres: Postgres, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert server.poll() is None, f"PostgreSQL did not start:\n{log.read_text()}"
        try:
            postgres.run("SELECT 1")
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, f"PostgreSQL did not answer within a minute:\n{log.read_text()}"
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres | str]:
    """A running server; or, where none is installed, the reason why these tests are left out."""
    found = programs()
    if found is None:
        yield "PostgreSQL is not installed (scripts/system-programs dev installs it)"
        return
    with running(found) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres | str) -> str:
    """An empty database."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    name = f"codepilot{next(_NUMBERS)}"
    postgres_server.run(f"CREATE DATABASE {name}")
    return postgres_server.url(name)
