"""Fixtures for the whole suite."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import hypothesis
import pytest
from aiohttp.web_app import _cached_build_middleware
from dbos._sys_db_sqlite import SQLiteSystemDatabase
from execnet.xspec import XSpec
from sqlalchemy import Compiled, Dialect, Engine

from agent_runtime.run import toolbox
from bot.publishing.redact import Redactor
from bot.queue import store
from bot.server import build
from localhub import LocalHub
from tests import forked, forked_workers, programs
from tests.contracts.validator import Contract

ROOT = Path(__file__).parent.parent

pytest_plugins = ["localhub.pytest_plugin"]

# A busy machine makes no test fail.
hypothesis.settings.register_profile("suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("suite")

# Each worker, and each of the hundreds of processes that tests start, would compile all of the code anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell without job control starts what it puts in the background with Control-C ignored, and every program that a
# test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is collected, a million objects, out of all collections of garbage, and have fewer of those."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[XSpec]) -> None:
    forked_workers.fork_workers(config, specs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin each worker's share with some of the longest tests: one that is left at the end keeps a worker alone."""
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    workers, count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(items)
    items.clear()
    for number in range(workers):
        # pytest-xdist deals out consecutive tests, as evenly as it can.
        share = (count - len(items)) // (workers - number)
        first = long[number::workers]
        rest = max(0, share - len(first))
        items += first + others[:rest]
        del others[:rest]


@pytest.fixture(autouse=True, scope="session")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    programs.kept.append(tmp_path_factory.mktemp("programs"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(toolbox, "describe_toolchain", programs.remembered(programs.kept[0]))
        yield
    programs.kept.clear()


@pytest.fixture(autouse=True, scope="session")
def _forked() -> Iterator[None]:
    with forked.server():
        yield


@pytest.fixture(autouse=True, scope="session")
def _secrets() -> Iterator[None]:
    """Learn the same secrets once: a private key takes 30 ms, and each service of a test begins with one."""

    @lru_cache(maxsize=8)
    def redactor_of(secrets: tuple[str, ...]) -> Redactor:
        return Redactor(secrets)

    def remembered(secrets: Iterable[str]) -> Redactor:
        return redactor_of(tuple(secrets)).copy()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "Redactor", remembered)
        yield


@pytest.fixture(autouse=True, scope="session")
def _tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the tables of an SQLite database once: each service of a test begins with a new one."""
    migrate, made = store._migrate, tmp_path_factory.mktemp("tables") / "jobs.sqlite"
    store.JobStore(f"sqlite:///{made}").close_sync()

    def migrated(engine: Engine) -> None:
        if engine.dialect.name == "sqlite":
            with closing(engine.raw_connection()) as new, closing(sqlite3.connect(made)) as tables:
                if new.cursor().execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    with suppress(sqlite3.OperationalError):  # of a full disk, which is for the code to find
                        tables.backup(cast("sqlite3.Connection", new.driver_connection))
        migrate(engine)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "_migrate", migrated)
        yield


@pytest.fixture(autouse=True, scope="session")
def _statements() -> Iterator[None]:
    """Compile a statement for SQLite once: each service of a test begins with engines of its own, which would each."""
    first_cache: list[tuple[Dialect, MutableMapping[Any, Compiled] | None]] = []

    def sharing(make: Callable[..., Engine]) -> Callable[..., Engine]:
        def made(*args: object) -> Engine:
            engine = make(*args)
            if engine.dialect.name == "sqlite":
                # What is compiled is kept for one dialect.
                first_cache[:] = first_cache or [(engine.dialect, engine._compiled_cache)]
                engine.dialect, engine._compiled_cache = first_cache[0]
            return engine

        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "_engine", sharing(store._engine))
        patched.setattr(SQLiteSystemDatabase, "_create_engine", sharing(SQLiteSystemDatabase._create_engine))
        yield


@pytest.fixture(autouse=True, scope="session")
def _closing_servers() -> Iterator[None]:
    """Close a connection that comes in the moment in which its server closes.

    asyncio accepts it and forgets it: its client waits, and the collector of garbage warns of it in a later test.
    """
    accept = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]  # there is no public way

    async def accepted(
        loop: asyncio.AbstractEventLoop, protocol: object, connection: socket.socket, *rest: object
    ) -> None:
        _extra, _tls, server, *_ = rest
        if isinstance(server, asyncio.Server) and not server.is_serving():
            connection.close()
        else:
            await accept(loop, protocol, connection, *rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BaseSelectorEventLoop, "_accept_connection2", accepted)
        yield


@pytest.fixture(autouse=True)
def _forgotten_applications() -> Iterator[None]:
    """Forget the web applications of a test: aiohttp would keep the last thousand pairs of handler and application."""
    yield
    _cached_build_middleware.cache_clear()


@pytest.fixture(scope="session")
def contract_files() -> Path | str:
    """The folder with GitHub's official descriptions; or, where they cannot be had, the reason."""
    return _fetched("api.json", "webhooks.json", "schema.graphql")


@pytest.fixture(scope="session")
def webhook_examples() -> Path | str:
    """The folder with examples of GitHub's webhooks; or, where they cannot be had, the reason."""
    folder = _fetched("webhook-examples")
    return folder / "webhook-examples" if isinstance(folder, Path) else folder


def _fetched(*names: str) -> Path | str:
    folder = ROOT / ".cache" / "contracts"
    if all((folder / name).exists() for name in names):
        return folder
    fetched = subprocess.run([ROOT / "scripts" / "contracts"], capture_output=True, text=True, check=False)
    return folder if fetched.returncode == 0 else f"GitHub's descriptions cannot be fetched: {fetched.stderr.strip()}"


@pytest.fixture(scope="session")
def shared_contract(contract_files: Path | str) -> Contract | None:
    """The judge, loaded once for all tests; None where the descriptions cannot be had."""
    return Contract(contract_files) if isinstance(contract_files, Path) else None


@pytest.fixture
def hub(hub: LocalHub, shared_contract: Contract | None) -> Iterator[LocalHub]:
    """A running hub; the test fails when an answer or a webhook does not fit GitHub's descriptions."""
    if shared_contract is not None:
        shared_contract.violations.clear()
        hub.observe(on_exchange=shared_contract.served, on_delivery=shared_contract.sent)
    yield hub
    if shared_contract is not None:
        assert not shared_contract.violations, "\n".join(shared_contract.violations)
