from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from typing_extensions import override

from agent_runtime.core.errors import (
    SessionDamagedError,
    SessionError,
    SessionInUseError,
    SessionNewerError,
    SessionUnavailableError,
    SettingsError,
)
from agent_runtime.core.events import Observed
from agent_runtime.sessions import tables
from agent_runtime.sessions.codec import Header, encode, messages_of
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.tables import EVENTS, EXPIRY_SECONDS, LEASES, Lease, RowLog, SessionDatabase, renew_lease
from tests.postgres import PASSWORD, Postgres
from tests.source_files import ROOT
from tests.waiting import eventually

Make = Callable[..., DatabaseSession]


def a_message(number: int = 1) -> Observed:
    return Observed(step=number, text=f"text {number}", ok=True)


@pytest.fixture
def make(db_url: str) -> Iterator[Make]:
    """Sessions in one database of each kind; closed in the end."""
    made: list[DatabaseSession] = []

    def session(session_id: str = "s") -> DatabaseSession:
        made.append(DatabaseSession(session_id, db_url=db_url))
        return made[-1]

    yield session
    for each in made:
        each.close()


def run(db_url: str, *statements: sa.Executable | str) -> list[tuple[object, ...]]:
    """Run statements of somebody else's; the rows of the last one."""
    engine = sa.create_engine(db_url, poolclass=sa.NullPool)
    rows: list[tuple[object, ...]] = []
    with engine.begin() as connection:
        for statement in statements:
            done = connection.execute(sa.text(statement) if isinstance(statement, str) else statement)
            rows = [tuple(row) for row in done] if done.returns_rows else []
    return rows


async def test_events_wait_in_memory_until_they_are_committed(make: Make, db_url: str) -> None:
    session = make()
    session.append(a_message(1))
    assert not make().exists()
    await session.commit()
    session.append(a_message(2))
    assert len(make().load()) == 1
    await session.commit()
    assert len(session.events) == 2
    assert run(db_url, "SELECT session_id, position FROM codepilot_events ORDER BY position") == [("s", 0), ("s", 1)]
    assert run(db_url, "SELECT session_id, agent_name, format, messages FROM codepilot_sessions") == [
        ("s", "agent", 1, 2)
    ]


async def test_an_eager_session_writes_what_is_recorded_without_a_commit(make: Make, db_url: str) -> None:
    session = DatabaseSession("s", db_url=db_url, eager=True)
    for number in range(3):
        session.append(a_message(number))
        await eventually(lambda: len(make().load()) == number + 1)  # noqa: B023 - waited for at once
    session.append(a_message(3))
    session.close()
    assert [message["content"] for message in make().load()] == ["text 0", "text 1", "text 2", "text 3"]


