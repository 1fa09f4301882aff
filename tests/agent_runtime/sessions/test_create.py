from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import Agent, AsyncRuntime, SandboxSettings, ScriptedProvider, pick_sandbox
from agent_runtime.core.errors import SessionError, SettingsError
from agent_runtime.core.events import Imported
from agent_runtime.sessions.create import create_session, export_session_file, import_session_file, import_session_table
from agent_runtime.sessions.database import DatabaseSession
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import InMemorySession
from tests.agent_runtime.sessions.stores import Store


def test_a_session_is_made_by_the_name_of_its_store(tmp_path: Path) -> None:
    assert isinstance(create_session(), InMemorySession)
    in_files = create_session("file", "s", "me", session_dir=tmp_path)
    assert isinstance(in_files, FileSession)
    assert in_files.path.parent == tmp_path
    assert (in_files.session_id, in_files.agent_name) == ("s", "me")
    in_rows = create_session("db", "s", "me", db_url=f"sqlite:///{tmp_path / 'x.db'}")
    assert isinstance(in_rows, DatabaseSession)
    assert not in_rows.exists()


def test_an_unknown_store_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"'fiel'.*'file'\?.*: db, file, memory"):
        create_session("fiel")


def test_a_database_without_an_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="db_url"):
        create_session("db")


MESSAGES = [
    {"role": "user", "content": "[Task 1][USER INPUT] Create the endpoints"},
    {"role": "assistant", "content": "Done.\n"},
]
SEED = {
    "session_id": "ecommerce-api",
    "agent_name": "BackendEngineer",
    "created_at": 1712345678.0,
    "updated_at": 1712349999.0,
    "messages": MESSAGES,
    "extra": {"memory_state": {"archive": {"store": {"1": [{"role": "user", "content": "[Task 1] Begin"}]}}}},
}


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    """A session file of the original CodePilot's."""
    path = tmp_path / "ecommerce-api.json"
    path.write_text(json.dumps(SEED, indent=2))
    return path


def test_a_session_file_of_the_original_is_brought_in(
    seed: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    session = store.session("ecommerce-api")
    assert import_session_file(seed, lambda _id: session) == "ecommerce-api"
    assert store.session("ecommerce-api").load() == MESSAGES
    facts = {key: SEED[key] for key in ("session_id", "agent_name", "created_at", "updated_at")} | {"messages": 2}
    assert store.session("ecommerce-api").metadata() == facts
    session.close()
    assert store.session("ecommerce-api").metadata() == facts
    in_memory = InMemorySession("ecommerce-api")
    import_session_file(seed, lambda _id: in_memory)
    assert in_memory.metadata() == facts
    assert "memory_state" in caplog.text
    assert "not imported" in caplog.text


def test_an_import_without_archived_texts_gives_no_warning(seed: Path, caplog: pytest.LogCaptureFixture) -> None:
    seed.write_text(json.dumps({**SEED, "extra": {"memory_state": {"archive": {"store": {}}}}}))
    import_session_file(seed, lambda _id: InMemorySession("ecommerce-api"))
    assert caplog.text == ""


def test_a_session_is_given_back_in_the_form_of_the_original(tmp_path: Path, store: Store) -> None:
    session = store.session("a/b", "BackendEngineer")
    session.save(MESSAGES)
    export_session_file(session, tmp_path / "out.json")
    content = json.loads((tmp_path / "out.json").read_text())
    assert list(content) == list(SEED)
    assert content["messages"] == MESSAGES
    assert content["extra"] == {}
    assert (content["session_id"], content["agent_name"]) == ("a/b", "BackendEngineer")
    copy = InMemorySession()
    import_session_file(tmp_path / "out.json", lambda _id: copy)
    assert copy.load() == MESSAGES


def test_a_session_that_holds_something_is_not_overwritten(seed: Path) -> None:
    session = InMemorySession("mine")
    session.save(MESSAGES[:1])
    with pytest.raises(SessionError, match="'mine' is not empty"):
        import_session_file(seed, lambda _id: session)
    assert session.load() == MESSAGES[:1]


@pytest.mark.parametrize("time", ["1e400", "-1", "NaN", "null", '"x"', "1e300"])
def test_a_time_that_cannot_be_one_is_the_time_of_the_import(tmp_path: Path, store: Store, time: str) -> None:
    path = tmp_path / "x.json"
    messages = json.dumps(MESSAGES)
    path.write_text(f'{{"messages": {messages}, "agent_name": 3, "created_at": {time}, "updated_at": {time}}}')
    session = store.session("x", "mine")
    import_session_file(path, lambda _id: session)
    metadata = session.metadata()
    assert metadata is not None
    assert metadata["agent_name"] == "mine"
    assert metadata["updated_at"] >= metadata["created_at"] > 1_700_000_000


def test_an_empty_session_is_imported_as_an_empty_one(tmp_path: Path, store: Store) -> None:
    (tmp_path / "x.json").write_text('{"session_id": "x", "messages": []}')
    session = store.session("x")
    import_session_file(tmp_path / "x.json", lambda _id: session)
    session.append(Imported(role="user", text="hi"))
    session.close()
    assert store.session("x").load() == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not in the form"),
        ("{}", "not in the form .*'messages'"),
        ('{"messages": 3}', "not in the form"),
        ('"text"', "not in the form"),
        ('{"messages": [{"role": "system", "content": "x"}]}', "message 1 has the role 'system'"),
        ('{"messages": [{"role": "user", "content": [1]}]}', "content of message 1 is a list"),
    ],
)
def test_a_file_in_another_form_is_refused_and_nothing_changes(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    session = InMemorySession()
    with pytest.raises(SessionError, match=rf"{path}.*{reason}"):
        import_session_file(path, lambda _id: session)
    assert not session.exists()


def test_a_file_that_is_not_there_or_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"none\.json .*No such file"):
        import_session_file(tmp_path / "none.json", InMemorySession)
    (tmp_path / "x.json").write_bytes(b"\xff")
    with pytest.raises(SessionError, match="not UTF-8 text"):
        import_session_file(tmp_path / "x.json", InMemorySession)


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    session = InMemorySession("mine")
    with pytest.raises(SessionError, match="'mine' is empty"):
        export_session_file(session, tmp_path / "out.json")
    session.save(MESSAGES)
    with pytest.raises(SessionError, match="cannot be written"):
        export_session_file(session, tmp_path / "no" / "out.json")


