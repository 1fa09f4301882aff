"""A PostgreSQL server of the tests' own: on the loopback, on a free port, in a directory that goes away with it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.ports import free_port

PASSWORD = "correct-horse-battery-staple"
_NUMBERS = itertools.count()
_USER_INSTEAD_OF_ROOT = "nobody"  # PostgreSQL refuses to run as root


@dataclass(slots=True, kw_only=True)
class Postgres:
    """A running server.

    Attributes:
        port: where it listens on the loopback.
        home: its directory.
        command: what starts it.
        user: who it runs as; None for this process's user.
    """

    port: int
    home: Path
    command: Sequence[str | Path]
    user: str | None
    _server: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, for the first time or after `stop`."""
        with (self.home / "log").open("ab") as log:
            self._server = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.home, user=self.user)
        _wait_for(self, self._server, self.home / "log")

    def stop(self) -> None:
        """End it at once, as if its machine had lost power."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(30)
            self._server = None

    def new_database(self, template: str = "template1") -> str:
        """The address of a new database that holds what the template does."""
        name = f"codepilot{next(_NUMBERS)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

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
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        home, port = Path(name), free_port()
        password = home / "password"
        password.write_text(PASSWORD)
        if user:
            for path in (home, password):
                shutil.chown(path, user)
        options = ["--auth=md5", "--username=tester", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [bin_directory / "initdb", "--no-sync", *options, "-D", home / "data"],
            check=True, stdout=subprocess.DEVNULL, cwd=home, user=user,
        )  # fmt: skip
        options = ["listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories="]
        # Nothing is vacuumed that is gone in a moment; every database would have a process of its own look at it.
        options += [] if fsync else ["fsync=off", "full_page_writes=off", "autovacuum=off"]
        command: list[str | Path] = [
            bin_directory / "postgres",
            "-D",
            home / "data",
            *(f"--{option}" for option in options),
        ]
        postgres = Postgres(port=port, home=home, command=command, user=user)
        try:
            postgres.start()
            yield postgres
        finally:
            postgres.stop()


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
    return postgres_server.new_database()