async def test_an_eager_session_that_could_not_write_fails_at_the_commit_and_loses_nothing(
    make: Make, db_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = DatabaseSession("s", db_url=db_url, eager=True)
    session.append(a_message(1))
    await session.commit()
    run(db_url, "ALTER TABLE codepilot_events RENAME TO elsewhere")
    session.append(a_message(2))
    await eventually(lambda: "not written" in caplog.text)
    with pytest.raises(SessionUnavailableError):
        await session.commit()
    run(db_url, "ALTER TABLE elsewhere RENAME TO codepilot_events")
    await session.commit()
    session.close()
    assert [message["content"] for message in make().load()] == ["text 1", "text 2"]


async def test_a_commit_that_fails_loses_nothing(make: Make, db_url: str) -> None:
    session = make()
    session.append(a_message(1))
    await session.commit()
    session.append(a_message(2))
    run(db_url, "ALTER TABLE codepilot_events RENAME TO elsewhere")
    with pytest.raises(SessionError, match="cannot be used"):
        await session.commit()
    run(db_url, "ALTER TABLE elsewhere RENAME TO codepilot_events")
    await session.commit()
    assert len(make().load()) == 2


class Losing(SessionDatabase):
    """A database whose answer to the next commit gets lost; the commit does not."""

    loses = False

    @override
    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with super().writing() as connection:
            yield connection
        if self.loses:
            self.loses = False
            raise SessionError("The connection was lost.")


@pytest.fixture
def losing(db_url: str) -> Iterator[tuple[Losing, RowLog]]:
    database = Losing(db_url)
    log = RowLog(database, Header(session_id="s", agent_name="agent", created_at=0))
    yield database, log
    log.close()


@pytest.mark.parametrize("before", [0, 2])
def test_what_a_lost_answer_had_written_is_not_written_again(
    losing: tuple[Losing, RowLog], make: Make, db_url: str, before: int
) -> None:
    database, log = losing
    for number in range(before):
        log.append(a_message(number))
    log.sync()
    log.append(a_message(before))
    log.append(a_message(before + 1))
    database.loses = True
    with pytest.raises(SessionError, match="lost"):
        log.sync()
    log.append(a_message(before + 2))
    log.sync()
    log.append(a_message(before + 3))
    log.sync()
    assert make().load() == messages_of(log.events)
    assert len(log.events) == before + 4
    assert run(db_url, "SELECT messages FROM codepilot_sessions") == [(before + 4,)]


@pytest.mark.parametrize("meanwhile", ["changed", "replaced", "removed"])
def test_after_a_lost_answer_nothing_is_added_to_what_was_not_recorded_here(
    losing: tuple[Losing, RowLog], make: Make, db_url: str, meanwhile: str
) -> None:
    database, log = losing
    log.append(a_message(1))
    log.sync()
    log.append(a_message(2))
    database.loses = True
    change = {"changed": log.sync, "replaced": lambda: log.replace([a_message(7)]), "removed": log.remove}[meanwhile]
    with pytest.raises(SessionError, match="lost"):
        change()
    if meanwhile == "changed":
        run(db_url, EVENTS.update().where(EVENTS.c.position == 1).values(body=encode(a_message(3))))
    there = make().load()
    with pytest.raises(SessionError, match="does not hold what was recorded here"):
        log.sync()
    assert make().load() == there
    log.remove()
    log.append(a_message(4))
    log.sync()
    assert make().load() == messages_of([a_message(4)])


async def test_many_processes_may_make_the_tables_at_once(make: Make) -> None:
    sessions = [make(f"s{number}") for number in range(6)]
    failures: list[BaseException] = []

    def open_it(session: DatabaseSession) -> None:
        try:
            _ = session.events
        except SessionError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it, args=[session]) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