def test_a_table_of_the_original_is_brought_in_beside_it(db_url: str) -> None:
    engine = sa.create_engine(db_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE codepilot_sessions (session_id VARCHAR(255) PRIMARY KEY, agent_name VARCHAR(255),"
                " messages TEXT, created_at FLOAT, updated_at FLOAT)"
            )
        )
        for session_id, messages in (("old", {"messages": MESSAGES, "extra": {}}), ("older", MESSAGES[:1])):
            connection.execute(
                sa.text("INSERT INTO codepilot_sessions VALUES (:id, 'Engineer', :messages, 1, 2)"),
                {"id": session_id, "messages": json.dumps(messages)},
            )
        connection.execute(sa.text("ALTER TABLE codepilot_sessions RENAME TO codepilot_sessions_original"))
    store = Store(db_url=db_url)
    assert import_session_table(db_url, store.session, table="codepilot_sessions_original") == ["old", "older"]
    assert store.session("old").load() == MESSAGES
    assert store.session("older").load() == MESSAGES[:1]
    metadata = store.session("old").metadata()
    assert metadata is not None
    assert (metadata["agent_name"], metadata["created_at"], metadata["updated_at"]) == ("Engineer", 1, 2)
    store.close()
    with pytest.raises(SessionError, match="cannot be used"):
        import_session_table(db_url, store.session, table="nowhere")


async def test_a_session_that_codepilot_0_9_1_wrote_is_gone_on_with(tmp_path: Path) -> None:
    written = Path(__file__).with_name("codepilot_0_9_1.json")
    session = InMemorySession()
    assert import_session_file(shutil.copy(written, tmp_path / "shop_ü_1.json"), lambda _id: session) == "shop_ü_1"
    told = json.loads(written.read_text(encoding="utf-8"))["messages"]
    assert session.load() == told
    agent = Agent(
        provider=ScriptedProvider(["```completion\nStill there.\n```\n"]),
        work_dir=tmp_path,
        sandbox=pick_sandbox("auto", SandboxSettings()),
    )
    async with AsyncRuntime(agent, session) as runtime:
        assert (await runtime.run("Is calc.py still there?")).summary == "Still there."
        assert runtime.messages[: len(told)] == told
