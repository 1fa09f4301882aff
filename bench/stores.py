"""The databases that the engine is measured on: an SQLite file on the disk, and a PostgreSQL server that syncs."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import postgres

NewDatabase = Callable[[], str]
"""Makes an empty database, and gives its address."""

_DISK = Path("/var/tmp")  # noqa: S108 - on the disk, where /tmp may be in memory


@contextmanager
def stores() -> Iterator[dict[str, NewDatabase]]:
    """Return the factories of databases by kind; PostgreSQL only where installed."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(dir=_DISK, prefix="bench-") as folder:
        found: dict[str, NewDatabase] = {"SQLite": lambda: f"sqlite:///{folder}/{next(numbers)}.sqlite"}
        programs = postgres.programs()
        if programs is None:
            yield found
            return
        with postgres.running(programs, fsync=True) as server:

            def new() -> str:
                name = f"bench{next(numbers)}"
                server.run(f"CREATE DATABASE {name}")
                return server.url(name)

            yield found | {"PostgreSQL": new}
