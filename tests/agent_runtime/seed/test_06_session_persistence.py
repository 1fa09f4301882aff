"""§6: three backends, chosen when the runtime is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import (
    AsyncRuntime,
    DatabaseSession,
    FileSession,
    InMemorySession,
    SessionError,
    SettingsError,
    create_session,
)
from tests.agent_runtime.seed.parts import Model, reply, write_agent_file

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_memory_is_the_default_and_the_id_is_the_agents_name(tmp_path: Path) -> None:
    async with AsyncRuntime(write_agent_file(tmp_path, reply(done="."))) as runtime:
        assert isinstance(runtime.session, InMemorySession)
        assert runtime.session.session_id == "code-pilot"
    async with AsyncRuntime(tmp_path / "agent.yaml", session="memory", session_id="mine") as runtime:
        assert runtime.session.session_id == "mine"


@pytest.fixture(params=["file", "db"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What a runtime is told for a session that survives it."""
    where: dict[str, dict[str, Any]] = {
        "file": {"session_dir": tmp_path / "sessions"},
        "db": {"db_url": f"sqlite:///{tmp_path / 'codepilot.db'}"},
    }
    return {"session": request.param, "session_id": "ecommerce-api", **where[request.param]}


async def test_the_conversation_survives_the_runtime(start: Start, kept: dict[str, Any]) -> None:
    first, _ = start(reply("print('looked')"), reply(done="Made it."), using=kept)
    await first.run("Make it")
    before = first.messages
    await first.close()
    second, model = start(reply(done="Went on."), using=kept)
    assert second.messages == before
    await second.run("Go on")
    texts = [message.text for message in model.requests[0].messages]
    assert any("[Task 1]\nMake it" in text for text in texts)
    assert "[Task 2]\nGo on" in texts[-1]


async def test_what_is_archived_survives_as_well(start: Start, kept: dict[str, Any]) -> None:
    first, _ = start(reply(done="One."), reply('archive_context(task=1, summary="Did one.")', done="Two."), using=kept)
    await first.run("Do one")
    await first.run("Do two")
    await first.close()
    second, model = start(reply("list_archived_context()"), reply(done="Listed."), using=kept)
    await second.run("Which?")
    assert "[ARCHIVED TASK 1]" in model.read[1]
    assert "Did one." in model.read[1]


async def test_each_session_of_a_store_is_listed(start: Start, kept: dict[str, Any]) -> None:
    for name in ("a/b", "a_b", "ä b"):
        runtime, _ = start(reply(done=f"For {name}."), using=kept | {"session_id": name})
        await runtime.run("Do it")
        await runtime.close()
    session = create_session(kept["session"], "_", session_dir=kept.get("session_dir"), db_url=kept.get("db_url"))
    assert not isinstance(session, InMemorySession)
    listed = session.list_sessions()
    assert {each["session_id"] for each in listed} == {"a/b", "a_b", "ä b"}
    assert [each["messages"] for each in listed] == [2, 2, 2]
    assert all(each["agent_name"] == "Codepilot" and each["updated_at"] >= each["created_at"] for each in listed)


async def test_a_session_is_one_runtimes_at_a_time(start: Start, kept: dict[str, Any]) -> None:
    first, _ = start(reply(done="One."), using=kept)
    await first.run("Do it")
    refused = None
    try:
        second, _ = start(using=kept)
        await second.run("Do it, too")
    except SessionError as error:
        refused = str(error)
    assert "ecommerce-api" in (refused or "")
    assert "this process" in (refused or "")


async def test_a_file_session_lies_in_the_home_directory_by_default_and_is_nobody_elses(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    runtime, _ = start(reply(done="Done."), using={"session": "file"})
    await runtime.run("Do it")
    session = runtime.session
    assert isinstance(session, FileSession)
    assert session.path.parent == tmp_path / ".codepilot" / "sessions"
    assert session.path.stat().st_mode & 0o077 == 0


def test_sessions_can_be_made_by_their_names(tmp_path: Path) -> None:
    assert isinstance(create_session(), InMemorySession)
    assert isinstance(create_session("file", "s", "agent", session_dir=tmp_path), FileSession)
    assert isinstance(create_session("db", "s", db_url=f"sqlite:///{tmp_path}/a.db"), DatabaseSession)
    with pytest.raises(SettingsError, match="'memory'"):
        create_session("memroy")
    with pytest.raises(SettingsError, match="db_url"):
        create_session("db")


@pytest.mark.parametrize("backend", ["memory", "file", "db"])
def test_messages_can_be_saved_and_loaded_by_hand(tmp_path: Path, backend: str) -> None:
    session = create_session(backend, "s", session_dir=tmp_path, db_url=f"sqlite:///{tmp_path}/a.db")
    told = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello yourself"}]
    assert session.load() == []
    assert not session.exists()
    session.save(told)
    assert session.load() == told
    assert session.exists()
    session.reset()
    assert session.load() == []
    assert not session.exists()
    session.close()


@pytest.mark.parametrize("backend", ["memory", "file"])
async def test_messages_saved_by_hand_are_the_conversation_of_a_runtime_that_has_run(
    start: Start, tmp_path: Path, backend: str
) -> None:
    runtime, model = start(*[reply(done="Done.")] * 2, using={"session": backend, "session_dir": tmp_path / "sessions"})
    await runtime.run("Sort the list")
    told = [{"role": "user", "content": f"Hello {n}"} for n in range(20)]
    session = runtime.session
    assert isinstance(session, (InMemorySession, FileSession))
    session.save([*told, {"role": "assistant", "content": "Hello yourself"}])
    await runtime.run("Go on")
    asked = "\n".join(each.full_text for each in model.requests[-1].messages)
    assert "Hello 19" in asked
    assert "Sort the list" not in asked
    assert "died" not in asked