async def test_of_many_that_open_one_session_at_once_one_gets_it(make: Make) -> None:
    make("first").reset()
    sessions = [make() for _ in range(6)]
    opened, refused = list[DatabaseSession](), list[SessionError]()

    def open_it(session: DatabaseSession) -> None:
        try:
            session.reset()
            opened.append(session)
        except SessionError as error:
            refused.append(error)

    threads = [threading.Thread(target=open_it, args=[session]) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert [type(error) for error in refused] == [SessionInUseError] * 5


@pytest.mark.parametrize(("silent_for", "free"), [(EXPIRY_SECONDS - 5, False), (EXPIRY_SECONDS + 5, True)])
async def test_a_holder_on_another_machine_is_dead_when_it_says_nothing_any_more(
    make: Make, db_url: str, silent_for: float, *, free: bool
) -> None:
    make("other").reset()
    here = Lease.current()
    theirs = replace(here, host="elsewhere", pid=7, machine="another", beat=here.beat - silent_for)
    run(db_url, LEASES.insert().values(session_id="s", **asdict(theirs)))
    if free:
        assert make().events == []
    else:
        with pytest.raises(SessionInUseError, match="process 7 on elsewhere"):
            _ = make().events


async def test_a_session_is_taken_over_from_a_living_holder_which_then_writes_nothing_more(
    make: Make, db_url: str
) -> None:
    holder = make()
    holder.append(a_message(1))
    await holder.commit()
    holder.append(a_message(2))
    with pytest.raises(SessionInUseError):
        _ = make().events
    taker = DatabaseSession("s", db_url=db_url, take_over=True)
    assert taker.events == [a_message(1)]
    with pytest.raises(SessionInUseError):
        await holder.commit()
    with pytest.raises(SessionInUseError):
        holder.close()
    taker.append(a_message(3))
    taker.close()
    assert make().load() == messages_of([a_message(1), a_message(3)])


async def test_a_process_with_the_number_of_a_dead_holder_is_not_the_holder(make: Make, db_url: str) -> None:
    make("other").reset()
    before = replace(Lease.current(), started="1")
    run(db_url, LEASES.insert().values(session_id="s", **asdict(before)))
    assert make().events == []


async def test_whoever_lost_its_session_writes_nothing_more(make: Make, db_url: str) -> None:
    session = make()
    session.append(a_message(1))
    await session.commit()
    session.append(a_message(2))
    run(db_url, LEASES.update().values(beat=0, machine="another"))
    taker = make()
    assert len(taker.events) == 1
    with pytest.raises(SessionInUseError, match="'s' "):
        await session.commit()
    with pytest.raises(SessionInUseError):
        session.reset()
    taker.append(a_message(3))
    await taker.commit()
    assert [message["content"] for message in taker.load()] == ["text 1", "text 3"]
    with pytest.raises(SessionInUseError):
        session.close()
    session.close()


async def test_a_newer_format_is_refused_and_never_overwritten(make: Make, db_url: str) -> None:
    session = make()
    session.append(a_message())
    session.close()
    run(db_url, "UPDATE codepilot_sessions SET format = 2")
    for use in (session.load, session.reset, lambda: session.append(a_message(2)), lambda: session.save([])):
        with pytest.raises(SessionNewerError, match=r"'s' in .*format 2 "):
            use()
    assert run(db_url, "SELECT count(*) FROM codepilot_events") == [(1,)]


async def test_damage_is_refused_with_its_position(make: Make, db_url: str) -> None:
    session = make()
    for number in range(3):
        session.append(a_message(number))
    session.close()
    run(db_url, sa.text("UPDATE codepilot_events SET body = :body WHERE position = 1").bindparams(body=b'{"kind":'))
    with pytest.raises(SessionDamagedError, match=r"'s' in .*position 1, "):
        _ = session.events
    assert run(db_url, "SELECT count(*) FROM codepilot_events") == [(3,)]


_ORIGINAL = (
    (
        "CREATE TABLE codepilot_sessions (session_id VARCHAR(255) PRIMARY KEY, agent_name VARCHAR(255), messages TEXT,"
        " created_at FLOAT, updated_at FLOAT)"
    ),
    """INSERT INTO codepilot_sessions VALUES ('old', 'Engineer', '{"messages": [{"role": "user"}]}', 1, 2)""",
)


async def test_the_table_of_the_original_codepilot_is_left_alone_and_told_of(make: Make, db_url: str) -> None:
    run(db_url, *_ORIGINAL)
    session = make()
    for use in (
        session.exists,
        session.load,
        session.list_sessions,
        session.reset,
        lambda: session.append(a_message()),
    ):
        with pytest.raises(SessionError, match="import_session_table"):
            use()
    assert sa.inspect(sa.create_engine(db_url, poolclass=sa.NullPool)).get_table_names() == ["codepilot_sessions"]
    assert len(run(db_url, "SELECT * FROM codepilot_sessions")) == 1


def test_the_file_of_an_sqlite_database_is_closed_to_others(tmp_path: Path) -> None:
    session = DatabaseSession("s", db_url=f"sqlite:///{tmp_path / 'sessions.db'}")
    session.append(a_message())
    session.close()
    assert (tmp_path / "sessions.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_database_is_said_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n" * 1_000)
    with pytest.raises(SessionError, match=r"notes\.txt"):
        DatabaseSession("s", db_url=f"sqlite:///{path}").append(a_message())
    assert path.read_text() == "my notes\n" * 1_000


def test_the_address_may_begin_as_some_hosts_write_it(postgres_url: str) -> None:
    session = DatabaseSession("s", db_url=postgres_url.replace("postgresql:", "postgres:"))
    session.append(a_message())
    session.close()
    assert session.exists()


def test_a_server_that_was_started_anew_does_not_matter(postgres_server: Postgres, postgres_url: str) -> None:
    session = DatabaseSession("s", db_url=postgres_url)
    session.append(a_message())
    postgres_server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        " AND pid <> pg_backend_pid()"
    )
    session.close()
    assert session.exists()


