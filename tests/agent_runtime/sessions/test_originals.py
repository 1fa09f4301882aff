"""Session files of CodePilot 0.9 in the session directory: refused until they are imported, then opened."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_runtime import (
    Agent,
    AsyncRuntime,
    FileSession,
    SandboxSettings,
    ScriptedProvider,
    SessionError,
    pick_sandbox,
)
from agent_runtime.sessions.create import import_session_file
from bot.__main__ import cli

ID, FILE_ID = "shop/ü 1", "shop_ü_1"
"""The id of a program for CodePilot 0.9.1, and the id under which that stores it."""

WRITTEN = Path(__file__).with_name("codepilot_0_9_1.json")
FACTS = json.loads(WRITTEN.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "the sessions"
    folder.mkdir()
    (folder / f"{FILE_ID}.json").write_bytes(WRITTEN.read_bytes())
    return folder


USES: list[Callable[[FileSession], object]] = [
    FileSession.exists,
    FileSession.metadata,
    FileSession.load,
    FileSession.reset,
    lambda session: session.events,
    lambda session: session.save([]),
]


@pytest.mark.parametrize("session_id", [ID, FILE_ID])
@pytest.mark.parametrize("use", USES)
def test_a_session_that_was_not_imported_is_refused_with_the_command(
    folder: Path, session_id: str, use: Callable[[FileSession], object]
) -> None:
    with pytest.raises(SessionError) as refused:
        use(FileSession(session_id, session_dir=folder))
    text = str(refused.value)
    assert text.startswith(f"Session {session_id!r} is in {folder / FILE_ID}.json, in the format of CodePilot 0.9.")
    assert [path.name for path in folder.iterdir()] == [f"{FILE_ID}.json"]
    command = shlex.split(text[text.index("codepilot import-session") : text.index(" - or move")])
    done = CliRunner().invoke(cli, command[1:], catch_exceptions=False)
    assert done.output == f"Imported the session {FILE_ID!r}.\n"
    session = FileSession(session_id, session_dir=folder)
    use(session)
    session.close()


def test_an_imported_session_keeps_its_facts_and_is_found_by_both_ids(folder: Path) -> None:
    import_session_file(folder / f"{FILE_ID}.json", lambda name: FileSession(name, session_dir=folder))
    sessions = [FileSession(session_id, "another", folder) for session_id in (ID, FILE_ID)]
    assert [session.load() for session in sessions] == [FACTS["messages"]] * 2
    facts = {key: FACTS[key] for key in ("session_id", "agent_name", "created_at", "updated_at")} | {"messages": 8}
    assert [session.metadata() for session in sessions] == [facts] * 2
    assert sessions[0].list_sessions() == [facts]


async def test_a_runtime_refuses_and_then_goes_on_with_the_conversation(folder: Path, tmp_path: Path) -> None:
    def start() -> AsyncRuntime:
        agent = Agent(
            provider=ScriptedProvider(["```completion\nStill there.\n```\n"]),
            work_dir=tmp_path / "work",
            sandbox=pick_sandbox("auto", SandboxSettings()),
        )
        return AsyncRuntime(agent, "file", ID, folder)

    (tmp_path / "work").mkdir()
    with pytest.raises(SessionError, match="import-session"):
        start()
    import_session_file(folder / f"{FILE_ID}.json", lambda name: FileSession(name, session_dir=folder))
    async with start() as runtime:
        await runtime.run("Is calc.py still there?")
        assert runtime.messages[: len(FACTS["messages"])] == FACTS["messages"]
    stored = FileSession(ID, session_dir=folder).metadata()
    assert stored is not None
    assert stored["created_at"] == FACTS["created_at"]
    assert stored["updated_at"] > FACTS["updated_at"]


def test_other_sessions_stay_apart(folder: Path) -> None:
    """Two ids that CodePilot 0.9 kept in one file are two sessions, unless that file was imported."""
    one = FileSession("team_a", session_dir=folder)
    one.save([{"role": "user", "content": "secret"}])
    one.close()
    assert FileSession("team/a", session_dir=folder).load() == []


def test_the_list_names_what_it_leaves_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert FileSession("_", session_dir=folder).list_sessions() == []
    assert f"codepilot import-session '{folder}'/*.json --session-dir '{folder}'" in caplog.text


def test_a_session_that_was_reset_starts_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    import_session_file(folder / f"{FILE_ID}.json", lambda name: FileSession(name, session_dir=folder))
    session = FileSession(ID, session_dir=folder)
    session.reset()
    session.close()
    caplog.clear()
    assert FileSession(FILE_ID, session_dir=folder).load() == []
    assert FileSession(ID, session_dir=folder).load() == []
    assert FileSession("_", session_dir=folder).list_sessions() == []
    assert not caplog.records


def test_a_copied_file_is_a_session_of_its_own(folder: Path) -> None:
    copy = folder / "before-the-change.json"
    copy.write_bytes(WRITTEN.read_bytes())
    session = FileSession(copy.stem, session_dir=folder)
    with pytest.raises(SessionError, match=f"import-session '{copy}' --session-dir"):
        session.load()
    arguments = ["import-session", *map(str, folder.glob("*.json")), "--session-dir", str(folder)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    assert FileSession(copy.stem, session_dir=folder).load() == FACTS["messages"]
    assert FileSession(ID, session_dir=folder).load() == FACTS["messages"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"messages": 3}', '{"session_id": "other", "messages": []}', "[" * 100_000, "\ud800"]
)
def test_other_json_files_are_no_sessions(tmp_path: Path, content: str) -> None:
    (tmp_path / "package.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert FileSession("package", session_dir=tmp_path).load() == []
    assert FileSession("_", session_dir=tmp_path).list_sessions() == []


@pytest.mark.parametrize("session_id", ["x" * 5_000, "\0", "\ud800", "..", "a/../../b"])
def test_any_id_can_be_asked_about(tmp_path: Path, session_id: str) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert not FileSession(session_id, session_dir=tmp_path).exists()
    assert not FileSession("pipe", session_dir=tmp_path).exists()