async def test_a_session_that_is_open_keeps_one_connection_and_no_other_does(
    postgres_server: Postgres, postgres_url: str
) -> None:
    def connected() -> list[int]:
        with sa.create_engine(postgres_server.url().replace("postgresql:", "postgresql+psycopg:")).connect() as rows:
            of_sessions = sa.text("SELECT pid FROM pg_stat_activity WHERE datname = :name")
            found = list(rows.execute(of_sessions, {"name": postgres_url.rpartition("/")[2]}).scalars())
        rows.engine.dispose()
        return found

    session = DatabaseSession("s", db_url=postgres_url)
    session.append(a_message())
    await session.commit()
    [kept] = connected()
    session.append(a_message())
    await session.commit()
    assert connected() == [kept]
    session.close()
    assert session.exists()
    await eventually(lambda: not connected())


@pytest.mark.parametrize("url", ["sqlite:///{0}/no/such/dir/x.db", "postgresql://tester:{1}@127.0.0.1:1/x"])
def test_a_database_that_cannot_be_reached_is_said_without_its_password(tmp_path: Path, url: str) -> None:
    session = DatabaseSession("s", db_url=url.format(tmp_path, PASSWORD))
    with pytest.raises(SessionError, match=r"(sqlite|postgresql):.*cannot be used") as caught:
        session.append(a_message())
    assert PASSWORD not in str(caught.value)


def test_a_wrong_password_is_said_without_it(postgres_server: Postgres | str) -> None:
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    session = DatabaseSession("s", db_url=postgres_server.url(password="hunter2"))
    with pytest.raises(SessionError, match=r"postgresql://127\.0\.0\.1:\d+/postgres") as caught:
        session.append(a_message())
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (None, "needs db_url"),
        ("", "needs db_url"),
        ("nonsense hunter2", "not a valid database address"),
        ("oracle9i://u:hunter2@h/d", "not a valid database address"),
        ("postgresql+psycopg2://u:hunter2@h/d", r"install codepilot-bot\[db\]"),
        ("postgresql+psycopg_async://u:hunter2@h/d", "asynchronous"),
        ("sqlite://", "session='memory'"),
        ("sqlite:///:memory:", "session='memory'"),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_once_without_its_password(url: str | None, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        DatabaseSession("s", db_url=url)
    assert "hunter2" not in str(caught.value)


def test_an_id_that_no_database_can_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="limit is 600"):
        DatabaseSession("x" * 601, db_url=f"sqlite:///{tmp_path / 'x.db'}")


def test_without_the_extra_its_name_is_told() -> None:
    code = """
import sys
sys.modules["sqlalchemy"] = None
from agent_runtime.sessions.create import create_session
try:
    create_session("db", db_url="sqlite:///x.db")
except Exception as error:
    print(type(error).__name__, error)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.startswith("SettingsError ")
    assert "install codepilot-bot[db]" in shown


def test_nobody_pays_for_databases_who_does_not_use_one() -> None:
    code = (
        "import sys, agent_runtime.sessions.create; print({'sqlalchemy', 'filelock', 'psycopg'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown == "set()\n"


async def test_a_holder_says_again_and_again_that_it_lives(
    make: Make, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BEAT_SECONDS", 0.01)
    session = make()
    assert session.events == []
    run(db_url, LEASES.update().values(beat=0))
    await eventually(lambda: run(db_url, "SELECT beat FROM codepilot_leases WHERE beat > 0"))


async def test_a_session_may_be_dropped_while_its_holder_says_that_it_lives(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: RowLog | None = None

    def dropped_meanwhile(connection: sa.Connection, key: str, token: str, now: float) -> bool:
        if log is not None and threading.current_thread() is log._heartbeat:
            log.close()  # as the garbage collector may, in whatever thread it runs
        return renew_lease(connection, key, token, now)

    monkeypatch.setattr(tables, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(tables, "renew_lease", dropped_meanwhile)
    session = make()
    session.append(a_message())
    assert isinstance(session._log, RowLog)
    log = session._log
    log._heartbeat.join(10)
    assert make().events == [a_message()]
